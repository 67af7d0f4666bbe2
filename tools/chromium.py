"""Start Chromium, for what only a browser can do: print the book, photograph its figures, test its pages."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, BrowserType, sync_playwright

# Frames come as fast as they are drawn, for tests that wait for them; letters stand as on paper, where hinted ones
# would leave gaps in words.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-frame-rate-limit", "--disable-gpu-vsync",
    "--font-render-hinting=none",
]  # fmt: skip  # a list of words reads as lines
PATIENCE = 180_000  # milliseconds for one step; the machine may be slow or busy
HELP = (
    "There is no Chromium here. Install it: apt-get install chromium (Debian), "
    "or .venv/bin/playwright install chromium"
)


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = launch(playwright.chromium)
        yield browser
        browser.close()


def launch(kind: BrowserType) -> Browser:
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), kind.executable_path)
    if not Path(found).exists():
        raise FileNotFoundError(HELP)
    return kind.launch(executable_path=found, args=FLAGS, timeout=PATIENCE)
