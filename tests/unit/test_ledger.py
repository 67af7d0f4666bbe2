"""The ledger against numbers that a person can redo, on a machine of round figures, and against bytes that exist."""

from dataclasses import replace

import ledger_data
import numpy as np
import pytest
import torch
import torch.distributed as dist

import attn_tutor.numpy as an
from attn_tutor.ledger import (
    B200,
    H100,
    LLAMA_70B,
    Layer,
    Machine,
    Mesh,
    attention_bill,
    attention_cost,
    cache_bytes,
)
from attn_tutor.torch.distributed import ring_attention, run, ulysses_attention, zigzag

# Everything but the part in question takes no time.
FREE = Machine(
    operations_per_second=1e99,
    exponentials_per_second=1e99,
    memory_bytes_per_second=1e99,
    memory_bytes=1e99,
    link_bytes_per_second=1e99,
    network_bytes_per_second=1e99,
    link_hop_seconds=0,
    network_hop_seconds=0,
    start_seconds=0,
    node_gpus=4,
)
SIZES = {"kv_heads": 2, "width": 5}  # with 6 heads the model is 30 wide


def cost(n, mesh, machine, **others):
    return attention_cost(n, 6, mesh, machine, **(SIZES | others))


def test_one_process_computes_and_waits_for_nobody():
    # Projections: 2·7·30·(30 + 10 + 10 + 30). Pairs: 7·8/2 = 28, each 4·5 operations in 6 heads.
    one = cost(7, Mesh(), replace(FREE, operations_per_second=10))
    assert one.project_seconds == pytest.approx(2 * 7 * 30 * 80 / 10)
    assert one.attend_seconds == pytest.approx(28 * 4 * 5 * 6 / 10)
    assert (one.traffic_seconds, one.wait_seconds, one.reduce_seconds) == (0, 0, 0)
    assert one.seconds == pytest.approx(3360 + 336)


def test_tokens_and_heads_are_shared_out():
    one = cost(12, Mesh(), replace(FREE, operations_per_second=10))
    six = cost(12, Mesh(context=3, tensor=2), replace(FREE, operations_per_second=10))
    assert six.project_seconds == pytest.approx(one.project_seconds / 6)
    assert six.attend_seconds == pytest.approx(one.attend_seconds / 6)


def test_a_ring_sends_keys_and_values_on_to_the_last_but_one():
    # 12 tokens on 3 processes: 4 keys and 4 values of 2 heads of width 5 are 80 numbers, 160 bytes, sent twice.
    slow = replace(
        FREE, link_bytes_per_second=40, link_hop_seconds=0.25, start_seconds=0.5
    )
    ring = cost(12, Mesh(context=3), slow, overlap=False)
    assert (
        ring.traffic_seconds
        == ring.wait_seconds
        == pytest.approx(2 * (0.5 + 0.25 + 160 / 40))
    )


@pytest.mark.parametrize(("start", "waits"), [(0, 0), (1, 2), (5, 10)])
def test_a_ring_waits_for_what_its_arithmetic_does_not_hide(start, waits):
    # 78 pairs · 4 · 5 · 6 = 9360 operations on 3 processes in 3 steps: 1040, or 4 s. 160 bytes travel for 4 s too.
    ring = cost(
        12,
        Mesh(context=3),
        replace(
            FREE,
            operations_per_second=260,
            link_bytes_per_second=40,
            start_seconds=start,
        ),
    )
    assert ring.attend_seconds == pytest.approx(3 * 4)
    assert ring.wait_seconds == pytest.approx(waits)
    assert ring.seconds == pytest.approx(
        ring.project_seconds + ring.attend_seconds + ring.wait_seconds
    )


def test_an_all_to_all_moves_queries_and_outputs_too():
    # 4 tokens · (6 + 3 + 3 + 6) heads · 5 = 360 numbers, 720 bytes, of which two thirds go to the others.
    slow = replace(
        FREE, link_bytes_per_second=40, link_hop_seconds=0.25, start_seconds=0.5
    )
    turned = cost(12, Mesh(context=3), slow, exchange="all-to-all", kv_heads=3)
    assert turned.sent_bytes == pytest.approx(720 * 2 / 3)
    assert turned.traffic_seconds == pytest.approx(2 * 0.75 + 480 / 40)
    assert turned.wait_seconds == turned.traffic_seconds


