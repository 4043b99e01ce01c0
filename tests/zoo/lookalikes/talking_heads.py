"""Talking heads: a linear map mixes the heads before and after the softmax.

Rows of the final weights do not sum to one per head, and heads are not independent.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "control",
    "symptom": "none: softmax over heads; heads mixed by a wrong reshape",
    "source": [
        "https://arxiv.org/abs/2003.02436",
    ],
    "right": "Permutation equivariant, no dependence on other samples.",
    "call": "y, w = m(x, weights=True)",
    "expected": "no finding (at most an informational note)",
    "probe": (
        "must stay silent although it looks like: softmax over heads; heads mixed by a wrong "
        "reshape"
    ),
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
    """forward(x, weights=False) -> y or (y, w). Bidirectional."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.pre, self.post = nn.Parameter(torch.randn(h, h)), nn.Parameter(torch.randn(h, h))

    def probs(self, q, k):
        s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        w = torch.einsum("gh,bhqk->bgqk", self.pre, s).softmax(-1)
        return torch.einsum("gh,bhqk->bgqk", self.post, w)

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
    assert perm_gap(m, x) < 1e-5
    assert gap(m(x, weights=True)[1].sum(-1), torch.ones(())) > 1e-2
