"""The cache: what goes in comes out, in the right rows, and nothing else does."""

import copy

import pytest
import torch
from torch.testing import assert_close

from attnlib.cache import KVCache, LayerCache

BATCH, HEADS, D_HEAD, D_VALUE, ROOM = 3, 2, 5, 7, 11


def pair(length, batch=BATCH, dtype=torch.float32):
    key = torch.randn(batch, HEADS, length, D_HEAD, dtype=dtype)
    return key, torch.randn(batch, HEADS, length, D_VALUE, dtype=dtype)


def stored(cache):
    """All that a cache holds, read by appending nothing."""
    batch = len(cache._keys)
    return tuple(t.clone() for t in cache.append(*pair(0, batch)))


def filled(length=4):
    cache = LayerCache(ROOM)
    content = pair(length)
    cache.append(*content)
    return cache, content


def both(first, second):
    return tuple(torch.cat([a, b], dim=2) for a, b in zip(first, second, strict=True))


# --------------------------------------------------------------------------------------- append


def test_what_is_appended_comes_out_behind_what_was_there():
    cache, pieces = LayerCache(ROOM), [pair(n) for n in (4, 1, 6)]
    assert cache.length == 0
    so_far = pieces[0]
    assert_close(cache.append(*pieces[0]), so_far)
    for piece in pieces[1:]:
        so_far = both(so_far, piece)
        assert_close(cache.append(*piece), so_far)
        assert cache.length == so_far[0].shape[2]
    assert cache.length == cache.max_len == ROOM


def test_memory_is_reserved_once_and_what_comes_out_is_a_view_of_it():
    cache, _ = filled()
    keys, values = cache.append(*pair(1))
    later_keys, later_values = cache.append(*pair(1))
    assert later_keys.data_ptr() == keys.data_ptr()
    assert later_values.data_ptr() == values.data_ptr()


def test_what_was_given_may_change_afterwards():
    cache, (key, value) = filled()
    expected = key.clone(), value.clone()
    key.zero_()
    value.zero_()
    assert_close(stored(cache), expected)


def test_no_gradient_comes_out():
    key, value = (t.requires_grad_() for t in pair(4))
    keys, values = LayerCache(ROOM).append(key, value)
    assert not keys.requires_grad
    assert not values.requires_grad


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_the_dtype_is_that_of_the_first_tokens(dtype):
    keys, values = LayerCache(ROOM).append(*pair(4, dtype=dtype))
    assert keys.dtype == values.dtype == dtype


def test_a_refused_token_leaves_the_cache_as_it_was():
    cache, content = filled()
    with pytest.raises(ValueError, match="do not fit"):
        cache.append(*pair(ROOM))
    assert cache.length == 4
    assert_close(stored(cache), content)
    fresh = LayerCache(1)
    with pytest.raises(ValueError, match="do not fit"):
        fresh.append(*pair(2))
    assert_close(fresh.append(*pair(1, batch=8)), stored(fresh))  # any batch may start it


def test_a_copy_goes_its_own_way():
    cache, content = filled()
    other = copy.deepcopy(cache)
    other.crop(0)
    other.append(*pair(4))
    assert_close(stored(cache), content)


# ----------------------------------------------------------------------------------------- crop


@pytest.mark.parametrize("length", [0, 1, 3, 4])
def test_after_a_crop_the_text_goes_on_from_there(length):
    cache, content = filled()
    cache.crop(length)
    assert cache.length == length
    new = pair(2)
    kept = tuple(t[:, :, :length] for t in content)
    assert_close(cache.append(*new), both(kept, new))


# -------------------------------------------------------------------------------------- reorder


@pytest.mark.parametrize("rows", [[0, 1, 2], [2, 0, 0], [1], [0, 0, 1, 1, 2, 2]])
def test_each_row_continues_the_one_it_is_told_to(rows):
    cache, content = filled()
    cache.reorder(torch.tensor(rows))
    expected = tuple(t[rows] for t in content)
    assert_close(stored(cache), expected)
    new = pair(ROOM - 4, batch=len(rows))  # all the room is still there
    assert_close(cache.append(*new), both(expected, new))


def test_an_empty_cache_can_be_reordered():
    cache = LayerCache(ROOM)
    cache.reorder(torch.tensor([0, 0]))
    new = pair(2, batch=2)
    assert_close(cache.append(*new), new)


# -------------------------------------------------------------------------------------- KVCache


def test_there_is_a_cache_for_each_layer_and_all_grow_crop_and_reorder_together():
    cache, contents = KVCache(n_layers=3, max_len=ROOM), [pair(4) for _ in range(3)]
    assert cache.length == 0
    assert cache.max_len == ROOM
    for layer, content in zip(cache.layers, contents, strict=True):
        layer.append(*content)
    assert cache.length == 4
    cache.crop(3)
    cache.reorder(torch.tensor([2, 2]))
    assert cache.length == 3
    for layer, content in zip(cache.layers, contents, strict=True):
        assert_close(stored(layer), tuple(t[[2, 2], :, :3] for t in content))


