"""Positions are multiplied by 10000^(2i/d) instead of divided.

The sign of the exponent is lost. Neighbouring positions get unrelated values in all but the first
channels; for large positions float32 has no digits left.
"""

import torch
import torch.nn as nn

META = {
    "kind": "sinusoid-multiplied",
    "symptom": "Training unstable or order learned badly.",
    "source": [
        "https://github.com/goodfire-ai/spd/pull/88",
        "https://github.com/hkproj/pytorch-transformer/issues/2",
    ],
    "right": "pos / 10000^(2i/d).",
    "call": "pe = m(32) # (32, 16)",
    "expected": (
        "adjacent positions are as different as far ones in most channels: frequencies grow "
        "instead of shrink"
    ),
    "probe": "similarity pe[i].pe[i+1] should exceed pe[i].pe[i+10]; slow channels must exist",
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
    """forward(n) -> (n, d) table of sinusoidal positions."""

    def __init__(self, d=16):
        super().__init__()
        self.d = d

    def angles(self, pos):
        pair = torch.arange(self.d) // 2
        return pos * 10000.0 ** (2.0 * pair / self.d)

    def forward(self, n):
        a = self.angles(torch.arange(n)[:, None].float())
        out = torch.zeros(n, self.d)
        out[:, 0::2], out[:, 1::2] = torch.sin(a[:, 0::2]), torch.cos(a[:, 1::2])
        return out


class Fixed(PositionTable):
    def angles(self, pos):
        pair = torch.arange(self.d) // 2
        return pos / 10000.0 ** (2.0 * pair / self.d)


def build():
    return seeded(PositionTable)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (32,), {}


def toeplitz_gap(pe):
    """sin/cos pairs of one frequency make pe[i] . pe[j] a function of i - j only."""
    g = pe @ pe.T
    return max((g.diagonal(k) - g.diagonal(k)[0]).abs().max().item() for k in range(len(pe)))


def demo():
    bad, good = build()(32), build_fixed()(32)
    assert toeplitz_gap(good) < 1e-3

    def near(pe):
        return (pe[:-1] * pe[1:]).sum(-1).mean().item()

    assert near(good) > 6.0
    assert near(bad) < 5.0
    assert build().angles(torch.ones(1, 1)).max() > 1000
