"""The book that runs: what its server answers and refuses, and what becomes of the reader's text."""

import json
import os
import socket
import urllib.error
import urllib.request
from contextlib import redirect_stdout
from copy import deepcopy
from io import StringIO
from pathlib import Path
from threading import Thread
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("jupyter_server", reason="an optional extra")

from attn_tutor.check import __main__ as checker
from attn_tutor.live import checking, loading, pages, saved, solutions

TOKEN = "0123456789abcdef"
SOLUTION = """def my_softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)"""


def notebook():
    cells = [
        ("markdown", "title", "# Page\n\nWhy?"),
        ("code", "first", "x = 1"),
        ("markdown", "asks", ":::{exercise} A softmax\n:label: ex-00-soft\n\nWrite it.\n:::"),
        ("markdown", "opens", ":::{solution-start} ex-00-soft\n:::"),
        ("code", "solves", SOLUTION),
        ("markdown", "closes", ":::{solution-end}\n:::"),
        ("code", "last", "def softmax(x):\n    return x"),
    ]  # fmt: skip
    return {"cells": [{"cell_type": kind, "id": name, "source": [text]} for kind, name, text in cells]}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A book of one page, with a secret beside it."""
    outside = tmp_path_factory.mktemp("outside")
    folder = outside / "project"
    for place in ("book/03_more", "_build/html/book", "_build/html/_static"):
        (folder / place).mkdir(parents=True)
    (outside / "secret.txt").write_text("secret")
    built = folder / "_build" / "html"
    (built / "book" / "intro.html").write_text("<html><head></head><body>Hello</body></html>")  # fmt: skip
    (built / "genindex.html").write_text(
        '<head><title>Index &#8212; a book</title></head><article class="bd-article">old</article>'
    )
    (built / "_static" / "book.css").write_text("p {}")
    (built / "_static" / "link.css").symlink_to(outside / "secret.txt")
    (folder / "book" / "03_page.ipynb").write_text(json.dumps(notebook()))
    return folder


@pytest.fixture(scope="module")
def server(folder):
    """The real server, in a thread of this process."""
    import asyncio

    from jupyter_server.serverapp import ServerApp

    from attn_tutor.live.app import Live

    started, patch = SimpleNamespace(), pytest.MonkeyPatch()
    patch.setenv("JUPYTER_NO_CONFIG", "1")
    patch.setenv("JUPYTER_RUNTIME_DIR", str(folder.parent / "runtime"))
    patch.setenv(solutions.PLACE, "")
    patch.setattr(ServerApp, "init_signal", lambda self: None)  # not in a thread

    def work():
        asyncio.set_event_loop(asyncio.new_event_loop())
        arguments = [f"--ServerApp.root_dir={folder}", "--no-browser", "--ServerApp.port=0"]  # fmt: skip
        arguments += [f"--IdentityProvider.token={TOKEN}"]
        started.app = Live.initialize_server(arguments)
        started.app.start()

    thread = Thread(target=work, daemon=True)
    thread.start()

    def listens():
        try:
            socket.create_connection(("127.0.0.1", started.app.port), 1).close()
        except (AttributeError, OSError):  # not made yet, not bound yet
            return False
        return True

    while not listens():
        thread.join(0.05)
        assert thread.is_alive()
    yield f"http://127.0.0.1:{started.app.port}"
    started.app.io_loop.add_callback(started.app.stop)
    thread.join(20)
    type(started.app).clear_instance()
    Live.clear_instance()
    patch.undo()


@pytest.fixture
def ask(server):
    def ask(path, method="GET", body=None, token=TOKEN, **headers):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()  # fmt: skip
        request = urllib.request.Request(server + path, data, method=method)
        if token:
            request.add_header("Authorization", f"token {token}")
        for name, value in headers.items():
            request.add_header(name, value)
        try:
            with urllib.request.build_opener(Stay).open(request, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return ask


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args):
        return None


def test_a_page_comes_with_its_scripts(ask):
    status, page = ask("/read/book/intro.html")
    assert status == 200 and "Hello" in page
    assert page.index("/live/static/kernel.js") < page.index("</head>")
    for path in ("/read/_static/book.css", "/live/static/kernel.js", "/live/static/live.css"):  # fmt: skip
        assert ask(path)[0] == 200
        assert ask(path, "HEAD")[0] == 200


GUARDED = [
    ("/read/book/intro.html", "GET"),
    ("/read/_static/book.css", "GET"),
    ("/live/static/kernel.js", "GET"),
    ("/live/cells/book/03_page", "GET"),
    ("/live/cells/book/03_page", "PUT"),
    ("/live/answers/softmax", "PUT"),
    ("/live/verdicts/softmax", "PUT"),
    ("/api/kernels", "POST"),
    ("/api/sessions", "POST"),
    ("/api/contents", "GET"),
]


@pytest.mark.parametrize(("path", "method"), GUARDED)
def test_nothing_without_the_token(ask, path, method):
    body = None if method == "GET" else {}
    assert ask(path, method, body, token=None)[0] in (302, 403)
    assert ask(path, method, body, token="guess")[0] in (302, 403)


@pytest.mark.parametrize(("path", "method"), GUARDED)
@pytest.mark.parametrize("host", ["evil.example", "evil.example:8888", "127.0.0.1.evil.example"])  # fmt: skip
def test_no_other_host(ask, path, method, host):
    """DNS rebinding: a name of somebody else's that leads to this machine, even with the token."""
    assert ask(path, method, None if method == "GET" else {}, Host=host)[0] == 403


