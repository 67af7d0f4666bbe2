"""What the tests of the package share: one tolerance table, devices, halves, and inputs made from shape signatures."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import settings

import attn_tutor.numpy
import attn_tutor.torch

torch.set_num_threads(
    1
)  # tensors here are tiny, and pytest-xdist already fills the cores

settings.register_profile("local", deadline=None, max_examples=40)
settings.register_profile("ci", settings.get_profile("local"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

TOLERANCES = {  # dtype: (rtol, atol); a result is as good as the coarser of the two compared
    "float64": (1e-12, 1e-13),
    "float32": (1e-5, 2e-6),
    "float16": (1e-2, 4e-3),
    "bfloat16": (5e-2, 3e-2),
}

# Every axis letter of a shape signature has a prime length of its own, so that no mix-up of axes goes unseen.
LENGTHS = dict(
    n=7,
    m=11,
    d=5,
    d_v=3,
    q=13,
    k=17,
    h=19,
    c=2,
    d_in=13,
    d_k=5,
    d_x=17,
    d_y=2,
    d_q=13,
    d_o=23,
) | {"1": 1}  # of what has one number a query

# Lengths that fit two heads, or pairs of columns.
HEADS = dict(a=2 * 3, b=2 * 3, c=2 * 5, e=2 * 5)
FITTING = {
    "split_heads": {"d": 2 * 3},
    "rotary": {"d": 2 * 3},
    "multi_head_attention": HEADS,
    "multi_head_weights": HEADS,
    "latent_attention": dict(a=2 * 5, b=2 * 3, e=2 * 4, r=4, c=11),
}


def _takes(name: str, argument: str) -> bool:
    return argument in inspect.signature(getattr(attn_tutor.torch, name)).parameters


# Functions from arrays to one array. Those to two, partial attention and its merge, and to none have their own tests.
SHAPED = [
    name
    for name in attn_tutor.torch.__all__
    if (found := getattr(getattr(attn_tutor.torch, name), "__shapes__", "->()"))
    and not re.search(r"->\(\)|->.*\),\(", found)
]
MASKED = [name for name in SHAPED if _takes(name, "mask")]
CAUSAL = [name for name in MASKED if _takes(name, "causal")]


def close(actual: Any, expected: Any, dtype: str | None = None) -> None:
    """Assert equal shapes and equal numbers, NaN included, within the table's tolerance."""
    dtypes = [
        str(x.dtype).removeprefix("torch.")
        for x in (actual, expected)
        if hasattr(x, "dtype")
    ]
    coarsest = max(
        (name for name in [*dtypes, dtype] if name in TOLERANCES),
        key=list(TOLERANCES).index,
        default="float64",
    )
    rtol, atol = TOLERANCES[coarsest]
    np.testing.assert_allclose(
        _plain(actual), _plain(expected), rtol, atol, strict=True
    )


def _plain(x: Any) -> np.ndarray:
    if isinstance(x, torch.Tensor):
        x = x.detach().cpu().to(torch.float64).numpy()
    return np.asarray(x, dtype=np.float64)


class Half:
    """One half of the package, whose functions take and give NumPy arrays whatever they compute with."""

    def __init__(self, module: ModuleType, device: str | None = None) -> None:
        self.module, self.device = module, device

    def __getattr__(self, name: str) -> Callable[..., Any]:
        fn = getattr(self.module, name)
        extra = (
            {"device": self.device}
            if self.device and "device" in inspect.signature(fn).parameters
            else {}
        )

        def call(*args: Any, **kwargs: Any) -> Any:
            return self.back(
                fn(
                    *self.give(args),
                    **{k: self.give(x) for k, x in kwargs.items()},
                    **extra,
                )
            )

        return call

    def give(self, x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(self.give, x))
        if isinstance(x, np.ndarray) and self.device:
            return torch.from_numpy(x).to(self.device)
        return x

    def back(self, x: Any) -> Any:
        if isinstance(x, tuple):
            return tuple(map(self.back, x))
        return x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else x


# test_parity says in a skip where there is no CUDA device.
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()


@pytest.fixture(scope="session", params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session", params=["numpy", *(f"torch-{on}" for on in DEVICES)])
def half(request: pytest.FixtureRequest) -> Half:
    name, _, device = request.param.partition("-")
    return Half(attn_tutor.torch, device) if device else Half(attn_tutor.numpy)


@pytest.fixture(scope="session")
def halves(device: str) -> tuple[Half, Half]:
    return Half(attn_tutor.numpy), Half(attn_tutor.torch, device)


@pytest.fixture(scope="session", params=SHAPED)
def shaped(request: pytest.FixtureRequest) -> str:
    """The name of a function with a shape signature; ``masked``: of one that also takes a mask,
    ``causal``: of one that also takes the causal flag."""
    return request.param


@pytest.fixture(scope="session", params=MASKED)
def masked(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session", params=CAUSAL)
def causal(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def loaded() -> Callable[[Any], Any]:
    """Loads a published model. Without its weights a test that needs it is skipped; where CI is set it fails."""

    def load(model: Any) -> Any:
        try:
            return model.load()
        except ImportError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))  # which says what is missing and how to install it

    return load


@pytest.fixture(scope="session", name="close")
def _close() -> Callable[..., None]:
    return close


Draw = Callable[..., np.ndarray]


@pytest.fixture
def draw() -> Draw:
    """Standard normal numbers of a given shape: dot products scaled by 1/√d are then of order 1."""
    rng = np.random.default_rng(7)
    return lambda *shape: rng.normal(size=shape)


@pytest.fixture
def mask_of(draw: Draw) -> Callable[..., np.ndarray]:
    """Random masks of a given shape that permit three keys of five."""
    return lambda *shape: np.asarray(draw(*shape) < 0.25)


@pytest.fixture
def inputs(draw: Draw) -> Callable[..., dict[str, Any]]:
    """Arguments by name for a function with a shape signature; ``batch`` gives batch axes, by argument or to all."""

    def make(
        name: str,
        batch: dict[str, tuple[int, ...]] | tuple[int, ...] = (),
        **lengths: int,
    ) -> dict[str, Any]:
        fn = getattr(attn_tutor.numpy, name, None) or getattr(attn_tutor.torch, name)
        sizes = LENGTHS | FITTING.get(name, {}) | lengths
        others = {"n_heads": 2} if "n_heads" in inspect.signature(fn).parameters else {}
        arrays = {}
        for argument, core in cores(fn):
            axes = batch.get(argument, ()) if isinstance(batch, dict) else batch
            x = draw(*axes, *(sizes[letter] for letter in core))
            # Projections keep the variance of what they project.
            arrays[argument] = (
                x / max(1, sizes[core[0]]) ** 0.5
                if argument[0] in "WwM" and len(core) < 3
                else x
            )
        return arrays | others

    return make


def cores(fn: Any) -> Iterator[tuple[str, list[str]]]:
    """Each array argument of a function with its axis letters."""
    left = fn.__shapes__.split("->")[0]
    letters = [core.split(",") for core in re.findall(r"\((.*?)\)", left)]
    return zip(inspect.signature(fn).parameters, letters, strict=False)
