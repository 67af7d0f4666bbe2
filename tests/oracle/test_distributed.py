"""Attention over processes beside attention in one: the same numbers, gradients and weights, or an error in words.

Many cases share one start of processes. What runs in them returns its errors, and the test judges them.
"""

import functools
import itertools
import os
import shlex
import shutil
import signal
import sys
import threading
import time
import types
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard
from torch.distributed.tensor.parallel import loss_parallel
from torch.nn import functional
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

import attn_tutor.torch as at
from attn_tutor import train
from attn_tutor.torch._engine.visibility import Visibility
from attn_tutor.torch.distributed import (
    blocks,
    context_parallel_attention,
    launch,
    parts,
    ring,
    ring_attention,
    run,
    striped,
    tensor_parallel,
    ulysses_attention,
    zigzag,
)


@pytest.fixture(scope="module")
def _dynamo():
    """DTensor loads torch's compiler when it is first used: better once here than in every process."""
    import torch._dynamo  # noqa: F401 — to load it is all


LAYOUTS = {"blocks": blocks, "striped": striped, "zigzag": zigzag}
HEADS, D, D_V, BATCH = 12, 5, 3, 2
# Rounding: outputs and gradients here are of order 1, sums have at most 100 terms.
ROUNDING = 1e-12

# Queries, keys, heads of keys, options, and the kind of mask. Twelve heads split over one to four processes.
CASES = [
    (13, 13, 12, {}, None),
    (13, 13, 4, {"causal": True}, None),
    (3, 3, 1, {"causal": True}, "rows"),  # some processes hold one query or none
    (13, 17, 4, {"causal": True, "window": 5}, None),  # the last query sees the last key
    (17, 13, 12, {"causal": True}, None),  # the first queries see nothing
    (13, 17, 4, {"scale": 0.3}, "rows"),
    (11, 17, 12, {"causal": True, "window": 4}, "heads"),
    (13, 17, 1, {}, "lengths"),
]  # fmt: skip


def problem(n, m, h_kv, kind):
    """The same arrays in all processes."""
    generator = torch.Generator().manual_seed(7 * n + m)
    Q, K, V, g = (
        torch.randn(BATCH, *shape, dtype=torch.float64, generator=generator)
        for shape in ((HEADS, n, D), (h_kv, m, D), (h_kv, m, D_V), (HEADS, n, D_V))
    )
    shapes = {"rows": (n, m), "heads": (BATCH, HEADS, n, m), "lengths": (BATCH, 1, 1, m)}  # fmt: skip
    mask = None
    if kind:
        mask = torch.rand(shapes[kind], generator=generator) < 0.4
    return Q, K, V, g, mask