def test_no_other_origin(ask, server):
    """Another site's page has the cookie of nobody, and with one it would lack the secret that goes beside it."""
    import http.cookiejar

    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    opener.open(f"{server}/read/book/intro.html?token={TOKEN}").close()
    kept = {cookie.name: cookie for cookie in jar}
    login = next(x for name, x in kept.items() if name.startswith("username"))
    assert login.get_nonstandard_attr("SameSite") == "Strict"
    assert login.has_nonstandard_attr("HttpOnly")
    cookies = "; ".join(f"{x.name}={x.value}" for x in jar)
    body = {"name": "first", "text": "x = 2", "was": None}
    path = "/live/cells/book/03_page"
    evil = {"Cookie": cookies, "Origin": "http://evil.example", "Referer": "http://evil.example/"}  # fmt: skip
    assert ask(path, "PUT", body, token=None, **evil)[0] in (403, 404)
    assert ask(path, "PUT", body, token=None, Cookie=cookies)[0] == 403
    assert ask("/api/kernels", "POST", {}, token=None, **evil)[0] in (403, 404)


@pytest.mark.parametrize("base", ["/read/", "/live/static/", "/live/cells/"])
@pytest.mark.parametrize(
    "way", ["../secret.txt", "../../../secret.txt", "..%2f..%2f..%2fsecret.txt", "%2e%2e/%2e%2e/%2e%2e/secret.txt",
            "/etc/hostname", "//etc/hostname", "_static/link.css", "_static/../../../../secret.txt", "book"],
)  # fmt: skip
def test_no_way_leads_out_of_the_folder(ask, base, way):
    status, text = ask(base + way)
    assert status in (403, 404) and "secret" not in text.replace("secret.txt", "")


def test_an_edit_is_kept_and_taken_back(ask, folder):
    path = "/live/cells/book/03_page"
    assert ask(path, "PUT", {"name": "first", "text": "x = 2", "was": None})[0] == 200
    kept = folder / "my_edits" / "03_page.json"
    assert json.loads(kept.read_text()) == {"first": "x = 2"}
    page = json.loads(ask(path)[1])
    assert page["cells"][0] == {"id": "first", "book": "x = 1", "kept": "x = 2"}
    assert ask(path, "PUT", {"name": "first", "text": None, "was": "x = 2"})[0] == 200
    assert json.loads(kept.read_text()) == {}
    assert ask(path, "PUT", {"name": "none", "text": "", "was": None})[0] == 404
    assert ask("/live/cells/book/04_page")[0] == 404


