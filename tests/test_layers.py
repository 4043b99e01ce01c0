"""The blocks of a Transformer: against PyTorch's own layers, and by what they must do."""

import copy
import pickle

import pytest
import torch
import torch.nn.functional as F
from parity import assert_same, gradients, leaves
from torch import nn
from torch.testing import assert_close

from attnlib.cache import LayerCache
from attnlib.layers import (
    Attend,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
)
from attnlib.masks import (
    causal_mask,
    from_torch_attn_mask,
    left_padding_mask,
    padding_mask,
    to_key_padding_mask,
    to_torch_attn_mask,
)
from attnlib.positions import LearnedEncoding

BATCH, HEADS, Q_LEN, K_LEN, D_HEAD, D_MODEL, D_MEMORY, D_FF = 2, 3, 5, 7, 11, 33, 13, 17
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def tokens(length=Q_LEN, width=D_MODEL, dtype=torch.float64):
    return torch.randn(BATCH, length, width, dtype=dtype)


def self_attention(**options):
    return MultiHeadAttention(D_MODEL, HEADS, **options).double()


# ----------------------------------------------------------- parity with nn.MultiheadAttention


def from_torch_mha(theirs):
    """The parameters of ``nn.MultiheadAttention``, or their gradients, under our names."""
    names = ("query", "key", "value")
    separate = [f"{letter}_proj_weight" for letter in "qkv"]
    weights = (
        theirs["in_proj_weight"].chunk(3)
        if "in_proj_weight" in theirs
        else [theirs[name] for name in separate]
    )
    ours = {f"to_{name}.weight": w for name, w in zip(names, weights, strict=True)}
    if "in_proj_bias" in theirs:
        biases = theirs["in_proj_bias"].chunk(3)
        ours |= {f"to_{name}.bias": b for name, b in zip(names, biases, strict=True)}
    return ours | {
        name.replace("out_proj", "to_output"): tensor
        for name, tensor in theirs.items()
        if name.startswith("out_proj")
    }


def pair(d_memory=D_MODEL, bias=True):
    """Our layer and PyTorch's, with the same weights; biases are not left at 0."""
    theirs = nn.MultiheadAttention(
        D_MODEL, HEADS, bias=bias, kdim=d_memory, vdim=d_memory, batch_first=True
    ).double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    ours = self_attention(d_memory=d_memory, bias=bias)
    ours.load_state_dict(from_torch_mha(theirs.state_dict()))
    return ours, theirs


def assert_layers_agree(ours, theirs, x, memory, our_options, their_options):
    our_x, their_x = leaves(x, memory), leaves(x, memory)
    output = ours(*our_x, **our_options)
    expected, _ = theirs(their_x[0], their_x[1], their_x[1], **their_options)
    assert_same(output, expected, our_x, their_x)
    probe = torch.randn_like(output)
    output.backward(probe)
    expected.backward(probe)
    their_gradients = {name: p.grad for name, p in theirs.named_parameters()}
    assert_close(gradients(ours), from_torch_mha(their_gradients))


PADDING = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])  # torch: True = ignore
BLOCKED = torch.ones(Q_LEN, K_LEN, dtype=torch.bool).triu(3)  # torch: True = blocked
PER_HEAD = torch.rand(BATCH * HEADS, Q_LEN, K_LEN, generator=torch.Generator().manual_seed(0)) < 0.4
ADDED = torch.randn(BATCH * HEADS, Q_LEN, K_LEN, dtype=torch.float64)
OPTIONS = {
    "no mask": ({}, {}),
    "key_padding_mask": (
        {"mask": padding_mask(torch.tensor([7, 4]), 7)},
        {"key_padding_mask": PADDING},
    ),
    "key_padding_mask in front": (
        {"mask": left_padding_mask(torch.tensor([7, 4]), 7)},
        {"key_padding_mask": PADDING.flip(-1)},
    ),
    "attn_mask": ({"mask": causal_mask(Q_LEN, K_LEN)}, {"attn_mask": BLOCKED}),
    "both": (
        {"mask": causal_mask(Q_LEN, K_LEN) & padding_mask(torch.tensor([7, 4]), 7)},
        {"attn_mask": BLOCKED, "key_padding_mask": PADDING},
    ),
    "attn_mask for each head": (
        {"mask": from_torch_attn_mask(PER_HEAD, n_heads=HEADS)},
        {"attn_mask": PER_HEAD},
    ),
    "float attn_mask": (
        {"bias": ADDED.view(BATCH, HEADS, Q_LEN, K_LEN)},
        {"attn_mask": ADDED},
    ),
}


