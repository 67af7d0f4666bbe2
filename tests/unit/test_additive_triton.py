"""Triton's kernels for additive attention are the textbook: on a GPU as compiled, elsewhere in Triton's interpreter."""

import importlib.util
import os
import subprocess
import sys
from unittest import mock

import numpy as np
import pytest
import torch

import attn_tutor.torch as at
from attn_tutor.torch import additive_op

# n, m, h, d_v; several blocks of each kind, the last of them cut; and what is hidden.
CASES = [
    (37, 71, 5, 3, "nothing"),
    (37, 71, 5, 19, "the future"),
    (71, 37, 3, 2, "the future"),  # the first queries see nothing
    (37, 71, 3, 2, "pairs"),
    (37, 71, 3, 2, "padding"),
]
TOLERANCES = {torch.float32: 2e-6, torch.bfloat16: 2e-2}  # of the largest number


def hidden(kind, n, m):
    """A mask, the causal flag, and both in one mask."""
    if kind == "the future":
        return None, True, at.causal_mask(n, m)
    mask = None
    if kind == "pairs":
        mask = torch.from_numpy(np.random.default_rng(3).random((2, n, m)) < 0.4)
        mask[:, 7] = False
        mask[1, :, 16:32] = False
    if kind == "padding":
        mask = at.padding_mask(torch.tensor([41, 3]), m)
    return mask, False, mask


def everything(fn, args, *others, **options):
    output = fn(*args, *others, **options)
    g = torch.linspace(-1, 2, output.numel(), dtype=output.dtype, device=output.device)
    return [output, *torch.autograd.grad(output, args, g.view(output.shape))]


def textbook(Q, K, V, W_q, W_k, w_v, mask):
    return at.attend(at.additive_score(Q, K, W_q, W_k, w_v), V, mask)


def compare(device):
    kernels = additive_op.engine(device)
    taken = []

    def noted(P, operands=kernels.operands):
        taken.append(operands(P))
        return taken[-1]

    with mock.patch.object(kernels, "operands", noted):
        compare_cases(device)
    # Forward and backward, in each case: torch's own loop would have been right, too.
    assert [bool(each) for each in taken] == [True] * 4 * len(CASES)
    P = additive_op.additive.Problem(*[torch.ones(1, 2, 2)] * 4, None, None, 0, 0, 0, 0)
    assert kernels.operands(P)
    assert not kernels.operands(P._replace(a=P.a.double())), "left to torch"
    assert not kernels.operands(P._replace(kept=P.a)), "left to torch"
    drawn = [
        torch.rand(*size).double()
        for size in [(7, 2), (11, 3), (11, 2), (2, 5), (3, 5), (5,)]
    ]
    left = [x.to(device).requires_grad_() for x in drawn]
    exact = [x.requires_grad_() for x in drawn]
    for ours, theirs in zip(
        everything(at.additive_attention, left),
        everything(textbook, exact, None),
        strict=True,
    ):
        assert (ours.cpu() - theirs).abs().max() < 1e-12


def compare_cases(device):
    rng = np.random.default_rng(7)
    for n, m, h, d_v, kind in CASES:
        sizes = [(2, n, 2), (m, 3), (2, m, d_v), (2, h), (3, h), (h,)]
        drawn = [torch.from_numpy(rng.normal(size=size)) for size in sizes]
        mask, causal, both = hidden(kind, n, m)
        for dtype, tolerance in TOLERANCES.items():
            args = [x.to(device, dtype).requires_grad_() for x in drawn]
            given = None if mask is None else mask.to(device)
            found = everything(at.additive_attention, args, given, causal=causal)
            args = [x.detach().cpu().double().requires_grad_() for x in args]
            for ours, theirs in zip(
                found, everything(textbook, args, both), strict=True
            ):
                error = (ours.cpu() - theirs).abs().max() / theirs.abs().max()
                assert error < tolerance, (n, m, kind, dtype, error)


@pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="Triton is not installed"
)
def test_kernels_are_the_textbook(device):
    if device == "cuda":
        return compare(device)
    # Triton must be told to interpret before it is first imported, so in a new process.
    settings = os.environ | {"TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "error", __file__],
        env=settings,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


if __name__ == "__main__":
    additive_op.TRITON.add("cpu")
    compare("cpu")
