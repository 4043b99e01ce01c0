"""Passing a padding mask silently switches causality off.

The code builds its attention mask either from the padding mask or from the triangle, never from
both. Single prompts are fine; every padded batch becomes bidirectional.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "future-leak-with-padding",
    "symptom": (
        "Suspiciously perfect next-token accuracy in padded evaluation or training batches, "
        "correct when a single prompt is run; loss below a trusted reference."
    ),
    "source": [
        "https://github.com/huggingface/candle/pull/3609",
        "https://github.com/unslothai/unsloth-zoo/pull/963",
    ],
    "right": "allowed = triangle AND real key.",
    "call": "y = m(x, keep) # x (B, T, 16), keep (B, T) bool, True = real token; m(x) also works",
    "expected": (
        "future leak only when a padding mask is passed: padding mask replaces the causal mask"
    ),
    "probe": (
        "future-leak test repeated with and without the mask argument (including an all-True mask)"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": True,
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


def future_leak(f, x, other, t):
    """How much outputs 0..t move when only inputs after t are replaced."""
    x2 = torch.cat([x[:, : t + 1], other[:, t + 1 :]], dim=1)
    return gap(f(x2)[:, : t + 1], f(x)[:, : t + 1])


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class SelfAttention(nn.Module):
    """forward(x, keep=None) -> y; keep (B, T) bool, True = real. Causal."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def allowed(self, tri, keep):
        return keep[:, None, None, :]

    def forward(self, x, keep=None):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        allow = torch.ones(x.shape[1], x.shape[1], device=x.device).tril().bool()
        if keep is not None:
            allow = self.allowed(allow, keep)
        return self.out(unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=allow)))


class Fixed(SelfAttention):
    def allowed(self, tri, keep):
        return tri & keep[:, None, None, :]


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    keep = torch.ones(2, 6, dtype=torch.bool)
    keep[1, 4:] = False
    return (rand(2, 6, 16), keep), {}


def demo():
    bad, good = build().eval(), build_fixed().eval()
    (x, keep), _ = example_inputs()
    other = rand(2, 6, 16, seed=2)
    assert future_leak(bad, x, other, 2) == 0.0  # no mask: fine
    assert future_leak(lambda z: bad(z, keep), x, other, 2) > 1e-2  # mask: leaks
    assert future_leak(lambda z: good(z, keep), x, other, 2) == 0.0
