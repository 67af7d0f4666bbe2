"""The book that runs, in a browser against the real server: cells, exercises, and what must survive."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import psutil
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect

pytest.importorskip("jupyter_server", reason="an optional extra")

ROOT = Path(__file__).parents[2]
TOKEN = "0123456789abcdef"
CHAPTER = "book/03_masked_softmax"
WRONG = "e = torch.exp(scores)\nreturn e / e.sum(-1, keepdims=True) * mask"
RIGHT = "masked = torch.where(mask, scores, -torch.inf)\nreturn torch.where(mask, masked.softmax(-1), 0)"
AXE = {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]}
# A script in an output, as in the package's picture of heads.
SHOW = """from IPython.display import HTML
display(HTML("<p id=drawn></p><script>drawn.textContent = 'by a script'</script>"))"""
# Use of the live book by the panels of chapters 9 and 11, with the reader's text.
PANEL = """() => {
    const area = attnLive.html("textarea", { id: "panel" });
    document.querySelector("article").append(area, attnLive.live.keep("my text", area));
}"""
FOCUSED = "document.activeElement.ariaLabel ?? document.activeElement.textContent"
# Parts that the static page, which test_pages.py looks at, does not have.
CHANGED = {
    "include": [["#two-cures-that-fail"], ["#ex-03-masked-softmax"], [".attn-bar-live"]]
}
IDLE = "() => attnLive.live && !attnLive.live.kernel.busy"
SAVED = "() => attnLive.live.texts.every(text => !text.unsaved)"


def free_port() -> int:
    """Below those that the system hands out, so that none takes it while the server is away."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with contextlib.suppress(OSError), socket.socket() as tried:
            tried.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


class Server:
    """`python -m attn_tutor.live` in a folder of its own, which links to the book: what is written stays there."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        for name in ("book", "_build"):
            (folder / name).symlink_to(ROOT / name)
        self.start()

    def start(self) -> None:
        own = {"JUPYTER_TOKEN": TOKEN, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        own |= {"JUPYTER_RUNTIME_DIR": str(self.folder / "runtime")}
        command = [sys.executable, "-m", "attn_tutor.live", "--no-browser"]
        command += [f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0"]
        # A shell starts what runs in its background deaf to Ctrl-C, and so would be the server.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        self.log = (self.folder / "log").open("a")
        self.process = subprocess.Popen(
            command, cwd=self.folder, env=os.environ | own, stderr=self.log
        )
        while True:
            assert self.process.poll() is None, (self.folder / "log").read_text()
            with contextlib.suppress(OSError):
                return socket.create_connection(("127.0.0.1", self.port)).close()
            time.sleep(0.05)

    def stop(self) -> None:
        """As Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(30) == 0
        self.log.close()

    def waited(self) -> float:
        """Milliseconds for which the kernels have stood in line for a core, as Linux counts them."""
        kernels = psutil.Process(self.process.pid).children(recursive=True)
        lines = (Path(f"/proc/{x.pid}/schedstat").read_text() for x in kernels)
        return sum(int(line.split()[1]) for line in lines) / 1e6

    def address(self, page: str) -> str:
        return f"http://127.0.0.1:{self.port}/read/{page}.html?token={TOKEN}"

    def kept(self, file: str) -> str:
        path = self.folder / file
        return path.read_text("utf-8") if path.exists() else ""


@pytest.fixture(scope="module")
def server(book: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("live"))
    yield server
    server.stop()


Open = Callable[..., contextlib.AbstractContextManager[Page]]


