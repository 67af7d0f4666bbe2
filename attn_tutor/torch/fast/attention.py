"""The engine behind attention: torch's fused kernel with the conventions of this package, some queries at a time."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import pad, scaled_dot_product_attention

from attn_tutor._checks import broadcast
from attn_tutor.torch._arrays import forward_mode, look, transformed
from attn_tutor.torch.scoring import default_scale
from attn_tutor.torch.visibility import Visibility, masked, sees_nothing, slices

ROWS = 128  # of a block at least: with fewer, the calls would be most of the work
PAIRS = 2**21  # of queries and keys for which a block may store what is seen or added


def fused_attention(
    Q: torch.Tensor,
    K: torch.Tensor,
    V: torch.Tensor,
    see: Visibility,
    scale: float | torch.Tensor | None = None,
    softcap: float | None = None,
    dropout_p: float = 0.0,
) -> torch.Tensor:
    """The number of ``attend(scaled_dot_score(Q, K, scale) + bias, V, see.dense())``, from the fastest kernel at hand.

    What is hidden must already be finite.
    """
    if scale is None:
        scale = default_scale(Q.shape[-1])
    plain = softcap is not None
    if not isinstance(scale, torch.Tensor):
        plain |= not math.isfinite(scale)
    if isinstance(scale, torch.Tensor) or not scale > 0:
        # Some kernels hide a score as scale · (−inf), so that their own must be above 0.
        Q, scale = Q * scale, 1.0
    core = Core(see, scale, softcap, dropout_p, plain)
    output = core.over_blocks(Q, K, V)
    if see.careful and (see.everything or look(all_finite, output) is False):
        # Kernels lose a NaN, and a score of huge numbers is infinite, and stays so behind −∞; the textbook hides it.
        return core._replace(plain=True).over_blocks(Q, K, V)
    return output


class Core(NamedTuple):
    """Attention of some queries to the keys that they may see."""

    see: Visibility
    scale: float
    softcap: float | None
    dropout_p: float
    plain: bool  # as the textbook has it
    leans: bool = False  # ALiBi stands in the keys

    def over_blocks(
        self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor
    ) -> torch.Tensor:
        """All queries, in blocks for which what is seen is small, or that see few keys."""
        blocks = [slice(0, self.see.n)]
        if self.see.by_blocks and not self.is_causal():
            blocks = slices(self.see.n, self.height(Q, K))
        if len(blocks) == 1:
            return self.block(Q, K, V, blocks[0])
        learnt = any(X.requires_grad for X in self.see.arrays.values())
        if torch.is_autocast_enabled(Q.device.type):
            dtype = torch.get_autocast_dtype(Q.device.type)
            Q, K, V = (X.to(dtype) for X in (Q, K, V))
        core = self._replace(leans=self.may_lean)
        if learnt or self.dropout_p or not torch.backends.cuda.flash_sdp_enabled():
            return torch.cat([core.block(Q, K, V, rows) for rows in blocks], -2)
        output: torch.Tensor = _Blocks.apply(Q, K, V, core, blocks)
        return output

    def height(self, Q: torch.Tensor, K: torch.Tensor) -> int:
        """How many queries to take at once."""
        see, n = self.see, self.see.n
        runs = [] if see.runs is None else [X for run in see.runs.runs for X in run]
        told = [X for name, X in see.arrays.items() if name != "slopes"] + runs
        tall = any(X.shape[-2] > 1 for X in told) or "slopes" in see.arrays
        if not (tall or self.plain):
            return n
        shapes = [X.shape[:-2] for X in told]
        if "slopes" in see.arrays:
            shapes += [see.arrays["slopes"].shape[:-2]]
        if self.plain:
            shapes += [Q.shape[:-2], K.shape[:-2]]
        copies, reach = math.prod(broadcast((), *shapes) or ()), see.m
        wide = max(see.window or 0, ROWS)
        if see.window is not None:
            reach = min(reach, 2 * wide + see.sinks)
        most = max(32, PAIRS // max(1, copies * reach))
        few = see.window is not None or "begin" in see.arrays
        if few and n > 2 * wide:
            return min(wide, max(most, ROWS) if self.may_lean else most)
        if n <= most:
            return n
        return ROWS if self.may_lean else most

    @property
    def may_lean(self) -> bool:
        """Whether ALiBi may stand in the keys: causally, and for so few queries that no digit is lost."""
        see = self.see
        slopes = see.arrays.get("slopes")
        if slopes is None or see.last is None or see.gap or self.plain:
            return False
        return "prefix" not in see.arrays and not slopes.requires_grad

    def is_causal(self) -> bool:
        """Whether it is what torch's own flag says, which is aligned upper left and rules out all else."""
        see = self.see
        if see.last is None or see.window is not None or see.arrays or self.plain:
            return False
        return statically_known_true(see.last == 0)

    def block(
        self, Q: torch.Tensor, K: torch.Tensor, V: torch.Tensor, rows: slice
    ) -> torch.Tensor:
        """Some queries, with the keys that they may see."""
        keys = self.keys(rows)
        return self.pool(Q[..., rows, :], taken(K, keys), taken(V, keys), rows, keys)

    def lean(self, q: Any, k: Any, rows: slice, keys: list[slice]) -> tuple[Any, Any]:
        """−λ(i − j) is λj up to a term a query, which softmax drops: one entry more, counted from the last query."""
        top = rows.stop - 1 + self.see.offset
        j = torch.cat([self.see.count(run.start - top, run.stop - top) for run in keys])
        lambdas = self.see.arrays["slopes"] / self.scale
        column = (lambdas * j[:, None].to(lambdas.dtype)).to(k.dtype)  # (…, h, keys, 1)
        batch = torch.broadcast_shapes(column.shape[:-2], k.shape[:-2])
        k = torch.cat([X.expand(*batch, -1, -1) for X in (k, column)], -1)
        return pad(q, (0, 1), value=1.0), k

    def keys(self, rows: slice) -> list[slice]:
        if self.see.by_blocks:
            return self.see.keys(rows) or [slice(0, 0)]
        return [slice(0, self.see.m)]

    def pool(
        self,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        rows: slice,
        keys: list[slice],
    ) -> torch.Tensor:
        """(…, rows, d), (…, keys, d), (…, keys, d_v) -> (…, rows, d_v)."""
        if self.is_causal():
            return kernel(q, k, v, None, self.scale, self.dropout_p, causal=True)
        see, cuts = self.see, self.cuts(rows, keys)
        if self.leans:
            q, k = self.lean(q, k, rows, keys)
        seen: list[Any] = []
        added: list[Any] = []
        # A loop: in a comprehension the compiler would make constants of lengths.
        for cut in cuts:
            seen += [bool(k.shape[-2]) and see.tile(rows, cut)]
            added += [None if self.leans else see.added(rows, cut)]
        if self.plain:
            S = scores(q, k, beside(added, cuts, q), self.scale, self.softcap)
            A = weights(S, beside(seen, cuts, q))
            return torch.dropout(A, self.dropout_p, self.dropout_p > 0).to(v.dtype) @ v
        numbers, empty, lost = together(seen, added, cuts, q)
        output = kernel(q, k, v, numbers, self.scale, self.dropout_p)
        output = output if empty is None else output.masked_fill(empty, 0)
        return output if lost is None else output.masked_fill(lost, torch.nan)

    def cuts(self, rows: slice, keys: list[slice]) -> list[slice]:
        """The keys cut so that what has to be looked at is small."""
        if self.see.runs is None or not self.see.by_blocks or keys == [slice(0, 0)]:
            return keys
        return [cut for run in keys for cut in self.see.runs.cuts(rows, run)]


