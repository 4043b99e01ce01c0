"""A GPT whose tokens see a window: with a cache that forgets, as without, from few bytes."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from attnlib.cache import KVCache
from attnlib.efficient.window_attend import WindowAttend
from attnlib.efficient.window_cache import WindowKVCache
from attnlib.generate import beam_search, greedy
from attnlib.layers import MultiHeadAttention
from attnlib.masks import causal_mask, padding_mask, window_mask
from attnlib.memory import cache_bytes, saved_bytes
from attnlib.models.gpt import GPT, GPTConfig
from attnlib.models.inputs import hide_beyond_window
from attnlib.positions import Alibi, Rope
from attnlib.record import record_attention

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


def test_a_mask_is_narrowed_to_the_window():
    mask = hide_beyond_window(None, IDS, WINDOW, None)
    assert torch.equal(mask, window_mask(LENGTH, radius=WINDOW - 1))


def gradients(model, loss):
    return torch.autograd.grad(loss, model.parameters())


@pytest.mark.parametrize("window", [1, WINDOW, LENGTH + 3])
@pytest.mark.parametrize("padded", ["no", "in front", "behind"])
def test_without_the_matrix_it_is_what_it_is_with_it_gradients_too(window, padded):
    model, whole = gpt(window, Rope(6)), gpt(None, Rope(6))
    whole.load_state_dict(model.state_dict())
    near = causal_mask(LENGTH) & window_mask(LENGTH, radius=window - 1)
    behind = padding_mask(torch.tensor([LENGTH, 7]), LENGTH)
    front = {"padding": torch.tensor([0, 3])} if padded == "in front" else {}
    mine = front | ({"mask": behind} if padded == "behind" else {})
    theirs = front | {"mask": near & behind if padded == "behind" else near}
    real = (slice(None), slice(3, 7))  # the rows that are text in either case
    ours, dense = model(IDS, **mine)[real], whole(IDS, **theirs)[real]
    assert_close(ours, dense)
    pairs = zip(
        gradients(model, ours.sin().sum()), gradients(whole, dense.sin().sum()), strict=True
    )
    for got, expected in pairs:
        assert_close(got, expected)


def test_where_weights_are_asked_for_or_a_bias_is_added_it_is_the_same_window():
    near = causal_mask(LENGTH) & window_mask(LENGTH, radius=WINDOW - 1)
    for positions in (Rope(6), Alibi(2)):
        model, whole = gpt(positions=positions), gpt(None, positions)
        whole.load_state_dict(model.state_dict())
        assert_close(model(IDS), whole(IDS, mask=near))
        with record_attention(model) as recorded:
            heard = model(IDS)
        assert_close(heard, model(IDS))
        for heard_of in recorded:
            assert torch.equal(heard_of.weights > 0, near.expand_as(heard_of.weights))


def test_a_mask_that_differs_by_query_or_head_is_kept():
    model, whole = gpt(), gpt(None)
    whole.load_state_dict(model.state_dict())
    near = causal_mask(LENGTH) & window_mask(LENGTH, radius=WINDOW - 1)
    apart = torch.rand(2, 2, LENGTH, LENGTH, generator=torch.Generator().manual_seed(1)) < 0.7
    apart |= torch.eye(LENGTH, dtype=torch.bool)
    for mask in (apart, apart[:1, :1], apart[:, :, :1]):
        assert_close(model(IDS, mask=mask), whole(IDS, mask=near & mask))


def test_its_scale_is_used_either_way():
    layer, x = MultiHeadAttention(12, 2, scale=2.0), torch.randn(1, LENGTH, 12)
    near = causal_mask(LENGTH) & window_mask(LENGTH, radius=WINDOW - 1)
    dense = layer(x, mask=near)
    layer.attend = WindowAttend(WINDOW, scale=2.0)
    assert_close(layer(x), dense)
    assert_close(layer(x, mask=near), dense)


def kept(model, length):
    ids = torch.zeros(1, length, dtype=torch.int64)
    return saved_bytes(lambda: model(ids), leave_out=[model, ids])


def test_what_it_keeps_in_training_grows_with_the_length_not_with_its_square():
    sizes = SIZES | {"n_layers": 1, "max_len": 512, "window": WINDOW}
    model = GPT(GPTConfig(**sizes))
    shorter, short, long = (kept(model, n) for n in (128, 256, 512))
    assert long - short == 2 * (short - shorter)  # a straight line
    whole = GPT(GPTConfig(**sizes | {"window": None}))
    assert long < 1.1 * kept(whole, 512)
    with record_attention(model):  # the twin: what the line would not be
        assert kept(model, 512) - kept(model, 256) > 3 * (kept(model, 256) - kept(model, 128))


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
    with pytest.raises(TypeError, match="window must be a whole number, got float 2"):
        WindowAttend(2.5)
    with pytest.raises(ValueError, match="window must be 1 or more, got 0"):
        GPTConfig(window=0)
    with pytest.raises(ValueError, match="window of 3 tokens, but the model's window is 4"):
        gpt()(IDS, cache=WindowKVCache(3, 3))
    with pytest.raises(ValueError, match="window of 4 tokens, but the model's window is None"):
        gpt(window=None)(IDS, cache=WindowKVCache(3, 4))
    with pytest.raises(ValueError, match="the cache has 2 layers, but the model has 3"):
        gpt()(IDS, cache=WindowKVCache(2, WINDOW))


def test_a_window_that_is_put_into_the_config_later_is_no_half_a_window():
    model = gpt(window=None)
    before = model(IDS).detach()
    model.config = replace(model.config, window=WINDOW)
    assert_close(model(IDS), before)
    with pytest.raises(ValueError, match="but the model's window is None"):
        model(IDS, cache=WindowKVCache(3, WINDOW))
