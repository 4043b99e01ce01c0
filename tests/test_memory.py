"""Bytes counted by hand: what an operation keeps is known from its gradient."""

import contextlib
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

from attnlib.efficient.bigbird import bigbird_layout, block_sparse_attention
from attnlib.efficient.checkpointing import Checkpointed
from attnlib.efficient.linformer import LengthProjection, LinformerAttention
from attnlib.efficient.longformer import window_attention
from attnlib.efficient.tiled import tiled_attention
from attnlib.functional import attention, fused_attention
from attnlib.layers import EncoderLayer, PostNorm, PreNorm
from attnlib.masks import causal_mask, padding_mask, window_mask
from attnlib.memory import (
    Kept,
    LayerStack,
    cache_bytes,
    mask_cost,
    parameter_bytes,
    parameter_count,
    saved_bytes,
)
from attnlib.record import record_attention


def test_exp_keeps_its_output_and_a_sum_nothing():
    x = torch.randn(3, 7, requires_grad=True)
    assert saved_bytes(lambda: x.exp(), leave_out=[x]) == 3 * 7 * 4
    assert saved_bytes(lambda: x.exp().sum(), leave_out=[x]) == 3 * 7 * 4
    assert saved_bytes(lambda: x.sum(), leave_out=[x]) == 0


@pytest.mark.parametrize(("dtype", "size"), [(torch.float64, 8), (torch.bfloat16, 2)])
def test_bytes_depend_on_the_dtype(dtype, size):
    x = torch.randn(3, 7, dtype=dtype, requires_grad=True)
    assert saved_bytes(lambda: x.exp(), leave_out=[x]) == 3 * 7 * size


def test_a_linear_layer_keeps_its_input_alone():
    layer = nn.Linear(5, 11)
    x = torch.randn(3, 5)
    assert saved_bytes(lambda: layer(x), leave_out=[layer]) == 3 * 5 * 4
    assert saved_bytes(lambda: layer(x), leave_out=[layer, x]) == 0
    y = torch.randn(3, 5, requires_grad=True)  # now the weight is needed for the gradient of y
    assert saved_bytes(lambda: layer(y), leave_out=[y]) == 5 * 11 * 4
    assert saved_bytes(lambda: layer(y)) == 3 * 5 * 4 + 5 * 11 * 4


def test_buffers_are_part_of_the_module():
    norm = nn.BatchNorm1d(5).eval()
    x = torch.randn(3, 5, requires_grad=True)
    assert norm.running_mean.untyped_storage().nbytes() == 20
    assert saved_bytes(lambda: norm(x), leave_out=[norm, x]) == 0
    assert saved_bytes(lambda: norm(x), leave_out=[norm.weight, norm.bias, x]) == 40


def test_what_two_operations_keep_counts_once():
    x = torch.randn(3, 7, requires_grad=True)

    def twice():
        y = x.exp()  # exp keeps y, and so does the product, for both of its sides
        return y * y

    assert saved_bytes(twice, leave_out=[x]) == 3 * 7 * 4


def test_a_view_keeps_all_of_what_it_shows_a_part_of():
    layer = nn.Linear(5, 2)
    x = torch.randn(3, 5)
    assert saved_bytes(lambda: layer(x[1:2]), leave_out=[layer]) == 3 * 5 * 4
    assert saved_bytes(lambda: layer(x[1:2].clone()), leave_out=[layer]) == 1 * 5 * 4
    assert saved_bytes(lambda: layer(x[1:2]), leave_out=[layer, x]) == 0
    assert saved_bytes(lambda: layer(x), leave_out=[layer, x[1:2]]) == 0


def test_memory_that_comes_and_goes_is_not_taken_for_one():
    x = torch.randn(1000, requires_grad=True)

    def run():  # each graph is gone before the next one, and its memory is used again
        return [x.exp().sum().item() for _ in range(5)]

    assert saved_bytes(run, leave_out=[x]) == 5 * 4000


def test_without_gradients_nothing_is_kept():
    x = torch.randn(3, 7, requires_grad=True)
    with torch.no_grad():
        assert saved_bytes(lambda: x.exp().exp()) == 0


