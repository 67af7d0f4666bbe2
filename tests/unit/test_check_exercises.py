"""Every right solution passes in both halves, and every named mistake is told by its own name and by no other."""

import ast
import contextlib
import copy
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor.check import EXERCISES, calls
from attn_tutor.check.results import unchanged

ROOT = Path(__file__).parents[2]
CHAPTERS = sorted((ROOT / "book").glob("[0-9]*.ipynb"))
PAGES = [*CHAPTERS, *sorted((ROOT / "book").glob("[0-9]*/*.ipynb"))]
EACH = [pytest.param(x, id=x.name) for x in EXERCISES.values()]
MISTAKES = [
    pytest.param(x, mistake, id=f"{x.name}: {mistake.name}")
    for x in EXERCISES.values()
    for mistake in x.mistakes
]


def in_torch(fn):
    """A function on arrays as one on tensors."""

    def port(*args):
        return tensors(fn(*map(arrays, args)))

    return port


def arrays(x):
    if isinstance(x, dict):
        return {key: arrays(value) for key, value in x.items()}
    if callable(x):
        return lambda *args: arrays(x(*map(tensors, args)))
    if isinstance(x, np.ndarray):
        raise TypeError("expected Tensor, got ndarray")
    return x.numpy() if isinstance(x, torch.Tensor) else x


def tensors(x):
    if isinstance(x, tuple):
        return tuple(map(tensors, x))
    return torch.as_tensor(x) if isinstance(x, np.ndarray) else x


# The right solutions in torch: the package's own, and what a reader would write for the others.


def torch_neighbour_weights(q, K, k):
    weights = torch.zeros(1, len(K), dtype=K.dtype)
    weights[0, torch.cdist(q, K)[0].topk(k, largest=False).indices] = 1 / k
    return weights


def torch_local_line_weights(q, K, bandwidth):
    w = (-((K - q) / bandwidth).square().sum(-1) / 2).exp()
    X = torch.cat([torch.ones(len(K), 1, dtype=K.dtype), K - q], -1)
    return torch.linalg.solve(X.T * w @ X, X.T * w)[:1]


def torch_plain_attention(Q, K, V):
    return torch.nn.functional.scaled_dot_product_attention(Q, K, V)


def torch_find_temperature(scores, entropy):
    low, high = -9.0, 16.0
    for _ in range(60):
        middle = (low + high) / 2
        A = (scores / np.exp(middle)).softmax(-1)
        too_low = -(A * A.clamp_min(1e-300).log()).sum(-1).mean() < entropy
        low, high = (middle, high) if too_low else (low, middle)
    return torch.tensor(low).exp()


def torch_widen(Q, K, bandwidth):
    Q, K = Q / bandwidth, K / bandwidth
    q2, k2 = (-(X**2).sum(-1, keepdim=True) / 2 for X in (Q, K))
    return (
        torch.cat([q2, torch.ones_like(q2), Q], -1),
        torch.cat([torch.ones_like(k2), k2, K], -1),
    )


def torch_with_products(K):
    a, b = torch.triu_indices(K.shape[-1], K.shape[-1])
    return torch.cat([K, K[..., a] * K[..., b]], -1)


def torch_softmax_vjp(p, g):
    return p * (g - (p * g).sum(-1, keepdim=True))


def torch_log_softmax(scores):
    return scores.log_softmax(-1)


def torch_softmax_plus_one(scores):
    zero = torch.zeros_like(scores[..., :1])
    return torch.cat([scores, zero], -1).softmax(-1)[..., :-1]


def torch_left_padding_mask(lengths, m):
    return torch.arange(m) >= m - lengths[:, None, None]


def torch_window_mask(n, width):
    seen = torch.ones(n, n, dtype=torch.bool)
    return seen.tril() & seen.triu(1 - width)


def torch_step(x, K, V, W_q, W_k, W_v):
    K, V = torch.cat([K, (x @ W_k)[None]]), torch.cat([V, (x @ W_v)[None]])
    return at.attention((x @ W_q)[None], K, V)[0], K, V


def torch_sees_future(layer, X):
    before = layer(X)
    for t in range(1, len(X)):
        other = X.clone()
        other[t] = torch.rand(X.shape[1], dtype=X.dtype)
        if not torch.equal(layer(other)[:t], before[:t]):
            return True
    return False


def torch_permutation_gap(layer, X, order):
    return (layer(X[order]) - layer(X)[order]).abs().max()


def torch_split(X, n_heads):
    return torch.stack(X.chunk(n_heads, -1))


def torch_multi_head(X, W_q, W_k, W_v, W_o, n_heads):
    return at.multi_head_attention(X, X, X, W_q, W_k, W_v, W_o, n_heads)


