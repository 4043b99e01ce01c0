"""The classifier reads h[0] or h[..., 0] instead of h[:, 0].

For batch-first states h[0] is the first sample (all its tokens) and h[..., 0] the first feature.
When the sizes happen to be equal the shapes still fit.
"""

import torch
import torch.nn as nn

META = {
    "kind": "cls-wrong-axis",
    "symptom": (
        "Wrong shapes or, with B == T or T == d, a classifier that gives every sample the answer "
        "of sample 0's tokens."
    ),
    "source": [
        "https://github.com/huggingface/candle/pull/3010",
    ],
    "right": "h[:, 0] for batch-first.",
    "call": "logits = m(x) # x (B, T, 16) with B == T == 6; (B, 3)",
    "expected": "logits of sample i do not depend on sample i: wrong axis selected as [CLS]",
    "probe": "perturb sample i and see which logits move; use B != T to force the shape error",
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": None,
        "output": "(B, classes)",
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


class Classifier(nn.Module):
    """forward(x) -> (B, 3) logits from the first token; x (B, T, d)."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(d, h, 32, dropout=0.0, batch_first=True)
        self.head = nn.Linear(d, 3)

    def pick(self, y):
        return y[0]

    def forward(self, x):
        return self.head(self.pick(self.layer(x)))


class Fixed(Classifier):
    def pick(self, y):
        return y[:, 0]


def build():
    return seeded(Classifier)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(6, 6, 16),), {}


def demo():
    x = rand(6, 6, 16)
    x2 = x.clone()
    x2[3] += rand(6, 16, seed=5)
    bad, good = build().eval(), build_fixed().eval()
    assert gap(bad(x2), bad(x)) == 0.0
    assert gap(good(x2)[3], good(x)[3]) > 1e-2
    assert gap(good(x2)[:3], good(x)[:3]) < 1e-5
    assert bad(rand(2, 6, 16)).shape == (6, 3)
    assert good(rand(2, 6, 16)).shape == (2, 3)
