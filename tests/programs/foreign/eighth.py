"""The eighth set, of chapter 12, by somebody who had read its checkers. Of 26 wrong 9 were named at first (35 %), 5
hinted at, 5 misled, 7 unnamed; one of 8 right ones was refused, for a case of whole numbers in place of real ones."""

import math

import numpy as np
import torch

from foreign import Solutions

EIGHTH = Solutions()
wrong, right = EIGHTH.wrong, EIGHTH.right


@wrong("merge_parts", "no key|−∞")
def merge_by_the_top_of_all(outputs, levels):
    w = np.exp(levels - np.max(levels))
    return np.sum(w * outputs, axis=0) / np.sum(w, axis=0)


@wrong("merge_parts", "no key|−∞")
def merge_by_softmax(outputs, levels):
    return torch.einsum("pnk,pnd->nd", torch.softmax(levels, dim=0), outputs)


@wrong("merge_parts", "e to|exp|base")
def merge_base_two(outputs, levels):
    top = torch.clamp(levels.amax(0), min=-1e30)
    w = torch.exp2(levels - top)
    return (w * outputs).sum(0) / w.sum(0).clamp(min=1e-30)


@wrong("merge_parts", "sum to 1|too small|divide")
def merge_share_and_mean(outputs, levels):
    w = torch.softmax(levels, 0).nan_to_num()
    return (w * outputs).mean(dim=0)


@wrong("merge_parts", "sum|level|both")
def merge_keeping_the_larger_level(outputs, levels):
    o, l = outputs[0], levels[0]
    for other, level in zip(outputs[1:], levels[1:], strict=True):
        top = np.maximum(np.maximum(l, level), -1e300)
        a, b = np.exp(l - top), np.exp(level - top)
        total = a + b
        o = (a * o + b * other) / np.where(total == 0, 1, total)
        l = np.maximum(l, level)
    return o


@wrong("merge_parts", "largest level|top|maximum|differences|own")
def merge_with_a_top_for_each_process(outputs, levels):
    w = np.exp(levels - levels.max(axis=1, keepdims=True))
    w = np.nan_to_num(w)
    s = w.sum(0)
    return (w * outputs).sum(0) / np.where(s == 0, 1, s)


@wrong("merge_parts", "inverted|sign|minus|larger level")
def merge_with_the_sign_wrong(outputs, levels):
    w = torch.softmax(-levels, 0).nan_to_num()
    return (w * outputs).sum(0)


@wrong("zigzag_positions", "reverse|from the end|2 · size")
def zigzag_second_lap_forward(n, size):
    c = n // size // 2
    rows = []
    for r in range(size):
        late = (size + r) * c
        rows.append([*range(r * c, (r + 1) * c), *range(late, late + c)])
    return np.array(rows)


@wrong("zigzag_positions", "twice|missing|once|2 · size − 1")
def zigzag_off_by_one_chunk(n, size):
    c = n // (2 * size)
    x = torch.arange(n).view(2 * size, c)
    return torch.stack([torch.cat([x[r], x[2 * size - 2 - r]]) for r in range(size)])