@pytest.mark.parametrize("bias", [True, False], ids=["with bias", "without bias"])
@pytest.mark.parametrize("d_memory", [D_MODEL, D_MEMORY], ids=["same width", "other width"])
@pytest.mark.parametrize(("ours", "theirs"), OPTIONS.values(), ids=OPTIONS.keys())
def test_cross_attention_equals_torchs(ours, theirs, d_memory, bias):
    layers = pair(d_memory, bias)
    memory = tokens(K_LEN, d_memory)
    assert_layers_agree(*layers, tokens(), memory, ours, {"need_weights": False, **theirs})


@pytest.mark.parametrize("length", [Q_LEN, 37])
@pytest.mark.parametrize("kind", ["no mask", "causal", "padding", "causal and padding"])
def test_self_attention_equals_torchs(kind, length):
    padding = padding_mask(torch.tensor([length, 3]), length)
    mask, theirs = None, {}
    if "causal" in kind:
        mask = causal_mask(length)
        theirs["attn_mask"] = to_torch_attn_mask(mask, BATCH, HEADS)
    if "padding" in kind:
        mask = padding if mask is None else mask & padding
        theirs["key_padding_mask"] = to_key_padding_mask(padding)
    ours, torchs = pair()
    x = tokens(length)
    our_x, their_x = leaves(x), leaves(x)
    expected, _ = torchs(their_x[0], their_x[0], their_x[0], **theirs)
    assert_same(ours(our_x[0], mask=mask), expected, our_x, their_x)


def test_heads_may_have_any_width_and_values_another_one():
    def of_head(projection, tokens, h, width):
        rows = slice(h * width, (h + 1) * width)
        return F.linear(tokens, projection.weight[rows], projection.bias[rows])

    layer = MultiHeadAttention(7, 3, d_head=5, d_value=2, d_memory=13).double()
    x, memory = tokens(5, 7), tokens(11, 13)
    heads = []
    for h in range(3):  # the definition, head by head
        query, key = of_head(layer.to_query, x, h, 5), of_head(layer.to_key, memory, h, 5)
        value = of_head(layer.to_value, memory, h, 2)
        heads.append((query @ key.mT / 5**0.5).softmax(-1) @ value)
    expected = layer.to_output(torch.cat(heads, dim=-1))
    assert expected.shape == (BATCH, 5, 7)
    assert_close(layer(x, memory), expected)


def test_widths_left_out_follow_from_the_others():
    layer = MultiHeadAttention(12, 3)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "to_query.weight": (12, 12),
        "to_query.bias": (12,),
        "to_key.weight": (12, 12),
        "to_key.bias": (12,),
        "to_value.weight": (12, 12),
        "to_value.bias": (12,),
        "to_output.weight": (12, 12),
        "to_output.bias": (12,),
    }
    layer = MultiHeadAttention(12, 5, d_head=7, bias=False)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "to_query.weight": (35, 12),
        "to_key.weight": (35, 12),
        "to_value.weight": (35, 12),
        "to_output.weight": (12, 35),
    }


# ------------------------------------------------------- parity with nn.TransformerEncoderLayer


