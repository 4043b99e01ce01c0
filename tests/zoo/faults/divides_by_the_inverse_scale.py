"""The scale is stored as d ** -0.5 and then used as a divisor.

Dividing by an already inverted scale multiplies the scores by sqrt(d): with 64 dimensions per
head they are 64 times too large.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "inverted-scale",
    "symptom": "Attention is one-hot; gradients of q and k vanish.",
    "source": [
        "https://github.com/esceptico/perceiver-io/issues/9",
    ],
    "right": "Multiply by d ** -0.5.",
    "call": "y, w = m(x, weights=True) # x (B, T, 32)",
    "expected": "effective score scale is sqrt(head_dim): inverted scaling",
    "probe": "as for a missing scale; the ratio to the expected scale is head_dim",
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
        scale = q.shape[-1] ** -0.5
        return q @ k.transpose(-2, -1) / scale

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
    assert abs(effective_scale(build(), x) - (math.sqrt(8))) < 1e-2
