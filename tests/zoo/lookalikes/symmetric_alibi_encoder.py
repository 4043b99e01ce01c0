"""Encoder with symmetric ALiBi.

The bias depends on |i - j|. Reversing the input reverses the output; encoders such as MosaicBERT
do this.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "control",
    "symptom": "none: relative positions without direction",
    "source": [
        "https://arxiv.org/abs/2312.17482",
    ],
    "right": "Order matters (not permutation equivariant).",
    "call": "y, w = m(x, weights=True)",
    "expected": "no finding (at most an informational note)",
    "probe": "must stay silent although it looks like: relative positions without direction",
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
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


def perm_gap(f, x):
    """0 when permuting the tokens just permutes the outputs (= order is invisible)."""
    p = torch.tensor([2, 0, 3, 1, *list(range(4, x.shape[1]))])
    return gap(f(x[:, p]), f(x)[:, p])


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
    """forward(x, weights=False) -> y or (y, w). Bidirectional, symmetric ALiBi."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def probs(self, q, k):
        i = torch.arange(q.shape[2], device=q.device)
        slope = 2.0 ** (-8.0 * torch.arange(1, self.h + 1, device=q.device) / self.h)
        return (
            q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
            - slope[:, None, None] * (i[:, None] - i[None, :]).abs()
        ).softmax(-1)

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
    m, x, _other = build().eval(), rand(2, 6, 16), rand(2, 6, 16, seed=2)
    assert batch_gap(m, x) < 1e-5
    assert perm_gap(m, x) > 1e-3
    assert gap(m(x.flip(1)), m(x).flip(1)) < 1e-5