def from_torch_layer(theirs):
    """The parameters of ``nn.TransformerEncoderLayer``, or gradients, under our names."""
    attention = {k.removeprefix("self_attn."): v for k, v in theirs.items() if "self_attn" in k}
    ours = {f"attention.{name}": tensor for name, tensor in from_torch_mha(attention).items()}
    stems = {
        "linear1": "feed_forward.widen",
        "linear2": "feed_forward.narrow",
        "norm1": "around_attention.norm",
        "norm2": "around_feed_forward.norm",
    }
    for name, tensor in theirs.items():
        stem, _, kind = name.rpartition(".")
        if stem in stems:
            ours[f"{stems[stem]}.{kind}"] = tensor
    return ours


def encoder_pair(residual, activation, eps=1e-5):
    norm_first = residual is PreNorm
    theirs = nn.TransformerEncoderLayer(
        D_MODEL, HEADS, D_FF, 0.0, activation, eps, batch_first=True, norm_first=norm_first
    ).double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, mean=0.2, std=0.3)
    bend = {"relu": None, "gelu": nn.GELU()}[activation]
    ours = EncoderLayer(D_MODEL, HEADS, D_FF, residual=residual, activation=bend, eps=eps)
    ours = ours.double()
    ours.load_state_dict(from_torch_layer(theirs.state_dict()))
    return ours, theirs


@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
@pytest.mark.parametrize("kind", ["no mask", "causal", "padding"])
def test_the_encoder_layer_equals_torchs(residual, activation, kind):
    ours, theirs = encoder_pair(residual, activation)
    padding = padding_mask(torch.tensor([Q_LEN, 3]), Q_LEN)
    mask, options = {
        "no mask": (None, {}),
        "causal": (
            causal_mask(Q_LEN),
            {"src_mask": to_torch_attn_mask(causal_mask(Q_LEN), 1, 1)[0]},
        ),
        "padding": (padding, {"src_key_padding_mask": to_key_padding_mask(padding)}),
    }[kind]
    x = tokens()
    our_x, their_x = leaves(x), leaves(x)
    output, expected = ours(*our_x, mask=mask), theirs(*their_x, **options)
    assert_same(output, expected, our_x, their_x)
    probe = torch.randn_like(output)
    output.backward(probe)
    expected.backward(probe)
    their_gradients = {name: p.grad for name, p in theirs.named_parameters()}
    assert_close(gradients(ours), from_torch_layer(their_gradients))


@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
def test_the_encoder_layer_passes_eps_on(residual):
    ours, theirs = encoder_pair(residual, "relu", eps=0.3)
    x = tokens()
    assert_close(ours(x), theirs(x))
    assert not torch.allclose(encoder_pair(residual, "relu")[0](x), ours(x))


def test_the_encoder_layer_passes_a_bias_on_to_its_attention():
    layer = EncoderLayer(D_MODEL, HEADS, D_FF, residual=PreNorm).double()
    x, bias = tokens(), torch.randn(1, HEADS, Q_LEN, Q_LEN, dtype=torch.float64)
    middle = x + layer.attention(layer.around_attention.norm(x), bias=bias)
    expected = middle + layer.feed_forward(layer.around_feed_forward.norm(middle))
    assert_close(layer(x, bias=bias), expected)
    assert not torch.allclose(layer(x), expected)


# --------------------------------------------------------------- feed-forward and residuals


def test_the_feed_forward_network_is_two_linear_maps_with_a_bend():
    block = FeedForward(7, 5).double()
    x = tokens(3, 7)
    inner = torch.relu(x @ block.widen.weight.mT + block.widen.bias)
    assert inner.shape == (BATCH, 3, 5)
    assert_close(block(x), inner @ block.narrow.weight.mT + block.narrow.bias)


def test_the_bend_can_be_another_one():
    block = FeedForward(7, 5, activation=nn.Tanh()).double()
    x = tokens(3, 7)
    assert_close(block(x), block.narrow(torch.tanh(block.widen(x))))


def test_the_feed_forward_network_can_do_without_biases():
    block = FeedForward(7, 5, bias=False).double()
    x = tokens(3, 7)
    assert list(block.state_dict()) == ["widen.weight", "narrow.weight"]
    assert_close(block(x), (x @ block.widen.weight.mT).relu() @ block.narrow.weight.mT)


