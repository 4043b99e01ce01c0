"""The padding mask is broadcast over query rows instead of key columns.

The mask gets shape (B, 1, T, 1). It hides whole rows (the queries that are padding) and leaves
the padded keys visible to every real query. With -inf the padded rows turn into NaN; with -10000
nothing visible happens, which is why it survives.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "mask-broadcast-rows",
    "symptom": (
        "With a large negative number: a mild leak nobody notices. With -inf: NaN in the padded "
        "rows and NaN gradients."
    ),
    "source": [
        "https://github.com/hyunwoongko/transformer/pull/40",
        "https://github.com/lsdefine/attention-is-all-you-need-keras/issues/16",
    ],
    "right": "Shape (B, 1, 1, T): hide key columns.",
    "call": "y = m(x, keep) # keep (B, T) bool, True = real token",
    "expected": (
        "padding leak at real positions while padded rows are uniform: mask broadcast on the "
        "query axis"
    ),
    "probe": (
        "padding perturbation at real positions; returned weights: padded columns have weight, "
        "padded rows are uniform"
    ),
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


def pad_leak(f, x, other, keep):
    """How much the outputs at real positions move when only padded inputs are replaced."""
    x2 = torch.where(keep[..., None], x, other) if x.dim() == 3 else torch.where(keep, x, other)
    return gap(f(x2)[keep], f(x)[keep])


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

    def shape_mask(self, keep):
        return keep[:, None, :, None]

    def forward(self, x, keep):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        s = s.masked_fill(~self.shape_mask(keep), -10000.0)
        return self.out(unheads(s.softmax(-1) @ v))


class Fixed(SelfAttention):
    def shape_mask(self, keep):
        return keep[:, None, None, :]


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[:, 4:] = False
    return (rand(2, 6, 16), keep), {}


def demo():
    bad, good = build(), build_fixed()
    (x, keep), _ = example_inputs()
    other = rand(2, 6, 16, seed=2)
    assert pad_leak(lambda z: bad(z, keep), x, other, keep) > 1e-2
    assert pad_leak(lambda z: good(z, keep), x, other, keep) == 0.0
