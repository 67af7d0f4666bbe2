"""Below each entry of the glossary, links to the chapters and further pages that use the word, the first of them first.

A page uses a word where it links to it with ``{term}``. A word that no page links to leads to the section that
contains it first.
"""

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from book_pages import Notebook, toc
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

GLOSSARY = "book/glossary"
ById = dict[str, dict[str, str]]  # kept with the environment between builds


def uses(env: BuildEnvironment) -> ById:
    """Page: term: id of the section that links to it first."""
    return vars(env).setdefault("term_uses", {})


def texts(env: BuildEnvironment) -> ById:
    """Page: id of a section: its words."""
    return vars(env).setdefault("section_texts", {})


def section_of(node: Any) -> str:
    # The boxes of theorems and exercises hold sections too, which have no title.
    while node and not (
        isinstance(node, nodes.section) and isinstance(node[0], nodes.title)
    ):
        node = node.parent
    return node["ids"][0] if node else ""


def collect(app: Sphinx, doctree: nodes.document) -> None:
    page = app.env.docname
    if not app.env.doc2path(page).endswith(".ipynb"):
        return
    found = uses(app.env)[page] = {}
    for link in doctree.findall(addnodes.pending_xref):
        if link["reftype"] == "term":
            found.setdefault(link["reftarget"].casefold(), section_of(link))
    words = texts(app.env)[page] = {}
    for text in doctree.findall(nodes.paragraph):
        name = section_of(text)
        words[name] = f"{words.get(name, '')} {text.astext().casefold()}"


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    uses(env).pop(docname, None)
    texts(env).pop(docname, None)


def pages() -> Iterator[tuple[str, str]]:
    """Number and name of each page, in the order of the book."""
    for main, further in toc().items():
        for path in (main, *further):
            name = path.relative_to(main.parents[1]).with_suffix("").as_posix()
            yield Notebook(path).number, name


def places(env: BuildEnvironment, terms: list[str]) -> list[tuple[str, str, str]]:
    """Number, page and section of each page's first use."""
    linked = [
        (number, page, next(uses(env)[page][x] for x in terms if x in uses(env)[page]))
        for number, page in pages()
        if {*terms} & uses(env).get(page, {}).keys()
    ]
    words = re.compile("|".join(rf"\b{re.escape(term)}\b" for term in terms))
    said = (
        (number, page, section)
        for number, page in pages()
        for section, text in texts(env).get(page, {}).items()
        if words.search(text)
    )
    return linked or list(islice(said, 1))


def add_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    if docname != GLOSSARY:
        return
    for item in doctree.findall(nodes.definition_list_item):
        terms = [t.astext().casefold() for t in item.findall(nodes.term)]
        line = nodes.paragraph("", classes=["glossary-links"])
        for i, (number, page, section) in enumerate(places(app.env, terms)):
            address = f"{app.builder.get_relative_uri(docname, page)}#{section}"
            line += nodes.Text(("→ first in ", ", then in ", ", ")[min(i, 2)])
            words = number if i else f"chapter {number}"
            line += nodes.reference("", words, refuri=address, internal=True)
        if line.children:
            item[-1].append(line)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", collect)
    app.connect("env-purge-doc", forget)
    app.connect("doctree-resolved", add_links)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
