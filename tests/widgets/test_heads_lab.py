"""The heads lab as Python sees it: its numbers, its switches and what it refuses."""

import pytest
import torch
from torch.testing import assert_close

from attnlib.layers import MultiHeadAttention
from attnlib.record import record_attention
from attnlib.widgets.heads import HeadsLab

HEADS = (1, 2, 4)


def rounded(layer):
    """A layer whose output projection has no more decimals than a lab keeps."""
    with torch.no_grad():
        for parameter in layer.to_output.parameters():
            parameter.copy_(parameter.double().round(decimals=4))
    return layer


@pytest.fixture
def made():
    torch.manual_seed(0)
    layers = [rounded(MultiHeadAttention(8, h)).double() for h in HEADS]
    inputs = [torch.randn(5, 8, dtype=torch.float64) for _ in HEADS]
    return layers, inputs, torch.randn(5, 8, dtype=torch.float64)


@pytest.fixture
def lab(made):
    return HeadsLab("ABCDE", *made, groups=["left", "right"], n_heads=4)


@pytest.mark.parametrize("i", range(3))
def test_as_it_comes_it_is_the_layer(made, i):
    layers, inputs, target = made
    now = HeadsLab("ABCDE", *made, groups=["left", "right"], n_heads=HEADS[i]).result()
    with torch.no_grad(), record_attention(layers[i]) as maps:
        output = layers[i](inputs[i][None])[0]
    assert_close(now.weights, maps[0].weights[0], atol=1e-3, rtol=0)  # 4 decimals are kept
    assert_close(now.output, output, atol=1e-3, rtol=0)
    error = (output - target).square()
    assert_close(
        now.errors, torch.stack([error[:, :4].mean(), error[:, 4:].mean()]), atol=5e-3, rtol=0
    )


def test_the_right_cells_stay_with_their_token_and_the_wrong_ones_do_not():
    layer, x = MultiHeadAttention(4, 2), torch.randn(3, 4)
    lab = HeadsLab("ABC", [layer], [x], x, groups=["all"])
    assert lab.result().cells.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    lab.reshape = "wrong"
    assert lab.result().cells.tolist() == [[0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11]]


def test_one_head_is_the_same_with_the_wrong_reshape_and_two_are_not(lab):
    for heads, same in ((1, True), (2, False)):
        lab.n_heads, lab.reshape = heads, "right"
        right = lab.result()
        lab.reshape = "wrong"
        assert torch.allclose(lab.result().output, right.output) == same
        assert torch.equal(lab.result().cells, right.cells) == same


def test_the_wrong_reshape_keeps_the_last_token_from_the_first(made):
    """With 4 heads of 8 numbers over 5 tokens, token 0 is in head 0 alone."""
    layers, inputs, target = made
    changed = [x.clone() for x in inputs]
    for x in changed:
        x[0] += 1.0
    moved = {}
    for reshape in ("right", "wrong"):
        one, other = (
            HeadsLab("ABCDE", layers, xs, target, ["all"], n_heads=4, reshape=reshape).result()
            for xs in (inputs, changed)
        )
        moved[reshape] = [
            (a - b).abs().max() > 1e-3 for a, b in zip(one.output, other.output, strict=True)
        ]
    assert moved["right"] == [True] * 5
    assert moved["wrong"] == [True, True, False, False, False]


def test_a_cut_head_no_longer_writes_and_keeps_its_weights(lab, made):
    whole = lab.result()
    layer = made[0][2]
    lab.cut = 1
    cut = lab.result()
    value = torch.tensor(lab.layers[2]["value"], dtype=torch.float64)[:, 2:4]
    block = layer.to_output.weight.T.detach()[2:4]
    assert_close(whole.output - cut.output, whole.weights[1] @ value @ block, atol=1e-6, rtol=0)
    assert torch.equal(whole.weights, cut.weights)


