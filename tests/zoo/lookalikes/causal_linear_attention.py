"""Causal linear attention whose normaliser is a cumulative sum.

The normaliser is computed for the whole sequence at once, which was reported as 'looking into the
future'; it is a running sum and does not.
"""

import torch
import torch.nn as nn

META = {
    "kind": "control",
    "symptom": "none: future leak through the normaliser",
    "source": [
        "https://github.com/idiap/fast-transformers/issues/111",
        "https://arxiv.org/abs/2006.16236",
    ],
    "right": "Causal; constants are reproduced.",
    "call": "y = m(x)",
    "expected": "no finding (at most an informational note)",
    "probe": "must stay silent although it looks like: future leak through the normaliser",
    "intent": {"input": "embed", "d_model": 16, "heads": 2, "causal": True, "mask": None},
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


def future_leak(f, x, other, t):
    """How much outputs 0..t move when only inputs after t are replaced."""
    x2 = torch.cat([x[:, : t + 1], other[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, : t + 1], f(x)[:, : t + 1])


def past_use(f, x, other, t):
    """How much outputs after t move when inputs 0..t are replaced (should be > 0)."""
    x2 = torch.cat([other[:, : t + 1], x[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, t + 1 :], f(x)[:, t + 1 :])


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class LinearAttention(nn.Module):
    """forward(x) -> y; causal, feature map elu + 1."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
        state = torch.einsum("bhtk,bhtv->bhtkv", k, v).cumsum(2)
        y = torch.einsum("bhtk,bhtkv->bhtv", q, state) / (q * k.cumsum(2)).sum(-1, keepdim=True)
        return self.out(unheads(y))


def build():
    return seeded(LinearAttention)


build_fixed = build  # nothing to fix


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    m, x, other = build(), rand(2, 6, 16), rand(2, 6, 16, seed=2)
    assert future_leak(m, x, other, 2) == 0.0
    assert past_use(m, x, other, 2) > 1e-3
