"""Every run of the notebooks by pytest, of one or of all, has the same settings; a table says what each took."""

from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import notebooks
import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Kernels inherit the settings. They also compare the figures with their records."""
    if config.getoption("nbval", False):
        settings = ExitStack()
        config.add_cleanup(settings.close)
        settings.enter_context(notebooks.same_everywhere())


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
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
