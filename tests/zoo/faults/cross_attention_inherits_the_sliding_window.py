"""The cross attention inherits the decoder's sliding window and cuts off the start of the source.

The cache (or mask) of the cross attention is created with the decoder's layer types. Sliding-
window layers then keep only the last few encoder states. Short sources are fine.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "cross-attention-truncated",
    "symptom": "Long sources: a crash with one kernel, silently ignored beginnings with another.",
    "source": [
        "https://github.com/huggingface/transformers/pull/41890",
        "https://github.com/huggingface/transformers/pull/46111",
    ],
    "right": "Cross attention sees the whole memory.",
    "call": "y = m(tgt, memory) # tgt (B, T, 16), memory (B, S, 16) with S > 4",
    "expected": (
        "early memory tokens have no influence on any output: cross attention truncated to a window"
    ),
    "probe": "perturb each memory position in turn; use a memory longer than the window",
    "intent": {
        "input": "tgt_src_embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": None,
        "window": 4,
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


class CrossAttention(nn.Module):
    """forward(tgt, memory) -> y; the decoder uses windows of 4 in its self attention."""

    def __init__(self, d=16, h=2, window=4):
        super().__init__()
        self.h, self.window = h, window
        self.q, self.kv, self.out = nn.Linear(d, d), nn.Linear(d, 2 * d), nn.Linear(d, d)

    def visible(self, z):
        return z[:, :, -self.window :]

    def forward(self, tgt, memory):
        q = heads(self.q(tgt), self.h)
        k, v = (self.visible(heads(z, self.h)) for z in self.kv(memory).chunk(2, -1))
        return self.out(unheads(F.scaled_dot_product_attention(q, k, v)))


class Fixed(CrossAttention):
    def visible(self, z):
        return z


def build():
    return seeded(CrossAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 3, 16), rand(2, 7, 16, seed=2)), {}


def demo():
    (tgt, mem), _ = example_inputs()
    first = mem.clone()
    first[:, 0] += 3
    assert gap(build()(tgt, first), build()(tgt, mem)) == 0.0
    assert gap(build_fixed()(tgt, first), build_fixed()(tgt, mem)) > 1e-3
    short = mem[:, :4]
    assert gap(build()(tgt, short), build_fixed()(tgt, short)) < 1e-6  # short sources look fine