@pytest.fixture(scope="module")
def visit_live(browser: Browser, server: Server) -> Iterator[Open]:
    """Windows of one browser, which remembers what it has fetched."""
    context = browser.new_context(reduced_motion="reduce")
    context.set_default_timeout(30_000)
    expect.set_options(timeout=30_000)

    @contextlib.contextmanager
    def visit(name: str = CHAPTER, width: int = 1200) -> Iterator[Page]:
        page, faults = context.new_page(), list[str]()
        page.set_viewport_size({"width": width, "height": 900})
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.append(request.url))
        page.goto(server.address(name))
        page.locator(".attn-bar-live").wait_for()
        yield page
        page.close()
        here = (f"http://127.0.0.1:{server.port}/", "data:", "blob:")
        assert [x for x in faults if not x.startswith(here)] == []

    yield visit
    context.close()


def cell(page: Page, words: str) -> Locator:
    """The cell of the book with these words; its text may have been changed."""
    number = page.evaluate(
        "words => attnLive.live.cells.findIndex(cell => cell.text.book.includes(words))",
        words,
    )
    return page.locator(".cell").nth(number)


def until(page: Page, done: str) -> None:
    """Looked at now and then: at each frame, as by default, it would keep a core busy."""
    page.wait_for_function(done, polling=100)


def press(part: Locator, name: str) -> None:
    part.get_by_role("button", name=name, exact=True).click()


def output(part: Locator) -> Locator:
    return part.locator(".attn-own")


@pytest.fixture(scope="class")
def page(visit_live: Open) -> Iterator[Page]:
    with visit_live() as page:
        yield page


@pytest.fixture(scope="class")
def other(visit_live: Open, page: Page) -> Iterator[Page]:
    """A second window on the same page, as narrow as a phone."""
    with visit_live(width=390) as other:
        yield other


