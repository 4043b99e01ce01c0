"""Additive attention normalises over an axis of length one.

A score layer returns (B, T, 1) and the softmax runs over the last axis. Every weight is exactly
one and the pooled vector is a plain sum; the score layer never learns.
"""

import torch
import torch.nn as nn

META = {
    "kind": "softmax-singleton",
    "symptom": "All weights are 1.0; the scoring layer's gradient is zero.",
    "source": [
        "https://github.com/DEEP-PolyU/KEQA_WSDM19/issues/2",
        "https://github.com/catalyst-team/catalyst/pull/285",
    ],
    "right": "softmax over the time axis.",
    "call": "vec, w = m(x) # x (B, T, 32) -> (B, 32), (B, T, 1)",
    "expected": (
        "all attention weights are exactly 1 and the scoring layer gets no gradient: softmax over "
        "a singleton axis"
    ),
    "probe": "weights sums; gradient of the scoring layer is exactly zero",
    "intent": {
        "input": "embed",
        "d_model": 32,
        "heads": 1,
        "causal": False,
        "mask": None,
        "output": "(vec, w)",
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


class AttentionPool(nn.Module):
    """forward(x) -> (B, d) pooled vector and (B, T, 1) weights."""

    axis = -1

    def __init__(self, d=32):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(d, d), nn.Tanh(), nn.Linear(d, 1))

    def forward(self, x):
        w = self.score(x).softmax(self.axis)
        return (w * x).sum(1), w


class Fixed(AttentionPool):
    axis = 1


def build():
    return seeded(AttentionPool)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 32),), {}


def demo():
    x = rand(2, 6, 32)
    for make, healthy in [(build, False), (build_fixed, True)]:
        m = make()
        y, w = m(x)
        y.pow(2).sum().backward()
        grad = max(p.grad.abs().max().item() for p in m.score.parameters())
        assert (gap(w, torch.ones(())) > 1e-3) == healthy
        assert (grad > 1e-6) == healthy