def test_without_any_head_the_bias_is_left(lab, made):
    lab.n_heads, lab.cut = 1, 0
    bias = made[0][0].to_output.bias.detach()
    assert_close(lab.result().output, bias.expand(5, 8), atol=1e-6, rtol=0)


def test_a_layer_without_bias_is_taken(made):
    layer = MultiHeadAttention(8, 2, bias=False)
    lab = HeadsLab("ABCDE", [layer], [made[1][0].float()], made[2], groups=["all"])
    assert lab.layers[0]["bias"] == [0.0] * 8


def test_fewer_heads_forget_a_cut_that_is_no_longer_there(lab):
    lab.cut = 2
    lab.n_heads = 2
    assert lab.cut == -1
    lab.cut = 1
    lab.n_heads = 4
    assert lab.cut == 1  # head 1 is still there


def test_it_says_and_draws_what_it_shows(lab):
    lab.cut, lab.reshape, lab.selected = 2, "wrong", 1
    error = lab.result().errors.mean()
    assert repr(lab) == (
        f"Heads lab, 5 tokens, 4 heads of width 2, wrong reshape, head 2 cut: error {error:.2f}."
    )
    ax = lab.still().axes[0]
    drawn = torch.tensor(
        ax.collections[0].get_array() if ax.collections else ax.images[0].get_array()
    )
    assert_close(drawn.reshape(4, 5), lab.result().weights[:, 1], atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("switch", "value", "error", "words"),
    [
        ("n_heads", 3, ValueError, "n_heads must be one of 1, 2, 4; got 3"),
        ("reshape", "left", ValueError, "reshape must be one of 'right', 'wrong'; got 'left'"),
        ("cut", 4, ValueError, "cut must be a whole number from -1 to 3; got 4"),
        ("selected", 5, ValueError, "selected must be a whole number from 0 to 4; got 5"),
        ("tokens", ["A"], AttributeError, "tokens of this HeadsLab is fixed"),
    ],
)
def test_it_refuses_what_a_switch_does_not_have(lab, switch, value, error, words):
    with pytest.raises(error) as raised:
        setattr(lab, switch, value)
    assert words in str(raised.value)


def wide(width, heads=2, length=5, **sizes):
    x = torch.randn(length, width)
    return [MultiHeadAttention(width, heads, **sizes)], [x], x


@pytest.mark.parametrize(
    ("tokens", "made", "groups", "error", "words"),
    [
        ("A", wide(4, length=1), ["all"], ValueError, "a lab takes 2 to 10 tokens, got 1"),
        ("ABCDE", ([], [], torch.zeros(5, 4)), ["all"], ValueError, "one input for each layer"),
        (
            "ABCDE",
            (*(a * 2 for a in wide(4)[:2]), torch.zeros(5, 4)),
            ["all"],
            ValueError,
            "but two have the same: [2, 2]",
        ),
        ("ABCDEF", wide(4), ["all"], ValueError, "for 6 tokens and the same width"),
        ("ABCDE", (*wide(4)[:2], torch.zeros(5, 8)), ["all"], ValueError, "beside a target of"),
        ("ABCDE", (*wide(4)[:2], [[0.0]]), ["all"], TypeError, "target must be a float tensor"),
        ("ABCDE", (*wide(4)[:2], torch.full((5, 4), torch.nan)), ["all"], ValueError, "got nan"),
        ("ABCDE", wide(4), ["a", "b", "c"], ValueError, "split into the 3 groups"),
        ("ABCDE", wide(4), [], ValueError, "split into the 0 groups"),
        ("ABCDE", wide(32), ["all"], ValueError, "a width of 32 must be at most 16"),
        ("ABCDE", wide(8, d_head=2), ["all"], ValueError, "must lead from 8 to 8 numbers"),
        ("ABCDE", wide(8, n_kv_heads=1), ["all"], ValueError, "no shared heads"),
    ],
)
def test_it_refuses_numbers_that_do_not_fit(tokens, made, groups, error, words):
    with pytest.raises(error) as raised:
        HeadsLab(tokens, *made, groups=groups)
    assert words in str(raised.value)
