"""Scores are multiplied by a 0/1 mask before the softmax.

Multiplying makes a forbidden score zero, not minus infinity, and exp(0) is 1. A forbidden key
often gets more weight than a real one whose score is negative.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "mask-multiplied-before-softmax",
    "symptom": (
        "Padding gets a noticeable share of the attention; metrics hardly move, so the bug "
        "survives publication."
    ),
    "source": [
        "https://github.com/georg-wolflein/good-features/pull/1",
        "https://github.com/jadore801120/attention-is-all-you-need-pytorch/issues/16",
    ],
    "right": "masked_fill(mask == 0, -inf) before the softmax.",
    "call": "y = m(x, keep) # keep (B, T) bool, True = real token",
    "expected": (
        "padding leak: padded keys receive weight (mask multiplied into scores instead of -inf)"
    ),
    "probe": (
        "replace the content of padded positions and compare the real positions; sum of weights "
        "on padded keys"
    ),
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


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    """forward(x, keep) -> y; keep (B, T) bool, True = real."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def hide(self, s, keep):
        return s * keep[:, None, None, :]

    def forward(self, x, keep):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        return self.out(unheads(self.hide(s, keep).softmax(-1) @ v))


class Fixed(SelfAttention):
    def hide(self, s, keep):
        return s.masked_fill(~keep[:, None, None, :], float("-inf"))


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[0, 3:] = False
    return (rand(2, 6, 16), keep), {}


def demo():
    bad, good = build(), build_fixed()
    (x, keep), _ = example_inputs()
    other = rand(2, 6, 16, seed=2)
    assert pad_leak(lambda z: bad(z, keep), x, other, keep) > 1e-2
    assert pad_leak(lambda z: good(z, keep), x, other, keep) == 0.0
