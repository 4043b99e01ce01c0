"""Pictures are checked by what is drawn on the Axes, and by the colours that come out."""

import io
import math
import warnings

import pytest
import torch
from matplotlib import colors, pyplot
from matplotlib.figure import Figure
from matplotlib.path import Path

from attnlib.data import translations
from attnlib.plot import heatmap, lines, pattern


@pytest.fixture
def ax():
    return Figure().subplots()


def contrast(one, other):
    """Contrast of two colours by WCAG 2.1, 1 to 21."""

    def luminance(colour):
        channels = colors.to_rgb(colour)
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def hatched_cells(ax):
    """Row and column of each hatched cell."""
    shapes = [p.get_path() for p in ax.patches if p.get_hatch()]
    cells = [cell for shape in shapes for cell in shape.to_polygons()]
    boxes = [Path(cell).get_extents() for cell in cells]
    assert all((box.width, box.height) == (1, 1) for box in boxes)
    return {(round(box.y0 + 0.5), round(box.x0 + 0.5)) for box in boxes}


def numbers(ax):
    """What is written in each cell: {(row, column): text}."""
    return {(t.get_position()[1], t.get_position()[0]): t.get_text() for t in ax.texts}


def test_a_heatmap_puts_each_number_in_its_cell(ax):
    heatmap(torch.tensor([[0.0, 0.25, 1.0], [-0.5, 0.125, -0.001]]), ax=ax)
    assert numbers(ax) == {
        (0, 0): "0.00",
        (0, 1): "0.25",
        (0, 2): "1.00",
        (1, 0): "−0.50",
        (1, 1): "0.12",
        (1, 2): "0.00",
    }
    assert ax.images[0].get_array().tolist()[0] == [0.0, 0.25, 1.0]


def test_rows_run_down_and_columns_run_across(ax):
    heatmap(torch.zeros(2, 3), rows=["q0", "q1"], columns=["k0", "k1", "k2"], title="w", ax=ax)
    assert [t.get_text() for t in ax.get_yticklabels()] == ["q0", "q1"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["k0", "k1", "k2"]
    assert ax.get_title() == "w"
    assert ax.yaxis_inverted()  # matplotlib's own way is up


def test_a_blocked_cell_is_hatched_and_has_no_number(ax):
    allowed = torch.tensor([[True, False], [True, True]])
    heatmap(torch.tensor([[1.0, 2.0], [-math.inf, 4.0]]), allowed=allowed, ax=ax)
    assert hatched_cells(ax) == {(0, 1), (1, 0)}
    assert numbers(ax) == {(0, 0): "1.00", (1, 1): "4.00"}
    assert ax.images[0].get_clim() == (1.0, 4.0)  # the blocked 2 and -inf set no limit


def test_a_blocked_cell_has_no_colour_and_sets_no_limit(ax):
    allowed = torch.tensor([[True, False, True, False]])
    heatmap(torch.tensor([[1.0, 9.0, 4.0, -9.0]]), allowed=allowed, ax=ax)
    assert ax.images[0].get_array().mask.tolist() == [[False, True, False, True]]
    assert ax.images[0].get_clim() == (1.0, 4.0)


def test_thousands_of_blocked_cells_are_drawn_as_one(ax):
    allowed = torch.ones(100, 100, dtype=torch.bool).tril()
    heatmap(torch.zeros(100, 100), allowed=allowed, ax=ax)
    assert hatched_cells(ax) == {(i, j) for i in range(100) for j in range(i + 1, 100)}
    assert len(ax.patches) == 1  # one for each cell takes seconds


def test_hatching_lies_on_the_picture_and_does_not_move_it(ax):
    values = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    heatmap(values, allowed=torch.tensor([[True, False], [True, True]]), ax=ax)
    twin = heatmap(values, ax=Figure().subplots())
    assert (ax.get_xlim(), ax.get_ylim()) == (twin.get_xlim(), twin.get_ylim())
    assert ax.patches[0].get_zorder() > ax.images[0].get_zorder()
    assert ax.patches[0].get_facecolor() == (1, 1, 1, 1)
    assert hatched_cells(twin) == set()


def test_a_nan_is_written_out_even_in_a_blocked_cell(ax):
    heatmap(torch.tensor([[math.nan, 0.5]]), allowed=torch.tensor([[False, True]]), ax=ax)
    assert numbers(ax)[0, 0] == "NaN"


def test_the_limits_set_the_colours(ax):
    heatmap(torch.tensor([[0.25, 0.5]]), limits=(0, 1), ax=ax)
    assert ax.images[0].get_clim() == (0, 1)


def test_a_wide_matrix_gets_no_numbers_and_its_twin_does():
    wide, narrow = (heatmap(torch.zeros(2, n), ax=Figure().subplots()) for n in (13, 12))
    assert len(wide.texts) == 0
    assert len(narrow.texts) == 24


def test_every_number_can_be_read_on_its_colour(ax):
    values = torch.linspace(-1, 1, 12)[None]
    heatmap(values, ax=ax)
    image = ax.images[0]
    backgrounds = image.cmap(image.norm(image.get_array()[0]))
    ratios = [contrast(t.get_color(), b) for t, b in zip(ax.texts, backgrounds, strict=True)]
    assert len(ratios) == 12
    assert min(ratios) >= 4.5  # WCAG 2.1 AA


def test_the_background_is_opaque_white():
    made = heatmap(torch.zeros(1, 1))
    drawn = lines(torch.arange(2), {"y": torch.zeros(2)}, x_label="x", y_label="y")
    for figure in (made.figure, drawn.figure):
        assert figure.get_facecolor() == figure.axes[0].get_facecolor() == (1, 1, 1, 1)
        pyplot.close(figure)


def test_a_token_with_a_dollar_is_text_and_not_a_formula(ax):
    heatmap(torch.zeros(1, 2), columns=["$x^", "$$"], title="$\\frac$", ax=ax)
    ax.figure.savefig(io.BytesIO(), format="png")  # as a formula, "$\frac$" could not be drawn
    assert [t.get_text() for t in ax.get_xticklabels()] == ["$x^", "$$"]


@pytest.mark.parametrize(
    ("words", "angle"), [(["a", "the"], 0), (["a", "phone"], 45), (["a", "phone"] * 7, 90)]
)
def test_labels_turn_as_far_as_they_need_room(ax, words, angle):
    heatmap(torch.zeros(1, len(words)), columns=words, ax=ax)
    assert {label.get_rotation() for label in ax.get_xticklabels()} == {angle}


def test_the_gradient_and_a_half_precision_dtype_do_not_matter(ax):
    heatmap(torch.tensor([[0.5]], dtype=torch.bfloat16, requires_grad=True), ax=ax)
    assert numbers(ax) == {(0, 0): "0.50"}


def test_lines_draw_each_series_under_its_name(ax):
    x = torch.tensor([1.0, 2.0, 4.0])
    lines(x, {"up": 2 * x, "down": -x}, x_label="d_k", y_label="nats", title="t", ax=ax)
    up, down = ax.get_lines()
    assert up.get_xydata().tolist() == [[1, 2], [2, 4], [4, 8]]
    assert down.get_ydata().tolist() == [-1, -2, -4]
    assert [t.get_text() for t in ax.get_legend().get_texts()] == ["up", "down"]
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_title()) == ("d_k", "nats", "t")