def normed(x, eps=1e-5):
    """Layer normalisation by its definition."""
    mean, variance = x.mean(-1, keepdim=True), x.var(-1, correction=0, keepdim=True)
    return (x - mean) / (variance + eps).sqrt()


def squared(x):
    return x**2 - 0.3


@pytest.mark.parametrize("eps", [1e-5, 0.7])
def test_post_norm_normalises_the_sum(eps):
    x = tokens(3, 7)
    expected = normed(x + squared(x), eps)
    assert_close(PostNorm(7, eps=eps).double()(x, squared), expected)


@pytest.mark.parametrize("eps", [1e-5, 0.7])
def test_pre_norm_normalises_what_the_sublayer_sees_and_nothing_else(eps):
    x = tokens(3, 7)
    expected = x + squared(normed(x, eps))
    assert_close(PreNorm(7, eps=eps).double()(x, squared), expected)


def test_pre_norm_can_normalise_without_a_mean():
    x = tokens(3, 7) + 2
    root_mean_square = (x.square().mean(-1, keepdim=True) + 0.7).sqrt()
    expected = x + squared(x / root_mean_square)
    assert_close(PreNorm(7, eps=0.7, norm=nn.RMSNorm).double()(x, squared), expected)


@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
def test_the_usual_eps_is_1e_5(residual):
    x = tokens(3, 7) * 1e-3  # so small that eps matters
    assert_close(residual(7).double()(x, squared), residual(7, eps=1e-5).double()(x, squared))


def test_dropout_takes_from_the_sublayer_and_not_from_the_input():
    x = tokens(3, 7)
    all_dropped = {"dropout": 1.0}
    assert_close(PostNorm(7, **all_dropped).double()(x, squared), normed(x))
    assert torch.equal(PreNorm(7, **all_dropped).double()(x, squared), x)


@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
def test_dropout_drops_in_training_only(residual):
    layer = EncoderLayer(D_MODEL, HEADS, D_FF, residual=residual, dropout=0.5).double()
    x = tokens()
    assert not torch.equal(layer(x), layer(x))
    without = EncoderLayer(D_MODEL, HEADS, D_FF, residual=residual).double()
    without.load_state_dict(layer.state_dict())
    assert torch.equal(layer.eval()(x), without(x))


@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
def test_both_residual_connections_drop(residual):
    layer = EncoderLayer(D_MODEL, HEADS, D_FF, residual=residual, dropout=1.0).double()
    x = tokens()
    expected = normed(normed(x)) if residual is PostNorm else x
    assert_close(layer(x), expected)


# ------------------------------------------------------- properties, each with its twin

LAYERS = {
    "attention": self_attention,
    "post-norm": lambda: EncoderLayer(D_MODEL, HEADS, D_FF).double(),
    "pre-norm": lambda: EncoderLayer(D_MODEL, HEADS, D_FF, residual=PreNorm).double(),
}
EACH = pytest.mark.parametrize("make", LAYERS.values(), ids=LAYERS.keys())


@EACH
def test_a_token_sees_itself_and_the_others_the_same_way_in_any_order(make):
    layer, x = make(), tokens()
    order = torch.tensor([3, 0, 4, 1, 2])
    assert_close(layer(x[:, order]), layer(x)[:, order])


@EACH
def test_with_positions_or_a_causal_mask_the_order_matters(make):
    layer, x = make(), tokens()
    order = torch.tensor([3, 0, 4, 1, 2])
    positions = LearnedEncoding(D_MODEL, Q_LEN).double()
    nn.init.normal_(positions.encoding)
    positioned = layer(positions(x[:, order])) - layer(positions(x))[:, order]
    causal = layer(x[:, order], mask=causal_mask(5)) - layer(x, mask=causal_mask(5))[:, order]
    assert positioned.abs().amax(-1).min() > 1e-3
    assert causal.abs().amax(-1).max() > 1e-3


