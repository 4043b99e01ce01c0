"""Fully masked rows return zeros.

A sample without any real token gets a zero vector from scaled_dot_product_attention (since 2.5).
No NaN, constant output.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "control",
    "symptom": "none: dead output; NaN for empty samples",
    "source": [
        "https://github.com/pytorch/pytorch/pull/131060",
        "https://github.com/pytorch/pytorch/issues/103963",
    ],
    "right": "Finite; gradients finite.",
    "call": "y = m(x, keep)",
    "expected": "no finding (at most an informational note)",
    "probe": "must stay silent although it looks like: dead output; NaN for empty samples",
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


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    """forward(x, keep) -> y; keep (B, T) bool, True = real token."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x, keep):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        return self.out(
            unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=keep[:, None, None, :]))
        )


def build():
    return seeded(SelfAttention)


build_fixed = build  # nothing to fix


def example_inputs():
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[1] = False
    return (rand(2, 6, 16), keep), {}


def demo():
    m = build()
    (x, keep), _ = example_inputs()
    y = m(x, keep)
    y.sum().backward()
    assert y.isfinite().all()
    assert all(p.grad.isfinite().all() for p in m.parameters())
    assert gap(y[1], m.out.bias) < 1e-6
