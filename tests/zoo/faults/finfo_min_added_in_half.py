"""finfo.min is added to the scores; in half precision the sum overflows to -inf and the row
becomes NaN.

Causal and padding mask are turned into finfo.min and added. Score + (-65504) with a score below
about -16 is -inf in float16, so a row in which every key is hidden by one of the two masks (a
left-padded query) has only -inf and softmax returns NaN. In float32 the same code never fails.
"""

import math

import torch
import torch.nn as nn

META = {
    "kind": "nan-two-masks-added",
    "symptom": "NaN only in float16, only with left padding and only for some inputs.",
    "source": [
        "https://github.com/huggingface/transformers/pull/17306",
        "https://github.com/huggingface/transformers/pull/17437",
    ],
    "right": (
        "Combine boolean masks and use masked_fill (no addition), or do the softmax in float32 "
        "and clamp to finfo.min."
    ),
    "call": (
        "y = m(x, keep) # keep (B, T) bool, True = real token, LEFT padding; use float16 and "
        "inputs of size ~8"
    ),
    "expected": "NaN in float16 with left padding: additive finfo.min overflows to -inf",
    "probe": (
        "float16 copy + left-padded batch + large activations; check finiteness at real and "
        "padded positions"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": True,
        "mask": "(B,T) bool, True=keep (left padding)",
        "dtypes": ["float32", "float16"],
    },
}


def seeded(make, seed=0):
    """Build with a fixed seed and leave the caller's random state alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


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
    """forward(x, keep) -> y; causal, keep (B, T) bool with left padding."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def hide(self, s, hidden):
        return s + torch.zeros_like(s).masked_fill(hidden, torch.finfo(s.dtype).min)

    def forward(self, x, keep):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        s = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
        hidden = (
            torch.ones(x.shape[1], x.shape[1], device=x.device).triu(1).bool()
            | ~keep[:, None, None, :]
        )
        return self.out(unheads(self.hide(s, hidden).softmax(-1) @ v))


class Fixed(SelfAttention):
    def hide(self, s, hidden):
        return s.masked_fill(hidden, torch.finfo(s.dtype).min)


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    keep = torch.ones(16, 2, dtype=torch.bool)
    keep[:, 0] = False  # one pad, one real token
    return (8 * rand(16, 2, 16), keep), {}


def demo():
    (x, keep), _ = example_inputs()
    assert build()(x, keep).isfinite().all()  # float32: fine
    assert build().half()(x.half(), keep).isnan().any()  # float16: NaN
    assert build_fixed().half()(x.half(), keep).isfinite().all()
