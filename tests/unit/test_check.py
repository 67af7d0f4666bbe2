"""What the checker says of functions that go wrong in ways of their own, and its command."""

import json
import math
import subprocess
import sys
import threading
import time
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import attn_tutor.numpy as an
import attn_tutor.torch as at
from attn_tutor import check
from attn_tutor.check import EXERCISES
from attn_tutor.check.__main__ import main
from attn_tutor.check.exercise import Exercise


def text_of(exercise, fn, **settings):
    report = exercise.examine(fn, **settings)
    assert not report.right
    assert report.text.startswith(f"✗ {exercise.name} (")
    return report.text


def test_a_right_function_gets_one_line(capsys):
    assert check.softmax(an.softmax) is True
    assert capsys.readouterr().out == "✓ softmax (NumPy): right in all 7 cases\n"


def test_a_known_mistake_gets_its_words_and_the_smallest_input(capsys):
    """exp(ln 3) = 3, so that the row must be 3/4 and 1/4; a column of one entry sums to 1 by itself."""
    assert check.softmax(lambda x: an.softmax(x, axis=-2)) is False
    words = next(m.words for m in check.softmax.mistakes if "queries" in m.name)
    assert capsys.readouterr().out == (
        f"""✗ softmax (NumPy): normalised over queries
{words}
For
  x (1, 2) = [[ln 3, 0]]
  expected (1, 2) = [[0.75, 0.25]]
  got      (1, 2) = [[1, 1]]
"""
    )


def test_an_unknown_mistake_gets_shapes_and_values():
    def mine(step, end, max_len):
        return np.arange(3), np.float64(0.5)

    text = text_of(check.greedy, mine)
    assert text.startswith(
        """✗ greedy (NumPy): wrong shape
This is none of the mistakes known here.
For
  step = the model of seed 0"""
    )


def test_two_mistakes_that_change_different_parts():
    """The mask inverted by a large number, and no √d."""

    def mine(Q, K, V, mask):
        return an.softmax(np.where(mask, -1e9, Q @ K.mT)) @ V

    text = text_of(check.attention, mine)
    assert ": no √d; inverted mask\nTwo mistakes at once. Your scores are not" in text
    assert "hide where the mask is False.\nFor" in text


def test_a_mistake_in_some_cases():
    """Mᵀ fits square matrices alone; the others are right here, which Mᵀ could not be."""

    def mine(Q, K, M):
        return Q @ (M.T if M.shape[0] == M.shape[1] else M) @ K.mT

    text = text_of(check.bilinear_score, mine)
    assert ": Mᵀ in place of M; in some cases\n" in text
    assert "(In 2 of 4 cases you do so; in the others you are right.)" in text


def test_a_mistake_that_fails_besides():
    def mine(Q, K):
        if Q.ndim > 2:
            return Q @ K.T
        Q, K = (X / np.linalg.norm(X, axis=-1, keepdims=True) for X in (Q, K))
        return Q @ K.T

    text = text_of(check.scaled_dot_score, mine)
    assert ": cosines; raises ValueError\n" in text


def test_the_right_answer_to_another_question():
    text = text_of(check.softmax_vjp, lambda p, g: p * (p - (p * p).sum(-1)[:, None]))
    assert ": `p` in place of `g`\nYour answer is the right one to another" in text


def test_values_in_another_order():
    text = text_of(
        check.bilinear_score_vjp, lambda *x: check.bilinear_score_vjp.right(*x)[::-1]
    )
    assert ": values in the order 3, 2, 1\n" in text


def test_a_wrong_shape():
    text = text_of(check.softmax, lambda x: an.softmax(x)[0])
    assert "softmax (NumPy): another number of axes\n" in text
    assert "has the shape (3, 5) where (2, 3, 5) is asked" in text


