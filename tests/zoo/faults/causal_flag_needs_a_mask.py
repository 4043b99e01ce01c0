"""causal=True is honoured only when the caller also passes a mask.

The layer keeps a causal flag, but the code that applies the triangle sits inside the branch that
handles a user supplied mask. Without a mask the triangle is never applied and every position
reads the whole sequence.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "future-leak",
    "symptom": (
        "Training loss far too low, generation poor; a dense and a sparse version of the 'same' "
        "causal attention disagree. Nothing crashes."
    ),
    "source": [
        "https://github.com/facebookresearch/xformers/issues/103",
        "https://github.com/meta-pytorch/torchtune/issues/959",
    ],
    "right": (
        "Output t must not change when tokens after t change, whether or not a mask is passed."
    ),
    "call": (
        "y = m(x) # x: (B, T, 16) float; optional m(x, keep) with keep (B, T) bool, True = real "
        "token"
    ),
    "expected": (
        "future leak: outputs before t change when inputs after t change, in the call without a "
        "mask"
    ),
    "probe": (
        "replace the inputs after t and compare outputs up to t; do it once per optional-argument "
        "combination"
    ),
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": True,
        "mask": "optional (B,T) bool, True=keep",
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
    """forward(x, keep=None) -> y; x (B, T, d), keep (B, T) bool with True = real token."""

    def __init__(self, d=16, h=2, causal=True):
        super().__init__()
        self.h, self.causal = h, causal
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def allowed(self, keep, t, device):
        if keep is None:
            return None  # the causal flag is forgotten here
        allow = keep[:, None, None, :]
        if self.causal:
            allow = allow & torch.ones(t, t, device=device).tril().bool()
        return allow

    def forward(self, x, keep=None):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        allow = self.allowed(keep, x.shape[1], x.device)
        return self.out(unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=allow)))


class Fixed(SelfAttention):
    def allowed(self, keep, t, device):
        allow = (
            torch.ones(t, t, device=device).tril().bool()
            if self.causal
            else torch.ones(t, t, device=device).bool()
        )
        return allow if keep is None else allow & keep[:, None, None, :]


def build():
    return seeded(SelfAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    bad, good = build().eval(), build_fixed().eval()
    x, other = rand(2, 6, 16), rand(2, 6, 16, seed=2)
    assert future_leak(bad, x, other, 2) > 1e-2
    assert future_leak(good, x, other, 2) == 0.0
    keep = torch.ones(2, 6, dtype=torch.bool)  # with a mask even the broken one is causal
    assert future_leak(lambda z: bad(z, keep), x, other, 2) == 0.0