def test_an_all_to_all_pays_the_network_for_other_nodes_only():
    # 6 processes, 4 of them in the node; 2 heads of keys are sent three times over, so that each process gets one:
    # 2 tokens · (6 + 6 + 6 + 6) heads · 5 are 480 bytes, of which 2 of 6 parts travel far.
    slow = replace(FREE, network_bytes_per_second=10)
    turned = cost(12, Mesh(context=6), slow, exchange="all-to-all")
    assert turned.wait_seconds == pytest.approx(480 * 2 / 6 / 10)


def test_heads_are_added_up_by_an_all_reduce():
    # 12 tokens of width 30 are 720 bytes; around a ring of 3 twice, in thirds: 4 messages of 240 bytes.
    slow = replace(
        FREE, link_bytes_per_second=40, link_hop_seconds=0.25, start_seconds=0.5
    )
    shared = cost(12, Mesh(tensor=3), slow)
    assert shared.reduce_seconds == pytest.approx(0.5 + 4 * (0.25 + 240 / 40))


def test_neighbours_share_heads_and_then_tokens():
    # Nodes of 4: heads on 2 stay inside; with tokens on 3 more the ring leaves the node.
    machine = replace(FREE, link_bytes_per_second=1e9, network_bytes_per_second=1)
    mixed = cost(12, Mesh(context=3, tensor=2), machine, overlap=False)
    assert mixed.reduce_seconds < 1e-3
    assert mixed.traffic_seconds == pytest.approx(
        2 * 80
    )  # one head of keys, one of values


def test_a_process_holds_at_least_one_head_of_keys():
    machine = replace(FREE, link_bytes_per_second=40)
    ring = cost(
        12, Mesh(context=2, tensor=6), replace(machine, node_gpus=12), overlap=False
    )
    assert ring.traffic_seconds == pytest.approx(2 * 6 * 1 * 5 * 2 / 40)


@pytest.mark.parametrize(("batch", "rounds"), [(1, 1), (2, 1), (3, 2)])
def test_data_groups_share_the_sequences(batch, rounds):
    one, many = (
        cost(7, mesh, replace(FREE, operations_per_second=10), batch=b)
        for mesh, b in ((Mesh(), 1), (Mesh(data=2), batch))
    )
    assert many.seconds == pytest.approx(rounds * one.seconds)


def test_where_the_ring_stops_hiding_its_traffic():
    """Tokens of a process: at least the rate of arithmetic over that of the link, times the share of grouped heads."""
    quick = replace(H100, start_seconds=0, link_hop_seconds=0, network_hop_seconds=0)
    for kv, machine in ((64, quick), (8, quick)):
        tokens = (
            machine.number_bytes
            * machine.operations_per_second
            / machine.network_bytes_per_second
            * kv
            / 64
        )
        for share, hidden in ((0.98, False), (1.02, True)):
            n = 64 * int(share * tokens)
            ring = attention_cost(n, 64, Mesh(context=64), machine, kv_heads=kv)
            assert (ring.wait_seconds == 0) == hidden


def test_what_does_not_fit_is_refused_in_words():
    with pytest.raises(ValueError, match="attention_cost: 6 heads, .* on 4 processes"):
        cost(12, Mesh(tensor=4), FREE)
    with pytest.raises(ValueError, match="attention_cost: 7 tokens on 3 processes"):
        cost(7, Mesh(context=3), FREE)
    with pytest.raises(ValueError, match="all-to-all over 4 .* got 6"):
        cost(12, Mesh(context=4), FREE, exchange="all-to-all")
    with pytest.raises(ValueError, match="context"):
        cost(12, Mesh(context=0), FREE)


def test_a_double_ring_waits_for_the_network_once_a_round():
    # 8 processes, 4 a node, blocks of 160 bytes: 4 s to a neighbour, 20 s to the next node, 1 s of arithmetic a step.
    slow = replace(
        FREE,
        operations_per_second=18360 / 8,
        link_bytes_per_second=40,
        network_bytes_per_second=8,
    )
    sizes = dict(kv_heads=2, width=5, exchange="double ring")
    ring = attention_cost(32, 6, Mesh(context=8), slow, **sizes)
    work = 4 * 6 * 5 * (32 * 33 / 2) / 8 / slow.operations_per_second / 8
    assert ring.sent_bytes == 7 * 160
    assert ring.traffic_seconds == pytest.approx(2 * 3 * 4 + 20)
    # A round of the node lasts 4 steps of arithmetic and 3 waits; the network is waited for beyond that.
    near = 3 * (4 - work)
    assert ring.wait_seconds == pytest.approx(2 * near + 20 - near - 4 * work)


