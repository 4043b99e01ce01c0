"""A double minus turns the mask value into plus infinity.

Filling with -float('-inf') puts +inf into the forbidden scores; the softmax of a row with +inf is
NaN everywhere.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "nan-plus-inf",
    "symptom": "NaN in every row that has something masked.",
    "source": [
        "https://github.com/lucidrains/memory-compressed-attention/issues/2",
    ],
    "right": "Fill with float('-inf').",
    "call": "y = m(x) # x (B, T, 16)",
    "expected": (
        "NaN in all rows that have a masked key although some keys are allowed: mask value is "
        "+inf (not an all-masked row)"
    ),
    "probe": "NaN rows = rows with at least one masked key (all but the last row in a causal mask)",
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
    """forward(x) -> y; causal."""

    hidden_score = -float("-inf")

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        hide = torch.ones(x.shape[1], x.shape[1], device=x.device).triu(1).bool()
        return self.out(unheads(s.masked_fill(hide, self.hidden_score).softmax(-1) @ v))


class Fixed(SelfAttention):
    hidden_score = float("-inf")


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    x = rand(2, 6, 16)
    y = build()(x)
    assert y[:, :-1].isnan().all()
    assert y[:, -1].isfinite().all()
    assert build_fixed()(x).isfinite().all()
