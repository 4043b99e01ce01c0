"""Heads are split with view(B * h, T, d/h) without a transpose.

The view cuts the flat memory, so a 'head' contains consecutive pieces of neighbouring tokens
instead of a slice of every token. Shapes are right, nothing crashes.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "head-split-view",
    "symptom": (
        "Works for one head; with more heads quality drops slightly. In a causal model tokens see "
        "the future, because rows of a fake head are not tokens."
    ),
    "source": [
        "https://github.com/reczoo/FuxiCTR/issues/30",
        "https://github.com/649453932/Chinese-Text-Classification-Pytorch/issues/53",
        "https://github.com/hyunwoongko/transformer/issues/15",
    ],
    "right": "view(B, T, h, d/h).transpose(1, 2).",
    "call": "y = m(x) # x (B, T, 32), 4 heads",
    "expected": (
        "permuting tokens does not permute outputs although no positions are used; causal leak: "
        "heads split across tokens"
    ),
    "probe": (
        "permutation equivariance of a position-free layer; influence pattern of one token; "
        "compare with heads=1 of the same weights"
    ),
    "intent": {"input": "embed", "d_model": 32, "heads": 4, "causal": False, "mask": None},
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


class SelfAttention(nn.Module):
    """forward(x) -> y; no positions, not causal."""

    def __init__(self, d=32, h=4):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def split(self, z):
        b, t, d = z.shape
        return z.reshape(b * self.h, t, d // self.h)

    def merge(self, z, b):
        return z.reshape(b, z.shape[1], -1)

    def forward(self, x):
        q, k, v = (self.split(z) for z in self.qkv(x).chunk(3, -1))
        return self.out(self.merge(F.scaled_dot_product_attention(q, k, v), x.shape[0]))


class Fixed(SelfAttention):
    def split(self, z):
        b, t, d = z.shape
        return z.view(b, t, self.h, d // self.h).transpose(1, 2).reshape(b * self.h, t, d // self.h)

    def merge(self, z, b):
        return z.view(b, self.h, z.shape[1], -1).transpose(1, 2).reshape(b, z.shape[1], -1)


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 8, 32),), {}


def demo():
    x = rand(2, 8, 32)
    bad, good = build(), build_fixed()
    assert perm_gap(bad, x) > 1e-2  # a position-free layer must be equivariant
    assert perm_gap(good, x) < 1e-6
    x2 = x.clone()
    x2[:, 7] = 0  # token 7 should reach everybody
    assert gap(bad(x2)[:, 0], bad(x)[:, 0]) == 0.0
    assert gap(good(x2)[:, 0], good(x)[:, 0]) > 1e-3