def test_of_large_arrays_only_the_first_difference_is_shown():
    def wrong_in_batches(X):
        heads = an.merge_heads(X)
        return heads + (X.ndim > 3) * (np.arange(heads.shape[-1]) == 5)

    text = text_of(check.merge_heads, wrong_in_batches)
    right = an.merge_heads(check.merge_heads.cases[-1][0])
    assert "X (2, 3, 5, 7) = … (float64)" in text
    assert "10 of 210 entries differ; the first at [0, 0, 5]:" in text
    assert f"expected {right[0, 0, 5]:.4g}, got {right[0, 0, 5] + 1:.4g}" in text


def test_an_exception_is_shown_with_its_line_and_its_input():
    def mine(x):
        return x.reshape(7, 5, 3)

    text = text_of(check.softmax, mine)
    assert "raises ValueError" in text
    assert "x (1, 2) = [[ln 3, 0]]" in text
    assert "cannot reshape array of size 2 into shape (7,5,3)" in text
    assert "in mine: return x.reshape(7, 5, 3)" in text
    assert "What is asked: softmax(x): weights along the last axis" in text


def test_the_wrong_number_of_arguments():
    text = text_of(check.softmax, lambda: None)
    assert "raises TypeError" in text and "positional argument" in text
    assert "line" not in text.splitlines()[-1]


def test_sys_exit_is_an_exception_like_others():
    assert "raises SystemExit" in text_of(check.softmax, lambda x: sys.exit("bye"))


@pytest.mark.parametrize(
    ("answer", "title", "advice"),
    [
        (lambda x: None, "returns None", "`return`"),
        (lambda x: an.softmax(x)[0].tolist(), "returns a list", "np.array"),
        (lambda x: (an.softmax(x), x), "returns a tuple", "np.array"),
        (lambda x: {"weights": x}, "returns a dict", "not an array"),
        (lambda x: 0.5, "returns a float", "not an array"),
        (lambda x: "half", "returns a str", "not an array"),
        (lambda x: torch.softmax(x, -1).numpy(), "returns an ndarray", "not a tensor"),
        (lambda x: list(torch.softmax(x, -1)[0]), "returns a list", "torch.stack"),
        (
            lambda x: torch.softmax(x, -1).to_sparse(),
            "returns a sparse tensor",
            "to_dense",
        ),
        (lambda x: torch.as_tensor(x).shape, "returns a Size", "np.array"),
        (lambda x: an.softmax(x).astype(str), "returns <U32", "not of real numbers"),
        (lambda x: an.softmax(x) + 0j, "returns complex128", "not of real numbers"),
    ],
)
def test_what_is_no_array(answer, title, advice):
    text = text_of(check.softmax, answer)
    assert f": {title}\n" in text and advice in text.splitlines()[1]
    assert "x (1, 2) = [[ln 3, 0]]" in text


def test_what_is_no_tuple_or_no_number():
    assert "returns no tuple of 3" in text_of(check.step, lambda *args: np.zeros(2))
    two = text_of(check.step, lambda x, K, V, *W: [K, V])
    assert "returns 2 values and must return 3" in two
    one_is_a_list = text_of(check.step, lambda x, K, V, *W: ([0.0, 0.0], K, V))
    assert "returns a list" in one_is_a_list
    shown = text_of(check.find_temperature, lambda scores, entropy: scores)
    assert "returns no number" in shown
    ragged = text_of(check.find_temperature, lambda scores, entropy: [[1], [2, 3]])
    assert "It returns a list, not one number" in ragged
    assert "returns no number" in text_of(check.sees_future, lambda layer, X: "yes")


def test_of_a_tuple_the_value_that_differs_is_named():
    def mine(*args):
        row, K, V = check.step.right(*args)
        return row, K, V + 1

    text = text_of(check.step, mine)
    assert "(value 3 of the 3 that it returns)" in text


def test_parts_that_do_not_fit_together():
    text = text_of(check.widen, lambda Q, K, bandwidth: (Q, np.ones((2, 9))))
    assert "the dot products of the wide queries and keys" in text
    assert "got      = nan" in text


