"""The shared cache counts the new tokens before the upper layers have run.

Layer 0 increases the number of seen tokens; layer 1 reads it in the same step and is one position
ahead. A one-layer test passes.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F

META = {
    "kind": "kv-cache-mismatch-upper-layers",
    "symptom": "Cached logits drift slightly from the full pass, only with two or more layers.",
    "source": [
        "https://github.com/fla-org/flash-linear-attention/issues/766",
    ],
    "right": "Read the past length once per step, or per layer.",
    "call": "y, cache = m(x, cache=None)",
    "expected": (
        "cached decoding differs from the full pass only for layers above the first: position "
        "offset off by one"
    ),
    "probe": "full versus token-by-token, per layer (hooks) to find the first layer that differs",
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": True,
        "mask": None,
        "layers": 2,
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


class Cache:
    def __init__(self, n):
        self.kv, self.seen = [None] * n, 0


class TwoLayers(nn.Module):
    """forward(x, cache=None) -> (y, cache);
    causal, learned positions added to the keys of each layer.
    """

    def __init__(self, d=16, h=2, n=2):
        super().__init__()
        self.h = h
        self.pos = nn.Embedding(32, d)
        self.qkv = nn.ModuleList(nn.Linear(d, 3 * d) for _ in range(n))

    def past(self, cache, i):
        return cache.seen

    def forward(self, x, cache=None):
        cache = Cache(len(self.qkv)) if cache is None else cache
        n = x.shape[1]
        for i, lin in enumerate(self.qkv):
            past = self.past(cache, i)
            q, k, v = lin(x).chunk(3, -1)
            k = k + self.pos(past + torch.arange(n))
            q, k, v = (heads(z, self.h) for z in (q, k, v))
            if cache.kv[i] is not None:
                k, v = torch.cat([cache.kv[i][0], k], 2), torch.cat([cache.kv[i][1], v], 2)
            cache.kv[i] = (k, v)
            if i == 0:
                cache.seen += n
            allow = torch.ones(n, k.shape[2]).tril(k.shape[2] - n).bool()
            x = x + unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=allow))
        return x, cache


class Fixed(TwoLayers):
    def past(self, cache, i):
        return 0 if cache.kv[i] is None else cache.kv[i][0].shape[2]


def build():
    return seeded(TwoLayers)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(2, 6, 16),), {}


def stepwise(m, x):
    cache, out = None, []
    for t in range(x.shape[1]):
        y, cache = m(x[:, t : t + 1], cache)
        out.append(y)
    return torch.cat(out, 1)


def demo():
    x = rand(2, 6, 16)
    assert gap(build()(x)[0], stepwise(build(), x)) > 1e-3
    assert gap(build_fixed()(x)[0], stepwise(build_fixed(), x)) < 1e-5
