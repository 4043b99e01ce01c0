"""Past and future distances get the same relative encoding.

In the table for negative distances the sine is copied instead of negated. A key d steps ahead and
a key d steps behind look the same; the layer cannot tell left from right. (A symmetric ALiBi
encoder does this on purpose, so it is a warning.)
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "relative-position-no-direction",
    "symptom": "Reversed input gives exactly reversed output; order-sensitive tasks stall.",
    "source": [
        "https://github.com/speechbrain/speechbrain/issues/3070",
    ],
    "right": "sin(-d) = -sin(d) for the other direction.",
    "call": "y = m(x) # x (B, T, 16); not causal",
    "expected": (
        "reversal equivariant but not permutation equivariant: relative positions carry distance "
        "without direction"
    ),
    "probe": "reverse the tokens: outputs are exactly reversed",
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": None,
        "order_matters": True,
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


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class RelativeAttention(nn.Module):
    """forward(x) -> y; sinusoidal relative positions added to the scores."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.rel = nn.Linear(d, h)

    def encode(self, dist, d):
        freq = 10000.0 ** (-torch.arange(0, d, 2).float() / d)
        a = dist.abs()[..., None] * freq
        return torch.cat([a.sin(), a.cos()], -1)

    def forward(self, x):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        i = torch.arange(x.shape[1]).float()
        bias = self.rel(self.encode(i[:, None] - i[None, :], x.shape[-1])).permute(2, 0, 1)
        s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + 4 * bias
        return self.out(unheads(s.softmax(-1) @ v))


class Fixed(RelativeAttention):
    def encode(self, dist, d):
        freq = 10000.0 ** (-torch.arange(0, d, 2).float() / d)
        a = dist[..., None] * freq
        return torch.cat([a.sin(), a.cos()], -1)


def build():
    return seeded(RelativeAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    x = rand(2, 6, 16)

    def flip(m):
        return gap(m(x.flip(1)), m(x).flip(1))

    assert flip(build()) < 1e-5
    assert perm_gap(build(), x) > 1e-3
    assert flip(build_fixed()) > 1e-3
