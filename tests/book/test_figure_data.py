"""The records of figures: a picture that shows something else differs, the same picture does not."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import figure_data
import nbformat
import notebooks
import numpy as np
import pytest
from matplotlib import pyplot as plt
from nbclient import NotebookClient

from attn_tutor.figures import head_view

X = np.arange(12.0).reshape(4, 3) ** 1.5
CODE = "from matplotlib import pyplot as plt\n_ = plt.plot([3, 1, 2])"


def draw(
    line: np.ndarray = X[:, 0],
    image: np.ndarray = X,
    dots: np.ndarray = X[:, :2],
    sizes: np.ndarray = X[:, 2],
    bars: np.ndarray = X[0],
    field: np.ndarray = X,
    label: str = "time",
    name: str = "a line",
) -> None:
    top, bottom = plt.subplots(2)[1]
    top.plot(line, label=name), top.bar(range(3), bars)
    top.set_xlabel(label), top.legend()
    bottom.imshow(image), bottom.scatter(*dots.T, s=sizes)
    bottom.contour(field, [5, 20])


@pytest.fixture(autouse=True)
def close() -> Iterator[None]:
    yield
    plt.close("all")


def record(**changes: object) -> list[dict[str, list[str]]]:
    draw(**changes)
    return shown()


def shown() -> list[dict[str, list[str]]]:
    found = figure_data.watch(plt.gcf())
    plt.savefig(io.BytesIO(), dpi=200, bbox_inches="tight")  # as a notebook does
    plt.close()
    return found


@pytest.fixture(scope="module")
def old() -> list[dict[str, list[str]]]:
    return record()


def test_the_same_figure_has_the_same_record(old: Any) -> None:
    assert record() == old
    assert figure_data.differences(old, record(line=X[:, 0] * 1.001)) == []


@pytest.mark.parametrize(
    "change",
    [
        {"line": X[::-1, 0]},
        {"line": X[:, 1]},
        {"line": X[:3, 0]},
        {"image": X.T.reshape(4, 3)},
        {"dots": X[:, 1::-1]},
        {"sizes": X[:, 1]},
        {"bars": X[0] * 1.1},
        {"field": X[::-1]},
        {"label": "money"},
        {"name": "another"},
        {"image": np.where(X < 5, X, np.nan)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_figure_has_another_record(old: Any, change: dict[str, object]) -> None:
    assert figure_data.differences(old, record(**change)) != []


def test_heat_maps_have_their_places_with_bars_and_legends() -> None:
    """Lines and the scale of dots have none; a filled contour is as large as its axes at most."""
    left, right = plt.subplots(1, 2, layout="constrained")[1]
    dots = left.scatter(*X[:, :2].T, c=X[:, 2])
    plt.colorbar(dots)
    plt.colorbar(right.contourf(X), label="height")
    right.bar(0, 1, label="a patch"), right.legend()
    plt.gcf().legend(loc="outside upper center")
    [dotted, maps, *bars] = shown()
    assert not any("heat_maps" in each for each in [dotted, *bars])
    boxes = ([float(x) for x in box.split()] for box in maps["heat_maps"])
    field, scale, patch, above = boxes
    assert above[0] < above[2] < 0.7 and above[3] < field[1]
    assert 0.5 < field[0] < field[2] < scale[0] < scale[2] < 1
    assert field[1] == scale[1] and field[3] == scale[3]
    assert field[0] < patch[0] < patch[2] < field[2]
    assert field[1] < patch[1] < patch[3] < field[3]


def test_a_heat_map_that_moved_is_seen(old: Any) -> None:
    _, bottom = old
    places = [bottom["heat_maps"][0].replace("0.", "0.1", 1)]
    moved = [old[0], bottom | {"heat_maps": places}]
    assert figure_data.differences(old, moved) == [
        "axes 1: a heat map at another place"
    ]
    assert figure_data.differences([old[0], bottom | {"heat_maps": []}], old) != []


def test_a_lost_or_added_panel_or_line_is_seen(old: Any) -> None:
    assert figure_data.differences(old, old[:1]) == ["1 axes, and 2 on record"]
    lacking = [old[0] | {"numbers": old[0]["numbers"][1:]}, old[1]]
    assert figure_data.differences(old, lacking) == [
        "axes 0: another number of lines, images or dots"
    ]


def test_a_notebook_whose_figure_changed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Record two figures with the tool, then run the notebook as nbval does, with one of them changed."""
    monkeypatch.setattr(notebooks, "BOOK", tmp_path)
    path = tmp_path / "01_trial.ipynb"
    cells = [
        nbformat.v4.new_code_cell(CODE + end) for end in ("", "\n_ = plt.ylim(0, 9)")
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    with notebooks.same_everywhere():
        with monkeypatch.context() as recording:
            recording.setenv(figure_data.RECORD, "yes")
            notebooks.run(path)
        text = path.read_text(encoding="utf-8")
        for cell in notebooks.read(path).cells:
            [axes] = cell.metadata[figure_data.KEY]
            assert axes == {"words": [], "numbers": ["3 0 2 1 0.667", "3 1 3 2 -0.333"]}
        at = text.rindex("3, 1, 2")
        path.write_text(text[:at] + "3, 1, 4" + text[at + 7 :], encoding="utf-8")
        changed = notebooks.read(path)
        client = NotebookClient(
            changed,
            kernel_name="python3",
            allow_errors=True,
            resources={"metadata": {"path": str(tmp_path)}},
        )
        client.execute()
    errors = [[o.evalue for o in c.outputs if "evalue" in o] for c in changed.cells]
    assert errors == [
        [],
        [
            "not the figure on record: axes 0: 3 1 4 2.667 0.333, on record 3 1 3 2 -0.333; "
            "`make notebooks` records it anew"
        ],
    ]


def test_a_head_view_with_other_weights_or_words_is_seen() -> None:
    A = np.random.default_rng(0).dirichlet(np.ones(4), size=(2, 3, 4))
    old = [figure_data.of_view(head_view(A, [*"abcd"]))]
    near = [figure_data.of_view(head_view(A.round(3), [*"abcd"]))]
    assert figure_data.differences(old, near) == []
    for other in (head_view(A[..., ::-1], [*"abcd"]), head_view(A, [*"abce"])):
        assert figure_data.differences(old, [figure_data.of_view(other)]) != []