def test_it_counts_on_no_longer_than_asked():
    x = torch.randn(3, 7, requires_grad=True)
    first = saved_bytes(lambda: x.exp(), leave_out=[x])
    x.exp().exp()
    assert saved_bytes(lambda: x.exp(), leave_out=[x]) == first


def test_the_gradient_is_right_while_bytes_are_counted():
    x = torch.randn(3, 7, requires_grad=True)
    saved_bytes(lambda: x.exp().sum().backward())
    torch.testing.assert_close(x.grad, x.detach().exp())


def test_attention_keeps_the_square_of_the_length_and_its_fused_twin_does_not():
    def kept(function, length):
        q, k, v = (torch.randn(2, 3, length, 8, requires_grad=True) for _ in range(3))
        return saved_bytes(lambda: function(q, k, v), leave_out=[q, k, v])

    plane = 2 * 3 * 64 * 64
    grown = kept(attention, 128) - 2 * kept(attention, 64)
    # Four times the square less twice the square leaves two planes of each float kept. Those are
    # the softmax and the weights. Each of the two masks, and of their kind, is a byte a place.
    assert grown >= 2 * plane * (4 + 4)
    assert kept(fused_attention, 128) == 2 * kept(fused_attention, 64)


def test_checkpointing_keeps_the_inputs_of_its_pieces_alone():
    piece = nn.Sequential(nn.Linear(5, 50), nn.Tanh(), nn.Linear(50, 5))
    pieces = nn.ModuleList([piece, piece])
    x = torch.randn(3, 5, requires_grad=True)

    def plain():
        return pieces[1](pieces[0](x))

    def checkpointed():
        return checkpoint(piece, checkpoint(piece, x, use_reentrant=False), use_reentrant=False)

    tanh, between = 3 * 50 * 4, 3 * 5 * 4
    assert saved_bytes(plain, leave_out=[pieces, x]) == 2 * tanh + between
    assert saved_bytes(checkpointed, leave_out=[pieces, x]) == between


# ------------------------------------------------------------------------- parameters, caches


def test_parameters_are_counted_by_hand():
    model = nn.Sequential(nn.Embedding(11, 5), nn.Linear(5, 3), nn.LayerNorm(3))
    assert parameter_count(model) == 11 * 5 + (5 * 3 + 3) + (3 + 3)
    assert parameter_bytes(model) == 4 * parameter_count(model)
    assert parameter_bytes(model.double()) == 8 * parameter_count(model)


def test_a_shared_parameter_counts_once_and_a_buffer_not_at_all():
    model = nn.Sequential(nn.Embedding(11, 5), nn.Linear(5, 11, bias=False), nn.BatchNorm1d(11))
    model[1].weight = model[0].weight
    assert parameter_count(model) == 55 + 22
    assert parameter_bytes(model) == 4 * 77


def test_a_cache_by_hand():
    keys = torch.zeros(2, 3, 5, 7, 11, dtype=torch.bfloat16)  # layers, batch, heads, length, width
    assert cache_bytes(7, n_layers=2, batch=3, n_heads=5, d_head=11, dtype=torch.bfloat16) == (
        2 * keys.untyped_storage().nbytes()
    )
    assert cache_bytes(7, n_layers=2, n_heads=5, d_head=11) == 2 * 2 * 5 * 7 * 11 * 4
    assert cache_bytes(0, n_layers=2, n_heads=5, d_head=11) == 0


def test_a_window_bounds_a_cache():
    sizes = {"n_layers": 2, "n_heads": 5, "d_head": 11}
    assert cache_bytes(100, window=7, **sizes) == cache_bytes(7, **sizes)
    assert cache_bytes(5, window=7, **sizes) == cache_bytes(5, **sizes)


# --------------------------------------------------------------------------- the cost of a mask


def test_the_pairs_of_a_mask_are_counted():
    cost = mask_cost(causal_mask(4), d_head=3)
    assert cost == (10, 10 / 16, 10 * 4 * 3, 10 * 4)
    assert (cost.flops, cost.bytes) == (120, 40)
    assert mask_cost(window_mask(7, radius=1), d_head=3).pairs == 7 + 2 * 6
    both = causal_mask(5) & padding_mask(torch.tensor([2, 5]), 5)
    assert mask_cost(both, d_head=3).pairs == (1 + 2 * 4) + 15
    assert mask_cost(both, d_head=3).share == 24 / 50


