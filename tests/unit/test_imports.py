"""What an import loads, seen from a fresh interpreter."""

import subprocess
import sys

import pytest


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
    assert done.returncode and "pip install 'attn_tutor[torch]'" in done.stderr
