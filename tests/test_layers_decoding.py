"""What decoders need of the layers: shared keys, positions, a cache, cross-attention, a gate."""

import pytest
import torch
import torch.nn.functional as F
from parity import assert_same, gradients, leaves
from test_layers import from_torch_mha
from torch import nn
from torch.testing import assert_close

from attnlib.cache import LayerCache
from attnlib.functional import attention, merge_heads, split_heads
from attnlib.layers import (
    DecoderLayer,
    EncoderLayer,
    GatedFeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
)
from attnlib.masks import causal_mask, left_padding_mask, padding_mask, to_key_padding_mask
from attnlib.positions import Alibi, Positions, Rope, ShawRelative, T5Bias, TransformerXL

BATCH, LENGTH, K_LEN, D_MODEL, D_FF = 2, 7, 5, 36, 17
HEADS, D_HEAD = 6, 10  # 6 heads can share 1, 2, 3 or 6 of keys; an even width can be turned


def tokens(length=LENGTH, width=D_MODEL):
    return torch.randn(BATCH, length, width, dtype=torch.float64)


def self_attention(**options):
    layer = MultiHeadAttention(D_MODEL, HEADS, d_head=D_HEAD, **options).double()
    for parameter in layer.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.3)
    return layer


# ----------------------------------------------------------------------- shared keys and values


