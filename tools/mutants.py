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
    "golden check decoding numbers seq2seq training textbook parity tiled tiled_torch framework half_precision gradients properties errors"
    " fast_paths fused rows additive additive_triton complexity bench"
    " transformer encoder_decoder"
)
TESTS = [
    next((ROOT / "tests").glob(f"*/test_{subject}.py")).relative_to(ROOT).as_posix()
    for subject in SUBJECTS.split()
]


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
    ("mask of the scores not checked against the values", "numpy/masks.py", "for X in (Q, *keyed)))\n    require_mask", "for X in (Q, keyed[0])))\n    require_mask"),
    ("mask of the scores not checked against the values", "torch/masks.py", "for X in (Q, *keyed)))\n    assert", "for X in (Q, keyed[0])))\n    assert"),
    ("0 · NaN leaks from a hidden key", "numpy/masks.py", "np.where(kept[..., None], X, 0) for X in keyed", "X for X in keyed"),
    ("hidden but finite keys are not cleared", "numpy/masks.py", "if mask is None else mask.any(-2)", "if True else mask.any(-2)"),
    ("only the queries looked at for NaN", "numpy/masks.py", "for X in (Q, *keyed)):", "for X in (Q,)):"),
    ("the keys not looked at for NaN", "numpy/masks.py", "for X in (Q, *keyed)):", "for X in (Q, keyed[-1])):"),
    ("0 · NaN leaks from a hidden key", "torch/masks.py", "*(torch.where(kept[..., None], X, 0) for X in keyed)", "*keyed"),
    ("hidden numbers that overflow taken for harmless", "torch/masks.py", "norm is not None and norm < 1e15", "norm is not None and norm == norm"),
    ("NaN taken for harmless", "torch/masks.py", "norm < 1e15 for norm", "not norm > 1e15 for norm"),
    ("hidden but finite keys are not cleared where another is NaN", "torch/masks.py", "        kept = kept & some(mask, -2)[..., 0, :]", "        kept = kept & True"),
    ("only the queries looked at for NaN", "torch/masks.py", "_tame(Q, *keyed):\n", "_tame(Q):\n"),
    ("the keys not looked at for NaN", "torch/masks.py", "_tame(Q, *keyed):\n", "_tame(Q, keyed[-1]):\n"),
    ("the values not looked at for NaN", "torch/masks.py", "_tame(Q, *keyed):\n", "_tame(Q, keyed[0]):\n"),
    ("the queries not looked at for NaN", "torch/masks.py", "_tame(Q, *keyed):\n", "_tame(*keyed):\n"),
    ("mask of a batch lost over outer axes", "torch/fused.py", "if len(batch) > 2 and math.prod(bias.shape[:-3]) > 1:", "if False:"),
    ("padding is not cut off", "torch/masks.py", "if stop is None or stop > m - BLOCK:", "if True:"),
    ("block of the last key cut off", "torch/masks.py", "-(-stop // BLOCK) * BLOCK", "stop // BLOCK * BLOCK"),
    ("padding cut off with the last key", "torch/masks.py", "torch.arange(1, mask.shape[-1] + 1)", "torch.arange(mask.shape[-1])"),
    ("padding of the first sequence cut off from all", "torch/masks.py", "seen = some(mask.reshape(-1, mask.shape[-1]), 0)", "seen = mask.reshape(-1, mask.shape[-1])[:1]"),
    ("padding of the first query cut off from all", "torch/masks.py", "mask.shape[-2:] != (1, m :=", "mask.shape[-1:] != (m :="),
    ("mask not cut with its keys", "torch/masks.py", "return mask[..., :stop], *(", "return mask, *("),
    ("a mask for one query taken as without keys", "torch/fused.py", "bias.expand(*bias.shape[:-1], m)", "bias"),
    ("empty row not taken away", "torch/fused.py", "return output if empty is None else", "return output if True else"),
    ("empty row NaN", "torch/fused.py", "mask = mask | empty", "mask = mask & ~empty"),
    ("shared keys in turn, not in groups", "torch/multi_head.py", "queries.unflatten(-3, (h_kv, h // h_kv))", "queries.unflatten(-3, (h // h_kv, h_kv)).transpose(-3, -4)"),
    ("one mask for all shared heads", "torch/multi_head.py", "one_for_all = mask.shape[-3] == 1", "mask, one_for_all = mask[..., :1, :, :], True"),
    ("shared keys copied", "torch/multi_head.py", "(X[..., None, :, :] for X in keyed)", "(X[..., None, :, :].repeat_interleave(h // h_kv, -3) for X in keyed)"),
    ("NaN hidden from those who may see it", "*/masks.py", "return output if spoiled is None else", "return output if True else"),
    ("NaN of a query that sees nothing", "numpy/masks.py", " | ~asks & _sees(np.ones_like(finite), n, mask)" , " | ~asks"),
    ("NaN of a query that sees nothing", "torch/masks.py", " | ~asks & _sees(torch.ones_like(kept), n, mask)" , " | ~asks"),
    ("queries that are not finite stay", "numpy/masks.py", "np.where(asks, Q, 0)", "Q"),
    ("queries that are not finite stay", "torch/masks.py", "torch.where(asks, Q, 0)", "Q"),
    ("what causal queries see, off by one", "*/masks.py", "[..., keys.shape[-1] :, None]", "[..., keys.shape[-1] - 1 : -1, None]"),
    # searches
    ("ended sentences extended", "*/decoding.py", "np.where(over, stay, scores", "np.where(over & False, stay, scores"),
    ("an ended sentence pays for its ends", "numpy/decoding.py", "stay = np.where(is_end, scores[..., None], -np.inf)", "stay = np.where(is_end, scores[..., None] + log_p, -np.inf)"),
    ("an ended sentence pays for its ends", "torch/decoding.py", "stay = torch.where(is_end, scores[..., None], -torch.inf)", "stay = torch.where(is_end, scores[..., None] + log_p, -torch.inf)"),
    ("end of the prefix ends the sentence", "numpy/decoding.py", "over = (tokens == end).any(-1, keepdims=True)", "over = (np.concatenate([before, tokens], -1) == end).any(-1, keepdims=True)"),
    ("end of the prefix ends the sentence", "torch/decoding.py", "over = (tokens == end).any(-1, keepdim=True)", "over = (torch.cat([before, tokens], -1) == end).any(-1, keepdim=True)"),
    ("ranked by the last token", "numpy/decoding.py", "np.where(over, stay, scores[..., None] + log_p)", "np.where(over, stay, log_p + 0 * scores[..., None])"),
    ("ranked by the last token", "torch/decoding.py", "torch.where(over, stay, scores[..., None] + log_p)", "torch.where(over, stay, log_p + 0 * scores[..., None])"),
    ("beam not reordered", "*/decoding.py", "tokens[rows, parents]", "tokens[rows, parents * 0]"),
    ("token and parent exchanged", "*/decoding.py", "order // n_tokens, order % n_tokens", "order % n_tokens % k, order // n_tokens"),
    ("beam one too wide", "*/decoding.py", "n_tokens), beam_width)", "n_tokens), beam_width + 1)"),
    ("beam stops at the first end", "numpy/decoding.py", "if ((last == end) | impossible).all():", "if ((last == end) | impossible).any():"),
    ("beam stops at the first end", "torch/decoding.py", "if ((last == end) | impossible).all():", "if ((last == end) | impossible).any():"),
    ("places without a sentence not marked", "*/decoding.py", "np.where(impossible[..., None], end, tokens), scores", "tokens, scores"),
    ("greedy stops when one of a batch has ended", "*/decoding.py", "if (last == end).all():", "if (last == end).any():"),
    ("greedy score of the last token", "numpy/decoding.py", "last, scores = total.argmax(-1), total.max(-1)", "last, scores = total.argmax(-1), (total - scores[..., None]).max(-1)"),
    ("greedy score of the last token", "torch/decoding.py", "last, scores = total.argmax(-1), total.amax(-1)", "last, scores = total.argmax(-1), (total - scores[..., None]).amax(-1)"),
    ("sentences not in the order of their scores", "numpy/decoding.py", "np.repeat(tokens, n_tokens, axis=1)", "np.tile(tokens, (1, n_tokens, 1))"),
    ("sentences not in the order of their scores", "torch/decoding.py", "tokens.repeat_interleave(n_tokens, 1)", "tokens.repeat(1, n_tokens, 1)"),
    ("probabilities taken for logarithms", "*/decoding.py", "if not (log_p <= 1e-3).all():", "if not (log_p <= 1).all():"),
    ("NaN taken for a log-probability", "*/decoding.py", "if not (log_p <= 1e-3).all():", "if (log_p > 1e-3).any():"),
    ("lowest first", "numpy/decoding.py", "np.argsort(-scores", "np.argsort(scores"),
    ("lowest first", "torch/decoding.py", "descending=True", "descending=False"),
    # the translator and its task
    ("padding attended to", "torch/seq2seq.py", "masked_softmax(scores, encoded.mask)", "masked_softmax(scores)"),
    ("encoder reads the padding", "torch/seq2seq.py", "lengths.cpu(), batch_first=True", "torch.full_like(lengths.cpu(), m), batch_first=True"),
    ("last state of one direction only", "torch/seq2seq.py", "torch.cat([last[0], last[1]], -1)", "torch.cat([last[0], last[0]], -1)"),
    ("state in the place of the context", "torch/seq2seq.py", "c = (A @ encoded.H)[:, 0]", "c = encoded.summary"),
    ("state after the symbol asks", "torch/seq2seq.py", "            s = self.cell(torch.cat([y, c], -1), s)\n            seen", "            s = self.cell(torch.cat([y, 0 * c], -1), s)\n            seen"),
    ("target not shifted", "torch/seq2seq.py", "previous = torch.cat([self.begin(target), target[:, :-1]], 1)", "previous = target"),
    ("target shifted twice", "torch/seq2seq.py", "previous = torch.cat([self.begin(target), target[:, :-1]], 1)", "previous = torch.cat([self.begin(target), self.begin(target), target[:, :-2]], 1)"),
    ("ends behind the end count", "torch/seq2seq.py", "counts = (target == model.end).cumsum(1) <= 1", "counts = target >= 0"),
    ("end does not count", "torch/seq2seq.py", "counts = (target == model.end).cumsum(1) <= 1", "counts = target != model.end"),
    ("sentences of a beam mixed over the batch", "torch/seq2seq.py", "x.repeat_interleave(k, 0) for x in encoded", "x.repeat(k, *[1] * (x.dim() - 1)) for x in encoded"),
    ("translate keeps the graph", "torch/seq2seq.py", "    @torch.no_grad()\n", ""),
    ("thousand and five without and", "data/numbers.py", "if with_and and (hundreds or (words and scale == 1)):", "if with_and and hundreds:"),
    ("and before every group", "data/numbers.py", "if with_and and (hundreds or (words and scale == 1)):", "if with_and and (hundreds or words):"),
    ("a one", "data/numbers.py", "words[0] == \"one\" and len(words) > 1:", "words[0] == \"one\":"),
    ("held-out numbers in training", "data/numbers.py", "if (number % 7 == 3) != held_out or", "if held_out and (number % 7 != 3) or"),
    ("held-out form in training", "data/numbers.py", "FORMS = ((True, False), (False, False), (True, True))", "FORMS = ((True, False), (False, False), (True, True), (False, True))"),
    ("held-out numbers twice", "data/numbers.py", "        taken.add(number)\n", ""),
    ("digits written from the right", "data/numbers.py", "row[: len(text)] = list(map(int, text))", "row[: len(text)] = list(map(int, text[::-1]))"),
    ("text goes on behind the end", "data/numbers.py", "stop = row.index(END) if END in row else len(row)", "stop = len(row) - row.count(END)"),
    # training and its files
    ("interrupt not told", "torch/training.py", "state.history.stopped = True", "pass"),
    ("gradients added up", "torch/training.py", "state.optimizer.zero_grad()", "pass"),
    ("gradients not clipped", "torch/training.py", "LARGEST_GRADIENT = 1.0", "LARGEST_GRADIENT = 1e9"),
    ("trained in evaluation mode after a check", "torch/training.py", "                model.train()\n", ""),
    ("scored in training mode", "torch/training.py", "self.model.eval()\n            with torch.no_grad():", "with torch.no_grad():"),
    ("scored with gradients", "torch/training.py", "with torch.no_grad():", "if True:"),
    ("last weights in place of the best", "torch/training.py", "model.load_state_dict(state.best)\n            model.eval()", "model.eval()"),
    ("best weights not copied", "torch/training.py", "x.detach().clone()", "x.detach()"),
    ("highest score taken for the best", "torch/training.py", "all(value < x for x", "all(value > x for x"),
    ("first of equal scores not kept", "torch/training.py", "all(value < x for x", "all(value <= x for x"),
    ("mean loss over all steps of a check too many", "torch/training.py", "                    total.zero_()\n", ""),
    ("last check skipped", "torch/training.py", " or state.step == steps:", ":"),
    ("global random numbers used up", "torch/training.py", "with torch.random.fork_rng([device] if device.type == \"cuda\" else []):", "if True:"),
    ("dropout not seeded", "torch/training.py", "            generator.manual_seed(seed)", "            state.generators[0].manual_seed(seed)"),
    ("random numbers not taken up", "torch/training.py", "            generator.set_state(state)", "            pass"),
    ("only batches taken up", "torch/training.py", "            generator.set_state(state)", "            self.generators[0].set_state(content[\"generators\"][0])"),
    ("optimiser begins anew", "torch/training.py", "        self.optimizer.load_state_dict(content[\"optimizer\"])\n", ""),
    ("best weights forgotten in a checkpoint", "torch/training.py", "\"best\": self.best}", "\"best\": self.model.state_dict()}"),
    ("checkpoint of another run taken", "torch/training.py", "if there.get(name) != here:", "if False:"),
    ("learning rate constant", "torch/training.py", "state.optimizer.param_groups[0][\"lr\"] = lr * rate(state.step, steps)", "state.optimizer.param_groups[0][\"lr\"] = lr"),
    ("no warm-up", "torch/training.py", "    if step < warm:\n", "    if False:\n"),
    ("loss that is not finite goes on", "torch/training.py", "if not math.isfinite(mean) or math.isnan(value):", "if math.isnan(value):"),
    ("bar left behind", "torch/progress.py", "            self.write(\"\")", "            pass"),
    ("bar where nobody watches", "torch/progress.py", "self.shown = wanted and watched and", "self.shown = wanted and"),
    ("bar in spite of the wish", "torch/progress.py", "self.shown = wanted and watched and", "self.shown = watched and"),
    ("checksums not compared", "torch/weights.py", "if damaged := archive.testzip():", "if damaged := None:"),
    ("file written in place", "torch/weights.py", "    os.replace(part, path)", "    torch.save(content, path)"),
    ("weights filled before they are checked", "torch/weights.py", "    own = model.state_dict()\n", "    own = model.state_dict()\n    model.load_state_dict({k: x for k, x in weights.items() if k in own and own[k].shape == x.shape}, strict=False)\n"),
    # softmax
    ("no subtraction of the maximum", "numpy/softmax.py", "e = x - x.max(axis, keepdims=True, initial=-np.inf)", "e = x.copy()"),
    ("no subtraction of the maximum behind a mask", "numpy/softmax.py", "weights -= weights.max(-1, keepdims=True, initial=-np.inf)", "weights -= 0"),
    ("maximum of each column", "numpy/softmax.py", "weights -= weights.max(-1, ", "weights -= weights.max(-2, "),
    ("softmax overwrites its input", "numpy/softmax.py", "e = x - x.max(axis, keepdims=True, initial=-np.inf)", "e = np.subtract(x, x.max(axis, keepdims=True, initial=-np.inf), out=x)"),
    ("no subtraction of the maximum", "torch/softmax.py", "torch.softmax(x, axis)", "x.exp() / x.exp().sum(axis, keepdim=True)"),
    ("softmax on the wrong axis", "numpy/softmax.py", "total = weights.sum(-1, keepdims=True, dtype=wide)\n    weights /=", "total = weights.sum(-2, keepdims=True, dtype=wide)\n    weights /="),
    ("softmax on the wrong axis", "torch/softmax.py", "return torch.where(mask, softmax(hidden), 0)", "return torch.where(mask, softmax(hidden, 0), 0)"),
    ("axis ignored", "torch/softmax.py", "torch.softmax(x, axis)", "torch.softmax(x, -1)"),
    ("axis ignored in the sum", "numpy/softmax.py", "e /= e.sum(axis, ", "e /= e.sum(-1, "),
    ("inverted mask", "numpy/softmax.py", "weights *= np.inf", "weights *= -np.inf"),
    ("inverted mask", "torch/softmax.py", "torch.where(mask, scores, -torch.inf)", "torch.where(mask, -torch.inf, scores)"),
    ("masked weight zeroed but not renormalised", "numpy/softmax.py", "total = weights.sum(-1, keepdims=True, dtype=wide)\n    weights /=", "total = np.exp(scores - scores.max(-1, keepdims=True)).sum(-1, keepdims=True)\n    weights /="),
    ("masked weight zeroed but not renormalised", "torch/softmax.py", "softmax(hidden)", "softmax(scores)"),
    ("−1e4 in place of −∞", "numpy/softmax.py", "weights *= np.inf", "weights *= 2e4"),
    ("−1e4 in place of −∞", "torch/softmax.py", "torch.where(mask, scores, -torch.inf)", "torch.where(mask, scores, -1e4)"),
    ("uniform weights for an empty row", "torch/softmax.py", "where(mask, softmax(hidden), 0)", "where(mask | ~some_key, softmax(hidden), 0)"),
    ("weights for an empty row", "numpy/softmax.py", "weights[...] = mask\n", "weights[...] = mask | ~mask.any(-1, keepdims=True)\n"),
    ("NaN of a forbidden score", "numpy/softmax.py", "np.fmin(scores, weights,", "np.minimum(scores, weights,"),
    ("NaN for an empty row, and for what is forbidden in a spoilt one", "numpy/softmax.py", "if np.isnan(total).any():", "if False:"),
    ("0 for NaN", "numpy/softmax.py", "np.where(mask, weights, 0)", "np.nan_to_num(weights)"),
    ("sum in half precision behind a mask", "numpy/softmax.py", "keepdims=True, dtype=wide)\n    weights", "keepdims=True)\n    weights"),
    ("rows in one piece", "_parallel.py", "step = max(1, BLOCK // max(1, each))", "step = max(1, n)"),
    ("a row missed between blocks", "_parallel.py", "slice(i, i + step)", "slice(i, i + max(1, step - 1))"),
    ("rows done twice", "_parallel.py", "slice(i, i + step)", "slice(i, i + step + 1)"),
    ("blocks in numbers, not bytes", "_parallel.py", "out.itemsize * math", "math"),
    ("an error of a thread lost", "_parallel.py", "errors.append(error)", "pass"),
    ("the work of other threads not waited for", "_parallel.py", "other.join()", "pass"),
    ("a row cut", "_parallel.py", "enumerate(shape[:-1])", "enumerate(shape)"),
    ("scores overwritten", "numpy/softmax.py", "return by_rows(_weigh, scores, mask, out=np.empty(shape, scores.dtype))", "return by_rows(_weigh, scores, mask, out=scores if scores.shape == shape else np.empty(shape, scores.dtype))"),
    ("NaN for an empty row", "torch/softmax.py", "torch.where(some_key, hidden, 0)", "hidden"),
    ("0/0 in an empty window", "*/softmax.py", "np.where(total == 0, 1, total)", "total"),
    # attention
    ("scores that are not finite spoil attend", "*/attention.py", "shield(mask, False, scores[..., :0], V)", "shield(mask, False, scores, V)"),
    ("mask lost in attend", "*/attention.py", "masked_softmax(scores, mask) @ V", "masked_softmax(scores) @ V"),
    ("scale lost in attention", "numpy/attention.py", "tiled_attention(Q, K, V, mask, causal, scale)", "tiled_attention(Q, K, V, mask, causal)"),
    ("scale used twice", "torch/attention.py", "fused_attention(Q, K, V, mask, causal, scale, dropout_p)", "fused_attention(Q * (1 if scale is None else scale), K, V, mask, causal, scale, dropout_p)"),
    ("bilinear attention scaled by 1/√d", "*/attention.py", "Q @ M, K, V, mask, causal, 1.0", "Q @ M, K, V, mask, causal, None"),
    ("bilinear without its causal flag", "*/attention.py", "Q @ M, K, V, mask, causal, 1.0", "Q @ M, K, V, mask, False, 1.0"),
    ("additive attention forgets causality", "numpy/attention.py", "w_v, V, mask, causal)", "w_v, V, mask, False)"),
    ("additive attention forgets causality", "torch/attention.py", "w_v, V, mask, causal, dropout_p)", "w_v, V, mask, False, dropout_p)"),
    ("Gaussian attention without centring", "numpy/attention.py", "(Q - centre) / float(bandwidth), (K - centre) * seen", "Q / float(bandwidth), K * seen"),
    ("Gaussian attention without centring", "torch/attention.py", "(Q - centre).div_(bandwidth), (K - centre).div_(bandwidth)", "Q / bandwidth, K / bandwidth"),
    ("centred on the mean, which the future moves", "numpy/attention.py", "(K * (seen & (seen.cumsum(-2) == 1))).sum(-2, keepdims=True)", "K.mean(-2, keepdims=True)"),
    ("centred on the mean, which the future moves", "torch/attention.py", "first.sum(-2, keepdim=True)", "K.mean(-2, keepdim=True)"),
    ("a hidden key not cleared after centring", "torch/attention.py", "        K = K * seen\n", "        pass\n"),
    ("only keys centred", "*/attention.py", "Q, K = (Q - centre)", "Q, K = Q"),
    ("squared norm without ½", "numpy/attention.py", "[K, -norms / 2]", "[K, -norms]"),
    ("squared norm without ½", "torch/attention.py", "(K**2).sum(-1, keepdim=True) / -2", "(K**2).sum(-1, keepdim=True) / -1"),
    ("a Gaussian bias for each head and query", "torch/attention.py", "by_query or bias.requires_grad or", "bias.requires_grad or"),
    ("a Gaussian bias with a gradient", "torch/attention.py", "by_query or bias.requires_grad or", "by_query or"),
    ("a Gaussian bias under torch.vmap", "torch/attention.py", "glance(torch.sum, bias) is None", 'Q.device.type != "cpu"'),
    ("Gaussian keys always wider", "torch/attention.py", "by_query or bias.requires_grad or", "True or"),
    ("a mask takes the place of a bias", "torch/fused.py", "Q.new_zeros(()) if bias is None else bias", "Q.new_zeros(())"),
    ("Gaussian attention in single precision", "numpy/attention.py", "wide = np.result_type(Q, K, np.float64)", "wide = np.result_type(Q, K, np.float32)"),
    ("Gaussian attention in half precision", "torch/attention.py", "wide = torch.promote_types(K.dtype, torch.float32)", "wide = K.dtype"),
    ("autocast rounds Gaussian scores", "torch/attention.py", "torch.autocast(Q.device.type, enabled=False)", "torch.autocast(Q.device.type, enabled=torch.is_autocast_enabled(Q.device.type))"),
    ("additive attention does not drop", "torch/attention.py", "w_v, V, mask, causal, dropout_p)", "w_v, V, mask, causal)"),
    # engines
    ("a small problem's hidden rows are NaN", "numpy/tiled.py", "        top[top == -np.inf] = 0", "        pass"),
    ("tile edge off by one", "numpy/tiled.py", "min(j + KEYS, m, last + n)", "min(j + KEYS - 1, m, last + n)"),
    ("tiles of keys overlap", "numpy/tiled.py", "min(j + KEYS, m, last + n)", "min(j + KEYS + 1, m, last + n)"),
    ("tile of queries off by one", "numpy/tiled.py", "min(i + step, n)", "min(i + step - 1, n)"),
    ("running maximum not applied to the pooled sum", "numpy/tiled.py", "pooled *= shrink", "pass"),
    ("running maximum not applied to the total", "numpy/tiled.py", "total *= shrink", "pass"),
    ("maximum of the tile alone", "numpy/tiled.py", "np.maximum(top, scores.max(-1, keepdims=True, initial=-np.inf), out=top)", "top[...] = scores.max(-1, keepdims=True, initial=-1e300)"),
    ("diagonal of a tile off by one", "numpy/tiled.py", "last + first - j :]", "last + first - j + 1 :]"),
    ("a query too few sees a tile", "numpy/tiled.py", "max(0, j - last)", "max(0, j - last + 1)"),
    ("a query too few on the diagonal is masked", "numpy/tiled.py", "keys.stop - 1 - last - first", "keys.stop - 2 - last - first"),
    ("too few tiles seen", "numpy/tiled.py", "range(0, min(m, last + n), KEYS)", "range(0, min(m, last), KEYS)"),
    ("large scores taken for harmless", "numpy/tiled.py", '"float32": 44.0', '"float32": 400.0'),
    ("large keys taken for harmless", "numpy/tiled.py", "_longest(Q) * _longest(K)", "_longest(Q)"),
    ("hidden scores not hidden from the maximum", "numpy/tiled.py", "np.where(seen, some, -np.inf)", "some"),
    ("hidden scores not hidden from the sum", "numpy/tiled.py", "weights[..., : seen.shape[-2], :] *= seen", "pass"),
    ("empty row in a small problem", "numpy/tiled.py", "total[total == 0] = 1", "pass"),
    ("empty row in tiles", "numpy/tiled.py", "np.maximum(self.total, tiny)", "self.total"),
    ("no keys in a small problem", "numpy/tiled.py", "if seen is not None or not K.shape[-2]:", "if seen is not None:"),
    ("tile edge off by one", "torch/tiled.py", "min(j + KEYS, end)", "min(j + KEYS - 1, end)"),
    ("tiles of keys overlap", "torch/tiled.py", "min(j + KEYS, end)", "min(j + KEYS + 1, end)"),
    ("tile of queries off by one", "torch/tiled.py", "min(r + height, n)", "min(r + height - 1, n)"),
    ("running maximum not applied to the pooled sum", "torch/tiled.py", "p *= shrink", "pass"),
    ("running maximum not applied to the total", "torch/tiled.py", "s *= shrink", "pass"),
    ("maximum of the tile alone", "torch/tiled.py", "torch.maximum(t, scores.amax(-1, keepdim=True))", "scores.amax(-1, keepdim=True)"),
    ("diagonal of a tile off by one", "torch/tiled.py", "tril_(start + ahead - j)", "tril_(start + ahead - j + 1)"),
    ("a query too few sees a tile", "torch/tiled.py", "max(block.start, j - ahead)", "max(block.start, j - ahead + 1)"),
    ("the mask lost on the diagonal", "torch/tiled.py", "past if seen is None else seen & past", "past"),
    ("upper-left causal tiles", "torch/tiled.py", "ahead = m - n if causal", "ahead = 0 if causal"),
    ("tiles of the future computed", "torch/tiled.py", "end = min(m, block.stop + ahead)", "end = m"),
    ("tiles that are padding computed", "torch/tiled.py", "if not seen.any():", "if False:"),
    ("large scores taken for harmless", "torch/tiled.py", "torch.float64: 500.0", "torch.float64: 1e4"),
    ("large queries taken for harmless", "torch/tiled.py", "longest(Q) * longest(K)", "longest(K)"),
    ("hidden scores not hidden", "torch/tiled.py", "scores += seen.log()", "pass"),
    ("hidden scores not hidden from the gradient", "torch/tiled.py", "A += seen.log()", "pass"),
    ("NaN for an empty row", "torch/tiled.py", "total.masked_fill_(empty, 1)", "total"),
    ("weights of a query without its maximum", "torch/tiled.py", "(top + total.log2())", "(0 * top + total.log2())"),
    ("no row sum in the gradient of softmax", "torch/tiled.py", "torch.baddbmm(-along[rows], do, v.mT)", "(do @ v.mT)"),
    ("powers of 2 in place of those of e", "torch/tiled.py", " * math.log2(math.e)", ""),
    ("derivative of powers of 2 as of those of e", "torch/tiled.py", "dQ * math.log(2), dK * math.log(2)", "dQ, dK"),
    ("a scale that is given is ignored", "torch/tiled.py", "if scale is None else scale", "if True else scale"),
    ("matrix of scores stored", "numpy/attention.py", "tiled_attention(Q, K, V, mask, causal, scale)", "attend(scaled_dot_score(Q, K, scale), V, causal_mask(Q.shape[-2], K.shape[-2]) if causal else mask)"),
    ("BLAS left with one thread", "_parallel.py", "_limit.restore_original_limits()", "pass"),
    ("exp(a) in place of exp(2a)", "*/additive.py", "return np.exp(2 * x), np.exp(2 * y), True", "return np.exp(x), np.exp(y), True"),
    ("keys keep what queries were shifted by", "*/additive.py", "(b - shift)", "b"),
    ("exponentials not cut", "numpy/additive.py", "(a + shift).clip(-reach, reach)", "(a + shift)"),
    ("cut though wide on both sides", "*/additive.py", "if not (a_fits | b_fits).all():", "if False:"),
    ("cut where tanh is not flat", "*/additive.py", "window(X, reach - flat)", "window(X, reach)"),
    ("shift of the queries with the sign of the keys'", "numpy/additive.py", "np.where(b_fits, shift_b, -shift_a)", "np.where(b_fits, shift_b, shift_a)"),
    ("shift of the queries with the sign of the keys'", "torch/additive.py", "torch.where(b_fits, shift_b, -shift_a)", "torch.where(b_fits, shift_b, shift_a)"),
    ("causal keys aligned upper left", "*/additive.py", "rows.stop + m - n", "rows.stop"),
    ("first tile of keys alone", "numpy/additive.py", "range(0, m, step)", "range(0, min(m, step), step)"),
    ("last visible key left out", "*/additive.py", "some[-1] + 1", "some[-1]"),
    ("derivative of 1/(1 + e^2x) as r", "torch/additive.py", "torch.addcmul(q if self.product else part / 4, q, r, value=-1, out=q)", "pass"),
    ("derivative of tanh as 1 − T²/2", "torch/additive.py", "part / 4", "part / 2"),
    ("gradient of w_v with the wrong sign", "torch/additive.py", "-2 * dw, dV", "2 * dw, dV"),
    ("gradient of softmax without its row sum", "torch/additive.py", "dA.sub_(along[group, rows]).mul_(A)", "dA.mul_(A)"),
    ("gradient of the values from the last block alone", "torch/additive.py", "dV[group, keys].baddbmm_(dropped.mT, gr)", "dV[group, keys] = dropped.mT @ gr"),
    ("gradient of the keys from the last block alone", "torch/additive.py", "db[group, keys] += db_more", "db[group, keys] = db_more"),
    ("gradient of w_v from the last block alone", "torch/additive.py", "dw[group] += dw_more", "dw[group] = dw_more"),
    ("gradient of the keys from one thread's part", "torch/additive.py", ".sum(2).sum(1)", ".sum(2)[:, 0]"),
    ("first tile of keys alone", "torch/additive.py", "range(0, m, self.keys)", "range(0, min(m, self.keys), self.keys)"),
    ("the last tile taken for each", "torch/additive.py", "if not self.filled:", "if False:"),
    ("gradient of the queries from the last tile alone", "torch/additive.py", "da += q.sum(3)", "da = q.sum(3)"),
    ("a query of each block left out", "torch/additive.py", "range(0, n, most)", "range(0, n, most + 1)"),
    ("gradient of dropped weights", "torch/additive.py", "dropped, dA = A * grown, dA * grown", "dropped, dA = A * grown, dA"),
    ("the last tile taken for weights that were kept", "torch/additive.py", "self.filled = False", "self.filled = True"),
    ("weights of the last block alone kept", "torch/additive.py", "weights[group, rows, keys] = A", "weights[group, keys] = A"),
    ("weights that were kept after dropping some", "torch/additive.py", "A = A * P.kept[group, rows, keys] / (1 - P.dropout_p)", "A *= P.kept[group, rows, keys] / (1 - P.dropout_p)"),
    ("weights kept whether or not there were room", "torch/additive.py", "B * n * m <= STORED", "True"),
    ("weights kept where no gradient follows", "torch/additive.py", "m if P.graded and", "m if"),
    ("torch's loop in place of the kernels keeps log Σ exp as weights", "torch/additive_triton.py", "lse[..., :0], P)", "lse, P)"),
    ("a second derivative of zero", "torch/additive_op.py", "        raise NotImplementedError(", "        return NotImplementedError("),
    ("two features share a quotient that is not finite", "torch/additive_compiled.py", "        if finite(x, y):\n            return score_in_pairs", "        if True:\n            return score_in_pairs"),
    ("two features share a quotient without being multiplied", "torch/additive_compiled.py", "((u * e + v * d) / (d * e))", "((u * d + v * e) / (d * e))"),
    ("the last of an odd number of features is lost", "torch/additive_compiled.py", "half = (h + 1) // 2", "half = h // 2"),
    ("a running maximum that shrinks no sum", "torch/additive_triton.py", "total = total * shrink + tl.sum(E, 1)", "total = total + tl.sum(E, 1)"),
    ("a running maximum that shrinks no value", "torch/additive_triton.py", "pooled = pooled * shrink[:, None] + tl.dot(", "pooled = pooled + tl.dot("),
    ("kernels that look beyond the last key", "torch/additive_triton.py", "seen = (i < n)[:, None] & (j < m)[None, :]", "seen = (i < n)[:, None] & (j < j + 1)[None, :]"),
    ("kernels whose diagonal is upper left", "torch/additive_triton.py", "j[None, :] <= i[:, None] + m - n", "j[None, :] <= i[:, None]"),
    ("a block of keys that starts with too late a query", "torch/additive_triton.py", "+ n - m) // N * N", "+ n - m + N) // N * N"),
    ("gradient of w_v from one tile alone", "torch/additive_triton.py", "tl.store(dw + k, tl.load(dw + k) + tl.sum(drawn))", "tl.store(dw + k, tl.sum(drawn))"),
    ("gradient of the queries from one tile alone", "torch/additive_triton.py", "tl.load(at, i < n, 0.0) + tl.sum(drawn - drawn * r, 1)", "tl.sum(drawn - drawn * r, 1)"),
    ("gradient of softmax in the kernels without its row sum", "torch/additive_triton.py", "A * (dA - tl.load(along + i, i < n, 0.0)[:, None])", "A * dA"),
    ("every query has the mask of the first", "torch/additive_triton.py", "mask.stride(1) if mask.shape[1] > 1 else 0", "0"),
    ("sums in float16", "numpy/tiled.py", "np.promote_types(dtype, np.float32)", "dtype"),
    ("results as precise as the queries alone", "numpy/tiled.py", "if not dtype == K.dtype == V.dtype or dtype", "if dtype"),
    ("upper-left flag of the kernel", "torch/fused.py", "if causal and n != m:", "if False:"),
    ("empty rows attend to everything", "torch/fused.py", "output if empty is None else output.masked_fill(empty, 0)", "output"),
    ("scale of the widened queries", "torch/fused.py", "scale=scale", "scale=None"),
    ("a scale of any sign left to the kernel", "torch/fused.py", "Q, scale = Q * scale, 1.0", "pass"),
    ("zeros of the widening kept", "torch/fused.py", "    if d_v < d:\n", "    if False:\n"),
    ("sum in half precision", "numpy/softmax.py", "keepdims=True, dtype=np.result_type(e, np.float32)", "keepdims=True"),
    ("an empty window for NaN", "*/softmax.py", "return np.where(total == 0, 0, shares)", "return np.where(total > 0, shares, 0)"),
    ("a learnt scale gets no gradient", "torch/scoring.py", "if scale is None else scale", "if scale is None else float(scale)"),
    ("dropout lost", "torch/fused.py", "        dropout_p,\n        is_causal", "        0.0,\n        is_causal"),
    # decoding
    ("new tokens written over the first", "*/cache.py", "keys[..., start:, :], values", "keys[..., : stop - start, :], values"),
    ("room grown by what is needed alone", "*/cache.py", "length = max(stop, 2 * length)", "length = stop"),
    ("old tokens lost when the room grows", "*/cache.py", "        wider[..., : self._len, :] = room[..., : self._len, :]\n", ""),
    ("room beyond the most that may be used", "*/cache.py", "length = min(length, self.max_len)", "pass"),
    ("one token too many", "*/cache.py", "stop > self.max_len", "stop > self.max_len + 1"),
    ("empty room returned as tokens", "numpy/cache.py", "[room[..., :stop, :] for room in rooms]", "rooms"),
    ("empty room returned as tokens", "torch/cache.py", "[room.narrow(-2, 0, stop) for room in rooms]", "rooms"),
    ("other dtypes cast without a word", "numpy/cache.py", "X.shape[-1], X.dtype", "X.shape[-1]"),
    ("a cache that tells tokens apart by shape alone", "numpy/cache.py", "(X.shape, X.dtype)", "(X.shape,)"),
    ("a cache that tells tokens apart by shape alone", "torch/cache.py", "(X.shape, X.dtype, X.device)", "(X.shape,)"),
    ("a cache that looks at the keys alone", "*/cache.py", "if _kinds(K, V) != self._last:", "if _kinds(K) != self._last[:1]:"),
    ("a cache that stumbles over what is no array", "numpy/cache.py", " if isinstance(X, np.ndarray) else None", ""),
    ("a cache that stumbles over what is no array", "torch/cache.py", " if isinstance(X, torch.Tensor) else None", ""),
    ("other dtypes cast without a word", "torch/cache.py", "X.shape[-1], X.dtype, X.device", "X.shape[-1], X.device"),
    ("another device's keys taken without a word", "torch/cache.py", "X.shape[-1], X.dtype, X.device", "X.shape[-1], X.dtype"),
    ("gradient lost without a word", "torch/cache.py", "if torch.is_grad_enabled() and", "if False and"),
    # self- and cross-attention
    ("W_q and W_k swapped", "numpy/self_attention.py", "queries @ W_q, keys @ W_k, keys @ W_v, mask, causal", "queries @ W_k, keys @ W_q, keys @ W_v, mask, causal"),
    ("values not projected by their own matrix", "numpy/self_attention.py", "keys @ W_v, mask, causal=causal", "keys @ W_k, mask, causal=causal"),
    ("causality lost", "numpy/self_attention.py", "keys @ W_v, mask, causal=causal", "keys @ W_v, mask, causal=False"),
    ("mask lost in cross-attention", "numpy/self_attention.py", "keys @ W_v, mask), spoiled", "keys @ W_v), spoiled"),
    ("tokens projected before they are cleared", "numpy/self_attention.py", "queries, keys, spoiled = shield(mask, causal, X, X)", "queries, keys, spoiled = X, X, None"),
    ("tokens projected before they are cleared", "torch/self_attention.py", "queries, keys, spoiled = shield(mask, causal, X, keys)", "queries, keys, spoiled = X, X, None"),
    # heads
    ("reshape in place of transpose in split_heads", "*/multi_head.py", "X.reshape(*batch, n, n_heads, d // n_heads).swapaxes(-3, -2)", "X.reshape(*batch, n_heads, n, d // n_heads)"),
    ("reshape in place of transpose in merge_heads", "*/multi_head.py", "X.swapaxes(-3, -2).reshape(*batch, n, h * d_h)", "X.reshape(*batch, n, h * d_h)"),
    ("√d of the model width", "numpy/multi_head.py", "        mask,\n        causal=causal,\n", "        mask,\n        causal=causal,\n        scale=W_q.shape[-1] ** -0.5,\n"),
    ("√d of the model width", "torch/multi_head.py", "attention(queries, keys, values, mask, ", "attention(queries, keys, values, mask, scale=W_q.shape[-1] ** -0.5, "),
    ("√d of the model width in the weights", "*/multi_head.py", "attention_weights(queries, keys, mask, causal=causal)", "attention_weights(queries, keys, mask, causal=causal, scale=W_q.shape[-1] ** -0.5)"),
    ("shared heads tiled instead of repeated", "numpy/multi_head.py", "np.repeat(X, n_heads // X.shape[-3], axis=-3)", "np.concatenate([X] * (n_heads // X.shape[-3]), axis=-3)"),
    ("biases swapped", "*/multi_head.py", "b_q, b_k, b_v, b_o = _biases", "b_k, b_q, b_v, b_o = _biases"),
    ("bias of the values lost", "numpy/multi_head.py", "V @ W_v + b_v", "V @ W_v"),
    ("bias of the values lost", "torch/multi_head.py", "_project(V, W_v, b_v)", "_project(V, W_v, None)"),
    ("bias of the output lost", "numpy/multi_head.py", "merge_heads(heads) @ W_o + b_o", "merge_heads(heads) @ W_o"),
    ("bias of the output lost", "torch/multi_head.py", "_project(merge_heads(heads), W_o, b_o)", "_project(merge_heads(heads), W_o, None)"),
    ("bias of the queries lost in the weights", "numpy/multi_head.py", "    queries = split_heads(Q @ W_q + b_q, n_heads)", "    queries = split_heads(Q @ W_q, n_heads)"),
    ("bias of the queries lost in the weights", "torch/multi_head.py", "_project(Q, W_q, b_q), n_heads)  # (…, h, n, d_h)\n    keys = split_heads(_project(K, W_k, b_k), n_kv_heads)  # (…, h_kv, m, d_h)\n    mask, queries, keys =", "_project(Q, W_q, None), n_heads)\n    keys = split_heads(_project(K, W_k, b_k), n_kv_heads)\n    mask, queries, keys ="),
    ("values projected from the keys", "numpy/multi_head.py", "_share(split_heads(V @ W_v + b_v", "_share(split_heads((V * 0 + 1) @ W_v + b_v"),
    ("values projected from the keys", "torch/multi_head.py", "split_heads(_project(V, W_v", "split_heads(_project(V * 0 + 1, W_v"),
    ("a key hidden in one head hidden in all", "numpy/multi_head.py", "mask.any(-3)", "mask.all(-3)"),
    ("a key hidden in one head hidden in all", "torch/multi_head.py", "some(mask, -3).squeeze(-3)", "mask.all(-3)"),
    ("NaN of one head in all", "*/multi_head.py", "*_, spoiled = shield(mask, causal, Q[..., None, :, :], K[..., None, :, :])", "*_, spoiled = shield(over_heads, causal, Q, K)\n    spoiled = spoiled if spoiled is None else spoiled[..., None, :, :]"),
    ("dropout lost", "torch/multi_head.py", "causal=causal, dropout_p=dropout_p)", "causal=causal)"),
    # positions
    ("exponent off by two", "*/positional.py", "arange(0, d, 2", "arange(2, d + 2, 2"),
    ("exponent i in place of 2i", "numpy/positional.py", "-np.arange(0, d, 2) / d", "-np.arange(0, d, 2) / 2 / d"),
    ("sine and cosine swapped", "numpy/positional.py", "np.sin(a) + 1j * np.cos(a)", "np.cos(a) + 1j * np.sin(a)"),
    ("sine and cosine swapped", "torch/positional.py", "torch.complex(a.sin(), a.cos())", "torch.complex(a.cos(), a.sin())"),
    ("rows turned back", "numpy/positional.py", "np.cos(b) - 1j", "np.cos(b) + 1j"),
    ("rows turned back", "torch/positional.py", "-b.sin()", "b.sin()"),
    ("every row its own sines", "numpy/positional.py", "step = math.isqrt(n) + 1", "step = 1"),
    ("every row its own sines", "torch/positional.py", "step, device = math.isqrt(n) + 1,", "step, device = 1,"),
    ("a row of sines too few", "numpy/positional.py", "a = np.arange(0, n, step)", "a = np.arange(0, n - 1, step)"),
    ("a row of sines too few", "torch/positional.py", "a = torch.arange(0, n, step,", "a = torch.arange(0, max(n - 1, 0), step,"),
    ("an odd table with gaps", "numpy/positional.py", "np.ascontiguousarray(_pairs(n, rates)[:, :d])", "_pairs(n, rates)[:, :d]"),
    ("an odd table with gaps", "torch/positional.py", ".to(device, dtype).contiguous()", ".to(device, dtype)"),
    ("table in single precision", "torch/positional.py", "torch.promote_types(dtype, torch.complex64)", "torch.complex64"),
    ("table in half precision", "torch/positional.py", "torch.promote_types(dtype, torch.complex64)", "torch.promote_types(dtype, torch.complex32)"),
    ("sines first, cosines after", "torch/positional.py", "torch.view_as_real(pairs).reshape(", "torch.view_as_real(pairs).mT.reshape("),
    ("positions from 1", "numpy/positional.py", "np.arange(step)[:, None]", "np.arange(1, step + 1)[:, None]"),
    ("positions from 1", "torch/positional.py", "torch.arange(step, device=device)", "torch.arange(1, step + 1, device=device)"),
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
    ("row sum over queries in the gradient of softmax", "numpy/gradients.py", "(g * weights).sum(-1, keepdims=True)", "(g * weights).sum(0, keepdims=True)"),
    ("gradient passed on by a query that sees nothing", "numpy/gradients.py", "A.any(-1, keepdims=True), g, 0", "True, g, 0"),
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
    # transformer
    ("post-norm: what is added is not of normalised tokens", "torch/transformer.py", "self._drawn(self.norm_1(X), mask, cache)", "self._drawn(X, mask, cache)"),
    ("no residual around attention", "torch/transformer.py", "return X + self.drop(self._drawn(", "return self.drop(self._drawn("),
    ("no residual around the network", "torch/transformer.py", "return X + self.drop(self.narrow(hidden))", "return self.drop(self.narrow(hidden))"),
    ("one norm for both halves", "torch/transformer.py", "self.widen(self.norm_2(X))", "self.widen(self.norm_1(X))"),
    ("network without its bend", "torch/transformer.py", "self.activation(self.widen(", "(self.widen("),
    ("mask of a block lost", "torch/transformer.py", "return layer(X, mask=mask)", "return layer(X)"),
    ("mask lost where heads are placed", "torch/transformer.py", "Q, K, V, mask, causal=layer.causal", "Q, K, V, None, causal=layer.causal"),
    ("causal flag lost where heads are placed", "torch/transformer.py", "causal=layer.causal, scale=self._scale, dropout_p", "causal=False, scale=self._scale, dropout_p"),
    ("new tokens at position 0", "torch/transformer.py", "self._heads(X, 0 if cache is None else len(cache))", "self._heads(X, 0)"),
    ("queries turned, keys not", "torch/transformer.py", "return rotary(Q, p), rotary(K, p), V", "return rotary(Q, p), K, V"),
    ("values turned too", "torch/transformer.py", "return rotary(Q, p), rotary(K, p), V", "return rotary(Q, p), rotary(K, p), rotary(V, p)"),
    ("ALiBi's entry scaled", "torch/transformer.py", "torch.full_like(Q[..., :1], 1 / self._scale)", "torch.ones_like(Q[..., :1])"),
    ("ALiBi as a reward", "torch/transformer.py", "(slopes[:, None] * p)", "(-slopes[:, None] * p)"),
    ("ALiBi's slopes rounded to float32", "torch/transformer.py", "dtype=precise,", "dtype=torch.float32,"),
    ("√d of the widened heads", "torch/transformer.py", "        return (self.narrow.out_features / self.attention.n_heads) ** -0.5", "        return (self.narrow.out_features / self.attention.n_heads + 1) ** -0.5"),
    ("√d of the model width in a block", "torch/transformer.py", "(self.narrow.out_features / self.attention.n_heads)", "(self.narrow.out_features)"),
    ("weights shown without positions", "torch/transformer.py", "        Q, K, _ = self._heads(self.norm_1(X), 0)", "        Q, K, _ = self._heads(X, 0)"),
    ("dropout of weights lost with positions", "torch/transformer.py", "layer.dropout if self.training else 0.0", "0.0"),
    ("dropout of weights in eval", "torch/transformer.py", "layer.dropout if self.training else 0.0", "layer.dropout"),
    ("bias of the output lost with positions", "torch/transformer.py", "layer.W_o.mT, layer.b_o)", "layer.W_o.mT)"),
    ("torch's block: norms swapped", "torch/transformer.py", "(layer.norm1, layer.norm2)", "(layer.norm2, layer.norm1)"),
    ("torch's block: weights shared, not copied", "torch/transformer.py", "map(copy.deepcopy, (layer.linear1, layer.linear2))", "layer.linear1, layer.linear2"),
    ("torch's block: activation not taken over", "torch/transformer.py", "            activation=layer.activation,\n", ""),
    ("torch's block: post-norm accepted", "torch/transformer.py", "if not layer.norm_first:", "if False:"),
    ("torch's block: mode not taken over", "torch/transformer.py", "return mine.train(layer.training)", "return mine"),
    ("marks from 0 with a cache", "torch/language_model.py", "self.encoding(X, start)", "self.encoding(X)"),
    ("marks of a later position from 0", "torch/modules.py", "self.table[start:n]", "self.table[: n - start]"),
    ("last norm lost", "torch/language_model.py", "self.head(self.norm(X))", "self.head(X)"),
    ("blocks that see the future", "torch/language_model.py", "causal=True,", "causal=False,"),
    ("the cache not used", "torch/language_model.py", "new = token if cached else ids", "new = ids"),
    ("temperature multiplied", "torch/language_model.py", "logits.float() / temperature", "logits.float() * temperature"),
    ("the first logits, not the last", "torch/language_model.py", "self(new, caches)[..., -1, :]", "self(new, caches)[..., 0, :]"),
    ("weights of one block for all", "torch/language_model.py", "            X = block(X)\n        return torch.stack", "        return torch.stack"),
    ("a padded word is read", "torch/encoder_decoder.py", "            X = block(X, mask)", "            X = block(X)"),
    ("a padded word is looked at", "torch/encoder_decoder.py", "cross(N, read.X, mask=read.mask)", "cross(N, read.X)"),
    ("writers that see later symbols", "torch/encoder_decoder.py", "n_heads, causal=True, dropout", "n_heads, dropout"),
    ("reading without positions", "torch/encoder_decoder.py", "X = self.encoding(self.words(words))", "X = self.words(words)"),
    ("cross-attention replaces what was there", "torch/encoder_decoder.py", "self.block.think(Y + self.block.drop(", "self.block.think(self.block.drop("),
    ("nothing looked at", "torch/encoder_decoder.py", "self.block.think(Y + self.block.drop(cross(N, read.X, mask=read.mask)))", "self.block.think(Y)"),
    # arguments
    ("float masks accepted", "_checks.py", 'if dtype != "bool":', "if False:"),
    ("masks that make queries out of nothing", "_checks.py", "if not core_fits or ", "if "),
    ("whole numbers may be True", "_checks.py", "not isinstance(value, bool) and ", ""),
    ("bandwidth 0 accepted", "_checks.py", "bool(0 < value < math.inf)", "bool(0 <= value < math.inf)"),
    ("axes that differ accepted", "_checks.py", "if size != expected:", "if False:"),
    ("axes that differ pass at once", "_checks.py", "all(shapes[i][at] == shapes[j][first] for", "all(True for"),
    ("batch axes that differ pass at once", "_checks.py", "if len(shape) < rank or shape[:-rank] not in batches:", "if len(shape) < rank:"),
    ("missing axes pass at once", "_checks.py", "if len(shape) < rank or shape", "if shape"),
    ("a third array not looked at", "_checks.py", "as_is(first) and", "as_is(first[:2]) and"),
    ("dtypes mixed in torch pass at once", "torch/_arrays.py", "(x.dtype, x.device) != (head.dtype, head.device)", "x.device != head.device"),
    ("integers pass at once", "torch/_arrays.py", "return bool(head.is_floating_point())", "return True"),
    ("integers pass at once", "numpy/_arrays.py", 'return arrays[0].dtype.kind == "f"', "return True"),
    ("batch axes by equality, not by broadcasting", "_checks.py", "long = [size for size in sizes if size != 1]", "long = list(sizes)"),
    ("integers stay integers", "numpy/_arrays.py", 'x if x.dtype.kind == "f" else x.astype(np.float64)', "x"),
    ("dtypes mixed in torch", "torch/_arrays.py", "if x.dtype != head.dtype and", "if False and"),
    # the checkers of exercises
    ("a mistake named after one case", "check/exercise.py", "if all(self._makes(mistake, *each) for each in reversed(telling))", "if any(self._makes(mistake, *each) for each in reversed(telling))"),
    ("half precision tells where other cases do", "check/exercise.py", "telling = wider if any(", "telling = tried if any("),
    ("part of it where the reader is right", "check/exercise.py", "if all(map(any, pairs)) and sum", "if sum"),
    ("a mistake that fails agrees with every answer", "check/exercise.py", "return outcome.error is not None", "return True"),
    ("one-sided differences count as right", "check/chapters/ch07_gradients.py", "tolerance=1e-6", "tolerance=1e-2"),
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
