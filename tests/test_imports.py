"""What an import loads, and what it costs, seen from a fresh interpreter."""

import re
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
            {"torch", "attn_tutor.torch.modules"},
            {"matplotlib", "attn_tutor.numpy"},
        ),
    ],
)
def test_an_import_loads_its_own_room_alone(module, needed, spared):
    loaded = loaded_by(module)
    assert needed <= loaded
    assert not spared & loaded


def milliseconds(module):
    """Total of ``python -X importtime``."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", f"import {module}"],
        capture_output=True,
        text=True,
        check=True,
    )
    own = re.findall(r"^import time: +(\d+) \|", done.stderr, re.MULTILINE)
    return sum(map(int, own)) / 1000


def test_the_numpy_half_costs_little_more_than_numpy():
    # A busy machine only ever makes a run longer: the best of several, taken in turn.
    pairs = [
        (milliseconds("attn_tutor.numpy"), milliseconds("numpy")) for _ in range(9)
    ]
    ours, numpy = (min(times) for times in zip(*pairs, strict=True))
    assert ours < 1.3 * numpy, (
        f"attn_tutor.numpy takes {ours:.0f} ms, numpy alone {numpy:.0f} ms"
    )
