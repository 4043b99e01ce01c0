"""One evaluation pass turns dropout off for the rest of training.

forward sets self.p = 0 in evaluation mode instead of using a local variable, so returning to
train() does not bring the dropout back.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "state-changed-by-eval",
    "symptom": "Overfitting starts after the first validation; impossible to see within one mode.",
    "source": [
        "https://github.com/NVIDIA/Megatron-LM/pull/411",
    ],
    "right": "forward must not modify the module's configuration.",
    "call": "m.train()(x); m.eval()(x); m.train()(x)",
    "expected": (
        "behaviour in train mode differs before and after an eval call: forward changes module "
        "state"
    ),
    "probe": "compare __dict__ / dropout activity in train mode before and after an eval pass",
    "intent": {
        "input": "embed",
        "d_model": 32,
        "heads": 4,
        "causal": False,
        "mask": None,
        "dropout": 0.3,
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


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    """forward(x) -> y; attention dropout 0.3."""

    def __init__(self, d=32, h=4, p=0.3):
        super().__init__()
        self.h, self.p = h, p
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def drop(self):
        if not self.training:
            self.p = 0.0
        return self.p

    def forward(self, x):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        return self.out(unheads(F.scaled_dot_product_attention(q, k, v, dropout_p=self.drop())))


class Fixed(SelfAttention):
    def drop(self):
        return self.p if self.training else 0.0


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 32),), {}


def demo():
    x = rand(2, 6, 32)
    for make, healthy in [(build, False), (build_fixed, True)]:
        m = make().train()
        assert gap(m(x), m(x)) > 1e-2  # dropout works
        m.eval()(x)
        m.train()
        assert (gap(m(x), m(x)) > 1e-2) == healthy  # ... and is gone after one eval pass
