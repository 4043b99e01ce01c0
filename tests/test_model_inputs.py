"""What models check, and who sees whom in them: drawn."""

import pytest
import torch
from torch import nn

from attnlib.cache import KVCache
from attnlib.masks import causal_mask, padding_mask
from attnlib.models.inputs import cache_of_each, check_ids, decoder_mask, encoder_mask

HEADS = 2


def ids(batch, length):
    return torch.zeros(batch, length, dtype=torch.int64)


def drawn(mask):
    """The pictures of a mask that is the same for all heads: a row of text for each sequence."""
    assert mask.shape[1] == 1
    return [" ".join("".join(".x"[seen] for seen in row) for row in m[0]) for m in mask.int()]


ONE_OF_TWO = torch.tensor([1, 0])
HIDES_LAST = padding_mask(torch.tensor([3, 2]), 3)


def test_where_nothing_is_hidden_there_is_no_mask():
    assert encoder_mask(ids(2, 3), HEADS) is None
    assert decoder_mask(ids(2, 1), HEADS) is None
    assert decoder_mask(ids(2, 1), HEADS, offset=4) is None


def test_an_encoder_sees_all_but_padding_and_what_the_caller_hides():
    assert drawn(encoder_mask(ids(2, 3), HEADS, padding=ONE_OF_TWO)) == [".xx", "xxx"]
    assert drawn(encoder_mask(ids(2, 3), HEADS, mask=HIDES_LAST)) == ["xxx", "xx."]
    both = encoder_mask(ids(2, 3), HEADS, padding=ONE_OF_TWO, mask=HIDES_LAST)
    assert drawn(both) == [".xx", "xx."]


def test_a_decoder_does_not_see_the_future_whatever_else_is_hidden():
    assert drawn(decoder_mask(ids(1, 3), HEADS)) == ["x.. xx. xxx"]
    assert drawn(decoder_mask(ids(1, 2), HEADS)) == ["x. xx"]
    padded = decoder_mask(ids(2, 3), HEADS, padding=ONE_OF_TWO)
    assert drawn(padded) == ["... .x. .xx", "x.. xx. xxx"]
    masked = decoder_mask(ids(2, 3), HEADS, mask=HIDES_LAST)
    assert drawn(masked) == ["x.. xx. xxx", "x.. xx. xx."]
    both = decoder_mask(ids(2, 3), HEADS, padding=ONE_OF_TWO, mask=HIDES_LAST)
    assert drawn(both) == ["... .x. .xx", "x.. xx. xx."]


def test_cached_tokens_are_seen_unless_they_are_padding():
    assert drawn(decoder_mask(ids(1, 2), HEADS, offset=2)) == ["xxx. xxxx"]
    assert drawn(decoder_mask(ids(2, 1), HEADS, offset=2, padding=ONE_OF_TWO)) == [".xx", "xxx"]
    padded = decoder_mask(ids(2, 2), HEADS, offset=1, padding=torch.tensor([2, 0]))
    assert drawn(padded) == ["... ..x", "xx. xxx"]
    assert drawn(decoder_mask(ids(1, 1), HEADS, padding=torch.tensor([3]))) == ["."]  # to come


def test_a_causal_mask_stays_the_one_that_has_a_fast_path():
    assert torch.equal(decoder_mask(ids(5, 7), HEADS), causal_mask(7))


def test_each_layer_gets_its_own_cache():
    layers = nn.ModuleList(nn.Identity() for _ in range(3))
    cache = KVCache(3, max_len=5)
    for found, expected in zip(cache_of_each(layers, cache), cache.layers, strict=True):
        assert found is expected
    assert cache_of_each(layers, None) == [None, None, None]


LAYERS = nn.ModuleList([nn.Identity(), nn.Identity()])
REFUSED = {
    "1-D ids": (
        lambda: check_ids("source", torch.tensor([1, 2])),
        ValueError,
        r"source must be \(batch, length\) with one token or more, got shape \(2,\)",
    ),
    "no ids": (lambda: check_ids("target", ids(2, 0)), ValueError, r"target must .* \(2, 0\)"),
    "float padding": (
        lambda: encoder_mask(ids(2, 3), HEADS, padding=torch.tensor([0.0, 1.0])),
        TypeError,
        "padding must be a tensor of whole numbers, got torch.float32",
    ),
    "padding of one": (
        lambda: encoder_mask(ids(2, 3), HEADS, padding=torch.tensor([1])),
        ValueError,
        r"padding must say one number for each of 2 texts, got shape \(1,\)",
    ),
    "padding below 0": (
        lambda: decoder_mask(ids(2, 3), HEADS, padding=torch.tensor([0, -1])),
        ValueError,
        r"padding must be 0 or more tokens, got \[0, -1\]",
    ),
    "a mask for more heads": (
        lambda: encoder_mask(ids(2, 3), HEADS, mask=torch.ones(1, 3, 1, 3).bool()),
        ValueError,
        r"shape \(1, 3, 1, 3\) does not broadcast .* = \(2, 2, 3, 3\)",
    ),
    "a mask without the cached keys": (
        lambda: decoder_mask(ids(2, 3), HEADS, offset=2, mask=causal_mask(3)),
        ValueError,
        r"= \(2, 2, 3, 5\)",
    ),
    "a float mask": (
        lambda: encoder_mask(ids(2, 3), HEADS, mask=torch.ones(1, 1, 1, 3)),
        TypeError,
        "mask must be torch.bool",
    ),
    "a smaller cache": (
        lambda: cache_of_each(LAYERS, KVCache(1, 3)),
        ValueError,
        "the cache has 1 layers, but the model has 2",
    ),
    "a larger cache": (lambda: cache_of_each(LAYERS, KVCache(3, 3)), ValueError, "has 3 layers"),
}


@pytest.mark.messages
@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, error, words):
    with pytest.raises(error, match=words):
        call()
