"""The shipped data: the published figures, and an error with its line for every kind of malformed file."""

from __future__ import annotations

import hashlib
import re
import string

import numpy as np
import pytest

from attn_tutor.data import (
    load_book,
    load_capitals,
    load_cars,
    load_reactions,
    load_texts,
)
from attn_tutor.data.cars import COLUMNS

HEADER = ",".join(COLUMNS)
CIVIC = "Honda Civic,30.4,4,75.7,52,4.93,1.615,18.52,1,1,4,2"

# Means and standard deviations (n - 1) as every statistics text prints them for these cars.
SUMMARIES = {
    "mpg": (20.090625, 6.026948),
    "cylinders": (6.1875, 1.785922),
    "displacement": (230.721875, 123.938694),
    "horsepower": (146.6875, 68.562868),
    "axle_ratio": (3.5965625, 0.534679),
    "weight": (3.21725, 0.978457),
    "quarter_mile": (17.84875, 1.786943),
    "straight_engine": (0.4375, 0.504016),
    "manual": (0.40625, 0.498991),
    "gears": (3.6875, 0.737804),
    "carburettors": (2.8125, 1.615200),
}

CARS = {
    "Mazda RX4": (21.0, 6, 160.0, 110, 3.90, 2.620, 16.46, 0, 1, 4, 4),
    "Merc 240D": (24.4, 4, 146.7, 62, 3.69, 3.190, 20.00, 1, 0, 4, 2),
    "Lincoln Continental": (10.4, 8, 460.0, 215, 3.00, 5.424, 17.82, 0, 0, 3, 4),
    "Maserati Bora": (15.0, 8, 301.0, 335, 3.54, 3.570, 14.60, 0, 1, 5, 8),
    "Volvo 142E": (21.4, 4, 121.0, 109, 4.11, 2.780, 18.60, 1, 1, 4, 2),
}


@pytest.fixture
def write(tmp_path):
    def _write(text: str | bytes):
        path = tmp_path / "mine.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return _write


def test_columns_and_types():
    cars = load_cars()
    assert tuple(cars) == COLUMNS
    assert len(set(cars["name"])) == 32
    assert cars["name"].dtype.kind == "U"
    for column in COLUMNS[1:]:
        assert cars[column].dtype == np.float64
        assert cars[column].shape == (32,)


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_summaries(column):
    mean, deviation = SUMMARIES[column]
    figures = load_cars()[column]
    np.testing.assert_allclose(figures.mean(), mean, rtol=1e-12)
    np.testing.assert_allclose(figures.std(ddof=1), deviation, atol=5e-7)


@pytest.mark.parametrize("name", CARS)
def test_single_cars(name):
    cars = load_cars()
    row = list(cars["name"]).index(name)
    assert tuple(cars[column][row] for column in COLUMNS[1:]) == CARS[name]


def test_changing_the_arrays_does_not_change_the_next_load():
    load_cars()["mpg"][0] = -1
    assert load_cars()["mpg"][0] == 21.0


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_reads_a_file_of_the_reader(write, line_end):
    quoted = '"Citroën, DS",20,4,133,100,3.5,2.9,19,1,1,4,2'
    text = line_end.join(
        ["\ufeff# mine", HEADER, "", CIVIC, "# a comment between", quoted]
    )
    cars = load_cars(write(text))
    assert list(cars["name"]) == ["Honda Civic", "Citroën, DS"]
    np.testing.assert_array_equal(cars["mpg"], [30.4, 20.0])
    np.testing.assert_array_equal(cars["carburettors"], [2.0, 2.0])


def test_a_file_with_one_car_gives_arrays_of_one(write):
    cars = load_cars(str(write(f"{HEADER}\n{CIVIC}")))
    assert cars["name"].shape == cars["weight"].shape == (1,)
    assert cars["weight"][0] == 1.615


