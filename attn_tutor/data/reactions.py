"""Fifty chemical reactions of ten kinds, each with the mapping of its atoms, to judge a model that aligns them."""

import csv
from importlib.resources import files
from typing import NamedTuple

__all__ = ["Reaction", "load_reactions"]


class Reaction(NamedTuple):
    """A reaction whose atoms are known one by one.

    Args:
        kind: such as "ester".
        smiles: reactants, ``>>``, product, in the line notation of chemistry; hydrogen is left out.
        mapping: for each atom of the product, in the order written, its number among those of the reactants, from 0.
    """

    kind: str
    smiles: str
    mapping: tuple[int, ...]


def load_reactions() -> list[Reaction]:
    """Read the reactions, written for this book: five of each kind, textbook steps between small molecules.

    No atom of the product could stand for another of its reactant, so that each mapping is the only right one. What
    leaves, such as water, is not written. The mapping follows from the kind (an ester keeps the oxygen of the alcohol).

    Example:
        >>> kind, smiles, mapping = load_reactions()[10]
        >>> kind, smiles, mapping
        ('ester', 'CC(=O)O.OCC>>CCOC(C)=O', (6, 5, 4, 1, 0, 2))
    """
    text = (files(__package__) / "reactions.csv").read_text(encoding="utf-8")
    return [
        Reaction(row["kind"], row["reaction"], tuple(map(int, row["mapping"].split())))
        for row in csv.DictReader(text.splitlines())
    ]
