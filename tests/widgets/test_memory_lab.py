"""The memory lab as Python sees it: its numbers, its switches and what it refuses."""

import io
import json
import math

import pytest
import torch

from attnlib.efficient.bigbird import bigbird_layout, layout_mask
from attnlib.layers import EncoderLayer
from attnlib.masks import window_mask
from attnlib.memory import LayerStack, cache_bytes, mask_cost, parameter_bytes
from attnlib.widgets.memory import PRESETS, MemoryLab

SIZES = {"length": 300, "n_layers": 3, "n_heads": 6, "d_head": 16, "batch": 5}
LINEAR = ["fused", "tiled", "window", "BigBird", "Linformer"]


@pytest.fixture
def lab():
    return MemoryLab(**SIZES, kv_heads=2, window=256, memory=2)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_training_is_what_the_stack_of_layers_keeps(lab, dtype, again):
    lab.dtype, lab.checkpointed = dtype, again
    stack = LayerStack(**SIZES, dtype=getattr(torch, dtype), checkpointed=again)
    assert lab.result().training == {
        "equation": stack.equation(),
        "SDPA + dropout": stack.fused_with_dropout(),
        "fused": stack.fused(),
        "tiled": stack.tiled(),
        "window": stack.sparse(),
        "BigBird": stack.sparse(),
        "Linformer": stack.linformer(256),
    }
    lab.length = 100
    short = LayerStack(**SIZES | {"length": 100}, dtype=stack.dtype, checkpointed=again)
    assert lab.result().training["Linformer"] == short.linformer(100)