def test_a_damaged_file_is_named_by_the_page_of_progress(ask, folder):
    kept = folder / "my_edits" / "verdicts.json"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text('{"softmax": ')
    status, page = ask("/read/progress.html")
    assert status == 400 and "verdicts.json is damaged" in page
    kept.unlink()


def test_a_damaged_file_is_left_as_it_is(ask, folder):
    kept = folder / "my_edits" / "03_page.json"
    kept.parent.mkdir(exist_ok=True)
    before = kept.read_text() if kept.exists() else "{}"
    path = "/live/cells/book/03_page"
    body = {"name": "first", "text": "x = 3", "was": None}
    for damaged in ('{"first": ', "[1, 2]", "3"):
        kept.write_text(damaged)
        for status, answer in (ask(path), ask(path, "PUT", body)):
            assert status == 400
            assert "03_page.json is damaged" in json.loads(answer)["message"]
        assert kept.read_text() == damaged
    kept.write_text(before)


@pytest.mark.parametrize(
    "body", [b"{", b"[1]", b'"text"', b'{"text": 1}', b"\xff", b"[" * 100_000, b'{"text": "\\ud800"}']
)  # fmt: skip
@pytest.mark.parametrize("path", ["cells/book/03_page", "answers/softmax", "verdicts/softmax"])  # fmt: skip
def test_a_body_that_is_no_text_is_refused_in_words(ask, folder, path, body):
    if path.startswith("cells"):
        body = body.replace(b"{", b'{"name": "first", ', 1)
    before = {x: x.read_bytes() for x in folder.rglob("my_*/*")}
    status, answer = ask(f"/live/{path}", "PUT", body)
    assert status == 400 and json.loads(answer)["message"]
    assert {x: x.read_bytes() for x in folder.rglob("my_*/*")} == before


@pytest.mark.parametrize("path", ["cells/book/03_page", "answers/softmax", "verdicts/softmax"])  # fmt: skip
@pytest.mark.parametrize("size", [10**6, 30 * 10**6])
def test_a_text_of_a_megabyte_is_refused_in_words(ask, folder, path, size):
    before = {x: x.read_bytes() for x in folder.rglob("my_*") if x.is_file()}
    body = json.dumps({"name": "first", "text": "", "was": None}).encode()
    for long, there in ((size - len(body), 413), (10**6 - 1 - len(body), 200)):
        text = body.replace(b'""', b'"' + b"x" * long + b'"')
        status, answer = ask(f"/live/{path}", "PUT", text)
        assert status == there
        if there == 413:
            assert "less than 1 MB can be kept" in json.loads(answer)["message"]
            assert {x: x.read_bytes() for x in before} == before
    was = "x" * long  # taken out again
    assert (
        ask(f"/live/{path}", "PUT", {"name": "first", "text": None, "was": was})[0]
        == 200
    )


def test_what_a_panel_asks_for_is_kept(ask, folder):
    path = "/live/cells/book/03_page"
    long = "ä" * 80_000  # six letters each in JSON
    for text, was in ((long, None), ("short", long)):
        body = {"name": "my text", "text": text, "was": was}
        assert ask(path, "PUT", body)[0] == 200
        assert json.loads(ask(path)[1])["panels"]["my text"] == text
    assert ask(path, "PUT", {"name": "my text", "was": "short"})[0] == 200
    assert ask(path, "PUT", {"name": "my cat", "text": "no"})[0] == 404


def test_jupyter_serves_no_file_of_its_own_accord(ask, folder):
    """Its handlers would follow a link out of the folder."""
    (folder / "link.txt").symlink_to(folder.parent / "secret.txt")
    for path in ("files", "api/contents", "view", "nbconvert/html"):
        status, text = ask(f"/{path}/link.txt")
        assert status == 404 and "secret" not in text


