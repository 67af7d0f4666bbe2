"""The model of cost against numbers that a person can redo, on a machine of round figures."""

from dataclasses import replace

import pytest

from attn_tutor.torch.distributed.cost import H100, Machine, Mesh, attention_cost

# Everything but the part in question takes no time.
FREE = Machine(
    flops=1e99, link=1e99, network=1e99, link_hop=0, network_hop=0, start=0, node=4
)
SIZES = {"kv_heads": 2, "width": 5}  # with 6 heads the model is 30 wide


def cost(n, mesh, machine, **others):
    return attention_cost(n, 6, mesh, machine, **(SIZES | others))


def test_one_process_computes_and_waits_for_nobody():
    # Projections: 2·7·30·(30 + 10 + 10 + 30). Pairs: 7·8/2 = 28, each 4·5 operations in 6 heads.
    one = cost(7, Mesh(), replace(FREE, flops=10))
    assert one.project == pytest.approx(2 * 7 * 30 * 80 / 10)
    assert one.attend == pytest.approx(28 * 4 * 5 * 6 / 10)
    assert (one.traffic, one.wait, one.reduce) == (0, 0, 0)
    assert one.seconds == pytest.approx(3360 + 336)


def test_tokens_and_heads_are_shared_out():
    one = cost(12, Mesh(), replace(FREE, flops=10))
    six = cost(12, Mesh(context=3, tensor=2), replace(FREE, flops=10))
    assert six.project == pytest.approx(one.project / 6)
    assert six.attend == pytest.approx(one.attend / 6)


def test_a_ring_sends_keys_and_values_on_to_the_last_but_one():
    # 12 tokens on 3 processes: 4 keys and 4 values of 2 heads of width 5 are 80 numbers, 160 bytes, sent twice.
    slow = replace(FREE, link=40, link_hop=0.25, start=0.5)
    ring = cost(12, Mesh(context=3), slow, overlap=False)
    assert ring.traffic == ring.wait == pytest.approx(2 * (0.5 + 0.25 + 160 / 40))


@pytest.mark.parametrize(("start", "waits"), [(0, 0), (1, 2), (5, 10)])
def test_a_ring_waits_for_what_its_arithmetic_does_not_hide(start, waits):
    # 78 pairs · 4 · 5 · 6 = 9360 operations on 3 processes in 3 steps: 1040, or 4 s. 160 bytes travel for 4 s too.
    ring = cost(12, Mesh(context=3), replace(FREE, flops=260, link=40, start=start))
    assert ring.attend == pytest.approx(3 * 4)
    assert ring.wait == pytest.approx(waits)
    assert ring.seconds == pytest.approx(ring.project + ring.attend + ring.wait)


def test_an_all_to_all_moves_queries_and_outputs_too():
    # 4 tokens · (6 + 2 + 2 + 6) heads · 5 = 320 numbers, 640 bytes, of which two thirds go to the others.
    slow = replace(FREE, link=40, link_hop=0.25, start=0.5)
    turned = cost(12, Mesh(context=3), slow, exchange="all-to-all")
    assert turned.wait == turned.traffic == pytest.approx(2 * 0.75 + 640 * 2 / 3 / 40)


def test_an_all_to_all_pays_the_network_for_other_nodes_only():
    # 6 processes, 4 of them in the node: 2 of 6 parts of 320 bytes travel far.
    slow = replace(FREE, network=10)
    turned = cost(12, Mesh(context=6), slow, exchange="all-to-all")
    assert turned.wait == pytest.approx(320 * 2 / 6 / 10)


def test_heads_are_added_up_by_an_all_reduce():
    # 12 tokens of width 30 are 720 bytes; around a ring of 3 twice, in thirds: 4 messages of 240 bytes.
    slow = replace(FREE, link=40, link_hop=0.25, start=0.5)
    shared = cost(12, Mesh(tensor=3), slow)
    assert shared.reduce == pytest.approx(0.5 + 4 * (0.25 + 240 / 40))


def test_neighbours_share_heads_and_then_tokens():
    # Nodes of 4: heads on 2 stay inside; with tokens on 3 more the ring leaves the node.
    machine = replace(FREE, link=1e9, network=1)
    mixed = cost(12, Mesh(context=3, tensor=2), machine, overlap=False)
    assert mixed.reduce < 1e-3
    assert mixed.traffic == pytest.approx(2 * 80)  # one head of keys, one of values


def test_a_process_holds_at_least_one_head_of_keys():
    machine = replace(FREE, link=40)
    ring = cost(12, Mesh(context=2, tensor=6), replace(machine, node=12), overlap=False)
    assert ring.traffic == pytest.approx(2 * 6 * 1 * 5 * 2 / 40)


@pytest.mark.parametrize(("batch", "rounds"), [(1, 1), (2, 1), (3, 2)])
def test_data_groups_share_the_sequences(batch, rounds):
    one, many = (
        cost(7, mesh, replace(FREE, flops=10), batch=b)
        for mesh, b in ((Mesh(), 1), (Mesh(data=2), batch))
    )
    assert many.seconds == pytest.approx(rounds * one.seconds)


def test_where_the_ring_stops_hiding_its_traffic():
    """Tokens of a process: at least the rate of arithmetic over that of the link, times the share of grouped heads."""
    quick = replace(H100, start=0, link_hop=0, network_hop=0)
    for kv, machine in ((64, quick), (8, quick)):
        tokens = machine.number * machine.flops / machine.network * kv / 64
        for share, hidden in ((0.98, False), (1.02, True)):
            n = 64 * int(share * tokens)
            ring = attention_cost(n, 64, Mesh(context=64), machine, kv_heads=kv)
            assert (ring.wait == 0) == hidden


def test_what_does_not_fit_is_refused_in_words():
    with pytest.raises(ValueError, match="attention_cost: 6 heads, .* on 4 processes"):
        cost(12, Mesh(tensor=4), FREE)
    with pytest.raises(ValueError, match="attention_cost: 7 tokens on 3 processes"):
        cost(7, Mesh(context=3), FREE)
    with pytest.raises(ValueError, match="all-to-all over 4 .* got 6"):
        cost(12, Mesh(context=4), FREE, exchange="all-to-all")
    with pytest.raises(ValueError, match="context"):
        cost(12, Mesh(context=0), FREE)
