"""The notebooks for the browser: they run with NumPy and matplotlib alone, and what needs torch says so."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import book_pages
import nbformat
import numpy
import pytest
from browser_notebooks import INSTALL, NEEDS_TORCH, code, for_browser

ROOT = Path(__file__).parents[2]
NOTEBOOKS = book_pages.notebooks()
LITE = ROOT / ".venv-lite" / "bin" / "python"

RUN = """
import json, sys
sys.modules["torch"] = None  # an import of it fails
from matplotlib import pyplot
for name, cells in json.load(sys.stdin).items():
    names = {"__name__": "__main__"}
    for cell in cells:
        exec(compile(cell["source"], f"{name}:{cell['id']}", "exec"), names)
    pyplot.close("all")
    print(name)
assert "attn_tutor.torch" not in sys.modules
"""


def book(*sources):
    cells = [code(f"cell-{i}", source) for i, source in enumerate(sources)]
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def derived(*sources):
    """What becomes of each cell, without the two that stand before them."""
    cells = for_browser(book(*sources))["cells"]
    assert cells[1]["source"] == INSTALL
    return [(cell["cell_type"], cell["source"]) for cell in cells[2:]]


def kinds(*sources):
    return [kind for kind, _ in derived(*sources)]


@pytest.mark.parametrize(
    "paths",
    [
        pytest.param(NOTEBOOKS[:3], marks=pytest.mark.slow),
        pytest.param(NOTEBOOKS, marks=pytest.mark.full),
    ],
    ids=["three", "all"],
)
def test_notebooks_run_without_torch(paths):
    """In one process, which starts and loads matplotlib once."""
    cells = {}
    for path in paths:
        notebook = for_browser(json.loads(path.read_text(encoding="utf-8")))
        nbformat.validate(nbformat.from_dict(notebook))
        code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert code[0]["source"] == INSTALL
        cells[path.stem] = code[1:]
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        input=json.dumps(cells),
        env=os.environ
        | {"MPLBACKEND": "Agg", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(cells) <= set(done.stdout.splitlines())


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_no_cell_is_lost_and_those_before_torch_are_as_they_were(path):
    before = json.loads(path.read_text(encoding="utf-8"))["cells"]
    after = for_browser({"cells": before, "metadata": {}})["cells"]
    texts = {cell["id"]: "".join(cell["source"]) for cell in after}
    for cell in before:
        source = "".join(cell["source"])
        assert source in texts[cell["id"]] or NEEDS_TORCH not in texts[cell["id"]]
    codes = [cell for cell in before if cell["cell_type"] == "code"]
    for cell in codes:
        source = "".join(cell["source"])
        if "torch" in source or "at." in source:
            break
        assert texts[cell["id"]] == source
    assert "# " in texts[before[0]["id"]]


def test_a_cell_that_uses_what_torch_made_needs_torch():
    use = ["import torch\nx = torch.ones(2)", "y = x + 1", "print(y)", "print('no')"]
    assert kinds(*use) == ["markdown", "markdown", "markdown", "code"]


def test_a_name_that_numpy_makes_anew_is_free_again():
    cells = ["import torch\nx = torch.ones(2)", "x = 2", "print(x)"]
    assert kinds(*cells) == ["markdown", "code", "code"]


def test_a_function_needs_what_its_body_reads_and_not_its_own_names():
    first = "import torch\nx = torch.ones(2)"
    reads = "def f():\n    return [x for _ in range(2)]"
    own = "def g(x):\n    return [x for x in range(x)]"
    assert kinds(first, reads, "f()", own, "g(2)") == [
        "markdown", "markdown", "markdown", "code", "code",
    ]  # fmt: skip  # a list of words reads as lines


@pytest.mark.parametrize(
    "line",
    [
        "import attn_tutor.torch as at",
        "from attn_tutor import torch as at",
        "from torch.nn import functional as at",
    ],
)
def test_torch_goes_by_any_name(line):
    assert kinds(f"x = 1\n{line}", "at.softmax(x)", "print(x)") == [
        "code", "markdown", "code",
    ]  # fmt: skip  # a list of words reads as lines
    assert derived(f"x = 1\n{line}")[0] == ("code", "x = 1")


def test_what_a_cell_defines_without_torch_stays():
    first = (
        "import math\nimport torch\n\nx, y = 3, torch.ones(2)\nz = 4\nprint(torch.pi)"
    )
    cells = derived(first, "print(math.pi, z)", "print(x)", "print(y)")
    assert cells[0][1].startswith(NEEDS_TORCH) and "torch.pi" in cells[0][1]
    assert cells[1:3] == [("code", "import math\nz = 4"), ("code", "print(math.pi, z)")]
    assert [kind for kind, _ in cells[3:]] == ["markdown", "markdown"]


def test_what_torch_fills_is_lost():
    fill = "import torch\nlayers, n = {}, 1\nfor i in range(2):\n    layers[i] = torch.ones(i)"
    assert kinds(fill, "print(layers[1])", "n = 2", "print(n)") == [
        "markdown", "code", "markdown", "code", "code",
    ]  # fmt: skip  # a list of words reads as lines


def test_of_a_picture_half_drawn_nothing_stays():
    draw = "import torch\nfigure, ax = plt.subplots()\nax.plot(torch.ones(2))"
    assert kinds("import matplotlib.pyplot as plt", draw) == ["code", "markdown"]


def test_the_text_has_code_output_and_picture():
    picture = nbformat.v4.new_output(
        "display_data", {"image/png": "AAAA", "text/plain": "<Figure>"}
    )
    printed = nbformat.v4.new_output("stream", text="3\n")
    given = book("import torch\nprint(torch.ones(3).sum())")
    given["cells"][0] |= {
        "outputs": [printed, picture],
        "metadata": {"mystnb": {"image": {"alt": "A dot"}}},
    }
    cell = for_browser(given)["cells"][2]
    assert "```python\nimport torch\nprint(" in cell["source"]
    assert "```text\n3\n```\n\n![A dot](attachment:0.png)" in cell["source"]
    assert cell["attachments"] == {"0.png": {"image/png": "AAAA"}}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    build = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "-o",
        folder,
        ROOT,
    ]
    subprocess.run(build, check=True, capture_output=True)
    return next(folder.glob("*.whl"))


def test_the_wheel_runs_with_numpy_alone(wheel, tmp_path):
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for part in Path(numpy.__file__).parents[1].glob("numpy*"):
        if part.name in ("numpy", "numpy.libs"):
            shutil.copytree(part, tmp_path / part.name)
    run = f"""
