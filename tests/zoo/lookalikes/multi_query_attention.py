"""Multi-query attention: all heads share keys and values.

One key/value head for four query heads; the projections have fewer parameters.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "control",
    "symptom": "none: heads share one projection; too few parameters",
    "source": [
        "https://arxiv.org/abs/1911.02150",
    ],
    "right": "Causal.",
    "call": "y = m(x)",
    "expected": "no finding (at most an informational note)",
    "probe": (
        "must stay silent although it looks like: heads share one projection; too few parameters"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 4,
        "causal": True,
        "mask": None,
        "kv_heads": 1,
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


def future_leak(f, x, other, t):
    """How much outputs 0..t move when only inputs after t are replaced."""
    x2 = torch.cat([x[:, : t + 1], other[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, : t + 1], f(x)[:, : t + 1])


def past_use(f, x, other, t):
    """How much outputs after t move when inputs 0..t are replaced (should be > 0)."""
    x2 = torch.cat([other[:, : t + 1], x[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, t + 1 :], f(x)[:, t + 1 :])


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


class Attention(nn.Module):
    """forward(x) -> y; causal; one key/value head."""

    def __init__(self, d=16, h=4, kv=1):
        super().__init__()
        self.h, self.kv, hd = h, kv, d // h
        self.q, self.k, self.v, self.out = (
            nn.Linear(d, d),
            nn.Linear(d, kv * hd),
            nn.Linear(d, kv * hd),
            nn.Linear(d, d),
        )

    def forward(self, x):
        q, k, v = heads(self.q(x), self.h), heads(self.k(x), self.kv), heads(self.v(x), self.kv)
        k, v = (z.expand(-1, self.h, -1, -1) for z in (k, v))
        return self.out(unheads(F.scaled_dot_product_attention(q, k, v, is_causal=True)))


def build():
    return seeded(Attention)


build_fixed = build  # nothing to fix


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    m, x, other = build(), rand(2, 6, 16), rand(2, 6, 16, seed=2)
    assert future_leak(m, x, other, 2) == 0.0
    assert past_use(m, x, other, 2) > 1e-3
    assert batch_gap(m, x) < 1e-5