@EACH
def test_sequences_of_a_batch_do_not_mix(make):
    layer, x = make(), tokens()
    before = layer(x)
    x[1] += 1.0 + torch.arange(D_MODEL)
    after = layer(x)
    assert torch.equal(after[0], before[0])
    assert (after[1] != before[1]).any(-1).all()


@EACH
@pytest.mark.parametrize("length", [7, 37])
def test_a_causal_layer_does_not_see_the_future_but_does_see_the_present(make, length):
    layer, x, mask = make(), tokens(length), causal_mask(length)
    before = layer(x, mask=mask)
    x[:, 4] += torch.randn(D_MODEL, dtype=torch.float64)
    after = layer(x, mask=mask)
    assert torch.equal(after[:, :4], before[:, :4])
    assert (after[:, 4:] != before[:, 4:]).any(-1).all()


@EACH
@pytest.mark.parametrize("left", [False, True], ids=["behind", "in front"])
def test_padding_changes_nothing_if_masked_and_something_if_not(make, left):
    layer, x = make(), tokens(4)
    junk = 10 * tokens(3)
    lengths = torch.tensor([4, 4])
    padded = torch.cat([junk, x] if left else [x, junk], dim=1)
    mask = (left_padding_mask if left else padding_mask)(lengths, 7)
    real = slice(3, 7) if left else slice(0, 4)
    assert_close(layer(padded, mask=mask)[:, real], layer(x))
    assert not torch.allclose(layer(padded)[:, real], layer(x))


@EACH
def test_training_and_evaluation_agree_without_dropout(make):
    layer, x = make(), tokens()
    assert torch.equal(layer.train()(x), layer.eval()(x))


def test_each_memory_token_counts_in_cross_attention_and_none_of_x_for_another():
    layer = self_attention(d_memory=D_MEMORY)
    x, memory = leaves(tokens(), tokens(K_LEN, D_MEMORY))
    output = layer(x, memory)
    output[0, 2].sum().backward()
    assert (memory.grad[0] != 0).any(-1).all()
    assert not memory.grad[1].any()
    assert x.grad[0, 2].any()
    assert not x.grad[0, torch.arange(Q_LEN) != 2].any()


# ------------------------------------------------------------- nothing to see, NaN, precision


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_query_that_may_see_nothing_gets_the_last_bias_alone(dtype):
    layer = MultiHeadAttention(D_MODEL, HEADS).to(dtype)
    nn.init.normal_(layer.to_output.bias)
    x = tokens(dtype=dtype).requires_grad_()
    mask = causal_mask(Q_LEN).clone()
    mask[:, :, 2] = False
    output = layer(x, mask=mask)
    assert torch.equal(output[:, 2], layer.to_output.bias.expand(BATCH, -1))
    output[:, 2].sum().backward(retain_graph=True)
    assert not x.grad.any()
    assert not any(p.grad.any() for p in layer.to_query.parameters())
    output.sum().backward()
    assert x.grad.isfinite().all()
    assert x.grad.any()
    assert all(g.isfinite().all() for g in gradients(layer).values())


