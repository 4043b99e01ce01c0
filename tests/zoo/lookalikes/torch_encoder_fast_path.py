"""nn.TransformerEncoder returns zeros at padded positions in eval mode under no_grad.

The fast path packs real tokens and fills padded rows with zeros; in train mode, or with gradients
enabled, the same rows contain numbers. Only real positions may be compared.
"""

import torch
import torch.nn as nn

META = {
    "kind": "control",
    "symptom": "none: train/eval mismatch; output depends on grad mode",
    "source": [
        "https://github.com/pytorch/pytorch/issues/86120",
        "https://github.com/pytorch/pytorch/issues/97111",
    ],
    "right": "Equal at real positions in all modes.",
    "call": "y = m(x, keep)",
    "expected": "no finding (at most an informational note)",
    "probe": (
        "must stay silent although it looks like: train/eval mismatch; output depends on grad mode"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": "(B,T) bool, True=keep",
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


class Encoder(nn.Module):
    """forward(x, keep) -> y; keep (B, T) bool, True = real token."""

    def __init__(self, d=16, h=2):
        super().__init__()
        layer = nn.TransformerEncoderLayer(d, h, 32, dropout=0.0, batch_first=True)
        self.enc = nn.TransformerEncoder(layer, 1)

    def forward(self, x, keep):
        return self.enc(x, src_key_padding_mask=~keep)


def build():
    return seeded(Encoder)


build_fixed = build  # nothing to fix


def example_inputs():
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[0, 4:] = False
    return (rand(2, 6, 16), keep), {}


def demo():
    m = build()
    (x, keep), _ = example_inputs()
    slow = m.train()(x, keep)
    with torch.no_grad():
        fast = m.eval()(x, keep)
    assert gap(slow[keep], fast[keep]) < 1e-5
    assert fast[~keep].abs().max() == 0
    assert slow[~keep].abs().max() > 0.1
