"""Window attention with global tokens: the equation with the same mask, from far fewer scores."""

import pytest
import torch
from parity import assert_same, leaves
from torch.testing import assert_close

from attnlib.efficient import longformer
from attnlib.efficient.longformer import window_attention
from attnlib.functional import attention
from attnlib.masks import causal_mask, global_mask, padding_mask, window_mask
from attnlib.memory import saved_bytes

BATCH, HEADS, LENGTH, D_HEAD, D_VALUE = 2, 3, 37, 5, 7


def qkv(dtype=torch.float64, length=LENGTH):
    widths = (D_HEAD, D_HEAD, D_VALUE)
    return [torch.randn(BATCH, HEADS, length, w, dtype=dtype, requires_grad=True) for w in widths]


def marked(*places):
    """Global tokens, other ones in each sequence."""
    is_global = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    for row, place in places:
        is_global[row, place] = True
    return is_global


def dense_mask(*, radius, causal=False, dilation=1, is_global=None, mask=None, **_):
    """The mask that plain attention needs to do the same."""
    allowed = window_mask(LENGTH, radius=radius, dilation=dilation)
    if is_global is not None:
        allowed = allowed | global_mask(is_global)
    if causal:
        allowed = allowed & causal_mask(LENGTH)
    return allowed if mask is None else allowed & mask


PADDED = padding_mask(torch.tensor([LENGTH - 9, 0]), LENGTH)  # one sequence is all padding
SOME = marked((0, 0), (0, 20), (1, 36))
CASES = {
    "plain": {"radius": 5},
    "block of 8": {"radius": 5, "block_size": 8},
    "block of 1": {"radius": 5, "block_size": 1},
    "narrow": {"radius": 2, "block_size": 16},
    "itself alone": {"radius": 0, "block_size": 4},
    "wider than the sequence": {"radius": 100, "block_size": 8},
    "causal": {"radius": 5, "block_size": 4, "causal": True},
    "dilated": {"radius": 5, "dilation": 3, "block_size": 4},
    "dilated and causal": {"radius": 2, "dilation": 3, "causal": True},
    "gaps as long as the sequence": {"radius": 2, "dilation": 36},
    "global": {"radius": 3, "is_global": SOME, "block_size": 8},
    "global in one sequence": {"radius": 3, "is_global": marked((0, 7)), "block_size": 8},
    "global, causal": {"radius": 3, "is_global": SOME, "causal": True, "block_size": 4},
    "global nowhere": {"radius": 3, "is_global": marked()},
    "padding": {"radius": 3, "mask": PADDED, "block_size": 4},
    "all at once": {
        "radius": 3, "mask": PADDED, "is_global": SOME[:1], "causal": True, "dilation": 2,
        "block_size": 8,
    },
}  # fmt: skip


def assert_equals_the_equation(case):
    ours = qkv()
    theirs = leaves(*ours)
    expected = attention(*theirs, mask=dense_mask(**case))[0]
    assert_same(window_attention(*ours, **case), expected, ours, theirs)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_it_is_the_equation_with_the_same_mask_forward_and_backward(case):
    assert_equals_the_equation(case)


@pytest.mark.parametrize("name", ["block of 8", "global", "all at once"])
def test_blocks_that_do_not_fit_at_once_meet_without_a_seam(name, monkeypatch):
    monkeypatch.setattr(longformer, "_SCORES", 400)  # two blocks at a time
    assert_equals_the_equation(CASES[name])


