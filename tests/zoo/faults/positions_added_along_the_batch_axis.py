"""The positional encoding is indexed by batch element instead of by position.

Code written for (T, B, d) is used with (B, T, d) input (or x.size(0) is taken for the length).
All tokens of sample i get the vector of 'position i'.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "position-on-batch-axis",
    "symptom": (
        "Runs for any batch size up to the table length; order is invisible and a sample's result "
        "depends on its index in the batch."
    ),
    "source": [
        "https://github.com/cmu-l3/anlp-fall2025-code/issues/1",
        "https://github.com/songyangco/GETNext/issues/2",
        "https://github.com/NeuracoreAI/neuracore/pull/154",
        "https://github.com/KasperGroesLudvigsen/influenza_transformer/issues/9",
    ],
    "right": "pe[: x.size(1)] broadcast over the batch for batch-first input.",
    "call": "y = m(x) # x (B, T, 16), B >= 2",
    "expected": (
        "permutation equivariant along T, but the same sample gives different outputs at "
        "different batch indices: PE on the batch axis"
    ),
    "probe": "put the same sample at two batch indices; permutation test along tokens",
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


def batch_gap(f, x):
    """0 when sample 0 gives the same output alone and inside the batch."""
    return gap(f(x)[:1], f(x[:1]))


def sinusoid(n, d):
    pos = torch.arange(n)[:, None].float()
    freq = torch.exp(-math.log(10000.0) * torch.arange(0, d, 2).float() / d)
    table = torch.zeros(n, d)
    table[:, 0::2] = torch.sin(pos * freq)
    table[:, 1::2] = torch.cos(pos * freq)
    return table


class Encoder(nn.Module):
    """forward(x) -> y; x (B, T, d) embeddings, batch first; order is supposed to matter."""

    def __init__(self, d=16, h=2, n=64):
        super().__init__()
        self.register_buffer("pe", sinusoid(n, d))
        self.layer = nn.TransformerEncoderLayer(d, h, 32, dropout=0.0, batch_first=True)

    def add_position(self, x):
        return x + self.pe[: x.shape[0], None]

    def forward(self, x):
        return self.layer(self.add_position(x))


class Fixed(Encoder):
    def add_position(self, x):
        return x + self.pe[: x.shape[1]]


def build():
    return seeded(Encoder)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(3, 6, 16),), {}


def demo():
    bad, good, x = build().eval(), build_fixed().eval(), rand(3, 6, 16)
    assert perm_gap(good, x) > 1e-2
    assert batch_gap(good, x) < 1e-5
    assert perm_gap(bad, x) < 1e-5
    same = x[:1].expand(3, -1, -1)
    assert gap(bad(same)[0], bad(same)[2]) > 1e-2
    assert gap(good(same)[0], good(same)[2]) < 1e-5
