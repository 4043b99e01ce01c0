"""Tiled attention: the equation's output and gradients, whatever the tiles, from linear memory."""

import pytest
import torch
from parity import assert_same, leaves
from torch.testing import assert_close

from attnlib.efficient.tiled import merge_averages, tiled_attention
from attnlib.functional import attention
from attnlib.masks import causal_mask, padding_mask
from attnlib.memory import saved_bytes

BATCH, HEADS, Q_LEN, K_LEN, D_HEAD, D_VALUE = 2, 3, 17, 23, 5, 7
ONE_TILE = {"q_tile": 64, "k_tile": 64}


def qkv(q_len=Q_LEN, k_len=K_LEN, dtype=torch.float64):
    sizes = [(q_len, D_HEAD), (k_len, D_HEAD), (k_len, D_VALUE)]
    return [torch.randn(BATCH, HEADS, *s, dtype=dtype, requires_grad=True) for s in sizes]


def holes():
    """A mask with holes, a query that sees nothing, and whole tiles that hide everything."""
    mask = torch.rand(BATCH, HEADS, Q_LEN, K_LEN) > 0.6
    mask[:, :, 3] = False
    mask[1, :, :, 5:15] = False
    return mask


# ------------------------------------------------------------------------------------- parity


@pytest.mark.parametrize("tiles", [(1, 1), (4, 5), (Q_LEN, K_LEN), (64, 3), (5, 64)])
@pytest.mark.parametrize("kind", ["none", "causal", "padding", "holes"])
def test_any_tile_gives_the_equation_forward_and_backward(tiles, kind):
    mask = {
        "none": None,
        "causal": causal_mask(Q_LEN, K_LEN),
        "padding": padding_mask(torch.tensor([0, K_LEN - 4]), K_LEN),
        "holes": holes(),
    }[kind]
    ours = qkv()
    theirs = leaves(*ours)
    output = tiled_attention(*ours, mask=mask, q_tile=tiles[0], k_tile=tiles[1])
    assert_same(output, attention(*theirs, mask=mask)[0], ours, theirs)


@pytest.mark.parametrize(
    "shape", [(1, 1, 1, K_LEN), (BATCH, 1, Q_LEN, 1), (1, HEADS, Q_LEN, K_LEN)]
)
def test_a_bias_gets_its_gradient_whatever_it_is_broadcast_over(shape):
    bias = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    ours = [*qkv(), bias]
    theirs = leaves(*ours)
    mask = holes()
    output = tiled_attention(*ours[:3], mask=mask, bias=ours[3], q_tile=4, k_tile=5)
    assert_same(output, attention(*theirs[:3], mask=mask, bias=theirs[3])[0], ours, theirs)


@pytest.mark.parametrize("n_dims", [2, 3])
def test_fewer_dimensions_and_a_scale_of_ones_own(n_dims):
    q, k, v = (x[0, 0] if n_dims == 2 else x[:, 0] for x in qkv())
    output = tiled_attention(q, k, v, scale=2.0, q_tile=4, k_tile=5)
    assert_close(output, attention(q, k, v, scale=2.0)[0])


