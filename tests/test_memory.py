"""Bytes counted by hand: what an operation keeps is known from its gradient."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from attnlib.functional import attention, fused_attention
from attnlib.masks import causal_mask, padding_mask, window_mask
from attnlib.memory import cache_bytes, mask_cost, parameter_bytes, parameter_count, saved_bytes


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
