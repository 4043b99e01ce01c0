"""Positions that are added to embeddings: against the formula, number by number, and by use."""

import copy
import math
import pickle

import pytest
import torch
from torch.testing import assert_close

from attnlib.positions import LearnedEncoding, SinusoidalEncoding, sinusoidal_encoding


def by_the_formula(length, d_model, offset=0, base=10000.0):
    """Equation by equation, with Python's own sine and cosine."""
    rows = []
    for position in range(offset, offset + length):
        row = []
        for column in range(d_model):
            angle = position / base ** (2 * (column // 2) / d_model)
            row.append(math.cos(angle) if column % 2 else math.sin(angle))
        rows.append(row)
    return torch.tensor(rows, dtype=torch.float64).float()


@pytest.mark.parametrize("d_model", [1, 2, 3, 6, 7, 12, 13])
@pytest.mark.parametrize("length", [1, 2, 11])
def test_the_sinusoidal_encoding_is_the_formula(length, d_model):
    encoding = sinusoidal_encoding(length, d_model)
    assert encoding.dtype == torch.float32
    assert_close(encoding, by_the_formula(length, d_model))


def test_another_base_and_a_later_start():
    encoding = sinusoidal_encoding(5, 7, offset=11, base=97.0)
    assert_close(encoding, by_the_formula(5, 7, offset=11, base=97.0))
    assert torch.equal(encoding, sinusoidal_encoding(16, 7, base=97.0)[11:])


def test_far_positions_are_exact():
    # In float32 the angles would be off by up to 7e-4 here.
    far = sinusoidal_encoding(3, 6, offset=99_991)
    assert_close(far, by_the_formula(3, 6, offset=99_991), atol=6e-8, rtol=0)  # half an ulp of 1


def test_how_alike_two_positions_are_depends_on_their_distance_alone():
    encoding = sinusoidal_encoding(41, 12).double()
    alike = encoding @ encoding.T
    for distance in range(7):
        diagonal = alike.diagonal(distance)
        assert_close(diagonal, diagonal[:1].expand_as(diagonal), atol=6e-7, rtol=0)  # 1.7e-7 found
    assert (alike.diagonal(0)[:-1] > alike.diagonal(1) + 0.4).all()


def test_no_two_positions_are_alike():
    encoding = sinusoidal_encoding(5000, 16)
    assert len(encoding.unique(dim=0)) == 5000


# -------------------------------------------------------------------------------- as modules

MAKERS = {
    "sinusoidal": lambda: SinusoidalEncoding(7, max_len=11),
    "learned": lambda: LearnedEncoding(7, max_len=11),
}
BOTH = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@BOTH
def test_each_row_is_added_at_its_position_in_every_sequence(make):
    module, x = make(), torch.randn(2, 5, 7)
    before = x.clone()
    assert_close(module(x), x + module.encoding[:5])
    assert_close(module(x, offset=6), x + module.encoding[6:])
    assert torch.equal(x, before)


@BOTH
def test_each_sequence_can_start_elsewhere_and_padding_counts_as_position_0(make):
    module, x = make(), torch.randn(3, 5, 7)
    position = torch.tensor([[0, 0, 0, 1, 2], [0, 1, 2, 3, 4], [6, 7, 8, 9, 10]])
    assert_close(module(x, offset=torch.tensor([-2, 0, 6])), x + module.encoding[position])


@BOTH
def test_all_positions_can_be_used(make):
    module = make()
    assert_close(module(torch.zeros(1, 11, 7)), module.encoding[None])


def test_the_sinusoidal_module_adds_the_sinusoidal_encoding():
    module = SinusoidalEncoding(7)
    assert_close(module(torch.zeros(1, 5000, 7))[0], sinusoidal_encoding(5000, 7))


def test_nothing_sinusoidal_is_learned_or_saved():
    module = SinusoidalEncoding(7, max_len=11)
    assert not list(module.parameters())
    assert not module.state_dict()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_the_sinusoidal_module_keeps_the_dtype_of_its_input(dtype):
    x = torch.zeros(1, 5, 7, dtype=dtype)
    output = SinusoidalEncoding(7)(x)
    assert output.dtype == dtype
    assert_close(output[0], sinusoidal_encoding(5, 7).to(dtype))


def test_the_learned_rows_start_small_and_different():
    encoding = LearnedEncoding(37, max_len=101).encoding
    assert encoding.shape == (101, 37)
    assert encoding.std().item() == pytest.approx(0.02, rel=0.05)  # 3 standard errors of 3737 draws
    assert abs(encoding.mean().item()) < 0.001
    assert len(encoding.unique()) > 3700


def test_only_the_rows_in_use_learn():
    module = LearnedEncoding(7, max_len=11)
    x = torch.randn(2, 3, 7, requires_grad=True)
    module(x, offset=4).sum().backward()
    gradient = module.encoding.grad
    assert torch.equal(gradient[4:7], torch.full((3, 7), 2.0))  # two sequences
    assert not gradient[:4].any()
    assert not gradient[7:].any()
    assert torch.equal(x.grad, torch.ones_like(x))


@BOTH
def test_copies_and_saved_states_say_the_same(make):
    module, x = make(), torch.randn(2, 5, 7)
    expected = module(x)
    assert torch.equal(copy.deepcopy(module)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(module))(x), expected)
    other = make()
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(x), expected)


# ----------------------------------------------------------------------------------- refusals


@pytest.mark.messages
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"length": 0, "d_model": 4}, "length must be 1 or more, got 0"),
        ({"length": 3, "d_model": 0}, "d_model must be 1 or more, got 0"),
        ({"length": 3, "d_model": 4, "offset": -1}, "offset must be 0 or more, got -1"),
        ({"length": 3, "d_model": 4, "base": 0.0}, "base must be a number above 0, got 0"),
        ({"length": 3, "d_model": 4, "base": math.nan}, "above 0, got nan"),
        ({"length": 3, "d_model": 4, "base": math.inf}, "above 0, got inf"),
    ],
)
def test_an_encoding_of_nothing_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        sinusoidal_encoding(**arguments)


@pytest.mark.messages
@BOTH
@pytest.mark.parametrize(
    ("x", "kind"),
    [(torch.ones(2, 5, 7, dtype=torch.long), "torch.int64"), ([[[1.0] * 7]], "list")],
    ids=["whole numbers", "a list"],
)
def test_what_is_no_embedding_is_refused(make, x, kind):
    with pytest.raises(TypeError, match=f"x must be a float tensor, got {kind}"):
        make()(x)


@pytest.mark.messages
@BOTH
@pytest.mark.parametrize(
    ("shape", "offset", "words"),
    [
        ((5, 7), 0, r"x must be \(batch, length, d_model=7\), got \(5, 7\)"),
        ((2, 5, 6), 0, r"d_model=7\), got \(2, 5, 6\)"),
        ((2, 12, 7), 0, "positions 0 to 11 are asked for.*0 to 10 only; raise max_len"),
        ((2, 5, 7), 7, "positions 7 to 11 are asked for"),
        ((2, 5, 7), -1, "positions -1 to 3 are asked for"),
        ((2, 5, 7), torch.tensor([0, 7]), "positions 0 to 11 are asked for.*0 to 10 only; raise"),
        ((2, 5, 7), torch.tensor([3]), r"each of 2 sequences needs one offset, got shape \(1,\)"),
    ],
)
def test_what_does_not_fit_is_refused(make, shape, offset, words):
    with pytest.raises(ValueError, match=words):
        make()(torch.zeros(shape), offset=offset)
