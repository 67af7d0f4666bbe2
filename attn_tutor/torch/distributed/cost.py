"""What attention over many GPUs costs, in seconds: from FLOPs, bytes, links and their latency, on paper."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from attn_tutor._checks import require_positive

__all__ = ["H100", "Cost", "Machine", "Mesh", "attention_cost"]


@dataclass(frozen=True)
class Machine:
    """One GPU among many, and what joins it to the others. Rates are those of one GPU, in one direction.

    Args:
        flops: operations a second, a multiply and an add counted as two.
        link: bytes a second to another GPU of the same node.
        network: bytes a second to a GPU of another node.
        link_hop: seconds that a message without content takes within the node.
        network_hop: the same between nodes.
        start: seconds until an exchange begins, however many messages it has.
        node: GPUs in a node.
        number: bytes of a number.
    """

    flops: float
    link: float
    network: float
    link_hop: float
    network_hop: float
    start: float
    node: int
    number: int = 2


# Peaks, so that the seconds are a lower bound. FLOPs (bfloat16, no sparsity) and NVLink 4, 900 GB/s both ways together:
# NVIDIA, H100 Tensor Core GPU data sheet. One InfiniBand NDR adapter of 400 Gb/s a GPU, eight GPUs a node: NVIDIA, DGX
# H100 data sheet. Latencies: NVIDIA, NCCL, src/graph/tuning.cc, base and hardware latency of "Ring, Simple".
H100 = Machine(
    flops=989.4e12,
    link=450e9,
    network=50e9,
    link_hop=3.4e-6,
    network_hop=14e-6,
    start=8.4e-6,
    node=8,
)


class Mesh(NamedTuple):
    """How many GPUs share the sequences, the tokens of a sequence, and the heads. Neighbours share heads."""

    data: int = 1
    context: int = 1
    tensor: int = 1


@dataclass(frozen=True)
class Cost:
    """Seconds of a layer. The links are busy for ``traffic``; for ``wait`` of it the GPUs have nothing else to do."""

    project: float
    attend: float
    traffic: float
    wait: float
    reduce: float

    @property
    def seconds(self) -> float:
        return self.project + self.attend + self.wait + self.reduce


def attention_cost(
    n: int,
    heads: int,
    mesh: Mesh,
    machine: Machine,
    *,
    kv_heads: int | None = None,
    width: int = 128,
    batch: int = 1,
    exchange: Literal["ring", "all-to-all"] = "ring",
    overlap: bool = True,
) -> Cost:
    r"""Seconds of one causal attention layer, forward, with its four projections.

    .. math:: \text{seconds} = \text{project} + c\,a + (c - 1) \max(0, x - a) + \text{reduce}

    for a ring of :math:`c` processes with zigzag balance: a step computes for :math:`a` seconds while the next keys and
    values travel for :math:`x`. Without overlap each exchange is waited for whole.

    Source: Liu et al. (2023) for the ring and its condition :math:`x \le a`, Jacobs et al. (2023) for the all-to-all,
    Shoeybi et al. (2019) for the all-reduce after the output projection.

    Args:
        n: tokens of a sequence.
        heads: query heads.
        mesh: the GPUs; those that share heads are neighbours, then those that share tokens.
        machine: their rates.
        kv_heads: heads of keys and values; as many as query heads if None.
        width: of a head.
        batch: sequences; the mesh's data groups share them.
        exchange: how tokens meet: keys and values go around a ring, or an all-to-all turns tokens into heads and back.
        overlap: whether the ring computes while it sends.

    Returns:
        The seconds of the group that has the most sequences, part by part.

    Raises:
        ValueError: a count is not positive, the processes do not divide the heads, or they do not divide the tokens.

    Example:
        >>> alone = attention_cost(1_000_000, 64, Mesh(), H100, kv_heads=8)
        >>> ring = attention_cost(1_000_000, 64, Mesh(context=64), H100, kv_heads=8)
        >>> f"{alone.seconds:.1f} s, {ring.seconds:.2f} s, {ring.wait:.2f} s of it waiting"
        '16.9 s, 0.26 s, 0.00 s of it waiting'
    """
    name = "attention_cost"
    kv_heads = heads if kv_heads is None else kv_heads
    counts = dict(n=n, heads=heads, kv_heads=kv_heads, width=width, batch=batch)
    for argument, count in {**counts, **mesh._asdict()}.items():
        require_positive(name, argument, count)
    data, c, t = mesh
    if heads % t or heads % kv_heads:
        raise ValueError(
            f"{name}: {heads} heads, {kv_heads} of keys and values, on {t} processes; each needs the same number"
        )
    if n % c:
        raise ValueError(f"{name}: {n} tokens on {c} processes; each needs as many")
    if exchange == "all-to-all" and heads // t % c:
        raise ValueError(
            f"{name}: an all-to-all over {c} processes needs as many heads to share; got {heads // t}"
        )
    rounds = -(-batch // data)  # sequences of the busiest group
    tokens, here, kv_here = n // c, heads // t, -(-kv_heads // t)
    model = heads * width
    project = 4 * tokens * model * (here + kv_here) * width / machine.flops
    attend = 4 * here * width * (n * (n + 1) / 2) / c / machine.flops
    if exchange == "ring":
        traffic, wait = _ring(
            c, attend, 2 * tokens * kv_here * width, t, machine, overlap
        )
    else:
        wait = _all_to_all(c, 2 * tokens * (here + kv_here) * width, t, machine)
        traffic = wait
    reduce = _all_reduce(t, tokens * model, machine)
    parts = (project, attend, traffic, wait, reduce)
    return Cost(*(rounds * part for part in parts))


def _joint(span: int, machine: Machine) -> tuple[float, float]:
    """Bytes a second and latency of the slowest joint in a group of so many neighbours."""
    if span <= machine.node:
        return machine.link, machine.link_hop
    return machine.network, machine.network_hop


def _ring(
    c: int, attend: float, entries: int, t: int, machine: Machine, overlap: bool
) -> tuple[float, float]:
    """Every process passes its keys and values on, c − 1 times; all wait for the slowest joint."""
    rate, hop = _joint(c * t, machine)
    x = machine.start + hop + entries * machine.number / rate
    return (c - 1) * x, (c - 1) * max(0.0, x - overlap * attend / c)


def _all_to_all(c: int, entries: int, t: int, machine: Machine) -> float:
    """There with queries, keys and values, back with the output: to each of the others a part of c of what one has."""
    if c == 1:
        return 0.0
    near = min(c, max(1, machine.node // t))  # of the c, in the same node
    part = entries * machine.number / c
    moving = max((near - 1) * part / machine.link, (c - near) * part / machine.network)
    return 2 * (machine.start + _joint(c * t, machine)[1]) + moving


def _all_reduce(t: int, entries: int, machine: Machine) -> float:
    """Around a ring twice, in t parts: once to add, once to hand out the sums."""
    if t == 1:
        return 0.0
    rate, hop = _joint(t, machine)
    moving = entries * machine.number / t / rate
    return machine.start + 2 * (t - 1) * (hop + moving)
