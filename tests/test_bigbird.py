"""Block-sparse attention: the equation with the same mask, and BigBird's layout of blocks."""

import pytest
import torch
from parity import assert_same, leaves
from pictures import drawn
from torch.testing import assert_close

from attnlib.efficient import bigbird
from attnlib.efficient.bigbird import bigbird_layout, block_sparse_attention, layout_mask
from attnlib.functional import attention
from attnlib.masks import causal_mask, padding_mask
from attnlib.memory import saved_bytes

BATCH, HEADS, LENGTH, D_HEAD, D_VALUE, SIZE = 2, 3, 37, 5, 7, 4
N_BLOCKS = 10  # 9 whole ones and one of a single token


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def qkv(dtype=torch.float64, length=LENGTH):
    widths = (D_HEAD, D_HEAD, D_VALUE)
    return [torch.randn(BATCH, HEADS, length, w, dtype=dtype, requires_grad=True) for w in widths]


def uneven():
    """A layout of no plan: rows with few and many blocks, and one that sees nothing."""
    layout = torch.rand(N_BLOCKS, N_BLOCKS, generator=seeded()) > 0.6
    layout[3] = False
    return layout


PADDED = padding_mask(torch.tensor([LENGTH - 9, 0]), LENGTH)  # one sequence is all padding
LAYOUTS = {
    "bigbird": bigbird_layout(N_BLOCKS, random_blocks=2, generator=seeded()),
    "window": bigbird_layout(N_BLOCKS, global_blocks=(), random_blocks=0),
    "uneven": uneven(),
    "everything": torch.ones(N_BLOCKS, N_BLOCKS, dtype=torch.bool),
}


# ------------------------------------------------------------------------------- the attention


@pytest.mark.parametrize("scores", [100, 2**19], ids=["a block at a time", "many"])
@pytest.mark.parametrize("mask", [None, PADDED], ids=["whole", "padded"])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_it_is_the_equation_with_the_same_mask(layout, mask, scores, monkeypatch):
    monkeypatch.setattr(bigbird, "_SCORES", scores)
    ours = qkv()
    theirs = leaves(*ours)
    dense = layout_mask(layout, SIZE, LENGTH)
    expected = attention(*theirs, mask=dense if mask is None else dense & mask, scale=0.7)[0]
    output = block_sparse_attention(*ours, layout=layout, block_size=SIZE, mask=mask, scale=0.7)
    assert_same(output, expected, ours, theirs)


