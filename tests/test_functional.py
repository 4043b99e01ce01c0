"""The equation and its fused twin: against hand-made numbers, PyTorch, and each other."""

import math

import pytest
import torch
import torch.nn.functional as F
from parity import assert_same, leaves
from pictures import drawn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from attnlib import functional
from attnlib.functional import (
    attention,
    fused_attention,
    masked_softmax,
    merge_heads,
    split_heads,
)
from attnlib.masks import causal_mask, left_padding_mask, padding_mask, window_mask

BATCH, HEADS, Q_LEN, K_LEN, D_HEAD, D_VALUE = 2, 3, 5, 7, 11, 13
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
INF = torch.inf


def equation(*qkv, **options):
    return attention(*qkv, **options)[0]


TWINS = pytest.mark.parametrize("twin", [equation, fused_attention], ids=["equation", "fused"])


@pytest.fixture(params=[D_HEAD, D_VALUE], ids=["fused", "general"])
def make(request):
    """Makes query, key and value, a different prime for every axis.

    PyTorch's fused kernel wants values as wide as keys. For others it has a general path, which
    behaves differently where something is special: both must do right.
    """

    def make(q_len=Q_LEN, k_len=K_LEN, dtype=torch.float64, requires_grad=False):
        sizes = [(q_len, D_HEAD), (k_len, D_HEAD), (k_len, request.param)]
        return [
            torch.randn(BATCH, HEADS, *s, dtype=dtype, requires_grad=requires_grad) for s in sizes
        ]

    return make


def one_query_less(mask, query=2):
    """The same mask, but one query sees nothing."""
    mask = mask.expand(*mask.shape[:2], max(query + 1, mask.shape[2]), -1).clone()
    mask[:, :, query] = False
    return mask


# -------------------------------------------------------------------------------- by hand

# One query, two keys, d_head = 4: the scores are q.k / 2 = ln 3 and 0, the weights 3/4 and 1/4.
Q = torch.tensor([[2 * math.log(3), 5.0, 0.0, 0.0]], dtype=torch.float64)
K = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 7.0, 0.0]], dtype=torch.float64)
V = torch.tensor([[4.0], [8.0]], dtype=torch.float64)


def test_weights_and_output_by_hand():
    output, weights = attention(Q, K, V)
    assert_close(weights, torch.tensor([[0.75, 0.25]], dtype=torch.float64))
    assert_close(output, torch.tensor([[5.0]], dtype=torch.float64))


@TWINS
def test_bias_is_added_after_scaling_by_hand(twin):
    bias = torch.tensor([[[[0.0, math.log(3)]]]], dtype=torch.float64)  # now 3 : 3
    assert_close(twin(Q, K, V, bias=bias), torch.tensor([[6.0]], dtype=torch.float64))


@TWINS
def test_the_scale_can_be_given_by_hand(twin):
    assert_close(twin(Q, K, V, scale=1.0), torch.tensor([[4.4]], dtype=torch.float64))  # 9 : 1


@TWINS
def test_a_single_allowed_key_hands_over_its_value(make, twin):
    query, key, value = make()
    mask = torch.zeros(1, 1, 1, K_LEN, dtype=torch.bool)
    mask[..., 4] = True
    expected = value[:, :, 4:5].expand(-1, -1, Q_LEN, -1)
    assert_close(twin(query, key, value, mask=mask), expected)


def test_softmax_over_what_is_allowed_by_hand():
    scores = torch.tensor([[0.0, math.log(2), 9.0], [1.0, 2.0, 3.0], [5.0, -INF, 5.0]])
    mask = drawn("xx. ... xxx")
    weights = masked_softmax(scores, mask)
    assert_close(weights, torch.tensor([[1 / 3, 2 / 3, 0.0], [0.0] * 3, [0.5, 0.0, 0.5]]))
    assert (weights[~mask] == 0).all()  # exactly


def test_a_softmax_without_a_mask_is_torchs():
    scores = torch.randn(2, 3, 5, dtype=torch.float64)
    assert_close(masked_softmax(scores), scores.softmax(-1))


# ------------------------------------------------------------------------ parity with PyTorch