def test_a_double_ring_within_one_node_is_a_ring():
    one, two = (
        cost(12, Mesh(context=3), replace(FREE, link_bytes_per_second=4), exchange=x)
        for x in ("ring", "double ring")
    )
    assert one == two


def test_published_seconds_of_a_double_ring():
    # A million tokens on 1,024 GPUs, 80 layers: 8.7 s in one ring, 1.7 s in two.
    n, mesh = 2**20, Mesh(context=1024)
    one, two = (
        80 * attention_cost(n, 64, mesh, H100, kv_heads=8, exchange=x).seconds
        for x in ("ring", "double ring")
    )
    assert (round(one, 1), round(two, 1)) == (8.7, 1.7)


def sent(rank, size, attend, h, h_kv, node):
    """Bytes that one process hands to torch for others, in one forward pass."""
    total = 0
    start, swap = dist.batch_isend_irecv, dist.all_to_all_single

    def counted_start(works):
        nonlocal total
        total += sum(x.tensor.nbytes for x in works if x.op is dist.isend)
        return start(works)

    def counted_swap(Y, X, taken, given, group=None):
        nonlocal total
        total += X.element_size() * (sum(given) - given[rank])
        return swap(Y, X, taken, given, group=group)

    dist.batch_isend_irecv, dist.all_to_all_single = counted_start, counted_swap
    n = len(zigzag(16, size)[rank])
    Q, K = torch.ones(h, n, 5), torch.ones(h_kv, n, 5)
    attend(Q, K, K, causal=True, **({} if node is None else {"node": node}))
    return total


@pytest.mark.parametrize(
    ("exchange", "size", "h_kv", "node"),
    [
        ("ring", 4, 2, None),
        ("double ring", 4, 2, 2),
        ("all-to-all", 2, 2, None),
        ("all-to-all", 4, 2, None),  # fewer heads of keys than processes
        ("all-to-all", 4, 1, None),
    ],
)
def test_the_bytes_sent_are_those_of_a_ring_and_an_exchange_that_run(exchange, size, h_kv, node):  # fmt: skip
    attend = ulysses_attention if exchange == "all-to-all" else ring_attention
    machine = replace(FREE, number_bytes=4, node_gpus=node or 8)
    shape = dict(kv_heads=h_kv, width=5, exchange=exchange)
    predicted = attention_cost(16, 8, Mesh(context=size), machine, **shape).sent_bytes
    assert run(sent, size, attend, 8, h_kv, node) == [predicted] * size


class Slow(np.ndarray):
    """An array in slow memory: what is read from it and written to it is counted."""

    moved = 0

    def take(self, rows):
        Slow.moved += self[..., rows, :].nbytes
        return np.array(self[..., rows, :])

    def put(self, rows, X):
        Slow.moved += X.nbytes
        self[..., rows, :] = X