def test_two_windows(ask, folder):
    """The second is told what the first wrote, and nothing is overwritten."""
    path = "/live/cells/book/03_page"
    ask(path, "PUT", {"name": "last", "text": "one", "was": None})
    status, answer = ask(path, "PUT", {"name": "last", "text": "two", "was": None})
    assert status == 409 and json.loads(answer)["there"] == "one"
    assert ask(path, "PUT", {"name": "last", "text": "two", "was": "one"})[0] == 200


def test_a_full_disk(ask, folder, monkeypatch):
    """What is there stays whole, nothing half-written is left, and the page is told why."""
    path = "/live/answers/softmax"
    assert ask(path, "PUT", {"text": SOLUTION, "was": None})[0] == 200
    before = (folder / "my_solutions.py").read_text()

    def full(handle):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(saved.os, "fsync", full)
        status, answer = ask(path, "PUT", {"text": "new", "was": SOLUTION})
    assert status == 507 and "No space left" in json.loads(answer)["message"]
    assert (folder / "my_solutions.py").read_text() == before
    assert not [*folder.glob(".my_solutions*")]


def test_an_answer_may_not_hold_a_mark(ask):
    body = {"text": "# %% other\n", "was": SOLUTION}
    assert ask("/live/answers/softmax", "PUT", body)[0] == 400
    assert ask("/live/answers/no_exercise", "PUT", body)[0] == 404


def test_progress(ask, folder):
    def state():
        page = ask("/read/progress.html")[1]
        assert "<title>Your progress</title>" in page and "old" not in page
        assert "<h2>3. Page</h2>" in page  # the title of its notebook
        row = page.partition("book/03_page.html#ex-00-soft")[2].partition("</tr>")[0]
        assert "A softmax</a>" in row
        return row.removesuffix("</td>").rpartition("<td>")[2]

    (folder / "my_solutions.py").unlink(missing_ok=True)
    asked = json.loads(ask("/live/cells/book/03_page")[1])["exercises"]
    assert [x["name"] for x in asked] == ["softmax"]
    assert asked[0]["stub"].startswith('def my_softmax(x):\n    """')
    assert state() == "open"
    ask("/live/answers/softmax", "PUT", {"text": SOLUTION, "was": None})
    assert state() == "tried"
    # The page's text ends in a line that the file does not keep.
    ask("/live/verdicts/softmax", "PUT", {"text": f"{SOLUTION}\n"})
    assert state() == "right"
    ask("/live/answers/softmax", "PUT", {"text": "# another", "was": SOLUTION})
    assert state() == "tried"