import sys
sys.path.append({str(tmp_path)!r})
import attn_tutor.numpy as an, attn_tutor.check as check, attn_tutor.data
assert attn_tutor.__file__.startswith({str(tmp_path)!r})
assert check.masked_softmax(an.masked_softmax)
print(len(attn_tutor.data.load_cars()["name"]), an.causal_mask(2).tolist())
"""
    alone = [sys.executable, "-I", "-S", "-c", run]
    done = subprocess.run(alone, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("32 [[True, False], [True, True]]\n")


@pytest.mark.skipif(
    not LITE.exists(), reason="no JupyterLite here; `make lite` installs it"
)
def test_the_site_lists_the_notebooks_and_ships_the_wheel(tmp_path):
    site = tmp_path / "site"
    build = [LITE, ROOT / "tools" / "lite.py", site]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    listed = json.loads((site / "api/contents/book/all.json").read_text("utf-8"))
    names = {entry["name"] for entry in listed["content"]}
    assert {path.name for path in NOTEBOOKS if path.parent.name == "book"} <= names
    for path in NOTEBOOKS:
        served = nbformat.read(site / "files" / path.relative_to(ROOT), 4)
        nbformat.validate(served)
        assert served.cells[1].source == INSTALL
        assert served.metadata.kernelspec.name == "python"
    index = json.loads((site / "pypi/all.json").read_text("utf-8"))
    (release,) = index["attn-tutor"]["releases"].values()
    assert (site / "pypi" / release[0]["filename"]).stat().st_size == release[0]["size"]
    settings = json.loads((site / "jupyter-lite.json").read_text("utf-8"))
    extensions = settings["jupyter-config-data"]["federated_extensions"]
    assert {"@jupyterlite/pyodide-kernel-extension", "jupyterlab-myst"} <= {
        e["name"] for e in extensions
    }
    assert (site / "lab/index.html").exists()