def whole(Q, K, V, mask, **options):
    """Attention in one process, with the heads of keys copied."""
    K, V = (X.repeat_interleave(HEADS // X.shape[1], 1) for X in (K, V))
    return at.attention(Q, K, V, mask, **options)


def worst(pairs):
    """The largest difference; a NaN is one, too."""
    gaps = [(x - y).detach().abs().max() for x, y in pairs if x.numel()]
    return torch.stack([x.new_tensor(0.0) for x, _ in pairs[:1]] + gaps).max().item()


def difference(rank, size, attend, layout, case):
    """Of outputs and gradients, from those of one process."""
    n, m, h_kv, options, kind = case
    Q, K, V, g, mask = problem(n, m, h_kv, kind)
    leaves = [X.requires_grad_() for X in (Q, K, V)]
    output = whole(*leaves, mask, **options)
    gradients = torch.autograd.grad(output, leaves, g)
    i, j = (LAYOUTS[layout](length, size)[rank] for length in (n, m))
    mine = [X.detach()[..., at_, :].clone().requires_grad_() for X, at_ in ((Q, i), (K, j), (V, j))]  # fmt: skip
    if mask is not None and mask.shape[-2] > 1:
        mask = mask[..., i, :]
    part = attend(*mine, mask, layout=layout, **options)
    part.backward(g[..., i, :])
    expected = (X[..., at_, :] for X, at_ in zip((output, *gradients), (i, i, j, j), strict=True))  # fmt: skip
    return worst(list(zip((part, *(X.grad for X in mine)), expected, strict=True)))


def all_differences(rank, size):
    found = {}
    for case in CASES:
        for layout in LAYOUTS:
            found["ring", layout, str(case)] = difference(rank, size, ring_attention, layout, case)  # fmt: skip
        for node in {1, 2, size} & {x for x in range(1, size + 1) if size % x == 0}:
            rings = functools.partial(ring_attention, node=node)
            found["rings", node, str(case)] = difference(rank, size, rings, "zigzag", case)  # fmt: skip
        h_kv = case[2]
        if h_kv % size == 0 or size % h_kv == 0:
            for layout in ("blocks", "zigzag"):
                found["heads", layout, str(case)] = difference(rank, size, ulysses_attention, layout, case)  # fmt: skip
    for case in CASES[:2]:
        found["either", str(case)] = difference(rank, size, context_parallel_attention, "zigzag", case)  # fmt: skip
    if size == 4:  # two rings in a mesh, of processes 0 and 2, and 1 and 3
        groups = [dist.new_group([first, first + 2]) for first in range(2)]
        for attend in (ring_attention, ulysses_attention):
            within = functools.partial(attend, group=groups[rank % 2])
            gap = difference(rank // 2, 2, within, "zigzag", CASES[1])
            found["mesh", attend.__name__] = gap
    found["lone heads"] = without_heads(rank, size)
    found["nan"] = hidden_nan(rank, size)
    found["seen nan"] = seen_nan(rank, size)
    return found


def without_heads(rank, size):
    """Keys without an axis of heads, which all sequences share, and a mask for each of these."""
    Q, K, V, _, mask = problem(11, 17, 12, "heads")
    Q, K, V, mask = Q[:, 0], K[0, 0], V[0, 0], mask[:, 0]
    expected = at.attention(Q, K, V, mask)
    i, j = (zigzag(length, size)[rank] for length in (11, 17))
    part = ring_attention(Q[:, i], K[j], V[j], mask[:, i])
    return worst([(part, expected[:, i])])


def hidden_nan(rank, size):
    """What stands in a hidden key or value reaches no output and no gradient."""
    Q, K, V, g, _ = problem(13, 13, 12, None)
    i = zigzag(13, size)[rank]
    found = []
    for bad in (0.0, torch.nan):
        Q_, K_, V_ = (X[..., i, :].clone() for X in (Q, K, V))
        K_[..., i == 5, 1], V_[..., i == 5, 2] = bad, bad
        for X in (Q_, K_, V_):
            X.requires_grad_()
        mask = torch.arange(13) != 5
        ring_attention(Q_, K_, V_, mask, causal=True).backward(g[..., i, :])
        found.append([Q_.grad, K_.grad, V_.grad])
    return worst(list(zip(*found, strict=True)))


def seen_nan(rank, size):
    """A NaN that some queries may see is their output, and depends on nothing: other gradients are what they were."""
    Q, K, V, g, _ = problem(13, 13, 12, None)
    K[:, :, 5, 1], V[:, :, 7, 2] = torch.nan, torch.nan
    leaves = [X.requires_grad_() for X in (Q, K, V)]
    output = whole(*leaves, None, causal=True)
    gradients = torch.autograd.grad(output, leaves, g)
    i = zigzag(13, size)[rank]
    mine = [X.detach()[..., i, :].requires_grad_() for X in (Q, K, V)]
    part = ring_attention(*mine, causal=True)
    part.backward(g[..., i, :])
    assert torch.equal(part.isnan(), output[..., i, :].isnan())
    pairs = [(part.nan_to_num(), output[..., i, :].nan_to_num())]
    pairs += [(X.grad, y[..., i, :]) for X, y in zip(mine, gradients, strict=True)]
    return worst(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_parts_in_processes_are_the_whole(size):
    for found in run(all_differences, size, timeout=60):
        wrong = {case: gap for case, gap in found.items() if not gap <= ROUNDING}
        assert not wrong


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("n", "size"), [(64, 2), (13, 3), (3, 4), (0, 2)])
def test_a_layout_deals_out_every_token_once(layout, n, size):
    held = LAYOUTS[layout](n, size)
    assert len(held) == size
    assert sorted(torch.cat(held).tolist()) == list(range(n))
    assert all((x.diff() > 0).all() for x in held)


def test_zigzag_shares_causal_work_evenly():
    """Sums of i + 1 over the positions: 1 + … + 32 = 528 and 33 + … + 64 = 1552; 2080 in all, and 1040 is half."""

    def pairs(layout):
        seen = at.causal_mask(64)
        return [int(seen[i].sum()) for i in layout(64, 2)]

    assert pairs(blocks) == [528, 1552]
    assert pairs(zigzag) == [1040, 1040]
    assert pairs(striped) == [1024, 1056]


@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize(("n", "m"), [(13, 13), (7, 17), (17, 7)])
def test_what_is_seen_at_any_positions(n, m, window):
    i, j = torch.arange(n)[:, None] + m - n, torch.arange(m)
    expected = (j <= i) & (j > i - (window or m))
    who = Visibility.read("", (n, m), i.device, None, True, window)
    queries, keys = zigzag(n, 3), striped(m, 3)
    for rank, step in itertools.product(range(3), range(3)):
        mine, theirs = queries[rank], keys[(rank - step) % 3]
        seen = torch.zeros(len(mine), len(theirs), dtype=torch.bool)
        P = parts.Parts(rank, queries, keys, who, None)
        for rows, columns, mask in ring.Ring(P, 3, 1, 1.0, None).tiles(0, step):
            seen[rows, columns] = mask
        assert torch.equal(seen, expected[mine][:, theirs])


# Heads, hidden units and the vocabulary over processes.


class Collectives(TorchDispatchMode):
    """Counts torch's collectives; CommDebugMode does too, but follows no module that is called twice, as Dropout is."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        name = str(func)
        if name.startswith("_c10d_functional.") and "wait" not in name and "wrap" not in name:  # fmt: skip
            assert name == "_c10d_functional.all_reduce.default"
            self.count += 1
        return func(*args, **(kwargs or {}))


def gradients_of(module):
    grads = (x.grad for x in module.parameters())
    return [x.full_tensor() if isinstance(x, DTensor) else x for x in grads]


def spread(rank, size):
    mesh = init_device_mesh("cpu", (size,))
    made = {"n_kv_heads": 4, "dtype": torch.float64}
    torch.manual_seed(0)
    X = torch.randn(3, 7, 24, dtype=torch.float64)
    ids, targets = torch.randint(13, (2, 3, 7)).unbind()
    found, counts = {}, {}
    for name, make in {
        "heads": lambda: at.MultiHeadAttention(24, 12, causal=True, **made),
        "rotary": lambda: at.Block(24, 12, causal=True, positions="rotary", **made),
        "alibi": lambda: at.Block(24, 12, causal=True, positions="alibi", **made),
    }.items():
        modules, inputs = [], [X.clone().requires_grad_() for _ in range(2)]
        for _ in range(2):
            torch.manual_seed(1)
            modules.append(make())
        tensor_parallel(modules[1], mesh)
        mask = torch.rand(3, 12, 7, 7) < 0.7
        expected = modules[0](inputs[0], mask=mask)
        with Collectives() as forward:
            output = modules[1](inputs[1], mask=mask)
        expected.square().sum().backward()
        with Collectives() as backward:
            output.square().sum().backward()
        pairs = [(output, expected), (inputs[1].grad, inputs[0].grad)]
        pairs += zip(*map(gradients_of, modules), strict=True)
        found[name], counts[name] = worst(pairs), (forward.count, backward.count)
    one, many = [], []
    for _ in range(2):
        torch.manual_seed(1)
        one, many = many, at.LanguageModel(13, 24, 12, 2, positions="alibi", **made)
    tensor_parallel(many, mesh)
    logits, expected = many(ids), one(ids)
    with loss_parallel():
        loss = cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
    right = cross_entropy(expected.flatten(0, 1), targets.flatten())
    right.backward()
    pairs = [(logits.full_tensor(), expected), (loss.full_tensor(), right)]
    pairs += zip(*map(gradients_of, (many, one)), strict=True)
    found["model"] = worst(pairs)
    written = many.generate(ids[:, :3], 5), one.generate(ids[:, :3], 5)
    found["writing"] = float((written[0] != written[1]).sum())
    if size > 1:
        with pytest.raises(ValueError, match=f"n_kv_heads=1 does not split into processes={size}"):  # fmt: skip
            tensor_parallel(at.MultiHeadAttention(24, 12, n_kv_heads=1), mesh)
    with pytest.raises(TypeError, match="got Linear"):
        tensor_parallel(torch.nn.Linear(2, 2), mesh)
    return found, counts


@pytest.mark.slow
@pytest.mark.usefixtures("_dynamo")
@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.full)])
def test_heads_and_hidden_units_in_processes_are_the_whole(size):
    for found, counts in run(spread, size):
        assert not {name: gap for name, gap in found.items() if not gap <= ROUNDING}
        # One all-reduce for attention and one for the small network, forward and backward.
        assert counts == {"heads": (1, 1), "rotary": (2, 2), "alibi": (2, 2)}


# Bytes: what a forward pass sends, beside the formula that chooses between the two ways.


def numbers_sent(rank, size):
    sent = []
    travel, exchange = dist.batch_isend_irecv, dist.all_to_all_single

    def counted_travel(ways):
        sent.append(sum(way.tensor.numel() for way in ways if way.op is dist.isend))
        return travel(ways)

    def counted_exchange(Y, X, taken, given, group):
        sent.append(X.numel() * (sum(given) - given[rank]) // sum(given))
        return exchange(Y, X, taken, given, group=group)

    dist.batch_isend_irecv, dist.all_to_all_single = counted_travel, counted_exchange
    found = {}
    for h_kv in (12, 4):
        Q, K, V, *_ = problem(8, 8, h_kv, None)
        i = zigzag(8, size)[rank]
        for method in ("ring", "heads", "auto"):
            sent.clear()
            parts = (X[..., i, :] for X in (Q, K, V))
            context_parallel_attention(*parts, causal=True, method=method)
            found[h_kv, method] = sum(sent)
            found[h_kv, method, "messages"] = len(sent)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_the_cheaper_way_is_taken(size):
    """(p − 1)/p · h_kv · 8 · (5 + 3), and (p − 1)/p · (h + h_kv) · 8 · (5 + 3) / p, for each of two sequences."""
    for found in run(numbers_sent, size):
        for h_kv in (12, 4):
            ring = (size - 1) * h_kv * 64 * BATCH // size
            heads = (size - 1) * (HEADS + h_kv) * 64 * BATCH // size**2
            assert found[h_kv, "ring"] == ring
            assert found[h_kv, "heads"] == heads
            assert found[h_kv, "heads", "messages"] == 2  # there and back
            assert found[h_kv, "auto"] == min(ring, heads)


def tiles_computed(rank, size):
    """How many scores each process computes, in squares of 8 · 8: tiles are computed whole or not at all."""
    counts, part = [], ring.partial_attention

    def counted_part(q, k, *args, **options):
        counts[-1] += q.shape[-2] * k.shape[-2] // 64
        return part(q, k, *args, **options)

    ring.partial_attention = counted_part
    for layout, window in (("blocks", None), ("blocks", 4), ("zigzag", None)):
        X = torch.zeros(len(LAYOUTS[layout](64, size)[rank]), D)
        counts.append(0)
        ring_attention(X, X, X, causal=True, window=window, layout=layout)
    return counts


@pytest.mark.slow
def test_what_nobody_sees_is_not_computed():
    """Causal blocks of 16 see themselves and those before, or with a window of 4 the last of these.

    Of 8 zigzag pieces, the i-th sees i + 1, so that i and 7 − i together see 9; 3 and 4 lie side by side in one tile.
    """
    expected = [[4, 4, 9], [8, 8, 9], [12, 8, 9], [16, 8, 10]]
    assert run(tiles_computed, 4) == expected


def beside_torchs_own(rank, size):
    """The largest difference of our ring from torch's, which is a prototype and refuses causality on CPUs."""
    torch.cuda.set_device(rank)
    mesh = init_device_mesh("cuda", (size,))
    Q, K, V, *_ = problem(64, 64, HEADS, None)
    # Widths of torch's kernel: one for all, a multiple of 8, and few digits.
    Q, K, V = (functional.pad(X, (0, 8 - X.shape[-1])) for X in (Q, K, V))
    Q, K, V = (X.to(f"cuda:{rank}", torch.bfloat16).contiguous() for X in (Q, K, V))
    i = zigzag(64, size)[rank]
    ours = ring_attention(*(X[..., i, :].clone() for X in (Q, K, V)), causal=True)
    with context_parallel(mesh, buffers=[Q, K, V], buffer_seq_dims=[2, 2, 2]):
        theirs = functional.scaled_dot_product_attention(Q, K, V, is_causal=True)
        [theirs] = context_parallel_unshard(mesh, [theirs], [2])
    return worst([(ours, theirs[..., i, :])])


@pytest.mark.slow
@pytest.mark.skipif(
    torch.cuda.device_count() < 2, reason="a ring of CUDA devices needs two of them"
)
def test_the_ring_is_torchs_own_on_cuda():
    for gap in run(beside_torchs_own, 2, backend="nccl"):
        assert gap <= 3e-2  # bfloat16, as in the table of tolerances


# Errors are said in words, in time, and leaves no process behind.


def wrong_calls(rank, size):
    Q, K, V, *_ = problem(8, 8, 12, None)
    i = blocks(8, size)[rank]
    q, k, v = (X[..., i, :] for X in (Q, K, V))
    longer = torch.cat([q] * (rank + 1), -2)
    for message, call in {
        r"hold \[4, 8\] queries, but .* is \[6, 6\]": lambda: ring_attention(
            longer, k, v
        ),  # fmt: skip
        "K has d=4 but Q has d=5": lambda: ring_attention(q, k[..., 1:], v),
        "heads of Q=1 does not split into processes=2": lambda: ulysses_attention(
            q[:, :1], k[:, :1], v[:, :1]
        ),  # fmt: skip
        "processes=2 does not split into node=3": lambda: ring_attention(
            q, k, v, node=3
        ),
        "layout must be one of": lambda: ring_attention(q, k, v, layout="rows"),
        "needs causal=True": lambda: ring_attention(q, k, v, window=3),
        r"must broadcast to the scores, \(2,12,4,8\)": lambda: ring_attention(
            q, k, v, torch.ones(4, 4) > 0
        ),  # fmt: skip
        "method must be one of": lambda: context_parallel_attention(
            q, k, v, method="star"
        ),
        "heads of Q=12 does not split into heads of K=5": lambda: ring_attention(
            q, k[:, :5], v[:, :5]
        ),  # fmt: skip
    }.items():
        with pytest.raises(ValueError, match=message):
            call()
        dist.barrier()
    with pytest.raises(TypeError, match="ring_attention: K must be a torch.Tensor, got list"):  # fmt: skip
        ring_attention(q, k.tolist(), v, torch.ones(1) > 0)
    return True


@pytest.mark.slow
def test_what_does_not_fit_is_refused_in_every_process():
    assert run(wrong_calls, 2, timeout=20) == [True, True]


def fails(rank, size):
    if rank == 1:
        raise KeyError("no such letter")
    dist.barrier()


def stops_answering(rank, size, how):
    """Process 1 is lost in the middle of the ring."""
    if rank == 1:
        ring.Ring.passing = how
    Q, K, V, *_ = problem(8, 8, 12, None)
    i = zigzag(8, size)[rank]
    ring_attention(*(X[..., i, :] for X in (Q, K, V)))


def hangs(*_):
    time.sleep(600)


def is_killed(*_):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_an_error_in_a_process_is_raised_with_its_rank_and_traceback():
    with pytest.raises(RuntimeError, match=r"Process 1 (.|\n)*in fails(.|\n)*no such letter"):  # fmt: skip
        run(fails, 2)


@pytest.mark.slow
def test_a_peer_that_hangs_is_named_within_the_time_out():
    start = time.monotonic()
    words = "process 0 of 2 waited in vain, at step 1 of 1, .* process 1:"
    with pytest.raises(RuntimeError, match=words):
        run(stops_answering, 2, hangs, timeout=2)
    assert time.monotonic() - start < 60  # of 600; a busy machine takes long to start


@pytest.mark.slow
def test_a_peer_that_is_killed_is_named():
    """Whichever is noticed first: its end, or that the other waits for it."""
    words = "process 1 terminated with signal SIGKILL|step 1 of 1, .* process 1:"
    with pytest.raises(RuntimeError, match=words):
        run(stops_answering, 2, is_killed, timeout=60)


def waits(rank, size, folder):
    Path(folder, str(os.getpid())).touch()
    if rank == 0:
        dist.recv(torch.zeros(1), 1)
    time.sleep(600)


@pytest.mark.slow
def test_an_interrupt_leaves_no_process(tmp_path):
    def interrupt():
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.05)
        time.sleep(0.2)  # until one of them waits for the other
        os.kill(os.getpid(), signal.SIGINT)

    # Who is started in the background of a shell has inherited that it ignores interrupts.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run(waits, 2, tmp_path)
    finally:
        signal.signal(signal.SIGINT, before)
    for path in tmp_path.iterdir():
        with pytest.raises(ProcessLookupError):
            os.kill(int(path.name), 0)


def multiplies(rank, size):
    X = torch.randn(300, 300, requires_grad=True)
    (X @ X).relu().sum().backward()
    return torch.get_num_threads()


@pytest.mark.slow
def test_processes_start_after_threads_have_run():
    """The threads of a parent are not there after a fork, and a child that waited for them would wait for ever."""
    torch.set_num_threads(2)
    try:
        multiplies(0, 1)
        assert run(multiplies, 2) == [1, 1]
    finally:
        torch.set_num_threads(1)


@pytest.mark.full
def test_processes_start_without_fork(monkeypatch):
    monkeypatch.setattr(launch.mp, "get_all_start_methods", lambda: ["spawn"])
    assert str(run(blocks, 2)) == str([blocks(0, 2), blocks(1, 2)])


def test_a_function_of_a_notebook_needs_fork(monkeypatch):
    monkeypatch.setattr(launch.mp, "get_all_start_methods", lambda: ["spawn"])
    notebook = types.ModuleType("notebook")
    monkeypatch.setitem(sys.modules, "notebook", notebook)
    exec("def attend(rank, size): pass", vars(notebook))
    with pytest.raises(RuntimeError, match="attend was defined in a notebook .* .py file"):  # fmt: skip
        run(notebook.attend, 2)


# Training.


def fitted(rank, size, folder, parallel, killed_at):
    """Train for 7 steps, with a checkpoint every 2, and maybe be killed."""
    arguments = (
        f"--checkpoints {folder} --parallel {parallel} --steps 7 --every 2 --batch 4"
    )
    draw = train.draw

    def draw_or_die(ids, options, step):
        if step == killed_at and rank == size - 1:
            is_killed()
        return draw(ids, options, step)

    train.draw = draw_or_die
    # Adam turns the rounding of a small gradient into a step, so that it must be small itself.
    torch.set_default_dtype(torch.float64)
    train.fit(train.parse(arguments.split()), torch.device("cpu"))


def weights(folder):
    """The name of the last checkpoint, and what it holds, read without any process group."""
    last = train.complete(folder)[-1]
    dcp_to_torch_save(last, folder / "whole.pt")
    state = torch.load(folder / "whole.pt", weights_only=False)
    return last.name, state["model"]


@pytest.mark.slow
@pytest.mark.usefixtures("_dynamo")
@pytest.mark.parametrize(
    "parallel", ["ddp", pytest.param("fsdp", marks=pytest.mark.full)]
)
def test_a_training_goes_on_after_a_kill_with_any_number_of_processes(tmp_path, parallel):  # fmt: skip
    run(fitted, 1, tmp_path / "whole", "ddp", None)
    name, expected = weights(tmp_path / "whole")
    assert name == "step_000007"
    with pytest.raises(RuntimeError, match="rocess 1 |at step 6"):  # fmt: skip
        run(fitted, 2, tmp_path / "killed", parallel, 5)  # the sixth step
    assert [x.name for x in train.complete(tmp_path / "killed")] == ["step_000002", "step_000004"]  # fmt: skip
    for size in (1, 4):
        folder = tmp_path / str(size)
        shutil.copytree(tmp_path / "killed", folder)
        run(fitted, size, folder, parallel, None)
        name, found = weights(folder)
        assert name == "step_000007"
        for key, x in expected.items():
            torch.testing.assert_close(found[key], x, rtol=0, atol=1e-9)


def test_a_training_ends_with_a_sample_and_the_command_that_goes_on(tmp_path, capsys):
    folder = tmp_path / "my checkpoints"
    given = ["--checkpoints", str(folder), "--batch", "2"]
    train.main([*given, "--steps", "2"])
    out, _, last = capsys.readouterr().out.rstrip("\n").rpartition("\nto train on: ")
    assert len(out[out.index("Attention ") :]) == 130
    command = f"python -m attn_tutor.train --checkpoints '{folder}' --steps 4 --batch 2"
    assert last == command
    train.main(shlex.split(command)[3:])
    assert capsys.readouterr().out.startswith("goes on after step 2\n")
    assert train.complete(folder)[-1].name == "step_000004"
    with pytest.raises(SystemExit, match=r"of another run, with --lr 0\.006\. Give"):
        train.main([*given, "--lr", "0.1"])  # no traceback: the interpreter prints it


RULES = {
    "documents": lambda n: {"mask": at.documents(torch.arange(n) // 4)},
    "torn documents": lambda n: {"mask": at.documents(torch.arange(n) % 3)},
    "sinks": lambda n: {"causal": True, "window": at.Window(3, sinks=2)},
    "prefix": lambda n: {"mask": at.prefix(torch.tensor(5))},
    "valid": lambda n: {"mask": at.valid(torch.tensor([[n - 3], [n // 2]]))},
    "heads": lambda n: {"mask": at.valid(torch.tensor([[n, 5, 9, 2], [1, n, 0, 8]]))},
}


@pytest.mark.parametrize("pool", [ring_attention, ulysses_attention])
@pytest.mark.parametrize("rule", RULES)
def test_rules_of_the_whole_sequence(pool, rule):
    """What rules say of the whole, each process hears of its own tokens; a mask of its rows goes with them."""
    n, keep = 18, torch.arange(18) % 5 > 0
    kept = at.Rule(lambda i, j: keep[j])
    torch.manual_seed(3)
    Q, g = torch.randn(2, 2, 4, n, 6, dtype=torch.float64)
    K, V = torch.randn(2, 2, 2, n, 6, dtype=torch.float64)
    given = RULES[rule](n)
    masks = given.pop("mask", None), given

    def attend(rank, size):
        mine = zigzag(n, size)[rank]
        leaves = [X[..., mine, :].clone().requires_grad_() for X in (Q, K, V)]
        mask = keep if masks[0] is None else masks[0] & kept
        output = pool(*leaves, mask, **masks[1])
        return output.detach(), *torch.autograd.grad(output, leaves, g[..., mine, :])

    leaves = [X.clone().requires_grad_() for X in (Q, K, V)]
    shared = [leaves[0], *(X.repeat_interleave(2, -3) for X in leaves[1:])]
    mask = keep if masks[0] is None else masks[0] & kept
    whole = at.attention(*shared, mask, **masks[1])
    expected = whole.detach(), *torch.autograd.grad(whole, leaves, g)
    for size in (1, 2):
        found = [torch.cat(X, -2) for X in zip(*run(attend, size), strict=True)]
        order = torch.cat(zigzag(n, size)).argsort()
        for one, other in zip(found, expected, strict=True):
            torch.testing.assert_close(one[..., order, :], other)


def weights_of_all(rank, size):
    """Each process is given the weights of all heads, as its docstring says; and of a head nothing but its own mask."""
    torch.manual_seed(1)
    layer = at.MultiHeadAttention(24, 12, causal=True, n_kv_heads=4)
    X, mask = torch.randn(3, 7, 24), torch.rand(3, 12, 7, 7) < 0.7
    calls = [
        {"mask": mask},
        {"mask": mask[:, 0]},  # one for each sequence
        {"mask": at.valid(torch.tensor([7, 4, 2])), "bias": at.alibi(12)},
        {"mask": at.valid(mask[..., 0].sum(-1)), "bias": torch.randn(12, 7, 7)},
    ]
    expected = [layer(X, need_weights=True, **call) for call in calls]
    tensor_parallel(layer, init_device_mesh("cpu", (size,)))
    found = [layer(X, need_weights=True, **call) for call in calls]
    found.append(layer(X, X, X, mask, need_weights=True))  # by position
    expected.append(expected[0])
    flat = (itertools.chain.from_iterable(pairs) for pairs in (found, expected))
    return worst(list(zip(*flat, strict=True)))


@pytest.mark.parametrize("size", [1, 2])
def test_tensor_parallel_weights_are_those_of_all_heads(size):
    assert max(run(weights_of_all, size)) < 1e-5


def test_a_process_that_leaves_early():
    def leave(rank, size):
        if rank:
            sys.exit(0)

    with pytest.raises(RuntimeError, match="process 1 ended without a result"):
        run(leave, 2)


@pytest.mark.parametrize("pool", [ring_attention, ulysses_attention])
@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("causal", {"causal": True}),
        ("window", {"causal": True, "window": 3}),
        ("layout", {"layout": "striped"}),
        ("scale", {"scale": 2.0}),
        ("the dtype", {"dtype": torch.float16}),
        ("the axes of Q and K", {"d": 7}),
        ("the axes of Q and K", {"heads": 4}),
    ],
)
def test_processes_that_are_told_otherwise(pool, what, change):
    def attend(rank, size):
        mine = {
            "d": 5,
            "heads": 2,
            "dtype": torch.bfloat16,
            "causal": False,
            **(change if rank else {}),
        }
        if what == "window":
            mine["causal"] = True
        X = torch.ones(mine.pop("heads"), 4, mine.pop("d"), dtype=mine.pop("dtype"))
        return pool(X, X, X, **mine)

    with pytest.raises(RuntimeError, match=f"processes differ in {what}"):
        run(attend, 2)


def test_heads_that_do_not_split():
    def attend(rank, size):
        Q, K = torch.ones(8, 4, 5), torch.ones(6, 4, 5)
        ulysses_attention(Q, K, K)

    with pytest.raises(
        RuntimeError, match="heads of Q=8 does not split into heads of K=6"
    ):
        run(attend, 2)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_ring_with_an_infinite_key(sign, causal):
    """Whoever sees it gets NaN, where it scores +∞ or some keys are hidden, among however many processes."""
    Q, K, V = sign * torch.ones(8, 4), torch.ones(8, 4), torch.arange(8.0)[:, None]
    K[2] = torch.inf

    def attend(rank, size):
        mine = blocks(8, size)[rank]
        return ring_attention(Q[mine], K[mine], V[mine], causal=causal, layout="blocks")

    expected = at.attention(Q, K, V, causal=causal)
    assert expected[2:].isnan().all() == (causal or sign > 0)
    for size in (1, 2, 3):
        found = torch.cat(run(attend, size))
        torch.testing.assert_close(found, expected, equal_nan=True)