class TestChapter3:
    """One reader's way, on one page with one kernel; each test goes on from the one before."""

    def test_runs_all(self, page: Page) -> None:
        press(page.locator(".attn-bar-live"), "Run all")
        expect(cell(page, "def plain_softmax").locator(".attn-state")).to_have_text("done")  # fmt: skip
        until(page, IDLE)
        states = page.evaluate("attnLive.live.cells.map(x => x.state.textContent)")
        assert set(states) == {"done"}
        assert "words alone   [[5.]]" in output(cell(page, "def plain_softmax")).inner_text()  # fmt: skip
        assert output(cell(page, "def three_steps")).locator("img").count() == 1

    def test_the_colours_change_no_letter(self, page: Page) -> None:
        same = """() => attnLive.live.code.every(({ book }) => {
            const part = document.createElement("pre");
            part.innerHTML = attnLive.painted(book);
            return part.textContent === book;
        })"""
        assert page.evaluate(same)

    def test_an_edited_cell_shows_the_readers_own_output(self, page: Page) -> None:
        part = cell(page, "values zeroed ")
        part.locator("textarea").fill(f"print(np.arange(3) + 40)\n{SHOW}\n1 / 0")
        expect(part.locator(".attn-state")).to_have_text("done")
        press(part, "Run")
        expect(output(part)).to_contain_text("[40 41 42]")
        expect(output(part)).to_contain_text("ZeroDivisionError")
        expect(output(part).locator("#drawn")).to_have_text("by a script")
        expect(part.locator(".cell_output")).to_be_hidden()
        assert part.locator(".attn-error span[class*=attn-ansi-31]").count()

    def test_what_comes_after_an_error_does_not_run(self, page: Page) -> None:
        press(cell(page, "lengths = np.array([len"), "Run all above")
        state = cell(page, "masked = np.where(word").locator(".attn-state")
        expect(state).to_have_text("not run, after an error above")
        expect(cell(page, "values zeroed ")).to_be_in_viewport()

    def test_breaks_masked_softmax_and_mends_it(self, page: Page) -> None:
        part = page.locator("#ex-03-masked-softmax .attn-exercise")
        area = part.locator("textarea")
        stub = area.input_value()
        for lines, words in (
            (WRONG, "rows not divided by their sum"),
            (RIGHT, "right in all"),
        ):
            indented = "\n".join(f"    {line}" for line in lines.split("\n"))
            area.fill(f"{stub}\n{indented}")
            press(part, "Check")
            expect(output(part)).to_contain_text(words)
            if lines is WRONG:
                rows = output(part).locator("tbody tr").all_inner_texts()
                assert rows[0].split("\t")[:2] == ["scores", "(1, 3)"]

    def test_a_long_run_is_interrupted(self, page: Page) -> None:
        part = cell(page, "def plain_softmax")
        part.locator("textarea").fill("while True: pass")
        press(part, "Run")
        expect(part.locator(".attn-state")).to_contain_text("running, 1 s")
        press(page.locator(".attn-bar-live"), "Interrupt")
        expect(output(part)).to_contain_text("KeyboardInterrupt")
        until(page, IDLE)
        press(part, "Run")
        expect(part.locator(".attn-state")).to_contain_text("running")

    def test_finds_everything_again(self, page: Page, server: Server) -> None:
        """By way of the page of progress; what ran when the page was left runs on, and can be interrupted."""
        page.evaluate(PANEL)
        page.locator("#panel").fill("a text of my own")
        page.goto(server.address("progress"))
        row = page.locator("#progress tr", has_text="masked_softmax")
        assert row.inner_text().endswith("right")
        row.get_by_role("link").click()
        expect(page.locator("#ex-03-masked-softmax textarea")).to_be_in_viewport()
        expect(page.locator(".attn-said")).to_have_text("Python is busy …")
        press(page.locator(".attn-bar-live"), "Interrupt")
        expect(page.locator(".attn-said")).to_have_text("Ready.")
        page.evaluate(PANEL)
        assert page.locator("#panel").input_value() == "a text of my own"
        part = cell(page, "values zeroed ")
        assert "+ 40" in part.locator("textarea").input_value()
        expect(part.locator(".attn-state")).to_contain_text("the output is the book's")
        answer = page.locator("#ex-03-masked-softmax textarea").input_value()
        assert RIGHT.split("\n")[0] in answer
        assert answer in server.kept("my_solutions.py")
        press(part, "Reset")
        assert "values zeroed" in part.locator("textarea").input_value()
        expect(part.locator(".cell_output")).to_be_visible()
        expect(part.locator(".attn-state")).to_be_empty()

    @pytest.mark.full
    def test_of_an_endless_print_the_last_is_shown(self, page: Page) -> None:
        part = cell(page, "def plain_softmax")
        part.locator("textarea").fill("print('x' * 200_000)\nprint('the end')")
        press(part, "Run")
        expect(part.locator(".attn-state")).to_have_text("done")
        text = output(part).locator("pre").text_content() or ""
        assert len(text) == 100_000 and text.endswith("the end\n")

    @pytest.mark.full
    def test_a_cell_of_any_length(self, page: Page) -> None:
        part = cell(page, "def plain_softmax")
        long = "area => { area.value = `print(len('${'x'.repeat(11e6)}'))`; area.dispatchEvent(new Event('input')); }"
        part.locator("textarea").evaluate(long)
        press(part, "Run")
        expect(output(part)).to_contain_text("11000000")
        until(page, SAVED)

    def test_an_answer_changed_on_disk(self, page: Page, server: Server) -> None:
        """The checker speaks of the text that is to be seen, or asks first."""
        part = page.locator("#ex-03-masked-softmax .attn-exercise")
        text = part.locator("textarea").input_value()
        file = server.folder / "my_solutions.py"
        file.write_text(file.read_text().replace("masked.softmax(-1)", "masked"))
        press(part, "Check")
        note = part.locator(".attn-note")
        expect(note).to_contain_text("changed in another window or editor")
        press(note, "Keep mine")
        press(part, "Check")
        expect(output(part)).to_contain_text("right in all")
        assert text in file.read_text()

    def test_a_killed_kernel(self, page: Page) -> None:
        part = cell(page, "def plain_softmax")
        part.locator("textarea").fill("import os; os.kill(os.getpid(), 9)")
        press(part, "Run")
        expect(output(part)).to_contain_text("Its variables are gone")
        part.locator("textarea").fill("print('here', 'again')")
        press(part, "Run")
        expect(output(part)).to_contain_text("here again")
        press(part, "Reset")

    def test_no_other_site_reaches_the_kernel(self, page: Page, server: Server) -> None:
        """Over the WebSocket too, with the reader's own cookie."""
        kernel = page.evaluate("attnLive.live.kernel.id")
        cookies = "; ".join(f"{x['name']}={x['value']}" for x in page.context.cookies())
        upgrade = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}  # fmt: skip
        upgrade |= {"Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==", "Cookie": cookies}
        for wrong, status in (
            ({"Origin": "http://evil.example"}, 403),
            ({"Host": "evil.example"}, 403),
            ({}, 101),
        ):
            asked = HTTPConnection("127.0.0.1", server.port, timeout=20)
            with contextlib.closing(asked):
                path = f"/api/kernels/{kernel}/channels"
                asked.request("GET", path, headers=upgrade | wrong)
                assert asked.getresponse().status == status

    @pytest.mark.parametrize(
        "scheme", ["light", pytest.param("dark", marks=pytest.mark.full)]
    )
    def test_everybody_can_use_it(self, page: Page, scheme: Any) -> None:
        page.emulate_media(color_scheme=scheme)
        part = cell(page, "values zeroed ")
        part.locator("textarea").fill("print('x' * 500)\nraise ValueError('no')")
        press(part, "Run")
        expect(output(part)).to_contain_text("ValueError")
        page.locator("#ex-03-masked-softmax textarea").fill("def masked_softmax(x, mask): return x")  # fmt: skip
        press(page.locator("#ex-03-masked-softmax .attn-exercise"), "Check")
        expect(output(page.locator("#ex-03-masked-softmax"))).to_contain_text("✗")
        until(page, IDLE)
        found = Axe().run(page, CHANGED, AXE).response["violations"]
        assert [(x["id"], [n["html"] for n in x["nodes"]]) for x in found] == []
        press(part, "Reset")

    def test_by_keyboard_on_a_small_screen(
        self, other: Page, cut_off: Callable[[Page], list[str]]
    ) -> None:
        def walk(name: str) -> None:
            for _ in range(300):
                other.keyboard.press("Tab")
                if other.evaluate(FOCUSED) == name:
                    return
            pytest.fail(f"Tab never comes to {name}")

        other.emulate_media(color_scheme="dark")
        other.locator("#two-cures-that-fail").evaluate("part => { part.tabIndex = -1; part.focus(); }")  # fmt: skip
        walk("Cell 3, Python")
        other.keyboard.press("Control+a")
        other.keyboard.type(
            "for i in range(2):\nprint(i + 70)"
        )  # and the line is indented
        other.keyboard.press("Shift+Enter")
        part = cell(other, "values zeroed ")
        expect(output(part)).to_contain_text("70\n71")
        assert other.evaluate("document.activeElement.ariaLabel") == "Cell 4, Python"
        other.locator("#ex-03-window").evaluate("part => { part.tabIndex = -1; part.focus(); }")  # fmt: skip
        walk("Your window_mask, Python")
        other.keyboard.press("Control+End")
        other.keyboard.type("\nreturn np.tri(n) > 0")
        walk("Check")
        other.keyboard.press("Enter")
        expect(output(other.locator("#ex-03-window"))).to_contain_text("in place of `width`")  # fmt: skip
        until(other, IDLE)
        assert cut_off(other) == []
        back = other.locator("#pst-back-to-top")
        back.evaluate("part => { part.style.display = 'block'; }")
        box, bar = back.bounding_box(), other.locator(".attn-bar-live").bounding_box()
        assert box and bar and box["y"] + box["height"] < bar["y"]
        press(part, "Reset")
        until(other, SAVED)

    def test_two_windows(self, page: Page, other: Page) -> None:
        """Each is told of the other's text, and its reader chooses; each can interrupt what the other runs."""
        parts = [cell(window, "def plain_softmax") for window in (page, other)]
        parts[0].locator("textarea").fill("while True: pass")
        until(page, SAVED)
        press(parts[0], "Run")
        expect(other.locator(".attn-said")).to_contain_text("Another window")
        press(other.locator(".attn-bar-live"), "Interrupt")
        expect(output(parts[0])).to_contain_text("KeyboardInterrupt")
        expect(other.locator(".attn-said")).to_have_text("Ready.")
        parts[1].locator("textarea").fill("second = 2")
        note = parts[1].locator(".attn-note")
        expect(note).to_contain_text("changed in another window")
        press(note, "Take that text")
        expect(parts[1].locator("textarea")).to_have_value("while True: pass")
        # More than the 64 KiB that a browser promises to send from a page that closes.
        parts[1].locator("textarea").fill(f"while True: pass\n'{'x' * 70_000}'")
        until(other, SAVED)
        press(parts[1], "Run")
        expect(parts[1].locator(".attn-state")).to_contain_text("running")
        press(page.locator(".attn-bar-live"), "Restart")
        # The old Python may still say that it was interrupted.
        expect(output(parts[1])).to_contain_text(re.compile("Restarted|KeyboardInterr"))
        ended = re.compile("Python is gone|stopped at an error")
        expect(parts[1].locator(".attn-state")).to_have_text(ended)
        expect(page.locator(".attn-said")).to_contain_text("Restarted")
        press(parts[1], "Reset")
        until(other, SAVED)

    def test_a_restart_between_two_runs(self, page: Page, other: Page) -> None:
        """The next run meets the new Python over a connection of its own, on which no word is missed."""
        parts = [cell(window, "def plain_softmax") for window in (page, other)]
        met = []
        for window, code in ((0, "1"), (1, "2"), (1, "3 + 3")):
            parts[window].locator("textarea").fill(code)
            press(parts[window], "Run")
            expect(parts[window].locator(".attn-state")).to_have_text("done")
            met.append(other.evaluate("attnLive.live.kernel.me"))
            if code == "2":
                press(page.locator(".attn-bar-live"), "Restart")
                expect(page.locator(".attn-said")).to_contain_text("Restarted")
        expect(output(parts[1])).to_contain_text("6")
        assert met[2] != met[1]
        until(other, SAVED)

    def test_a_server_that_stops(self, other: Page, server: Server) -> None:
        """What is typed meanwhile stays in the page, also over a reload of it, and is kept when the server is back."""
        part, also = cell(other, "def plain_softmax"), cell(other, "values zeroed ")
        part.locator("textarea").fill("1 + 1")
        press(part, "Run")
        expect(output(part)).to_contain_text("2")
        until(other, SAVED)
        server.stop()
        expect(other.locator(".attn-said")).to_contain_text("The server is gone")
        part.locator("textarea").fill("kept = 'over the gap'")
        also.locator("textarea").fill("mine = 1")
        expect(also.locator(".attn-note")).to_contain_text("Not on disk yet")
        # Meanwhile an editor changes one of the two.
        file = server.folder / "my_edits" / "03_masked_softmax.json"
        name = other.evaluate("attnLive.live.code[2].id")
        file.write_text(json.dumps(json.loads(file.read_text()) | {name: "theirs = 1"}))
        server.start()
        other.reload()
        other.locator(".attn-bar-live").wait_for()
        assert part.locator("textarea").input_value() == "kept = 'over the gap'"
        expect(also.locator(".attn-note")).to_contain_text(
            "in another window or editor"
        )
        assert "theirs = 1" in file.read_text()
        press(also.locator(".attn-note"), "Keep mine")
        until(other, SAVED)
        assert "over the gap" in file.read_text() and "mine = 1" in file.read_text()
        press(part, "Run")
        expect(part.locator(".attn-state")).to_have_text("done")