def test_the_cache_is_that_of_all_heads_and_tokens_and_that_of_the_switches(lab):
    sizes = {"n_layers": 3, "d_head": 16, "batch": 5}
    whole = cache_bytes(300, n_heads=6, **sizes)
    assert lab.result().caches == {
        "whole cache": whole,
        "cache as set": cache_bytes(256, n_heads=2, **sizes),
    }
    lab.window, lab.kv_heads, lab.dtype = 0, 6, "bfloat16"
    assert lab.result().caches == {"whole cache": whole // 2, "cache as set": whole // 2}


@pytest.mark.parametrize("again", [False, True])
def test_the_longest_text_fits_and_one_more_token_does_not(lab, again):
    lab.checkpointed = again
    ends = lab.result().longest
    assert 32 < ends["SDPA + dropout"] < ends["equation"] < ends["window"] < ends["fused"]
    assert ends.pop("cache as set") == math.inf
    for name, end in ends.items():
        for length, fits in ((end, True), (end + 1, False)):
            lab.length = length
            bill = lab.result()
            of_name = sum(bill.training[name]) if name in bill.training else bill.caches[name]
            assert (of_name <= 2 * 2**30) is fits, name


def test_when_nothing_fits_and_when_everything_does():
    lab = MemoryLab(n_layers=128, n_heads=128, d_head=256, batch=1024, memory=0.5)
    assert set(lab.result().longest.values()) == {0}
    lab = MemoryLab(n_layers=1, n_heads=1, d_head=8, window=256)
    assert [name for name, end in lab.result().longest.items() if end == math.inf] == [
        "cache as set"
    ]


@pytest.mark.parametrize("length", [64, 192, 640, 1024])
def test_the_keys_of_a_query_are_those_of_the_mask(lab, length):
    lab.length = length
    keys = lab.result().keys
    blocks = layout_mask(bigbird_layout(length // 64), 64, length)
    for name, mask in (("window", window_mask(length, radius=256)), ("BigBird", blocks)):
        assert keys[name] == pytest.approx(mask_cost(mask, d_head=1).pairs / length)
    assert [keys[name] for name in ("equation", "SDPA + dropout", "fused", "tiled")] == [length] * 4
    assert keys["Linformer"] == min(256, length)


def test_the_parameters_are_those_of_the_layers(lab):
    layers = torch.nn.ModuleList(EncoderLayer(96, 6, d_ff=4 * 96) for _ in range(3))
    assert lab.result().parameters == parameter_bytes(layers)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_can_be_set_in_its_order(lab, name):
    for switch, value in PRESETS[name].items():
        setattr(lab, switch, value)
    assert lab.result() == MemoryLab(memory=2, **PRESETS[name]).result()
    assert {"length", "kv_heads", "window"} < set(PRESETS[name])


def test_other_heads_take_the_heads_of_the_keys_along_only_if_they_must(lab):
    lab.n_heads = 8
    assert lab.kv_heads == 2
    lab.n_heads = 9
    assert lab.kv_heads == 9
    assert MemoryLab(n_heads=10).kv_heads == 10


def test_the_state_is_json_and_every_switch_is_in_it(lab):
    state = {name: value for name, value in lab.get_state().items() if name != "layout"}
    kept = json.loads(json.dumps(state))
    assert kept["presets"] == PRESETS
    assert kept["patterns"] == {"radius": 256, "block": 64, "rank": 256}
    assert {name: kept[name] for name in SIZES} == SIZES


def test_it_says_what_it_shows():
    lab = MemoryLab(**PRESETS["BERT-base at 512"])
    assert repr(lab).startswith(
        "Memory lab, 12 layers of 12 heads of 64, batch 32, 512 tokens, float32: equation keeps "
        "9.00 GiB of weights and 9.01 GiB of activations in training; generating keeps a cache of "
        "1.13 GiB. The longest text within 16 GiB: equation 472, "
    )
    lab.method, lab.checkpointed, lab.window, lab.memory = "tiled", True, 256, 0.5
    assert ", checkpointed: tiled keeps none of weights and " in repr(lab)
    assert repr(lab).endswith(", cache as set 227.")
    lab.batch = 1
    assert repr(lab).endswith(", cache as set no end.")
    lab.batch = 1024
    assert "within 0.5 GiB: equation not even 32, " in repr(lab)
    tiny = MemoryLab(n_layers=1, n_heads=1, d_head=8, window=256, dtype="bfloat16")
    assert "a cache of 8.00 KiB" in repr(tiny)


def test_the_still_shows_the_lines_and_the_memory(lab):
    figure = lab.still()
    figure.savefig(io.BytesIO())
    drawn = {line.get_label(): line.get_ydata() for line in figure.axes[0].get_lines()}
    lab.length = 1024
    bill = lab.result()
    at = [2**k for k in range(7, 21)].index(1024)
    for name in ("equation", "SDPA + dropout", "fused", "window", "Linformer"):
        assert drawn[name][at] == sum(bill.training[name])
    assert drawn["cache as set"][at] == drawn["cache as set"][-1] == bill.caches["cache as set"]
    assert any(set(y) == {2 * 2**30} for y in drawn.values())
    assert (figure.axes[0].get_xscale(), figure.axes[0].get_yscale()) == ("log", "log")


@pytest.mark.messages
@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("length", 31, ValueError, "length must be a whole number from 32 to 1048576; got 31"),
        ("batch", 0, ValueError, "batch must be a whole number from 1 to 1024; got 0"),
        ("n_layers", 1.5, TypeError, "n_layers must be a whole number; got 1.5"),
        ("kv_heads", 4, ValueError, "kv_heads must be one of 1, 2, 3, 6; got 4"),
        ("dtype", "float16", ValueError, "dtype must be one of 'float32', 'bfloat16'"),
        ("method", "flash", ValueError, "method must be one of 'equation', 'SDPA [+] dropout'"),
        ("window", 300, ValueError, "window must be one of 0, 256, 512"),
        ("memory", 0.1, ValueError, "memory must be a number from 0.5 to 4096.0; got 0.1"),
        ("presets", {}, AttributeError, "presets of this MemoryLab is fixed"),
    ],
)
def test_a_switch_is_refused(lab, name, value, error, message):
    with pytest.raises(error, match=message):
        setattr(lab, name, value)
