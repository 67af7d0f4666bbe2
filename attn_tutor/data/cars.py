"""The 32 cars of the 1974 Motor Trend road tests: real data for attention pooling."""

from __future__ import annotations

import csv
from importlib.resources import files
from os import PathLike
from pathlib import Path

import numpy as np

__all__ = ["load_cars"]

COLUMNS = (
    "name",
    "mpg",
    "cylinders",
    "displacement",
    "horsepower",
    "axle_ratio",
    "weight",
    "quarter_mile",
    "straight_engine",
    "manual",
    "gears",
    "carburettors",
)


def load_cars(path: str | PathLike[str] | None = None) -> dict[str, np.ndarray]:
    """Read the cars: one array a column, one entry a car.

    The figures are those of Henderson and Velleman (1981).

    Args:
        path: a CSV file with the same columns; None reads the file that comes with the package.

    Returns:
        A dict from column name to array. ``"name"`` holds strings, every other column float64:
        ``"mpg"`` (miles per US gallon), ``"cylinders"``, ``"displacement"`` (cubic inches), ``"horsepower"``,
        ``"axle_ratio"``, ``"weight"`` (1000 lb), ``"quarter_mile"`` (seconds), ``"straight_engine"``
        (1 straight, 0 V), ``"manual"`` (1 manual, 0 automatic), ``"gears"`` and ``"carburettors"``.

    Raises:
        ValueError: if the file is malformed; the message says where, what was got and what was expected.
        FileNotFoundError: if there is no file at ``path``.

    Example:
        >>> cars = load_cars()
        >>> print(cars["name"][17], cars["mpg"][17], cars["weight"][17])
        Fiat 128 32.4 2.2
    """
    source = files(__package__) / "cars.csv" if path is None else Path(path)
    header_seen = False
    names: list[str] = []
    rows: list[list[float]] = []
    # One line is one record, so that an error is on the line it names; bytes split on line ends only.
    for number, line in enumerate(source.read_bytes().splitlines(), 1):
        try:
            fields = _fields(line)
            if not fields:
                continue
            if not header_seen:
                _check_header(fields)
                header_seen = True
                continue
            name, figures = _car(fields)
            if name in names:
                raise ValueError(
                    f"got a second car named {name!r}, expected each name once"
                )
        except ValueError as error:
            raise ValueError(f"{source}, line {number}: {error}") from None
        names.append(name)
        rows.append(figures)
    if not rows:
        got, expected = (
            "a header and no cars" if header_seen else "no header",
            ",".join(COLUMNS),
        )
        raise ValueError(
            f"{source}: got {got}, expected the header {expected} and at least one car"
        )
    return {"name": np.array(names)} | dict(
        zip(COLUMNS[1:], np.array(rows).T.copy(), strict=True)
    )


def _fields(line: bytes) -> list[str]:
    """Split one line; a comment or a blank line has no fields."""
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"got byte {line[error.start]:#04x}, expected UTF-8 text"
        ) from None
    if text.startswith("#"):
        return []
    try:
        return next(csv.reader([text], strict=True))
    except csv.Error as error:
        raise ValueError(
            f"got {text!r}, expected fields with closed quotes ({error})"
        ) from None


def _check_header(fields: list[str]) -> None:
    if tuple(fields) != COLUMNS:
        missing = (
            ", ".join(column for column in COLUMNS if column not in fields) or "nothing"
        )
        got, expected = ",".join(fields), ",".join(COLUMNS)
        raise ValueError(
            f"got the header {got} (missing: {missing}), expected {expected}"
        )


def _car(fields: list[str]) -> tuple[str, list[float]]:
    """Turn the fields of one line into a name and its figures."""
    if len(fields) != len(COLUMNS):
        raise ValueError(f"got {len(fields)} fields, expected {len(COLUMNS)}")
    figures = []
    for column, field in zip(COLUMNS[1:], fields[1:], strict=True):
        try:
            figure = float(field)
        except ValueError:
            raise ValueError(f"got {column} {field!r}, expected a number") from None
        if not np.isfinite(figure):
            raise ValueError(f"got {column} {field!r}, expected a finite number")
        figures.append(figure)
    return fields[0], figures