def torch_contributions(Q, K, V, W_q, W_k, W_v, W_o, n_heads):
    Q, K, V = (
        at.split_heads(X @ W, n_heads) for X, W in ((Q, W_q), (K, W_k), (V, W_v))
    )
    return at.attention(Q, K, V) @ W_o.reshape(n_heads, -1, W_o.shape[-1])


def torch_encode(positions, d):
    angles = positions[:, None] * 10000.0 ** (-torch.arange(0, d, 2) / d)
    P = torch.stack([angles.sin(), angles.cos()], -1)
    return P.flatten(-2)[:, :d]


def torch_previous_weights(n, d, scale):
    P = torch_encode(torch.arange(-1.0, n), d)
    return at.attention_weights(P[:-1], P[1:], scale=scale)


def torch_to_halves(W, n_heads):
    heads = W.unflatten(-1, (n_heads, -1))
    return torch.cat([heads[..., 0::2], heads[..., 1::2]], -1).flatten(-2)


def torch_squeezed(w, ids, longest):
    X, n = w["words"][ids], ids.shape[-1]
    p = torch.arange(n) * min(1.0, longest / n)
    Q, K, V = (at.split_heads(X @ w[M], 4) for M in ("W_q", "W_k", "W_v"))
    Q, K = at.rotary(Q[..., -1:, :], p[-1:]), at.rotary(K, p)
    return at.merge_heads(at.attention(Q, K, V))[:, 0] @ w["W_o"]


def torch_numerical_gradient(f, x):
    moves = 1e-5 * torch.eye(x.numel(), dtype=x.dtype).reshape(-1, *x.shape)
    slopes = [(f(x + move) - f(x - move)) / 2e-5 for move in moves]
    return torch.tensor(slopes, dtype=x.dtype).reshape(x.shape)


def pulled_back(fn, inputs, g):
    inputs = [x.clone().requires_grad_() for x in inputs]
    return torch.autograd.grad(fn(*inputs), inputs, g)


def torch_log_softmax_vjp(scores, g):
    return pulled_back(lambda s: s.log_softmax(-1), [scores], g)[0]


def torch_bilinear_score_vjp(Q, K, M, g):
    return pulled_back(at.bilinear_score, (Q, K, M), g)


def torch_self_attention_vjp(X, W_q, W_k, W_v, g):
    return pulled_back(at.self_attention, (X, W_q, W_k, W_v), g)