@pytest.mark.parametrize(
    ("n", "m", "shape"),
    [
        (16, 16, {}),
        (3, 16, {}),
        (1, 16, {}),
        (16, 16, {"window": 5}),
        (1, 16, {"window": 5}),
    ],
)
def test_tiles_move_what_they_are_said_to_move(n, m, shape):
    """A program with three heads that share keys, tiles of two tokens, every trip counted; its numbers are right."""
    rng = np.random.default_rng(0)
    h, d, window = 3, 4, shape.get("window", m)
    Q, K, V, O = (
        rng.normal(size=s).astype(np.float32).view(Slow)
        for s in ((h, n, d), (m, d), (m, d), (h, n, d))
    )
    Slow.moved = pairs = 0
    for i in range(0, n, 2):
        end = min(i + 2, n)
        at = slice(max(0, m - n + i + 1 - window), m - n + end)
        q, k, v = Q.take(slice(i, end)), K.take(at), V.take(at)
        rows, keys = np.ogrid[m - n + i : m - n + end, at]
        seen = (keys <= rows) & (keys > rows - window)
        pairs += seen.sum()
        O.put(slice(i, end), an.attention(q, k, v, seen))
    np.testing.assert_allclose(
        O,
        an.attention(*map(np.asarray, (Q, K, V)), causal=True, window=window),
        atol=1e-5,  # fmt: skip
    )
    layer = Layer(heads=h, kv_heads=1, width=d, cache_bits=32, **shape)
    machine = replace(FREE, number_bytes=4)
    bill = attention_bill(n, m, layer, machine, tile=2 * h)
    assert bill.most_bytes == Slow.moved
    assert bill.operations == 4 * h * d * pairs
    assert bill.exponentials == h * pairs
    whole = attention_bill(n, m, layer, machine, tile=m * h)  # one tile of all queries
    once = sum(X.nbytes for X in (Q, K, V, O))
    once -= 2 * K[: max(0, m - n + 1 - window)].nbytes  # out of every window
    assert bill.least_bytes == whole.least_bytes == whole.most_bytes == once


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_a_ring_moves_queries_and_outputs_in_every_step(kind):
    """The last of four zigzag processes meets every block with all its queries; every trip counted, numbers right.

    What it hands on from step to step is in float32, whatever the inputs are.
    """
    rng = np.random.default_rng(0)
    h, n, d, c = 3, 32, 4, 4
    arrays = [rng.normal(size=s).astype(kind) for s in ((h, n, d), (n, d), (n, d))]
    Q, K, V = (X.view(Slow) for X in arrays)
    O, result = np.zeros(Q.shape, np.float32).view(Slow), np.zeros_like(Q)
    log_sum = np.full((h, n, 1), -np.inf, np.float32)
    places = np.stack(zigzag(n, c))
    Slow.moved = 0
    for step in range(c):
        for rows in places[-1].reshape(-1, 2):  # tiles of two tokens
            at = places[-1 - step]
            at = at[at <= rows.max()]
            q, k, v = Q.take(rows), K.take(at), V.take(at)
            q, k, v = (X.astype(np.float32) for X in (q, k, v))
            part = an.partial_attention(q, k, v, rows[:, None] >= at)
            old = O.take(rows) if step else np.zeros_like(q)
            output, log_sum[:, rows] = an.merge(old, log_sum[:, rows], *part)
            if step < c - 1:
                O.put(rows, output)
            else:
                result.put(rows, output.astype(kind))
    truth = an.attention(*(X.astype(np.float32) for X in arrays), causal=True)
    error = 2 * np.finfo(kind).eps + 1e-5
    np.testing.assert_allclose(result[:, places[-1]], truth[:, places[-1]], atol=error)
    size = Q.itemsize
    layer, machine = Layer(h, 1, d, cache_bits=8 * size), replace(FREE, number_bytes=size)  # fmt: skip
    shape = dict(tile=2 * h, mesh=Mesh(context=c))
    bills = {
        x: attention_bill(n, n, layer, machine, **shape, exchange=x)
        for x in ("ring", "double ring")
    }
    assert bills["ring"].most_bytes == bills["double ring"].most_bytes == Slow.moved
    # At least: a quarter of queries and outputs, and each key and value.
    assert bills["ring"].least_bytes == (2 * Q.nbytes) / c + K.nbytes + V.nbytes
    shape["mesh"] = Mesh(context=3)
    turned = attention_bill(24, 24, layer, machine, **shape, exchange="all-to-all")
    alone = attention_bill(24, 24, layer, machine, tile=2 * h)
    assert turned.most_bytes == alone.most_bytes / 3


def test_the_naive_way_moves_its_weights_eight_times():
    # 2 heads of width 3, 5 tokens: 50 weights; queries and outputs 60 numbers, keys and values 60.
    layer, machine = Layer(heads=2, kv_heads=2, width=3), replace(FREE)
    naive = attention_bill(5, 5, layer, machine, way="naive")
    fused = attention_bill(5, 5, layer, machine, way="fused")
    assert naive.held_bytes == 2 * 50
    assert naive.least_bytes == naive.most_bytes == 2 * (60 + 60 + 8 * 50)
    assert fused.least_bytes == fused.most_bytes == 2 * (60 + 60 + 4 * 50)


