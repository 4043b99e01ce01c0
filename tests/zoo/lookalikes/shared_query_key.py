"""Tied query and key projection (Reformer).

q and k come from the same matrix on purpose; the score matrix is symmetric and self-attention to
oneself dominates.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "control",
    "symptom": "none: copy-paste projection; attention collapses on the diagonal",
    "source": [
        "https://arxiv.org/abs/2001.04451",
    ],
    "right": "All parameters get gradients; no unused projection exists.",
    "call": "y = m(x)",
    "expected": "no finding (at most an informational note)",
    "probe": (
        "must stay silent although it looks like: copy-paste projection; attention collapses on "
        "the diagonal"
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


class SharedQK(nn.Module):
    """forward(x) -> y; causal, q == k."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qk, self.v, self.out = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, x):
        qk, v = heads(self.qk(x), self.h), heads(self.v(x), self.h)
        return self.out(unheads(F.scaled_dot_product_attention(qk, qk, v, is_causal=True)))


def build():
    return seeded(SharedQK)


build_fixed = build  # nothing to fix


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    m, x, other = build(), rand(2, 6, 16), rand(2, 6, 16, seed=2)
    assert future_leak(m, x, other, 2) == 0.0
    m(x).pow(2).sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in m.parameters())