def together(
    seen: list[Any], added: list[Any], cuts: list[slice], q: torch.Tensor
) -> tuple[torch.Tensor | None, ...]:
    """What to add to scores, −∞ where a key is hidden; the queries that see nothing; and those that see a NaN there.

    A kernel makes more of numbers than of a mask. An empty row gets 0, so that its softmax is finite.
    """
    bias, mask = beside(added, cuts, q), beside(seen, cuts, q)
    lost = None
    top = None if bias is None else look(torch.amax, bias)
    if top is not None and not top < math.inf:
        bad = ~(bias < torch.inf)
        lost = (bad if mask is None else bad & mask).any(-1, keepdim=True)
    if mask is None:
        return bias, None, lost
    empty = sees_nothing(mask)
    zeros = q.new_zeros(1, 1) if bias is None else bias.to(q.dtype)
    return masked(zeros, mask, empty), empty, lost


class _Blocks(torch.autograd.Function):
    """Block after block, and for the gradient each once more: what a block sees is made anew, and never stored."""

    @staticmethod
    def forward(
        ctx: Any, Q: Any, K: Any, V: Any, core: Core, blocks: list[slice]
    ) -> torch.Tensor:
        ctx.save_for_backward(Q, K, V)
        ctx.core, ctx.blocks = core, blocks
        arrays = Q, K, V, *core.see.arrays.values()
        batch = broadcast(*(X.shape[:-2] for X in arrays)) or ()
        output = V.new_empty(*batch, core.see.n, V.shape[-1])
        for rows in blocks:
            output[..., rows, :] = core.block(Q, K, V, rows)
        return output

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[Any, ...]:
        _first_derivatives_alone(())
        core, arrays = ctx.core, ctx.saved_tensors
        found = [torch.zeros_like(X, dtype=torch.promote_types(X.dtype, torch.float32)) for X in arrays]  # fmt: skip
        for rows in ctx.blocks:
            keys = core.keys(rows)
            Q, K, V = arrays
            parts = Q[..., rows, :], taken(K, keys), taken(V, keys)
            given = [X.detach().requires_grad_() for X in parts]
            with torch.enable_grad():
                output = core.pool(*given, rows, keys)
            more = torch.autograd.grad(output, given, g[..., rows, :], allow_unused=True)  # fmt: skip
            for total, part, runs in zip(
                found, more, ([rows], keys, keys), strict=True
            ):
                start = 0
                for run in runs if part is not None else []:
                    stop = start + run.stop - run.start
                    total[..., run, :] += part[..., start:stop, :]
                    start = stop
        return *(X.to(Y.dtype) for X, Y in zip(found, arrays, strict=True)), None, None