def test_lines_differ_in_colour_dash_and_marker_and_stand_out_from_white(ax):
    x = torch.arange(2.0)
    lines(x, {str(i): x for i in range(6)}, x_label="x", y_label="y", ax=ax)
    drawn = ax.get_lines()
    dashes = {str(line._unscaled_dash_pattern) for line in drawn}  # get_linestyle says less
    for looks in (
        dashes,
        *({getattr(d, f"get_{k}")() for d in drawn} for k in ("color", "marker")),
    ):
        assert len(looks) == 6
    assert min(contrast(line.get_color(), "white") for line in ax.get_lines()) >= 3  # WCAG 1.4.11


def test_a_line_may_carry_a_gradient(ax):
    lines(
        torch.arange(2), {"y": torch.ones(2, requires_grad=True)}, x_label="x", y_label="y", ax=ax
    )
    assert ax.get_lines()[0].get_ydata().tolist() == [1, 1]


def test_one_line_needs_no_legend(ax):
    lines(torch.arange(2.0), {"y": torch.zeros(2)}, x_label="x", y_label="y", ax=ax)
    assert ax.get_legend() is None


@pytest.mark.messages
@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        (
            {"values": [[1.0]]},
            TypeError,
            "values must be a tensor, got list .*; write torch.as_tensor",
        ),
        ({"values": torch.zeros(1, 2, 3, 3)}, ValueError, r"got shape \(1, 2, 3, 3\).*weights\["),
        ({"values": torch.zeros(0, 3)}, ValueError, r"not empty, got shape \(0, 3\)"),
        ({"rows": ["a"]}, ValueError, "rows has 1 labels, but values has 2 rows"),
        ({"columns": ["a"]}, ValueError, "columns has 1 labels, but values has 3 columns"),
        ({"allowed": torch.ones(2, 3)}, ValueError, r"torch.bool of shape \(2, 3\), got torch.fl"),
        (
            {"allowed": torch.ones(1, 1, 2, 3).bool()},
            ValueError,
            r"got torch.bool \(1, 1, 2, 3\); of a 4-D mask pick .*mask\[0, 0\]",
        ),
        ({"limits": (1, 0)}, ValueError, r"low < high, got \(1, 0\)"),
    ],
)
def test_a_heatmap_refuses_what_it_cannot_show(ax, kwargs, error, message):
    with pytest.raises(error, match=message):
        heatmap(**{"values": torch.zeros(2, 3), "ax": ax, **kwargs})


