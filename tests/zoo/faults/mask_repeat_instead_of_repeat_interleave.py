"""The mask for nn.MultiheadAttention is tiled in the wrong order (repeat instead of
repeat_interleave).

A 3-D attn_mask is indexed batch * heads + head. mask.repeat(heads, 1, 1) gives M0 M1 M0 M1;
needed is M0 M0 M1 M1. Heads of one sample use another sample's mask.
"""

import torch
import torch.nn as nn

META = {
    "kind": "mask-head-batch-order",
    "symptom": (
        "A sample's output depends on the other samples in the batch; with batch size 1, or equal "
        "lengths, everything is right."
    ),
    "source": [
        "https://github.com/ArrowLuo/CLIP4Clip/issues/22",
        "https://github.com/line/lighthouse/pull/77",
        "https://github.com/lsdefine/attention-is-all-you-need-keras/issues/36",
    ],
    "right": "mask.repeat_interleave(num_heads, dim=0).",
    "call": (
        "y = m(x, keep) # keep (B, T) bool, True = real token; use different lengths in one batch"
    ),
    "expected": (
        "sample 0 changes when other samples join the batch / padding leak with unequal lengths: "
        "mask order (batch, head) is wrong"
    ),
    "probe": "batch-composition test with DIFFERENT lengths; padding perturbation per sample",
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": "(B,T) bool, True=keep",
    },
}


def seeded(make, seed=0):
    """Build with a fixed seed and leave the caller's random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def gap(a, b):
    """Largest absolute difference of two tensors."""
    return (a - b).abs().max().item()


def rand(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pad_leak(f, x, other, keep):
    """How much the outputs at real positions move when only padded inputs are replaced."""
    x2 = torch.where(keep[..., None], x, other) if x.dim() == 3 else torch.where(keep, x, other)
    return gap(f(x2)[keep], f(x)[keep])


class SelfAttention(nn.Module):
    """forward(x, keep) -> y; keep (B, T) bool, True = real token. Wraps nn.MultiheadAttention."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.mha = nn.MultiheadAttention(d, h, batch_first=True)

    def per_head(self, hide):
        return hide.repeat(self.h, 1, 1)

    def forward(self, x, keep):
        hide = (~keep)[:, None, :].expand(-1, x.shape[1], -1)  # (B, T, T), True = hidden
        return self.mha(x, x, x, attn_mask=self.per_head(hide), need_weights=False)[0]


class Fixed(SelfAttention):
    def per_head(self, hide):
        return hide.repeat_interleave(self.h, 0)


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[1, 3:] = False
    return (rand(2, 6, 16), keep), {}


def demo():
    bad, good = build().eval(), build_fixed().eval()
    (x, keep), _ = example_inputs()
    other = rand(2, 6, 16, seed=2)
    assert gap(bad(x, keep)[:1], bad(x[:1], keep[:1])) > 1e-2
    assert pad_leak(lambda z: bad(z, keep), x, other, keep) > 1e-2
    assert gap(good(x, keep)[:1], good(x[:1], keep[:1])) < 1e-5
    assert pad_leak(lambda z: good(z, keep), x, other, keep) < 1e-6
