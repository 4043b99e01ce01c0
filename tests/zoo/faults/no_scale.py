"""Scores are not divided by sqrt(d_k).

The raw dot products go into the softmax. With many dimensions per head the softmax saturates: one
weight is close to one and the gradient through the others vanishes.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "missing-scale",
    "symptom": (
        "Attention is nearly one-hot from the start, training is slow or unstable with larger "
        "heads; fine for tiny heads."
    ),
    "source": [
        "https://github.com/delzac/cntkx/issues/10",
        "https://github.com/microsoft/MInference/issues/69",
        "https://github.com/PAIR-code/tiny-transformers/issues/71",
        "https://github.com/huggingface/blog/pull/2893",
    ],
    "right": (
        "Scale 1/sqrt(head_dim), unless the architecture says otherwise (T5, GPT-Neo: none; muP: "
        "1/head_dim)."
    ),
    "call": "y, w = m(x, weights=True) # x (B, T, 32)",
    "expected": (
        "effective score scale is 1.0 instead of 1/sqrt(head_dim): missing scaling (warning, not "
        "an error)"
    ),
    "probe": (
        "regress log-weights on q.k (needs q/k projections), or compare score variance for two "
        "head sizes"
    ),
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
        self.d, self.h = d, h
        self.q, self.k, self.v, self.out = (nn.Linear(d, d, bias=False) for _ in range(4))

    def score(self, q, k):
        return q @ k.transpose(-2, -1)

    def forward(self, x, weights=False):
        q, k, v = heads(self.q(x), self.h), heads(self.k(x), self.h), heads(self.v(x), self.h)
        w = self.score(q, k).softmax(-1)
        y = self.out(unheads(w @ v))
        return (y, w) if weights else y


class Fixed(SelfAttention):
    def score(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 32),), {"weights": True}


def effective_scale(m, x):
    """Slope of log-weight differences against q.k differences: the factor really used."""
    q, k = heads(m.q(x), m.h), heads(m.k(x), m.h)
    raw = q @ k.transpose(-2, -1)
    logw = m(x, weights=True)[1].log()
    a, b = raw - raw.mean(-1, keepdim=True), logw - logw.mean(-1, keepdim=True)
    return ((a * b).sum() / (a * a).sum()).item()


def demo():
    x = rand(2, 6, 32)
    good = 1 / math.sqrt(8)  # head dimension 8
    assert abs(effective_scale(build_fixed(), x) - good) < 1e-3
    assert abs(effective_scale(build(), x) - (1.0)) < 1e-2