@pytest.mark.messages
@pytest.mark.parametrize(
    ("x", "series", "message"),
    [
        (torch.zeros(2), {}, "1 to 6 lines, got 0"),
        (torch.zeros(2), {str(i): torch.zeros(2) for i in range(7)}, "1 to 6 lines, got 7"),
        (torch.zeros(2), {"y": torch.zeros(3)}, r"got x \(2,\) and 'y' \(3,\)"),
        (torch.zeros(2, 2), {"y": torch.zeros(2, 2)}, r"must be 1-D.*got x \(2, 2\)"),
    ],
)
def test_lines_refuse_what_they_cannot_draw(ax, x, series, message):
    with pytest.raises(ValueError, match=message):
        lines(x, series, x_label="x", y_label="y", ax=ax)


def test_a_pattern_is_drawn_and_its_pairs_are_counted(ax):
    mask = torch.tensor([[True, True, False], [False, False, True]])
    assert pattern(mask, title="who sees whom", ax=ax) is ax
    assert ax.images[0].get_array().tolist() == mask.tolist()
    assert ax.yaxis_inverted()
    assert ax.get_title() == "who sees whom"
    assert ax.get_xlabel() == "3 of 6 pairs, 50 %"
    assert hatched_cells(ax) == set()
    assert contrast(ax.get_facecolor(), "black") > 20


def test_queries_that_see_nothing_are_hatched_and_counted(ax):
    pattern(torch.ones(4, 4).bool().tril(-2), ax=ax)
    assert ax.get_xlabel() == "3 of 16 pairs, 19 %; 2 queries see nothing"
    assert hatched_cells(ax) == {(i, j) for i in (0, 1) for j in range(4)}
    pattern(torch.ones(2, 2).bool(), ax=ax)
    assert ax.images[-1].get_clim() == (0, 1)  # nothing but True is bright, too
    pattern(torch.tensor([[False], [True]]), ax=ax)
    assert ax.get_xlabel() == "1 of 2 pairs, 50 %; 1 query sees nothing"


@pytest.mark.messages
@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        ([[True]], TypeError, "mask must be a tensor, got list"),
        (torch.ones(2, 2), ValueError, r"mask must be torch.bool \(q_len, k_len\).* got torch.flo"),
        (
            torch.ones(1, 1, 2, 2).bool(),
            ValueError,
            r"\(1, 1, 2, 2\); of a 4-D mask .* mask\[0, 0\]",
        ),
        (torch.ones(0, 2).bool(), ValueError, r"and not empty, got torch.bool \(0, 2\)"),
    ],
)
def test_a_pattern_refuses_what_it_cannot_show(ax, mask, error, message):
    with pytest.raises(error, match=message):
        pattern(mask, ax=ax)


def missing_glyphs(draw):
    """The warnings about glyphs that come up while a figure is drawn."""
    figure = Figure()
    draw(figure.subplots())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(io.BytesIO())
    return [str(warning.message) for warning in caught if "missing" in str(warning.message)]


def test_every_character_of_the_sentences_is_drawn_on_any_machine():
    pairs = [pair for half in translations() for pair in half]
    characters = sorted({c for pair in pairs for word in pair.chinese for c in word})
    assert len(characters) > 40
    cells = torch.zeros(len(characters), 1)
    assert missing_glyphs(lambda ax: heatmap(cells, rows=characters, ax=ax)) == []


def test_chinese_may_stand_in_every_place_of_a_figure():
    x, word = torch.arange(2.0), "音乐"
    two_lines = {word: x, "b": x}
    for draw in (
        lambda ax: heatmap(torch.eye(2), columns=[word, word], title=word, ax=ax),
        lambda ax: lines(x, two_lines, x_label=word, y_label=word, title=word, ax=ax),
    ):
        assert missing_glyphs(draw) == []


def test_without_that_font_they_would_be_boxes():
    found = missing_glyphs(lambda ax: ax.set_title("我", fontfamily="DejaVu Sans"))
    assert "Glyph 25105" in found[0]
