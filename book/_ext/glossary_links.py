"""Below each entry of the glossary, links to the chapters and further pages that use the word, the first of them first.

A page uses a word where it links to it with ``{term}``. A word that no page links to leads to the section that
contains it first.
"""

import re
from collections.abc import Iterator
from typing import Any

from book_pages import Notebook, toc
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

GLOSSARY = "book/glossary"
Section = tuple[str, str, set[str]]  # its id, its text and the terms that it links to


def sections(env: BuildEnvironment) -> dict[str, list[Section]]:
    """Of each page, kept with the environment between builds."""
    return vars(env).setdefault("glossary_sections", {})


def collect(app: Sphinx, doctree: nodes.document) -> None:
    if not app.env.doc2path(app.env.docname).endswith(".ipynb"):
        return
    found: dict[int, Section] = {}
    for text in doctree.findall(
        lambda x: isinstance(x, nodes.Text | addnodes.pending_xref)
    ):
        section: Any = text.parent
        # The boxes of theorems and exercises hold sections too, which have no title.
        while section and not (
            isinstance(section, nodes.section) and isinstance(section[0], nodes.title)
        ):
            section = section.parent
        if not section:
            continue
        name = section["ids"][0]
        _, words, terms = found.get(id(section), (name, "", set()))
        if isinstance(text, nodes.Text):
            words += f" {text.astext().casefold()}"
        elif text["reftype"] == "term":
            terms.add(text["reftarget"].casefold())
        found[id(section)] = name, words, terms
    sections(app.env)[app.env.docname] = list(found.values())


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    sections(env).pop(docname, None)


def places(
    env: BuildEnvironment, terms: list[str], linked: bool
) -> Iterator[tuple[str, str, str]]:
    """Number, page and section of each page's first use, in the order of the book."""
    words = re.compile("|".join(rf"\b{re.escape(term)}\b" for term in terms))
    for main, further in toc().items():
        for path in (main, *further):
            docname = f"book/{path.relative_to(main.parent).with_suffix('').as_posix()}"
            for name, text, links in sections(env).get(docname, []):
                if links & {*terms} if linked else words.search(text):
                    yield Notebook(path).number, docname, name
                    break


def add_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    if docname != GLOSSARY:
        return
    for item in doctree.findall(nodes.definition_list_item):
        terms = [t.astext().casefold() for t in item.findall(nodes.term)]
        used = list(places(app.env, terms, linked=True))
        used = used or list(places(app.env, terms, linked=False))[:1]
        line = nodes.paragraph("", classes=["glossary-links"])
        for i, (number, page, section) in enumerate(used):
            address = f"{app.builder.get_relative_uri(docname, page)}#{section}"
            line += nodes.Text(("→ first in ", ", then in ", ", ")[min(i, 2)])
            words = f"{number}" if i else f"chapter {number}"
            line += nodes.reference("", words, refuri=address, internal=True)
        if used:
            item[-1].append(line)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", collect)
    app.connect("env-purge-doc", forget)
    app.connect("doctree-resolved", add_links)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
