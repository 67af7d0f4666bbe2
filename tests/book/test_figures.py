"""The pictures hold the data that they were given: cells, labels, colours, crosses, titles."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import matplotlib
import nbformat
import numpy as np
import pytest
import torch
from matplotlib import colormaps, rc_context
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgb
from nbclient import NotebookClient

from attn_tutor.figures import plot_encoding, plot_heads, plot_mask, plot_weights

WEIGHTS = np.array([[0.75, 0.25, 0.0], [0.1, 0.2, 0.7]])  # (n=2, m=3)
HEADS = np.stack(
    [
        WEIGHTS,
        WEIGHTS[::-1],
        np.roll(WEIGHTS, 1, axis=1),
        np.full((2, 3), 1 / 3),
        np.eye(2, 3),
    ]
)
LONG = ["an extraordinarily long token", "b", "c"]


@pytest.mark.parametrize("labels", [["$$", "a"], ["$x$", "$\\frac$"], ["a_{", "$$b$"]])
@pytest.mark.parametrize(
    "draw",
    [
        plot_weights,
        lambda A, *labels: plot_mask(A > 0, *labels),
        lambda A, *labels: plot_heads(A[None], *labels)[0],
    ],
)
def test_a_token_is_text_and_no_formula(draw, labels, monkeypatch):
    """It is drawn, and mathtext is not asked for it."""
    monkeypatch.setattr("matplotlib.mathtext.MathTextParser.parse", None)
    ax = draw(np.eye(2), labels, labels[::-1])
    ax.figure.canvas.draw()
    assert [x.get_text() for x in ax.get_yticklabels()] == labels


@pytest.fixture(autouse=True)
def no_window():
    before = matplotlib.get_backend()
    matplotlib.use("agg")
    yield
    plt.close("all")
    matplotlib.use(before)


def shown(ax):
    return np.asarray(ax.images[0].get_array())


def cell_texts(ax):
    return {tuple(text.get_position()): text.get_text() for text in ax.texts}


def tick_texts(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def colour_bar(ax):
    (bar,) = ax.child_axes
    return bar


def luminance(colour):
    rgb = np.array(to_rgb(colour))
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [
        0.2126,
        0.7152,
        0.0722,
    ]


def contrast(one, other):
    dark, light = sorted([luminance(one), luminance(other)])
    return (light + 0.05) / (dark + 0.05)


# Weights


def test_weights_stand_in_their_cells_with_row_0_on_top():
    ax = plot_weights(WEIGHTS)
    np.testing.assert_array_equal(shown(ax), WEIGHTS)
    # x is the column, y the row
    assert cell_texts(ax) == {
        (0, 0): "0.75", (1, 0): "0.25", (2, 0): "0",
        (0, 1): "0.10", (1, 1): "0.20", (2, 1): "0.70",
    }  # fmt: skip  # rows as they are drawn
    bottom, top = ax.get_ylim()
    assert bottom > top
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("key", "query")


def test_an_exact_zero_looks_different_from_a_small_weight():
    assert set(cell_texts(plot_weights([[0.0, 0.004, 0.996]])).values()) == {
        "0",
        "0.00",
        "1.00",
    }


def test_one_colour_is_one_weight_in_every_picture():
    small, large = (
        plot_weights([[0.1, 0.2]]).images[0],
        plot_weights([[0.4, 0.6]]).images[0],
    )
    assert small.get_clim() == large.get_clim() == (0, 1)
    assert small.cmap.name == large.cmap.name == "viridis"


@pytest.mark.parametrize(("top", "arrow"), [(0.3, "neither"), (0.5, "max")])
def test_vmax_is_the_top_of_the_scale_and_an_arrow_marks_what_is_beyond(top, arrow):
    ax = plot_weights([[top, 0.1]], vmax=0.3)
    assert ax.images[0].get_clim() == (0, 0.3)
    bar = ax.images[0].colorbar
    assert bar.extend == arrow
    assert tick_texts(colour_bar(ax).yaxis) == ["0", "0.15", "0.3"]
    assert colour_bar(ax).get_ylabel() == "weight"


@pytest.mark.parametrize("vmax", [1.0, 0.25])
def test_a_weight_can_be_read_on_its_colour(vmax):
    for row in np.linspace(0, vmax, 64).reshape(8, 8):
        ax = plot_weights(row[None], vmax=vmax)
        assert len(ax.texts) == 8
        for text, weight in zip(ax.texts, row, strict=True):
            assert (
                contrast(text.get_color(), colormaps["viridis"](weight / vmax)) >= 4.5
            )
        plt.close("all")


def test_crowded_cells_show_no_numbers():
    assert not plot_weights(np.full((30, 30), 1 / 30)).texts
    assert len(plot_weights(np.full((8, 8), 1 / 8)).texts) == 64


def test_white_lines_part_the_cells_while_they_are_large():
    rows, columns = plot_weights(WEIGHTS).collections
    assert [line.tolist() for line in rows.get_segments()] == [
        [[-0.5, 0.5], [2.5, 0.5]]
    ]
    assert [line.tolist() for line in columns.get_segments()] == [
        [[x, -0.5], [x, 1.5]] for x in (0.5, 1.5)
    ]
    assert not plot_weights(np.full((40, 40), 1 / 40)).collections


def test_labels_of_rows_and_columns():
    ax = plot_weights(
        WEIGHTS, queries=["I", "want"], keys=np.array(["to", "live", "in"])
    )
    assert tick_texts(ax.yaxis) == ["I", "want"]
    assert tick_texts(ax.xaxis) == ["to", "live", "in"]
    np.testing.assert_array_equal(ax.get_yticks(), [0, 1])
    np.testing.assert_array_equal(ax.get_xticks(), [0, 1, 2])


def test_without_labels_rows_and_columns_are_numbered_from_0():
    ax = plot_weights(WEIGHTS)
    ax.figure.draw_without_rendering()
    low, high = sorted(ax.get_xlim())
    assert [tick for tick in ax.get_xticks() if low < tick < high] == [0, 1, 2]


def test_long_key_labels_are_turned_and_short_ones_are_not():
    turned = plot_weights(WEIGHTS, keys=LONG)
    assert {label.get_rotation() for label in turned.get_xticklabels()} == {90}
    straight = plot_weights(WEIGHTS, keys="abc")
    assert {label.get_rotation() for label in straight.get_xticklabels()} == {0}


def test_turned_labels_of_many_keys_do_not_overlap():
    names = [f"a long name, number {i}" for i in range(32)]
    ax = plot_weights(np.full((1, 32), 1 / 32), keys=names)
    ax.figure.draw_without_rendering()
    boxes = [label.get_window_extent() for label in ax.get_xticklabels()]
    assert all(
        left.x1 <= right.x0 for left, right in zip(boxes, boxes[1:], strict=False)
    )


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (7, 1), (1, 50), (50, 1)])
def test_one_query_or_one_key(shape):
    weights = np.full(shape, 0.5)
    ax = plot_weights(weights)
    ax.figure.draw_without_rendering()
    np.testing.assert_array_equal(shown(ax), weights)
    box = ax.get_window_extent()
    assert 0.1 < box.height / box.width < 10  # no thin strip
    for axis, length in ((ax.xaxis, shape[1]), (ax.yaxis, shape[0])):
        ticks = [tick for tick in axis.get_ticklocs() if -0.5 <= tick <= length - 0.5]
        assert ticks[0] == 0
        assert all(tick == int(tick) for tick in ticks)


def test_the_colour_bar_is_as_high_as_the_cells_in_any_figure():
    for ax in (None, plt.subplots()[1], plt.subplots(1, 2, layout="constrained")[1][1]):
        ax = plot_weights(WEIGHTS, ax=ax)
        ax.figure.draw_without_rendering()
        bar, cells = colour_bar(ax).get_window_extent(), ax.get_window_extent()
        np.testing.assert_allclose([bar.y0, bar.y1], [cells.y0, cells.y1], atol=1)
        assert bar.x0 > cells.x1


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16]
)
def test_torch_tensors_that_require_grad(dtype):
    tensor = torch.tensor([[0.75, 0.25], [0.5, 0.5]], dtype=dtype, requires_grad=True)
    np.testing.assert_array_equal(
        shown(plot_weights(tensor)), [[0.75, 0.25], [0.5, 0.5]]
    )
    np.testing.assert_array_equal(
        shown(plot_heads(tensor[None])[0]), [[0.75, 0.25], [0.5, 0.5]]
    )
    np.testing.assert_array_equal(
        shown(plot_encoding(tensor)), [[0.75, 0.25], [0.5, 0.5]]
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_torch_tensors_on_a_gpu():
    tensor = torch.tensor(WEIGHTS, device="cuda", requires_grad=True)
    np.testing.assert_array_equal(shown(plot_weights(tensor)), WEIGHTS)
    np.testing.assert_array_equal(shown(plot_mask(tensor > 0)), WEIGHTS > 0)


def test_the_input_is_not_changed_and_the_picture_keeps_its_own_copy():
    weights = WEIGHTS.copy()
    ax = plot_weights(weights)
    np.testing.assert_array_equal(weights, WEIGHTS)
    weights[:] = 0
    np.testing.assert_array_equal(shown(ax), WEIGHTS)


# Masks


def test_mask_colours_and_crosses():
    mask = np.array([[True, False, False], [True, True, False]])
    ax = plot_mask(mask, queries="ab", keys="xyz")
    np.testing.assert_array_equal(shown(ax), mask)
    crosses = ax.lines[0]
    assert crosses.get_marker() == "x"
    assert sorted(zip(*crosses.get_data(), strict=True)) == [
        (1, 0),
        (2, 0),
        (2, 1),
    ]  # (column, row) where False
    rgba = ax.images[0].to_rgba(ax.images[0].get_array())
    assert contrast(rgba[0, 0, :3], rgba[0, 1, :3]) >= 3
    assert contrast(crosses.get_color(), rgba[0, 1, :3]) >= 4.5
    assert tick_texts(ax.yaxis) == ["a", "b"]
    assert tick_texts(ax.xaxis) == ["x", "y", "z"]


def test_mask_legend_says_which_colour_is_which():
    ax = plot_mask(np.array([[True, False]]))
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["may attend", "may not"]
    permitted, forbidden = (patch.get_facecolor() for patch in legend.get_patches())
    rgba = ax.images[0].to_rgba(ax.images[0].get_array())
    np.testing.assert_allclose(permitted, rgba[0, 0])
    np.testing.assert_allclose(forbidden, rgba[0, 1])


@pytest.mark.parametrize("value", [True, False])
def test_a_mask_of_one_kind_keeps_its_colour(value):
    mixed = plot_mask(np.array([[value, not value]])).images[0]
    plain = plot_mask(np.full((2, 2), value)).images[0]
    np.testing.assert_array_equal(
        plain.to_rgba(plain.get_array())[0, 0], mixed.to_rgba(mixed.get_array())[0, 0]
    )


def test_mask_of_torch():
    ax = plot_mask(torch.ones(3, 4, dtype=torch.bool).tril(1))
    np.testing.assert_array_equal(shown(ax), np.tri(3, 4, 1))


def test_crosses_stay_inside_small_cells():
    large, small = (
        plot_mask(np.zeros((n, n), bool)).lines[0].get_markersize() for n in (3, 60)
    )
    assert small < 72 * 3.6 / 60 < large  # a cell is 3.6 inches / 60 wide


# Heads


def test_each_head_has_its_own_panel_on_one_scale():
    axes = plot_heads(HEADS, queries=["I", "want"], keys=["to", "live", "in"])
    assert axes.shape == (5,)
    for head, ax in enumerate(axes):
        np.testing.assert_array_equal(shown(ax), HEADS[head])
        assert ax.get_title() == f"head {head}"
        assert ax.images[0].get_clim() == (0, 1)
    assert tick_texts(axes[0].yaxis) == ["I", "want"]
    assert tick_texts(axes[0].xaxis) == ["to", "live", "in"]
    assert cell_texts(plot_heads(WEIGHTS[None])[0]) == cell_texts(plot_weights(WEIGHTS))


def test_heads_share_one_colour_bar_with_an_arrow_for_any_head():
    weights = np.zeros((3, 2, 2))
    weights[0, 0, 0] = 0.5  # beyond the top in the first head only
    axes = plot_heads(weights, vmax=0.4)
    (bar,) = set(axes[0].figure.axes) - set(axes)
    assert bar.get_ylabel() == "weight"
    assert bar._colorbar.extend == "max"
    assert {ax.images[0].get_clim() for ax in axes} == {(0, 0.4)}


@pytest.mark.parametrize(("h", "m"), [(1, 3), (5, 12)])
def test_heads_stand_in_even_rows_no_wider_than_a_page(h, m):
    axes = plot_heads(np.full((h, m, m), 1 / m))
    figure = axes[0].figure
    figure.draw_without_rendering()
    boxes = [ax.get_window_extent() for ax in axes]
    rows = {}
    for box in boxes:
        rows.setdefault(round(box.y0), []).append(box)
    sizes = [len(row) for row in rows.values()]
    assert max(sizes) - min(sizes) < len(sizes)
    assert all(
        left.x1 < right.x0
        for row in rows.values()
        for left, right in zip(row, row[1:], strict=False)
    )
    assert figure.get_figwidth() <= 5.6


# Encodings


def test_encoding_is_centred_on_white():
    encoding = np.array([[0.0, 1.0, -3.0], [0.5, 0.0, 2.0]])
    ax = plot_encoding(encoding)
    image = ax.images[0]
    np.testing.assert_array_equal(shown(ax), encoding)
    assert image.get_clim() == (-3, 3)
    assert min(image.to_rgba(image.get_array())[0, 0]) > 0.95  # 0 is white
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("dimension", "position")
    assert ax.get_ylim()[0] > ax.get_ylim()[1]  # position 0 on top
    assert tick_texts(colour_bar(ax).yaxis) == ["-3", "0", "3"]


@pytest.mark.parametrize("shape", [(1, 8), (8, 1), (1, 1)])
def test_encoding_of_zeros_is_white(shape):
    ax = plot_encoding(np.zeros(shape))
    image = ax.images[0]
    assert np.all(np.asarray(image.to_rgba(image.get_array())) > 0.95)
    assert image.get_clim() == (-1, 1)
    for ticks, length in ((ax.get_xticks(), shape[1]), (ax.get_yticks(), shape[0])):
        assert {tick for tick in ticks if -0.5 <= tick <= length - 0.5} <= set(
            range(length)
        )


# All of them


PICTURES = {
    "weights": (plot_weights, WEIGHTS),
    "mask": (plot_mask, WEIGHTS > 0),
    "encoding": (plot_encoding, WEIGHTS),
}


@pytest.mark.parametrize(("plot", "data"), PICTURES.values(), ids=PICTURES)
def test_draws_into_the_axes_it_is_given(plot, data):
    figure, (left, right) = plt.subplots(1, 2)
    assert plot(data, ax=right) is right
    assert not left.images
    np.testing.assert_array_equal(shown(right), data)
    assert plt.get_fignums() == [figure.number]


@pytest.mark.parametrize(
    "plot", [*PICTURES.values(), (plot_heads, HEADS)], ids=[*PICTURES, "heads"]
)
def test_dark_on_white_whatever_the_style_of_the_reader(plot):
    function, data = plot
    with rc_context({"font.size": 5}), plt.style.context("dark_background"):
        ax = np.ravel(function(data))[0]
    figure = ax.figure
    assert figure.get_facecolor() == (1, 1, 1, 1)
    texts = [
        ax.xaxis.label,
        ax.yaxis.label,
        *ax.get_xticklabels(),
        *ax.get_yticklabels(),
    ]
    if ax.get_legend():
        texts += ax.get_legend().get_texts()
    for text in texts:
        assert contrast(text.get_color(), "white") >= 7
        assert text.get_fontsize() >= 9


def test_the_style_of_the_reader_is_left_alone():
    before = dict(matplotlib.rcParams)
    plot_weights(WEIGHTS)
    assert dict(matplotlib.rcParams) == before


NAN_IN_ROW_1 = np.where([[0, 0, 0], [0, 0, 1]], np.nan, WEIGHTS)
REFUSED = {
    "weights 1-D": (plot_weights, [0.5, 0.5], {}, ValueError, r"weights has shape \(2,\); needs \(n, m\)"),
    "weights 3-D": (plot_weights, HEADS, {}, ValueError, r"weights has shape \(5, 2, 3\); needs \(n, m\)"),
    "weights empty": (plot_weights, np.ones((0, 3)), {}, ValueError, r"weights has shape \(0, 3\)"),
    "weights NaN": (plot_weights, NAN_IN_ROW_1, {}, ValueError, "plot_weights: weights has nan in row 1, column 2"),
    "weights inf": (plot_weights, [[0.0, np.inf]], {}, ValueError, "weights has inf in row 0, column 1"),
    "weights negative": (plot_weights, [[1.5, -0.5]], {}, ValueError, "weights has -0.5 in row 0, column 1.*softmax"),
    "weights complex": (plot_weights, [[1j]], {}, TypeError, "plot_weights: weights must be real numbers; got complex"),
    "weights text": (plot_weights, [["a"]], {}, TypeError, "plot_weights: weights must be real numbers; got"),
    "vmax 0": (plot_weights, WEIGHTS, {"vmax": 0}, ValueError, "plot_weights: vmax is 0; needs a weight above 0"),
    "queries": (plot_weights, WEIGHTS, {"queries": "abc"}, ValueError, "plot_weights: queries has 3 labels; needs 2"),
    "keys": (plot_weights, WEIGHTS, {"keys": "ab"}, ValueError, "plot_weights: keys has 2 labels; needs 3"),
    "no keys": (plot_weights, WEIGHTS, {"keys": []}, ValueError, "plot_weights: keys has 0 labels; needs 3"),
    "mask float": (plot_mask, WEIGHTS, {}, TypeError, "plot_mask: masks are boolean, True = may attend; got float64"),
    "mask int": (plot_mask, np.eye(2, dtype=int), {}, TypeError, "plot_mask: masks are boolean.*got int"),
    "mask 3-D": (plot_mask, HEADS > 0, {}, ValueError, r"plot_mask: mask has shape \(5, 2, 3\); needs \(n, m\)"),
    "mask queries": (plot_mask, WEIGHTS > 0, {"queries": "a"}, ValueError, "plot_mask: queries has 1 labels; needs 2"),
    "mask keys": (plot_mask, WEIGHTS > 0, {"keys": "a"}, ValueError, "plot_mask: keys has 1 labels; needs 3"),
    "heads 2-D": (plot_heads, WEIGHTS, {}, ValueError, r"plot_heads: weights has shape \(2, 3\); needs \(h, n, m\)"),
    "heads none": (plot_heads, HEADS[:0], {}, ValueError, r"plot_heads: weights has shape \(0, 2, 3\)"),
    "heads NaN": (plot_heads, [WEIGHTS, NAN_IN_ROW_1], {}, ValueError, "weights has nan in head 1, row 1, column 2"),
    "heads vmax": (plot_heads, HEADS, {"vmax": np.nan}, ValueError, "plot_heads: vmax is nan"),
    "heads queries": (plot_heads, HEADS, {"queries": "abcde"}, ValueError, "plot_heads: queries has 5 .* needs 2"),
    "heads keys": (plot_heads, HEADS, {"keys": "ab"}, ValueError, "plot_heads: keys has 2 labels; needs 3"),
    "encoding 1-D": (plot_encoding, [1.0], {}, ValueError, r"plot_encoding: encoding has shape \(1,\); needs \(n, d\)"),
    "encoding NaN": (plot_encoding, NAN_IN_ROW_1, {}, ValueError, "plot_encoding: encoding has nan in row 1, column 2"),
    "encoding complex": (plot_encoding, [[1j]], {}, TypeError, "plot_encoding: encoding must be real numbers"),
}  # fmt: skip  # one refusal a line


@pytest.mark.parametrize(
    ("plot", "data", "options", "error", "message"), REFUSED.values(), ids=REFUSED
)
def test_wrong_arguments_are_refused_before_a_figure_is_made(
    plot, data, options, error, message
):
    with pytest.raises(error, match=message):
        plot(data, **options)
    assert not plt.get_fignums()


def test_without_matplotlib_the_error_says_what_to_install():
    code = "import sys; sys.modules['matplotlib'] = None; import attn_tutor.figures"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 1
    assert run.stderr.endswith(
        'ImportError: attn_tutor.figures needs matplotlib: pip install "attn-tutor[plot]"\n'
    )


def test_figures_do_not_load_torch():
    code = "import sys, attn_tutor.figures; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_figures_after_ours_show_in_a_notebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MPLBACKEND", raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))  # a reader's: figures not on record
    ours = "import numpy as np; from attn_tutor.figures import plot_weights; _ = plot_weights(np.eye(3))"
    theirs = "import matplotlib.pyplot as plt; _ = plt.plot([1, 2])"
    cells = [nbformat.v4.new_code_cell(code) for code in (ours, theirs)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(notebook, kernel_name="python3").execute()
    kinds = [[output.output_type for output in cell.outputs] for cell in notebook.cells]
    assert kinds == [["display_data"], ["display_data"]]
