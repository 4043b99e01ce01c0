"""Off-by-one triangle hides the diagonal, so the first row has no key at all.

The triangle of forbidden pairs starts on the main diagonal instead of one above it. Query 0 then
has every score at minus infinity and its softmax is NaN.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "nan-first-row",
    "symptom": "NaN loss from the first step, or NaN in the first token only.",
    "source": [
        "https://github.com/pbloem/former/issues/10",
        "https://github.com/pytorch/pytorch/issues/24816",
    ],
    "right": (
        "Forbidden pairs start one above the diagonal: triu(diagonal=1). Token 0 attends itself."
    ),
    "call": "y = m(x) # x: (B, T, 16) float",
    "expected": (
        "NaN at position 0: a query row with every key masked (triangle excludes the diagonal)"
    ),
    "probe": (
        "isnan on the output with clean inputs; which rows are NaN tells the cause (row 0 only = "
        "diagonal offset)"
    ),
    "intent": {"input": "embed", "d_model": 16, "heads": 2, "causal": True, "mask": None},
}


def seeded(make, seed=0):
    """Build with a fixed seed and leave the caller's random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def rand(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    """forward(x) -> y; x (B, T, d). Causal."""

    offset = 0

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        t = x.shape[1]
        hide = torch.ones(t, t, device=x.device).triu(self.offset).bool()
        return self.out(unheads(s.masked_fill(hide, float("-inf")).softmax(-1) @ v))


class Fixed(SelfAttention):
    offset = 1


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    x = rand(2, 6, 16)
    y = build()(x)
    assert y[:, 0].isnan().all()
    assert not y[:, 1:].isnan().any()
    assert build_fixed()(x).isfinite().all()