def with_heads_written_out(layer):
    """The same attention with a head of keys and values for each head of queries."""
    twin = self_attention(d_memory=layer.to_key.in_features)
    state = layer.state_dict()
    shared_by = layer.n_heads // layer.n_kv_heads
    for name in ("to_key.weight", "to_key.bias", "to_value.weight", "to_value.bias"):
        heads = state[name].unflatten(0, (layer.n_kv_heads, D_HEAD))
        copies = [heads[h // shared_by] for h in range(layer.n_heads)]  # neighbours share one
        state[name] = torch.cat(copies)
    twin.load_state_dict(state)
    return twin


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
@pytest.mark.parametrize("masked", [False, True])
def test_neighbouring_heads_share_keys_and_values(n_kv_heads, masked):
    layer = self_attention(n_kv_heads=n_kv_heads, d_memory=13)
    assert layer.to_key.out_features == n_kv_heads * D_HEAD
    assert layer.to_value.out_features == n_kv_heads * D_HEAD
    twin = with_heads_written_out(layer)
    x, memory = tokens(), tokens(K_LEN, 13)
    mask = padding_mask(torch.tensor([K_LEN, 2]), K_LEN) if masked else None
    ours, theirs = leaves(x, memory), leaves(x, memory)
    assert_same(layer(*ours, mask=mask), twin(*theirs, mask=mask), ours, theirs)


def test_the_gradients_of_shared_heads_add_up():
    layer = self_attention(n_kv_heads=2)
    twin = with_heads_written_out(layer)
    x = tokens()
    layer(x).square().sum().backward()
    twin(x).square().sum().backward()
    ours, theirs = gradients(layer), gradients(twin)
    for name in ("to_key.weight", "to_value.weight", "to_value.bias"):
        of_each = theirs[name].unflatten(0, (2, 3, D_HEAD))  # 2 groups of 3 heads
        assert_close(ours[name], of_each.sum(1).flatten(0, 1))


def test_all_heads_have_keys_of_their_own_if_nothing_is_said():
    layer = self_attention()
    assert layer.n_kv_heads == HEADS
    assert layer.to_key.out_features == HEADS * D_HEAD


def test_shared_values_may_have_another_width():
    layer = MultiHeadAttention(D_MODEL, HEADS, n_kv_heads=2, d_head=10, d_value=7).double()
    key, value = layer.keys_and_values(tokens())
    assert key.shape == (BATCH, 2, LENGTH, 10)
    assert value.shape == (BATCH, 2, LENGTH, 7)
    assert layer(tokens()).shape == (BATCH, LENGTH, D_MODEL)


def test_the_cache_holds_the_shared_heads_only():
    layer, cache = self_attention(n_kv_heads=2), LayerCache(max_len=11)
    with torch.no_grad():
        layer(tokens(), cache=cache)
        keys, values = cache.append(*layer.keys_and_values(tokens(1)))
    assert keys.shape == values.shape == (BATCH, 2, LENGTH + 1, D_HEAD)


# ------------------------------------------------------------------------------------ the scale


@pytest.mark.parametrize("recorded", [False, True])
def test_scores_are_multiplied_by_the_scale_that_is_given(recorded):
    layer, x = self_attention(scale=1.0), tokens()
    if recorded:
        layer.attend.listeners.append(lambda weights: None)
    query, key, value = (
        split_heads(to(x), HEADS) for to in (layer.to_query, layer.to_key, layer.to_value)
    )
    expected = merge_heads((query @ key.mT).softmax(-1) @ value)
    assert_close(layer(x), layer.to_output(expected))


# ------------------------------------------------------------------- positions inside attention


def positions_to_try():
    made = {
        "none": lambda: None,
        "nothing": Positions,
        "rope": lambda: Rope(D_HEAD),
        "alibi": lambda: Alibi(HEADS),
        "t5": lambda: T5Bias(HEADS, n_buckets=6, max_distance=9, bidirectional=False),
        "shaw": lambda: ShawRelative(D_HEAD, max_distance=3),
        "transformer-xl": lambda: TransformerXL(12, HEADS, d_head=D_HEAD),
    }
    return pytest.mark.parametrize("make", made.values(), ids=made.keys())


EACH_POSITIONS = positions_to_try()
EACH_SHARE = pytest.mark.parametrize("n_kv_heads", [1, 2, 6])


@EACH_POSITIONS
@EACH_SHARE
def test_positions_turn_queries_and_keys_and_add_to_the_scaled_scores(make, n_kv_heads):
    layer = self_attention(positions=make(), n_kv_heads=n_kv_heads)
    positions = Positions() if layer.positions is None else layer.positions
    x, given = tokens(), torch.randn(1, HEADS, LENGTH, LENGTH, dtype=torch.float64)
    query = positions.rotate(split_heads(layer.to_query(x), HEADS))
    key, value = layer.keys_and_values(x)
    key = positions.rotate(key)
    added = positions.bias(query, key)
    bias = given if added is None else given + added
    key, value = (t.repeat_interleave(HEADS // n_kv_heads, dim=1) for t in (key, value))
    output, _ = attention(query, key, value, mask=causal_mask(LENGTH), bias=bias)
    expected = layer.to_output(merge_heads(output))
    assert_close(layer(x, mask=causal_mask(LENGTH), bias=given), expected)


@EACH_POSITIONS
def test_positions_make_the_order_matter_and_none_do_not(make):
    layer, x = self_attention(positions=make()), tokens()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    same = torch.allclose(layer(x[:, order]), layer(x)[:, order])
    assert same == (type(layer.positions) in (type(None), Positions))


@EACH_POSITIONS
@EACH_SHARE
@pytest.mark.parametrize("first", range(LENGTH + 1))
def test_with_a_cache_attention_says_the_same_wherever_the_text_is_split(make, n_kv_heads, first):
    layer = self_attention(positions=make(), n_kv_heads=n_kv_heads)
    x, cache = tokens(), LayerCache(LENGTH)
    expected = layer(x, mask=causal_mask(LENGTH)).detach()
    pieces = [piece for piece in x.split([first, LENGTH - first], dim=1) if piece.shape[1]]
    with torch.no_grad():
        written = [_continue(layer, piece, cache) for piece in pieces]
    assert cache.length == LENGTH
    assert_close(torch.cat(written, dim=1), expected)


@EACH_POSITIONS
def test_with_a_cache_attention_says_the_same_token_by_token(make):
    layer = self_attention(positions=make())
    x, cache = tokens(), LayerCache(LENGTH)
    expected = layer(x, mask=causal_mask(LENGTH)).detach()
    with torch.no_grad():  # a single query is the last one: it needs no mask
        written = [layer(token, cache=cache) for token in x.split(1, dim=1)]
    assert_close(torch.cat(written, dim=1), expected)


def _continue(layer, x, cache):
    return layer(x, mask=causal_mask(x.shape[1], cache.length + x.shape[1]), cache=cache)


@pytest.mark.parametrize("first", [1, 4])
def test_padding_in_front_stays_hidden_in_a_cache(first):
    layer, x, cache = self_attention(positions=Rope(D_HEAD)), tokens(), LayerCache(LENGTH)
    mask = causal_mask(LENGTH) & left_padding_mask(torch.tensor([LENGTH, LENGTH - 3]), LENGTH)
    expected = layer(x, mask=mask).detach()
    with torch.no_grad():
        start = layer(x[:, :first], mask=mask[:, :, :first, :first], cache=cache)
        rest = layer(x[:, first:], mask=mask[:, :, first:], cache=cache)
    assert_close(torch.cat([start, rest], dim=1), expected)
    alone = layer(x[1:, 3:], mask=causal_mask(LENGTH - 3))  # RoPE knows distances only
    assert_close(expected[1:, 3:], alone.detach())


def test_the_last_query_sits_at_the_last_token_of_a_memory():
    layer, x, memory = self_attention(positions=Rope(D_HEAD)), tokens(3), tokens(K_LEN)
    query = layer.positions.rotate(split_heads(layer.to_query(x), HEADS), offset=K_LEN - 3)
    key, value = layer.keys_and_values(memory)
    output, _ = attention(query, layer.positions.rotate(key), value)
    assert_close(layer(x, memory), layer.to_output(merge_heads(output)))


def test_no_gradient_flows_into_a_cache():
    layer, cache = self_attention(), LayerCache(LENGTH + 1)
    layer(tokens(), mask=causal_mask(LENGTH), cache=cache).sum().backward()
    assert layer.to_query.weight.grad is not None
    assert layer.to_key.weight.grad is None
    keys, values = cache.append(*layer.keys_and_values(tokens(1)))
    assert not keys.requires_grad
    assert not values.requires_grad


# ------------------------------------------------------------------------------ keys and values


@pytest.mark.parametrize("positions", [None, Rope(D_HEAD)], ids=["no positions", "rope"])
def test_a_memory_can_be_projected_once_and_asked_often(positions):
    layer = self_attention(d_memory=13, n_kv_heads=3, positions=positions)
    memory = tokens(K_LEN, 13)
    key, value = layer.keys_and_values(memory)
    assert key.shape == value.shape == (BATCH, 3, K_LEN, D_HEAD)
    assert_close(key[:, 1], F.linear(memory, layer.to_key.weight[10:20], layer.to_key.bias[10:20]))
    for length in (1, K_LEN):
        x = tokens(length)
        assert torch.equal(layer(x, (key, value)), layer(x, memory))


@pytest.mark.messages
def test_positions_are_refused_where_the_memory_is_shorter_than_what_asks():
    layer = self_attention(positions=Rope(D_HEAD))
    with pytest.raises(ValueError, match="for cross-attention leave positions out"):
        layer(tokens(K_LEN + 1), tokens(K_LEN))


def test_keys_and_values_are_not_mixed_up():
    layer, x, memory = self_attention(), tokens(), tokens(K_LEN)
    key, value = layer.keys_and_values(memory)
    assert not torch.allclose(layer(x, (value, key)), layer(x, memory))


# ---------------------------------------------------------------------------- the encoder layer


@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
@pytest.mark.parametrize("first", range(1, LENGTH))
def test_an_encoder_layer_with_a_cache_is_a_decoder_of_its_own(residual, first):
    layer = EncoderLayer(D_MODEL, HEADS, D_FF, residual=residual, positions=Alibi(HEADS)).double()
    x, cache = tokens(), LayerCache(LENGTH)
    expected = layer(x, mask=causal_mask(LENGTH)).detach()
    with torch.no_grad():
        written = [_continue(layer, piece, cache) for piece in (x[:, :first], x[:, first:])]
    assert_close(torch.cat(written, dim=1), expected)


def test_an_encoder_layer_hands_its_positions_to_its_attention():
    rope = Rope(D_MODEL // HEADS)
    layer = EncoderLayer(D_MODEL, HEADS, D_FF, positions=rope)
    assert layer.attention.positions is rope
    assert EncoderLayer(D_MODEL, HEADS, D_FF).attention.positions is None


# ---------------------------------------------------------------------------- the decoder layer


def from_torch_decoder_layer(theirs):
    """The parameters of ``nn.TransformerDecoderLayer``, or gradients, under our names."""
    ours = {}
    for stem, place in (("self_attn.", "self_attention"), ("multihead_attn.", "cross_attention")):
        part = {k.removeprefix(stem): v for k, v in theirs.items() if k.startswith(stem)}
        ours |= {f"{place}.{name}": tensor for name, tensor in from_torch_mha(part).items()}
    stems = {
        "linear1": "feed_forward.widen",
        "linear2": "feed_forward.narrow",
        "norm1": "around_self_attention.norm",
        "norm2": "around_cross_attention.norm",
        "norm3": "around_feed_forward.norm",
    }
    for name, tensor in theirs.items():
        stem, _, kind = name.rpartition(".")
        if stem in stems:
            ours[f"{stems[stem]}.{kind}"] = tensor
    return ours


def decoder_pair(residual, activation="relu", eps=1e-5):
    theirs = nn.TransformerDecoderLayer(
        D_MODEL,
        HEADS,
        D_FF,
        0.0,
        activation,
        eps,
        batch_first=True,
        norm_first=residual is PreNorm,
    ).double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, mean=0.2, std=0.3)
    bend = {"relu": None, "gelu": nn.GELU()}[activation]
    ours = DecoderLayer(D_MODEL, HEADS, D_FF, residual=residual, activation=bend, eps=eps).double()
    ours.load_state_dict(from_torch_decoder_layer(theirs.state_dict()))
    return ours, theirs


EACH_RESIDUAL = pytest.mark.parametrize("residual", [PostNorm, PreNorm])
PADDED = padding_mask(torch.tensor([LENGTH, 4]), LENGTH)
MEMORY_PADDED = padding_mask(torch.tensor([2, K_LEN]), K_LEN)
BLOCKED = ~causal_mask(LENGTH)[0, 0]
DECODER_MASKS = {
    "no mask": ({}, {}),
    "causal": ({"mask": causal_mask(LENGTH)}, {"tgt_mask": BLOCKED}),
    "memory's padding": (
        {"memory_mask": MEMORY_PADDED},
        {"memory_key_padding_mask": to_key_padding_mask(MEMORY_PADDED)},
    ),
    "all": (
        {"mask": causal_mask(LENGTH) & PADDED, "memory_mask": MEMORY_PADDED},
        {
            "tgt_mask": BLOCKED,
            "tgt_key_padding_mask": to_key_padding_mask(PADDED),
            "memory_key_padding_mask": to_key_padding_mask(MEMORY_PADDED),
        },
    ),
}


@EACH_RESIDUAL
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize(("ours", "theirs"), DECODER_MASKS.values(), ids=DECODER_MASKS.keys())
def test_the_decoder_layer_equals_torchs(residual, activation, ours, theirs):
    layer, torchs = decoder_pair(residual, activation)
    x, memory = tokens(), tokens(K_LEN)
    our_leaves, their_leaves = leaves(x, memory), leaves(x, memory)
    output, expected = layer(*our_leaves, **ours), torchs(*their_leaves, **theirs)
    assert_same(output, expected, our_leaves, their_leaves)
    probe = torch.randn_like(output)
    output.backward(probe)
    expected.backward(probe)
    their_gradients = {name: p.grad for name, p in torchs.named_parameters()}
    assert_close(gradients(layer), from_torch_decoder_layer(their_gradients))


@EACH_RESIDUAL
def test_the_decoder_layer_passes_eps_on(residual):
    ours, theirs = decoder_pair(residual, eps=0.3)
    x, memory = tokens(), tokens(K_LEN)
    assert_close(ours(x, memory), theirs(x, memory))


@EACH_RESIDUAL
@pytest.mark.parametrize("first", range(1, LENGTH))
def test_a_decoder_layer_with_a_cache_and_projected_memory_says_the_same(residual, first):
    layer, _ = decoder_pair(residual)
    x, memory, cache = tokens(), tokens(K_LEN), LayerCache(LENGTH)
    options = {"memory_mask": MEMORY_PADDED}
    expected = layer(x, memory, mask=causal_mask(LENGTH), **options).detach()
    with torch.no_grad():
        projected = layer.cross_attention.keys_and_values(memory)
        start = layer(x[:, :first], projected, mask=causal_mask(first), cache=cache, **options)
        rest = [layer(t, projected, cache=cache, **options) for t in x[:, first:].split(1, 1)]
    assert_close(torch.cat([start, *rest], dim=1), expected)


@EACH_RESIDUAL
def test_a_decoder_layer_sees_no_later_token_but_all_of_the_memory(residual):
    layer, _ = decoder_pair(residual)
    x, memory = leaves(tokens(), tokens(K_LEN))
    probe = torch.randn(D_MODEL, dtype=torch.float64)
    output = layer(x, memory, mask=causal_mask(LENGTH))
    (output[0, 3] @ probe).backward()
    assert not x.grad[0, 4:].any()
    assert x.grad[0, :4].any(-1).all()
    assert memory.grad[0].any(-1).all()
    assert not memory.grad[1].any()


@EACH_RESIDUAL
def test_all_three_residual_connections_of_a_decoder_layer_drop_in_training_only(residual):
    layer = DecoderLayer(D_MODEL, HEADS, D_FF, residual=residual, dropout=1.0).double()
    x, memory = tokens(), tokens(K_LEN)
    only_norms = x
    if residual is PostNorm:
        for _ in range(3):
            only_norms = F.layer_norm(only_norms, (D_MODEL,))
    assert_close(layer(x, memory), only_norms)
    without = DecoderLayer(D_MODEL, HEADS, D_FF, residual=residual).double()
    without.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(x, memory), without(x, memory))


# ----------------------------------------------------------------------- the gated feed-forward


@pytest.mark.parametrize("bias", [False, True])
def test_the_gate_multiplies_the_other_half(bias):
    block = GatedFeedForward(7, 5, bias=bias).double()
    x = tokens(3, 7)
    gate, wide = x @ block.gate.weight.mT, x @ block.widen.weight.mT
    if bias:
        gate, wide = gate + block.gate.bias, wide + block.widen.bias
    by_half = torch.special.erf(gate / 2**0.5)
    inner = gate * (1 + by_half) / 2 * wide  # GELU by its definition
    assert inner.shape == (BATCH, 3, 5)
    expected = inner @ block.narrow.weight.mT
    assert_close(block(x), expected + block.narrow.bias if bias else expected)
    assert sum(p.numel() for p in block.parameters()) == 3 * 35 + (17 if bias else 0)


def test_the_bend_in_the_gate_can_be_another_one():
    block = GatedFeedForward(7, 5, activation=nn.SiLU()).double()
    x = tokens(3, 7)
    gate = block.gate(x)
    assert_close(block(x), block.narrow(gate * torch.sigmoid(gate) * block.widen(x)))


def test_gated_networks_have_no_biases_if_nothing_is_said():
    assert {name for name, _ in GatedFeedForward(7, 5).named_parameters()} == {
        "gate.weight",
        "widen.weight",
        "narrow.weight",
    }


# ------------------------------------------------------------------------------------- refusals

LAYER = MultiHeadAttention(6, 2)
X = torch.zeros(2, 3, 6)
REFUSED = {
    "heads that can't share": (
        lambda: MultiHeadAttention(12, 6, n_kv_heads=4),
        ValueError,
        "n_kv_heads=4 must divide n_heads=6: each is shared by as many",
    ),
    "more keys than queries": (
        lambda: MultiHeadAttention(12, 3, n_kv_heads=6), ValueError, "n_kv_heads=6 must divide"
    ),
    "no key heads": (
        lambda: MultiHeadAttention(12, 3, n_kv_heads=0), ValueError, "n_kv_heads must be 1 or more"
    ),
    "half a key head": (
        lambda: MultiHeadAttention(12, 3, n_kv_heads=1.5), TypeError, "n_kv_heads must be a whole"
    ),
    "memory and cache": (
        lambda: LAYER(X, X, cache=LayerCache(3)), ValueError, "either a memory or a cache, not both"
    ),
    "a projected memory and a cache": (
        lambda: LAYER(X, LAYER.keys_and_values(X), cache=LayerCache(3)), ValueError, "not both"
    ),
    "wide memory": (
        lambda: LAYER.keys_and_values(torch.zeros(2, 3, 5)),
        ValueError,
        r"memory must be \(batch, length, 6\), got shape \(2, 3, 5\)",
    ),
    "double memory": (
        lambda: LAYER.keys_and_values(X.double()), TypeError, "memory is torch.float64, but the la"
    ),
    "projected memory of another batch": (
        lambda: LAYER(X, LAYER.keys_and_values(X[:1])), ValueError, "agree in batch and heads"
    ),
    "a full cache": (
        lambda: LAYER(X, cache=LayerCache(2)), ValueError, "has room for 2; 3 more do not fit"
    ),
    "a mask without the cached keys": (
        lambda: _with_two_cached(LAYER, X, mask=causal_mask(3)), ValueError, r"= \(2, 2, 3, 5\)"
    ),
    "gate without width": (
        lambda: GatedFeedForward(8, 0), ValueError, "d_ff must be 1 or more, got 0"
    ),
    "gate of half a width": (
        lambda: GatedFeedForward(8.0, 3), TypeError, "d_model must be a whole number, got float 8.0"
    ),
    "decoder layer with a remainder": (
        lambda: DecoderLayer(8, 3, 5), ValueError, "d_model=8 must be a multiple of n_heads=3"
    ),
    "decoder layer without inner width": (
        lambda: DecoderLayer(8, 2, 0), ValueError, "d_ff must be 1 or more, got 0"
    ),
}  # fmt: skip


def _with_two_cached(layer, x, **options):
    cache = LayerCache(9)
    layer(x[:, :2], cache=cache)
    return layer(x, cache=cache, **options)


@pytest.mark.messages
@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_two_cached_tokens_are_fine_with_a_mask_that_covers_them():
    assert _with_two_cached(LAYER, X, mask=causal_mask(3, 5)).shape == X.shape
