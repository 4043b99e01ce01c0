"""A finite mask value of moderate size stops masking once the scores grow.

The forbidden score is set or shifted by -100 (or -1e4, -1e5). At initialisation this looks
perfect; a trained model with large scores, or a first token with score around -1e5, attends
straight through the mask.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "mask-value-finite-too-small",
    "symptom": "Leak shows up only with trained weights or in some layers; fine at initialisation.",
    "source": [
        "https://github.com/TransformerLensOrg/TransformerLens/pull/319",
        "https://github.com/huggingface/transformers/pull/17306",
    ],
    "right": "-inf (or finfo.min applied with masked_fill, not added).",
    "call": "y = m(x) # x (B, T, 16); try inputs of size 1 and of size 30",
    "expected": (
        "future leak that appears only for large activations: finite additive mask value too small"
    ),
    "probe": (
        "leak test at several input scales (x, 10x, 100x) or with scaled q/k weights, not only at "
        "initialisation"
    ),
    "intent": {"input": "embed", "d_model": 16, "heads": 2, "causal": True, "mask": None},
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


def future_leak(f, x, other, t):
    """How much outputs 0..t move when only inputs after t are replaced."""
    x2 = torch.cat([x[:, : t + 1], other[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, : t + 1], f(x)[:, : t + 1])


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    """forward(x) -> y; causal with an additive mask."""

    penalty = -100.0

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        t = x.shape[1]
        bias = torch.zeros(t, t, device=x.device).masked_fill(
            torch.ones(t, t, device=x.device).triu(1).bool(), self.penalty
        )
        return self.out(unheads((s + bias).softmax(-1) @ v))


class Fixed(SelfAttention):
    penalty = float("-inf")


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    bad, good = build(), build_fixed()
    x, other = rand(2, 6, 16), rand(2, 6, 16, seed=2)
    assert future_leak(bad, x, other, 2) < 1e-6  # looks fine at this scale
    assert future_leak(bad, 30 * x, 30 * other, 2) > 1e-1  # leaks with large scores
    assert future_leak(good, 30 * x, 30 * other, 2) == 0.0
