"""Require the tests to catch wrong programs.

Each mutant is one wrong change, the kind that people make. It is made in a copy of the package, and the tests of the
package must then fail. A survivor is a test that is missing.

python tools/mutants.py              all of them
python tools/mutants.py causal       those whose name or file holds the word
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import monotonic
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
# Those that compute, cheapest first; the others look at sources, pages and wheels.
SUBJECTS = (
    "golden check textbook parity tiled framework half_precision gradients properties errors"
    " fast_paths additive bench"
)
TESTS = [f"tests/test_{subject}.py" for subject in SUBJECTS.split()]


class Mutant(NamedTuple):
    name: str
    file: str
    old: str
    new: str


# A star in the file makes one mutant in each half.
# ruff: noqa: E501 — a mutant is easier to read on one line
LISTED = [
    # scores
    ("no √d", "*/scoring.py", "return d**-0.5 if d else 1.0", "return 1.0"),
    ("1/d in place of 1/√d", "*/scoring.py", "return d**-0.5 if d", "return 1 / d if d"),
    ("scale on both factors", "*/scoring.py", "return Q * scale @ K.mT", "return Q * scale @ (K * scale).mT"),
    ("a scale that is given is ignored", "numpy/scoring.py", "if scale is None else float(scale)", "if True else scale"),
    ("a scale that is given is ignored", "torch/scoring.py", "if scale is None else scale", "if True else scale"),
    ("Gaussian without ½", "*/scoring.py", ".sum(-1) / 2", ".sum(-1)"),
    ("bandwidth not squared", "numpy/scoring.py", "return -((difference / float(bandwidth)) ** 2).sum(-1) / 2", "return -(difference**2).sum(-1) / 2 / bandwidth"),
    ("bandwidth not squared", "torch/scoring.py", "return -((difference / bandwidth) ** 2).sum(-1) / 2", "return -(difference**2).sum(-1) / 2 / bandwidth"),
    ("additive score without tanh", "numpy/scoring.py", "hidden = np.tanh(", "hidden = ("),
    ("additive score without tanh", "torch/scoring.py", "hidden = torch.tanh(", "hidden = ("),
    ("distance by a norm expanded, which cancels", "numpy/scoring.py", "return -((difference / float(bandwidth)) ** 2).sum(-1) / 2", "return (Q @ K.mT - (Q**2).sum(-1)[..., None] / 2 - (K**2).sum(-1)[..., None, :] / 2) / bandwidth**2"),
    # kernels
    ("boxcar without its edge", "*/kernels.py", "_distance(Q, K, bandwidth) <= 1)", "_distance(Q, K, bandwidth) < 1)"),
    ("triangular in place of Epanechnikov", "*/kernels.py", "0.75 * (1 - _distance(Q, K, bandwidth) ** 2)", "0.75 * (1 - _distance(Q, K, bandwidth))"),
    ("Epanechnikov negative outside", "*/kernels.py", "** 2).clip(0)", "** 2)"),
    ("triangle negative outside", "*/kernels.py", "(1 - _distance(Q, K, bandwidth)).clip(0)", "1 - _distance(Q, K, bandwidth)"),
    ("distance without its root", "numpy/kernels.py", "np.linalg.norm(difference, axis=-1)", "(difference**2).sum(-1)"),
    ("distance whose gradient at 0 is NaN", "torch/kernels.py", "torch.linalg.vector_norm(difference, dim=-1)", "(difference**2).sum(-1).sqrt()"),
    ("sum of absolute differences", "numpy/kernels.py", "axis=-1)", "axis=-1, ord=1)"),
    ("kernel not normalised", "*/attention.py", "return normalize(kernel(Q, K, bandwidth)) @ V", "return kernel(Q, K, bandwidth) @ V"),
    ("bandwidth not passed on to the kernel", "*/attention.py", "normalize(kernel(Q, K, bandwidth))", "normalize(kernel(Q, K))"),
    # masks
    ("upper-left causal", "numpy/masks.py", "np.tri(n, m, m - n, dtype=bool)", "np.tri(n, m, dtype=bool)"),
    ("upper-left causal", "torch/masks.py", ".tril(m - n)", ".tril()"),
    ("causal without the query's own position", "numpy/masks.py", "np.tri(n, m, m - n, dtype=bool)", "np.tri(n, m, m - n - 1, dtype=bool)"),
    ("causal without the query's own position", "torch/masks.py", ".tril(m - n)", ".tril(m - n - 1)"),
    ("causal upside down", "torch/masks.py", ".tril(m - n)", ".triu(m - n)"),
    ("padding off by one", "*/masks.py", ") < lens[..., None]", ") <= lens[..., None]"),
    ("inverted padding", "*/masks.py", ") < lens[..., None]", ") >= lens[..., None]"),
    ("lengths of queries as lengths of sequences", "*/masks.py", "lens = valid_lens[:, None] if valid_lens.ndim == 1 else valid_lens", "lens = valid_lens[:, None] if valid_lens.ndim == 1 else valid_lens[:, :1]"),
    ("length beyond m accepted", "*/masks.py", "(valid_lens > m)", "(valid_lens > m + 1)"),
    ("mask lost when causal", "numpy/masks.py", "(mask & causal_mask(n, m), False) if causal", "(causal_mask(n, m), False) if causal"),
    ("mask lost when causal", "torch/masks.py", "return mask & causal_mask(n, m, device=mask.device) if causal", "return causal_mask(n, m, device=mask.device) if causal"),
    ("causality lost when masked", "*/multi_head.py", "    if causal:\n        mask = mask &", "    if False:\n        mask = mask &"),
    ("mask of the scores not checked against the values", "*/masks.py", "for X in (Q, *keyed)))\n    require_mask", "for X in (Q, keyed[0])))\n    require_mask"),
    ("0 · NaN leaks from a hidden key", "numpy/masks.py", "np.where(kept[..., None], X, 0) for X in keyed", "X for X in keyed"),
    ("0 · NaN leaks from a hidden key", "torch/masks.py", "*(torch.where(kept[..., None], X, 0) for X in keyed)", "*keyed"),
    ("hidden but finite keys are not cleared", "numpy/masks.py", "if mask is None else mask.any(-2)", "if True else mask.any(-2)"),
    ("only the queries looked at for NaN", "numpy/masks.py", "for X in (Q, *keyed)):", "for X in (Q,)):"),
    ("the keys not looked at for NaN", "numpy/masks.py", "for X in (Q, *keyed)):", "for X in (Q, keyed[-1])):"),
    ("hidden but finite keys are not cleared", "torch/masks.py", "        kept = kept & mask.any(-2)", "        kept = kept & True"),
    ("NaN hidden from those who may see it", "*/masks.py", "return output if spoiled is None else", "return output if True else"),
    ("NaN of a query that sees nothing", "numpy/masks.py", " | ~asks & _sees(np.ones_like(finite), n, mask)" , " | ~asks"),
    ("NaN of a query that sees nothing", "torch/masks.py", " | ~asks & _sees(torch.ones_like(kept), n, mask)" , " | ~asks"),
    ("queries that are not finite stay", "numpy/masks.py", "np.where(asks, Q, 0)", "Q"),
    ("queries that are not finite stay", "torch/masks.py", "torch.where(asks, Q, 0)", "Q"),
    ("what causal queries see, off by one", "*/masks.py", "[..., keys.shape[-1] :, None]", "[..., keys.shape[-1] - 1 : -1, None]"),
    # softmax
    ("no subtraction of the maximum", "numpy/softmax.py", "np.exp(x - x.max(axis, keepdims=True, initial=-np.inf))", "np.exp(x)"),
    ("no subtraction of the maximum", "torch/softmax.py", "torch.softmax(x, axis)", "x.exp() / x.exp().sum(axis, keepdim=True)"),
    ("softmax on the wrong axis", "numpy/softmax.py", "return np.where(mask, softmax(hidden), 0)", "return np.where(mask, softmax(hidden, 0), 0)"),
    ("softmax on the wrong axis", "torch/softmax.py", "return torch.where(mask, softmax(hidden), 0)", "return torch.where(mask, softmax(hidden, 0), 0)"),
    ("axis ignored", "torch/softmax.py", "torch.softmax(x, axis)", "torch.softmax(x, -1)"),
    ("axis ignored in the sum", "numpy/softmax.py", "total = e.sum(axis, ", "total = e.sum(-1, "),
    ("inverted mask", "numpy/softmax.py", "np.where(mask, scores, -np.inf)", "np.where(mask, -np.inf, scores)"),
    ("inverted mask", "torch/softmax.py", "torch.where(mask, scores, -torch.inf)", "torch.where(mask, -torch.inf, scores)"),
    ("masked weight zeroed but not renormalised", "numpy/softmax.py", "softmax(hidden)", "softmax(scores)"),
    ("masked weight zeroed but not renormalised", "torch/softmax.py", "softmax(hidden)", "softmax(scores)"),
    ("−1e4 in place of −∞", "numpy/softmax.py", "np.where(mask, scores, -np.inf)", "np.where(mask, scores, -1e4)"),
    ("−1e4 in place of −∞", "torch/softmax.py", "torch.where(mask, scores, -torch.inf)", "torch.where(mask, scores, -1e4)"),
    ("uniform weights for an empty row", "*/softmax.py", "where(mask, softmax(hidden), 0)", "where(mask | empty, softmax(hidden), 0)"),
    ("NaN for an empty row", "*/softmax.py", "where(empty, 0, ", "where(False & empty, 0, "),
    ("0/0 in an empty window", "*/softmax.py", "np.where(total == 0, 1, total)", "total"),
    # attention
    ("scores that are not finite spoil attend", "*/attention.py", "shield(mask, False, scores[..., :0], V)", "shield(mask, False, scores, V)"),
    ("mask lost in attend", "*/attention.py", "masked_softmax(scores, mask) @ V", "masked_softmax(scores) @ V"),
    ("scale lost in attention", "numpy/attention.py", "tiled_attention(Q, K, V, mask, causal, scale)", "tiled_attention(Q, K, V, mask, causal)"),
    ("scale used twice", "torch/attention.py", "fused_attention(Q, K, V, mask, causal, scale, dropout_p)", "fused_attention(Q * (1 if scale is None else scale), K, V, mask, causal, scale, dropout_p)"),
    ("bilinear attention scaled by 1/√d", "*/attention.py", "causal=causal, scale=1.0", "causal=causal, scale=None"),
    ("bilinear without its causal flag", "*/attention.py", "Q @ M, K, V, mask, causal=causal", "Q @ M, K, V, mask, causal=False"),
    ("additive attention forgets causality", "numpy/attention.py", "w_v, V, mask, causal)", "w_v, V, mask, False)"),
    ("additive attention forgets causality", "torch/attention.py", "w_v, V, mask, causal, dropout_p)", "w_v, V, mask, False, dropout_p)"),
    ("Gaussian attention without centring", "numpy/attention.py", "(Q - centre) / float(bandwidth), (K - centre) * seen", "Q / float(bandwidth), K * seen"),
    ("Gaussian attention without centring", "torch/attention.py", "(Q - centre) / bandwidth, (K - centre) * seen", "Q / bandwidth, K * seen"),
    ("centred on the mean, which the future moves", "numpy/attention.py", "(K * (seen & (seen.cumsum(-2) == 1))).sum(-2, keepdims=True)", "K.mean(-2, keepdims=True)"),
    ("centred on the mean, which the future moves", "torch/attention.py", "(K * (seen & (seen.cumsum(-2) == 1))).sum(-2, keepdim=True)", "K.mean(-2, keepdim=True)"),
    ("only keys centred", "*/attention.py", "Q, K = (Q - centre)", "Q, K = Q"),
    ("squared norm without ½", "*/attention.py", "[K, -norms / 2]", "[K, -norms]"),
    ("Gaussian attention in single precision", "numpy/attention.py", "wide = np.result_type(Q, K, np.float64)", "wide = np.result_type(Q, K, np.float32)"),
    ("Gaussian attention in half precision", "torch/attention.py", "wide = torch.promote_types(K.dtype, torch.float32)", "wide = K.dtype"),
    ("autocast rounds Gaussian scores", "torch/attention.py", "torch.autocast(Q.device.type, enabled=False)", "torch.autocast(Q.device.type, enabled=torch.is_autocast_enabled(Q.device.type))"),
    ("additive attention does not drop", "torch/attention.py", "w_v, V, mask, causal, dropout_p)", "w_v, V, mask, causal)"),
    # engines
    ("tile edge off by one", "numpy/tiled.py", "min(j + KEYS, m, last + n)", "min(j + KEYS - 1, m, last + n)"),
    ("tiles of keys overlap", "numpy/tiled.py", "min(j + KEYS, m, last + n)", "min(j + KEYS + 1, m, last + n)"),
    ("tile of queries off by one", "numpy/tiled.py", "min(i + step, n)", "min(i + step - 1, n)"),
    ("running maximum not applied to the pooled sum", "numpy/tiled.py", "pooled *= shrink", "pass"),
    ("running maximum not applied to the total", "numpy/tiled.py", "total *= shrink", "pass"),
    ("maximum of the tile alone", "numpy/tiled.py", "np.maximum(top, scores.max(-1, keepdims=True, initial=-np.inf), out=top)", "top[...] = scores.max(-1, keepdims=True, initial=-1e300)"),
    ("diagonal of a tile off by one", "numpy/tiled.py", "last + first - j, dtype=bool", "last + first - j + 1, dtype=bool"),
    ("a query too few sees a tile", "numpy/tiled.py", "max(0, j - last)", "max(0, j - last + 1)"),
    ("a query too few on the diagonal is masked", "numpy/tiled.py", "keys.stop - 1 - last - first", "keys.stop - 2 - last - first"),
    ("too few tiles seen", "numpy/tiled.py", "range(0, min(m, last + n), KEYS)", "range(0, min(m, last), KEYS)"),
    ("large scores taken for harmless", "numpy/tiled.py", '"float32": 44.0', '"float32": 400.0'),
    ("large keys taken for harmless", "numpy/tiled.py", "_longest(Q) * _longest(K)", "_longest(Q)"),
    ("hidden scores not hidden from the maximum", "numpy/tiled.py", "np.where(seen, some, -np.inf)", "some"),
    ("hidden scores not hidden from the sum", "numpy/tiled.py", "weights[..., : seen.shape[-2], :] *= seen", "pass"),
    ("empty row in a small problem", "numpy/tiled.py", "return weights @ V / np.where(total == 0, 1, total)", "return weights @ V / total"),
    ("BLAS left with one thread", "_parallel.py", "_limit.restore_original_limits()", "pass"),
    ("an error in a thread is lost", "_parallel.py", "other.result()", "other.done()"),
    ("exp(a) in place of exp(2a)", "*/additive.py", "return np.exp(2 * x), np.exp(2 * y), True", "return np.exp(x), np.exp(y), True"),
    ("keys keep what queries were shifted by", "*/additive.py", "(b - shift)", "b"),
    ("exponentials not cut", "numpy/additive.py", "(a + shift).clip(-reach, reach)", "(a + shift)"),
    ("cut though wide on both sides", "*/additive.py", "if not (a_fits | b_fits).all():", "if False:"),
    ("cut where tanh is not flat", "*/additive.py", "window(X, reach - flat)", "window(X, reach)"),
    ("shift of the queries with the sign of the keys'", "numpy/additive.py", "np.where(b_fits, shift_b, -shift_a)", "np.where(b_fits, shift_b, shift_a)"),
    ("shift of the queries with the sign of the keys'", "torch/additive.py", "torch.where(b_fits, shift_b, -shift_a)", "torch.where(b_fits, shift_b, shift_a)"),
    ("causal keys aligned upper left", "*/additive.py", "rows.stop + m - n", "rows.stop"),
    ("first tile of keys alone", "numpy/additive.py", "range(0, m, step)", "range(0, min(m, step), step)"),
    ("first tile of keys alone", "torch/additive.py", "range(0, m, KEYS)", "range(0, min(m, KEYS), KEYS)"),
    ("last visible key left out", "*/additive.py", "some[-1] + 1", "some[-1]"),
    ("derivative of 1/(1 + e^2x) as r", "torch/additive.py", "r.addcmul_(r, r, value=-1)", "pass"),
    ("derivative of tanh as 1 − T²/2", "torch/additive.py", "r.square_().neg_().add_(0.25)", "r.square_().neg_().add_(0.5)"),
    ("gradient of w_v with the wrong sign", "torch/additive.py", "-2 * dw, dV", "2 * dw, dV"),
    ("gradient of softmax without its row sum", "torch/additive.py", "dA.sub_(along[group, rows]).mul_(A)", "dA.mul_(A)"),
    ("gradient of the keys of the last block alone", "torch/additive.py", "dV[group, keys] += dropped.mT @ gr", "dV[group, keys] = dropped.mT @ gr"),
    ("gradient of dropped weights", "torch/additive.py", "dropped, dA = A * grown, dA * grown", "dropped, dA = A * grown, dA"),
    ("a second derivative of zero", "torch/additive.py", "        raise NotImplementedError(", "        return NotImplementedError("),
    ("sums in float16", "numpy/tiled.py", "np.result_type(dtype, np.float32)", "dtype"),
    ("upper-left flag of the kernel", "torch/fused.py", "if causal and n != m:", "if False:"),
    ("empty rows attend to everything", "torch/fused.py", "output if empty is None else output.masked_fill(empty, 0)", "output"),
    ("scale of the widened queries", "torch/fused.py", "scale=scale", "scale=None"),
    ("a scale of any sign left to the kernel", "torch/fused.py", "Q, scale = Q * scale, 1.0", "pass"),
    ("zeros of the widening kept", "torch/fused.py", "output[..., :d_v].reshape(*batch, n, d_v)", "output.reshape(*batch, n, -1)"),
    ("sum in half precision", "numpy/softmax.py", "keepdims=True, dtype=np.result_type(e, np.float32)", "keepdims=True"),
    ("an empty window for NaN", "*/softmax.py", "return np.where(total == 0, 0, shares)", "return np.where(total > 0, shares, 0)"),
    ("a learnt scale gets no gradient", "torch/scoring.py", "if scale is None else scale", "if scale is None else float(scale)"),
    ("dropout lost", "torch/fused.py", "        dropout_p,\n        is_causal", "        0.0,\n        is_causal"),
    # decoding
    ("new tokens written over the first", "*/cache.py", "room[..., start:stop, :] = X", "room[..., : stop - start, :] = X"),
    ("room grown by what is needed alone", "*/cache.py", "length = max(stop, 2 * length)", "length = stop"),
    ("old tokens lost when the room grows", "*/cache.py", "        wider[..., : self._len, :] = room[..., : self._len, :]\n", ""),
    ("room beyond the most that may be used", "*/cache.py", "length = min(length, self.max_len)", "pass"),
    ("one token too many", "*/cache.py", "stop > self.max_len", "stop > self.max_len + 1"),
    ("empty room returned as tokens", "*/cache.py", "(room[..., :stop, :] for room in rooms)", "rooms"),
    ("other dtypes cast without a word", "*/cache.py", "if _kind(X) != _kind(room):", "if X.shape[-1] != room.shape[-1]:"),
    ("gradient lost without a word", "torch/cache.py", "if torch.is_grad_enabled() and", "if False and"),
    # self- and cross-attention
    ("W_q and W_k swapped", "numpy/self_attention.py", "queries @ W_q, keys @ W_k, keys @ W_v, mask, causal", "queries @ W_k, keys @ W_q, keys @ W_v, mask, causal"),
    ("values not projected by their own matrix", "numpy/self_attention.py", "keys @ W_v, mask, causal=causal", "keys @ W_k, mask, causal=causal"),
    ("causality lost", "numpy/self_attention.py", "keys @ W_v, mask, causal=causal", "keys @ W_v, mask, causal=False"),
    ("mask lost in cross-attention", "numpy/self_attention.py", "keys @ W_v, mask), spoiled", "keys @ W_v), spoiled"),
    ("tokens projected before they are cleared", "*/self_attention.py", "queries, keys, spoiled = shield(mask, causal, X, X)", "queries, keys, spoiled = X, X, None"),
    # heads
    ("reshape in place of transpose in split_heads", "*/multi_head.py", "X.reshape(*batch, n, n_heads, d // n_heads).swapaxes(-3, -2)", "X.reshape(*batch, n_heads, n, d // n_heads)"),
    ("reshape in place of transpose in merge_heads", "*/multi_head.py", "X.swapaxes(-3, -2).reshape(*batch, n, h * d_h)", "X.reshape(*batch, n, h * d_h)"),
    ("√d of the model width", "*/multi_head.py", "        mask,\n        causal=causal,\n", "        mask,\n        causal=causal,\n        scale=W_q.shape[-1] ** -0.5,\n"),
    ("√d of the model width in the weights", "*/multi_head.py", "attention_weights(queries, keys, mask, causal=causal)", "attention_weights(queries, keys, mask, causal=causal, scale=W_q.shape[-1] ** -0.5)"),
    ("shared heads tiled instead of repeated", "numpy/multi_head.py", "np.repeat(X, n_heads // X.shape[-3], axis=-3)", "np.concatenate([X] * (n_heads // X.shape[-3]), axis=-3)"),
    ("shared heads tiled instead of repeated", "torch/multi_head.py", "torch.repeat_interleave(X, n_heads // X.shape[-3], dim=-3)", "torch.cat([X] * (n_heads // X.shape[-3]), dim=-3)"),
    ("biases swapped", "*/multi_head.py", "b_q, b_k, b_v, b_o = _biases", "b_k, b_q, b_v, b_o = _biases"),
    ("bias of the values lost", "*/multi_head.py", "V @ W_v + b_v", "V @ W_v"),
    ("bias of the output lost", "*/multi_head.py", "merge_heads(heads) @ W_o + b_o", "merge_heads(heads) @ W_o"),
    ("bias of the queries lost in the weights", "*/multi_head.py", "    queries = split_heads(Q @ W_q + b_q, n_heads)", "    queries = split_heads(Q @ W_q, n_heads)"),
    ("values projected from the keys", "*/multi_head.py", "_share(split_heads(V @ W_v + b_v", "_share(split_heads((V * 0 + 1) @ W_v + b_v"),
    ("a key hidden in one head hidden in all", "*/multi_head.py", "mask.any(-3)", "mask.all(-3)"),
    ("NaN of one head in all", "*/multi_head.py", "*_, spoiled = shield(mask, causal, Q[..., None, :, :], K[..., None, :, :])", "*_, spoiled = shield(over_heads, causal, Q, K)\n    spoiled = spoiled if spoiled is None else spoiled[..., None, :, :]"),
    ("dropout lost", "torch/multi_head.py", "        dropout_p=dropout_p,\n", ""),
    # positions
    ("exponent off by two", "*/positional.py", "arange(0, d, 2", "arange(2, d + 2, 2"),
    ("exponent i in place of 2i", "numpy/positional.py", "-np.arange(0, d, 2) / d", "-np.arange(0, d, 2) / 2 / d"),
    ("sine and cosine swapped", "numpy/positional.py", "encoding[:, 0::2] = np.sin(angles)", "encoding[:, 0::2] = np.cos(angles)"),
    ("sines first, cosines after", "torch/positional.py", "encoding[:, 0::2] = torch.sin(angles)\n    encoding[:, 1::2] =", "encoding[:, : (d + 1) // 2] = torch.sin(angles)\n    encoding[:, (d + 1) // 2 :] ="),
    ("positions from 1", "numpy/positional.py", "angles = np.arange(n)[:, None]", "angles = np.arange(1, n + 1)[:, None]"),
    ("positions from 1", "torch/positional.py", "angles = torch.arange(n, device=exact)[:, None]", "angles = torch.arange(1, n + 1, device=exact)[:, None]"),
    ("rotary positions from 1", "numpy/positional.py", "return np.arange(X.shape[-2], dtype=np.float64)", "return np.arange(1.0, X.shape[-2] + 1)"),
    ("angles in float32", "numpy/positional.py", "np.arange(0, d, 2) / d", "np.arange(0, d, 2, dtype=np.float32) / np.float32(d)"),
    ("angles in float32", "torch/positional.py", "device=device, dtype=torch.float64) / d", "device=device, dtype=torch.float32) / d"),
    ("base ignored", "*/positional.py", "return float(base) **", "return 10000.0 **"),
    ("rotary turned the wrong way", "*/positional.py", "[even * cos - odd * sin, even * sin + odd * cos]", "[even * cos + odd * sin, odd * cos - even * sin]"),
    ("halves instead of pairs", "*/positional.py", "even, odd = X[..., 0::2], X[..., 1::2]", "even, odd = X[..., : d // 2], X[..., d // 2 :]"),
    ("positions given to rotary ignored", "*/positional.py", "positions = _positions(positions, X)", "positions = _positions(None, X)"),
    ("ALiBi slope one head late", "*/positional.py", "(h + 1) / power", "h / power"),
    ("ALiBi slopes of heads that are no power of 2 cut off", "*/positional.py", "alibi_slopes(2 * power)[0::2]", "alibi_slopes(2 * power)[1::2]"),
    ("ALiBi aligned upper left", "numpy/positional.py", "np.arange(m - n, m)[:, None]", "np.arange(n)[:, None]"),
    ("ALiBi aligned upper left", "torch/positional.py", "torch.arange(m - n, m, device=exact)[:, None]", "torch.arange(n, device=exact)[:, None]"),
    ("ALiBi rewards distance", "*/positional.py", "* -distance", "* distance"),
    ("ALiBi counts in half precision", "torch/positional.py", "(slopes[:, None, None] * -distance).to(", "(slopes.to(dtype or torch.float32)[:, None, None] * -distance.to(dtype or torch.float32)).to("),
    # gradients
    ("no row sum in the gradient of softmax", "numpy/gradients.py", "weights * (g - (g * weights).sum(-1, keepdims=True))", "weights * g"),
    ("batch sum missing", "numpy/gradients.py", "return gradient.sum(repeated, keepdims=True)", "return gradient"),
    ("sum over new batch axes missing", "numpy/gradients.py", "gradient.sum(tuple(range(gradient.ndim - len(shape))))", "gradient"),
    ("scale missing in dQ", "numpy/gradients.py", "scale * dS @ K", "dS @ K"),
    ("scale missing in dK", "numpy/gradients.py", "scale * dS.mT @ Q", "dS.mT @ Q"),
    ("gradient of a query that sees NaN", "numpy/gradients.py", "        g = np.where(spoiled, 0, g)", "        pass"),
    ("causal gradient without its mask", "numpy/gradients.py", "    if causal:\n        mask = causal_mask", "    if False:\n        mask = causal_mask"),
    ("derivative of tanh as 1 − T", "numpy/gradients.py", "(1 - T**2)", "(1 - T)"),
    ("gradient of w_v as that of the hidden layer", "numpy/gradients.py", "(g[..., None] * T)", "(g[..., None] * (1 - T**2))"),
    # modules
    ("from_torch without transpose", "torch/modules.py", 'copy_(W.mT)\n            if bias', 'copy_(W.reshape(W.mT.shape))\n            if bias'),
    ("to_torch without transpose", "torch/modules.py", 'W.copy_(getattr(self, f"W_{name}").mT)', 'W.copy_(getattr(self, f"W_{name}").reshape(W.shape))'),
    ("from_torch without biases", "torch/modules.py", "            if bias:\n", "            if False:\n"),
    ("from_torch with biases out of order", "torch/modules.py", '"qkvo",\n                    (*layer.in_proj_bias', '"kqvo",\n                    (*layer.in_proj_bias'),
    ("dropout in eval", "torch/modules.py", "dropout_p=self.dropout if self.training else 0.0", "dropout_p=self.dropout"),
    ("values are the queries unless given", "torch/modules.py", "V = K if V is None else V", "V = Q if V is None else V"),
    ("causal flag of the module lost", "torch/modules.py", "            causal=self.causal,\n            biases", "            biases"),
    ("table of positions not grown", "torch/modules.py", "if len(table) < n or (", "if ("),
    ("table of positions in the wrong dtype", "torch/modules.py", " or (table.dtype, table.device) != (X.dtype, X.device):", ":"),
    ("mask lost in a module", "torch/modules.py", "return bilinear_attention(Q, K, V, self.M, mask)", "return bilinear_attention(Q, K, V, self.M)"),
    # arguments
    ("float masks accepted", "_shapes.py", 'if dtype != "bool":', "if False:"),
    ("masks that make queries out of nothing", "_shapes.py", "if not core_fits or ", "if "),
    ("whole numbers may be True", "_shapes.py", "not isinstance(value, bool) and ", ""),
    ("bandwidth 0 accepted", "_shapes.py", "bool(0 < value < math.inf)", "bool(0 <= value < math.inf)"),
    ("axes that differ accepted", "_shapes.py", "if size != expected:", "if False:"),
    ("batch axes by equality, not by broadcasting", "_shapes.py", "long = [size for size in sizes if size != 1]", "long = list(sizes)"),
    ("integers stay integers", "numpy/_arrays.py", 'x if x.dtype.kind == "f" else x.astype(np.float64)', "x"),
    ("dtypes mixed in torch", "torch/_arrays.py", "if x.dtype != head.dtype and", "if False and"),
    # the checkers of exercises
    ("a mistake named after one case", "check/exercise.py", "if all(self._makes(mistake, *each) for each in telling)", "if any(self._makes(mistake, *each) for each in telling)"),
    ("half precision tells where other cases do", "check/exercise.py", "telling = wider if any(", "telling = tried if any("),
    ("part of it where the reader is right", "check/exercise.py", "if all(map(any, pairs)) and sum", "if sum"),
    ("a mistake that fails agrees with every answer", "check/exercise.py", "return outcome.error is not None", "return True"),
    ("changed input unseen", "check/answers.py", "return np.array_equal(before, after, equal_nan=nan)", "return True"),
    ("dtype unseen", "check/answers.py", "and x.dtype != given:", "and False:"),
    ("the cases themselves handed out", "check/calls.py", "if tensors else x.copy()", "if tensors else x"),
    ("torch functions called with arrays", "check/calls.py", "return not first, other", "return first, outcome"),
    ("imported functions graded", "check/__main__.py", 'and getattr(fn, "__module__", None) == "solutions"', "and callable(fn)"),
    ("exit status 0 whatever is wrong", "check/__main__.py", "return 0 if right == len(found) else 1", "return 0"),
    # the benchmark
    ("limit as the smallest of its parts", "bench/report.py", "return max(times)", "return min(times)"),
    ("first peer in place of the fastest", "bench/report.py", 'return min(times) if role == "peer" else times[0]', "return times[0]"),
    ("memory of the whole process", "bench/measure.py", '(kibibytes("VmHWM") - before)', 'kibibytes("VmHWM")'),
    ("last try in place of the steadiest", "bench/measure.py", "min(tries, key=itemgetter(0))[1]", "tries[-1][1]"),
    ("missing peers unsaid", "bench/command.py", "for name in PEERS if (reason", "for name in () if (reason"),
]  # fmt: skip  # one mutant a line


def mutants(package: Path) -> list[Mutant]:
    """The list with its stars filled in, each change checked to be possible."""
    found = []
    for name, file, old, new in LISTED:
        for half in ("numpy", "torch") if "*" in file else ("",):
            if half == "torch":
                old, new = old.replace("np.", "torch."), new.replace("np.", "torch.")
            mutant = Mutant(name, file.replace("*", half), old, new)
            count = (package / mutant.file).read_text(encoding="utf-8").count(old)
            if count != 1:
                sys.exit(
                    f"{mutant.file}, {name}: this must stand there once, not {count} times:\n{old}"
                )
            found.append(mutant)
    return found


def run(pristine: Path, mutant: Mutant | None) -> tuple[str, str]:
    """Test a copy with one change; what became of it, and the test that saw it."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder).resolve()
        shutil.copytree(pristine, copy, dirs_exist_ok=True)
        if mutant:
            path = copy / "attn_tutor" / mutant.file
            text = path.read_text(encoding="utf-8")
            path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        # The copy goes before what is installed; CI makes random tests repeat themselves.
        settings = os.environ | {
            "PYTHONPATH": str(copy),
            "PYTHONDONTWRITEBYTECODE": "1",
            "CI": "1",
        }

        def python(*args: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-X", "utf8", *args]
            return subprocess.run(
                command, cwd=copy, env=settings, capture_output=True, encoding="utf-8"
            )

        tested = python(
            "-c", "import attn_tutor; print(attn_tutor.__file__)"
        ).stdout.strip()
        if not Path(tested).resolve().is_relative_to(copy):
            sys.exit(f"the copy in {copy} is not what would be tested, but {tested}")
        done = python(
            "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *TESTS
        )
    if done.returncode == 0:
        return "survived", ""
    failed = re.search(r"^FAILED (\S+)", done.stdout, re.MULTILINE)
    if (
        done.returncode != 1 or not failed
    ):  # an error of collection, say: the change makes no program
        return "broken", done.stdout[-2000:] + done.stderr[-2000:]
    return "killed", failed[1].removeprefix("tests/")


def main() -> int:
    word, started, killed = " ".join(sys.argv[1:]), monotonic(), 0
    with (
        tempfile.TemporaryDirectory() as folder,
        ThreadPoolExecutor(max_workers=2) as pool,
    ):
        pristine = Path(folder)  # so that work on the sources may go on meanwhile
        for room in ("attn_tutor", "tests", "tools"):
            shutil.copytree(
                ROOT / room,
                pristine / room,
                ignore=shutil.ignore_patterns("__pycache__"),
            )
        shutil.copy(ROOT / "pyproject.toml", pristine)
        chosen = [
            m
            for m in mutants(pristine / "attn_tutor")
            if word in m.name or word in m.file
        ]
        if not chosen:
            sys.exit(f"no mutant has {word!r} in its name or file")
        state, report = run(pristine, None)
        if state != "survived":
            sys.exit(f"the tests must pass before mutants mean anything:\n{report}")
        results = pool.map(partial(run, pristine), chosen)
        for i, (mutant, (state, report)) in enumerate(
            zip(chosen, results, strict=True), 1
        ):
            killed += state == "killed"
            print(
                f"{i:3} of {len(chosen)}  {state:8}  {mutant.file}: {mutant.name}  {report}",
                flush=True,
            )
    print(f"{killed} of {len(chosen)} killed in {monotonic() - started:.0f} s")
    return 0 if killed == len(chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