@wrong("zigzag_positions", "one token|piece|chunk")
def zigzag_snake(n, size):
    owner = [
        r
        for lap in range(n // size)
        for r in (range(size) if lap % 2 == 0 else reversed(range(size)))
    ]
    return np.array([[i for i in range(n) if owner[i] == r] for r in range(size)])


@wrong("zigzag_positions", "from 0|start|begin|too large")
def zigzag_counted_from_one(n, size):
    x = np.arange(1, n + 1).reshape(2 * size, -1)
    return np.hstack([x[:size], x[::-1][:size]])


@wrong("zigzag_positions", "order of (the )?(processes|rows)|rows")
def zigzag_last_process_first(n, size):
    x = torch.arange(n).reshape(2 * size, -1)
    return torch.cat([x[:size].flip(0), x[size:]], dim=1)


@wrong("zigzag_positions", "backwards|order")
def zigzag_by_mirroring(n, size):
    front = np.arange(n // 2).reshape(size, -1)
    return np.concatenate([front, n - 1 - front], axis=-1)


@wrong("bytes_sent", "queries|keys and values")
def bytes_ring_with_queries(n, size, heads, kv_heads, width, number):
    token = width * number
    ring = (size - 1) * (n // size) * (heads + 2 * kv_heads) * token
    return ring, (size - 1) * n * 2 * (heads + kv_heads) * token // size**2


@wrong("bytes_sent", "one process|all processes|together")
def bytes_of_all_processes(n, size, heads, kv_heads, width, number):
    ring = (size - 1) * n * 2 * kv_heads * width * number
    swap = (size - 1) * n * 2 * (heads + kv_heads) * width * number // size
    return ring, swap


@wrong("bytes_sent", r"part|\(p − 1\)/p|whole")
def bytes_swap_to_each(n, size, heads, kv_heads, width, number):
    local = n // size
    ring = local * 2 * kv_heads * width * number * (size - 1)
    return ring, local * 2 * (heads + kv_heads) * width * number * (size - 1)


@wrong("bytes_sent", "byte")
def bytes_numbers_in_the_ring(n, size, heads, kv_heads, width, number):
    here = n / size
    ring = 2 * here * kv_heads * width * (size - 1)
    swap = 2 * here * (heads + kv_heads) * width * number * (size - 1) / size
    return int(ring), int(swap)


@wrong("bytes_sent", "kv_heads|Grouped|share")
def bytes_swap_of_copied_heads(n, size, heads, kv_heads, width, number):
    ring = 2 * kv_heads * width * number * (n // size) * (size - 1)
    swap = sum(heads * width * number * n // size * (size - 1) for _ in "qkvo")
    return ring, swap // size


def online(q, blocks):
    """A running softmax over blocks of (scores, values)."""
    t, z, u = -math.inf, 0.0, 0.0
    for s, v in blocks:
        if not len(s):
            continue
        new = max(t, s.max())
        e, old = np.exp(s - new), math.exp(t - new)
        t, z, u = new, old * z + e.sum(), old * u + e @ v
    return u / z


@wrong("ring", "itself|own")
def ring_strictly_before(Q, K, V, size):
    b, rows = len(Q) // size, []
    for i, q in enumerate(Q):

        def blocks(i=i, q=q):
            for step in range(size):
                o = (i // b - step) % size
                j = np.arange(o * b, min((o + 1) * b, i if i else 1))
                yield K[j] @ q / len(q) ** 0.5, V[j]

        rows.append(online(q, blocks()))
    return np.array(rows)


@wrong("ring", "own block|future|keys after|inside")
def ring_own_block_unmasked(Q, K, V, size):
    q, k, v = (x.reshape(size, -1, x.shape[-1]) for x in (Q, K, V))
    out = []
    for r in range(size):
        s = torch.cat([q[r] @ k[o].mT for o in range(r + 1)], -1) / Q.shape[-1] ** 0.5
        out.append(s.softmax(-1) @ torch.cat([*v[: r + 1]]))
    return torch.cat(out)


@wrong("ring", "future|keys after|other blocks|later")
def ring_masks_own_block_only(Q, K, V, size):
    b = len(Q) // size
    S = Q @ K.mT / math.sqrt(Q.shape[1])
    for r in range(size):
        here = slice(r * b, (r + 1) * b)
        S[here, here] += torch.full((b, b), -math.inf).triu(1)
    return S.softmax(1) @ V


@wrong("ring", "pooled|rescale|shrink")
def ring_rescales_total_alone(Q, K, V, size):
    ks, vs, js = (x.chunk(size) for x in (K, V, torch.arange(len(Q))))
    outs = []
    for r, q in enumerate(Q.chunk(size)):
        m = torch.full((len(q), 1), -1e30, dtype=Q.dtype)
        l, acc = torch.zeros_like(m), torch.zeros(len(q), V.shape[1], dtype=Q.dtype)
        for step in range(size):
            o = (r - step) % size
            s = q @ ks[o].T / Q.shape[1] ** 0.5
            s = s.masked_fill(js[r][:, None] < js[o], -math.inf)
            new = torch.maximum(m, s.amax(1, keepdim=True))
            p = torch.exp(s - new)
            l = l * torch.exp(m - new) + p.sum(1, keepdim=True)
            acc, m = acc + p @ vs[o], new
        outs.append(acc / l)
    return torch.cat(outs)


@wrong("ring", "values")
def ring_values_stay(Q, K, V, size):
    b, rows = len(Q) // size, []
    for i, q in enumerate(Q):
        mine = i // b
        blocks = []
        for step in range(size):
            o = (mine - step) % size
            j = np.arange(o * b, (o + 1) * b)
            j = j[j <= i]
            blocks.append((K[j] @ q / np.sqrt(len(q)), V[j - o * b + mine * b]))
        rows.append(online(q, blocks))
    return np.stack(rows)


@wrong("ring", "√d|divided|scaled")
def ring_scaled_by_the_values(Q, K, V, size):
    b = len(Q) // size
    out = np.empty((len(Q), V.shape[1]))
    for i, q in enumerate(Q):
        cuts = [slice(a, min(a + b, i + 1)) for a in range(0, i + 1, b)]
        out[i] = online(q, [(K[j] @ q / np.sqrt(V.shape[1]), V[j]) for j in cuts])
    return out


@wrong("ring", "[Aa]verage|weight|once, at the end")
def ring_running_mean(Q, K, V, size):
    n, b = len(Q), len(Q) // size
    out = torch.zeros(n, V.shape[1], dtype=V.dtype)
    for i in range(n):
        for count, a in enumerate(range(0, i + 1, b)):
            j = slice(a, min(a + b, i + 1))
            w = (K[j] @ Q[i] / Q.shape[1] ** 0.5).softmax(0)
            out[i] = (out[i] * count + w @ V[j]) / (count + 1)
    return out


@wrong("ring", "maximum|overflow|largest")
def ring_plain_exponentials(Q, K, V, size):
    n, d = Q.shape
    z, u = torch.zeros(n, 1, dtype=Q.dtype), torch.zeros_like(V)
    i, b = torch.arange(n)[:, None], n // size
    for step in range(size):
        j = (i // b - step) % size * b + torch.arange(b)
        e = torch.exp(torch.einsum("nd,nbd->nb", Q, K[j]) / d**0.5) * (j <= i)
        z, u = z + e.sum(1, keepdim=True), u + torch.einsum("nb,nbd->nd", e, V[j])
    return u / z


# These were written when the checkers had been mended, and run unseen: 7 were named, 2 hinted at, 1 misled, 4 unnamed.


@wrong("merge_parts", "∞|infinity|overflow|[Mm]aximum")
def merge_by_plain_logarithms(outputs, levels):
    whole = np.log(np.exp(levels).sum(0))
    return (np.exp(levels - whole) * outputs).sum(0)


@wrong("merge_parts", "multiply each by its share")
def merge_by_counting(outputs, levels):
    seen = np.isfinite(levels)
    return (outputs * seen).sum(0) / np.maximum(seen.sum(0), 1)


@wrong("merge_parts", "axis")
def merge_and_keep_the_axis(outputs, levels):
    w = torch.softmax(levels, 0).nan_to_num()
    return (w * outputs).sum(0, keepdim=True)


@wrong("merge_parts", None)
def merge_by_sigmoids(outputs, levels):
    w = 1 / (1 + np.exp(-levels))
    s = w.sum(0)
    return (w * outputs).sum(0) / np.where(s == 0, 1, s)


@wrong("zigzag_positions", "from the end")
def zigzag_of_two_halves(n, size):
    c = n // size // 2
    starts = [(r * c, n // 2 + r * c) for r in range(size)]
    return np.array([[*range(a, a + c), *range(b, b + c)] for a, b in starts])


@wrong("zigzag_positions", "shape")
def zigzag_in_one_row(n, size):
    x = np.arange(n).reshape(2 * size, -1)
    return np.concatenate([np.concatenate([x[r], x[-1 - r]]) for r in range(size)])


@wrong("bytes_sent", "p times")
def bytes_all_the_way_round(n, size, heads, kv_heads, width, number):
    swap = (size - 1) * 2 * n * (heads + kv_heads) * width * number // size**2
    return n * 2 * kv_heads * width * number, swap


@wrong("bytes_sent", "output")
def bytes_there_and_not_back(n, size, heads, kv_heads, width, number):
    t = n // size * width * number
    swap = (size - 1) * t * (heads + kv_heads + kv_heads) // size
    return (size - 1) * 2 * kv_heads * t, swap


@wrong("bytes_sent", "keys and values")
def bytes_of_queries_alone(n, size, heads, kv_heads, width, number):
    t = n // size * width * number
    return (size - 1) * 2 * kv_heads * t, (size - 1) * t * 2 * heads // size


@wrong("bytes_sent", "Grouped")
def bytes_ring_of_copied_heads(n, size, heads, kv_heads, width, number):
    t = n // size * width * number
    return (size - 1) * 2 * heads * t, (size - 1) * t * 2 * (heads + kv_heads) // size


@wrong("ring", "inside one's own block")
def ring_by_ranks(Q, K, V, size):
    i = torch.arange(len(Q)) // (len(Q) // size)
    S = (Q @ K.T / Q.shape[1] ** 0.5).masked_fill(i[:, None] < i, -math.inf)
    return S.softmax(-1) @ V


@wrong("ring", "p − 1 steps")
def ring_a_step_short(Q, K, V, size):
    b, out = len(Q) // size, []
    for r in range(size):
        owners = [(r - s) % size for s in range(max(1, size - 1))]
        j = np.concatenate([np.arange(o * b, o * b + b) for o in owners])
        i = np.arange(r * b, r * b + b)
        S = np.where(i[:, None] >= j, Q[i] @ K[j].T / np.sqrt(Q.shape[1]), -np.inf)
        A = np.exp(S - S.max(1, keepdims=True))
        out.append(A / A.sum(1, keepdims=True) @ V[j])
    return np.concatenate(out)


@wrong("ring", "divide|total")
def ring_never_divided(Q, K, V, size):
    S = Q @ K.T / np.sqrt(Q.shape[1])
    S = np.where(np.tri(len(Q), dtype=bool), S, -np.inf)
    return np.exp(S - S.max(1, keepdims=True)) @ V


@wrong("ring", None)
def ring_mask_one_step_late(Q, K, V, size):
    b, out = len(Q) // size, []
    for r in range(size):
        blocks = []
        i = np.arange(r * b, r * b + b)[:, None]
        for s in range(size):
            o = (r - s) % size
            w = (o - 1) % size if s else o
            S = Q[i[:, 0]] @ K[o * b : o * b + b].T / np.sqrt(Q.shape[1])
            blocks.append((np.where(i >= np.arange(w * b, w * b + b), S, -np.inf), o))
        S = np.concatenate([S for S, _ in blocks], 1)
        A = np.exp(S - S.max(1, keepdims=True))
        W = np.concatenate([V[o * b : o * b + b] for _, o in blocks])
        out.append(A / A.sum(1, keepdims=True) @ W)
    return np.concatenate(out)


@right("merge_parts")
def merge_by_logaddexp(outputs, levels):
    whole = np.logaddexp.reduce(levels, axis=0)
    with np.errstate(invalid="ignore"):
        w = np.exp(levels - whole)
    return np.einsum("pnk,pnd->nd", np.nan_to_num(w), outputs)


@right("merge_parts")
def merge_two_at_a_time(outputs, levels):
    o, l = outputs[0], levels[0]
    for other, level in zip(outputs[1:], levels[1:], strict=True):
        both = torch.logaddexp(l, level)
        keep = torch.where(both.isinf(), 0.0, torch.sigmoid(l - level)).to(o.dtype)
        keep = torch.where(level.isneginf() & ~l.isneginf(), 1.0, keep).to(o.dtype)
        o, l = keep * o + (1 - keep) * other, both
    return o


@right("zigzag_positions")
def zigzag_by_loops(n, size):
    c = n // (2 * size)
    return np.array(
        [
            [r * c + i for i in range(c)] + [n - (r + 1) * c + i for i in range(c)]
            for r in range(size)
        ]
    )


@right("zigzag_positions")
def zigzag_by_folding(n, size):
    x = torch.arange(n).view(2, size, -1)
    return torch.stack([x[0], x[1].flip(0)], 1).flatten(1)


@right("bytes_sent")
def bytes_by_counting(n, size, heads, kv_heads, width, number):
    ring = swap = 0
    for peer in range(size):
        if peer != 0:
            ring += 2 * kv_heads * (n // size) * width * number
            kv = max(kv_heads, size)  # each process needs one
            for h in (heads, kv, kv, heads):
                swap += h * (n // size) * width * number / size
    return ring, round(swap)


@right("bytes_sent")
def bytes_as_tensors(n, size, heads, kv_heads, width, number):
    token = torch.tensor(2 * width * number * n * (size - 1))
    each = heads + torch.tensor([kv_heads, size]).max()
    return token * kv_heads // size, token * each // size**2


@right("ring")
def ring_the_other_way_round(Q, K, V, size):
    qs, ks, vs = (list(x.chunk(size)) for x in (Q, K, V))
    js = list(torch.arange(len(Q)).chunk(size))
    sums = [None] * size
    for _ in range(size):
        for r, q in enumerate(qs):
            i = torch.arange(r * len(q), (r + 1) * len(q))[:, None]
            s = (q @ ks[r].T / q.shape[1] ** 0.5).masked_fill(js[r] > i, -math.inf)
            l = s.logsumexp(1, keepdim=True)
            o = s.softmax(1).nan_to_num() @ vs[r]
            if sums[r] is not None:
                before, level = sums[r]
                w = torch.sigmoid(l - level).nan_to_num()
                o, l = before + w * (o - before), torch.logaddexp(l, level)
            sums[r] = o, l
        ks, vs, js = (x[1:] + x[:1] for x in (ks, vs, js))
    return torch.cat([o for o, _ in sums])


@right("ring")
def ring_row_by_row(Q, K, V, size):
    b = len(Q) // size
    rows = []
    for i, q in enumerate(Q):
        starts = [(i // b - step) % size * b for step in range(size)]
        parts = [np.arange(a, a + b) for a in starts if a <= i]
        parts = [j[j <= i] for j in parts]
        rows.append(online(q, [(K[j] @ q / len(q) ** 0.5, V[j]) for j in parts]))
    return np.stack(rows)
