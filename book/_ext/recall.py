"""Questions to remember: ``{recall}`` in the pages, the list of all of them, and the same as a deck for Anki.

    :::{recall} Why is a masked score −∞ and not 0?
    Because exp(0) = 1 would still take weight; exp(−∞) = 0 takes none.
    :::

The answer opens with a press, and ``recall.js`` asks whether one knew it. Both are plain words, code and formulas,
because Anki and the plain notebooks show them too. ``{recall-list}`` gathers those of all pages.
"""

import hashlib
import io
import os
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import genanki
from book_pages import Notebook, texts, toc
from docutils import nodes
from docutils.statemachine import StringList
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

BOX = re.compile(r"(?m)^:::\{recall\} (.+)\n((?:.+\n)+?):::$")
DECK = "attn_tutor.apkg"
ANKI_ID = 1_764_000_000  # of the deck and its kind of note, for ever: by it Anki knows them again
BIRTH = 1_764_028_800.0  # of every note, so that the same questions give the same bytes


@dataclass(frozen=True)
class Recall:
    question: str
    answer: str

    @property
    def name(self) -> str:
        """By which a reader's memory knows it: another question is another memory, a better answer is not."""
        return f"recall-{hashlib.sha1(self.question.encode()).hexdigest()[:8]}"


def recalls(path: Path) -> list[Recall]:
    found = BOX.findall(
        "\n".join(f"{cell['source']}\n" for cell in texts(Notebook(path).cells))
    )
    return [Recall(question, answer.strip()) for question, answer in found]


def pages() -> list[Path]:
    return [page for main, further in toc().items() for page in (main, *further)]


class Fold(nodes.General, nodes.Element):
    """A question, in which the answer is folded."""


class Question(nodes.General, nodes.TextElement):
    pass


class RecallBox(SphinxDirective):
    required_arguments = 1
    final_argument_whitespace = True
    has_content = True

    def run(self) -> list[nodes.Node]:
        words, _ = self.state.inline_text(self.arguments[0], self.lineno)
        name = Recall(self.arguments[0], "").name
        answer = nodes.container(classes=["recall-answer"])
        self.state.nested_parse(self.content, self.content_offset, answer)
        return [
            Fold("", Question("", "", *words), answer, ids=[name], classes=["recall"])
        ]


class RecallList(SphinxDirective):
    """The questions of every page below its name; each answer ends with a link to where the text gives it."""

    def run(self) -> list[nodes.Node]:
        here = Path(self.env.doc2path(self.env.docname))
        whole = nodes.container(classes=["recall-list"])
        whole += nodes.raw(
            "",
            f'<p class="recall-deck"><a href="{"../" * self.env.docname.count("/")}{DECK}" '
            "download>The same questions as a deck for Anki</a></p>",
            format="html",
        )
        for path in pages():
            self.env.note_dependency(str(path))
            page = Notebook(path)
            place = os.path.relpath(path, here.parent)
            lines = [f"**[{page.number} {page.title}]({place})**", ""]
            for x in recalls(path):
                lines += [f":::{{recall}} {x.question}", *x.answer.split("\n"), ":::"]
            group = nodes.container(classes=["recall-page"])
            source = self.get_source_info()[0]
            self.state.nested_parse(StringList(lines, source), self.content_offset, group)  # fmt: skip
            doc = path.relative_to(self.env.srcdir).with_suffix("").as_posix()
            uri = self.env.app.builder.get_relative_uri(self.env.docname, doc)
            for fold in group.findall(Fold):
                link = nodes.reference("", "In the text", internal=True, refuri=f"{uri}#{fold['ids'][0]}")  # fmt: skip
                fold[-1] += nodes.paragraph("", "", link, classes=["recall-place"])
            whole += group
        return [whole]


def visit_fold(self: Any, node: Fold) -> None:
    self.body.append(self.starttag(node, "details"))


def depart_fold(self: Any, node: Fold) -> None:
    self.body.append("</details>\n")


def visit_question(self: Any, node: Question) -> None:
    self.body.append("<summary>")


def depart_question(self: Any, node: Question) -> None:
    self.body.append("</summary>\n")


def deck() -> bytes:
    """An Anki package: one note a question, with the page that asks it; the same questions give the same bytes."""
    markdown = MarkdownIt().use(dollarmath_plugin, renderer=lambda tex, _: rf"\({tex}\)")  # fmt: skip
    card = {
        "name": "Question",
        "qfmt": "{{Question}}",
        "afmt": "{{FrontSide}}<hr id=answer>{{Answer}}<p><small>{{Page}}</small></p>",
    }
    fields = [{"name": name} for name in ("Question", "Answer", "Page")]
    kind = genanki.Model(ANKI_ID, "attn_tutor", fields=fields, templates=[card])
    all_notes = genanki.Deck(ANKI_ID, "attn_tutor: attention")
    for path in pages():
        page = Notebook(path)
        for x in recalls(path):
            said = map(markdown.render, (x.question, x.answer))
            all_notes.add_note(
                genanki.Note(
                    kind,
                    [*said, f"{page.number} {page.title}"],
                    tags=[f"chapter-{page.number}"],
                    guid=x.name,
                )
            )
    genanki.Package(all_notes).write_to_file(made := io.BytesIO(), timestamp=BIRTH)
    # A zip keeps the time at which each file in it was made.
    with zipfile.ZipFile(made) as old, zipfile.ZipFile(new := io.BytesIO(), "w") as zip:
        for name in old.namelist():
            zip.writestr(zipfile.ZipInfo(name), old.read(name), zipfile.ZIP_DEFLATED)
    return new.getvalue()


def write_deck(app: Sphinx, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html":
        Path(app.outdir, DECK).write_bytes(deck())


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Fold, html=(visit_fold, depart_fold))
    app.add_node(Question, html=(visit_question, depart_question))
    app.add_directive("recall", RecallBox)
    app.add_directive("recall-list", RecallList)
    app.connect("build-finished", write_deck)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