CASES = {
    "nothing hidden": lambda q, k: None,
    "causal": lambda q, k: causal_mask(q, k),
    "window": lambda q, k: window_mask(q, k, radius=2),
    "padding": lambda q, k: padding_mask(torch.tensor([k, 3]), k),
    "left padding": lambda q, k: left_padding_mask(torch.tensor([2, k]), k),
    "causal & padding": lambda q, k: causal_mask(q, k) & padding_mask(torch.tensor([k, k - 2]), k),
    "one query sees nothing": lambda q, k: one_query_less(causal_mask(q, k)),
    "differs by head": lambda q, k: torch.rand(1, HEADS, q, k) < 0.5,
    "differs by everything": lambda q, k: torch.rand(BATCH, HEADS, q, k) < 0.5,
    "one answer per query": lambda q, k: torch.rand(BATCH, 1, q, 1) < 0.5,
}
SIZES = {"short": (5, 7), "square": (7, 7), "long": (37, 41), "long square": (41, 41)}
MASKS = pytest.mark.parametrize("make_mask", CASES.values(), ids=CASES.keys())
LENGTHS = pytest.mark.parametrize(("q_len", "k_len"), SIZES.values(), ids=SIZES.keys())


@TWINS
@MASKS
@LENGTHS
def test_equals_torch_forward_and_backward(make, twin, make_mask, q_len, k_len):
    mask = make_mask(q_len, k_len)
    qkv = make(q_len, k_len)
    ours, theirs = leaves(*qkv), leaves(*qkv)
    expected = F.scaled_dot_product_attention(*theirs, attn_mask=mask)
    assert_same(twin(*ours, mask=mask), expected, ours, theirs)


@TWINS
@MASKS
@LENGTHS
def test_equals_torch_with_a_bias_and_its_gradient(make, twin, make_mask, q_len, k_len):
    mask = make_mask(q_len, k_len)
    qkv = [*make(q_len, k_len), torch.randn(1, HEADS, q_len, k_len, dtype=torch.float64)]
    ours, theirs = leaves(*qkv), leaves(*qkv)
    added = theirs[3] if mask is None else theirs[3].masked_fill(~mask, -INF)
    expected = F.scaled_dot_product_attention(*theirs[:3], attn_mask=added)
    assert_same(twin(*ours[:3], mask=mask, bias=ours[3]), expected, ours, theirs)


@TWINS
@pytest.mark.parametrize("mask", [None, causal_mask(37, 41)], ids=["no mask", "causal"])
def test_equals_torch_with_another_scale(make, twin, mask):
    qkv = make(37, 41)
    ours, theirs = leaves(*qkv), leaves(*qkv)
    expected = F.scaled_dot_product_attention(*theirs, attn_mask=mask, scale=0.3)
    assert_same(twin(*ours, mask=mask, scale=0.3), expected, ours, theirs)


@pytest.mark.parametrize("length", [32, 37, 40, 64, 131])
def test_a_square_causal_mask_equals_torchs_own_flag(make, length):
    qkv = make(length, length)
    ours, theirs = leaves(*qkv), leaves(*qkv)
    expected = F.scaled_dot_product_attention(*theirs, is_causal=True)
    assert_same(fused_attention(*ours, mask=causal_mask(length)), expected, ours, theirs)


@MASKS
def test_the_weights_are_those_of_the_output(make, make_mask):
    query, key, value = make()
    mask = make_mask(Q_LEN, K_LEN)
    output, weights = attention(query, key, value, mask=mask)
    assert weights.shape == (BATCH, HEADS, Q_LEN, K_LEN)
    assert_close(weights @ value, output)
    rows = weights.sum(-1)
    assert_close(rows, rows.round())  # 1, or 0 where nothing may be seen
    if mask is not None:
        mask = mask.expand_as(weights)
        assert (weights[~mask] == 0).all()
        assert_close(rows == 0, ~mask.any(-1))


@TWINS
@pytest.mark.parametrize("length", [K_LEN, 41])
def test_fewer_dimensions_mean_one_head_and_one_sequence(make, twin, length):
    query, key, value = make(Q_LEN, length)
    mask, bias = padding_mask(torch.tensor([length, 4]), length), torch.randn(1, 1, Q_LEN, length)
    options = {"mask": mask, "bias": bias.double()}
    alone = [x[:, 1:2] for x in (query, key, value)]  # one head
    three = twin(*(x[:, 0] for x in alone), **options)
    assert_close(three, twin(*alone, **options)[:, 0])
    options["mask"] = mask[1:]
    two = twin(*(x[1, 0] for x in alone), **options)
    assert_close(two, three[1])


