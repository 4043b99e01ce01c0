"""The input is cut into heads first and one small projection is applied to all pieces.

Splitting x and then using Linear(d/h, d/h) gives every head the same weights and lets a head see
only its own slice of the features. The layer has h*h times fewer parameters than it should.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "heads-share-projection",
    "symptom": "Trains, but weaker; parameter count much smaller than expected.",
    "source": [
        "https://github.com/pbloem/former/issues/13",
        "https://github.com/aladdinpersson/Machine-Learning-Collection/issues/3",
        "https://github.com/MarcoMeter/episodic-transformer-memory-ppo/pull/22",
    ],
    "right": "Project with Linear(d, d), then split.",
    "call": "y = m(x) # x (B, T, 32), 4 heads",
    "expected": (
        "block structure: q/k/v projections act on one head's slice only and are identical for "
        "all heads"
    ),
    "probe": (
        "parameter count vs 4*d*d; cyclically shifting the feature blocks permutes the heads' "
        "outputs exactly"
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


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    """forward(x) -> y (before the output projection the heads are concatenated)."""

    def __init__(self, d=32, h=4):
        super().__init__()
        self.h = h
        self.make_projections(d, h)
        self.out = nn.Linear(d, d)

    def make_projections(self, d, h):
        self.q, self.k, self.v = (nn.Linear(d // h, d // h) for _ in range(3))

    def project(self, lin, x):
        return lin(heads(x, self.h))

    def core(self, x):
        q, k, v = self.project(self.q, x), self.project(self.k, x), self.project(self.v, x)
        return unheads(F.scaled_dot_product_attention(q, k, v))

    def forward(self, x):
        return self.out(self.core(x))


class Fixed(SelfAttention):
    def make_projections(self, d, h):
        self.q, self.k, self.v = (nn.Linear(d, d) for _ in range(3))

    def project(self, lin, x):
        return heads(lin(x), self.h)


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 32),), {}


def demo():
    x = rand(2, 6, 32)
    bad, good = build(), build_fixed()
    assert gap(bad.core(x.roll(8, -1)), bad.core(x).roll(8, -1)) < 1e-6  # heads are interchangeable
    assert gap(good.core(x.roll(8, -1)), good.core(x).roll(8, -1)) > 1e-2

    def count(m):
        return sum(p.numel() for p in (m.q.weight, m.k.weight, m.v.weight))

    assert count(good) == 16 * count(bad)