def taken(X: torch.Tensor, keys: list[slice]) -> torch.Tensor:
    """The rows of these runs."""
    if len(keys) == 1:
        return X[..., keys[0], :]
    return torch.cat([X[..., :0, :], *(X[..., run, :] for run in keys)], -2)


def beside(tiles: list[Any], keys: list[slice], q: torch.Tensor) -> Any:
    """What is said of runs of keys, for all of them side by side; None if it is nothing."""
    if all(tile is None or tile is True for tile in tiles):
        return None
    tiles = [X if isinstance(X, torch.Tensor) else q.new_full((1, 1), X, dtype=torch.bool) for X in tiles]  # fmt: skip
    if len(tiles) == 1:
        return tiles[0]
    rows = torch.broadcast_shapes(*(X.shape[:-1] for X in tiles))
    wide = (X.expand(*rows, run.stop - run.start) for X, run in zip(tiles, keys, strict=True))  # fmt: skip
    return torch.cat([*wide], -1)


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
    S = q * scale @ k.mT
    if softcap is not None:
        S = softcap * torch.tanh(S / softcap)
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
    """torch's fused kernel, for any batch axes and widths."""
    n, m, d, d_v = Q.shape[-2], K.shape[-2], Q.shape[-1], V.shape[-1]
    if bias is not None:
        bias = bias.to(Q.dtype).expand(*bias.shape[:-1], m)
    arrays = (X for X in (Q, K, V, bias) if X is not None)
    batch = broadcast(*(X.shape[:-2] for X in arrays))
    assert batch is not None  # the callers have checked
    *outer, inner = batch or (1,)

    def four_axes(X: torch.Tensor) -> torch.Tensor:
        if X.shape[:-2] == batch and 0 < len(batch) < 3:  # the usual case, and quick
            return X if len(batch) == 2 else X[None]
        *_, heads, rows, width = (1, *X.shape)
        X = X.expand(*outer, heads, rows, width)
        # Keys that several heads share are shown to each, not copied.
        return X.reshape(math.prod(outer), heads, rows, width).expand(-1, inner, -1, -1)

    # Zeros change nothing, and the fast kernels want one width.
    if d < d_v:
        Q, K = (pad(X, (0, d_v - d)) for X in (Q, K))
    elif d_v < d:
        V = pad(V, (0, d - d_v))

    if bias is not None:
        # Axes of length 1 stay.
        if len(batch) > 2 and math.prod(bias.shape[:-3]) > 1:
            bias = bias.expand(*outer, *bias.shape[-3:])
        *_, heads, rows, _ = (1, *bias.shape)
        bias = bias.reshape(math.prod(bias.shape[:-3]), heads, rows, m)
    pool: Callable[..., torch.Tensor] = scaled_dot_product_attention
    if forward_mode():  # of torch's kernels, the textbook's alone has that
        pool = sdpa_kernel(SDPBackend.MATH)(pool)
    output = pool(
        four_axes(Q),
        four_axes(K),
        four_axes(V),
        bias,
        dropout_p,
        is_causal=causal,
        scale=scale,
    )
    if not (torch.compiler.is_compiling() or transformed()):
        node = output.grad_fn
        if node is not None and node.name().startswith("ScaledDotProduct"):
            node.register_prehook(_first_derivatives_alone)
    if d_v < d:
        output = output[..., :d_v]
    return output.reshape(*batch, n, d_v)


def all_finite(X: torch.Tensor) -> torch.Tensor:
    return X.isfinite().all()


def _first_derivatives_alone(gradients: tuple[torch.Tensor, ...]) -> None:
    """Say in words what the kernel would say in its own, later."""
    if torch.is_grad_enabled():  # as it is in a backward pass with create_graph=True
        raise NotImplementedError(
            "attention: torch's fused kernel has no second derivatives. Wrap the call of attention in "
            "`with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):`, whose kernel has them"
        )