# text or bytes of the file, and the message after the file's name
MALFORMED = {
    "too few fields": (
        f"# c\n{HEADER}\nFiat,1,2\n",
        "line 3: got 3 fields, expected 12",
    ),
    "too many fields": (f"{HEADER}\n{CIVIC},9\n", "line 2: got 13 fields, expected 12"),
    "not a number": (
        f"{HEADER}\n{CIVIC.replace('1.615', 'heavy')}\n",
        "line 2: got weight 'heavy', expected a number",
    ),
    "empty number": (
        f"{HEADER}\n{CIVIC.replace('30.4', '')}\n",
        "line 2: got mpg '', expected a number",
    ),
    "nan": (
        f"{HEADER}\n{CIVIC.replace('52', 'nan')}\n",
        "line 2: got horsepower 'nan', expected a finite",
    ),
    "infinite": (
        f"{HEADER}\n{CIVIC.replace('52', '-inf')}\n",
        "line 2: got horsepower '-inf', expected",
    ),
    "no header": (f"\n{CIVIC}\n", "line 2: got the header Honda Civic,30.4"),
    "missing column": (
        HEADER.replace("weight,", ""),
        "line 1: got the header .*missing: weight.*, expected name,mpg",
    ),
    "misspelt column": (
        HEADER.replace("gears", "gear"),
        "line 1: got the header .*missing: gears",
    ),
    "columns swapped": (
        HEADER.replace("mpg,cylinders", "cylinders,mpg"),
        "line 1: got .*missing: nothing",
    ),
    "same name": (
        f"{HEADER}\n{CIVIC}\n{CIVIC}\n",
        "line 3: got a second car named 'Honda Civic', expected",
    ),
    "open quote": (
        f'{HEADER}\n"{CIVIC}\n{CIVIC}\n',
        "line 2: got .*Honda.*expected .* closed quotes",
    ),
    "text after a quote": (
        f'{HEADER}\n"Honda" Civic,1\n',
        "line 2: got .*expected .* closed quotes",
    ),
    "not UTF-8": (
        HEADER.encode() + b"\nCitro\xebn,1\n",
        "line 2: got byte 0xeb, expected UTF-8 text",
    ),
    "header only": (
        f"{HEADER}\n# no cars\n",
        "got a header and no cars, expected .* one car",
    ),
    "comments only": ("# nothing\n", "got no header, expected the header name,"),
    "empty": ("", "got no header, expected the header name,"),
}


@pytest.mark.parametrize(("text", "message"), MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_file_is_refused_with_its_name_and_line(write, text, message):
    path = write(text)
    with pytest.raises(ValueError, match=re.escape(str(path)) + r"(:|,) " + message):
        load_cars(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.csv"):
        load_cars(tmp_path / "nowhere.csv")


def test_the_text_is_frozen():
    """Trained models and their outputs in the book depend on each character."""
    text = load_book()
    digest = hashlib.sha256(text.encode("ascii")).hexdigest()
    assert digest.startswith("a071536dde8514bb05eaca99620ee3e0")
    assert len(text) == 61271
    assert set(text) <= set(string.ascii_letters + string.digits + " \n\"'(),-.:;?")
    assert len(set(text)) == 73


def test_the_text_is_prose_of_the_book():
    """Most of it is sentences; it was taken from chapters that have been edited since."""
    lines = load_book().split("\n")
    assert lines[-1] == "" and all(line[0].isalnum() for line in lines[:-1])
    assert all(line[-1] in ".?" for line in lines[:-1])
    assert load_book().lower().count("attention") > 50


ATOM = re.compile(r"\[[^]]+]|Br|Cl|[A-Za-z]")


@pytest.mark.parametrize("reaction", load_reactions(), ids=lambda x: x.smiles)
def test_a_mapping_keeps_elements_and_uses_no_atom_twice(reaction):
    before, after = (ATOM.findall(part) for part in reaction.smiles.split(">>"))
    assert len(reaction.mapping) == len(after) == len(set(reaction.mapping))
    kept = [before[i].upper() for i in reaction.mapping]
    assert kept == [atom.upper() for atom in after]


def test_there_are_five_reactions_of_each_of_ten_kinds():
    kinds = [reaction.kind for reaction in load_reactions()]
    assert len(set(kinds)) == 10 and {kinds.count(kind) for kind in kinds} == {5}
    assert len({reaction.smiles for reaction in load_reactions()}) == 50


def test_the_texts_are_of_six_kinds() -> None:
    texts = load_texts()
    kinds = [kind for kind, _ in texts]
    assert len({text for _, text in texts}) == 24
    assert all(kinds.count(kind) == 4 for kind in kinds) and len({*kinds}) == 6
    assert any("\n" in text for _, text in texts)  # code has lines
    assert not any("\r" in text for _, text in texts)


def test_each_country_has_a_capital_of_its_own() -> None:
    capitals = load_capitals()
    assert len(capitals) == len({*capitals.values()}) == 43
    assert capitals["Kenya"] == "Nairobi" and not any(" " in x for x in capitals)
