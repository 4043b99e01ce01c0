"""Positions of image patches: rows and columns, against DETR and against loops."""

import copy

import pytest
import torch
from torch.testing import assert_close
from transformers.models.detr.modeling_detr import DetrSinePositionEmbedding

from attnlib.positions import (
    LearnedGridEncoding,
    SinusoidalGridEncoding,
    sinusoidal_encoding,
    sinusoidal_grid_encoding,
)

BATCH, ROWS, COLUMNS, D_MODEL = 2, 3, 5, 22
BOTH = pytest.mark.parametrize(
    "layer",
    [SinusoidalGridEncoding(D_MODEL), LearnedGridEncoding(D_MODEL, ROWS, COLUMNS)],
    ids=["sinusoidal", "learned"],
)


def grid(dtype=torch.float32):
    return torch.randn(BATCH, ROWS, COLUMNS, D_MODEL, dtype=dtype)


# -------------------------------------------------------------------------------- by hand


def test_row_and_column_by_hand():
    encoding = sinusoidal_grid_encoding(2, 3, 4)
    row_0, row_1 = [0.0, 1.0], [0.841471, 0.540302]  # sine and cosine of 0 and of 1 radian
    column_2 = [0.909297, -0.416147]  # of 2 radians
    assert_close(encoding[0, 2], torch.tensor(row_0 + column_2), atol=1e-6, rtol=0)
    assert_close(encoding[1, 0], torch.tensor(row_1 + row_0), atol=1e-6, rtol=0)


def test_a_learned_grid_puts_the_row_before_the_column():
    layer = LearnedGridEncoding(4, max_rows=2, max_columns=3)
    layer.rows.data = torch.tensor([[10.0, 11.0], [20.0, 21.0]])
    layer.columns.data = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    added = layer(torch.zeros(1, 2, 3, 4))
    assert added[0, 1, 2].tolist() == [20.0, 21.0, 5.0, 6.0]
    assert added[0, 0, 1].tolist() == [10.0, 11.0, 3.0, 4.0]


# ---------------------------------------------------------------------------------- parity


def test_the_sinusoidal_grid_is_detrs():
    detr = DetrSinePositionEmbedding(num_position_features=D_MODEL // 2 + 1)
    theirs = detr((1, 1, ROWS, COLUMNS), device="cpu", dtype=torch.float64)[0]  # (D, rows, columns)
    ours = sinusoidal_grid_encoding(ROWS + 1, COLUMNS + 1, D_MODEL + 2)
    assert_close(
        ours[1:, 1:].double(), theirs.permute(1, 2, 0), atol=1e-6, rtol=0
    )  # it starts at 1


def test_each_half_is_the_encoding_of_a_line_also_where_the_half_is_odd():
    encoding = sinusoidal_grid_encoding(ROWS, COLUMNS, D_MODEL, base=77.0)
    for row in range(ROWS):
        for column in range(COLUMNS):
            line = sinusoidal_encoding(7, D_MODEL // 2, base=77.0)
            assert torch.equal(encoding[row, column], torch.cat([line[row], line[column]]))


# -------------------------------------------------------------------------------- property


@BOTH
def test_what_is_added_depends_on_the_place_alone(layer):
    x = grid()
    added = layer(x) - x
    assert_close(added, layer(torch.zeros_like(x)), atol=1e-6, rtol=0)
    assert torch.equal(layer(x[:1])[0], layer(x)[0])
    places = layer(torch.zeros(1, ROWS, COLUMNS, D_MODEL)).flatten(1, 2)[0]
    assert torch.cdist(places, places).fill_diagonal_(1.0).min() > 0.01  # no two places are alike


@BOTH
def test_a_smaller_image_gets_the_upper_left_part(layer):
    x = grid()
    assert torch.equal(layer(x[:, :2, :3]), layer(x)[:, :2, :3])


@BOTH
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_dtype_stays(layer, dtype):
    layer = copy.deepcopy(layer)
    expected = layer(torch.zeros(1, ROWS, COLUMNS, D_MODEL))
    got = layer.to(dtype)(torch.zeros(1, ROWS, COLUMNS, D_MODEL, dtype=dtype))
    assert got.dtype == dtype
    assert_close(got.float(), expected, atol=torch.finfo(dtype).eps, rtol=torch.finfo(dtype).eps)


def test_every_learned_vector_gets_its_gradient():
    layer = LearnedGridEncoding(D_MODEL, ROWS, COLUMNS)
    layer(grid()).sum().backward()
    assert (layer.rows.grad == BATCH * COLUMNS).all()
    assert (layer.columns.grad == BATCH * ROWS).all()


@BOTH
def test_a_copy_and_loaded_weights_do_the_same(layer):
    x = grid()
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))
    other = LearnedGridEncoding(D_MODEL, ROWS, COLUMNS)
    if list(layer.parameters()):
        other.load_state_dict(layer.state_dict())
        assert torch.equal(other(x), layer(x))
    else:
        assert not layer.state_dict()


@pytest.mark.compiles
@BOTH
def test_it_compiles_whole(layer):
    x = grid()
    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    assert torch.equal(compiled(x), layer(x))


# --------------------------------------------------------------------------------- refusal

LEARNED, SINUSOIDAL = LearnedGridEncoding(6, 2, 3), SinusoidalGridEncoding(6)
REFUSED = {
    "odd width": (lambda: sinusoidal_grid_encoding(2, 3, 7), ValueError, "even.* got 7; try 8"),
    "odd layer": (lambda: SinusoidalGridEncoding(7), ValueError, "even.* got 7; try 8"),
    "odd learned": (lambda: LearnedGridEncoding(7, 2, 3), ValueError, "even.* got 7; try 8"),
    "no rows": (lambda: sinusoidal_grid_encoding(0, 3, 6), ValueError, "rows must be 1 or more"),
    "half a column": (lambda: sinusoidal_grid_encoding(2, 1.5, 6), TypeError, "columns .* float"),
    "base": (lambda: sinusoidal_grid_encoding(2, 3, 6, base=0.0), ValueError, "number above 0"),
    "no width": (lambda: SinusoidalGridEncoding(0), ValueError, "d_model must be 1 or more, got 0"),
    "no max_rows": (lambda: LearnedGridEncoding(6, 0, 3), ValueError, "max_rows must be 1"),
    "tensor": (lambda: LearnedGridEncoding(6, 2, torch.tensor(3)), TypeError, "max_columns .* Ten"),
    "in one line": (lambda: SINUSOIDAL(torch.ones(1, 6, 6)), ValueError, r"6\); .*x.unflatten\(1"),
    "pixels": (lambda: SINUSOIDAL(torch.ones(1, 2, 3, 6).byte()), TypeError, "got torch.uint8; "),
    "other width": (lambda: LEARNED(torch.ones(1, 2, 3, 8)), ValueError, r"=6\), got shape \(1, 2"),
    "too high": (lambda: LEARNED(torch.ones(1, 4, 3, 6)), ValueError, "4 rows and 3 columns, but"),
    "too wide": (lambda: LEARNED(torch.ones(1, 2, 5, 6)), ValueError, "for 2 and 3 only; raise"),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, error, words):
    with pytest.raises(error, match=words):
        call()
