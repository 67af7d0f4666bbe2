"""What the server answers: the pages of the built book, and the texts that the reader keeps beside it.

Every request needs the token or the cookie that it gave, and a Host of this machine; Jupyter Server sees to both.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jupyter_server.base.handlers import (
    APIHandler,
    AuthenticatedFileHandler,
    JupyterHandler,
)
from tornado import web

from attn_tutor.live import pages, progress, solutions
from attn_tutor.live.saved import Changed, Texts

STATIC = Path(__file__).parent / "static"
SCRIPTS = ("kernel", "output", "kept", "text", "cells", "exercises", "sentence", "training")  # fmt: skip
# Requests of the panels of chapters 9 and 11 are kept beside the cells, whose names have no space.
PANELS = ("my sentence", "my text", "my seed")
MOST = 10**6  # bytes of a request: a text, and the one that it replaces


class Reader:
    """The folder of the book, and what its reader has written there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.built = folder, folder / "_build" / "html"
        self.solutions = folder / "my_solutions.py"
        self.verdicts = Texts(folder / "my_edits" / "verdicts.json")

    def notebook(self, page: str) -> pages.Page:
        path = inside(self.folder / "book", page.removeprefix("book/") + ".ipynb")
        return pages.read(path)

    def edits(self, page: str) -> Texts:
        return Texts(self.folder / "my_edits" / f"{page.removeprefix('book/')}.json")


def inside(folder: Path, path: str) -> Path:
    """A file of the folder, or 404: no way leads out, through ".." or a link."""
    found = (folder / path).resolve()
    if not found.is_relative_to(folder.resolve()) or not found.is_file():
        raise web.HTTPError(404)
    return found


def refusal(status: int, words: str) -> web.HTTPError:
    return web.HTTPError(status, words.replace("%", "%%"))  # which tornado formats


class Served(JupyterHandler):
    @property
    def reader(self) -> Reader:
        return self.settings["attn_live"]


class PageHandler(Served):
    """A page as it was built, with the scripts that make it live."""

    @web.authenticated
    def get(self, path: str) -> None:
        reader = self.reader
        if path == "progress.html":
            shell = inside(reader.built, "genindex.html").read_text(encoding="utf-8")
            try:
                page = progress.page(shell, reader)
            except (ValueError, OSError) as error:
                raise refusal(400, str(error)) from error
        else:
            page = inside(reader.built, path).read_text(encoding="utf-8")
        self.set_header("Cache-Control", "no-store")
        # Asked for, it is set as a cookie, which the scripts send back.
        _ = self.xsrf_token
        self.finish(page.replace("</head>", f"{tags()}</head>", 1))


def tags() -> str:
    scripts = (f'<script defer src="/live/static/{x}.js"></script>' for x in SCRIPTS)
    return "\n".join(
        ['<link rel="stylesheet" href="/live/static/live.css">', *scripts, ""]
    )


class FileHandler(AuthenticatedFileHandler):
    """Pictures, scripts and styles."""

    # Theirs shuts files out of the page's own origin; these are the book's.
    content_security_policy = JupyterHandler.content_security_policy

    def validate_absolute_path(self, root: str, absolute_path: str) -> str:
        return str(inside(Path(root), absolute_path))


class Kept(Served, APIHandler):
    """Texts in JSON. What cannot be kept is said in words, and the page keeps it until it can."""

    def asked(self) -> dict[str, str | None]:
        """The body: texts by name."""
        size = len(self.request.body)
        if size >= MOST:
            words = f"{size / 1e6:.1f} MB with what it replaces, and less than 1 MB can be kept"
            raise refusal(413, f"the text is too long: {words}")
        try:
            body = json.loads(self.request.body or b"{}")
        except (ValueError, RecursionError) as error:
            raise refusal(400, f"the body is no JSON: {error}") from error
        texts = [*body.values()] if isinstance(body, dict) else [0]
        if not all(isinstance(text, str | None) for text in texts):
            raise refusal(400, "the body must be an object whose values are texts")
        return body

    def keep(self, put: Any, name: str) -> None:
        body = self.asked()
        try:
            put(name, body.get("text"), body.get("was"))
        except Changed as error:
            self.set_status(409)
            self.finish(json.dumps({"message": str(error), "there": error.there}))
        except ValueError as error:
            raise refusal(400, str(error)) from error
        except OSError as error:
            raise refusal(507, error.strerror or str(error)) from error
        else:
            self.finish("{}")


class CellsHandler(Kept):
    @web.authenticated
    def get(self, page: str) -> None:
        notebook = self.reader.notebook(page)
        try:
            edits = self.reader.edits(page).read()
            asked = [*exercises(notebook, self.reader)]
        except (ValueError, OSError) as error:
            raise refusal(400, str(error)) from error
        cells = [
            {"id": name, "book": text, "kept": edits.get(name)}
            for name, text in notebook.cells
        ]
        panels = {name: edits.get(name) for name in PANELS}
        self.finish(json.dumps({"cells": cells, "exercises": asked, "panels": panels}))

    @web.authenticated
    def put(self, page: str) -> None:
        name = self.asked().get("name")
        if name not in {*PANELS, *dict(self.reader.notebook(page).cells)}:
            raise web.HTTPError(404)
        self.keep(self.reader.edits(page).put, name)


def exercises(notebook: pages.Page, reader: Reader) -> Iterator[dict[str, Any]]:
    """The functions that a page asks for, and that have a checker."""
    from attn_tutor.check import EXERCISES  # here, so that the server starts at once

    for label, node in notebook.asked:
        name = pages.exercise_of(node)
        if name in EXERCISES:
            stub = pages.stub(node, EXERCISES[name].statement)
            kept = solutions.read(reader.solutions, name)
            yield {"label": label, "name": name, "stub": stub, "kept": kept}


class AnswerHandler(Kept):
    @web.authenticated
    def put(self, name: str) -> None:
        from attn_tutor.check import EXERCISES

        if name not in EXERCISES:
            raise web.HTTPError(404)
        reader = self.reader
        self.keep(lambda *x: solutions.put(reader.solutions, *x), name)


class VerdictHandler(Kept):
    @web.authenticated
    def put(self, name: str) -> None:
        """The text that was found right; None if the last was not."""
        texts = self.reader.verdicts

        def put(name: str, text: str | None, was: str | None) -> None:
            # The text as my_solutions.py has it, with which the page of progress compares it.
            texts.put(name, text and text.strip("\n"), texts.read().get(name))

        self.keep(put, name)


PAGE = r"((?:\w+/)*\w+)"


def handlers(folder: Path) -> list[tuple[Any, ...]]:
    return [
        (rf"/live/cells/{PAGE}", CellsHandler),
        (r"/live/answers/(\w+)", AnswerHandler),
        (r"/live/verdicts/(\w+)", VerdictHandler),
        (r"/live/static/(.*)", FileHandler, {"path": str(STATIC)}),
        (r"/read/(.*\.html)", PageHandler),
        (r"/read/(.*)", FileHandler, {"path": str(folder / "_build" / "html")}),
    ]