def source():
    """Keys and values of a source for two layers, and its mask."""
    return [pair(6), pair(6)], torch.rand(BATCH, 1, 1, 6) < 0.5


def test_the_source_is_reordered_but_not_cropped():
    memory, mask = source()
    cache = KVCache(2, ROOM, memory=memory, memory_mask=mask)
    for layer in cache.layers:
        layer.append(*pair(4))
    rows = torch.tensor([1, 0, 0, 2])
    cache.crop(2)
    cache.reorder(rows)
    assert_close(cache.memory, [(keys[rows], values[rows]) for keys, values in memory])
    assert torch.equal(cache.memory_mask, mask[rows])
    assert_close(memory, source_of(cache, [1, 0, 3]))  # back in the old order: nothing was lost


def source_of(cache, rows):
    return [(keys[rows], values[rows]) for keys, values in cache.memory]


def test_a_mask_that_serves_all_rows_goes_on_to_do_so():
    memory, mask = source()
    cache = KVCache(2, ROOM, memory=memory, memory_mask=mask[:1])
    cache.reorder(torch.tensor([2, 1]))
    assert torch.equal(cache.memory_mask, mask[:1])


def test_a_decoder_alone_has_no_source():
    cache = KVCache(2, ROOM)
    assert cache.memory == []
    assert cache.memory_mask is None


def test_bytes_are_those_of_the_room_and_of_the_source():
    cache = KVCache(2, ROOM)
    assert cache.bytes() == 0  # nothing is reserved before the first token
    for layer in cache.layers:
        layer.append(*pair(1, dtype=torch.float16))
    room = 2 * BATCH * HEADS * ROOM * (D_HEAD + D_VALUE) * 2  # two layers, two bytes a number
    assert cache.bytes() == room
    memory, _ = source()
    with_source = KVCache(2, ROOM, memory=memory)
    assert with_source.bytes() == 2 * BATCH * HEADS * 6 * (D_HEAD + D_VALUE) * 4


# ------------------------------------------------------------------------------------- refusals


def appended(key, value):
    return lambda: filled()[0].append(key, value)


KEY, VALUE = pair(1)
REFUSED = {
    "no room": (lambda: LayerCache(0), ValueError, "max_len must be 1 or more, got 0"),
    "half a room": (lambda: LayerCache(2.5), TypeError, "max_len must be a whole number, got fl"),
    "no layers": (lambda: KVCache(0, 3), ValueError, "n_layers must be 1 or more, got 0"),
    "layers as tensor": (
        lambda: KVCache(torch.tensor(2), 3), TypeError, "n_layers must be a whole number, got Te"
    ),
    "no room in any layer": (lambda: KVCache(2, 0), ValueError, "max_len must be 1 or more, got 0"),
    "a source for one layer": (
        lambda: KVCache(2, 3, memory=[pair(6)]), ValueError, "each of 2 layers needs .* 1 pairs"
    ),
    "a full cache": (
        appended(*pair(8)),
        ValueError,
        "holds 4 tokens and has room for 11; 8 more do not fit. Make it with a larger max_len",
    ),
    "fewer values": (
        appended(pair(2)[0], VALUE), ValueError, "each key needs a value, got 2 keys and 1 values"
    ),
    "another batch of keys": (
        appended(KEY[:1], VALUE),
        ValueError,
        r"key has \(batch, heads, width\) = \(1, 2, 5\) and .*started with \(3, 2, 5\)",
    ),
    "another number of heads": (appended(KEY[:, :1], VALUE), ValueError, r"= \(3, 1, 5\)"),
    "a narrower key": (appended(KEY[..., :4], VALUE), ValueError, r"key has .*= \(3, 2, 4\)"),
    "a wider value": (
        appended(KEY, torch.zeros(3, 2, 1, 8)), ValueError, r"value has .*= \(3, 2, 8\)"
    ),
    "another dtype": (
        appended(KEY.double(), VALUE), ValueError, r"and torch.float64, but .*and torch.float32"
    ),
    "a crop to more": (lambda: filled()[0].crop(5), ValueError, "lie in 0..4, which is .*got 5"),
    "a crop to below 0": (lambda: filled()[0].crop(-1), ValueError, "lie in 0..4.*got -1"),
    "a row that is not there": (
        lambda: filled()[0].reorder(torch.tensor([0, 3])), ValueError, r"lie in 0..2, got \[0, 3\]"
    ),
    "a row from behind": (
        lambda: filled()[0].reorder(torch.tensor([-1])), ValueError, r"lie in 0..2, got \[-1\]"
    ),
    "no rows": (
        lambda: filled()[0].reorder(torch.tensor([], dtype=torch.long)), ValueError, r"got \[\]"
    ),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "error", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, error, words):
    with pytest.raises(error, match=words):
        call()
