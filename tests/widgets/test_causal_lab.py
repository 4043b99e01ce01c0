"""The causal lab as Python sees it: its numbers, its switches and what it refuses."""

import io
import math

import pytest
import torch
from torch.testing import assert_close

from attnlib.functional import attention
from attnlib.masks import causal_mask
from attnlib.widgets.causal import DTYPES, CausalLab

WORDS = ["the", "past", "is", "all", "there"]
MASKS = {
    "none": "xxxxx xxxxx xxxxx xxxxx xxxxx",
    "causal": "x.... xx... xxx.. xxxx. xxxxx",
    "one too far": "xx... xxx.. xxxx. xxxxx xxxxx",
    "padding": "..... ..... ..x.. ..xx. ..xxx",
}


def drawn(picture):
    """A mask from a picture: "x." lets the first query see the first key."""
    return torch.tensor([[cell == "x" for cell in row] for row in picture.split()])


@pytest.fixture
def numbers():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(5, width, generator=generator, dtype=torch.float64) for width in (7, 7, 3)]


@pytest.fixture
def lab(numbers):
    return CausalLab(WORDS, *numbers, dtype="float64")


def test_as_it_comes_it_is_the_packages_causal_attention(lab, numbers):
    now = lab.result()
    output, weights = attention(*numbers, mask=causal_mask(5))
    assert_close(now.weights, weights)
    assert_close(now.row_sums, torch.ones(5, dtype=torch.float64))
    assert torch.equal(now.scores == -math.inf, ~causal_mask(5)[0, 0])
    changed = [torch.cat([x[:4], -x[4:]]) for x in numbers]  # the last token, by its opposite
    moved = attention(*changed, mask=causal_mask(5))[0] - output
    assert_close(now.moved, moved.abs().amax(-1))
    assert now.leak == 0
    assert not now.refused


@pytest.mark.parametrize(("kind", "picture"), MASKS.items())
def test_each_mask(lab, kind, picture):
    lab.mask_kind = kind
    now = lab.result()
    assert torch.equal(now.allowed, drawn(picture))
    sees = now.allowed.any(-1)
    assert torch.equal(now.weights[sees] > 0, now.allowed[sees])


def test_two_tokens_worked_out_by_hand():
    """Scores 0 and ln 3 for the first token: masked afterwards, it keeps a quarter of itself."""
    query, key = torch.tensor([[1.0], [0.0], [0.0]]), torch.tensor([[0.0], [math.log(3)], [-99.0]])
    value = torch.tensor([[8.0], [0.0], [0.0]])
    lab = CausalLab(["a", "b", "c"], query, key, value, place="after", replaced=1)
    now = lab.result()
    assert_close(now.row_sums[0].item(), 1 / 4)
    # The second key becomes -ln 3: of 1 and 1/3, the first token keeps three quarters.
    assert_close(now.moved[0].item(), 8 * 3 / 4 - 8 / 4)
    assert_close(now.leak, 4.0)
    lab.place = "divided"
    assert_close(lab.result().row_sums[0].item(), 1.0)
    assert lab.result().leak == 0


def test_after_the_softmax_the_past_moves_although_the_future_has_no_weight(lab):
    lab.place = "after"
    late = lab.result()
    assert (late.weights.triu(1) == 0).all()
    assert (late.row_sums[:4] < 0.99).all()
    assert late.leak > 0.01
    assert late.leak == late.moved[:4].max()
    lab.place = "divided"
    assert lab.result().leak < 1e-12
    lab.place = "before"
    early = lab.result()
    lab.place = "divided"
    assert_close(lab.result().weights, early.weights)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("fill", "share"), [("-inf", math.nan), ("-1e9", 0.2), ("finfo.min", 0.2)])
def test_a_row_that_sees_nothing(numbers, dtype, fill, share):
    lab = CausalLab(WORDS, *numbers, mask_kind="padding", fill=fill, dtype=dtype)
    now = lab.result()
    if (dtype, fill) == ("float16", "-1e9"):
        assert now.refused
        assert now.weights.isnan().all()
        return
    expected = torch.tensor(share).to(getattr(torch, dtype)).double()
    assert not now.refused
    torch.testing.assert_close(
        now.weights[:2], expected.expand(2, 5), equal_nan=True, atol=1e-8, rtol=0
    )
    assert (now.leak > 0.01) == (fill != "-inf")  # rows of NaN do not count, equal shares do


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fill", ["-inf", "-1e9", "finfo.min"])
def test_pytorch_in_that_dtype_does_the_same(numbers, dtype, fill):
    """PyTorch rounds in between; it may differ by a unit in the last place, and so it does."""
    lab = CausalLab(WORDS, *numbers, dtype=dtype, fill=fill)
    now = lab.result()
    kind = getattr(torch, dtype)
    number = torch.finfo(kind).min if fill == "finfo.min" else float(fill)
    scores = (numbers[0] @ numbers[1].mT / math.sqrt(7)).to(kind)
    if now.refused:
        with pytest.raises(RuntimeError, match="overflow"):
            scores.masked_fill(~causal_mask(5)[0, 0], number)
        return
    theirs = scores.masked_fill(~causal_mask(5)[0, 0], number)
    assert torch.equal(now.scores, theirs.double())
    eps = torch.finfo(kind).eps
    assert_close(now.weights, theirs.softmax(-1).double(), atol=0, rtol=2 * eps)
    assert torch.equal(now.weights.to(kind).double(), now.weights)  # numbers of that dtype