def test_an_exponential_takes_as_long_as_256_operations_or_512():
    """By hand, 1,024 pairs at width 128: an H100 does 4,096 operations and 16 exponentials a clock, a B200 8,192."""
    operations, exponentials = 1024 * 4 * 128, 1024
    assert (operations / 4096, exponentials / 16) == (128, 64)  # clocks of an H100
    assert (operations / 8192, exponentials / 16) == (64, 64)  # and of a B200
    n = 131_072
    hopper, blackwell = (attention_bill(n, n, machine=x) for x in (H100, B200))
    assert hopper.product_seconds == 2 * hopper.exponential_seconds
    assert blackwell.product_seconds == blackwell.exponential_seconds


def test_a_prompt_on_an_h100_and_on_a_b200():
    # By hand: 64 heads · 131,072 · 131,073 / 2 pairs = 5.498e11; 512 operations each, 2.815e14.
    # Q and O 2 · 64 · 131,072 · 128 numbers, K and V an eighth of it: 4.83 GB. Tiles of 128 rows, 16 tokens: 8,192
    # tiles that read on average 65,544 keys of 4,096 bytes, 2,199 GB, and Q and O.
    n = 131_072
    hopper, blackwell = (attention_bill(n, n, machine=x) for x in (H100, B200))
    for bill in (hopper, blackwell):
        assert bill.operations == pytest.approx(2.815e14, rel=1e-3)
        assert bill.exponentials == pytest.approx(5.498e11, rel=1e-3)
        assert bill.least_bytes == 2**31 * 2 * 9 / 8
        assert bill.most_bytes == 2**32 + 8192 * 65_544 * 4096
        assert bill.bound == "products"
    milliseconds = [
        round(1e3 * x, 1)
        for bill in (hopper, blackwell)
        for x in (bill.product_seconds, bill.exponential_seconds, bill.memory_seconds)
    ]
    # 281.5 / 0.9894, 549.8 / 3.865, 4.83 / 3.35; 281.5 / 2.25, 549.8 / 4.395, 4.83 / 8
    assert milliseconds == [284.5, 142.2, 1.4, 125.1, 125.1, 0.6]
    # FlashAttention-3 reports 648e12 operations a second on an H100, so the bill must allow them.
    assert hopper.operations / 648e12 > hopper.seconds


def test_a_token_on_an_h100_and_on_a_b200():
    # 131,072 tokens of 4,096 bytes take 160 µs of 3.35 TB/s, and 67 of 8.
    for machine, took in ((H100, 160), (B200, 67)):
        step = attention_bill(1, 131_072, machine=machine)
        assert step.least_bytes == step.most_bytes == 2**29 + 2 * 64 * 128 * 2
        assert step.bound == "memory" and round(1e6 * step.seconds) == took


def test_what_binds_is_what_takes_longest():
    slow = replace(FREE, operations_per_second=10, memory_bytes_per_second=1)
    step = attention_bill(1, 100, Layer(heads=1, kv_heads=1, width=4), slow)
    assert step.seconds == step.memory_seconds and step.bound == "memory"
    assert step.product_seconds == pytest.approx(4 * 4 * 100 / 10)
    many = attention_bill(1, 100, Layer(heads=64, kv_heads=1, width=4), slow)
    assert many.seconds == many.product_seconds and many.bound == "products"
    lazy = replace(slow, exponentials_per_second=0.5)
    many = attention_bill(1, 100, Layer(heads=64, kv_heads=1, width=4), lazy)
    assert many.seconds == 6400 / 0.5 and many.bound == "exponentials"
    mesh = Mesh(context=256)
    ring = attention_bill(2**17, 2**17, LLAMA_70B, H100, mesh=mesh)
    assert ring.bound == "links"
    assert ring.seconds == ring.product_seconds + ring.wait_seconds


def test_a_ring_of_eight_takes_an_eighth():
    alone, eight = (attention_bill(2**17, 2**17, mesh=Mesh(context=c)) for c in (1, 8))
    assert eight.seconds == pytest.approx(alone.seconds / 8, rel=1e-12)