def test_the_tiles_of_the_default_meet_without_a_seam():
    q, k, v = (torch.randn(1, 1, n, 2, dtype=torch.float64) for n in (2051, 1031, 1031))
    assert_close(tiled_attention(q, k, v), attention(q, k, v)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_computed_in_float32(dtype):
    ours = [*qkv(dtype=dtype), torch.randn(1, 1, 1, K_LEN, dtype=dtype, requires_grad=True)]
    exact = [x.float() for x in leaves(*ours)]
    output = tiled_attention(*ours[:3], bias=ours[3], q_tile=2, k_tile=3)
    expected = attention(*exact[:3], bias=exact[3])[0]
    assert output.dtype == dtype
    assert_close(output, expected.to(dtype))
    probe = torch.randn_like(output)
    found = torch.autograd.grad(output, ours, probe)
    # The gradient needs the output, which was kept rounded: a step or two of the half type.
    true_grads = torch.autograd.grad(expected, exact, probe.float())
    for ours_grad, true in zip(found, true_grads, strict=True):
        assert ours_grad.dtype == dtype
        assert_close(ours_grad.float(), true, rtol=0.03, atol=4 * torch.finfo(dtype).eps)


def test_great_scores_do_not_overflow_and_autocast_changes_nothing():
    q, k, v = qkv(dtype=torch.float32)
    expected = attention(300 * q, k, v)[0]
    with torch.autocast("cpu"):
        assert_close(tiled_attention(300 * q, k, v, q_tile=4, k_tile=5), expected)


# --------------------------------------------------------------------------- rows without keys


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_a_query_that_sees_nothing_is_zero_and_learns_nothing(dtype):
    inputs = qkv(dtype=dtype)
    mask = holes()
    output = tiled_attention(*inputs, mask=mask, q_tile=4, k_tile=5)
    assert (output[:, :, 3] == 0).all()
    assert (output[:, :, 4] != 0).any()
    grads = torch.autograd.grad(output.sum(), inputs)
    assert all(g.isfinite().all() for g in grads)
    assert (grads[0][:, :, 3] == 0).all()


def test_scores_of_minus_infinity_hide_as_a_mask_does():
    inputs = qkv()
    mask = holes()
    bias = torch.zeros(mask.shape, dtype=torch.float64).masked_fill(~mask, -torch.inf)
    hidden = tiled_attention(*inputs, bias=bias, q_tile=4, k_tile=5)
    masked = tiled_attention(*inputs, mask=mask, q_tile=4, k_tile=5)
    assert_close(hidden, masked)
    assert_close(
        torch.autograd.grad(hidden.sum(), inputs), torch.autograd.grad(masked.sum(), inputs)
    )


def test_a_nan_is_not_hidden_from_who_may_see_it():
    for place in range(3):
        inputs = [x.detach() for x in qkv()]
        inputs[place][0, 0, 2] = torch.nan
        output = tiled_attention(*inputs, mask=causal_mask(Q_LEN, K_LEN), q_tile=4, k_tile=5)
        seen = output[0, 0, 2] if place == 0 else output[0, 0]
        assert seen.isnan().all()
        assert not output[1].isnan().any()


# ------------------------------------------------------------------------------------- memory


def test_what_is_kept_is_the_output_and_one_number_for_each_query():
    def kept(length):
        inputs = [torch.randn(2, 3, length, 8, requires_grad=True) for _ in range(3)]
        return saved_bytes(lambda: tiled_attention(*inputs, k_tile=16), leave_out=inputs)

    assert kept(64) == 2 * 3 * 64 * (8 + 1) * 4
    assert kept(128) == 2 * kept(64)


def test_tiles_that_hide_everything_are_not_computed(monkeypatch):
    def products(mask):
        calls = []
        real = torch.addmm
        monkeypatch.setattr(torch, "addmm", lambda *a, **b: calls.append(1) or real(*a, **b))
        tiled_attention(*inputs, mask=mask, q_tile=4, k_tile=4)
        monkeypatch.undo()
        return len(calls)

    inputs = [torch.randn(1, 1, 16, 8) for _ in range(3)]
    assert products(None) == 16
    assert products(causal_mask(16)) == 10  # 4 + 3 + 2 + 1


def test_inputs_are_left_as_they_were():
    inputs = qkv()
    before = [x.detach().clone() for x in inputs]
    tiled_attention(*inputs, **ONE_TILE).sum().backward()
    assert_close([x.detach() for x in inputs], before, rtol=0, atol=0)


# ------------------------------------------------------------------------------ the merging


def test_averages_over_three_parts_of_the_keys_become_one():
    scores, value = torch.randn(Q_LEN, K_LEN).double(), torch.randn(K_LEN, D_VALUE).double()
    scores[2, :9] = scores[3] = -torch.inf  # one sees nothing of the first part, one nothing at all

    def part(start, stop):
        s = scores[:, start:stop]
        return s.softmax(-1).nan_to_num(0.0) @ value[start:stop], s.logsumexp(-1)

    whole = merge_averages(*merge_averages(*part(0, 9), *part(9, 10)), *part(10, K_LEN))
    assert_close(whole, part(0, K_LEN))
    assert_close(merge_averages(*part(10, K_LEN), *part(0, 10)), part(0, K_LEN))


def test_a_merge_does_not_overflow():
    one, two = torch.ones(1, 1), 2 * torch.ones(1, 1)
    great = torch.tensor([1000.0])
    output, log_sum = merge_averages(one, great, two, great + 0.5)
    share = torch.sigmoid(torch.tensor(0.5))
    assert_close(output, (1 + share)[None, None])
    assert_close(log_sum, great + torch.log1p(torch.tensor(0.5).exp()))


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.messages
def test_refusals_say_what_came():
    q, k, v = qkv()
    for name in ("q_tile", "k_tile"):
        with pytest.raises(ValueError, match=f"{name} must be 1 or more, got 0"):
            tiled_attention(q, k, v, **{name: 0})
        with pytest.raises(TypeError, match=rf"{name} must be a whole number, got float 8\.0"):
            tiled_attention(q, k, v, **{name: 8.0})
    with pytest.raises(ValueError, match=r"mask of shape .* does not broadcast"):
        tiled_attention(q, k, v, mask=causal_mask(Q_LEN))
    with pytest.raises(TypeError, match=r"query is torch.float64, but key is torch.float32"):
        tiled_attention(q, k.float(), v)


@pytest.mark.messages
def test_a_second_derivative_is_refused_not_wrong():
    q, k, v = qkv()
    with pytest.raises(RuntimeError, match=r"no second derivative; attnlib.functional.attention"):
        torch.autograd.grad(tiled_attention(q, k, v).sum(), q, create_graph=True)