def test_other_matrices_that_fit_have_no_wrong_shape():
    """Wider queries and keys are as good; it is what the layer makes of them that differs."""
    right = check.letter_shares.right

    def mine(a, n):
        W_q, W_k, W_v = right(a, n)
        return np.eye(len(W_q)), -np.eye(len(W_k)), W_v

    assert check.letter_shares.examine(mine).title == "wrong values"


def test_an_input_that_is_changed_is_named():
    def mine(scores, mask):
        A = an.masked_softmax(scores, mask)
        scores[~mask] = -np.inf
        return A

    text = text_of(check.masked_softmax, mine)
    assert "changes its input" in text and "writes into its argument scores" in text


def test_a_changed_dict_is_seen():
    def mine(w, ids, longest):
        answer = check.squeezed.right(w, ids, longest)
        w["words"] += 1
        return answer

    assert "writes into its argument w" in text_of(check.squeezed, mine)


def test_a_wider_dtype_is_no_mistake_and_is_told():
    report = check.scaled_dot_score.examine(
        lambda Q, K: Q @ K.mT / np.sqrt(Q.shape[-1])
    )
    assert report.right
    assert report.text.endswith("cases (float64 where the arguments are float32)")


def test_who_remembers_an_earlier_call():
    def mine(step, end, max_len, tokens=[]):  # noqa: B006 — the mistake
        score = 0.0
        while len(tokens) < max_len and end not in tokens:
            log_p = step(np.array(tokens, int))
            tokens.append(int(log_p.argmax()))
            score += log_p.max()
        return np.array(tokens), score

    report = check.greedy.examine(mine)
    assert report.title == "another answer each time", report.text


def test_bfloat16_is_compared_too():
    text = text_of(check.merge_heads, lambda X: at.merge_heads(X.bfloat16()))
    assert "(torch): nearly right" in text


def test_a_narrower_dtype():
    text = text_of(check.merge_heads, lambda X: an.merge_heads(X).astype(np.float32))
    assert "come as float32 where the arguments are float64" in text
    assert "np.sqrt" not in text


def test_a_mask_of_numbers():
    text = text_of(check.causal_mask, lambda n, m: an.causal_mask(n, m).astype(float))
    assert "returns float64, but this must be boolean" in text


def test_an_endless_loop_gets_a_message():
    """It waits for an event in place of looping, so that the test can end it."""
    over = threading.Event()

    def endless(x):
        over.wait()

    text = text_of(check.softmax, endless, seconds=0.05)
    over.set()
    assert ": takes too long\n" in text and "never ends" in text
    assert "x (1, 2) = [[ln 3, 0]]" in text


def test_a_loop_that_ends_only_for_small_inputs():
    over = threading.Event()

    def mine(x):
        if x.size > 5:
            over.wait()
        return an.softmax(x)

    text = text_of(check.softmax, mine, seconds=0.05)
    over.set()
    assert ": takes too long\n" in text and "x (3, 5)" in text


def uses_no_name_of_torch(X):
    """Methods alone, which arrays do not have."""
    return X.softmax(dim=-1)


def test_which_half():
    def half_of(fn):
        return check.softmax.examine(fn).text.partition("(")[2].partition(")")[0]

    def helper(x):
        return torch.softmax(x, -1)

    assert half_of(lambda x: torch.softmax(x, -1)) == "torch"
    assert half_of(at.softmax) == half_of(torch.nn.Softmax(-1)) == "torch"
    assert half_of(uses_no_name_of_torch) == "torch"
    assert half_of(lambda x: helper(x)) == "torch"
    assert half_of(lambda x: helper(x[7])) == "NumPy", "fails in both: the first"
    assert half_of(lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)) == "NumPy"
    # Both kinds of array have these methods: whatever runs first is right.
    assert half_of(lambda x: x * 0) == "NumPy"
    # A function of arrays that uses torch inside.
    through = check.softmax.examine(
        lambda x: torch.from_numpy(x).softmax(-1).numpy()  # fails with tensors
    )
    assert through.text.startswith("✓ softmax (NumPy)")


