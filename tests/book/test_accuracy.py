"""The book's table of accuracy holds: measured again in single precision, where it can be done in seconds."""

import accuracy
import pytest


def shown():
    lines = accuracy.TABLE.read_text(encoding="utf-8").splitlines()[2:]
    rows = [line.strip("|` ").replace("`", "").split(" | ") for line in lines]
    return {(name, half): cells for name, half, *cells in rows}


def test_every_function_has_its_row_in_both_halves():
    assert set(shown()) == {
        (name, half) for name in accuracy.FUNCTIONS for half in accuracy.HALVES
    }


@pytest.mark.parametrize("half", accuracy.HALVES)
@pytest.mark.parametrize("name", accuracy.FUNCTIONS)
def test_single_precision_is_as_accurate_as_shown(name, half, monkeypatch):
    monkeypatch.setattr(accuracy, "SEEDS", 1)  # the first of two
    found = accuracy.errors(name, accuracy.HALVES[half], "float32")
    cells = [float(cell) for cell in shown()[name, half][:2]]
    for error, cell in zip(found, cells, strict=True):
        assert cell / 2.5 < error < 2.5 * cell  # of which one digit is shown
    assert found[0] < 2e-6


def test_half_precision_is_no_worse_than_the_textbook():
    """Sums are wider there; as shown, to one digit."""
    for cells in shown().values():
        for ours, textbook in zip(cells[2::2], cells[3::2], strict=True):
            assert ours == textbook == "–" or float(ours) <= 1.5 * float(textbook)
