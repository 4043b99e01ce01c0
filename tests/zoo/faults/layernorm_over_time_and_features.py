"""LayerNorm([T, d]) or layer_norm over all axes but the first.

normalized_shape includes the sequence axis: tokens are normalised together and the future leaks
into the past. The length is also fixed at construction.
"""

import torch
import torch.nn as nn

META = {
    "kind": "future-leak-through-layernorm",
    "symptom": (
        "A fixed sequence length is required; slightly odd results; baseline weaker than it "
        "should be."
    ),
    "source": [
        "https://github.com/Qualcomm-AI-research/geometric-algebra-transformer/pull/8",
        "https://github.com/patrick-kidger/equinox/pull/471",
        "https://github.com/jadore801120/attention-is-all-you-need-pytorch/pull/17",
        "https://github.com/karpathy/minGPT/issues/113",
    ],
    "right": "nn.LayerNorm(d).",
    "call": "y = m(x) # x (B, 8, 16)",
    "expected": (
        "future leak (or token coupling without attention) through LayerNorm over the sequence axis"
    ),
    "probe": "future-leak test; look for LayerNorm with more than one normalised axis",
    "intent": {"input": "embed", "d_model": 16, "heads": 2, "causal": True, "mask": None},
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


def future_leak(f, x, other, t):
    """How much outputs 0..t move when only inputs after t are replaced."""
    x2 = torch.cat([x[:, : t + 1], other[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, : t + 1], f(x)[:, : t + 1])


class CausalBlock(nn.Module):
    """forward(x) -> y; x (B, T, d). Meant to be causal."""

    def __init__(self, d=16, h=2, n=8):
        super().__init__()
        self.mha = nn.MultiheadAttention(d, h, batch_first=True)
        self.norm = nn.LayerNorm([n, d])

    def mix(self, x):
        return self.norm(x)

    def forward(self, x):
        t = x.shape[1]
        hide = torch.ones(t, t, dtype=torch.bool).triu(1)
        z = self.mix(x)
        return x + self.mha(z, z, z, attn_mask=hide, need_weights=False)[0]


class Fixed(CausalBlock):
    def __init__(self, d=16):
        super().__init__(d)
        self.norm = nn.LayerNorm(d)


def build():
    return seeded(CausalBlock)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 8, 16),), {}


def demo():
    x, other = rand(2, 8, 16), 3 * rand(2, 8, 16, seed=2)
    bad, good = build().eval(), build_fixed().eval()
    assert future_leak(bad, x, other, 2) > 1e-2
    assert future_leak(good, x, other, 2) == 0.0
