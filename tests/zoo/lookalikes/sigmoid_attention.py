"""Sigmoid attention: rows do not sum to one.

Each weight is an independent sigmoid with a bias of about -log(T). No normalisation over keys.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "control",
    "symptom": "none: softmax over the wrong axis; mask after softmax",
    "source": [
        "https://arxiv.org/abs/2409.04431",
    ],
    "right": "Causal; weights in (0, 1).",
    "call": "y, w = m(x, weights=True)",
    "expected": "no finding (at most an informational note)",
    "probe": (
        "must stay silent although it looks like: softmax over the wrong axis; mask after softmax"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": True,
        "mask": None,
        "weights": "weights=True -> (y, w)",
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


def future_leak(f, x, other, t):
    """How much outputs 0..t move when only inputs after t are replaced."""
    x2 = torch.cat([x[:, : t + 1], other[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, : t + 1], f(x)[:, : t + 1])


def past_use(f, x, other, t):
    """How much outputs after t move when inputs 0..t are replaced (should be > 0)."""
    x2 = torch.cat([other[:, : t + 1], x[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, t + 1 :], f(x)[:, t + 1 :])


def batch_gap(f, x):
    """0 when sample 0 gives the same output alone and inside the batch."""
    return gap(f(x)[:1], f(x[:1]))


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    """forward(x, weights=False) -> y or (y, w). Causal, sigmoid weights."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def probs(self, q, k):
        t = q.shape[2]
        hide = torch.ones(t, t, device=q.device).triu(1).bool()
        s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) - math.log(t)
        return s.masked_fill(hide, float("-inf")).sigmoid()

    def forward(self, x, weights=False):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        w = self.probs(q, k)
        y = self.out(unheads(w @ v))
        return (y, w) if weights else y


def build():
    return seeded(SelfAttention)


build_fixed = build  # nothing to fix


def example_inputs():
    return (rand(2, 6, 16),), {"weights": True}


def demo():
    m, x, other = build().eval(), rand(2, 6, 16), rand(2, 6, 16, seed=2)
    assert batch_gap(m, x) < 1e-5
    assert future_leak(m, x, other, 2) == 0.0
    assert past_use(m, x, other, 2) > 1e-3