def test_the_static_book_is_as_it_was(book: Path) -> None:
    assert not [x for x in book.rglob("*.html") if "live/static" in x.read_text("utf-8")]  # fmt: skip


def clean(page: Page, part: str) -> None:
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page, {"include": [[part]]}, AXE).response["violations"]
        assert [(x["id"], [n["html"] for n in x["nodes"]]) for x in found] == []


@pytest.mark.full
def test_progress_for_everybody(visit_live: Open, server: Server) -> None:
    with visit_live() as page:
        page.goto(server.address("progress"))
        clean(page, "article")


@pytest.mark.full
def test_own_sentence(visit_live: Open, server: Server) -> None:
    with visit_live("book/11_real_model") as page:
        panel = page.get_by_role("group", name="Your own sentence", exact=True)
        panel.get_by_role("textbox").fill("The capital of France is")
        press(panel, "Read it")
        expect(panel.locator("q")).to_contain_text("Paris")
        assert panel.locator("attn-own rect").count() > 270
        assert panel.get_by_role("row", name="the end").inner_text().split("\t")[1] == "Paris"  # fmt: skip
        panel.locator("#attn-lens").select_option("3")
        until(page, IDLE)
        clean(page, ".attn-ask")
        # From the button to the last word, in milliseconds, less what other work took.
        button, before = panel.get_by_role("button", name="Read it"), server.waited()
        assert button.evaluate(TIMED) - (server.waited() - before) < 2000
        page.reload()
        expect(panel.get_by_role("textbox")).to_have_value("The capital of France is")