def test_the_weights_have_as_many_dimensions_as_the_query(make):
    query, key, value = make()
    expected = attention(query, key, value)[1]
    assert_close(attention(query[1], key[1], value[1])[1], expected[1])
    assert_close(attention(query[1, 2], key[1, 2], value[1, 2])[1], expected[1, 2])


@TWINS
@pytest.mark.parametrize(
    ("dtype", "atol"),
    # Worst of 200 seeds: 8.3e-7, 2.0e-2 and 2.4e-3.
    [(torch.float32, 3e-6), (torch.bfloat16, 5e-2), (torch.float16, 7e-3)],
)
def test_low_precision_stays_near_float64(make, twin, dtype, atol):
    qkv = make()
    mask = causal_mask(Q_LEN, K_LEN)
    rough = twin(*(x.to(dtype) for x in qkv), mask=mask)
    assert rough.dtype == dtype
    assert_close(rough.double(), equation(*qkv, mask=mask), atol=atol, rtol=0)


@pytest.mark.parametrize(
    ("dtype", "atol"),
    # Worst of 200 seeds: 3.2e-2 and 3.9e-3; with scores in the half type 1.6e-1 and 2.2e-2.
    [(torch.bfloat16, 5e-2), (torch.float16, 6e-3)],
)
@pytest.mark.parametrize("with_autocast", [False, True], ids=["plain", "autocast"])
def test_large_scores_keep_their_weights_in_half_types(dtype, atol, with_autocast):
    query, key = (torch.randn(1, 2, 64, 64).mul(10**0.5).to(dtype) for _ in range(2))
    value = torch.randn(1, 2, 64, 64).to(dtype)
    expected, exact = attention(query.double(), key.double(), value.double())
    mask = torch.ones(1, 1, 1, 64, dtype=torch.bool)
    for options in ({}, {"mask": mask}, {"bias": torch.zeros(1, 1, 1, 64, dtype=dtype)}):
        with torch.autocast("cpu", dtype, enabled=with_autocast):
            output, weights = attention(query, key, value, **options)
            fused = F.scaled_dot_product_attention(query, key, value)
        assert output.dtype == weights.dtype == dtype
        assert_close(output.double(), expected, atol=atol, rtol=0)
        assert_close(output, fused, atol=atol, rtol=0)
        # the only thing that is rounded is the weight itself
        assert_close(weights.double(), exact, atol=1e-5, rtol=torch.finfo(dtype).eps)


def test_under_autocast_float32_comes_out_as_from_torch():
    qkv = torch.randn(3, 1, 2, 5, 8).unbind()
    with torch.autocast("cpu", torch.bfloat16):
        output, weights = attention(*qkv)
        expected = F.scaled_dot_product_attention(*qkv)
    assert output.dtype == expected.dtype == torch.bfloat16
    assert_close(output, expected, atol=5e-2, rtol=0)
    assert_close(weights, attention(*qkv)[1])  # the scores were not rounded


@TWINS
def test_shapes_can_be_tried_without_memory(twin):
    query, key, value = (torch.empty(2, 3, n, 8, device="meta") for n in (5, 7, 7))
    assert twin(query, key, value).shape == (2, 3, 5, 8)


@TWINS
def test_long_vectors_do_not_overflow_in_half_precision(twin):
    big = torch.full((1, 1, 2, 64), 40.0, dtype=torch.float16)  # q.k = 102400, above 65504
    value = torch.tensor([[1.0], [3.0]], dtype=torch.float16)[None, None]
    assert twin(big, big, value).flatten().tolist() == [2.0, 2.0]


# ----------------------------------------------------------------- properties, with their twins


@TWINS
def test_a_hidden_key_cannot_change_the_output(make, twin):
    query, key, value = make()
    mask = padding_mask(torch.tensor([K_LEN, 4]), K_LEN)
    before = twin(query, key, value, mask=mask)
    key[1, :, 4:], value[1, :, 4:] = 1e4, -1e4  # finite, since 0 * nan is nan
    assert torch.equal(twin(query, key, value, mask=mask), before)


