"""Page heads, the main line on the front page, numbers of further pages (2A, 2B), and what leads from old addresses.

``{page-head}`` stands below a page's title and holds a sentence on what the page needs. To it come how many minutes the
page takes by the clock of ``book_pages.py``, after how many the formula of the option ``:formula:`` stands, where the
reader is on the main line, and what comes next.
"""

import os
import re
from pathlib import Path
from typing import Any

from book_pages import BOOK, Notebook, main_page, toc
from docutils import nodes
from docutils.parsers.rst import directives
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective


def head(path: Path, needs: list[str], formula: str = "") -> list[str]:
    """Markdown, for the page and for its plain notebook."""
    page, line, main = Notebook(path), [*toc()], main_page(path)
    further = [_link(path, other) for other in toc()[main] if other != path]
    then = line[line.index(main) + 1 :][:1]
    time = f"**{page.minutes} minutes to read**"
    if page.exercise_minutes:
        time += f", {page.exercise_minutes} minutes of exercises"
    if formula:
        after = f"{page.minutes_until(formula):.0f}"
        time += f". The formula, {{eq}}`{formula}`, comes after {after}"
    if path == main:
        place = [f"Page {line.index(main) + 1} of {len(line)} on the main line."]
        place += [f"Next: {_link(path, other)}." for other in then]
        place += [f"Further pages: {', '.join(further)}."] if further else []
    else:
        place = [f"A further page of {_link(path, main)}."]
        place += [f"Its others: {', '.join(further)}."] if further else []
        place += [f"Next on the main line: {_link(path, other)}." for other in then]
    return [f"{time}. {' '.join(needs)}", "", " ".join(place)]


def _link(here: Path, other: Path) -> str:
    page = Notebook(other)
    address = os.path.relpath(other, here.parent)
    return f"[{page.number} {page.title}]({address}) ({page.minutes} minutes)"


class PageHead(SphinxDirective):
    has_content = True
    option_spec = {"formula": directives.unchanged}  # noqa: RUF012 (so Sphinx wants it)

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.doc2path(self.env.docname))
        for other in [path, *(page for pages in toc().values() for page in pages)]:
            self.env.note_dependency(str(other))
        lines = head(path, list(self.content), self.options.get("formula", ""))
        box = nodes.container(classes=["page-head"])
        self.state.nested_parse(
            StringList(lines, self.get_source_info()[0]), self.content_offset, box
        )
        return [box]


class MainLine(SphinxDirective):
    """The chapters in order, each with its argument (the text after its name), its minutes and its further pages."""

    has_content = True

    def run(self) -> list[nodes.Node]:
        here = Path(self.env.doc2path(self.env.docname))
        said = dict(line.split(": ", 1) for line in self.content if line)
        if [*said] != [path.stem for path in toc()]:
            raise self.error("main-line: name each chapter of _toc.yml, in its order")
        pages = {
            path: Notebook(path)
            for line in toc().items()
            for path in (line[0], *line[1])
        }
        for path in pages:
            self.env.note_dependency(str(path))
        main = sum(pages[path].minutes for path in toc()) / 60
        rest = sum(page.minutes for page in pages.values()) / 60 - main
        work = sum(page.exercise_minutes for page in pages.values()) / 60
        lines = [
            f"The {len(toc())} main pages take about {main:.0f} hours to read, the "
            f"{len(pages) - len(toc())} further pages {rest:.0f}, and all exercises {work:.0f}.",
            "",
        ]
        for path, further in toc().items():
            links = ", ".join(_link(here, other) for other in further)
            lines += [f"* **{_link(here, path)}** {said[path.stem]}", ""]
            lines += [f"  Further: {links}.", ""] if further else []
        box = nodes.container(classes=["main-line"])
        self.state.nested_parse(
            StringList(lines, self.get_source_info()[0]), self.content_offset, box
        )
        return [box]


def number(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Sphinx counts a further page as the chapter's next section, 2.14; here it becomes 2A, and its sections 2A.1."""
    docs = {
        _docname(page): Notebook(page).number
        for line in toc().values()
        for page in line
    }
    changed = [
        doc for doc in docs if len(env.toc_secnumbers.get(doc, {}).get("", ())) == 2
    ]
    for doc in changed:

        def own(old: Any, name: str = docs[doc]) -> tuple[Any, ...]:
            return (name, *old[2:])

        numbers = env.toc_secnumbers[doc]
        env.toc_secnumbers[doc] = {key: own(old) for key, old in numbers.items()}  # type: ignore[misc]  # Sphinx types them as whole numbers
        env.titles[doc]["secnumber"] = own(env.titles[doc]["secnumber"])
        for link in env.tocs[doc].findall(nodes.reference):
            if "secnumber" in link:
                link["secnumber"] = own(link["secnumber"])
    return changed


def _docname(page: Path) -> str:
    return page.relative_to(BOOK.parent).with_suffix("").as_posix()


def anchors(app: Sphinx, page: str) -> set[str]:
    tree = app.env.get_doctree(page)
    found = {name for node in tree.findall(nodes.Element) for name in node["ids"]}
    return {
        name for name in found if re.fullmatch(r"(?!recall-)[a-z][\w-]*", name)
    }  # others are Sphinx's own, and questions have not moved


def lead_on(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Old addresses of what moved from a main page to a further one: ``book.js`` goes where the hidden mark leads."""
    main = BOOK.parent / f"{page}.ipynb"
    if doctree is None or not toc().get(main):
        return
    here, marks = anchors(app, page), dict[str, str]()
    for further in map(_docname, toc()[main]):
        address = app.builder.get_relative_uri(page, further)
        marks |= {x: f"{address}#{x}" for x in anchors(app, further) - here - {*marks}}
    context["body"] += "".join(
        f'<a hidden class="moved" id="{name}" href="{address}"></a>'
        for name, address in sorted(marks.items())
    )


def stay_on_the_main_line(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """At the foot of a main page *Next* and *Previous* lead along the line; to further pages the head leads."""
    line = [*map(_docname, toc())]
    if page not in line:
        return
    at = line.index(page)
    for way, others in (
        ("prev", line[max(at - 1, 0) : at]),
        ("next", line[at + 1 : at + 2]),
    ):
        for other in others:
            title = app.builder.render_partial(app.env.titles[other])["title"]  # type: ignore[attr-defined]  # only the HTML builder has it, and only it gets here
            context[way] = {
                "link": app.builder.get_relative_uri(page, other),
                "title": title,
            }


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("page-head", PageHead)
    app.add_directive("main-line", MainLine)
    app.connect("env-get-updated", number, priority=900)  # after Sphinx has counted
    app.connect("html-page-context", lead_on)
    app.connect("html-page-context", stay_on_the_main_line)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
