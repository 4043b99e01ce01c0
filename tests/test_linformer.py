"""Linformer: plain attention to mixed keys and values; padding is left out; never causal."""

import pytest
import torch
from parity import assert_same
from torch.testing import assert_close

from attnlib.efficient.linformer import LengthProjection, LinformerAttention
from attnlib.functional import attention, merge_heads, split_heads
from attnlib.masks import causal_mask, padding_mask
from attnlib.memory import parameter_count
from attnlib.record import record_attention

BATCH, LENGTH, MAX_LEN, RANK, D_MODEL, HEADS = 2, 11, 13, 5, 6, 3
MASK = padding_mask(torch.tensor([7, 0]), LENGTH)


def build(shared=True, bias=True):
    to_short = LengthProjection(MAX_LEN, RANK)
    other = None if shared else LengthProjection(MAX_LEN, RANK)
    layer = LinformerAttention(D_MODEL, HEADS, to_short=to_short, value_to_short=other, bias=bias)
    return layer.double()


def tokens():
    return torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64, requires_grad=True)


def by_the_equation(layer, x, mask):
    """Project every token, mix the keys and values, and attend to them, in that order."""
    counts = x.new_ones(1, LENGTH, 1) if mask is None else mask[:, 0, 0, :, None].to(x.dtype)
    mixed = []
    for to_heads, mix in (
        (layer.to_key, layer.to_short.weight),
        (layer.to_value, layer.value_to_short.weight),
    ):
        mixed.append(split_heads(mix[:, :LENGTH] @ (to_heads(x) * counts), HEADS))
    query = split_heads(layer.to_query(x), HEADS)
    return layer.to_output(merge_heads(attention(query, *mixed)[0]))


@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "padded"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shared", [True, False])
def test_it_is_plain_attention_to_the_mixed_keys_and_values(shared, bias, mask):
    layer, x = build(shared, bias), tokens()
    learned = [x, *layer.parameters()]
    assert_same(layer(x, mask=mask), by_the_equation(layer, x, mask), learned, learned)


def test_a_projection_is_a_sum_with_weights_of_each_position():
    projection = LengthProjection(3, 2)
    projection.weight.data = torch.tensor([[1.0, 2.0, 4.0], [0.0, 1.0, 0.0]])
    x = torch.tensor([[[1.0], [10.0], [100.0]]])
    assert projection(x).flatten().tolist() == [421.0, 10.0]
    assert projection(x[:, :2]).flatten().tolist() == [21.0, 10.0]


def test_a_summary_starts_about_as_large_as_a_token():
    summaries = LengthProjection(400, 200)(torch.randn(20, 400, 5))
    assert 0.9 < summaries.std() < 1.1


def test_padding_cannot_matter_and_what_counts_does():
    layer, x = build(), tokens().detach()
    before = layer(x, mask=MASK)
    hidden, seen = x.clone(), x.clone()
    hidden[0, 7:] = 99.0
    seen[0, 6] = 99.0
    assert_close(layer(hidden, mask=MASK)[0, :7], before[0, :7], rtol=0, atol=0)
    assert (layer(seen, mask=MASK)[0, :6] != before[0, :6]).any(-1).all()
    assert_close(layer(seen, mask=MASK)[1], before[1], rtol=0, atol=0)  # another sequence


def test_padding_is_as_if_it_were_not_there():
    layer, x = build(), tokens()
    assert_close(layer(x, mask=MASK)[0, :7], layer(x[:, :7])[0])


def test_where_nothing_counts_the_heads_are_zero():
    layer, x = build(), tokens()
    output = layer(x, mask=MASK)
    assert_close(output[1], layer.to_output.bias.expand(LENGTH, -1), rtol=0, atol=0)
    assert torch.autograd.grad(output.sum(), x)[0].isfinite().all()


def test_shared_projections_count_once():
    one, two = build(shared=True), build(shared=False)
    assert parameter_count(two) - parameter_count(one) == RANK * MAX_LEN
    other = LinformerAttention(D_MODEL, HEADS, to_short=one.to_short)
    both = torch.nn.ModuleList([one, other])
    assert parameter_count(both) == 2 * parameter_count(one) - RANK * MAX_LEN


def test_the_weights_that_are_heard_are_a_row_of_summaries():
    layer, x = build(), tokens()
    with record_attention(layer) as maps:
        layer(x)
    assert maps[0].weights.shape == (BATCH, HEADS, LENGTH, RANK)


def test_half_types():
    layer, x = build().bfloat16(), tokens().bfloat16()
    exact = build().float()
    exact.load_state_dict(layer.state_dict())
    assert layer(x, mask=MASK).dtype == torch.bfloat16
    assert_close(layer(x, mask=MASK).float(), exact(x.float(), mask=MASK), rtol=0.05, atol=0.02)


@pytest.mark.messages
def test_refusals_say_what_came():
    layer, x = build(), tokens()
    with pytest.raises(ValueError, match="it can't be causal: every summary mixes all tokens"):
        layer(x, mask=causal_mask(LENGTH))
    with pytest.raises(ValueError, match=r"mask must be .* \(2, 1, 1, 11\), got \(2, 1, 1, 10\)"):
        layer(x, mask=MASK[..., 1:])
    with pytest.raises(TypeError, match=r"mask must be torch\.bool"):
        layer(x, mask=MASK.long())
    with pytest.raises(ValueError, match="14 tokens are more than the max_len=13"):
        layer(x.new_zeros(1, 14, D_MODEL))
    with pytest.raises(ValueError, match=r"x must be 3-D .*got shape \(11, 6\)"):
        layer.to_short(x[0])
    with pytest.raises(TypeError, match="x must be a float tensor"):
        layer.to_short(torch.zeros(1, 2, 3, dtype=torch.long))
    with pytest.raises(ValueError, match="rank=9 summaries of at most max_len=8 tokens"):
        LengthProjection(8, rank=9)
    with pytest.raises(ValueError, match="rank must be 1 or more, got 0"):
        LengthProjection(8, rank=0)
    with pytest.raises(TypeError, match="to_short must be a module, such as LengthProjection"):
        LinformerAttention(6, 3, to_short=8)
    with pytest.raises(ValueError, match="the ranks are 2 and 3"):
        LinformerAttention(
            6, 3, to_short=LengthProjection(8, 2), value_to_short=LengthProjection(8, 3)
        )
    with pytest.raises(ValueError, match="d_model=7 must be a multiple of n_heads=3"):
        LinformerAttention(7, 3, to_short=LengthProjection(8, 2))