@TWINS
def test_a_shown_key_does_change_the_output(make, twin):
    query, key, value = make()
    mask = padding_mask(torch.tensor([K_LEN, 4]), K_LEN)
    before = twin(query, key, value, mask=mask)
    key[1, :, 3] += 1.0
    after_key = twin(query, key, value, mask=mask)
    value[1, :, 3] += 1.0
    after_value = twin(query, key, value, mask=mask)
    assert (after_key[1] != before[1]).all()
    assert (after_value[1] != after_key[1]).all()
    assert torch.equal(after_value[0], before[0])  # the other sequence sees nothing of it


@TWINS
@pytest.mark.parametrize("length", [7, 41])
def test_under_a_causal_mask_the_future_cannot_matter_and_the_present_does(make, twin, length):
    query, key, value = make(length, length)
    before = twin(query, key, value, mask=causal_mask(length))
    key[:, :, 4] += 1.0
    value[:, :, 4] -= 1.0
    after = twin(query, key, value, mask=causal_mask(length))
    assert torch.equal(after[:, :, :4], before[:, :, :4])
    assert (after[:, :, 4:] != before[:, :, 4:]).any(-1).all()


@TWINS
def test_the_order_of_the_keys_does_not_matter_but_who_owns_which_value_does(make, twin):
    query, key, value = make()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    expected = twin(query, key, value)
    assert_close(twin(query, key[:, :, order], value[:, :, order]), expected)
    assert not torch.allclose(twin(query, key[:, :, order], value), expected)


@TWINS
def test_sequences_and_heads_do_not_mix(make, twin):
    query, key, value = make()
    expected = twin(query, key, value)
    for b in range(BATCH):
        for h in range(HEADS):
            alone = twin(query[b, h], key[b, h], value[b, h])
            assert_close(alone, expected[b, h])


@TWINS
def test_arguments_are_left_as_they_were(make, twin):
    arguments = [*make(), causal_mask(Q_LEN, K_LEN), torch.randn(1, 1, Q_LEN, K_LEN).double()]
    before = [x.clone() for x in arguments]
    twin(*arguments[:3], mask=arguments[3], bias=arguments[4])
    assert all(torch.equal(a, b) for a, b in zip(arguments, before, strict=True))


# ------------------------------------------------------------- a query that may see nothing

MASKED, BIASED = "by the mask", "by a bias of -inf"
BY = {"mask": {MASKED}, "bias": {BIASED}, "both": {MASKED, BIASED}}


def nothing_for_query_2(by, dtype, k_len):
    """A mask, a bias or both, that leave query 2 nothing to see, and others something."""
    mask = torch.rand(BATCH, 1, Q_LEN, k_len) < 0.7
    mask[..., 0] = True
    bias = torch.randn(1, HEADS, Q_LEN, k_len, dtype=dtype)
    if MASKED in by:
        mask = one_query_less(mask)
    if BIASED in by:
        bias[:, :, 2] = -INF
    return mask if MASKED in by else None, bias if BIASED in by else None


@TWINS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("by", BY.values(), ids=BY.keys())
@pytest.mark.parametrize("k_len", [1, K_LEN, 41])
@pytest.mark.parametrize("learned", [False, True], ids=["fixed bias", "learned bias"])
def test_a_query_that_may_see_nothing_gets_0_and_gives_no_gradient(
    make, twin, dtype, by, learned, k_len
):
    query, key, value = make(Q_LEN, k_len, dtype, requires_grad=True)
    mask, bias = nothing_for_query_2(by, dtype, k_len)
    if bias is not None:
        bias.requires_grad_(learned)
    output = twin(query, key, value, mask=mask, bias=bias)
    others = torch.arange(Q_LEN) != 2
    assert (output[:, :, 2] == 0).all()
    assert (output[:, :, others] != 0).any(-1).all()
    output.backward(torch.randn_like(output))
    assert (query.grad[:, :, 2] == 0).all()
    assert all(x.grad.isfinite().all() for x in (query, key, value))
    assert (value.grad != 0).any()
    if bias is not None and learned:
        assert (bias.grad[:, :, 2] == 0).all()
        assert bias.grad.isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("by", BY.values(), ids=BY.keys())
