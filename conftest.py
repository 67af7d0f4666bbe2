"""For every run of pytest: the settings of the notebooks' kernels, and the order in which files start."""

import re
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

# Checks of international addresses, which no test meets, would take each worker three seconds to import.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]  # so that its import fails

# Workers take whole files in this order: the slowest first, so that none is left alone at the end.
SLOW_FILES = [
    "book/11", "book/09", "oracle/test_distributed", "oracle/test_models", "unit/test_compiled", "book/06", "book/05",
    "book/02", "book/08", "book/12", "book/13", ".ipynb", "unit/test_bench", "unit/test_additive",
    "TestOtherPages", "TestOddChapters", "book/test_live", "book/test_moving_figures", "TestEvenChapters",
    "book/test_pdf", "book/test_keyboard", "book/test_lite", "book/test_pages", "book/test_figure",
    "book/test_flow_figures", "book/test_valid_html", "book/",
]  # fmt: skip  # a list of words reads as lines


FURTHER = re.compile(r"book/\d\d_\w+/\w+\.(html|ipynb)")  # a page beside a main page


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if FURTHER.search(item.nodeid):
            item.add_marker("rest")

    def place(item: pytest.Item) -> int:
        found = (i for i, name in enumerate(SLOW_FILES) if name in item.nodeid)
        return next(found, len(SLOW_FILES))

    items.sort(key=place)


@pytest.fixture(autouse=True, scope="session")
def _numpy_in_examples(doctest_namespace: dict[str, Any]) -> None:
    """Rules know no backend; their examples need one."""
    doctest_namespace["np"] = np


def pytest_configure(config: pytest.Config) -> None:
    """Kernels inherit what is set here; they also compare the figures with their records."""
    if config.getoption("nbval", False):
        import kernels  # here, as the tests of the package do not need them
        import notebooks

        settings = ExitStack()
        config.add_cleanup(settings.close)
        settings.enter_context(notebooks.same_everywhere())
        settings.enter_context(kernels.forked())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How long each notebook took: said, not required, since machines differ."""
    seconds: Counter[str] = Counter()
    stages = ("", "passed")  # "" holds the start of a kernel
    for report in (r for stage in stages for r in terminalreporter.getreports(stage)):
        notebook = getattr(report, "nodeid", "").partition("::")[0]
        if notebook.endswith(".ipynb"):
            seconds[Path(notebook).name] += getattr(report, "duration", 0)
    if seconds:
        terminalreporter.section(f"notebooks: {seconds.total():.0f} s")
        for notebook, spent in seconds.most_common():
            terminalreporter.line(f"{spent:6.1f} s  {notebook}")
