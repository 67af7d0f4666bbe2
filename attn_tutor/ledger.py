"""What one layer of attention costs on paper: operations, exponentials, bytes and seconds, on one GPU or on many."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from attn_tutor._checks import require_positive, require_size

__all__ = [
    "B200",
    "H100",
    "LLAMA_70B",
    "Bill",
    "Cost",
    "Layer",
    "Machine",
    "Mesh",
    "attention_bill",
    "attention_cost",
    "cache_bytes",
]

Way = Literal["naive", "fused", "tiles"]
Exchange = Literal["ring", "double ring", "all-to-all"]

# How often arrays of n · m numbers are written or read. Naive: scores, written and read for the maximum and for the
# exponentials; these, written and read for the sum and for the division; weights, written and read. Fused, one kernel
# for the whole softmax: scores and weights, written and read.
TRIPS = {"naive": 8, "fused": 4}


@dataclass(frozen=True)
class Machine:
    """One GPU among many, and what joins it to the others. Rates are those of one GPU, in one direction."""

    operations_per_second: float  # of matrix products; a multiply and an add are two
    exponentials_per_second: float
    memory_bytes_per_second: float  # between its slow memory and the processors
    memory_bytes: float  # of the slow memory
    link_bytes_per_second: float  # to another GPU of the same node
    network_bytes_per_second: float  # to a GPU of another node
    link_hop_seconds: float  # of a message without content within the node
    network_hop_seconds: float  # the same between nodes
    start_seconds: float  # until an exchange begins, however many messages it has
    node_gpus: int
    number_bytes: int = 2


#: An H100 GPU of a node of eight, by its data sheets.
#:
#: Peaks, which few kernels reach. Operations (bfloat16, no sparsity), HBM3 and NVLink 4, 900 GB/s both ways together:
#: NVIDIA, H100 Tensor Core GPU data sheet, SXM (2023). Exponentials: a processor does 4,096 operations and 16
#: exponentials a clock, Zadouri et al. (2026), *FlashAttention-4*. One InfiniBand NDR adapter of 400 Gb/s a GPU, eight
#: GPUs a node: NVIDIA, DGX H100 data sheet (2023). Latencies: NVIDIA, NCCL, ``src/graph/tuning.cc``, base and hardware
#: latency of "Ring, Simple".
H100 = Machine(
    operations_per_second=989.4e12,
    exponentials_per_second=989.4e12 / 4096 * 16,
    memory_bytes_per_second=3.35e12,
    memory_bytes=80e9,
    link_bytes_per_second=450e9,
    network_bytes_per_second=50e9,
    link_hop_seconds=3.4e-6,
    network_hop_seconds=14e-6,
    start_seconds=8.4e-6,
    node_gpus=8,
)

#: A B200 GPU of a node of eight, by its data sheets.
#:
#: HBM3e, NVLink 5 and adapters: NVIDIA, DGX B200 data sheet (2024). Operations, and 8,192 of them and 16 exponentials a
#: clock: Zadouri et al. (2026). Latencies: as for the H100.
B200 = replace(
    H100,
    operations_per_second=2250e12,
    exponentials_per_second=2250e12 / 8192 * 16,
    memory_bytes_per_second=8e12,
    memory_bytes=180e9,
    link_bytes_per_second=900e9,
)


@dataclass(frozen=True)
class Layer:
    """The shape of one layer of attention, and what its cache keeps of each token.

    With ``latent_width`` all heads share one latent for each token and one rotary key of ``rotary_width``, and attend
    to these themselves, as multi-head latent attention does when it writes.
    """

    heads: int
    kv_heads: int
    width: int
    latent_width: int | None = None
    rotary_width: int = 64
    window: int | None = None
    sinks: int = 0
    cache_bits: int = 16

    def kept_bytes(self, tokens: int) -> int:
        """Bytes of the keys and values, or latents, of so many tokens."""
        width = self.width if self.latent_width is None else self.rotary_width
        return cache_bytes(
            tokens,
            layers=1,
            kv_heads=self.kv_heads,
            width=width,
            latent=self.latent_width,
            window=self.window,
            sinks=self.sinks,
            bits=self.cache_bits,
        )


#: The attention of Grattafiori et al. (2024), *The Llama 3 herd of models*, table 3: 80 such layers.
LLAMA_70B = Layer(heads=64, kv_heads=8, width=128)


class Mesh(NamedTuple):
    """How many GPUs share the sequences, the tokens of a sequence, and the heads. Neighbours share heads."""

    data: int = 1
    context: int = 1
    tensor: int = 1


@dataclass(frozen=True)
class Bill:
    """One line of the ledger: what the busiest GPU does in one layer of attention.

    Without its projections; where GPUs share heads, with the all-reduce that adds these up.
    """

    operations: float  # of the two matrix products
    exponentials: float
    least_bytes: float  # from and to slow memory, if each array passes once
    most_bytes: float  # the same if each tile of queries fetches all its keys
    held_bytes: float  # in slow memory at once, besides inputs and output
    kept_bytes: float  # for the next token
    sent_bytes: float  # to other GPUs
    product_seconds: float
    exponential_seconds: float
    memory_seconds: float  # of the least bytes
    wait_seconds: float  # for links, while there is nothing to compute

    @property
    def seconds(self) -> float:
        """The least, if products, exponentials and traffic overlap. What is waited for comes on top."""
        times = self.product_seconds, self.exponential_seconds, self.memory_seconds
        return max(times) + self.wait_seconds

    @property
    def bound(self) -> str:
        """What takes longest, "products", "exponentials", "memory" or "links"."""
        waits = {
            "products": self.product_seconds,
            "exponentials": self.exponential_seconds,
            "memory": self.memory_seconds,
            "links": self.wait_seconds,
        }
        return max(waits, key=waits.__getitem__)


def attention_bill(
    queries: int,
    keys: int,
    layer: Layer = LLAMA_70B,
    machine: Machine = H100,
    *,
    way: Way = "tiles",
    tile: int = 128,
    mesh: Mesh | None = None,
    exchange: Exchange = "ring",
) -> Bill:
    r"""Operations, exponentials, bytes and seconds of causal attention of the last of ``keys`` tokens, forward.

    .. math:: \text{seconds} = \max\left(\frac{\text{operations}}{\text{peak}},
        \frac{\text{exponentials}}{\text{their rate}}, \frac{\text{least bytes}}{\text{bandwidth}}\right) +
        \text{waiting for links}

    The naive way computes every pair and moves :math:`n \cdot m` numbers through slow memory eight times, or four times
    if one kernel makes the whole softmax. Tiles leave out what nobody sees. At least they read queries, keys and values
    and write outputs once; at most each tile of queries fetches all the keys that its queries see, and each further
    step of a ring reads queries and running outputs and writes these again, in float32 at least. Caches decide where
    between the two a kernel is, so only the least says what it waits for. Heads that share keys share a tile. What
    links read and write in memory is not counted.

    Source: the roofline of Williams, Waterman & Patterson (2009), the trips of Dao et al. (2022), the exponentials of
    Shah et al. (2024) and Zadouri et al. (2026).

    Args:
        queries: tokens that ask: all of them for a prompt, one for a step that writes.
        keys: tokens that are there.
        layer: shape of the layer.
        machine: rates of a GPU.
        way: "naive", "fused" or "tiles".
        tile: rows of queries in a tile, heads that share keys counted.
        mesh: GPUs that share tokens and heads, of a prompt in tiles; None is one GPU.
        exchange: how tokens meet that different GPUs hold, as for :func:`attention_cost`.

    Returns:
        The bill of the busiest GPU.

    Raises:
        ValueError: a count is not positive, there are more queries than keys, or a mesh has no prompt in tiles.

    Example:
        >>> for machine in (H100, B200):
        ...     bill = attention_bill(131_072, 131_072, machine=machine)
        ...     print(f"products {bill.product_seconds:.3f} s, exponentials {bill.exponential_seconds:.3f} s")
        products 0.284 s, exponentials 0.142 s
        products 0.125 s, exponentials 0.125 s
    """
    name = "attention_bill"
    for argument, count in dict(queries=queries, keys=keys, tile=tile).items():
        require_positive(name, argument, count)
    if queries > keys:
        raise ValueError(
            f"{name}: the queries are the last of the keys; got queries={queries}, keys={keys}"
        )
    if mesh and (way != "tiles" or queries != keys):
        raise ValueError(
            f"{name}: mesh= shares a prompt in tiles: way='tiles' and queries=keys"
        )
    number, heads, groups = machine.number_bytes, layer.heads, layer.kv_heads
    key_width = value_width = layer.width
    if layer.latent_width:
        groups, value_width = 1, layer.latent_width
        key_width = value_width + layer.rotary_width
    first = keys - queries  # position of the first query
    once = float(queries * heads * (key_width + value_width) * number)  # and outputs
    row = layer.kept_bytes(1)
    data, c, t = mesh or Mesh()
    if way == "tiles":
        window = layer.window + layer.sinks if layer.window else keys
        step = max(1, tile * groups // heads)  # tokens whose queries share a tile
        pairs = _pairs(keys, window) - _pairs(first, window)
        ends = [(i, min(i + step, keys)) for i in range(first, keys, step)]
        most = once + row * sum(min(end, window + end - i - 1) for i, end in ends)
        held = 4.0 * queries * heads  # a log-sum-exp in float32 for each
        if exchange != "all-to-all":
            sums = 2 * value_width * max(number, 4)  # of a ring, read and written
            most += (c - 1) * queries * heads * (key_width * number + sums)
        parts = t if exchange != "all-to-all" else c * t  # of the heads
        here = -(-groups // parts) / groups
        least = once / (c * t) + row * min(keys, window + queries - 1) * here
        most = max(least, most / (c * t))
    else:
        pairs = queries * keys
        held = float(heads * pairs * number)
        least = most = once + row * keys + TRIPS[way] * held
    operations = 2.0 * pairs * heads * (key_width + value_width) / (c * t)
    exponentials = float(pairs * heads) / (c * t)
    times = (
        operations / machine.operations_per_second,
        exponentials / machine.exponentials_per_second,
        least / machine.memory_bytes_per_second,
    )
    wait = sent = 0.0
    if mesh:
        # Whichever takes longest hides what travels meanwhile.
        cost = attention_cost(
            keys,
            heads,
            mesh,
            replace(machine, operations_per_second=operations / max(times)),
            kv_heads=groups,
            width=layer.width,
            exchange=exchange,
        )
        wait = cost.wait_seconds + cost.reduce_seconds
        added = heads * layer.width * number * keys / c  # bytes of a sum over heads
        sent = cost.sent_bytes + 2 * (t - 1) / t * added
    return Bill(
        operations,
        exponentials,
        least,
        most,
        held / (c * t),
        layer.kept_bytes(keys) / c * -(-groups // t) / groups,
        sent,
        *times,
        wait,
    )


def _pairs(tokens: int, most: int) -> int:
    """Keys that so many first tokens see, each itself and those before it, but no more than ``most``."""
    few = min(tokens, most)
    return few * (few + 1) // 2 + (tokens - few) * most


@dataclass(frozen=True)
class Cost:
    """Seconds of a layer with its projections, and what each GPU sends so that tokens meet.

    The links are busy for ``traffic_seconds``; for ``wait_seconds`` of them the GPUs have nothing else to do.
    """

    project_seconds: float
    attend_seconds: float
    traffic_seconds: float
    wait_seconds: float
    reduce_seconds: float
    sent_bytes: float

    @property
    def seconds(self) -> float:
        """The layer, from its first projection to the sum over heads."""
        return (
            self.project_seconds
            + self.attend_seconds
            + self.wait_seconds
            + self.reduce_seconds
        )


def attention_cost(
    n: int,
    heads: int,
    mesh: Mesh,
    machine: Machine,
    *,
    kv_heads: int | None = None,
    width: int = 128,
    batch: int = 1,
    exchange: Exchange = "ring",
    overlap: bool = True,
) -> Cost:
    r"""Seconds of one causal attention layer, forward, with its four projections.

    .. math:: \text{seconds} = \text{project} + c\,a + (c - 1) \max(0, x - a) + \text{reduce}

    for a ring of :math:`c` processes with zigzag balance: a step computes for :math:`a` seconds while the next keys and
    values travel for :math:`x`. A double ring goes round inside each node, and for each such round once from node to
    node. Without overlap each exchange is waited for whole.

    Source: Liu et al. (2023) for the ring and its condition :math:`x \le a`, Gu et al. (2024), LoongTrain, for the
    double ring, Jacobs et al. (2023) for the all-to-all, Shoeybi et al. (2019) for the all-reduce after the output
    projection.

    Args:
        n: tokens of a sequence.
        heads: query heads.
        mesh: the GPUs; those that share heads are neighbours, then those that share tokens.
        machine: their rates.
        kv_heads: heads of keys and values; as many as query heads if None.
        width: of a head.
        batch: sequences; the mesh's data groups share them.
        exchange: how tokens meet: keys and values go around a "ring" or a "double ring", or an "all-to-all" turns
            tokens into heads and back.
        overlap: whether the ring computes while it sends.

    Returns:
        The seconds of the group that has the most sequences, part by part.

    Raises:
        ValueError: a count is not positive, the processes do not divide the heads, or they do not divide the tokens.

    Example:
        >>> alone = attention_cost(1_000_000, 64, Mesh(), H100, kv_heads=8)
        >>> ring = attention_cost(1_000_000, 64, Mesh(context=64), H100, kv_heads=8)
        >>> f"{alone.seconds:.1f} s, {ring.seconds:.2f} s, {ring.wait_seconds:.2f} s of it waiting"
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
    rate = machine.operations_per_second
    project = 4 * tokens * model * (here + kv_here) * width / rate
    attend = 4 * here * width * (n * (n + 1) / 2) / c / rate
    number = machine.number_bytes
    if exchange == "all-to-all":
        # Too few heads of keys for all are sent more than once.
        swapped = 2 * tokens * (here + max(kv_here, c)) * width * number
        sent, traffic = _all_to_all(c, swapped, t, machine)
        wait = traffic
    else:
        inner = max(1, min(c, machine.node_gpus // t)) if "double" in exchange else c
        block = 2 * tokens * kv_here * width * number
        work = overlap * attend / c
        sent, traffic, wait = _rings(c // inner, inner, work, block, t, machine)
    reduce = _all_reduce(t, tokens * model * number, machine)
    parts = (project, attend, traffic, wait, reduce, sent)
    return Cost(*(rounds * part for part in parts))


def _joint(span: int, machine: Machine) -> tuple[float, float]:
    """Bytes a second and latency of the slowest joint in a group of so many neighbours."""
    if span <= machine.node_gpus:
        return machine.link_bytes_per_second, machine.link_hop_seconds
    return machine.network_bytes_per_second, machine.network_hop_seconds


def _rings(
    outer: int, inner: int, work: float, block: float, t: int, machine: Machine
) -> tuple[float, float, float]:
    """Bytes sent, and seconds of sending and of waiting, of rings of ``inner`` processes that form a ring themselves.

    A block goes round its inner ring in ``inner`` steps, each computing for ``work`` seconds; meanwhile the block with
    which that round began is on its way to the next ring.
    """

    def travel(span: int) -> float:
        rate, hop = _joint(span, machine)
        return machine.start_seconds + hop + block / rate

    near, far = travel(inner * t), travel(outer * inner * t)
    idle = (inner - 1) * max(0.0, near - work)
    wait = outer * idle + (outer - 1) * max(0.0, far - inner * work - idle)
    steps = outer * (inner - 1) + outer - 1
    return steps * block, outer * (inner - 1) * near + (outer - 1) * far, wait


def _all_to_all(c: int, here: float, t: int, machine: Machine) -> tuple[float, float]:
    """There with queries, keys and values, back with the output: to each of the others a part of c of what one has."""
    if c == 1:
        return 0.0, 0.0
    near = min(c, max(1, machine.node_gpus // t))  # of the c, in the same node
    part = here / c
    moving = max(
        (near - 1) * part / machine.link_bytes_per_second,
        (c - near) * part / machine.network_bytes_per_second,
    )
    seconds = 2 * (machine.start_seconds + _joint(c * t, machine)[1]) + moving
    return (c - 1) * part, seconds


def _all_reduce(t: int, whole: float, machine: Machine) -> float:
    """Around a ring twice, in t parts: once to add, once to hand out the sums."""
    if t == 1:
        return 0.0
    rate, hop = _joint(t, machine)
    return machine.start_seconds + 2 * (t - 1) * (hop + whole / t / rate)


def cache_bytes(
    tokens: int,
    *,
    layers: int,
    kv_heads: int = 1,
    width: int,
    latent: int | None = None,
    window: int | None = None,
    sinks: int = 0,
    bits: int = 16,
) -> int:
    r"""Bytes of the keys and values of one text.

    .. math:: \text{bytes} = \frac{\text{bits}}{8} \cdot \text{layers} \cdot \min(\text{tokens}, \text{window} +
        \text{sinks}) \cdot \begin{cases} 2 \cdot \text{kv\_heads} \cdot \text{width} & \text{keys and values} \\
        \text{latent} + \text{width} & \text{latents} \end{cases}

    Source: counted from the definitions; for latents DeepSeek-AI (2024), DeepSeek-V2, table 1.

    Args:
        tokens: length of the text.
        layers: number of attention layers.
        kv_heads: heads of keys and values: as many as heads for plain multi-head attention, fewer for grouped-query
            attention, 1 for multi-query attention. Latents serve all heads.
        width: of a head; with latents, of the rotary key that all heads share.
        latent: width of the latent of multi-head latent attention; None keeps keys and values.
        window: tokens that a sliding window keeps; None keeps all.
        sinks: first tokens that are kept besides the window.
        bits: of each number: 32, 16, 8 or 4. The scales of quantised numbers are not counted.

    Returns:
        The number of bytes.

    Raises:
        TypeError: a number is not a whole number.
        ValueError: a number is negative, or there are sinks without a window.

    Example:
        >>> cache_bytes(1, layers=80, kv_heads=8, width=128)
        327680
    """
    given = dict(tokens=tokens, layers=layers, kv_heads=kv_heads, width=width)
    given |= dict(latent=latent or 0, window=window or 0, sinks=sinks, bits=bits)
    for name, value in given.items():
        require_size("cache_bytes", name, value)
    if sinks and window is None:
        raise ValueError(
            f"cache_bytes: sinks={sinks} are kept besides a window; give window= too"
        )
    held = tokens if window is None else min(tokens, window + sinks)
    row = 2 * kv_heads * width if latent is None else latent + width
    return layers * held * row * bits // 8
