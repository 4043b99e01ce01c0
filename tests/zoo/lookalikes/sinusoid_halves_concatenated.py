"""Sinusoids as [all sines | all cosines].

The order of channels differs from the paper; the geometry is the same. tensor2tensor does this.
"""

import torch
import torch.nn as nn

META = {
    "kind": "control",
    "symptom": "none: wrong sinusoid formula",
    "source": [
        "https://github.com/allenai/allennlp/issues/2993",
        "https://github.com/tatp22/multidim-positional-encoding/issues/20",
        "https://github.com/tensorflow/tensor2tensor/pull/177",
    ],
    "right": "pe[i].pe[j] depends on i - j only.",
    "call": "pe = m(32)",
    "expected": "no finding (at most an informational note)",
    "probe": "must stay silent although it looks like: wrong sinusoid formula",
    "intent": {
        "input": "length",
        "d_model": 16,
        "causal": None,
        "mask": None,
        "output": "(n, d) positions",
    },
}


def seeded(make, seed=0):
    """Build with a fixed seed and leave the caller's random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


class PositionTable(nn.Module):
    """forward(n) -> (n, 16)."""

    def forward(self, n, d=16):
        a = torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(0, d, 2).float() / d)
        return torch.cat([a.sin(), a.cos()], -1)


def build():
    return PositionTable()


build_fixed = build  # nothing to fix


def example_inputs():
    return (32,), {}


def demo():
    g = build()(32)
    g = g @ g.T
    assert max((g.diagonal(k) - g.diagonal(k)[0]).abs().max().item() for k in range(32)) < 1e-3