class TestSolutions:
    @pytest.fixture
    def file(self, tmp_path, monkeypatch):
        monkeypatch.setenv(solutions.PLACE, str(tmp_path / "my_solutions.py"))
        return solutions.place()

    def test_the_checker_reads_what_the_page_wrote(self, file, capsys):
        solutions.put(file, "softmax", SOLUTION, None)
        assert solutions.read(file, "softmax") == SOLUTION
        assert checker.main([str(file)]) == 0
        assert "1 of 1 right" in capsys.readouterr().out

    def test_what_stands_around_an_answer_stays(self, file):
        solutions.put(file, "one", "def one():\n    return 1", None)
        solutions.put(file, "two", "def two():\n    return 2", None)
        file.write_text(file.read_text() + "\n\n# %% mine\nnotes = 'kept'\n")
        for text in ("# a line\n", "# a line\n# and another", "", None):
            was = solutions.read(file, "one")
            solutions.put(file, "one", text, was)
            assert solutions.read(file, "one") == (text if text is None else text.strip("\n"))  # fmt: skip
            assert solutions.read(file, "two") == "def two():\n    return 2"
            assert "notes = 'kept'" in file.read_text()
            assert file.read_text().startswith(solutions.START[:20])
        assert "%% one" not in file.read_text()

    def test_written_by_hand(self, file):
        """Without marks, a function is found by its name, and what is not Python is left alone."""
        own = "@staticmethod\ndef my_softmax(x):\n    return 'ß'"
        file.write_text(f"import numpy as np\n\nÄ = 'ä'\n{own}\n\n\nlast = 1\n")
        was = solutions.read(file, "softmax")
        assert was == own
        solutions.put(file, "softmax", SOLUTION, was)
        assert solutions.read(file, "softmax") == SOLUTION
        assert file.read_text().count("def my_softmax") == 1
        assert "last = 1" in file.read_text()
        file.write_text("def broken(:\n")
        assert solutions.read(file, "broken") is None
        solutions.put(file, "softmax", SOLUTION, None)
        assert file.read_text().startswith("def broken(:\n")

    def test_the_same_answer_again_leaves_the_file(self, file):
        solutions.put(file, "softmax", None, None)
        assert not file.exists()
        file.write_text(f"{SOLUTION}\nlast = 1")
        solutions.put(file, "softmax", SOLUTION, SOLUTION)
        assert file.read_text().endswith("last = 1")

    def test_changed_by_another(self, file):
        solutions.put(file, "softmax", SOLUTION, None)
        with pytest.raises(saved.Changed) as found:
            solutions.put(file, "softmax", "other", None)
        assert found.value.there == SOLUTION

    @pytest.mark.parametrize(
        ("answer", "words"),
        [
            (SOLUTION, "✓ softmax"),
            ("def softmax(x):\n    return x < 1", "rows do not sum to 1"),
            ("def softmax(x)\n    return x", "the text does not run\n"),
            ("raise SystemExit(3)", "SystemExit: 3, in line 1"),
            ("y = 1\nz = w", "NameError: name 'w' is not defined, in line 2"),
            ("y = 1", "there is no function `softmax` yet"),
            (None, "there is no function `softmax` yet"),
        ],
    )
    @pytest.mark.parametrize("fault", ["nonsense", "raise SystemExit"])
    def test_a_check_in_the_page(self, file, answer, words, fault):
        """The fault of an answer before is none of this one's."""
        solutions.put(file, "normalize", f"print(1)\n{fault}", None)
        if answer:
            solutions.put(file, "softmax", answer, None)
        with redirect_stdout(StringIO()) as said:
            right, text = checking.judge("softmax")
        assert words in text and right == ("✓" in words) and said.getvalue() == ""

    def test_the_smallest_input_is_a_table(self, file, monkeypatch):
        shown = []
        monkeypatch.setattr("IPython.display.display", lambda x, raw: shown.append(x))
        solutions.put(file, "softmax", "def softmax(x):\n    return x < 1", None)
        checking.check("softmax")
        assert shown[0][checking.VERDICT] == {"right": False}
        html = shown[0]["text/html"]
        assert "<th scope='row'>x</th><td>(2, 2)</td><td><code>[[" in html
        assert html.count("<table>") == 1 and "For" in html


class TestStudentNotebooks:
    """The stub of a student notebook takes the answer that was written in the page."""

    STUB = "def my_softmax(x):\n    'Write it.'"

    @pytest.fixture
    def cell(self, tmp_path, monkeypatch):
        (tmp_path / "student" / "03_more").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / "student" / "03_more")

        def run(text=self.STUB, answer=SOLUTION):
            solutions.put(tmp_path / "my_solutions.py", "softmax", answer, None)
            names = {}
            exec(text, names)
            return loading.my_solutions(names["my_softmax"])

        return run

    def test_an_empty_stub_takes_it(self, cell, capsys):
        assert cell()(np.array([0.0, 0.0])).tolist() == [0.5, 0.5]
        assert "my_softmax: your answer in" in capsys.readouterr().out

    @pytest.mark.parametrize("body", ["return 7", "'Write it.'; return 7", "'7'; return len(x)"])  # fmt: skip
    def test_what_is_written_in_the_notebook_goes_first(self, cell, capsys, body):
        assert cell(f"def my_softmax(x):\n    {body}")("1234567") == 7
        assert capsys.readouterr().out == ""

    @pytest.mark.parametrize("answer", [None, "y = 1", "my_softmax = 3"])
    def test_no_answer(self, cell, capsys, answer):
        assert cell(answer=answer)(3) is None and capsys.readouterr().out == ""

    @pytest.mark.parametrize("answer", ["def (", "raise SystemExit", "1 / 0"])
    def test_an_answer_that_does_not_run_is_named(self, cell, capsys, answer):
        assert cell(answer=answer)(3) is None
        assert "does not run" in capsys.readouterr().out

    def test_no_file(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert loading.my_solutions(len) is len


def test_a_page_of_the_book():
    page = pages.read(Path("book/03_masked_softmax.ipynb"))
    asked = {pages.exercise_of(node): label for label, node in page.asked}
    assert asked["window_mask"] == "ex-03-window"
    assert page.titles["ex-03-window"] == "★ A window into the past"


def test_without_a_book(tmp_path, monkeypatch):
    from attn_tutor.live.__main__ import main

    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="no built book here"):
        main()


