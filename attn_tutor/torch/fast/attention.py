"""The engine behind attention: torch's fused kernel with the conventions of this package, some queries at a time.

A block of queries takes the keys that it sees in pieces: those that all of its queries see need no mask, and those at
the edges a small one. What pieces give is joined by their log-sums, forward, and in the gradient needs no more than
these: dS = A ∘ (g Vᵀ − rowsum(g ∘ O)) with A = exp(S − log-sum) asks of the others nothing. No (n, m) array is stored.
"""

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from attn_tutor._checks import broadcast
from attn_tutor.torch._arrays import forward_mode, look, transformed
from attn_tutor.torch.scoring import default_scale
from attn_tutor.torch.visibility import Visibility, masked, sees_nothing

ROWS, KEYS = 256, 4096  # of a piece at most: the kernel is fastest on such
PAIRS = 2**21  # of queries and keys for which a piece may store what is seen or added
SHORT = 2**16  # of queries and keys: for fewer it does not pay to leave any out
FEW = 2**19  # for so many of them one piece is quicker than the joining of several
NUMBERS = 2**21  # of an output, or of the gradient of keys, for blocks that are a batch
FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
FLASH_BACK = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def fused_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    see: Visibility,
    scale: float | torch.Tensor | None = None,
    softcap: float | None = None,
    dropout_p: float = 0.0,
    log_sums: bool = False,
) -> Any:
    """The number of ``attend(scaled_dot_score(Q, K, scale) + bias, V, see.dense())``, from the fastest kernel at hand.

    What is hidden must already be finite. With ``log_sums`` these come too, (…, n, 1).
    """
    batch = broadcast(*(X.shape[:-2] for X in (Q, K, V, *see.arrays.values())))
    assert batch is not None  # the callers have checked
    *outer, inner = batch or (1,)
    d, d_v = Q.shape[-1], V.shape[-1]

    def four_axes(X: torch.Tensor, whole: bool = False) -> torch.Tensor:
        if X.shape[:-2] == batch and 0 < len(batch) < 3:  # the usual case, and quick
            return X if len(batch) == 2 else X[None]
        if not whole and math.prod(X.shape[:-3]) == 1:  # axes of length 1 stay
            return X.reshape(1, *(1, *X.shape)[-3:])
        *_, heads, rows, width = (1, *X.shape)
        X = X.expand(*outer, heads, rows, width)
        X = X.reshape(math.prod(outer), heads, rows, width)
        # Keys that several heads share are shown to each, not copied.
        return X.expand(-1, inner, -1, -1) if whole else X

    if d != d_v:  # zeros change nothing, and the fast kernels want one width
        Q, K, V = (pad(X, (0, max(d, d_v) - X.shape[-1])) for X in (Q, K, V))
    q, k, v = (four_axes(X, whole=True) for X in (Q, K, V))
    # Kernels lose NaN and +∞.
    plain = softcap is not None or (see.careful and see.everything)
    if "bias" in see.arrays:
        plain |= look(lambda X: X.amax() < torch.inf, see.arrays["bias"]) is False
    if scale is None:
        scale = default_scale(d)
    elif isinstance(scale, torch.Tensor) or not 0 < scale < math.inf:
        plain |= not isinstance(scale, torch.Tensor) and not math.isfinite(scale)
        # Some kernels hide a score as scale · (−inf), so that their own must be above 0.
        q, scale = q * scale, 1.0
    flat = see.map(four_axes) if see.arrays else see
    core = Core(flat, scale, softcap, dropout_p, plain)

    def pooled(core: Core) -> tuple[torch.Tensor, ...]:
        if log_sums:
            return core.with_log_sums(q, k, v)
        return (core.over_blocks(q, k, v),)

    output, *sums = pooled(core)
    if (
        see.careful
        and not plain
        and look(lambda X: X.isfinite().all(), output) is False
    ):
        # A score of huge numbers is infinite, and stays so behind −∞; the textbook hides it.
        output, *sums = pooled(core._replace(plain=True))
    output = output[..., :d_v] if d > d_v else output
    found = tuple(X.reshape(*batch, see.n, X.shape[-1]) for X in (output, *sums))
    return found if log_sums else found[0]