def test_the_scale_is_used_by_global_and_other_queries():
    inputs = qkv()
    expected = attention(*inputs, mask=dense_mask(**CASES["global"]), scale=2.0)[0]
    assert_close(window_attention(*inputs, **CASES["global"], scale=2.0), expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_computed_in_float32(dtype):
    inputs = qkv(dtype)
    output = window_attention(*inputs, **CASES["block of 8"])
    exact = window_attention(*(x.float() for x in inputs), **CASES["block of 8"])
    assert output.dtype == dtype
    assert_close(output, exact.to(dtype))
    grads = torch.autograd.grad(output.sum(), inputs)
    assert [g.dtype for g in grads] == [dtype] * 3


def test_a_query_that_sees_nothing_is_zero_and_learns_nothing():
    inputs = qkv()
    output = window_attention(*inputs, **CASES["padding"])
    assert (output[1] == 0).all()
    assert (output[0] != 0).any()
    grads = torch.autograd.grad(output.sum(), inputs)
    assert all(g.isfinite().all() and (g[1] == 0).all() for g in grads)


@pytest.mark.parametrize("name", ["global", "all at once", "dilated"])
def test_what_a_token_says_reaches_those_who_may_see_it_and_no_one_else(name):
    """Change one key and its value at a time, of the first sequence."""
    case = CASES[name]
    allowed = dense_mask(**case).expand(BATCH, 1, -1, -1)[:, 0]
    q, k, v = (x.detach() for x in qkv())
    before = window_attention(q, k, v, **case)
    for place in (0, 20, 30):
        k2, v2 = k.clone(), v.clone()
        k2[0, :, place] += 1.0
        v2[0, :, place] -= 1.0
        changed = (window_attention(q, k2, v2, **case) != before).any(-1)  # (B, H, L)
        assert (changed[0] == allowed[0, :, place]).all()
        assert not changed[1].any()


def test_a_nan_is_not_hidden_from_who_may_see_it():
    for place in range(3):
        inputs = [x.detach() for x in qkv()]
        inputs[place][0, 0, 10] = torch.nan
        output = window_attention(*inputs, radius=3, block_size=4)
        assert output[0, 0, 10].isnan().all()
        assert not output[1].isnan().any()
        assert not output[0, 0, 30:].isnan().any()


def test_what_is_kept_grows_with_the_length_alone():
    def kept(length):
        inputs = qkv(torch.float32, length)
        return saved_bytes(lambda: window_attention(*inputs, radius=16), leave_out=inputs)

    rows = BATCH * HEADS * 512
    seen = BATCH * 512  # a byte for each key: may it be seen at all
    assert kept(512) <= rows * (D_VALUE + 1) * 4 + seen
    assert kept(1024) == 2 * kept(512)


@pytest.mark.messages
def test_refusals_say_what_came():
    q, k, v = qkv()
    for name, least in (("radius", 0), ("dilation", 1), ("block_size", 1)):
        with pytest.raises(ValueError, match=f"{name} must be {least} or more, got -1"):
            window_attention(q, k, v, **{"radius": 2, name: -1})
    with pytest.raises(TypeError, match=r"radius must be a whole number, got float 2\.5"):
        window_attention(q, k, v, radius=2.5)
    with pytest.raises(ValueError, match=r"must be 4-D .*got shape \(3, 37, 5\)"):
        window_attention(q[0], k[0], v[0], radius=2)
    with pytest.raises(ValueError, match="as many queries as keys, got 5 and 37"):
        window_attention(q[:, :, :5], k, v, radius=2)
    with pytest.raises(ValueError, match=r"mask hides keys here.*\(batch, 1, 1, 37\), as padding"):
        window_attention(q, k, v, radius=2, mask=causal_mask(LENGTH))
    with pytest.raises(TypeError, match=r"is_global must be a boolean tensor, got torch\.int64"):
        window_attention(q, k, v, radius=2, is_global=SOME.long())
    with pytest.raises(ValueError, match=r"is_global must be .* = \(2, 37\), got shape \(2, 36\)"):
        window_attention(q, k, v, radius=2, is_global=SOME[:, 1:])


@pytest.mark.messages
def test_a_second_derivative_is_refused_not_wrong():
    q, k, v = qkv()
    with pytest.raises(RuntimeError, match=r"no second derivative; attnlib.functional.attention"):
        torch.autograd.grad(window_attention(q, k, v, radius=2).sum(), q, create_graph=True)
