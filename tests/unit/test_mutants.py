"""The changes that `make mutants` tries are possible: it takes half an hour, too long for every run of the tests."""

from pathlib import Path

import mutants

PACKAGE = Path(__file__).parents[2] / "attn_tutor"


def test_each_mutant_changes_one_place() -> None:
    found = mutants.mutants(PACKAGE)
    assert len(found) == len(set(found)) > 200
