"""The Transformer-XL shift trick is reused without a causal mask.

The pad-and-reshape trick fills only the lower triangle correctly; the upper triangle contains
values of the next row. With a causal mask they are hidden. In an encoder they are used: the bias
of (i, j > i) belongs to query i + 1 and to some unrelated distance.
"""

import torch
import torch.nn as nn

META = {
    "kind": "relative-shift",
    "symptom": (
        "A conformer or encoder works, but the future half of the relative positions is noise "
        "from another frame."
    ),
    "source": [
        "https://github.com/ZhengkunTian/OpenTransformer/issues/25",
        "https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/185",
        "https://github.com/kimiyoung/transformer-xl/issues/132",
    ],
    "right": "Encode 2T - 1 distances and slice, or gather with an index matrix.",
    "call": "s = m(x) # position scores (B, h, T, T) for x (B, T, 16); not causal",
    "expected": (
        "position score of (i, j) depends on query i+1 for j > i: relative shift used without "
        "causal mask"
    ),
    "probe": "gradient of score (i, j) with respect to the inputs of other queries must be zero",
    "intent": {
        "input": "embed",
        "d_model": 16,
        "heads": 2,
        "causal": False,
        "mask": None,
        "output": "(B, h, T, T) position scores",
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


class RelativeScores(nn.Module):
    """forward(x) -> (B, h, T, T) position part of the attention scores."""

    def __init__(self, d=16, h=2, n=64):
        super().__init__()
        self.h = h
        self.q = nn.Linear(d, d)
        self.make_table(d // h, n)

    def make_table(self, hd, n):
        self.dist = nn.Parameter(torch.randn(n, hd))  # row = distance 0, 1, 2, ...

    def forward(self, x):
        q = heads(self.q(x), self.h)
        b, h, t, _ = q.shape
        raw = q @ self.dist[:t].flip(0).T  # last column = distance 0
        padded = nn.functional.pad(raw, (1, 0)).view(b, h, t + 1, t)
        return padded[:, :, 1:].reshape(b, h, t, t)


class Fixed(RelativeScores):
    def make_table(self, hd, n):
        self.dist = nn.Parameter(torch.randn(2 * n - 1, hd))  # row n - 1 = distance 0
        self.n = n

    def forward(self, x):
        q = heads(self.q(x), self.h)
        i = torch.arange(x.shape[1])
        table = self.dist[i[:, None] - i[None, :] + self.n - 1]  # (T, T, hd), past and future
        return torch.einsum("bhid,ijd->bhij", q, table)


def build():
    return seeded(RelativeScores)


def build_fixed():
    return seeded(Fixed)


def example_inputs():
    return (rand(1, 5, 16),), {}


def demo():
    for make, healthy in [(build, False), (build_fixed, True)]:
        m, x = make(), rand(1, 5, 16).requires_grad_()
        foreign = torch.autograd.grad(m(x)[0, :, 1, 3].sum(), x)[0][0].abs().amax(-1)
        assert (foreign[2] == 0) == healthy  # score (1, 3) must not read query 2