@EACH
@pytest.mark.parametrize("length", [1, 5, 37])
def test_a_nan_token_reaches_the_output_of_all_that_see_it(make, length):
    layer, x = make(), tokens(length)
    x[1, length // 2, 3] = torch.nan
    found = layer(x).isnan().any(-1)
    assert not found[0].any()
    assert found[1].all()


@pytest.mark.parametrize("name", ["to_query", "to_key", "to_value", "to_output"])
@pytest.mark.parametrize("length", [1, 5, 37])
def test_a_nan_weight_reaches_the_output(name, length):
    layer = self_attention()
    getattr(layer, name).weight.data[0, 0] = torch.nan
    assert layer(tokens(length)).isnan().any(-1).all()


@EACH
@pytest.mark.parametrize(
    ("dtype", "atol"),
    [(torch.bfloat16, 0.06), (torch.float16, 0.01)],  # worst of 200 seeds: 0.028 and 0.0042
)
def test_half_precision_runs_and_stays_near(make, dtype, atol):
    layer, x = make(), tokens()
    exact = layer(x, mask=causal_mask(Q_LEN))
    rough = layer.to(dtype)(x.to(dtype), mask=causal_mask(Q_LEN))
    assert rough.dtype == dtype
    assert_close(rough.double(), exact, atol=atol, rtol=0)


@EACH
def test_autocast_runs_and_stays_near(make):
    layer, x = make().float(), tokens(dtype=torch.float32)
    exact = layer(x, mask=causal_mask(Q_LEN))
    with torch.autocast("cpu", torch.bfloat16):
        rough = layer(x, mask=causal_mask(Q_LEN))
    assert_close(rough.float(), exact, atol=0.02, rtol=0)  # worst of 200 seeds: 0.0075
    rough.sum().backward()
    assert all(g.dtype == torch.float32 and g.isfinite().all() for g in gradients(layer).values())


def test_under_autocast_a_layer_takes_what_another_one_gives():
    first, second = MultiHeadAttention(D_MODEL, HEADS), MultiHeadAttention(D_MODEL, HEADS)
    x = tokens(dtype=torch.float32)
    exact = second(first(x))
    with torch.autocast("cpu", torch.bfloat16):
        rough = second(first(x))  # bfloat16 meets float32 weights
    assert rough.dtype == torch.bfloat16
    assert_close(rough.float(), exact, atol=0.006, rtol=0)  # worst of 200 seeds: 0.0022


# -------------------------------------------------------------------------- copies and states


@EACH
def test_copies_and_saved_states_say_the_same(make):
    layer, x = make(), tokens()
    expected = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), expected)
    other = make()
    assert not torch.equal(other(x), expected)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x), expected)


def test_a_changed_copy_leaves_the_original_alone():
    layer, x = self_attention(), tokens()
    expected = layer(x)
    nn.init.zeros_(copy.deepcopy(layer).to_query.weight)
    assert torch.equal(layer(x), expected)


# ------------------------------------------------------------------------------------- Attend


def test_a_listener_gets_the_weights_and_changes_nothing():
    attend, heard = Attend(), []
    query, key, value = (torch.randn(2, 3, n, 11, dtype=torch.float64) for n in (5, 7, 7))
    options = {
        "mask": causal_mask(5, 7),
        "bias": torch.randn(1, 3, 5, 7, dtype=torch.float64),
    }
    quiet = attend(query, key, value, **options)
    attend.listeners += [heard.append, heard.append]
    assert_close(attend(query, key, value, **options), quiet)
    assert len(heard) == 2
    assert_close(heard[0] @ value, quiet)
    assert not heard[1][:, :, ~causal_mask(5, 7)[0, 0]].any()


def test_nobody_listens_at_first_and_no_list_is_shared():
    one, other = Attend(), Attend()
    assert one.listeners == []
    assert one.listeners is not other.listeners
    assert not list(one.parameters())


def test_the_fused_kernel_runs_unless_somebody_listens(monkeypatch):
    calls = []
    original = F.scaled_dot_product_attention
    monkeypatch.setattr(
        F,
        "scaled_dot_product_attention",
        lambda *a, **k: calls.append(1) or original(*a, **k),
    )
    layer, x = self_attention(), tokens()
    layer(x)
    assert len(calls) == 1
    layer.attend.listeners.append(lambda weights: None)
    layer(x)
    assert len(calls) == 1


# ------------------------------------------------------------------------------------ refusals

