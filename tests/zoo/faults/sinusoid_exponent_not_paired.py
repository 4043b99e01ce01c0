"""The exponent uses the channel index itself instead of its pair index.

10000^(2i/d) with i running over all channels: sine and cosine of a pair have different
frequencies, and the exponent is twice too large. The nice property that pe[i].pe[j] depends only
on the distance is lost.
"""

import torch
import torch.nn as nn

META = {
    "kind": "sinusoid-formula",
    "symptom": "Almost invisible in the loss; a plot of pe @ pe.T has no clean diagonal bands.",
    "source": [
        "https://github.com/jadore801120/attention-is-all-you-need-pytorch/issues/32",
        "https://github.com/shenweichen/DeepCTR/issues/379",
        "https://github.com/BrianPulfer/PapersReimplementations/issues/9",
        "https://github.com/DongjunLee/transformer-tensorflow/issues/6",
        "https://github.com/maxjcohen/transformer/issues/62",
    ],
    "right": "exponent 2 * (i // 2) / d.",
    "call": "pe = m(32) # (32, 16)",
    "expected": (
        "sinusoidal table is not shift-consistent: pe[i].pe[j] is not a function of i - j "
        "(channels not paired)"
    ),
    "probe": "Gram matrix of the table must be Toeplitz; ||pe[i]|| constant",
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
        i = torch.arange(self.d)
        return pos / 10000.0 ** (2.0 * i / self.d)

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
    assert toeplitz_gap(bad) > 0.1