def test_without_torch_everything_is_numpy(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch")
    assert check.softmax.examine(an.softmax).right
    text = text_of(check.softmax, uses_no_name_of_torch)
    assert "(NumPy): raises AttributeError" in text


def test_check_imports_no_torch():
    code = "import sys, attn_tutor.check as c, attn_tutor.numpy as an; c.softmax(an.softmax); c.softmax(print)"
    code += "; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_a_function_that_fails_in_both_halves_is_of_the_half_whose_methods_it_calls():
    def of_torch(x):
        return x.masked_fill(x > 0, 0)[7]

    def of_numpy(x):
        return x.repeat_interleaved(2)

    assert "softmax (torch): raises IndexError" in text_of(check.softmax, of_torch)
    assert "softmax (NumPy): raises AttributeError" in text_of(check.softmax, of_numpy)


def test_a_buffer_that_is_used_again_is_no_mistake():
    buffer = np.empty(99)

    def mine(x):
        out = buffer.astype(x.dtype) if x.dtype != float else buffer
        out = out[: x.size].reshape(x.shape)
        out[...] = an.softmax(x)
        return out

    assert check.softmax.examine(mine).right


def test_a_statement_needs_its_form():
    with pytest.raises(ValueError, match="not of the form"):
        Exercise(1, "softmax of x", an.softmax, [])


def test_every_checker_is_offered_by_name():
    assert check.__all__ == sorted(EXERCISES)
    assert all(getattr(check, name) is EXERCISES[name] for name in check.__all__)
    assert not any(isinstance(x, types.ModuleType) for x in EXERCISES.values())


# As people write it, with the corners that this brings along.


def scores_of(Q, K):
    return Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))


def as_in_d2l(scores, mask):
    scores = scores.clone()
    scores[~mask] = -1e6
    return F.softmax(scores, dim=-1)


def written_into(P, angles):
    P[:, 0::2], P[:, 1::2] = torch.sin(angles), torch.cos(angles)
    return P


WILD = [
    ("masked_softmax", as_in_d2l, "equal weights in an empty row"),
    (
        "masked_softmax",
        lambda S, mask: F.softmax(S.masked_fill(mask == 0, -1e9), dim=-1),
        "equal weights in an empty row",
    ),
    (
        "masked_softmax",
        lambda S, mask: F.softmax(S.masked_fill(~mask, float("-inf")), dim=-1),
        "NaN in an empty row",
    ),
    (
        "masked_softmax",
        lambda S, mask: F.softmax(S.masked_fill(mask, float("-inf")), dim=-1),
        "inverted mask",
    ),
    (
        "masked_softmax",
        lambda S, mask: an.softmax(S + (1 - mask) * -1e9),
        "a large negative number is not −∞",
    ),
    (
        "masked_softmax",
        lambda S, mask: F.softmax(S, dim=-1) * mask,
        "rows do not sum to 1",
    ),
    ("attention", F.scaled_dot_product_attention, "right"),
    (
        "attention",
        lambda Q, K, V, mask: (
            F.softmax(scores_of(Q, K).masked_fill(~mask, float("-inf")), -1) @ V
        ),
        "NaN for a query that sees nothing",
    ),
    (
        "attention",
        lambda Q, K, V, mask: (
            F.softmax(scores_of(Q, K).masked_fill(mask == 0, -1e9), -1) @ V
        ),
        "all values averaged for a query that sees nothing",
    ),
    ("causal_mask", lambda n, m: np.tril(np.ones((n, m))), "aligned upper left"),
    (
        "causal_mask",
        lambda n, m: torch.triu(torch.ones(n, m), 1).bool(),
        "sees the future",
    ),
    (
        "causal_mask",
        lambda n, m: torch.tril(torch.ones(n, m), -1) > 0,
        "a token does not see itself",
    ),
    (
        "sinusoidal_encoding",
        lambda n, d: written_into(
            torch.zeros(n, d),
            torch.arange(n)[:, None]
            * torch.exp(torch.arange(0, d, 2) * (-math.log(10000.0) / d)),
        ),
        "fails for odd d",
    ),
    (
        "split",
        lambda X, n_heads: X.reshape(n_heads, X.shape[0], -1),
        "reshaped in place of transposed",
    ),
]


