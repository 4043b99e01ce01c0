"""What the further patients are made of: one healthy attention, inputs, and intents."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

D, H, T = 16, 2, 6
KEEP = "(B,T) bool, True=keep"
WEIGHTS = "weights=True -> (y, w)"
CACHE = "forward(x, cache) -> (y, cache)"


@dataclass(frozen=True)
class Row:
    """A patient: the ill and the healthy class, inputs, intent, and the causes that are right."""

    name: str
    ill: Callable[[], Any] | None
    healthy: Callable[[], Any]
    inputs: Callable[[], tuple]
    causes: set[str] = field(default_factory=set)
    intent: dict[str, Any] = field(default_factory=dict)


def seeded(make, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def rand(*shape, seed=1):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def x_only():
    return (rand(2, T, D),)


def x_and_keep():
    keep = torch.ones(2, T, dtype=torch.bool)
    keep[1, 4:] = False
    return rand(2, T, D), keep


def heads(x, h):
    return x.unflatten(-1, (h, -1)).transpose(1, 2)


def unheads(x):
    return x.transpose(1, 2).flatten(2)


def triangle(n, m=None, offset=0):
    m = m or n
    return torch.ones(n, m).tril(m - n + offset).bool()


class Attention(nn.Module):
    """Self-attention in parts, so that each part can be replaced."""

    causal = False
    d, h = D, H

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(self.d, self.d) for _ in range(4))

    def project(self, x):
        return tuple(self.split(p(x)) for p in (self.q, self.k, self.v))

    def split(self, x):
        return heads(x, self.h)

    def merge(self, x):
        return unheads(x)

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])

    def allowed(self, t):
        return triangle(t) if self.causal else torch.ones(t, t, dtype=torch.bool)

    def hide(self, s, keep):
        allowed = self.allowed(s.shape[-1])
        if keep is not None:
            allowed = allowed & keep[:, None, None, :]
        return s.masked_fill(~allowed, -math.inf)

    def probs(self, s):
        return s.softmax(-1)

    def forward(self, x, keep=None, weights=False):
        q, k, v = self.project(x)
        w = self.probs(self.hide(self.scores(q, k), keep))
        y = self.out(self.merge(w @ v))
        return (y, w) if weights else y


class Causal(Attention):
    causal = True


def full_tokens():
    return (torch.randint(2, 20, (2, T), generator=torch.Generator().manual_seed(1)),)


def wide():
    return (rand(2, T, 24),)


def large_half():
    return (120 * rand(2, T, D),)


def some_empty():
    keep = torch.ones(3, T, dtype=torch.bool)
    keep[1] = False
    return rand(3, T, D), keep


def length():
    return (32,)


def left_padded():
    keep = torch.ones(2, T, dtype=torch.bool)
    keep[0, :2] = False
    return rand(2, T, D), keep


def intent(**said):
    return {"input": "embed", "d_model": D, "heads": H, "causal": False, "mask": None} | said


CAUSAL = intent(causal=True)
PADDED = intent(mask=KEEP)
SHOWN = intent(causal=True, weights=WEIGHTS)
ORDERED = intent(order_matters=True)
BOTH = intent(weights=WEIGHTS)
ALONE = intent(causal=None)
CROSS = intent(input="tgt_src_embed")
STEPS = intent(causal=True, cache=CACHE)
HALF = intent(dtypes=["float32", "float16"])
