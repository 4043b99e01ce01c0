"""Layers are kept in a Python list and are not part of the module.

self.layers = [Layer(), Layer()] hides the layers from parameters(), state_dict(), to() and
train()/eval(). The optimizer never updates them.
"""

import torch
import torch.nn as nn

META = {
    "kind": "unregistered-modules",
    "symptom": (
        "Loss goes down a little (only the head trains); 'expected all tensors on the same "
        "device' on GPU; checkpoints too small."
    ),
    "source": [
        "https://github.com/LiamMaclean216/Pytorch-Transfomer/pull/7",
    ],
    "right": "nn.ModuleList.",
    "call": "y = m(x) # x (B, T, 16)",
    "expected": (
        "attention layers are not registered: no parameters, not moved by .to(), not switched by "
        ".eval()"
    ),
    "probe": "walk __dict__ for nn.Module objects in lists/dicts; compare with m.modules()",
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
    """forward(x) -> y; two layers."""

    def __init__(self, d=16, h=2, n=2):
        super().__init__()
        self.layers = self.keep(
            [nn.TransformerEncoderLayer(d, h, 32, dropout=0.2, batch_first=True) for _ in range(n)]
        )
        self.head = nn.Linear(d, d)

    def keep(self, layers):
        return layers

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


class Fixed(Encoder):
    def keep(self, layers):
        return nn.ModuleList(layers)


def build():
    return seeded(Encoder)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    x = rand(2, 6, 16)
    bad, good = build().eval(), build_fixed().eval()
    assert len(list(bad.parameters())) == 2
    assert len(list(good.parameters())) > 20
    assert gap(bad(x), bad(x)) > 1e-2
    assert gap(good(x), good(x)) == 0.0
