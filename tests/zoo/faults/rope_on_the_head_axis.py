"""RoPE counts heads instead of positions.

A helper written for (B, T, h, d) is called with (B, h, T, d), or the other way round. The angle
depends on the head number; all tokens of a head get the same rotation, which cancels in q.k.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "rope-wrong-axis",
    "symptom": (
        "Training loss blows up in small models, or the model behaves as if it had no positions."
    ),
    "source": [
        "https://github.com/mlfoundations/open_lm/issues/4",
        "https://github.com/facebookresearch/xformers/issues/841",
        "https://github.com/vukrosic/leo-optimizer/pull/2",
        "https://github.com/rasbt/LLMs-from-scratch/issues/411",
    ],
    "right": "Rotate along the sequence axis.",
    "call": "y = m(x) # x (B, T, 16), not causal",
    "expected": (
        "permutation equivariant although RoPE is present: rotation applied along the head axis"
    ),
    "probe": "permutation test; scores must change when one token moves by one position",
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": None,
        "order_matters": True,
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


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


def rotate(x, pos, base=10000.0):
    """Rotary embedding, half-split convention; x (..., T, hd), pos (T,) or broadcastable."""
    hd = x.shape[-1]
    freq = base ** (-torch.arange(0, hd, 2).float() / hd)
    a = pos[..., None].float() * freq
    c, s = torch.cos(a), torch.sin(a)
    x1, x2 = x[..., : hd // 2], x[..., hd // 2 :]
    return torch.cat([x1 * c - x2 * s, x1 * s + x2 * c], -1)


class SelfAttention(nn.Module):
    """forward(x) -> y; order is supposed to come from RoPE."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def turn(self, z):  # z is (B, h, T, hd)
        return rotate(z.transpose(1, 2), torch.arange(z.shape[1])).transpose(1, 2)

    def forward(self, x):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        return self.out(unheads(F.scaled_dot_product_attention(self.turn(q), self.turn(k), v)))


class Fixed(SelfAttention):
    def turn(self, z):
        return rotate(z, torch.arange(z.shape[2]))


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    x = rand(2, 6, 16)
    assert perm_gap(build(), x) < 1e-6
    assert perm_gap(build_fixed(), x) > 1e-3
