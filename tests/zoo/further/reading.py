"""Pooling, tokens, cross-attention, caches and losses."""

import torch
import torch.nn.functional as F
from torch import nn

from zoo.further.base import Attention, Causal, D, H, T, heads, rand, triangle, unheads
from zoo.further.positions import turn


class Pooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend = self.kind()

    kind = Attention

    def pick(self, y, keep):
        w = keep[..., None].float()
        return (y * w).sum(1) / w.sum(1)

    def forward(self, x, keep):
        return self.pick(self.attend(x, keep), keep)


class DividesByAll(Pooled):
    def pick(self, y, keep):
        return (y * keep[..., None]).mean(1)


class LastPlace(Pooled):
    def pick(self, y, keep):
        return y[:, -1]


class LastReal(Pooled):
    def pick(self, y, keep):
        return y[torch.arange(len(y)), keep.sum(1) - 1]


class FirstOfCausal(nn.Module):
    place = 0

    def __init__(self):
        super().__init__()
        self.attend, self.head = Causal(), nn.Linear(D, 3)

    def forward(self, x):
        return self.head(self.attend(x)[:, self.place])


class LastOfCausal(FirstOfCausal):
    place = -1


class TokenEncoder(nn.Module):
    pad = 0

    def __init__(self):
        super().__init__()
        self.embed, self.attend = nn.Embedding(20, D), Attention()

    def forward(self, tokens):
        return self.attend(self.embed(tokens), tokens != self.pad)


class WrongPad(TokenEncoder):
    pad = 1


def tokens():
    t = torch.randint(2, 20, (2, T), generator=torch.Generator().manual_seed(1))
    t[1, 4:] = 0
    return (t,)


class Cross(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = Attention()

    def attend(self, tgt, memory, keep):
        q = heads(self.a.q(tgt), H)
        k, v = (heads(p(memory), H) for p in (self.a.k, self.a.v))
        mask = None if keep is None else keep[:, None, None, :]
        return self.a.out(unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)))

    def forward(self, tgt, memory, memory_keep=None):
        return self.attend(tgt, memory, memory_keep)


class CrossSwapped(Cross):
    def forward(self, tgt, memory, memory_keep=None):
        return self.attend(memory, tgt, None)


class CrossUnmasked(Cross):
    def forward(self, tgt, memory, memory_keep=None):
        return self.attend(tgt, memory, None)


def two():
    return rand(2, 5, D), rand(2, 7, D, seed=2)


def two_and_keep():
    keep = torch.ones(2, 7, dtype=torch.bool)
    keep[0, 5:] = False
    return rand(2, 5, D), rand(2, 7, D, seed=2), keep


class Cached(Causal):
    def places(self, past, n):
        return past + torch.arange(n).float()

    def allowed_now(self, n, total):
        return triangle(n, total)

    def join(self, old, new):
        return torch.cat([old, new], 2)

    def forward(self, x, cache=None):
        q, k, v = self.project(x)
        n, past = x.shape[1], 0 if cache is None else cache[0].shape[2]
        q, k = (turn(t, self.places(past, n)) for t in (q, k))
        if cache is not None:
            k, v = self.join(cache[0], k), self.join(cache[1], v)
        mask = self.allowed_now(n, k.shape[2])
        return self.out(unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=mask))), (k, v)


class CachedWithoutOffset(Cached):
    def places(self, past, n):
        return torch.arange(n).float()


class CachedChunkSeesAll(Cached):
    def allowed_now(self, n, total):
        return triangle(n) if n == total else torch.ones(n, total, dtype=torch.bool)


class CacheForgets(Cached):
    def join(self, old, new):
        return torch.cat([old[:, :, -2:], new], 2)


class Loss(nn.Module):
    offset = 1

    def forward(self, logits, labels):
        n = logits.shape[1] - self.offset
        rows, wanted = logits[:, :n], labels[:, self.offset :]
        return F.cross_entropy(rows.flatten(0, 1), wanted.flatten())


class NotShifted(Loss):
    offset = 0


class ShiftedTwice(Loss):
    offset = 2


class CountsPadding(Loss):
    offset = 1

    def forward(self, logits, labels):
        labels = labels.clamp(min=0)
        return super().forward(logits, labels)


def logits_and_labels():
    source = torch.Generator().manual_seed(1)
    return rand(2, T, 11), torch.randint(0, 11, (2, T), generator=source)
