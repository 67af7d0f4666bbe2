"""The shape ledger of the reference: complete, and with the shapes that the code itself gives."""

import importlib
import re

import pytest
import shape_ledger
from public_names import commands, everything, sections

LEDGER = shape_ledger.ledger()
PACKAGES = [f"attn_tutor.{name}" for name in shape_ledger.PACKAGES]


@pytest.mark.parametrize("package", PACKAGES)
def test_holds_every_public_name(package: str) -> None:
    offered = {
        f"{place}.{name}" for place, _, things in everything(package) for name in things
    }
    linked = set(re.findall(rf"<({package}\.[\w.]+)>", LEDGER))
    assert offered and offered - linked == set()


def test_holds_every_checker_with_its_statement() -> None:
    exercises = importlib.import_module("attn_tutor.check").EXERCISES
    for name, exercise in exercises.items():
        [line] = re.findall(
            rf"^\| .*<attn_tutor\.check\.{name}>.*", LEDGER, re.MULTILINE
        )
        assert exercise.statement.partition(": ")[0] in line


def test_holds_every_method_and_command() -> None:
    for row in ("MultiHeadAttention.forward", "MultiHeadAttention.to_torch"):
        assert f"| `{row}` |" in LEDGER
    assert "| `KVCache.append` |" in LEDGER
    assert "._" not in LEDGER
    named = ["bench", "check", "failures", "live"]
    assert commands() == [f"attn_tutor.{name}" for name in named]
    assert all(f"| `python -m {name}` |" in LEDGER for name in commands())


def test_nothing_in_it_depends_on_the_run() -> None:
    assert "0x" not in LEDGER
    assert "kernel=gaussian_kernel" in LEDGER


def one(X, n, *, scale=None):
    """Do one thing.

    Args:
        X: tokens, (…, n, d).

    Returns:
        Weights, (…, n, n), and what is left, (b,).

    Raises:
        ValueError: X is not (n, d).
    """


def two(X, n, *, scale=None, device=None):
    """(…, n, d) -> (…, n, n)."""


class Three:
    """A layer."""

    def __init__(self, d: int = 1) -> None:
        self.d = d

    def forward(self, X: int) -> int:
        """(n, d) -> (n). Once."""
        return X

    def _hidden(self) -> None: ...


def test_what_comes_out_has_the_shapes_of_the_docstring() -> None:
    assert shape_ledger.shapes(one) == "`-> (…, n, n), (b,)`"
    assert shape_ledger.shapes(two) == ""


def test_a_decorated_function_says_its_shapes_itself() -> None:
    softmax = importlib.import_module("attn_tutor.numpy").softmax
    assert shape_ledger.shapes(softmax) == f"`{softmax.__shapes__}`" == "`(m)->(m)`"


def test_signatures_have_no_types_and_the_other_half_its_extras() -> None:
    assert shape_ledger.signature(Three) == "`(d=1)`"
    assert shape_ledger.extras(one, [two]) == " torch also takes `device=None`."
    assert shape_ledger.extras(one, [one]) == ""


def test_a_class_has_a_row_for_each_public_method() -> None:
    first, second = shape_ledger.rows("Three", {"data": Three})
    assert first.endswith("<attn_tutor.data.Three>` | `(d=1)` <br> A layer. |")
    assert second == "| `Three.forward` | `(X)` <br> (n, d) -> (n). Once. |"


def test_sections_follow_the_chapters_and_the_source() -> None:
    found = {
        name.rpartition(".")[2].lstrip("_"): list(things)
        for name, things in sections("attn_tutor.numpy").items()
    }
    assert list(found)[:5] == ["scoring", "kernels", "masks", "rules", "softmax"]
    assert found["softmax"] == ["softmax", "masked_softmax", "normalize"]