def test_without_jupyter_server(folder, monkeypatch):
    import sys

    from attn_tutor.live.__main__ import main

    monkeypatch.chdir(folder)
    monkeypatch.setitem(os.environ, "JUPYTER_NO_CONFIG", "1")
    monkeypatch.setitem(sys.modules, "rfc3987_syntax", None)  # which main() sets
    monkeypatch.delitem(sys.modules, "attn_tutor.live.app", raising=False)
    monkeypatch.setitem(sys.modules, "jupyter_server.extension.application", None)
    with pytest.raises(SystemExit, match="is missing"):
        main()


class TestKernel:
    @pytest.fixture
    def told(self, monkeypatch):
        shown = []
        monkeypatch.setattr("IPython.display.display", lambda x, raw: shown.append(deepcopy(x)))  # fmt: skip
        return shown

    def test_a_training_stops_and_goes_on(self, told, monkeypatch):
        from attn_tutor.live import training

        monkeypatch.setattr(training, "STEPS", 6)
        monkeypatch.setattr(training, "EVERY", 2)
        monkeypatch.setattr(training, "SAMPLE", 4)
        monkeypatch.setattr(training, "LEAST", 100)
        run = training.Training("what a book says " * 20, seed=1)
        learn, left = run.state.learn, [3]

        def until_stopped(*args):
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            learn(*args)

        monkeypatch.setattr(run.state, "learn", until_stopped)
        run.run()
        left[0] = 9
        run.run()
        found = [x[training.STEP] for x in told]
        # The second message is what a page that was loaded anew is told when it goes on.
        assert [x["losses"][-1][0] for x in found] == [2, 2, 4, 6]
        steps, losses = zip(*found[-1]["losses"], strict=True)
        assert steps == (2, 4, 6) and losses[0] > losses[2] > 0
        assert [bool(x["sample"]) for x in found] == [False, False, True, False]
        assert found[2]["sample"].startswith("what a b")
        with pytest.raises(ValueError, match="too few"):
            training.Training("short", 0)

    @pytest.mark.slow
    def test_a_sentence(self, told):
        pytest.importorskip("gguf")
        from attn_tutor.live import sentence

        try:
            sentence.read("The capital of France is")
        except ImportError as missing:
            pytest.skip(str(missing))
        first, last = (x[sentence.READ] for x in told)
        assert first["tokens"] == ["The", " capital", " of", " France", " is"]
        assert len(first["losses"]) == 4
        assert last["written"].startswith(" Paris")
        smol = sentence.model()
        ids = smol.encode("The capital of France is")
        assert last["written"] == smol.decode(smol.generate(ids, sentence.WRITTEN)[5:])
        assert first["lens"][-1][0] == " Paris" and len(first["lens"]) == 31
        sentence.lens("The capital of France is", 3)
        assert len(told[-1][sentence.READ]["lens"]) == 31
        with pytest.raises(ValueError, match="two tokens"):
            sentence.read("")
