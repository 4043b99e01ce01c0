"""Rotary positions: against LLaMA (halves), GPT-J (neighbours) and what rotation promises."""

import copy

import pytest
import torch
from parity import assert_same, leaves
from torch.testing import assert_close
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

from attnlib.positions import Rope, halves_to_interleaved, interleaved_to_halves

BATCH, HEADS, LENGTH, D_HEAD, D_MODEL = 2, 3, 7, 10, 13
BASE = 53.0


def heads(length=LENGTH, dtype=torch.float64):
    return torch.randn(BATCH, HEADS, length, D_HEAD, dtype=dtype)


def angles(length=LENGTH, offset=0, base=BASE):
    """Written out, one number at a time."""
    return torch.tensor(
        [
            [m / base ** (2 * i / D_HEAD) for i in range(D_HEAD // 2)]
            for m in range(offset, offset + length)
        ],
        dtype=torch.float64,
    )


# ---------------------------------------------------------------------------------- parity


@pytest.mark.parametrize("offset", [0, 5])
def test_it_rotates_as_llama_does_forward_and_gradient(offset):
    (ours, theirs), key = (leaves(x)[0] for x in [heads()] * 2), heads()
    angle = angles(offset=offset)
    cos, sin = (torch.cat([wave, wave], dim=-1)[None] for wave in (angle.cos(), angle.sin()))
    expected, expected_key = modeling_llama.apply_rotary_pos_emb(theirs, key, cos, sin)
    assert_same(Rope(D_HEAD, BASE).rotate(ours, offset), expected, [ours], [theirs])
    assert_close(Rope(D_HEAD, BASE).rotate(key, offset), expected_key)


def test_the_speeds_are_llamas():
    config = modeling_llama.LlamaConfig(
        hidden_size=HEADS * D_HEAD, num_attention_heads=HEADS, head_dim=D_HEAD
    )
    x = heads(dtype=torch.float32)
    cos, sin = modeling_llama.LlamaRotaryEmbedding(config)(x, torch.arange(LENGTH)[None])
    expected, _ = modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)
    # Their angles are in float32: 50 seeds, worst 4.8e-7.
    assert_close(Rope(D_HEAD).rotate(x), expected, atol=2e-6, rtol=0)


@pytest.mark.parametrize("has_bias", [False, True])
def test_converted_weights_score_as_the_interleaved_rotation_does(has_bias):
    to_query, to_key = (torch.nn.Linear(D_MODEL, HEADS * D_HEAD).double() for _ in range(2))
    x = torch.randn(BATCH, LENGTH, D_MODEL, dtype=torch.float64)
    sin, cos = (wave[None] for wave in (angles().sin(), angles().cos()))
    scores = []
    for convert in (None, interleaved_to_halves):
        turned = []
        for linear in (to_query, to_key):
            weight, bias = linear.weight, linear.bias if has_bias else None
            if convert:
                weight, bias = (
                    convert(weight, HEADS),
                    bias if bias is None else convert(bias, HEADS),
                )
            y = torch.nn.functional.linear(x, weight, bias).unflatten(-1, (HEADS, D_HEAD))
            if convert:
                turned.append(Rope(D_HEAD, BASE).rotate(y.transpose(1, 2)))
            else:
                turned.append(modeling_gptj.apply_rotary_pos_emb(y, sin, cos).transpose(1, 2))
        scores.append(turned[0] @ turned[1].mT)
    assert_close(scores[1], scores[0])


def test_without_the_converter_the_scores_are_others():
    x = heads().transpose(1, 2)
    sin, cos = (wave[None] for wave in (angles().sin(), angles().cos()))
    theirs = modeling_gptj.apply_rotary_pos_emb(x, sin, cos).transpose(1, 2)
    ours = Rope(D_HEAD, BASE).rotate(x.transpose(1, 2))
    assert not torch.allclose(ours @ ours.mT, theirs @ theirs.mT, atol=0.1)


def test_each_converter_undoes_the_other():
    weight = torch.randn(HEADS * D_HEAD, D_MODEL)
    converted = interleaved_to_halves(weight, HEADS)
    assert not torch.equal(converted, weight)
    assert torch.equal(halves_to_interleaved(converted, HEADS), weight)
    assert torch.equal(interleaved_to_halves(halves_to_interleaved(weight, HEADS), HEADS), weight)
    assert converted.data_ptr() != weight.data_ptr()


def test_rows_stay_in_their_head():
    rows = torch.arange(12.0)
    assert interleaved_to_halves(rows, 2).tolist() == [0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11]
    assert halves_to_interleaved(rows, 2).tolist() == [0, 3, 1, 4, 2, 5, 6, 9, 7, 10, 8, 11]


# -------------------------------------------------------------------------------- property


def test_a_score_depends_on_the_distance_only():
    rope, (query, key) = Rope(D_HEAD, BASE), torch.randn(2, 1, 1, 1, D_HEAD, dtype=torch.float64)

    def score(query_at, key_at):
        return (rope.rotate(query, query_at) * rope.rotate(key, key_at)).sum().item()

    assert score(9, 4) == pytest.approx(score(5, 0), abs=1e-12)
    assert score(1005, 1000) == pytest.approx(score(5, 0), abs=1e-12)
    assert abs(score(9, 5) - score(5, 0)) > 1e-3
    assert abs(score(0, 5) - score(5, 0)) > 1e-3  # before and behind are not the same


def test_lengths_stay_and_directions_turn():
    x = heads()
    turned = Rope(D_HEAD, BASE).rotate(x)
    assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, :, 0], x[:, :, 0])  # position 0 is not turned
    assert (turned[:, :, 1:] - x[:, :, 1:]).norm(dim=-1).min() > 0.1


