"""ReZero / LayerScale: at initialisation the block is the identity.

The branch is multiplied by a learnable gate that starts at zero. Before training no token
influences another one; nothing is wrong.
"""

import torch
import torch.nn as nn

META = {
    "kind": "control",
    "symptom": "none: attention does not mix tokens; parameters without gradient",
    "source": [
        "https://arxiv.org/abs/2003.04887",
        "https://arxiv.org/abs/2103.17239",
    ],
    "right": "With the gate opened tokens mix; the gate itself gets a gradient at once.",
    "call": "y = m(x)",
    "expected": "no finding (at most an informational note)",
    "probe": (
        "must stay silent although it looks like: attention does not mix tokens; parameters "
        "without gradient"
    ),
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


class GatedBlock(nn.Module):
    """forward(x) -> y; residual branch scaled by a gate that starts at 0."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.mha, self.gate = (
            nn.MultiheadAttention(d, h, batch_first=True),
            nn.Parameter(torch.zeros(())),
        )

    def forward(self, x):
        return x + self.gate * self.mha(x, x, x, need_weights=False)[0]


def build():
    return seeded(GatedBlock)


build_fixed = build  # nothing to fix


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    m, x = build(), rand(2, 6, 16)
    assert torch.equal(m(x), x)  # looks dead ...
    m(x).pow(2).sum().backward()
    assert m.gate.grad.abs() > 1e-3  # ... but will learn
    m.gate.data.fill_(1.0)
    x2 = x.clone()
    x2[:, 5] = 0
    assert gap(m(x2)[:, 0], m(x)[:, 0]) > 1e-3
