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
        (
            "attn_tutor.check",
            {"numpy", "attn_tutor.numpy", "attn_tutor.check.heads"},
            {"torch", "matplotlib", "attn_tutor.torch"},
        ),
    ],
)
def test_an_import_loads_its_own_room_alone(module, needed, spared):
    loaded = loaded_by(module)
    assert needed <= loaded
    assert not spared & loaded


def milliseconds(module):
    """Total of ``python -X importtime``."""
    run = [sys.executable, "-X", "importtime", "-c", f"import {module}"]
    report = subprocess.run(run, capture_output=True, text=True, check=True).stderr
    return (
        sum(map(int, re.findall(r"^import time: +(\d+) \|", report, re.MULTILINE)))
        / 1000
    )


def test_the_numpy_half_costs_little_more_than_numpy():
    """The best of several runs in turn: a busy machine only adds to what an import takes."""
    ours = numpy = float("inf")
    for attempt in range(30):
        ours, numpy = (
            min(ours, milliseconds("attn_tutor.numpy")),
            min(numpy, milliseconds("numpy")),
        )
        if attempt > 4 and ours < 1.3 * numpy:
            return
    pytest.fail(f"attn_tutor.numpy takes {ours:.0f} ms, numpy alone {numpy:.0f} ms")
