"""Learned absolute positions start at 0 again when a cache is used.

The embedding layer builds position ids from the new tokens only (for example only on the
inputs_embeds path), so each generated token gets position 0.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "kv-cache-mismatch-positions",
    "symptom": "use_cache=True gives other text than use_cache=False.",
    "source": [
        "https://github.com/huggingface/transformers/pull/15751",
        "https://github.com/mlfoundations/open_lm/pull/74",
    ],
    "right": "position_ids = past_length + arange(n).",
    "call": "y, cache = m(x, cache=None)",
    "expected": "cached decoding differs from the full pass: absolute position offset ignored",
    "probe": "full versus token-by-token",
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": True,
        "mask": None,
        "cache": "forward(x, cache) -> (y, cache)",
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


def stepwise(m, x):
    cache, out = None, []
    for t in range(x.shape[1]):
        y, cache = m(x[:, t : t + 1], cache)
        out.append(y)
    return torch.cat(out, 1)


class CachedAttention(nn.Module):
    """forward(x, cache=None) -> (y, cache); causal, learned positions."""

    def __init__(self, d=16, h=2, n=32):
        super().__init__()
        self.h = h
        self.pos = nn.Embedding(n, d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def first_position(self, past):
        return 0

    def forward(self, x, cache=None):
        n, past = x.shape[1], 0 if cache is None else cache[0].shape[2]
        x = x + self.pos(self.first_position(past) + torch.arange(n))
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        allow = torch.ones(n, past + n).tril(past).bool()
        return self.out(unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=allow))), (k, v)


class Fixed(CachedAttention):
    def first_position(self, past):
        return past


def build():
    return seeded(CachedAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def demo():
    x = rand(2, 6, 16)
    assert gap(build()(x)[0], stepwise(build(), x)) > 1e-2
    assert gap(build_fixed()(x)[0], stepwise(build_fixed(), x)) < 1e-5
