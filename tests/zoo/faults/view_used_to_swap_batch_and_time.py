"""view is used to swap batch and sequence.

x.view(T, B, d) has the right shape and the wrong content: it re-cuts the memory. Tokens of
different samples end up in one column.
"""

import torch
import torch.nn as nn

META = {
    "kind": "view-instead-of-transpose",
    "symptom": "No error; samples are mixed in a fixed pattern.",
    "source": [
        "https://github.com/rish-16/tokenlearner-pytorch/issues/1",
        "https://github.com/meta-pytorch/opacus/pull/825",
    ],
    "right": "transpose(0, 1).",
    "call": "y = m(x) # x (B, T, 16)",
    "expected": "sample 0 changes with the other samples: view used instead of transpose",
    "probe": "batch-composition test: per-pair influence matrix over (sample, token)",
    "intent": {"input": "embed", "d_model": 16, "heads": 2, "causal": False, "mask": None},
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


class Encoder(nn.Module):
    """forward(x) -> y; x (B, T, d); wraps a sequence-first nn.MultiheadAttention."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.mha = nn.MultiheadAttention(d, h)

    def swap(self, x, a, b):
        return x.reshape(a, b, -1)

    def forward(self, x):
        b, t, _ = x.shape
        z = self.swap(x, t, b)
        y = self.mha(z, z, z, need_weights=False)[0]
        return self.swap(y, b, t)


class Fixed(Encoder):
    def swap(self, x, a, b):
        return x.transpose(0, 1)


def build():
    return seeded(Encoder)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    x = rand(2, 6, 16)
    y = x.clone()
    y[1] = rand(6, 16, seed=2)  # replace the other sample
    assert gap(build()(y)[0], build()(x)[0]) > 1e-2
    assert gap(build_fixed()(y)[0], build_fixed()(x)[0]) < 1e-6