def test_its_weights_are_0(make, dtype, by):
    mask, bias = nothing_for_query_2(by, dtype, K_LEN)
    weights = attention(*make(dtype=dtype), mask=mask, bias=bias)[1]
    assert (weights[:, :, 2] == 0).all()
    assert weights.isfinite().all()


@TWINS
@pytest.mark.parametrize("dtype", DTYPES)
def test_if_no_query_may_see_anything_all_is_0(make, twin, dtype):
    query, key, value = make(dtype=dtype, requires_grad=True)
    output = twin(query, key, value, mask=torch.zeros(1, 1, 1, 1, dtype=torch.bool))
    output.sum().backward()
    assert not output.any()
    assert not any(x.grad.any() for x in (query, key, value))


@TWINS
def test_a_mask_and_a_bias_that_leave_nothing_only_together(make, twin):
    query, key, value = make(requires_grad=True)
    mask = torch.ones(1, 1, 1, K_LEN, dtype=torch.bool)
    mask[..., :3] = False
    bias = torch.zeros(1, 1, Q_LEN, K_LEN, dtype=torch.float64)
    bias[:, :, 2, 3:] = -INF
    output = twin(query, key, value, mask=mask, bias=bias)
    output.sum().backward()
    assert not output[:, :, 2].any()
    assert not query.grad[:, :, 2].any()
    assert query.grad[:, :, 3].any()


# ---------------------------------------------------------------------------- NaN is not hidden


def rows_with_nan(x):
    return x.isnan().any(-1).any(1).any(0)


@TWINS
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("which", [0, 1, 2], ids=["query", "key", "value"])
@pytest.mark.parametrize("kind", ["no mask", "causal", "padding", "bias"])
def test_a_nan_shows_in_every_row_that_it_concerns(make, twin, dtype, which, kind):
    for length in (1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 65):
        options = {
            "no mask": {},
            "causal": {"mask": causal_mask(length)},
            "padding": {"mask": torch.ones(BATCH, 1, 1, length, dtype=torch.bool)},
            "bias": {"bias": torch.zeros(1, 1, length, length, dtype=dtype)},
        }[kind]
        for where in {0, length // 2, length - 1}:
            qkv = make(length, length, dtype)
            qkv[which][1, 2, where, 4] = torch.nan
            found = rows_with_nan(twin(*qkv, **options))
            if which == 0:
                assert found[where]
                assert found.sum() == 1  # a query is its own affair
            else:
                assert found[where if kind == "causal" else 0 :].all()


@TWINS
def test_a_nan_shows_even_in_a_query_that_may_see_nothing(make, twin):
    query, key, value = make()
    query[0, 0, 2, 0] = torch.nan
    mask = one_query_less(causal_mask(Q_LEN, K_LEN))
    found = rows_with_nan(twin(query, key, value, mask=mask))
    assert found.tolist() == [False, False, True, False, False]


@pytest.mark.parametrize("which", [1, 2], ids=["key", "value"])
def test_a_hidden_nan_reaches_every_query_unless_its_key_is_skipped(which):
    qkv = list(torch.randn(3, 1, 1, 64, 8).unbind())
    qkv[which][..., -1, 0] = torch.nan
    mask, bias = causal_mask(64), torch.zeros(1, 1, 1, 1)
    assert rows_with_nan(equation(*qkv, mask=mask)).all()
    assert rows_with_nan(fused_attention(*qkv, mask=mask, bias=bias)).all()
    recognised = rows_with_nan(fused_attention(*qkv, mask=mask))
    assert recognised[-1]
    if which == 1:  # how far a value reaches depends on the blocks in which PyTorch computes
        assert not recognised[:-1].any()


def test_the_fused_kernel_is_really_there():
    query, key, value = torch.randn(3, BATCH, HEADS, K_LEN, D_HEAD).double().unbind()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):  # an error if PyTorch cannot use it
        for options in (
            {},
            {"mask": causal_mask(K_LEN)},
            {"bias": torch.zeros(1, 1, 7, 7).double()},
        ):
            output = fused_attention(query, key, value, **options)
            assert_close(output, equation(query, key, value, **options))


# ------------------------------------------------------------------ recognising a causal mask