def test_the_leak_counts_only_what_stands_before(lab):
    lab.mask_kind = "none"
    for replaced in range(5):
        lab.replaced = replaced
        now = lab.result()
        assert now.leak == (now.moved[:replaced].max() if replaced else 0)
        assert (now.moved > 0).all()


def test_one_too_far_leaks_by_one_token(lab):
    lab.mask_kind = "one too far"
    assert (lab.result().moved > 0).tolist() == [False, False, False, True, True]


def test_a_mask_that_fills_nothing_is_never_refused(lab):
    lab.dtype, lab.fill = "float16", "-1e9"
    assert lab.result().refused
    lab.place = "after"
    assert not lab.result().refused
    lab.place, lab.mask_kind = "before", "none"
    assert not lab.result().refused


def test_python_reads_and_sets_every_switch(lab):
    settings = {
        "mask_kind": "padding",
        "place": "after",
        "fill": "finfo.min",
        "dtype": "bfloat16",
        "replaced": 2,
    }
    for name, value in settings.items():
        setattr(lab, name, value)
    assert {name: getattr(lab, name) for name in settings} == settings


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        (
            {},
            "Causal lab, 5 tokens, causal mask before the softmax, blocked scores -inf, float64: "
            "replacing “there” moves nothing before.",
        ),
        ({"mask_kind": "none"}, "5 tokens, no mask, float64: replacing “there” moves an earlier"),
        ({"place": "after", "replaced": 1}, "causal mask after the softmax, float64: replacing"),
        ({"place": "divided"}, "rows divided by their sums, float64: replacing “there” moves"),
        ({"mask_kind": "padding"}, "causal mask and two tokens of padding before the softmax"),
        ({"dtype": "float16", "fill": "-1e9"}, "float16: PyTorch refuses, as the number does not"),
    ],
)
def test_it_says_what_it_shows(lab, switches, words):
    for name, value in switches.items():
        setattr(lab, name, value)
    assert words in repr(lab)


def test_a_leak_is_told_with_its_size_and_rounding_as_rounding(lab):
    lab.place = "after"
    assert f"moves an earlier output by {lab.result().leak:.2g}." in repr(lab)
    lab.place = "divided"
    assert 0 < lab.result().leak < 1e-6
    assert "moves an earlier output by less than 1e-6." in repr(lab)


@pytest.mark.parametrize("fill", ["-inf", "-1e9"])
def test_the_still_shows_the_weights_and_nothing_is_cut_off(numbers, fill):
    lab = CausalLab(WORDS, *numbers, mask_kind="padding", fill=fill)
    figure = lab.still()
    written = {t.get_position()[::-1]: t.get_text() for t in figure.axes[0].texts}
    blind = "NaN" if fill == "-inf" else "0.20"
    assert [written[i, j] for i in (0, 1) for j in range(5)] == [blind] * 10
    assert (2, 3) not in written
    assert (3, 3) in written
    figure.savefig(io.BytesIO())
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= 0


X = torch.zeros(3, 2)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("tokens", "switches", "error", "message"),
    [
        (["a", "b"], {}, ValueError, "takes 3 tokens or more, got 2; two can be padding"),
        (["a"] * 13, {}, ValueError, "takes 1 to 12 tokens, got 13"),
        (["a"] * 4, {}, ValueError, r"query must have a row for each of the 4 tokens"),
        (["a"] * 3, {"mask_kind": "casual"}, ValueError, "mask_kind must be one of 'none', 'caus"),
        (["a"] * 3, {"place": "beside"}, ValueError, "place must be one of 'before', 'after', 'd"),
        (["a"] * 3, {"fill": -1e9}, ValueError, "fill must be one of '-inf', '-1e9', 'finfo.min'"),
        (["a"] * 3, {"dtype": torch.float32}, ValueError, "dtype must be one of 'float64', 'floa"),
        (["a"] * 3, {"replaced": 3}, ValueError, "replaced must be a whole number from 0 to 2"),
    ],
)
def test_what_does_not_fit_is_refused(tokens, switches, error, message):
    with pytest.raises(error, match=message):
        CausalLab(tokens, X, X, X, **switches)


@pytest.mark.messages
def test_the_numbers_cannot_be_exchanged_later(lab):
    with pytest.raises(AttributeError, match="value of this CausalLab is fixed; make a new"):
        lab.value = [[0.0]]
