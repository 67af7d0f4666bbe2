"""Write the words of every section to ``_static/sections.js``, by which ``_static/search.js`` ranks and quotes them.

A section is what has a title: also an entry of the glossary, and a function or class of the package.
"""

import json
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from glossary_links import uses
from recall import Question
from sphinx import addnodes
from sphinx.application import Sphinx

PROSE = nodes.paragraph | nodes.caption | nodes.title
# Found, but not quoted; of the sentences that a page corrects, many are false.
UNQUOTED = nodes.literal_block | nodes.doctest_block | nodes.math_block | Question
UNREAD = {"cell_output", "glossary-links", "notebook-link", "page-head", "recall"}
START = "const PAGES = "


def collect(app: Sphinx, doctree: nodes.document, page: str) -> None:
    found: dict[nodes.Element, dict[str, Any]] = {}
    for node in doctree.findall(lambda node: isinstance(node, PROSE | UNQUOTED)):
        classes, holder = {*node["classes"]}, node.parent
        while holder and not titles(holder):
            classes |= {*holder.get("classes", [])}
            holder = holder.parent
        if not holder or classes & UNREAD:
            continue
        section = found.setdefault(holder, {"prose": [], "words": set()})
        if isinstance(node, UNQUOTED) or "solution" in classes:
            section["words"].update(re.findall(r"[^\W\d]\w+", node.astext()))
        elif node not in titles(holder):
            section["prose"].append(plain(node))
    leads_to = uses(app.env).get(page, {})
    for holder, section in found.items():
        names = titles(holder)
        anchor = (names[0]["ids"] or holder["ids"])[0]
        section |= {
            "id": anchor,
            "title": ", ".join(map(plain, names)),
            "terms": [term for term, place in leads_to.items() if place == anchor],
            "prose": "\n".join(section["prose"]),
            "words": " ".join(sorted(section["words"])),
        }
    number = app.env.toc_secnumbers.get(page, {}).get("", ())
    title = "".join(f"{n}. " for n in number) + app.env.titles[page].astext()
    pages(app)[page] = {"title": title, "sections": [*found.values()]}


def pages(app: Sphinx) -> dict[str, Any]:
    return vars(app).setdefault("pages_to_search", {})


def titles(node: nodes.Element) -> list[nodes.Element]:
    """None where it is no section."""
    if isinstance(node, nodes.section):
        # The boxes of theorems and exercises hold sections too, which have no title.
        return [x for x in node[:1] if isinstance(x, nodes.title)]
    if isinstance(node, nodes.definition_list_item):
        return [x for x in node.findall(nodes.term) if x["ids"]]
    if isinstance(node, addnodes.desc):
        return [x for x in node[:1] if x["ids"]]
    return []


def plain(node: nodes.Element) -> str:
    """Its words, with formulas in the marks by which MathJax knows them."""
    if isinstance(node, addnodes.desc_signature):
        return node["fullname"]
    parts = []
    for text in node.findall(nodes.Text):
        if isinstance(text.parent, nodes.math):
            parts.append(rf"\({text}\)")
        elif not isinstance(text.parent, nodes.raw):
            parts.append(text)
    return " ".join("".join(parts).split())


def write(app: Sphinx, failure: Exception | None) -> None:
    if failure is not None or app.builder.format != "html":
        return
    file = Path(app.outdir, "_static", "sections.js")
    # A build that writes only what has changed keeps the rest.
    old = json.loads(file.read_text("utf-8")[len(START) :]) if file.exists() else {}
    kept = {page: old[page] for page in old if page in app.env.found_docs}
    text = json.dumps(kept | pages(app), ensure_ascii=False)
    file.write_text(START + text, encoding="utf-8")


def add_scripts(app: Sphinx, page: str, *_: Any) -> None:
    if page == "search":
        # The search quotes formulas too.
        app.env.get_domain("math").data["has_equations"][page] = True
        for script in ("sections.js", "search.js"):
            app.add_js_file(script, loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("doctree-resolved", collect, priority=900)
    app.connect("html-page-context", add_scripts, priority=400)  # before MathJax's
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
