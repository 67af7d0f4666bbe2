"""What `make mutants` would replace is there; to try them takes minutes, too long for every run."""

import mutants
import pytest


@pytest.mark.parametrize(
    "wrong", mutants.LISTED, ids=lambda it: f"{it.where}-{it.name}"
)
def test_each_wrong_implementation_replaces_a_function(wrong):
    for half in wrong.halves:
        holder, name = mutants.place(wrong, half)
        assert callable(getattr(holder, name))