def test_heads_count_whether_the_mask_names_them_or_not():
    one = mask_cost(causal_mask(4), d_head=3, n_heads=6, dtype=torch.float16)
    six = mask_cost(causal_mask(4).repeat(1, 6, 1, 1), d_head=3, n_heads=6, dtype=torch.float16)
    assert one == six == (60, 10 / 16, 60 * 12, 120)


def test_blocks_are_paid_for_whole_and_those_at_the_edge_are_smaller():
    cost = mask_cost(causal_mask(5), d_head=1, block_size=2)
    assert cost.pairs == 4 + 8 + 5  # rows 0 and 1 see 2 keys, 2 and 3 see 4, 4 sees 5
    assert mask_cost(causal_mask(5), d_head=1, block_size=9).share == 1


# ------------------------------------------------------------------- predicted, then measured

SIZES = {"n_layers": 2, "n_heads": 3, "d_head": 8}
SMALL = {"length": 67, "batch": 2}  # primes: no block, no tile fits
LARGER = {"length": 131, "batch": 1, "dtype": torch.bfloat16}
RANK = 37


class Attend(nn.Module):
    """Stands in a layer where queries meet keys."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, q, k, v, *, mask, bias):
        return self.function(q, k, v)


class LowRank(LinformerAttention):
    def forward(self, x, *, mask, bias, cache):
        return super().forward(x)


def in_blocks(q, k, v):
    layout = bigbird_layout(-(-q.shape[2] // 16))
    return block_sparse_attention(q, k, v, layout=layout, block_size=16)


FUNCTIONS = {
    "equation": lambda q, k, v: attention(q, k, v)[0],
    "fused_with_dropout": partial(scaled_dot_product_attention, dropout_p=0.1),
    "fused": fused_attention,
    "tiled": tiled_attention,
    "window": partial(window_attention, radius=5),
    "blocks": in_blocks,
}


def layers_of(method, stack, residual=PreNorm):
    width = stack.n_heads * stack.d_head
    d_ff = stack.d_ff or 4 * width
    layers = nn.ModuleList(
        EncoderLayer(width, stack.n_heads, d_ff, residual=residual, activation=nn.GELU())
        for _ in range(stack.n_layers)
    )
    for layer in layers:
        if method == "linformer":
            short = LengthProjection(max_len=stack.length, rank=RANK)
            layer.attention = LowRank(width, stack.n_heads, to_short=short)
        else:
            layer.attention.attend = Attend(FUNCTIONS[method])
    if stack.checkpointed:
        layers = nn.ModuleList([*map(Checkpointed, layers[:-1]), layers[-1]])  # the last runs again
    return layers.to(stack.dtype)


def measured(layers, stack):
    def run():
        x = torch.zeros(stack.batch, stack.length, stack.n_heads * stack.d_head)
        x = x.to(stack.dtype).requires_grad_()  # as the embeddings do
        for layer in layers:
            x = layer(x)

    return saved_bytes(run, leave_out=[layers])


def predicted(method, stack):
    if method == "linformer":
        return stack.linformer(RANK)
    return getattr(stack, {"window": "sparse", "blocks": "sparse"}.get(method, method))()


@pytest.mark.parametrize("method", [*FUNCTIONS, "linformer"])
def test_what_a_stack_keeps_is_predicted_to_the_byte(method):
    for sizes in (SMALL, LARGER, SMALL | {"d_ff": 29, "checkpointed": True}):
        in_blocks = method in ("window", "blocks")  # whole ones, as nothing is filled up then
        fitting = {"length": sizes["length"] // 32 * 32} if in_blocks else {}
        stack = LayerStack(**SIZES, **sizes | fitting)
        assert sum(predicted(method, stack)) == measured(layers_of(method, stack), stack)


def test_where_the_norm_stands_makes_no_difference_and_the_dtype_may_be_wide():
    stack = LayerStack(**SIZES, **SMALL, dtype=torch.float64)
    for method in ("equation", "fused", "tiled"):
        layers = layers_of(method, stack, residual=PostNorm)
        assert sum(predicted(method, stack)) == measured(layers, stack)


def test_a_layer_of_ours_is_the_fused_one_and_while_someone_listens_the_equation():
    stack = LayerStack(**SIZES, **SMALL)
    mask = causal_mask(stack.length)
    layers = layers_of("fused", stack)
    for layer in layers:
        layer.attention.attend = type(EncoderLayer(2, 1, 2).attention.attend)()
    for kept, listening in (
        (stack.fused(), contextlib.nullcontext()),
        (stack.equation(), record_attention(layers)),
    ):
        x = torch.zeros(2, 67, 24, requires_grad=True)
        with listening:
            run = partial(lambda x: layers[1](layers[0](x, mask=mask), mask=mask), x)
            assert saved_bytes(run, leave_out=[layers]) == sum(kept)


def test_the_weights_are_what_grows_with_the_square():
    short, long = (LayerStack(length=n, **SIZES) for n in (64, 128))
    for method in ("equation", "fused_with_dropout"):
        assert predicted(method, long).weights == 4 * predicted(method, short).weights > 0
    for method in ("equation", "fused_with_dropout", "fused", "tiled", "window"):
        assert predicted(method, long).activations == 2 * predicted(method, short).activations
    for method in ("fused", "tiled", "window", "linformer"):
        assert predicted(method, long).weights == 0
    assert Kept(3, 4) == (3, 4)
    assert Kept(weights=3, activations=4).activations == 4


def test_what_is_checkpointed_keeps_the_inputs_of_all_layers():
    stack = LayerStack(**SIZES, **SMALL)
    layers = nn.ModuleList(map(Checkpointed, layers_of("fused", stack)))
    one_input = 2 * 67 * 24 * 4
    assert measured(layers, stack) == 2 * one_input
    peak = LayerStack(**SIZES, **SMALL, checkpointed=True).fused()
    assert sum(peak) == one_input + sum(LayerStack(**SIZES | {"n_layers": 1}, **SMALL).fused())


def test_the_parameters_of_a_stack():
    for sizes in (SMALL, LARGER | {"d_ff": 29}):
        stack = LayerStack(**SIZES, **sizes)
        assert stack.parameters() == parameter_bytes(layers_of("fused", stack))


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.messages
def test_refusals_say_what_came_and_what_to_do():
    with pytest.raises(TypeError, match=r"tensors and modules, got tuple; unpack a batch with \*"):
        saved_bytes(lambda: None, leave_out=[(torch.zeros(1),)])
    for name in ("length", "n_layers", "n_heads", "d_head", "batch"):
        sizes = {"length": 7, "n_layers": 2, "n_heads": 5, "d_head": 11, name: -1}
        with pytest.raises(ValueError, match=f"{name} must be 0 or more, got -1"):
            cache_bytes(**sizes)
    with pytest.raises(ValueError, match="window must be 1 or more, got 0"):
        cache_bytes(7, n_layers=2, n_heads=5, d_head=11, window=0)
    with pytest.raises(ValueError, match="the mask has 6 heads, but n_heads=5"):
        mask_cost(torch.ones(1, 6, 2, 2, dtype=torch.bool), d_head=3, n_heads=5)
    with pytest.raises(ValueError, match="block_size must be 1 or more, got 0"):
        mask_cost(causal_mask(4), d_head=3, block_size=0)
    with pytest.raises(ValueError, match="mask must be 4-D"):
        mask_cost(causal_mask(4)[0, 0], d_head=3)
    sizes = {"length": 64, "n_layers": 1, "n_heads": 1, "d_head": 1}
    with pytest.raises(ValueError, match="length must be 32 or more, got 31"):
        LayerStack(**sizes | {"length": 31})
    for name in ("n_layers", "n_heads", "d_head", "batch", "d_ff"):
        with pytest.raises(ValueError, match=f"{name} must be 1 or more, got 0"):
            LayerStack(**sizes | {name: 0})
    for dtype in ("float32", torch.int64):
        with pytest.raises(TypeError, match=f"dtype must be a float type, .*got {dtype}"):
            LayerStack(**sizes, dtype=dtype)
    with pytest.raises(ValueError, match="rank=65 must not be more than length=64"):
        LayerStack(**sizes).linformer(65)
    with pytest.raises(ValueError, match="rank must be 32 or more, got 31"):
        LayerStack(**sizes).linformer(31)
