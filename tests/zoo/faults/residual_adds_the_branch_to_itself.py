"""x = x + x after the attention: the residual is lost.

The attention result overwrites x before the addition, so the branch is doubled and the input is
gone. Deep stacks average all tokens together.
"""

import torch
import torch.nn as nn

META = {
    "kind": "residual-lost",
    "symptom": "Deep models do not train; all token outputs become equal with depth.",
    "source": [
        "https://github.com/kyegomez/BitNet/issues/32",
    ],
    "right": "x = x + attn(x).",
    "call": "y = m(x) # x (B, T, 16), 4 blocks",
    "expected": (
        "tokens become indistinguishable with depth / output ignores the token's own input: "
        "residual missing"
    ),
    "probe": (
        "cosine similarity between token outputs; zero the attention output projection: a healthy "
        "block becomes the identity + FFN"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": None,
        "layers": 4,
    },
}


def seeded(make, seed=0):
    """Build with a fixed seed and leave the caller's random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def rand(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.mha = nn.MultiheadAttention(d, h, batch_first=True)
        self.ffn = nn.Sequential(
            nn.LayerNorm(d), nn.Linear(d, 2 * d), nn.GELU(), nn.Linear(2 * d, d)
        )

    def attend(self, x):
        x = self.mha(x, x, x, need_weights=False)[0]
        return x + x

    def forward(self, x):
        x = self.attend(x)
        return x + self.ffn(x)


class FixedBlock(Block):
    def attend(self, x):
        return x + self.mha(x, x, x, need_weights=False)[0]


class Stack(nn.Module):
    """forward(x) -> y; four blocks."""

    def __init__(self, block, d=16, h=2, n=4):
        super().__init__()
        self.blocks = nn.Sequential(*(block(d, h) for _ in range(n)))

    def forward(self, x):
        return self.blocks(x)


def build():
    return seeded(lambda: Stack(Block))


def build_fixed():
    return seeded(lambda: Stack(FixedBlock))


def example_inputs():
    return (rand(2, 8, 16),), {}


def similarity(y):
    y = torch.nn.functional.normalize(y, dim=-1)
    g = y @ y.transpose(-2, -1)
    n = y.shape[1]
    return ((g.sum((-1, -2)) - n) / (n * (n - 1))).mean().item()


def demo():
    x = rand(2, 8, 16)
    assert similarity(build()(x)) > 0.99
    assert similarity(build_fixed()(x)) < 0.9
