"""QK normalisation is configured and created but never applied.

The option builds q_norm and k_norm, the forward pass does not call them. A related slip
normalises k and v instead of q and k.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "norm-not-applied",
    "symptom": "The option silently has no effect; logits still grow.",
    "source": [
        "https://github.com/lucidrains/x-transformers/issues/352",
        "https://github.com/Cerebras/modelzoo/pull/85",
        "https://github.com/kyegomez/MegaVIT/issues/17",
    ],
    "right": "Apply both norms before the dot product.",
    "call": "y = m(x) # x (B, T, 32)",
    "expected": (
        "parameters q_norm/k_norm are unused; output still depends on the scale of x through the "
        "scores"
    ),
    "probe": (
        "unused-parameter check; with QK-norm the attention weights must not change when x is "
        "scaled"
    ),
    "intent": {
        "input": "embed",
        "d_model": 32,
        "heads": 4,
        "causal": False,
        "mask": None,
        "qk_norm": True,
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


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    """forward(x, weights=False) -> y or (y, w); meant to use QK-norm."""

    def __init__(self, d=32, h=4):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)
        self.q_norm, self.k_norm = nn.RMSNorm(d // h, eps=1e-6), nn.RMSNorm(d // h, eps=1e-6)

    def normalise(self, q, k):
        return q, k

    def forward(self, x, weights=False):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        q, k = self.normalise(q, k)
        w = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)
        y = self.out(unheads(w @ v))
        return (y, w) if weights else y


class Fixed(SelfAttention):
    def normalise(self, q, k):
        return self.q_norm(q), self.k_norm(k)


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 32),), {"weights": True}


def demo():
    x = rand(2, 6, 32)
    for make, healthy in [(build, False), (build_fixed, True)]:
        m = make()
        m(x).pow(2).sum().backward()
        assert (m.q_norm.weight.grad is not None) == healthy
        assert (gap(m(10 * x, weights=True)[1], m(x, weights=True)[1]) < 1e-3) == healthy
