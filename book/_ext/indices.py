"""The ``{index-of}`` directive: all figures, theorems or exercises of the book, with number, title and link.

It takes them from what Sphinx has numbered, so that a new chapter is in it without further ado.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

Found = Iterator[tuple[nodes.Element, str, list[nodes.Node]]]  # what, kind, title


def figures(page: nodes.document) -> Found:
    for figure in page.findall(nodes.figure):
        for caption in figure.findall(nodes.caption):
            yield figure, "figure", first_sentence(caption.children)


def theorems(page: nodes.document) -> Found:
    for node in page.findall(nodes.Element):
        if "realtype" in node:  # of sphinx-proof
            title = node[0].astext().strip(" ()")
            yield node, node["countertype"], [nodes.Text(title)]


def exercises(page: nodes.document) -> Found:
    for node in page.findall(nodes.Element):
        if node.get("type") == "exercise":  # of sphinx-exercise
            for subtitle in node.findall(nodes.subtitle):
                yield node, "exercise", [nodes.Text(subtitle.astext())]


KINDS: dict[str, Callable[[nodes.document], Found]] = {
    "figures": figures,
    "theorems": theorems,
    "exercises": exercises,
}


class Listing(nodes.General, nodes.Element):
    """Holds the place until all pages are numbered."""


class IndexOf(SphinxDirective):
    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        kind = directives.choice(self.arguments[0], list(KINDS))
        return [Listing("", kind=kind)]


def first_sentence(children: Iterable[nodes.Node]) -> list[nodes.Node]:
    """Copies, as far as the first full stop; what stands for a link becomes its words."""
    kept: list[nodes.Node] = []
    for child in children:
        if not isinstance(child, nodes.Text):
            is_plain = isinstance(
                child, nodes.math | nodes.emphasis | nodes.strong | nodes.literal
            )
            kept.append(child.deepcopy() if is_plain else nodes.Text(child.astext()))
            continue
        start, stop, _ = re.split(r"([.?](?:\s|$)|$)", str(child), maxsplit=1)
        kept.append(nodes.Text(start))
        if stop:
            break
    return kept


def in_order(env: BuildEnvironment, docname: str) -> Iterator[str]:
    yield docname
    for below in env.toctree_includes.get(docname, []):
        yield from in_order(env, below)


def fill(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    parts = {place: list[nodes.Node]() for place in doctree.findall(Listing)}
    if not parts:
        return
    for page in in_order(app.env, app.config.root_doc):
        tree = app.env.get_doctree(page)  # once for all kinds: to read it takes longest
        address = app.builder.get_relative_uri(docname, page)
        for place, found in parts.items():
            if entries := list_of(KINDS[place["kind"]](tree), app.env, page, address):
                number = app.env.toc_secnumbers.get(page, {}).get("", ())
                title = app.env.titles[page].deepcopy().children
                start = [nodes.Text(f"{each} · ") for each in number]
                link = nodes.reference(
                    "", "", *start, *title, internal=True, refuri=address
                )
                found += [
                    nodes.paragraph("", "", nodes.strong("", "", link)),
                    nodes.bullet_list("", *entries, classes=["index-of"]),
                ]
    for place, found in parts.items():
        place.replace_self(found)


def list_of(
    found: Found, env: BuildEnvironment, page: str, address: str
) -> list[nodes.list_item]:
    numbers = env.toc_fignumbers.get(page, {})
    lines = []
    for node, counter, title in found:
        name = node["ids"][0] if node["ids"] else ""
        if number := numbers.get(counter, {}).get(name):
            text = f"{counter.title()} {'.'.join(map(str, number))}"
            link = nodes.reference("", text, internal=True, refuri=f"{address}#{name}")
            line = nodes.paragraph("", "", link, nodes.Text(" · "), *title)
            lines.append(nodes.list_item("", line))
    return lines


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Listing)
    app.add_directive("index-of", IndexOf)
    app.connect("doctree-resolved", fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