LAYER = MultiHeadAttention(6, 2, d_memory=5)
X, MEMORY = torch.zeros(2, 3, 6), torch.zeros(2, 7, 5)
REFUSED = {
    "a remainder": (
        lambda: MultiHeadAttention(100, 12), ValueError, "d_model=100 .*n_heads=12; try d_model=96"
    ),
    "more heads than width": (
        lambda: MultiHeadAttention(3, 8), ValueError, "try d_model=8, or give d_head yourself"
    ),
    "no heads": (lambda: MultiHeadAttention(8, 0), ValueError, "n_heads must be 1 or more, got 0"),
    "no width": (lambda: MultiHeadAttention(0, 2), ValueError, "d_model must be 1 or more, got 0"),
    "no head width": (lambda: MultiHeadAttention(8, 2, d_head=0), ValueError, "d_head must be 1"),
    "no value width": (lambda: MultiHeadAttention(8, 2, d_value=-1), ValueError, "d_value .*got -"),
    "no memory": (lambda: MultiHeadAttention(8, 2, d_memory=0), ValueError, "d_memory must be 1"),
    "half a head": (lambda: MultiHeadAttention(8, 2, d_head=8 / 2), TypeError, "got float 4"),
    "no inner width": (lambda: FeedForward(8, 0), ValueError, "d_ff must be 1 or more, got 0"),
    "no outer width": (lambda: FeedForward(0, 8), ValueError, "d_model must be 1 or more, got 0"),
    "encoder layer with a remainder": (lambda: EncoderLayer(8, 3, 5), ValueError, "n_heads=3"),
    "key-value heads that do not divide": (
        lambda: MultiHeadAttention(8, 4, n_kv_heads=3), ValueError, "n_kv_heads=3 must divide n_h"
    ),
    "a cache for a memory": (
        lambda: LAYER(X, MEMORY, cache=LayerCache(9)), ValueError, "either a memory or a cache"
    ),
    "2-D x": (lambda: LAYER(X[0], MEMORY), ValueError, r"x must be \(batch, length, 6\), got .*3,"),
    "wide x": (lambda: LAYER(MEMORY, MEMORY), ValueError, r"length, 6\), got shape \(2, 7, 5\)"),
    "forgotten memory": (lambda: LAYER(X), ValueError, r"memory must be \(batch, length, 5\)"),
    "2-D memory": (lambda: LAYER(X, MEMORY[0]), ValueError, r"memory must be .*got shape \(7, 5\)"),
    "other batch": (lambda: LAYER(X, MEMORY[:1]), ValueError, "agree in batch"),
    "x as list": (lambda: LAYER([1.0], MEMORY), TypeError, "x must be a float tensor, got list"),
    "double x": (lambda: LAYER(X.double(), MEMORY), TypeError, "x is torch.float64, but the la"),
    "half memory": (lambda: LAYER(X, MEMORY.half()), TypeError, "memory is torch.float16.*convert"),
    "x elsewhere": (lambda: LAYER(X.to("meta"), MEMORY), ValueError, "x is on meta, but the layer"),
    "memory elsewhere": (lambda: LAYER(X, MEMORY.to("meta")), ValueError, "memory is on meta"),
    "no tokens": (lambda: LAYER(X[:, :0], MEMORY), ValueError, "a sequence of no tokens"),
    "no memory tokens": (lambda: LAYER(X, MEMORY[:, :0]), ValueError, "a sequence of no tokens"),
    "float mask": (lambda: LAYER(X, MEMORY, mask=X), TypeError, "True = may attend"),
    "2-D mask": (lambda: LAYER(X, MEMORY, mask=X[0] > 0), ValueError, "mask must be 4-D"),
    "mask of other keys": (
        lambda: LAYER(X, MEMORY, mask=causal_mask(3)), ValueError, r"= \(2, 2, 3, 7\)"
    ),
    "mask as bias": (lambda: LAYER(X, MEMORY, bias=causal_mask(3)), TypeError, "said by mask="),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, error, words):
    with pytest.raises(error, match=words):
        call()


@pytest.mark.messages
def test_the_width_that_is_tried_works():
    with pytest.raises(ValueError, match="try d_model=96"):
        MultiHeadAttention(100, 12)
    assert MultiHeadAttention(96, 12).to_query.out_features == 96
