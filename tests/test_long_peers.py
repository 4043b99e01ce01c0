"""Windows and blocks beside those of Hugging Face, with the same weights: where they are equal.

Longformer computes its softmax in float32 whatever comes in, and gets NaN from a padded float64.
BigBird draws other blocks for each head, and only in training; in eval() it reads block 0 instead.
"""

import math

import pytest
import torch
from torch.testing import assert_close
from transformers import BigBirdConfig, LongformerConfig
from transformers.models.big_bird.modeling_big_bird import (
    BigBirdBlockSparseAttention,
    BigBirdModel,
)
from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

from attnlib.efficient.bigbird import block_sparse_attention, layout_mask
from attnlib.efficient.longformer import window_attention
from attnlib.functional import attention, merge_heads, split_heads

BATCH, HEADS, WIDTH, RADIUS, LENGTH = 2, 2, 8, 3, 24
BLOCK, N_BLOCKS = 4, 13


def qkv(module, x):
    layers = (module.query, module.key, module.value)
    return [split_heads(layer(x), module_heads(module)) for layer in layers]


def module_heads(module):
    return getattr(module, "num_heads", None) or module.num_attention_heads


def assert_both_ways(ours, theirs, x, count, precision):
    """Equal where tokens count, and so are the gradients with respect to the tokens."""
    assert_close(ours[count], theirs[count], rtol=precision, atol=precision)
    probe = torch.randn_like(theirs) * count[..., None]
    grads = (torch.autograd.grad(y, x, probe, retain_graph=True)[0] for y in (ours, theirs))
    assert_close(*grads, rtol=10 * precision, atol=10 * precision)


# ------------------------------------------------------------------------------- Longformer


def longformer():
    config = LongformerConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, attention_window=[2 * RADIUS],
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    module = LongformerSelfAttention(config, layer_id=0)
    for name in ("query", "key", "value"):  # ours has one projection for all tokens
        getattr(module, f"{name}_global").load_state_dict(getattr(module, name).state_dict())
    return module


@pytest.mark.parametrize("some_global", [False, True], ids=["window", "window and global"])
def test_windows_and_global_tokens_are_those_of_longformer(some_global):
    torch.manual_seed(0)
    module = longformer()
    x = torch.randn(BATCH, LENGTH, WIDTH, requires_grad=True)
    is_global, counts = torch.zeros(BATCH, LENGTH).bool(), torch.ones(BATCH, LENGTH).bool()
    counts[1, -5:] = False
    if some_global:
        is_global[0, [0, 9]] = is_global[1, 2] = True
    marks = 10000.0 * is_global - 10000.0 * ~counts
    theirs = module(
        x, attention_mask=marks, is_index_masked=~counts, is_index_global_attn=is_global,
        is_global_attn=some_global,
    )[0]  # fmt: skip
    mask = counts[:, None, None]
    ours = merge_heads(
        window_attention(*qkv(module, x), radius=RADIUS, is_global=is_global, mask=mask)
    )
    assert_both_ways(ours, theirs, x, counts, 2e-6)
    wider = merge_heads(window_attention(*qkv(module, x), radius=RADIUS + 1, mask=mask))
    assert not torch.allclose(wider[counts], theirs[counts], atol=1e-3)  # it would be seen


# ---------------------------------------------------------------------------------- BigBird


def bigbird(training):
    """The module, its masks for a full and a padded text, and the blocks it will draw."""
    config = BigBirdConfig(
        hidden_size=WIDTH, num_attention_heads=HEADS, block_size=BLOCK, num_random_blocks=3,
        use_bias=True,
    )  # fmt: skip
    module = BigBirdBlockSparseAttention(config, seed=0).double().train(training)
    draw, drawn = module._bigbird_block_rand_mask_with_head, []

    def remember(**how):
        drawn.extend(draw(**how))
        return drawn[-HEADS:]

    module._bigbird_block_rand_mask_with_head = remember
    return module, drawn


def run_bigbird(module, x, counts):
    made = BigBirdModel.create_masks_for_block_sparse_attn(counts.double(), BLOCK)
    blocked, band, from_mask, to_mask = made
    return module(x, band, from_mask, to_mask, blocked, blocked)[0]


def layout_of(drawn):
    """Its window of three blocks, the first and the last for all, and those drawn for a head."""
    place = torch.arange(N_BLOCKS)
    layout = (place - place[:, None]).abs() <= 1
    layout[[0, -1]] = layout[:, [0, -1]] = True
    for row, blocks in enumerate(drawn, start=1):
        assert not layout[row, blocks].any(), "a block seen anyway would count twice"
        layout[row, blocks] = True
    return layout


def test_each_head_of_bigbird_in_training_is_ours_with_the_blocks_that_it_drew():
    torch.manual_seed(0)
    module, drawn = bigbird(training=True)
    x = torch.randn(BATCH, N_BLOCKS * BLOCK, WIDTH, dtype=torch.float64, requires_grad=True)
    counts = torch.ones(x.shape[:2]).bool()
    counts[1, -6:] = False
    theirs = run_bigbird(module, x, counts)
    layouts = [layout_of(torch.as_tensor(blocks).long()) for blocks in drawn]
    assert len(layouts) == HEADS
    assert not layouts[0].equal(layouts[1])
    heads = [
        block_sparse_attention(
            *(part[:, [h]] for part in qkv(module, x)), layout=layout, block_size=BLOCK,
            mask=counts[:, None, None],
        )
        for h, layout in enumerate(layouts)
    ]  # fmt: skip
    assert_both_ways(merge_heads(torch.cat(heads, 1)), theirs, x, counts, 1e-10)
    swapped = merge_heads(torch.cat(heads[::-1], 1))
    assert not torch.allclose(swapped[counts], theirs[counts], atol=1e-3)


def test_bigbird_in_eval_counts_its_first_block_four_times_and_ours_cannot():
    """Every block that it should have drawn is block 0, which the others see anyway."""
    torch.manual_seed(0)
    module, drawn = bigbird(training=False)
    x = torch.randn(1, N_BLOCKS * BLOCK, WIDTH, dtype=torch.float64, requires_grad=True)
    counts = torch.ones(x.shape[:2]).bool()
    theirs = run_bigbird(module, x, counts)
    assert not any(blocks.any() for blocks in drawn)
    layout = layout_of(torch.zeros(0, 3).long())
    mask = layout_mask(layout, BLOCK, x.shape[1])
    bias = torch.zeros(x.shape[1], x.shape[1], dtype=x.dtype)
    bias[BLOCK:-BLOCK, :BLOCK] = math.log(4)  # once as it is seen by all, three times as drawn
    counted = attention(*qkv(module, x), mask=mask, bias=bias[None, None])[0]
    assert_both_ways(merge_heads(counted), theirs, x, counts, 1e-10)
    ours = merge_heads(block_sparse_attention(*qkv(module, x), layout=layout, block_size=BLOCK))
    assert_both_ways(ours, merge_heads(attention(*qkv(module, x), mask=mask)[0]), x, counts, 1e-10)
    assert (ours - theirs).abs().max() > 1e-3
