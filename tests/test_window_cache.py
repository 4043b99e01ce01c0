"""A cache of a window: decoding with it is attention with the window's mask, from few bytes."""

import pytest
import torch
from torch.testing import assert_close

from attnlib.efficient.window_cache import WindowCache
from attnlib.layers import EncoderLayer, MultiHeadAttention
from attnlib.masks import causal_mask, window_mask
from attnlib.memory import cache_bytes
from attnlib.positions import Rope

BATCH, LENGTH, WINDOW = 2, 11, 4
LAYER = {"d_head": 6, "n_kv_heads": 2, "d_value": 5}


def decode(layer, x, cache, pieces):
    steps = []
    with torch.no_grad():
        for piece in x.split(pieces, dim=1):
            steps.append(layer(piece, mask=cache.mask(piece.shape[1]), cache=cache))
    return torch.cat(steps, 1)


@pytest.mark.parametrize("pieces", [[1] * LENGTH, [7, 1, 1, 2], [2, 9]], ids=str)
@pytest.mark.parametrize("window", [1, WINDOW, 50])
def test_grouped_queries_window_and_cache_are_one_pass_with_the_mask(window, pieces):
    layer = MultiHeadAttention(12, 4, positions=Rope(6), **LAYER).double()
    x = torch.randn(BATCH, LENGTH, 12, dtype=torch.float64)
    mask = causal_mask(LENGTH) & window_mask(LENGTH, radius=window - 1)
    cache = WindowCache(window)
    assert_close(decode(layer, x, cache, pieces), layer(x, mask=mask).detach())
    kept = {"n_layers": 1, "n_heads": 2, "batch": BATCH, "window": window, "dtype": x.dtype}
    assert cache.bytes() == cache_bytes(LENGTH, d_head=6, **kept) * 11 // 12  # values are narrower
    assert cache.length == LENGTH


def test_through_two_layers_a_token_hears_of_more_than_its_window():
    layers = [EncoderLayer(8, n_heads=2, d_ff=16).double() for _ in range(2)]
    x = torch.randn(1, LENGTH, 8, dtype=torch.float64)
    other = x.clone()
    other[:, 5] += torch.randn(8)

    def run(x, n_layers):
        for layer in layers[:n_layers]:
            x = decode(layer, x, WindowCache(WINDOW), [1] * LENGTH)
        return x

    for n_layers, last in ((1, 5 + 3), (2, LENGTH - 1)):  # in two layers it would reach 5 + 2 · 3
        changed = (run(x, n_layers) != run(other, n_layers)).any(-1)[0]
        assert changed.nonzero().flatten().tolist() == list(range(5, last + 1))


def test_a_long_prompt_is_not_kept_by_a_view():
    cache = WindowCache(WINDOW)
    key = torch.randn(BATCH, 2, 100, 3)
    cache.append(key, key)
    assert cache._keys.untyped_storage().nbytes() == BATCH * 2 * WINDOW * 3 * 4


def test_rows_are_reordered():
    cache, x = WindowCache(WINDOW), torch.randn(3, 2, 6, 5)
    cache.reorder(torch.tensor([0]))  # nothing there yet
    assert cache.bytes() == 0
    cache.append(x, 2 * x)
    cache.reorder(torch.tensor([2, 2, 0, 1]))
    keys, values = cache.append(torch.zeros(4, 2, 1, 5), torch.zeros(4, 2, 1, 5))
    assert_close(keys[:, :, :-1], x[[2, 2, 0, 1], :, 3:])
    assert_close(values[:, :, :-1], 2 * keys[:, :, :-1])


@pytest.mark.messages
def test_refusals_say_what_came():
    with pytest.raises(ValueError, match="window must be 1 or more, got 0"):
        WindowCache(0)
    with pytest.raises(ValueError, match="new must be 1 or more, got 0"):
        WindowCache(3).mask(0)
    cache, x = WindowCache(3), torch.randn(2, 2, 5, 3)
    with pytest.raises(ValueError, match="got 5 keys and 4 values"):
        cache.append(x, x[:, :, 1:])
    cache.append(x, x)
    with pytest.raises(ValueError, match=r"key has .*but the cache was started with"):
        cache.append(x[:1], x[:1])
    cache.crop(5)
    with pytest.raises(ValueError, match=r"can't go back to 4 of 5 tokens.* Use a LayerCache"):
        cache.crop(4)
    with pytest.raises(ValueError, match=r"rows must lie in 0\.\.1, got \[2\]"):
        cache.reorder(torch.tensor([2]))
