"""A mask with one axis too few lines up with the wrong axis when two sizes happen to be equal.

Grouped queries use five-dimensional scores (B, kv, group, T, S). A mask (B, 1, T, S) broadcasts
as (1, B, 1, T, S): an error for most sizes, silently wrong when the batch size equals the number
of key/value heads.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "mask-broadcast-silent",
    "symptom": "Crash for most batch sizes, wrong results for exactly one of them.",
    "source": [
        "https://github.com/ml-explore/mlx-lm/pull/1903",
    ],
    "right": "Insert the missing axis: (B, 1, 1, T, S).",
    "call": (
        "y = m(x, keep) # use batch size 2 (= number of kv heads) and different lengths; batch "
        "size 3 raises"
    ),
    "expected": (
        "padding leak / dependence on other samples at batch size == kv heads, shape error at "
        "other batch sizes"
    ),
    "probe": (
        "run the batch-composition test at several batch sizes, including B = heads, B = kv "
        "heads, B = T"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 4,
        "kv_heads": 2,
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


class GroupedQueryAttention(nn.Module):
    """forward(x, keep) -> y; 4 query heads in 2 groups; keep (B, T) bool, True = real token."""

    def __init__(self, d=16, h=4, kv=2):
        super().__init__()
        self.h, self.kv, self.hd = h, kv, d // h
        self.q, self.k, self.v = (
            nn.Linear(d, d),
            nn.Linear(d, kv * self.hd),
            nn.Linear(d, kv * self.hd),
        )
        self.out = nn.Linear(d, d)

    def shape_mask(self, keep):
        return keep[:, None, None, :]

    def forward(self, x, keep):
        b, t, d = x.shape
        q = self.q(x).view(b, t, self.kv, self.h // self.kv, self.hd).permute(0, 2, 3, 1, 4)
        k = self.k(x).view(b, t, self.kv, 1, self.hd).permute(0, 2, 3, 1, 4)
        v = self.v(x).view(b, t, self.kv, 1, self.hd).permute(0, 2, 3, 1, 4)
        s = q @ k.transpose(-2, -1) / math.sqrt(self.hd)  # (B, kv, group, T, T)
        s = s.masked_fill(~self.shape_mask(keep), float("-inf"))
        return self.out((s.softmax(-1) @ v).permute(0, 3, 1, 2, 4).reshape(b, t, d))


class Fixed(GroupedQueryAttention):
    def shape_mask(self, keep):
        return keep[:, None, None, None, :]


def build():
    return seeded(GroupedQueryAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[1, 3:] = False
    return (rand(2, 6, 16), keep), {}


def demo():
    bad, good = build(), build_fixed()
    (x, keep), _ = example_inputs()
    other = rand(2, 6, 16, seed=2)
    assert pad_leak(lambda z: bad(z, keep), x, other, keep) > 1e-2
    assert pad_leak(lambda z: good(z, keep), x, other, keep) == 0.0
    try:
        bad(rand(3, 6, 16), torch.ones(3, 6, dtype=torch.bool))
        raise AssertionError("expected a shape error")
    except RuntimeError:
        pass
