"""Build the site on which the notebooks run in a browser, with nothing to install (JupyterLite).

python tools/lite.py             writes _build/lite
python tools/lite.py FOLDER      writes FOLDER

The site brings this package's wheel. Python itself (Pyodide) with NumPy and matplotlib comes over the reader's network.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from browser_notebooks import NEEDS_TORCH, for_browser

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "book" / "_ext"))
from book_pages import notebooks  # noqa: E402 — its folder is known from the line above on

LEFT_OUT = shutil.ignore_patterns("*.js", "*.css", "__pycache__")


def main(site: Path) -> None:
    shutil.rmtree(site, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        write_files(Path(folder) / "files")
        here, no_more = (
            f"--wheel-dir={folder}/pypi",
            ("--no-deps", "--no-build-isolation"),
        )
        run(folder, "pip", "wheel", here, *no_more, str(ROOT))
        small = ("--apps=lab", "--no-sourcemaps", "--no-unused-shared-packages")
        where = (f"--lite-dir={folder}", f"--output-dir={site}")
        run(folder, "jupyterlite_core", "build", *where, *small)


def write_files(files: Path) -> None:
    """What the reader finds in the browser: the chapters, their pictures, and the source that they link to."""
    shutil.copytree(ROOT / "book/_static", files / "book/_static", ignore=LEFT_OUT)
    for half in ("numpy", "torch"):
        source = ROOT / "attn_tutor" / half
        shutil.copytree(source, files / "attn_tutor" / half, ignore=LEFT_OUT)
    for path in notebooks():
        notebook = for_browser(json.loads(path.read_text(encoding="utf-8")))
        text = json.dumps(notebook, ensure_ascii=False, indent=1) + "\n"
        target = files / path.relative_to(ROOT)
        target.parent.mkdir(exist_ok=True)
        target.write_text(text, encoding="utf-8")
        sources = ["".join(cell["source"]) for cell in notebook["cells"]]
        code = sum(cell["cell_type"] == "code" for cell in notebook["cells"])
        torch = sum(source.startswith(NEEDS_TORCH) for source in sources)
        print(
            f"{path.relative_to(ROOT / 'book')}: {code} cells run, {torch} need torch",
            flush=True,
        )


def run(folder: str, *module: str) -> None:
    command = [sys.executable, "-m", *module]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=folder
    )
    if done.returncode:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "_build/lite")
