"""Cross-layer parameter sharing (ALBERT).

Three passes through one layer on purpose.
"""

import torch
import torch.nn as nn

META = {
    "kind": "control",
    "symptom": "none: layers are the same object",
    "source": [
        "https://arxiv.org/abs/1909.11942",
    ],
    "right": "Tokens mix; all parameters get gradients.",
    "call": "y = m(x)",
    "expected": "no finding (at most an informational note)",
    "probe": "must stay silent although it looks like: layers are the same object",
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": None,
        "layers": 3,
        "shared_layers": True,
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


class SharedEncoder(nn.Module):
    """forward(x) -> y; one layer applied three times."""

    def __init__(self, d=16, h=2, repeats=3):
        super().__init__()
        self.repeats = repeats
        self.layer = nn.TransformerEncoderLayer(d, h, 32, dropout=0.0, batch_first=True)

    def forward(self, x):
        for _ in range(self.repeats):
            x = self.layer(x)
        return x


def build():
    return seeded(SharedEncoder)


build_fixed = build  # nothing to fix


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    m, x = build(), rand(2, 6, 16)
    m(x).pow(2).sum().backward()
    assert all(p.grad is not None for p in m.parameters())
    assert batch_gap(m, x) < 1e-5
    assert perm_gap(m, x) < 1e-5