def test_the_scale_is_that_of_the_equation_and_one_block_is_plain_attention():
    q, k, v = qkv()
    whole = torch.ones(1, 1, dtype=torch.bool)
    output = block_sparse_attention(q, k, v, layout=whole, block_size=100)
    assert_close(output, attention(q, k, v)[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_are_computed_in_float32(dtype):
    inputs = qkv(dtype)
    case = {"layout": LAYOUTS["uneven"], "block_size": SIZE}
    output = block_sparse_attention(*inputs, **case)
    exact = block_sparse_attention(*(x.float() for x in inputs), **case)
    assert output.dtype == dtype
    assert_close(output, exact.to(dtype))
    assert [g.dtype for g in torch.autograd.grad(output.sum(), inputs)] == [dtype] * 3


def test_a_query_that_sees_nothing_is_zero_and_learns_nothing():
    inputs = qkv()
    output = block_sparse_attention(*inputs, layout=LAYOUTS["uneven"], block_size=SIZE, mask=PADDED)
    assert (output[1] == 0).all()
    assert (output[0, :, 3 * SIZE : 4 * SIZE] == 0).all()
    assert (output[0, :, : 3 * SIZE] != 0).any()
    grads = torch.autograd.grad(output.sum(), inputs)
    assert all(g.isfinite().all() and (g[1] == 0).all() for g in grads)


def test_what_a_token_says_reaches_those_who_may_see_it_and_no_one_else():
    layout = LAYOUTS["bigbird"]
    allowed = layout_mask(layout, SIZE, LENGTH)[0, 0]
    q, k, v = (x.detach() for x in qkv())
    before = block_sparse_attention(q, k, v, layout=layout, block_size=SIZE)
    for place in (0, 17, 36):
        v2 = v.clone()
        v2[0, :, place] += 1.0
        after = block_sparse_attention(q, k, v2, layout=layout, block_size=SIZE)
        changed = (after != before).any(-1)
        assert (changed[0] == allowed[:, place]).all()
        assert not changed[1].any()


def test_what_is_kept_grows_with_the_length_alone():
    def kept(length):
        inputs, layout = qkv(torch.float32, length), bigbird_layout(length // 8)
        return saved_bytes(
            lambda: block_sparse_attention(*inputs, layout=layout, block_size=8), leave_out=inputs
        )

    assert kept(256) <= BATCH * HEADS * 256 * (D_VALUE + 1) * 4 + BATCH * 256
    assert kept(512) == 2 * kept(256)


# --------------------------------------------------------------------------------- the layout


def test_the_layout_as_a_drawing():
    window = bigbird_layout(5, window_blocks=3, global_blocks=(), random_blocks=0)
    assert window.equal(drawn("xx... xxx.. .xxx. ..xxx ...xx"))
    corners = bigbird_layout(5, window_blocks=1, global_blocks=(0, -1), random_blocks=0)
    assert corners.equal(drawn("xxxxx xx..x x.x.x x..xx xxxxx"))


def test_random_blocks_are_further_ones_and_the_seed_decides():
    fixed = bigbird_layout(20, random_blocks=0)
    layout = bigbird_layout(20, random_blocks=3, generator=seeded(1))
    assert (layout >= fixed).all()
    further = (layout & ~fixed).sum(-1)
    assert (further[1:-1] == 3).all()
    assert layout.equal(bigbird_layout(20, random_blocks=3, generator=seeded(1)))
    assert not layout.equal(bigbird_layout(20, random_blocks=3, generator=seeded(2)))
    many = bigbird_layout(
        50, window_blocks=1, global_blocks=(), random_blocks=1, generator=seeded()
    )
    assert many.sum(0).max() < 15  # each row draws for itself: not all see the same block
    assert bigbird_layout(6, random_blocks=50).all()  # fewer are left than asked for


def test_a_layout_as_a_mask_of_tokens():
    mask = layout_mask(drawn("x.. .xx xxx"), block_size=2, length=5)
    assert mask[0, 0].equal(drawn("xx... xx... ..xxx ..xxx xxxxx"))
    assert mask.shape == (1, 1, 5, 5)


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.messages
def test_refusals_say_what_came():
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"window_blocks .* must be odd, got 2"):
        bigbird_layout(9, window_blocks=2)
    with pytest.raises(ValueError, match="window_blocks must be 1 or more, got 0"):
        bigbird_layout(9, window_blocks=0)
    with pytest.raises(ValueError, match="random_blocks must be 0 or more, got -1"):
        bigbird_layout(9, random_blocks=-1)
    for block in (9, -10):
        with pytest.raises(ValueError, match=rf"must lie in -9\.\.8, .* 9 blocks, got {block}"):
            bigbird_layout(9, global_blocks=[block])
    with pytest.raises(ValueError, match=r"length of 37 has 10 blocks of 4, .*\(10, 10\), got .*9"):
        block_sparse_attention(q, k, v, layout=bigbird_layout(9), block_size=4)
    with pytest.raises(ValueError, match=r"length of 8 has 2 blocks of 4"):
        layout_mask(bigbird_layout(9), 4, 8)
    with pytest.raises(ValueError, match="block_size must be 1 or more, got 0"):
        block_sparse_attention(q, k, v, layout=LAYOUTS["window"], block_size=0)
    with pytest.raises(TypeError, match=r"layout must be a boolean tensor, got torch\.int64"):
        block_sparse_attention(q, k, v, layout=LAYOUTS["window"].long(), block_size=4)
    with pytest.raises(ValueError, match="mask hides keys here"):
        block_sparse_attention(
            q, k, v, layout=LAYOUTS["window"], block_size=4, mask=causal_mask(LENGTH)
        )


@pytest.mark.messages
def test_a_second_derivative_is_refused_not_wrong():
    q, k, v = qkv()
    output = block_sparse_attention(q, k, v, layout=LAYOUTS["window"], block_size=4)
    with pytest.raises(RuntimeError, match=r"no second derivative; attnlib.functional.attention"):
        torch.autograd.grad(output.sum(), q, create_graph=True)
