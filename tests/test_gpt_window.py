"""A GPT whose tokens see a window: with a cache that forgets, as without, from few bytes."""

import pytest
import torch
from torch.testing import assert_close

from attnlib.cache import KVCache
from attnlib.efficient.window_cache import WindowKVCache
from attnlib.generate import beam_search, greedy
from attnlib.masks import causal_mask, window_mask
from attnlib.memory import cache_bytes
from attnlib.models.gpt import GPT, GPTConfig
from attnlib.positions import Rope

SIZES = {"vocab_size": 13, "d_model": 12, "n_heads": 2, "n_layers": 3, "d_ff": 20, "dropout": 0.0}
LENGTH, WINDOW = 11, 4
IDS = torch.randint(13, (2, LENGTH), generator=torch.Generator().manual_seed(0))


def gpt(window=WINDOW, positions=None):
    return GPT(GPTConfig(**SIZES, max_len=40, window=window), positions=positions).double().eval()


def decode(model, cache, pieces, **options):
    with torch.no_grad():
        return torch.cat(
            [model(piece, cache=cache, **options) for piece in IDS.split(pieces, 1)], 1
        )


def splits():
    return [[first, LENGTH - first] for first in range(1, LENGTH)] + [[1] * LENGTH, [2, 5, 1, 3]]


@pytest.mark.parametrize("window", [1, WINDOW, 50])
def test_with_either_cache_it_is_what_it_is_without_at_every_split(window):
    model = gpt(window, Rope(6))
    expected = model(IDS).detach()
    for pieces in splits():
        for cache in (WindowKVCache(3, window), KVCache(3, max_len=LENGTH)):
            assert_close(decode(model, cache, pieces), expected)


def test_padding_in_front_and_learned_positions_go_with_it():
    model, padding = gpt(), torch.tensor([0, 5])  # more than a window of it
    expected = model(IDS, padding=padding).detach()
    assert_close(expected[1, 5:], model(IDS[1:, 5:])[0].detach())
    for pieces in splits():
        assert_close(decode(model, WindowKVCache(3, WINDOW), pieces, padding=padding), expected)


def test_the_window_is_the_mask_of_the_window():
    model, whole = gpt(), gpt(window=None)
    whole.load_state_dict(model.state_dict())
    mask = causal_mask(LENGTH) & window_mask(LENGTH, radius=WINDOW - 1)
    assert_close(model(IDS), whole(IDS, mask=mask))
    assert (model(IDS) != whole(IDS)).any()
    hidden = torch.ones(2, 1, 1, LENGTH, dtype=torch.bool)
    hidden[:, :, :, 7] = False
    assert_close(model(IDS, mask=hidden), whole(IDS, mask=mask & hidden))


def test_through_three_layers_a_token_is_heard_of_three_windows_later_and_no_further():
    model, other = gpt(window=2), IDS.clone()
    other[:, 3] = (other[:, 3] + 1) % 13
    changed = (model(IDS) != model(other)).any(-1)[0]
    assert changed.nonzero().flatten().tolist() == [3, 4, 5, 6]


def test_its_bytes_stop_growing_at_the_window():
    model, cache = gpt(), WindowKVCache(3, WINDOW)
    sizes = {"n_layers": 3, "n_heads": 2, "d_head": 6, "batch": 2, "dtype": torch.float64}
    with torch.no_grad():
        for i in range(LENGTH):
            model(IDS[:, i : i + 1], cache=cache)
            assert cache.bytes() == cache_bytes(i + 1, window=WINDOW, **sizes)
            assert cache.length == i + 1
    assert cache_bytes(LENGTH, **sizes) > 2 * cache.bytes()


@pytest.mark.parametrize("generate", [greedy, beam_search])
def test_it_writes_beyond_its_window_what_it_would_write_without_a_cache(generate):
    model, cache = gpt(positions=Rope(6)), WindowKVCache(3, WINDOW)
    written = generate(model, IDS, max_new_tokens=9, cache=cache)
    assert torch.equal(written, generate(model, IDS, max_new_tokens=9))
    assert cache.length == LENGTH + 8


@pytest.mark.messages
def test_refusals_say_what_came():
    with pytest.raises(ValueError, match="window must be 1 or more, got 0"):
        GPTConfig(window=0)
    with pytest.raises(ValueError, match="window of 3 tokens, but the model's window is 4"):
        gpt()(IDS, cache=WindowKVCache(3, 3))
    with pytest.raises(ValueError, match="window of 4 tokens, but the model's window is None"):
        gpt(window=None)(IDS, cache=WindowKVCache(3, 4))
    with pytest.raises(ValueError, match="the cache has 2 layers, but the model has 3"):
        gpt()(IDS, cache=WindowKVCache(2, WINDOW))