@pytest.fixture
def flags(monkeypatch):
    """What was passed as ``is_causal`` to PyTorch's kernel, call by call."""
    seen = []
    original = F.scaled_dot_product_attention

    def spy(*args, is_causal=False, **options):
        seen.append(is_causal)
        return original(*args, is_causal=is_causal, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return seen


def is_causal(mask):
    return functional._is_square_causal(mask)


@pytest.mark.parametrize("length", range(1, 25))
def test_one_cell_more_or_less_is_no_causal_mask(length):
    mask = causal_mask(length)
    assert is_causal(mask) or length == 1  # one token alone: any answer is right
    for row in range(length):
        for column in range(length):
            mask[0, 0, row, column] ^= True
            assert not is_causal(mask), (row, column)
            mask[0, 0, row, column] ^= True
    assert is_causal(mask) or length == 1


@pytest.mark.parametrize("length", [8, 13, 64, 67])
def test_masks_that_look_like_causal_ones_are_not(length):
    causal = causal_mask(length)
    square = causal[0, 0]
    assert is_causal(causal)
    assert not is_causal(causal.mT)
    assert not is_causal(causal.flip(-1))
    assert not is_causal(~causal)
    assert not is_causal(square.tril(-1)[None, None])
    assert not is_causal(torch.ones_like(square).tril(1)[None, None])
    assert not is_causal(torch.zeros_like(causal))
    assert not is_causal(torch.ones_like(causal))
    assert not is_causal(window_mask(length, radius=length - 2) & causal)
    assert not is_causal(causal_mask(length, length + 8))
    assert not is_causal(causal_mask(length + 8)[:, :, :length])
    assert not is_causal(padding_mask(torch.tensor([length - 1]), length))
    block = torch.arange(length) // 8
    assert not is_causal((block[:, None] >= block)[None, None])


@pytest.mark.parametrize("length", [8, 13, 64, 67])
def test_a_causal_mask_is_known_however_it_lies_in_memory(length):
    causal = causal_mask(length)
    wide = causal_mask(2 * length)
    spread = torch.zeros(1, 1, 2 * length, 2 * length, dtype=torch.bool)
    spread[..., ::2, ::2] = causal
    memory = torch.zeros(length * length + 8, dtype=torch.bool)
    assert is_causal(causal.mT.contiguous().mT)
    assert is_causal(wide[:, :, :length, :length])
    assert is_causal(wide[:, :, length:, length:])
    assert is_causal(wide[:, :, 1 : length + 1, 1 : length + 1])
    assert is_causal(spread[..., ::2, ::2])
    for offset in range(8):
        shifted = memory[offset : offset + length * length].view(1, 1, length, length)
        shifted.copy_(causal)
        assert is_causal(shifted)


@pytest.mark.parametrize("length", [32, 37, 64, 128])
def test_a_causal_mask_takes_the_fast_path(make, length, flags):
    qkv = make(length, length)
    fused_attention(*qkv, mask=causal_mask(length))
    fused_attention(*qkv, mask=causal_mask(length) & causal_mask(length))
    assert flags == [True, True]


@pytest.mark.parametrize("length", [33, 40, 64])
@pytest.mark.parametrize("shape", [(BATCH, 1), (1, HEADS), (BATCH, HEADS)])
def test_an_expanded_causal_mask_means_the_same(make, length, shape):
    qkv = make(length, length)
    mask = causal_mask(length)
    expected = equation(*qkv, mask=mask)
    assert_close(fused_attention(*qkv, mask=mask.expand(*shape, -1, -1)), expected)


def by_index(mask):
    mask[0, 0, 5, 2] = False


def by_data(mask):
    mask.data[0, 0, 5, 2] = False


def by_numpy(mask):
    mask.numpy()[0, 0, 5, 2] = False


def by_a_view(mask):
    mask.view(-1)[5 * mask.shape[-1] + 2] = False


@pytest.mark.parametrize("change", [by_index, by_data, by_numpy, by_a_view])
@pytest.mark.parametrize("length", [33, 40])
def test_a_mask_that_was_changed_after_use_is_looked_at_again(make, change, length, flags):
    qkv = make(length, length)
    mask = causal_mask(length)
    before = fused_attention(*qkv, mask=mask)
    change(mask)
    after = fused_attention(*qkv, mask=mask)
    assert flags == [True, False]
    assert_close(after, equation(*qkv, mask=mask))
    assert (after[:, :, 5] != before[:, :, 5]).all()


def test_a_causal_mask_with_a_bias_keeps_the_bias(make, flags):
    qkv, bias = make(40, 40), torch.randn(1, HEADS, 40, 40, dtype=torch.float64)
    mask = causal_mask(40)
    assert_close(fused_attention(*qkv, mask=mask, bias=bias), equation(*qkv, mask=mask, bias=bias))
    assert flags == [False]


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # PyTorch's word on its vmap
@pytest.mark.compiles
@pytest.mark.parametrize("length", [7, 40])
def test_both_twins_can_be_mapped_over_inputs_and_masks(length):
    qkv = torch.randn(3, 2, 1, 3, length, 8, dtype=torch.float64).unbind()
    masks = torch.stack([causal_mask(length), torch.ones(1, 1, length, length).bool()])
    expected = [attention(*(x[i] for x in qkv), mask=masks[i])[0] for i in range(2)]
    for twin in (equation, fused_attention):
        mapped = torch.vmap(lambda q, k, v, m, f=twin: f(q, k, v, mask=m))(*qkv, masks)
        assert_close(mapped, torch.stack(expected))
        shared = torch.vmap(lambda q, k, v, f=twin: f(q, k, v, mask=masks[0]))(*qkv)
        assert_close(shared[0], expected[0])


# -------------------------------------------------------------------------------------- heads


def test_heads_are_cut_from_the_width_in_order():
    x = torch.arange(24.0).view(1, 2, 12)  # two tokens of width 12
    assert split_heads(x, 3).tolist() == [
        [
            [[0.0, 1.0, 2.0, 3.0], [12.0, 13.0, 14.0, 15.0]],
            [[4.0, 5.0, 6.0, 7.0], [16.0, 17.0, 18.0, 19.0]],
            [[8.0, 9.0, 10.0, 11.0], [20.0, 21.0, 22.0, 23.0]],
        ]
    ]


def test_merging_undoes_splitting():
    x = torch.randn(2, 5, 21)
    heads = split_heads(x, 3)
    assert heads.shape == (2, 3, 5, 7)
    assert heads.data_ptr() == x.data_ptr()  # a view, no copy
    assert torch.equal(merge_heads(heads), x)


def test_merged_heads_stand_side_by_side():
    heads = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]], [[5.0, 6.0], [7.0, 8.0]]]])
    assert merge_heads(heads).tolist() == [[[1.0, 2.0, 5.0, 6.0], [3.0, 4.0, 7.0, 8.0]]]