@pytest.mark.parametrize("split", range(1, LENGTH))
def test_a_slice_with_its_offset_is_the_slice_of_the_whole(split):
    rope, x = Rope(D_HEAD, BASE), heads()
    whole = rope.rotate(x, 3)
    assert torch.equal(rope.rotate(x[:, :, :split], 3), whole[:, :, :split])
    assert torch.equal(rope.rotate(x[:, :, split:], 3 + split), whole[:, :, split:])


def test_nothing_is_added_to_the_scores():
    assert Rope(D_HEAD).bias(heads(), heads()) is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_rounded_once_even_far_out(dtype):
    x = heads(dtype=dtype)
    far = 100_003  # in bfloat16 or float16 such a position does not exist
    expected = Rope(D_HEAD).rotate(x.double(), far)
    got = Rope(D_HEAD).to(dtype).rotate(x, far)
    assert got.dtype == dtype
    # half a unit in the last place, and what float32 adds to it
    assert_close(got.double(), expected, atol=1e-6, rtol=torch.finfo(dtype).eps * 0.51)


def test_float64_angles_keep_far_positions_apart():
    x = heads(1, torch.float32)
    expected = Rope(D_HEAD).rotate(x.double(), 10_000_019)
    # 50 seeds, worst 2.4e-7; the cosine of an angle in float32 is off by 0.03 there.
    assert_close(Rope(D_HEAD).rotate(x, 10_000_019).double(), expected, atol=2e-6, rtol=0)


def test_the_input_is_left_alone():
    x = heads()
    before = x.clone()
    Rope(D_HEAD).rotate(x, 2)
    assert torch.equal(x, before)


def test_a_copy_does_the_same_and_there_is_nothing_to_save():
    rope, x = Rope(D_HEAD, BASE), heads()
    assert torch.equal(copy.deepcopy(rope).rotate(x, 2), rope.rotate(x, 2))
    assert not rope.state_dict()
    assert repr(rope) == "Rope(d_head=10, base=53.0)"


@pytest.mark.compiles
@pytest.mark.parametrize("dynamic", [False, True])
def test_it_compiles_whole(dynamic):
    rope = Rope(D_HEAD)
    compiled = torch.compile(rope.rotate, fullgraph=True, backend="eager", dynamic=dynamic)
    for length, offset in [(LENGTH, 0), (LENGTH + 4, 3)]:
        x = heads(length)
        assert_close(compiled(x, offset), rope.rotate(x, offset))


# --------------------------------------------------------------------------------- refusal

ROPE, X, WEIGHT = Rope(4), torch.ones(1, 2, 3, 4), torch.ones(12, 5)
REFUSED = {
    "odd": (lambda: Rope(7), ValueError, "d_head must be even.* got 7; try 8"),
    "no width": (lambda: Rope(0), ValueError, "d_head must be 1 or more, got 0"),
    "half a head": (lambda: Rope(64 / 2), TypeError, "d_head must be a whole number, got float"),
    "base": (lambda: Rope(4, base=0.0), ValueError, "base must be a number above 0, got 0"),
    "nan": (lambda: Rope(4, base=float("nan")), ValueError, "number above 0, got nan"),
    "other width": (lambda: ROPE.rotate(X[..., :2]), ValueError, r"got shape \(1, 2, 3, 2"),
    "not split": (lambda: ROPE.rotate(X[0]), ValueError, r"length, 4\), got shape \(2, 3, 4\)"),
    "list": (lambda: ROPE.rotate([1.0]), TypeError, "x must be a float tensor, got list"),
    "integers": (lambda: ROPE.rotate(X.int()), TypeError, "must be a float tensor, got torch.int"),
    "negative": (lambda: ROPE.rotate(X, -1), ValueError, "offset must be 0 or more, got -1"),
    "tensor": (lambda: ROPE.rotate(X, torch.tensor(1)), TypeError, "offset must be .* got Tensor"),
    "odd heads": (lambda: interleaved_to_halves(WEIGHT, 4), ValueError, "n_heads=4 and shape"),
    "odd back": (lambda: halves_to_interleaved(WEIGHT, 4), ValueError, r"shape \(12, 5\)"),
    "no heads": (lambda: interleaved_to_halves(WEIGHT, 0), ValueError, "n_heads must be 1"),
    "no rows": (lambda: interleaved_to_halves(WEIGHT[:0], 2), ValueError, r"shape \(0, 5\)"),
    "number": (lambda: halves_to_interleaved(torch.tensor(1.0), 1), ValueError, r"shape \(\)"),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_a_layer_reads_segment_by_segment_as_it_reads_the_whole_text():
    from attnlib.layers import MultiHeadAttention
    from attnlib.masks import causal_mask
    from attnlib.positions import SegmentMemory

    layer = MultiHeadAttention(12, 2, positions=Rope(6)).double()
    text, memory = torch.randn(2, 9, 12, dtype=torch.float64), SegmentMemory(memory_len=6)
    outputs = []
    for segment in text.split(3, dim=1):
        extended = memory.extend(segment)
        outputs.append(layer(segment, extended, mask=causal_mask(3, extended.shape[1])))
    assert_close(torch.cat(outputs, dim=1), layer(text, mask=causal_mask(9)))
    unaware = layer(text[:, 6:], text[:, 6:], mask=causal_mask(3))  # sees no earlier segment
    assert not torch.allclose(outputs[-1], unaware)
