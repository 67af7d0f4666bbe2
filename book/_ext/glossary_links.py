"""Below each entry of the glossary, links to the places in the chapters that use the word with ``{term}``."""

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

GLOSSARY = "book/glossary"
Uses = dict[
    str, dict[str, str]
]  # chapter: term: id of the section that links to it first


def uses(env: BuildEnvironment) -> Uses:
    return vars(env).setdefault(
        "term_uses", {}
    )  # kept with the environment between builds


def collect(app: Sphinx, doctree: nodes.document) -> None:
    if not app.env.doc2path(app.env.docname).endswith(".ipynb"):
        return
    found = uses(app.env)[app.env.docname] = {}
    for link in doctree.findall(addnodes.pending_xref):
        if link["reftype"] == "term":
            section = link.parent
            # The boxes of theorems and exercises hold sections too, which have no title.
            while not (
                isinstance(section, nodes.section)
                and isinstance(section[0], nodes.title)
            ):
                section = section.parent
            found.setdefault(link["reftarget"].casefold(), section["ids"][0])


def forget(app: Sphinx, env: BuildEnvironment, docname: str) -> None:
    uses(env).pop(docname, None)


def add_links(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    if docname != GLOSSARY:
        return
    for item in doctree.findall(nodes.definition_list_item):
        terms = [t.astext().casefold() for t in item.findall(nodes.term)]
        line = nodes.paragraph("", classes=["glossary-links"])
        for chapter, found in sorted(uses(app.env).items()):
            numbers = app.env.toc_secnumbers.get(chapter, {})
            places = [found[term] for term in terms if term in found]
            if places and numbers:  # a page without a number is no chapter
                number = numbers[""][0]
                address = app.builder.get_relative_uri(docname, chapter)
                line += nodes.Text(", " if line.children else "")
                line += nodes.reference(
                    "",
                    f"chapter {number}",
                    refuri=f"{address}#{places[0]}",
                    internal=True,
                )
        if line.children:
            line.insert(0, nodes.Text("→ "))
            item[-1].append(line)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-read", collect)
    app.connect("env-purge-doc", forget)
    app.connect("doctree-resolved", add_links)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
