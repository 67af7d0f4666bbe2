"""What an import loads, seen from a fresh interpreter, and what it says is missing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def loaded_by(module):
    code = f"import sys, {module}; print(*sorted(sys.modules))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    ("module", "needed", "spared"),
    [
        (
            "attn_tutor",
            {"attn_tutor"},
            {"numpy", "torch", "matplotlib", "attn_tutor.numpy"},
        ),
        (
            "attn_tutor.numpy",
            {"numpy", "attn_tutor.numpy.gradients"},
            {"torch", "matplotlib", "attn_tutor.torch"},
        ),
        (
            "attn_tutor.torch",
            {"torch", "attn_tutor.torch.layers.attention"},
            {"matplotlib", "attn_tutor.numpy", "sympy"},
        ),
        (
            "attn_tutor.check",
            {"numpy", "attn_tutor.numpy", "attn_tutor.check.chapters.ch05_heads"},
            {"torch", "matplotlib", "attn_tutor.torch"},
        ),
    ],
)
def test_an_import_loads_its_own_room_alone(module, needed, spared):
    loaded = loaded_by(module)
    assert needed <= loaded
    assert not spared & loaded


def test_the_numpy_half_loads_little_more_than_numpy():
    """What an import costs is counted in modules: a clock would depend on the machine."""
    extra = loaded_by("attn_tutor.numpy") - loaded_by("numpy")
    foreign = {name for name in extra if name.split(".")[0] != "attn_tutor"}
    assert foreign <= {"threading"}


@pytest.mark.parametrize(
    "module", ["attn_tutor.torch", "attn_tutor.train", "attn_tutor.failures"]
)
def test_without_torch(module):
    """Who has not got it is told what to install."""
    code = (
        "import sys, importlib.util as u; find = u.find_spec; sys.modules['torch'] = None;"
        f"u.find_spec = lambda name, *at: None if name == 'torch' else find(name, *at); import {module}"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode and 'pip install "attn-tutor[torch]"' in done.stderr


def test_what_is_said_to_install_is_quoted_for_every_shell():
    """Brackets mean something in zsh, and only double quotes are quotes in cmd.exe."""
    files = [*ROOT.glob("attn_tutor/**/*.py"), *ROOT.glob("*.md"), *ROOT.glob("book/*.md")]  # fmt: skip
    hints = [
        hint
        for file in files
        for hint in re.findall(
            r"pip install [^`\n]*?(\S+\[[a-z,]+\].?)", file.read_text(encoding="utf-8")
        )  # fmt: skip
    ]
    assert len(hints) > 8
    assert [x for x in hints if not re.fullmatch(r'\\?"[^"]+"', x)] == []


# Where torch's own documentation imports TorchDispatchMode from.
ALLOWED = {"torch.utils._python_dispatch"}
PRIVATE = re.compile(
    r"(?<![\w.])(?:torch|np|numpy)(?:\.\w+)*\.(?:_[a-zA-Z]\w*|core\b)"
    r"|from (?:torch|numpy)\b[\w.]* import \(?\s*_\w+"
    r"|forward_ad\._\w+"
)


@pytest.mark.parametrize(
    "line",
    [
        "torch.ops.aten._softmax(x)", "torch._C._nn", "torch._foreach_add(X, Y)", "forward_ad._current_level",
        "np.core.umath", "from torch._dynamo import x", "from numpy.core import x", "from torch.utils import _pytree",
    ],
)  # fmt: skip  # a list of words reads as lines
def test_a_private_name_is_known(line):
    assert PRIVATE.search(line)


def test_no_private_name_of_torch_or_numpy_is_used():
    """Such names change from release to release without a word."""
    used = [
        f"{file.relative_to(ROOT)}: {found[0]}"
        for file in sorted(ROOT.glob("attn_tutor/**/*.py"))
        for found in PRIVATE.finditer(file.read_text(encoding="utf-8"))
        if found[0] not in ALLOWED
    ]
    assert used == []
