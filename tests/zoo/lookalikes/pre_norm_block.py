"""Pre-norm decoder block with a final norm.

The normalisation sits inside the residual branches. The residual stream grows with depth and the
block output is not normalised; that is how pre-norm works.
"""

import torch
import torch.nn as nn

META = {
    "kind": "control",
    "symptom": "none: missing LayerNorm after the residual; growing activations",
    "source": [
        "https://arxiv.org/abs/2002.04745",
    ],
    "right": "Causal, uses the past, deterministic.",
    "call": "y = m(x) # x (B, T, 16)",
    "expected": "no finding (at most an informational note)",
    "probe": (
        "must stay silent although it looks like: missing LayerNorm after the residual; growing "
        "activations"
    ),
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


def past_use(f, x, other, t):
    """How much outputs after t move when inputs 0..t are replaced (should be > 0)."""
    x2 = torch.cat([other[:, : t + 1], x[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, t + 1 :], f(x)[:, t + 1 :])


def batch_gap(f, x):
    """0 when sample 0 gives the same output alone and inside the batch."""
    return gap(f(x)[:1], f(x[:1]))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.mha = nn.MultiheadAttention(d, h, batch_first=True)
        self.ffn = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        z, t = self.n1(x), x.shape[1]
        hide = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)
        x = x + self.mha(z, z, z, attn_mask=hide, need_weights=False)[0]
        return x + self.ffn(self.n2(x))


class Decoder(nn.Module):
    """forward(x) -> y; causal, two pre-norm blocks and a final norm."""

    def __init__(self, d=16, h=2, n=2):
        super().__init__()
        self.blocks, self.norm = nn.Sequential(*(Block(d, h) for _ in range(n))), nn.LayerNorm(d)

    def forward(self, x):
        return self.norm(self.blocks(x))


def build():
    return seeded(Decoder)


build_fixed = build  # nothing to fix


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    m, x, other = build().eval(), rand(2, 6, 16), rand(2, 6, 16, seed=2)
    assert future_leak(m, x, other, 2) == 0.0
    assert past_use(m, x, other, 2) > 1e-2
    assert batch_gap(m, x) < 1e-5
