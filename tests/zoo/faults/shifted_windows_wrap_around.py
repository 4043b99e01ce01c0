"""Shifted windows wrap around the border without a mask.

torch.roll shifts the sequence before cutting it into windows, so the last window holds the end
and the beginning. The mask that keeps the two apart is missing or built for another shift.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "window-wrap-around",
    "symptom": "Border tokens look at the opposite border; artefacts at image edges.",
    "source": [
        "https://github.com/zsyOAOA/ResShift/issues/81",
        "https://github.com/huggingface/pytorch-image-models/issues/2438",
        "https://github.com/HVision-NKU/SRFormer/pull/14",
        "https://github.com/microsoft/Swin-Transformer/issues/38",
    ],
    "right": "Mask pairs in the wrapped window that were not neighbours.",
    "call": "y = m(x) # x (B, 8, 16), windows of 4 shifted by 2",
    "expected": (
        "first and last token influence each other although the layer is local: cyclic shift not "
        "masked"
    ),
    "probe": (
        "influence matrix of a local layer: entries far from the diagonal (corners) are non-zero"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": None,
        "window": 4,
        "shift": 2,
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


def batch_gap(f, x):
    """0 when sample 0 gives the same output alone and inside the batch."""
    return gap(f(x)[:1], f(x[:1]))


def heads(x, h):
    """(B, T, h*d) -> (B, h, T, d)"""
    b, t, d = x.shape
    return x.view(b, t, h, d // h).transpose(1, 2)


def unheads(x):
    """(B, h, T, d) -> (B, T, h*d)"""
    b, h, t, d = x.shape
    return x.transpose(1, 2).reshape(b, t, h * d)


class ShiftedWindows(nn.Module):
    """forward(x) -> y; 1-D windows of 4 tokens, shifted by 2."""

    def __init__(self, d=16, h=2, w=4, shift=2):
        super().__init__()
        self.h, self.w, self.shift = h, w, shift
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def allowed(self, t):
        return None

    def forward(self, x):
        b, t, d = x.shape
        z = x.roll(-self.shift, 1).reshape(b * t // self.w, self.w, d)
        q, k, v = (heads(p, self.h) for p in self.qkv(z).chunk(3, -1))
        allow = self.allowed(t)
        if allow is not None:
            allow = allow.repeat(b, 1, 1)[:, None]
        y = unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=allow))
        return self.out(y.reshape(b, t, d).roll(self.shift, 1))


class Fixed(ShiftedWindows):
    def allowed(self, t):
        region = (torch.arange(t) >= t - self.shift).long().view(t // self.w, self.w)
        return region[:, :, None] == region[:, None, :]


def build():
    return seeded(ShiftedWindows)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 8, 16),), {}


def demo():
    x = rand(2, 8, 16)
    far = x.clone()
    far[:, 7] += 3.0
    assert gap(build()(far)[:, 0], build()(x)[:, 0]) > 1e-3
    assert gap(build_fixed()(far)[:, 0], build_fixed()(x)[:, 0]) == 0.0
    assert batch_gap(build_fixed(), x) < 1e-6
