"""The softmax runs over the head axis.

dim=1 of a (B, heads, T, T) tensor is the head axis: for each pair of tokens the heads compete,
and the weights of one head over the keys sum to anything.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "softmax-axis-heads",
    "symptom": "Rows do not sum to one; with one head all weights are 1.",
    "source": [
        "https://github.com/CAMMA-public/rendezvous-in-time/issues/3",
    ],
    "right": "softmax over the last axis (keys).",
    "call": "y, w = m(x, weights=True) # x (B, T, 32), w (B, h, T, T)",
    "expected": "weights sum to 1 over heads: softmax on the head axis",
    "probe": "sums along each axis of w; with heads=1 every weight is 1",
    "intent": {
        "input": "embed",
        "d_model": 32,
        "heads": 4,
        "causal": False,
        "mask": None,
        "weights": "weights=True -> (y, w), w (B, h, T, T)",
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


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    """forward(x, weights=False) -> y or (y, w)."""

    def __init__(self, d=32, h=4):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def probs(self, s):
        return s.softmax(1)

    def forward(self, x, weights=False):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        w = self.probs(q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]))
        y = self.out(unheads(w @ v))
        return (y, w) if weights else y


class Fixed(SelfAttention):
    def probs(self, s):
        return s.softmax(-1)


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 32),), {"weights": True}


def demo():
    x = rand(2, 6, 32)
    wb, wg = build()(x, weights=True)[1], build_fixed()(x, weights=True)[1]
    assert gap(wg.sum(-1), torch.ones(())) < 1e-5
    assert gap(wb.sum(-1), torch.ones(())) > 1e-2
    assert gap(wb.sum(1), torch.ones(())) < 1e-5