# ----------------------------------------------------------------------------------- autocast


@TWINS
def test_under_autocast_a_float32_bias_meets_bfloat16_scores(make, twin):
    qkv = make(dtype=torch.float32)
    bias = torch.randn(1, HEADS, Q_LEN, K_LEN)
    mask = causal_mask(Q_LEN, K_LEN)
    expected = twin(*qkv, mask=mask, bias=bias)
    with torch.autocast("cpu", torch.bfloat16):
        output = twin(*(x.bfloat16() for x in qkv), mask=mask, bias=bias)
    assert output.dtype == torch.bfloat16
    assert_close(output.float(), expected, atol=5e-2, rtol=0)  # worst of 200 seeds: 1.8e-2


# ----------------------------------------------------------------------------------- refusals

X = torch.zeros(2, 3, 5, 7)
MASK = torch.ones(2, 3, 5, 5, dtype=torch.bool)
REFUSED = {
    "query of ints": ((X.long(), X, X), {}, TypeError, "query must be a float tensor, got torch.i"),
    "key as list": ((X, [1.0], X), {}, TypeError, "key must be a float tensor, got list"),
    "value of booleans": ((X, X, X > 0), {}, TypeError, "value must be a float tensor, got"),
    "1-D": ((X[0, 0, 0],) * 3, {}, ValueError, r"2, 3 or 4 dimensions, got query \(7,\)"),
    "5-D": ((X[None],) * 3, {}, ValueError, "same 2, 3 or 4 dimensions"),
    "different ranks": ((X, X[0], X), {}, ValueError, r"got .*key \(3, 5, 7\)"),
    "other batch": ((X, X[:1], X), {}, ValueError, "agree in batch and heads"),
    "other heads": ((X, X, X[:, :1]), {}, ValueError, r"value \(2, 1, 5, 7\)"),
    "other width": ((X, X[..., :6], X), {}, ValueError, "widths must be equal, got 7 and 6"),
    "lost key": ((X, X[:, :, :4], X), {}, ValueError, "got 4 keys and 5 values"),
    "lost value": ((X, X, X[:, :, :4]), {}, ValueError, "got 5 keys and 4 values"),
    "no queries": ((X[:, :, :0], X, X), {}, ValueError, r"no tokens.*query \(2, 3, 0, 7\)"),
    "no keys": ((X, X[:, :, :0], X[:, :, :0]), {}, ValueError, r"no tokens.*key \(2, 3, 0, 7\)"),
    "no width": ((X[..., :0], X[..., :0], X), {}, ValueError, "of no width"),
    "mixed dtypes": ((X, X.double(), X), {}, TypeError, "key is torch.float64; convert"),
    "value of another dtype": ((X, X, X.half()), {}, TypeError, "value is torch.float16; convert"),
    "mixed devices": ((X, X.to("meta"), X), {}, ValueError, "key is on meta, but query is on cpu"),
    "mask as list": ((X, X, X), {"mask": [[True]]}, TypeError, "Tensor of booleans, got list"),
    "mask of ints": ((X, X, X), {"mask": MASK.int()}, TypeError, r"mask.bool\(\)"),
    "mask of floats": ((X, X, X), {"mask": MASK.float()}, TypeError, "passed as bias="),
    "2-D mask": ((X, X, X), {"mask": MASK[0, 0]}, ValueError, "use padding_mask"),
    "mask of other keys": (
        (X, X, X), {"mask": MASK[..., :4]}, ValueError, r"mask of shape.*= \(2, 3, 5, 5\)"
    ),
    "mask of other heads": (
        (X, X, X), {"mask": MASK[:, :2]}, ValueError, r"\(2, 2, 5, 5\) does not broadcast"
    ),
    "mask of heads in 3-D": (
        (X[0], X[0], X[0]), {"mask": MASK[:1]}, ValueError, r"q_len, k_len\) = \(3, 1, 5, 5\)"
    ),
    "mask of a batch in 2-D": (
        (X[0, 0], X[0, 0], X[0, 0]), {"mask": MASK[:, :1]}, ValueError, r"= \(1, 1, 5, 5\)"
    ),
    "mask on another device": ((X, X, X), {"mask": MASK.to("meta")}, ValueError, "mask is on meta"),
    "mask as bias": ((X, X, X), {"bias": MASK}, TypeError, "bias must be .* said by mask="),
    "number as bias": ((X, X, X), {"bias": 0.5}, TypeError, "bias must be .* got float;"),
    "2-D bias": ((X, X, X), {"bias": X[0, 0]}, ValueError, r"bias must be 4-D .* shape \(5, 7\)"),
    "bias of another dtype": ((X, X, X), {"bias": MASK.double()}, TypeError, "bias is torch.fl"),
    "bias of other keys": ((X, X, X), {"bias": X}, ValueError, r"bias of shape \(2, 3, 5, 7\)"),
    "bias on another device": (
        (X, X, X), {"bias": X[..., :5].to("meta")}, ValueError, "bias is on meta"
    ),
}  # fmt: skip


@pytest.mark.messages
@TWINS
@pytest.mark.parametrize(("qkv", "options", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(twin, qkv, options, error, words):
    with pytest.raises(error, match=words):
        twin(*qkv, **options)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: masked_softmax(X, X), TypeError, "mask must be a boolean tensor"),
        (lambda: masked_softmax(X, MASK), ValueError, r"\(2, 3, 5, 5\) does not broadcast"),
        (lambda: masked_softmax(X[0], X[None] > 0), ValueError, "does not broadcast"),
        (lambda: split_heads(X, 7), ValueError, r"3-D \(batch, length, width\), got shape \(2, 3,"),
        (lambda: split_heads(X[0], 3), ValueError, "width of 7 does not split into n_heads=3"),
        (lambda: split_heads(X[0], 0), ValueError, "n_heads must be 1 or more, got 0"),
        (lambda: merge_heads(X[0]), ValueError, r"4-D .* got \(3, 5, 7\)"),
    ],
)
def test_bad_scores_and_heads_are_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
