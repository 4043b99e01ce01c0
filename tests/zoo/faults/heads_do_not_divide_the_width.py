"""d_model is not divisible by the number of heads and nobody checks.

head_dim = d // h rounds down. The error appears much later, in a view, with a message about sizes
instead of the real cause; often the user has swapped the numbers of layers and heads.
"""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "d-model-not-divisible",
    "symptom": (
        "RuntimeError: shape '[...]' is invalid for input of size ...; or an AssertionError from "
        "a library layer."
    ),
    "source": [
        "https://github.com/Pang-Yatian/Point-MAE/issues/24",
        "https://github.com/rasbt/LLMs-from-scratch/issues/444",
        "https://github.com/open-mmlab/mmaction2/issues/1271",
        "https://github.com/pytorch/pytorch/issues/28719",
    ],
    "right": "Check in the constructor: d_model % heads == 0 with both numbers in the message.",
    "call": "m(x) # raises RuntimeError; build() itself succeeds",
    "expected": "d_model (20) is not divisible by heads (3)",
    "probe": (
        "catch the exception of the first forward pass and inspect attributes named *head*, "
        "d_model, embed_dim"
    ),
    "intent": {
        "input": "embed",
        "d_model": 20,
        "heads": 3,
        "causal": False,
        "mask": None,
        "raises": "RuntimeError",
    },
}


def seeded(make, seed=0):
    """Build with a fixed seed and leave the caller's random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def rand(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class SelfAttention(nn.Module):
    """forward(x) -> y."""

    def __init__(self, d_model=20, num_heads=3):
        super().__init__()
        self.d_model, self.num_heads, self.head_dim = d_model, num_heads, d_model // num_heads
        self.qkv, self.out = nn.Linear(d_model, 3 * d_model), nn.Linear(d_model, d_model)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (
            z.view(b, t, self.num_heads, self.head_dim).transpose(1, 2)
            for z in self.qkv(x).chunk(3, -1)
        )
        return self.out(
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, self.d_model)
        )


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(lambda: SelfAttention(d_model=20, num_heads=4))


def example_inputs():
    return (rand(2, 6, 20),), {}


def demo():
    x = rand(2, 6, 20)
    with pytest.raises(RuntimeError, match="invalid for input"):
        build()(x)
    assert build_fixed()(x).shape == x.shape