class Core(NamedTuple):
    """Attention of some queries to the keys that they may see; all arrays have four axes."""

    see: Visibility
    scale: float
    softcap: float | None
    dropout_p: float
    plain: bool  # as the textbook has it
    back: bool = False  # whether it is the gradient that is computed

    def over_blocks(
        self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor
    ) -> torch.Tensor:
        """All queries, in blocks for which what is seen is small, or that see few keys."""
        see, causal = self.see, self.is_causal()
        if causal or not (self.plain or see.ruled or see.arrays):
            return kernel(Q, K, V, None, self.scale, self.dropout_p, causal)
        if not see.by_blocks or self.height(Q) >= see.n:
            return self.block(Q, K, V, slice(0, see.n))
        if torch.is_autocast_enabled(Q.device.type):
            dtype = torch.get_autocast_dtype(Q.device.type)
            Q, K, V = (X.to(dtype) for X in (Q, K, V))
        learnt = any(X.requires_grad for X in see.arrays.values())
        # Second derivatives are wanted where flash kernels are switched off.
        once = torch.backends.cuda.flash_sdp_enabled()
        if learnt or self.dropout_p or Q.device.type != "cpu" or not once:
            blocks = see.blocks(self.height(Q))
            return torch.cat([again(self.block, Q, K, V, rows) for rows in blocks], -2)
        output: torch.Tensor = _Blocks.apply(Q, K, V, self)
        return output

    def with_log_sums(self, Q: Any, K: Any, V: Any) -> tuple[torch.Tensor, ...]:
        """The same, and log Σ exp(score) of each query."""
        see, core = self.see, self
        blocks = self.blocks(Q) if see.by_blocks else [slice(0, see.n)]
        learnt = any(X.requires_grad for X in (Q, K, V, *see.arrays.values()))
        if not see.by_blocks or learnt or Q.device.type != "cpu":
            core = self._replace(plain=True)  # which autograd can follow
        found = [again(core.joined, Q, K, V, rows) for rows in blocks]
        return tuple(torch.cat(X, -2) for X in zip(*found, strict=True))

    def height(self, Q: torch.Tensor) -> int:
        """How many queries to take at once."""
        see, n, window = self.see, self.see.n, self.see.window
        if not (self.plain or see.last is not None or see.tall):
            return n
        height = min(ROWS, math.isqrt(self.most(Q)))
        if window is not None:
            height = min(height, max(window // 2, 128))
        few = window is not None or "begin" in see.arrays
        if n * see.m <= self.most(Q) // 2 and not (few and n > 2 * height):
            return n
        return height

    def most(self, Q: torch.Tensor) -> int:
        """For how many pairs of query and key a piece may store what it has to."""
        arrays = [*self.see.arrays.values(), *([Q] if self.plain else [])]
        copies = max(1, math.prod(broadcast((), *(X.shape[:-2] for X in arrays)) or ()))
        # The textbook's gradient stores some ten numbers a pair.
        return PAIRS // (4 * copies if self.plain else copies)

    def is_causal(self) -> bool:
        """Whether it is what torch's own flag says, which is aligned upper left and rules out all else."""
        see = self.see
        if see.last is None or see.window is not None or see.arrays or self.plain:
            return False
        if not torch.compiler.is_compiling():
            return see.last == 0
        # An import here, because it brings sympy, for which an import would wait as long as for half of torch.
        from torch.fx.experimental.symbolic_shapes import statically_known_true

        return statically_known_true(see.last == 0)

    def block(
        self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, rows: slice
    ) -> torch.Tensor:
        """Some queries, with the keys that they may see all at once."""
        see, q = self.see, Q[..., rows, :]
        if (not see.by_blocks or see.n * see.m <= SHORT) and see.m > 0:
            k, v, seen = K, V, see.dense()
            added = see.added(rows, slice(0, see.m))
        else:
            keys = see.keys(rows) or [slice(0, 0)]
            k, v = taken(K, keys), taken(V, keys)
            seen, added, _ = self.told(q, rows, keys)  # no weight depends on the last
        if self.plain:
            S = scores(q, k, added, self.scale, self.softcap)
            A = torch.dropout(weights(S, seen), self.dropout_p, self.dropout_p > 0)
            return A.to(v.dtype) @ v
        empty = None if seen is None else sees_nothing(seen)
        numbers = self.numbers(q, seen, added, empty)
        output = kernel(q, k, v, numbers, self.scale, self.dropout_p)
        return output if empty is None else output.masked_fill(empty, 0)

    def told(self, q: Any, rows: slice, keys: list[slice]) -> tuple[Any, Any, Any]:
        """What these queries see of these keys, what is added to each score, and to all scores of a query."""
        see = self.see
        tiles: list[Any] = [x.start < x.stop and see.tile(rows, x) for x in keys]
        seen = beside(tiles, keys, q)
        if len(keys) == 1 and (apart := see.apart(rows, keys[0])):
            return seen, *apart
        return seen, beside([see.added(rows, x) for x in keys], keys, q), None

    def numbers(
        self, q: torch.Tensor, seen: Any, added: Any, empty: Any = None
    ) -> torch.Tensor | None:
        """What to add to scores, −∞ where a key is hidden: a kernel makes more of it than of a mask."""
        if added is not None:
            added = added.to(q.dtype)
        if seen is None:
            return added
        return masked(q.new_zeros(1, 1) if added is None else added, seen, empty)

    # Piece by piece.

    def window(self) -> tuple[range, int, int]:
        """The queries for which a window is one small problem over and over, and the queries and keys of that."""
        see, wide = self.see, self.see.window
        if wide is None or see.last is None or "prefix" in see.arrays:
            return range(0), 1, 1
        # Few, so that there are few keys that some of them do not see. But the textbook copies the keys of each block,
        # and the gradient stores its own.
        taller = self.plain or self.back
        height = min(ROWS, max(64, 4 * math.isqrt(wide))) if taller else 32
        width = height + -(-wide // height) * height
        first = max(0, see.sinks + width - height - see.last)
        end = min(see.n, see.m - see.last)  # later keys may be cut off
        return range(first + max(0, end - first) % height, end), height, width

    def blocks(self, Q: torch.Tensor) -> list[slice]:
        """Queries that are taken at once; of a window, those of several blocks."""
        n, few = self.see.n, min(ROWS, self.height(Q))
        alike, height, width = self.window()
        if not alike:
            return self.see.blocks(few)
        stored = Q.shape[1] * Q.shape[3] * (width if self.back else height)
        count = min(NUMBERS // stored, self.most(Q) // (height * width))
        many = alike[:: height * max(1, count)]
        starts = *range(0, alike.start, few), *many, *range(alike.stop, n, few), n
        return list(itertools.starmap(slice, itertools.pairwise(starts)))

    def pieces(self, Q: torch.Tensor, rows: slice) -> list[list[slice]]:
        """The keys of some queries, some at a time: all together if they are few."""
        see, most = self.see, self.most(Q)
        if not see.by_blocks:
            return [[slice(0, see.m)]]
        alike, height, width = self.window()
        if rows.start in alike and see.last is not None:
            late = slice(rows.start + see.last + height - width, rows.stop + see.last)
            return [[late], *([[slice(0, see.sinks)]] if see.sinks else [])]
        runs = see.keys(rows)
        height, length = rows.stop - rows.start, sum(x.stop - x.start for x in runs)
        if height * length <= FEW * most // PAIRS:
            return [runs] if runs else []
        edges = see.ends(rows).edges() if see.ruled else set()
        if "slopes" in see.arrays:
            edges |= {rows.start + see.offset, rows.stop + see.offset}
        width, found = max(1, min(KEYS, most // height)), []
        for run in runs:
            cuts = sorted({run.start, run.stop, *(x for x in edges if run.start < x < run.stop)})  # fmt: skip
            for start, stop in itertools.pairwise(cuts):
                found += [[slice(j, min(j + width, stop))] for j in range(start, stop, width)]  # fmt: skip
        return found

    def joined(self, Q: Any, K: Any, V: Any, rows: slice) -> tuple[Any, Any]:
        """Output and log-sums of some queries."""
        q, found = Q[..., rows, :], None
        for keys in self.pieces(Q, rows):
            given = q, taken(K, keys), taken(V, keys)
            new = self.each(Core.piece, rows, keys, *given)
            found = new if found is None else join(*found, *new)
        if found is None:  # as nobody sees anything
            wide = torch.promote_types(q.dtype, torch.float32)
            log_sum = q.new_full((*q.shape[:-1], 1), -torch.inf, dtype=wide)
            return log_sum.new_zeros(*q.shape[:-1], V.shape[-1]), log_sum
        return found

    def piece(self, q: Any, k: Any, v: Any, rows: slice, keys: list[slice]) -> Any:
        """Output and log-sums as if there were no other keys."""
        seen, added, aside = self.told(q, rows, keys)
        if self.plain:
            S = scores(q, k, added, self.scale, self.softcap)
            return textbook(S if aside is None else S + aside, v, seen)
        numbers = self.numbers(q, seen, added)
        output, log_sum = FLASH(q, k, v, attn_mask=numbers, scale=self.scale)
        log_sum = log_sum[..., None]
        if seen is not None and (empty := sees_nothing(seen)) is not None:
            log_sum = log_sum.masked_fill(empty, -torch.inf)
        return output, log_sum if aside is None else log_sum + aside

    def pull(
        self, g: Any, q: Any, k: Any, v: Any, output: Any, log_sum: Any, rows: slice, keys: list[slice]
    ) -> Any:  # fmt: skip
        """The share of these keys in the gradients, given output and log-sums of the whole."""
        if not self.plain:
            seen, added, aside = self.told(q, rows, keys)
            level = (log_sum if aside is None else log_sum - aside)[..., 0]
            numbers = self.numbers(q, seen, added)
            return FLASH_BACK(g, q, k, v, output, level, 0.0, False, attn_mask=numbers, scale=self.scale)  # fmt: skip
        given = [X.detach().requires_grad_() for X in (q, k, v)]
        with torch.enable_grad():
            q, k, v = given
            change = self.change(self.piece(q, k, v, rows, keys), output, log_sum)
        return torch.autograd.grad(change, given, g.to(change.dtype))

    def each(self, part: Any, rows: slice, keys: list[slice], *arrays: Any) -> Any:
        """What a part gives for some keys; blocks of a window are a batch, and nothing is copied."""
        alike, height, width = self.window()
        n = rows.stop - rows.start
        if (
            rows.start not in alike
            or keys[0].stop - keys[0].start != n + width - height
        ):
            return part(self, *arrays, rows, keys)
        found = []
        for at in range(len(arrays[0])):
            see = self.see.in_blocks(at, rows, keys[0], height, width)
            sizes = [height if X.shape[-2] == n else width for X in arrays]
            given = [
                X[at].unfold(-2, size, height).mT
                for X, size in zip(arrays, sizes, strict=True)
            ]  # (h, blocks, height or width, d), so that keys in the cache serve the next block
            new = part(
                self._replace(see=see), *given, slice(0, height), [slice(0, width)]
            )
            found.append([summed(X, height) for X in new])
        if len(found) == 1:  # and not copied
            return [X[None] for X in found[0]]
        return map(torch.stack, zip(*found, strict=True))

    @staticmethod
    def change(piece: Any, output: Any, log_sum: Any) -> Any:
        """By joining, the output changes with that of a piece as this does while the whole is held fixed."""
        new, level = piece
        return torch.exp(level - log_sum) * (new - output)


class _Blocks(torch.autograd.Function):
    """Block after block, and for the gradient once more: what a block sees is made anew, and never stored."""

    @staticmethod
    def forward(ctx: Any, Q: Any, K: Any, V: Any, core: Core) -> torch.Tensor:
        output = V.new_empty(*Q.shape[:-1], V.shape[-1])
        wide = torch.promote_types(Q.dtype, torch.float32)
        log_sum = Q.new_empty(*Q.shape[:-1], 1, dtype=wide)
        for rows in core.blocks(Q):
            output[..., rows, :], log_sum[..., rows, :] = core.joined(Q, K, V, rows)
        ctx.save_for_backward(Q, K, V, output, log_sum)
        ctx.core = core
        return output

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        _first_derivatives_alone(())
        core = ctx.core._replace(back=True)
        Q, K, V, output, log_sum = ctx.saved_tensors
        wide = torch.promote_types(Q.dtype, torch.float32)
        dQ, dK, dV = (torch.zeros(X.shape, dtype=wide, device=X.device) for X in (Q, K, V))  # fmt: skip
        whole = g.contiguous(), Q, output, finite(log_sum)
        for rows in core.blocks(Q):
            do, q, o, level = (X[..., rows, :] for X in whole)
            for keys in core.pieces(Q, rows):
                k, v = taken(K, keys), taken(V, keys)
                given = do, q, k, v, o, level
                dq, *others = core.each(Core.pull, rows, keys, *given)
                dQ[..., rows, :] += dq
                for total, more in zip((dK, dV), others, strict=True):
                    sizes = [run.stop - run.start for run in keys]
                    for run, part in zip(keys, more.split(sizes, -2), strict=True):
                        total[..., run, :] += part
        return *(X.to(Q.dtype) for X in (dQ, dK, dV)), None


def again(part: Callable[..., Any], *args: Any) -> Any:
    """Of a part nothing is stored for its gradient but its arguments."""
    if not torch.is_grad_enabled() or not torch.backends.cuda.flash_sdp_enabled():
        return part(*args)
    return checkpoint(part, *args, use_reentrant=False)


def join(
    output: torch.Tensor,
    log_sum: torch.Tensor,
    other: torch.Tensor,
    other_log_sum: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """What :func:`merge` says."""
    both = torch.logaddexp(log_sum, other_log_sum)
    share = torch.exp(other_log_sum - finite(both))
    return output.lerp(other, share.to(output.dtype)), both


def finite(log_sum: torch.Tensor) -> torch.Tensor:
    """0 in place of −∞: what is subtracted from −∞ must be finite, lest it give NaN."""
    return log_sum.masked_fill(log_sum == -torch.inf, 0)


def textbook(
    S: torch.Tensor, V: torch.Tensor, seen: Any, grown: Any = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and log-sums of these scores; ``grown`` is what dropout multiplies the weights by."""
    S = S.to(torch.promote_types(S.dtype, torch.float32))
    if seen is not None:
        S = torch.where(seen, S, -torch.inf)
    top = finite(S.detach().amax(-1, keepdim=True)) if S.shape[-1] else 0.0
    A = (S - top).mul_(math.log2(math.e)).exp2_()  # exp takes four times as long
    total = A.sum(-1, keepdim=True)
    pooled = (A if grown is None else A * grown) @ V.to(A.dtype)
    return pooled / total.clamp(min=1), total.log() + top


def taken(X: torch.Tensor, keys: list[slice]) -> torch.Tensor:
    """The rows of these runs."""
    if len(keys) == 1:
        return X[..., keys[0], :]
    return torch.cat([X[..., :0, :], *(X[..., run, :] for run in keys)], -2)


def summed(blocks: torch.Tensor, step: int) -> torch.Tensor:
    """Rows of blocks in their places, where each begins ``step`` after the one before it: those that meet are added."""
    *batch, count, height, width = blocks.shape
    if height == step:
        return blocks.flatten(-3, -2)
    found = blocks.new_zeros(*batch, (count - 1) * step + height, width)
    for i in range(0, height, step):
        rows = slice(i, i + count * step)
        here = found[..., rows, :].unflatten(-2, (count, step))
        here += blocks[..., i : i + step, :]
    return found


def beside(tiles: list[Any], keys: list[slice], q: torch.Tensor) -> Any:
    """What is said of runs of keys, for all of them side by side; None if it is nothing."""
    if all(tile is None or tile is True for tile in tiles):
        return None
    tiles = [X if isinstance(X, torch.Tensor) else q.new_full((1, 1), X, dtype=torch.bool) for X in tiles]  # fmt: skip
    rows = tiles[0].shape[:-1]
    if len(tiles) > 1:  # stacking takes as long as a small product
        rows = torch.broadcast_shapes(*(X.shape[:-1] for X in tiles))
    wide = [X.expand(*rows, run.stop - run.start) for X, run in zip(tiles, keys, strict=True)]  # fmt: skip
    return wide[0] if len(wide) == 1 else torch.cat(wide, -1)


def scores(
    q: torch.Tensor,
    k: torch.Tensor,
    added: torch.Tensor | None,
    scale: float | torch.Tensor,
    softcap: float | None,
) -> torch.Tensor:
    """q·k · scale, capped, plus a bias; single where half precision would overflow."""
    if q.dtype == torch.float16:
        q, k = q.float(), k.float()
    S = q * (scale / (softcap or 1)) @ k.mT
    if softcap is not None and S.device.type == "cpu" and S.itemsize > 2:
        # tanh(x) by e = exp(2x) − 1: as exact, and torch takes half the time.
        e = S.clamp_(max=20).mul_(2).expm1_()  # finite
        S = (e / (e + 2)).mul_(softcap)
    elif softcap is not None:
        S = S.tanh_() * softcap
    return S if added is None else S + added.to(S.dtype)


def weights(S: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
    """Softmax over what is seen; 0 where nothing is."""
    if seen is None:
        return torch.softmax(S, -1)
    return torch.where(seen, torch.softmax(masked(S, seen, sees_nothing(seen)), -1), 0)


def kernel(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    bias: torch.Tensor | None,
    scale: float,
    dropout_p: float,
    causal: bool = False,
) -> torch.Tensor:
    """torch's fused kernel."""
    pool: Callable[..., torch.Tensor] = scaled_dot_product_attention
    if forward_mode():  # of torch's kernels, the textbook's alone has that
        pool = sdpa_kernel(SDPBackend.MATH)(pool)
    if bias is not None:
        bias = bias.expand(*bias.shape[:-1], K.shape[-2])[(None,) * (4 - bias.ndim)]
    output = pool(Q, K, V, bias, dropout_p, is_causal=causal, scale=scale)
    if not (torch.compiler.is_compiling() or transformed()):
        node = output.grad_fn
        if node is not None and node.name().startswith("ScaledDotProduct"):
            node.register_prehook(_first_derivatives_alone)
    return output


def _first_derivatives_alone(gradients: tuple[torch.Tensor, ...]) -> None:
    """Say in words what the kernel would say in its own, later."""
    if torch.is_grad_enabled():  # as it is in a backward pass with create_graph=True
        raise NotImplementedError(
            "attention: torch's fused kernel has no second derivatives. Wrap the call of attention in "
            "`with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):`, whose kernel has them"
        )
