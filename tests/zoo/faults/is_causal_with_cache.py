"""is_causal=True is aligned to the top-left corner, so a cached step sees only the first key.

scaled_dot_product_attention aligns the triangle with the first key. With one new query and a
longer key cache the query may attend key 0 only; chunked prefill loses its context in the same
way.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "kv-cache-mismatch-causal-alignment",
    "symptom": (
        "Generation with the cache repeats the same vector or token for ever; without the cache "
        "it is fine."
    ),
    "source": [
        "https://github.com/pytorch/pytorch/issues/144858",
        "https://github.com/pytorch/pytorch/issues/103082",
        "https://github.com/pytorch/executorch/pull/21749",
    ],
    "right": (
        "Bottom-right alignment: query i of n new ones over S keys may attend keys up to S - n + i."
    ),
    "call": (
        "y, cache = m(x, cache=None) # feed tokens one by one (or in chunks) with the returned "
        "cache"
    ),
    "expected": "cached decoding differs from the full forward pass: causal mask aligned top-left",
    "probe": "full pass versus token-by-token pass versus two-chunk pass; all three must agree",
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


class CachedAttention(nn.Module):
    """forward(x, cache=None) -> (y, cache); cache is a (k, v) pair."""

    def __init__(self, d=16, h=2):
        super().__init__()
        self.h = h
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x, cache=None):
        q, k, v = (heads(z, self.h) for z in self.qkv(x).chunk(3, -1))
        if cache is not None:
            k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
        return self.out(unheads(self.attend(q, k, v))), (k, v)


class Fixed(CachedAttention):
    def attend(self, q, k, v):
        n, s = q.shape[-2], k.shape[-2]
        allow = torch.ones(n, s, device=q.device).tril(s - n).bool()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allow)


def build():
    return seeded(CachedAttention)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def stepwise(m, x, sizes):
    cache, out = None, []
    for part in x.split(sizes, dim=1):
        y, cache = m(part, cache)
        out.append(y)
    return torch.cat(out, 1)


def demo():
    bad, good, x = build(), build_fixed(), rand(2, 6, 16)
    assert gap(bad(x)[0], stepwise(bad, x, [1] * 6)) > 1e-2
    assert gap(bad(x)[0], stepwise(bad, x, [3, 3])) > 1e-2
    assert gap(good(x)[0], stepwise(good, x, [1] * 6)) < 1e-5
    assert gap(good(x)[0], stepwise(good, x, [3, 3])) < 1e-5