def test_what_takes_longest_hides_what_travels():
    # 64 tokens on 2 GPUs, a layer of 2 heads of width 4: blocks of 32 · 2 · 2 · 4 numbers, 1024 bytes. Memory moves
    # queries and outputs, 1024 bytes a GPU, and two blocks: 3072 bytes, half of them in a step.
    layer, mesh = Layer(heads=2, kv_heads=2, width=4), Mesh(context=2)
    slow = replace(FREE, memory_bytes_per_second=1, link_bytes_per_second=1)
    bill = attention_bill(64, 64, layer, slow, mesh=mesh)
    assert bill.sent_bytes == 1024 and bill.memory_seconds == 3072
    assert bill.wait_seconds == 0
    slower = replace(slow, link_bytes_per_second=1 / 4)
    bill = attention_bill(64, 64, layer, slower, mesh=mesh)
    assert bill.wait_seconds == pytest.approx(4 * 1024 - 3072 / 2)


def test_a_bill_has_the_sum_over_heads():
    # 12 tokens of width 30: around a ring of 3 twice, in thirds of 720 bytes.
    layer, slow = Layer(6, 2, 5), replace(FREE, link_bytes_per_second=40)
    bill = attention_bill(12, 12, layer, slow, tile=6, mesh=Mesh(tensor=3))
    assert bill.sent_bytes == pytest.approx(4 * 240)
    assert bill.wait_seconds == pytest.approx(4 * 240 / 40)


def test_latents_are_read_by_all_heads():
    layer = Layer(heads=128, kv_heads=1, width=128, latent_width=512)
    step = attention_bill(1, 10_000, layer)
    assert step.kept_bytes == 10_000 * 576 * 2
    assert step.operations == 2 * 128 * 10_000 * (576 + 512)
    intensity = step.operations / step.least_bytes
    assert intensity == pytest.approx(2 * 128 * (576 + 512) / 1152, rel=0.03)


def test_gpus_share_a_bill():
    alone = attention_bill(64, 64, tile=8)
    eight = attention_bill(64, 64, tile=8, mesh=Mesh(context=4, tensor=2))
    assert eight.operations == alone.operations / 8
    assert eight.kept_bytes == alone.kept_bytes / 8
    many = attention_bill(64, 64, tile=8, mesh=Mesh(tensor=16))
    assert (
        many.kept_bytes == alone.kept_bytes / 8
    )  # eight heads of keys, each held twice


def test_a_bill_that_makes_no_sense_is_refused():
    with pytest.raises(ValueError, match="attention_bill: keys must be above 0"):
        attention_bill(1, 0)
    with pytest.raises(ValueError, match="last of the keys; got queries=3, keys=2"):
        attention_bill(3, 2)
    with pytest.raises(ValueError, match="mesh= shares a prompt in tiles"):
        attention_bill(1, 2, mesh=Mesh())


@pytest.mark.parametrize("kept", [{}, {"window": 7, "sinks": 3}])
def test_a_cache_holds_the_bytes_of_the_bill(kept):
    caches = [an.KVCache(**kept) for _ in range(2)]  # one for each layer
    for _ in range(23):
        rows = np.ones((5, 1, 11), np.float32)  # of five heads
        held = [cache.append(rows, rows) for cache in caches]
    found = sum(X.nbytes for both in held for X in both)
    shape = dict(layers=2, kv_heads=5, width=11, bits=32)
    assert cache_bytes(23, **shape, **kept) == found


def test_published_sizes_of_caches():
    # Llama 3 70B: 80 layers, 8 groups of width 128; DeepSeek-V2: 60 layers, 512 and 64 numbers
    assert cache_bytes(1, layers=80, kv_heads=8, width=128) == 2 * 80 * 8 * 128 * 2
    assert cache_bytes(1, layers=60, latent=512, width=64) == 60 * 576 * 2
    assert cache_bytes(1, layers=60, latent=512, width=64, bits=8) == 60 * 576


def test_a_cache_without_size_is_refused():
    with pytest.raises(ValueError, match="cache_bytes: tokens must be 0 or more"):
        cache_bytes(-1, layers=2, width=8)
    with pytest.raises(TypeError, match="cache_bytes: width must be a whole number"):
        cache_bytes(1, layers=2, width=8.0)
    with pytest.raises(ValueError, match="sinks=4 are kept besides a window"):
        cache_bytes(1, layers=2, width=8, sinks=4)


def test_figures_have_the_numbers_of_the_ledger():
    written = ledger_data.DATA.read_text(encoding="utf-8")
    assert written == ledger_data.text(), "python tools/ledger_data.py"