def low(how, number):
    """Weights under a mask of a number for −∞: in place of a score, added to it, or with what is hidden put to 0."""

    def mine(S, mask):
        hidden = np.where(mask, S, number)
        if how == "added":
            hidden = np.nan_to_num(S) + np.where(mask, 0, number).astype(S.dtype)
        weights = an.softmax(hidden)
        empty = ~mask.any(-1, keepdims=True)
        return weights * {"put to 0": mask, "but for empty rows": ~empty}.get(how, 1)

    return "masked_softmax", mine, "a large negative number is not −∞"


WILD += [
    low(how, number)
    for how in ("in place", "added", "put to 0", "but for empty rows")
    for number in (-30, -100, -1e3, -5e3, -1e4)
]
WILD += [
    ("window_mask", lambda n, width: EXERCISES["window_mask"].right(n, width + 1), "`width` + 1"),
    ("scaled_dot_score", lambda Q, K: Q @ K.mT * Q.shape[-1] ** 0.5, "a constant factor"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "fn", "title"), WILD)
def test_what_people_write(name, fn, title):
    assert EXERCISES[name].examine(fn).title == title


# The command.


def test_the_list(capsys):
    assert main([]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Chapter 1\n  gaussian_kernel(Q, K, bandwidth): ")
    assert "\n\nChapter 6\n" in out
    for exercise in EXERCISES.values():
        assert f"  {exercise.statement}\n" in out


SOLUTIONS = """
import numpy as np
from attn_tutor.numpy import causal_mask  # not this file's own

def my_softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)

def scaled_dot_score(Q, K):
    return Q @ K.mT
"""


def test_a_file(tmp_path, capsys):
    file = tmp_path / "solutions.py"
    file.write_text(SOLUTIONS)
    assert main([str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "✓ my_softmax        right"
    assert lines[1] == "✗ scaled_dot_score  a constant factor"
    assert lines[3].startswith("✗ scaled_dot_score (NumPy): a constant factor")
    left = len(EXERCISES) - 2
    assert lines[-2] == f"1 of 2 right; exercises: {left + 2}, not begun: {left}"
    file.write_text(SOLUTIONS.replace("K.mT", "K.mT * Q.shape[-1] ** -0.5"))
    assert main([str(file)]) == 0
    assert "✗" not in capsys.readouterr().out


def test_a_notebook(tmp_path, capsys):
    """Its functions are checked; what trains or draws in it does not run."""
    file = tmp_path / "03.ipynb"
    more = "%matplotlib inline\neps = 0.0\n1 / 0\nfor x in 3: pass\ndef late(n=d): pass"
    cells = [("code", SOLUTIONS), ("markdown", "def softmax(x"), ("code", more)]
    notebook = {"cells": [{"cell_type": a, "source": [b]} for a, b in cells]}
    file.write_text(json.dumps(notebook))
    assert main([str(file)]) == 1
    out = capsys.readouterr().out
    assert out.startswith(
        "✓ my_softmax        right\n✗ scaled_dot_score  a constant factor"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no file"),
        ("def softmax(x:", "does not run: SyntaxError"),
        ("1 / 0", "does not run: ZeroDivisionError"),
        ("def unheard_of(x): return x", "defines no function with the name"),
        ("import sys; sys.exit()", "ends itself with exit()"),
        ("def softmax(x): return x\nexit(0)", "ends itself with exit()"),
        ("import os; os._exit(0)", "ends itself with exit()"),
        (
            "from attn_tutor.numpy import softmax",
            "skipped `softmax`: it is imported from attn_tutor.numpy._softmax",
        ),
    ],
)
def test_files_that_cannot_be_checked(tmp_path, capsys, text, message):
    file = tmp_path / "solutions.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SystemExit) as stop:
        main([str(file)])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_solution_that_ends_the_program_is_wrong_and_the_rest_is_checked(
    tmp_path, capsys
):
    file = tmp_path / "solutions.py"
    file.write_text(
        SOLUTIONS.replace("e = np.exp", "import os; os._exit(0); e = np.exp")
    )
    assert main([str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "✗ my_softmax        raises SystemExit"
    assert "0 of 2 right" in lines[-2]


def test_a_loop_that_is_late_is_stopped():
    turns = [0]

    def endless(x):
        while True:
            turns[0] += 1

    assert "takes too long" in text_of(check.softmax, endless, seconds=0.05)
    for _ in range(100):
        before = turns[0]
        time.sleep(0.01)
        if turns[0] == before:
            return
    raise AssertionError("it goes on")


def test_a_solution_that_prints_is_cut(tmp_path, capsys):
    file = tmp_path / "solutions.py"
    file.write_text(SOLUTIONS.replace("    e =", "    print(x)\n    e ="))
    main([str(file)])
    out = capsys.readouterr().out
    assert out.startswith("[[") and out.count("is left out") == 1
    assert len(out.partition("✓")[0]) < 700


MADE = """
from functools import partial
import numpy as np
from torch.nn.functional import layer_norm

def row(x):
    e = np.exp(x - x.max())
    return e / e.sum()

def score(Q, K, root):
    return Q @ K.mT / (Q.shape[-1] ** 0.5 if root else 1)

softmax = np.vectorize(row, signature="(n)->(n)")
scaled_dot_score = partial(score, root=False)
"""


def test_what_is_made_of_other_functions_is_checked_and_what_is_imported_is_named(
    tmp_path, capsys
):
    file = tmp_path / "solutions.py"
    file.write_text(MADE)
    assert main([str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("✓ softmax ")
    assert lines[1] == "✗ scaled_dot_score  a constant factor"
    assert lines[-1] == "skipped `layer_norm`: it is imported from torch.nn.functional"


def test_a_loop_at_top_level(tmp_path, capsys, monkeypatch):
    """The loop looks at a module of ours, so that the test can end it."""
    monkeypatch.setattr("attn_tutor.check.__main__.SECONDS", 0.2)
    over = types.ModuleType("over")
    over.event = threading.Event()
    monkeypatch.setitem(sys.modules, "over", over)
    file = tmp_path / "solutions.py"
    file.write_text("import over\nover.event.wait()\ndef softmax(x): return x")
    with pytest.raises(SystemExit) as stop:
        main([str(file)])
    over.event.set()
    assert stop.value.code == 2
    assert "Is there a loop that never ends" in capsys.readouterr().err


def test_a_misspelt_name(tmp_path, capsys):
    file = tmp_path / "solutions.py"
    good = SOLUTIONS.replace("K.mT", "K.mT * Q.shape[-1] ** -0.5")
    file.write_text(f"{good}\ndef masked_sofmax(scores, mask): return scores")
    assert main([str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("✓") and "2 of 2 right" in lines[-3]
    assert lines[-1] == "no exercise `masked_sofmax`; did you mean masked_softmax?"
    file.write_text("def my_layernorm(X, gain, shift): return X")
    assert main([str(file)]) == 1
    assert "did you mean layer_norm?" in capsys.readouterr().out


def test_a_helper_with_a_name_like_that_of_an_exercise_is_no_misspelling(tmp_path):
    file = tmp_path / "solutions.py"
    good = SOLUTIONS.replace("K.mT", "K.mT * Q.shape[-1] ** -0.5")
    file.write_text(f"{good}\ndef softmax2(x): return my_softmax(x)")
    assert main([str(file)]) == 0


def test_the_command_itself():
    run = [sys.executable, "-m", "attn_tutor.check"]
    done = subprocess.run(run, capture_output=True, encoding="utf-8", check=True)
    assert "masked_softmax(scores, mask): " in done.stdout