def torch_grouped_attention_vjp(Q, K, V, g):
    def grouped(Q, K, V):
        repeated = (x.repeat_interleave(len(Q) // len(K), 0) for x in (K, V))
        return at.attention(Q, *repeated)

    return pulled_back(grouped, (Q, K, V), g)


def torch_masked_attention_vjp(Q, K, V, mask, g):
    return pulled_back(lambda *x: at.attention(*x, mask), (Q, K, V), g)


def torch_layer_norm(X, gain, shift):
    return torch.nn.functional.layer_norm(X, gain.shape, gain, shift)


def torch_block(X, attention, mlp):
    Y = X + attention(torch.nn.functional.layer_norm(X, X.shape[-1:]))
    return Y + mlp(torch.nn.functional.layer_norm(Y, Y.shape[-1:]))


def torch_windows(ids, starts, n):
    read = ids.unfold(0, n + 1, 1)[starts]
    return read[:, :-1], read[:, 1:]


def torch_next_token_loss(logits, targets):
    return torch.nn.functional.cross_entropy(logits.flatten(0, -2), targets.flatten())


def torch_top_k(logits, k, temperature):
    best, places = logits.topk(k)
    kept = torch.full_like(logits, -torch.inf).scatter(-1, places, best)
    return (kept / temperature).softmax(-1)


def torch_join_pair(ids, pair, new):
    out, tokens = [], ids.tolist()
    while tokens:
        joins = tuple(tokens[:2]) == tuple(pair)
        out.append(new if joins else tokens[0])
        tokens = tokens[1 + joins :]
    return torch.tensor(out)


def torch_induction_score(A, period):
    return torch.diagonal(A, 1 - period, -2, -1)[..., 1:].mean(-1)


def torch_greedy(step, end, max_len):
    return torch_beam(step, end, max_len, 1)


def torch_beam(step, end, max_len, k):
    def together(rows):  # (1, k, t) -> (1, k, |Y|)
        return torch.stack([step(tokens) for tokens in rows[0]])[None]

    begin = torch.empty(1, 0, dtype=torch.long)
    tokens, scores = at.beam_search(together, begin, end, max_len, k)
    stop = (tokens[0, 0] != end).sum() + 1
    return tokens[0, 0, :stop], scores[0, 0]


def torch_context_vector(s, H, W_q, W_k, w_v):
    return at.additive_attention(s[None], H, H, W_q, W_k, w_v)[0]


def torch_previous_symbols(target, end):
    return torch.cat([torch.full_like(target[:, :1], end), target[:, :-1]], 1)


def torch_exact_match(found, target, end):
    width = max(found.shape[1], target.shape[1])
    one, other = (
        torch.nn.functional.pad(x, (0, width - x.shape[1]), value=end)
        for x in (found, target)
    )
    after = (other == end).cumsum(1) - (other == end).long() > 0
    return ((one == other) | after).all(1).double().mean()


def torch_nucleus(p, share):
    falling, order = p.sort(descending=True)
    before = falling.cumsum(0).roll(1) * (torch.arange(len(p)) > 0)
    kept = torch.where(before < share, falling, 0)
    return torch.zeros_like(p).scatter(0, order, kept / kept.sum())


def torch_may_stop(finished, running, length, max_len):
    return torch.all(running / max_len <= finished).item()


def torch_path_lengths(m, backwards):
    return torch.arange(1, 2 * m, 2) if backwards else torch.full((m,), m)


def torch_merge(t1, l1, o1, t2, l2, o2):
    t = torch.maximum(t1, t2)
    first, second = (torch.nan_to_num((x - t).exp()) for x in (t1, t2))
    return t, first * l1 + second * l2, first * o1 + second * o2


def torch_causal_tiles(n, m, tile):
    seen = at.causal_mask(n, m)
    rows = [x.any(0) for x in seen.split(tile)]
    return torch.stack(
        [torch.stack([x.any() for x in row.split(tile)]) for row in rows]
    )


def torch_score_bound(Q, K, scale):
    return Q.norm(dim=-1).max() * K.norm(dim=-1).max() * abs(scale)


def torch_quotient_scores(a, b, w):
    c = b.mean(0)
    return -2 / (1 + (2 * (a + c)).exp()[:, None] * (2 * (b - c)).exp()) @ w


torch_additive_by_query = at.additive_score


def torch_causal_linear_attention(Q, K, V):
    features = (torch.nn.functional.elu(x) + 1 for x in (Q, K))
    kernel = (next(features) @ next(features).mT).tril()
    return kernel @ V / kernel.sum(-1, keepdim=True)


def torch_merge_parts(outputs, levels):
    return (torch.nan_to_num(levels.softmax(0)) * outputs).sum(0)


def torch_zigzag_positions(n, size):
    chunks = torch.arange(n).chunk(2 * size)
    pairs = zip(chunks[:size], reversed(chunks[size:]), strict=True)
    return torch.stack([torch.cat(pair) for pair in pairs])


def torch_bytes_sent(n, size, heads, kv_heads, width, number):
    tokens = torch.empty(n // size, width, number, dtype=torch.uint8)
    ring = sum(2 * kv_heads * tokens.nbytes for _ in range(size - 1))
    whole = torch.tensor(2 * (heads + max(kv_heads, size)) * tokens.nbytes)
    return torch.tensor(ring), whole - whole // size


def torch_ring(Q, K, V, size):
    return at.attention(Q, K, V, causal=True)


def torch_received_weight(A):
    n = A.shape[-1]
    later = torch.ones(n, n, dtype=A.dtype).tril(-1)
    return (A * later).sum(-2) / later.sum(-2).clamp_min(1)


def torch_prefix_matching_score(A, ids):
    same = (ids[:, None] == ids).tril(-1)
    after = torch.nn.functional.pad(same, (1, 0))[:, :-1]
    return A.masked_fill(~after, 0).sum(-1)[..., same.any(-1)].mean(-1)


def torch_without_heads(O, W_o, off):
    O = O.clone()
    O[off] = 0
    return at.merge_heads(O) @ W_o


def torch_dequantise(blocks):
    scale, low = blocks[:, :4].contiguous().view(torch.float16).float().split(1, -1)
    codes = torch.cat([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], -1)
    return scale * codes + low


def torch_step_seconds(texts, parameters, weights, cache, peak, bandwidth):
    busy = torch.tensor([weights / bandwidth, 2 * texts * parameters / peak])
    return busy.double().max() + texts * cache / bandwidth


def torch_window_with_sinks(n, m, window, sinks):
    band = torch.ones(n, m).tril(m - n)
    recent = band.triu(m - n - window + 1)
    recent[:, :sinks] = band[:, :sinks]
    return recent.bool()


def torch_linear_in_chunks(Q, K, V, size):
    return at.linear_attention(Q, K, V, causal=True)


def torch_fading_in_chunks(Q, K, V, size, fade):
    age = torch.arange(len(Q))[:, None] - torch.arange(len(K))
    q, k = at.elu_features(Q), at.elu_features(K)
    kernel = (q @ k.mT * fade ** age.clamp_min(0)).tril()
    return kernel @ V / kernel.sum(-1, keepdim=True)


def torch_delta_step(S, k, v, beta):
    k = torch.nn.functional.normalize(k, dim=0)
    return S - beta * torch.outer(k, k @ S) + beta * torch.outer(k, v)


def torch_keep_guess(p, q, guess, coin, draw):
    numbers = torch.tensor([coin, draw], dtype=p.dtype)
    target, guesses = torch.stack([p, p]), torch.tensor([guess])
    return at.accept_draft(target, q[None], guesses, numbers)[0]


PUZZLES = "successor first_token letter_shares previous_token reverse same_letter "
PUZZLES += "largest_so_far latest_a argsort after_a induction"


def right_in_torch(name):
    if name in PUZZLES.split():  # its answer is matrices, whatever they are made with
        return in_torch(EXERCISES[name].right)
    return globals().get(f"torch_{name}") or getattr(at, name)


def cells(path, kind):
    """The sources of a notebook's cells; nbformat would first prove that it is one."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return ["".join(x["source"]) for x in notebook["cells"] if x["cell_type"] == kind]


def notebook_functions(path):
    """The functions that a notebook defines in its cells, by name, with its imports and without running it."""
    code = cells(path, "code")
    wanted = ast.Import, ast.ImportFrom, ast.FunctionDef
    names = {}
    for node in (x for cell in code for x in ast.parse(cell).body):
        if isinstance(node, wanted):
            # A default may be data of the notebook; such functions are no solutions.
            with contextlib.suppress(NameError):
                exec(compile(ast.Module([node], []), str(path), "exec"), names)
    return names


def test_there_are_enough_of_them():
    chapters = [x.chapter for x in EXERCISES.values()]
    assert len(chapters) >= 28
    assert set(chapters) <= {int(path.name[:2]) for path in CHAPTERS}
    assert len(set(chapters)) >= 10
    assert all(chapters.count(chapter) >= 3 for chapter in set(chapters))
    names = [{mistake.name for mistake in x.mistakes} for x in EXERCISES.values()]
    assert min(map(len, names)) >= 1 and sum(map(len, names)) >= 200


@pytest.mark.parametrize("exercise", EACH)
def test_the_right_solution_passes_in_both_halves(exercise):
    # Chapter 10 merges states of three parts, the package of two.
    own = exercise.name in an.__all__ and exercise.name != "merge"
    ours = getattr(an, exercise.name) if own else exercise.right
    for fn, half in ((ours, "NumPy"), (right_in_torch(exercise.name), "torch")):
        report = exercise.examine(fn)
        count = f"right in all {len(exercise.cases)} cases"
        assert report.text == f"✓ {exercise.name} ({half}): {count}"
        assert report.right


@pytest.mark.parametrize(("exercise", "mistake"), MISTAKES)
def test_a_mistake_is_told_by_its_name_in_both_halves(exercise, mistake):
    for fn, half in ((mistake.wrong, "NumPy"), (in_torch(mistake.wrong), "torch")):
        report = exercise.examine(fn)
        first, *words = report.text.splitlines()
        assert first == f"✗ {exercise.name} ({half}): {mistake.name}"
        assert report.title == mistake.name and not report.right
        assert words[0] == mistake.words and words[1] == "For"
        assert "expected" in report.text or "it raises" in report.text


def attempt(fn, case):
    try:
        return calls.Outcome(fn(*case))
    except (ValueError, IndexError) as error:
        return calls.Outcome(error=error)


@pytest.mark.parametrize("exercise", EACH)
@np.errstate(all="ignore")
def test_no_two_mistakes_give_the_same_answers(exercise):
    """Each mistake is told from all others even when it comes last, so that the order of the list decides nothing."""
    for mistake in exercise.mistakes:
        did = [
            exercise.attempt(case, attempt(mistake.wrong, case))
            for case in exercise.cases
        ]
        assert any(x.outcome.error is None for x in did)
        others = [x for x in exercise.mistakes if x is not mistake]
        assert exercise.made(others, did) is None


@pytest.mark.parametrize("exercise", EACH)
def test_words_teach(exercise):
    for mistake in exercise.mistakes:
        assert len(mistake.words) > 25 and mistake.words.endswith((".", ")", "…"))


@pytest.mark.parametrize("exercise", EACH)
@np.errstate(all="ignore")
def test_our_own_functions_leave_the_cases_alone(exercise):
    before = copy.deepcopy(exercise.cases)
    for fn in (exercise.right, *(mistake.wrong for mistake in exercise.mistakes)):
        for case, kept in zip(exercise.cases, before, strict=True):
            attempt(fn, case)
            assert all(map(unchanged, kept, case))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_the_books_solutions_are_right(path):
    text = "\n".join(cells(path, "markdown"))
    asked = re.findall(r"[Ww]rite `(\w+)\(", text)
    assert asked or path not in CHAPTERS
    functions = notebook_functions(path)
    for name in asked:
        report = EXERCISES[name.removeprefix("my_")].examine(functions[name])
        assert report.right, report.text
