"""An einsum index typo sums the weights and returns each token's own value.

'bhqk,bhqd->bhqd' contains no key index in the value operand: the weights are summed over k
(giving one) and multiplied with the value at q. No information moves between tokens.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "no-mixing",
    "symptom": "Trains a little, like a feed-forward network; attention maps look normal.",
    "source": [
        "https://github.com/pytorch-tpu/transformers/pull/34",
    ],
    "right": "'bhqk,bhkd->bhqd'.",
    "call": "y = m(x) # x (B, T, 32)",
    "expected": "token outputs do not depend on any other token: attention does not mix",
    "probe": (
        "perturb one token and look at the others: no change at all; gradient of q/k projections "
        "is (nearly) zero"
    ),
    "intent": {"input": "embed", "d_model": 32, "heads": 4, "causal": False, "mask": None},
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
    """forward(x) -> y."""

    formula = "bhqk,bhqd->bhqd"

    def __init__(self, d=32, h=4):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def forward(self, x):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        w = (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(-1)
        return self.out(unheads(torch.einsum(self.formula, w, v)))


class Fixed(SelfAttention):
    formula = "bhqk,bhkd->bhqd"


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 32),), {}


def demo():
    x = rand(2, 6, 32)
    x2 = x.clone()
    x2[:, 5] = 0
    assert gap(build()(x2)[:, :5], build()(x)[:, :5]) < 1e-6
    assert gap(build_fixed()(x2)[:, :5], build_fixed()(x)[:, :5]) > 1e-2
