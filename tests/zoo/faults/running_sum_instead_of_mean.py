"""Lazy queries receive a running sum of the values instead of a running mean.

In a masked sparse attention the default context of the skipped queries is cumsum(v). Its size
grows with the position; a later LayerNorm hides most of it, which is why it is called harmless.
"""

import torch
import torch.nn as nn

META = {
    "kind": "unnormalised-context",
    "symptom": "Activations grow along the sequence; questions why mean and cumsum are both used.",
    "source": [
        "https://github.com/zhouhaoyi/Informer2020/issues/88",
    ],
    "right": "cumsum(v) / (1, 2, ..., T).",
    "call": "ctx = m(v) # (B, T, 16)",
    "expected": (
        "output magnitude grows linearly with the position for constant values: context not "
        "normalised"
    ),
    "probe": "feed constant values; the output must be constant along the sequence",
    "intent": {"input": "values (B,T,d)", "d_model": 16, "causal": True, "mask": None},
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


class InitialContext(nn.Module):
    """forward(v) -> default context of every query; causal."""

    def count(self, t):
        return torch.ones(t, 1)

    def forward(self, v):
        return v.cumsum(1) / self.count(v.shape[1])


class Fixed(InitialContext):
    def count(self, t):
        return torch.arange(1, t + 1)[:, None]


def build():
    return InitialContext()


def build_fixed():
    return Fixed()


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    ones = torch.ones(2, 6, 16)
    assert build()(ones)[0, -1, 0] == 6.0
    assert gap(build_fixed()(ones), ones) == 0.0
