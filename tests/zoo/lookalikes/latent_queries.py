"""Perceiver style latents: output length differs, input order is irrelevant.

Learned queries read the input; the output has a fixed length and does not change when the input
is permuted.
"""

import torch
import torch.nn as nn

META = {
    "kind": "control",
    "symptom": "none: missing positions; output not aligned with the input",
    "source": [
        "https://arxiv.org/abs/2103.03206",
    ],
    "right": "Permutation INVARIANT by design.",
    "call": "y = m(x) # (B, 4, 16)",
    "expected": "no finding (at most an informational note)",
    "probe": (
        "must stay silent although it looks like: missing positions; output not aligned with the "
        "input"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": None,
        "order_matters": False,
        "output": "(B, 4, d)",
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


def batch_gap(f, x):
    """0 when sample 0 gives the same output alone and inside the batch."""
    return gap(f(x)[:1], f(x[:1]))


class Latents(nn.Module):
    """forward(x) -> (B, 4, d)."""

    def __init__(self, d=16, h=2, n=4):
        super().__init__()
        self.latent = nn.Parameter(torch.randn(n, d))
        self.mha = nn.MultiheadAttention(d, h, batch_first=True)

    def forward(self, x):
        q = self.latent.expand(x.shape[0], -1, -1)
        return q + self.mha(q, x, x, need_weights=False)[0]


def build():
    return seeded(Latents)


build_fixed = build  # nothing to fix


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    m, x = build(), rand(2, 6, 16)
    assert gap(m(x.flip(1)), m(x)) < 1e-5
    assert m(x).shape == (2, 4, 16)
    assert batch_gap(m, x) < 1e-5