TIMED = """button => new Promise(done => {
    const start = performance.now();
    button.click();
    const clock = setInterval(() => {
        if (attnLive.live.kernel.busy) return;
        clearInterval(clock);
        done(performance.now() - start);
    }, 10);
})"""


@pytest.mark.full
def test_training(visit_live: Open) -> None:
    with visit_live("book/09_transformer") as page:
        panel = page.get_by_role("group", name="Train it here")
        said = panel.locator("p[role=status]:not(.attn-note)")
        press(panel, "Go on")
        expect(said).to_contain_text("no training to go on with")
        press(panel, "Train")
        panel.locator(".attn-curve").wait_for()
        press(panel, "Stop")
        expect(said).to_contain_text("the loss is")
        press(panel, "Go on")
        expect(panel.locator("li")).to_have_count(1)
        press(panel, "Stop")
        expect(said).to_contain_text("the loss is")
        press(page.locator(".attn-bar-live"), "Restart")
        expect(page.locator(".attn-said")).to_contain_text("Restarted")
        press(panel, "Go on")
        expect(said).to_contain_text("has forgotten it")
        panel.get_by_role("textbox").fill("too short")
        press(panel, "Train")
        expect(said).to_contain_text("too few")
        assert panel.locator(".attn-curve").count() == 0
        panel.get_by_role("textbox").fill("abab cdcd " * 300)
        panel.get_by_role("spinbutton").fill("3")
        press(panel, "Train")
        expect(panel.locator("li")).to_have_count(1)
        press(panel, "Stop")
        expect(panel.locator("li")).to_contain_text("abab")
        expect(said).to_contain_text("the loss is")
        clean(page, ".attn-ask")
        until(page, SAVED)
        page.reload()
        expect(panel.get_by_role("textbox")).to_have_value("abab cdcd " * 300)
        expect(panel.get_by_role("spinbutton")).to_have_value("3")
        # Python has kept the training, with its whole curve.
        press(panel, "Go on")
        panel.locator(".attn-curve").wait_for()
        curve = panel.locator(".attn-curve").get_attribute("d") or ""
        assert curve.startswith("M44.4") and curve.count("L") >= 9
        press(panel, "Stop")
        expect(said).to_contain_text("the loss is")
