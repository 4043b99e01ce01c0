"""The stack repeats one layer object.

[layer] * n, or a loop that calls self.layer n times, creates one set of weights. (ALBERT does
this on purpose; then it is documented.)
"""

import torch
import torch.nn as nn

META = {
    "kind": "layers-share-weights",
    "symptom": (
        "Quality far below a real stack; the parameter count does not grow with the number of "
        "layers."
    ),
    "source": [
        "https://github.com/espnet/espnet/issues/1278",
        "https://github.com/datawhalechina/learn-nlp-with-transformers/issues/56",
        "https://github.com/habla-liaa/encodecmae/issues/3",
    ],
    "right": "One module per layer.",
    "call": "y = m(x) # x (B, T, 16), 3 layers",
    "expected": (
        "three layers, one set of parameters: layers are the same object (warning: may be intended)"
    ),
    "probe": (
        "id() of the modules / data_ptr of the parameters of a ModuleList; count calls of one "
        "module with forward hooks"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": None,
        "layers": 3,
    },
}


def seeded(make, seed=0):
    """Build with a fixed seed and leave the caller's random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def rand(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer(d, h):
    return nn.TransformerEncoderLayer(d, h, 32, dropout=0.0, batch_first=True)


class Encoder(nn.Module):
    """forward(x) -> y; three layers."""

    def __init__(self, d=16, h=2, n=3):
        super().__init__()
        self.layers = nn.ModuleList(self.stack(d, h, n))

    def stack(self, d, h, n):
        return [layer(d, h)] * n

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Fixed(Encoder):
    def stack(self, d, h, n):
        return [layer(d, h) for _ in range(n)]


def build():
    return seeded(Encoder)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    def count(m):
        return sum(p.numel() for p in m.parameters())

    one = count(layer(16, 2))
    assert count(build()) == one
    assert len(build().layers) == 3
    assert count(build_fixed()) == 3 * one
