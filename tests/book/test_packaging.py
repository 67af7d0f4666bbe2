"""What `pip install` and an index would get: the right files, NumPy alone, and a README whose code runs."""

import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import attn_tutor

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run = [
        sys.executable,
        "-m",
        "build",
        "--no-isolation",
        "--outdir",
        str(folder),
        str(ROOT),
    ]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def wheel(dist: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(next(dist.glob("*.whl")))


def metadata(dist: Path) -> Message:
    with wheel(dist) as archive:
        name = next(name for name in archive.namelist() if name.endswith("METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_wheel_holds_the_package_and_nothing_else(dist: Path) -> None:
    with wheel(dist) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
    assert {
        "attn_tutor/py.typed",
        "attn_tutor/data/book.txt",
        "attn_tutor/data/cars.csv",
        "attn_tutor/figures/head_view.js",
        "attn_tutor/torch/_attention.py",
    } <= set(names)
    assert {name.partition("/")[0] for name in names} == {"attn_tutor"}
    assert {Path(name).suffix for name in names} == {
        ".py",
        ".css",
        ".csv",
        ".js",
        ".txt",
        ".typed",
    }


def test_sdist_builds_and_leaves_the_book_out(dist: Path) -> None:
    with tarfile.open(next(dist.glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "attn_tutor/data/cars.csv",
    } <= names
    assert not any(name.startswith(("book/", "_build/", ".venv/")) for name in names)


def test_twine_finds_no_fault(dist: Path) -> None:
    files = [str(file) for file in sorted(dist.iterdir())]
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *files],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2


def test_metadata_requires_numpy_alone_and_offers_the_extras(dist: Path) -> None:
    about = metadata(dist)
    required = about.get_all("Requires-Dist", [])
    assert [need for need in required if "extra ==" not in need] == ["numpy>=2.0"]
    assert set(about.get_all("Provides-Extra", [])) == {
        "torch",
        "plot",
        "fast",
        "models",
        "book",
        "test",
    }
    assert [
        need.partition(";")[0].strip()
        for need in required
        if re.search("extra == .torch.", need)
    ] == ["torch>=2.13", "tqdm>=4.66"]
    assert any(
        need.startswith("matplotlib") and re.search("extra == .plot.", need)
        for need in required
    )
    assert about["Version"] == attn_tutor.__version__
    assert about["Requires-Python"] == ">=3.11"


def test_citation_and_changelog_know_the_version() -> None:
    assert f"version: {attn_tutor.__version__}" in (ROOT / "CITATION.cff").read_text(
        encoding="utf-8"
    )
    assert f"## [{attn_tutor.__version__}]" in (ROOT / "CHANGELOG.md").read_text(
        encoding="utf-8"
    )


README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.M | re.S)


def readme_code() -> list[str]:
    return blocks("python")


def readme_commands() -> list[str]:
    lines = "".join(blocks("sh")).splitlines()
    return [shlex.join(shlex.split(line, comments=True)) for line in lines]


def test_every_block_of_the_readme_is_run_by_a_test() -> None:
    assert {*re.findall(r"^```(\w+)$", README, re.M)} == {"python", "sh", "text"}


def test_the_tree_of_the_readme_is_there() -> None:
    [tree] = blocks("text")
    folder = ROOT
    for indent, name in re.findall(r"(?m)^( {0,2})(\S+)", tree):
        folder = folder if indent else ROOT / name
        assert (folder / name if indent else folder).exists(), name


def found(program: str) -> str:
    """A program of .venv, as it is called on this system."""
    return shutil.which(Path(program).name, path=Path(sys.executable).parent) or ""


@pytest.mark.parametrize("command", readme_commands())
def test_readme_commands_are_there_in_a_fresh_shell(command: str) -> None:
    """What make would do, without doing it; of what is called by its path, the program."""
    program, *arguments = shlex.split(command)
    if program in {"git", "cd"}:
        pytest.skip("it brings the repository in which this test is")
    if program != "make":
        assert program.startswith(".venv/bin/"), "a fresh shell has no other"
        assert found(program)
    elif make := shutil.which("make"):
        subprocess.run(
            [make, "-n", *arguments], cwd=ROOT, check=True, capture_output=True
        )
    else:
        pytest.skip("there is no make")


@pytest.mark.full
def test_the_readme_trains_in_two_processes(tmp_path: Path) -> None:
    [command] = [x for x in readme_commands() if "torchrun" in x]
    program, *arguments = shlex.split(command)
    for steps in ("2", "4"):
        run = [found(program), *arguments, "--steps", steps]
        done = subprocess.run(
            run, cwd=tmp_path, capture_output=True, text=True, check=True
        )
    assert "goes on after step 2" in done.stdout and "to train on: " in done.stdout


def test_readme_shows_both_halves() -> None:
    code = "".join(readme_code())
    assert "attn_tutor.numpy" in code
    assert "attn_tutor.torch" in code


@pytest.mark.parametrize(
    "code", readme_code(), ids=lambda code: code.partition("\n")[0]
)
def test_readme_code_prints_what_its_comments_say(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    promised = re.findall(r"print\(.*# (.*)", code)
    assert promised, "the example shows nothing"
    assert done.stdout.splitlines() == promised


def test_readme_links_to_files_that_are_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    assert len(links) >= 3
    assert [link for link in links if not (ROOT / link).exists()] == []
