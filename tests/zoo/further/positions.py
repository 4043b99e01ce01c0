"""Positions: forgotten, on the wrong axis, turned the wrong way."""

import math

import torch
from torch import nn

from zoo.further.base import Attention, Causal, D


class Positioned(nn.Module):
    def __init__(self):
        super().__init__()
        self.pos, self.attend = nn.Embedding(64, D), Attention()

    def place(self, x):
        return x + self.pos(torch.arange(x.shape[1]))

    def forward(self, x):
        return self.attend(self.place(x))


class Forgotten(Positioned):
    def place(self, x):
        self.pos(torch.arange(x.shape[1]))
        return x


class SamePlace(Positioned):
    def place(self, x):
        return x + self.pos(torch.zeros(x.shape[1], dtype=torch.long))


def turn(x, places, base=100.0, interleaved=False):
    freq = base ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    angle = places[:, None] * freq
    c, s = angle.cos(), angle.sin()
    if interleaved:
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2)
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, a * s + b * c], -1)


class Rotary(Attention):
    signs = (1, 1)
    interleaved = False

    def project(self, x):
        q, k, v = super().project(x)
        i = torch.arange(x.shape[1]).float()
        options = {"interleaved": self.interleaved}
        return turn(q, self.signs[0] * i, **options), turn(k, self.signs[1] * i, **options), v


class RotaryCausal(Rotary):
    causal = True


class RotaryOverHeads(RotaryCausal):
    """Turns by the number of the head."""

    def project(self, x):
        q, k, v = Attention.project(self, x)
        i = torch.arange(q.shape[1]).float()
        return *(turn(t.transpose(1, 2), i).transpose(1, 2) for t in (q, k)), v


class RotaryInterleaved(Rotary):
    interleaved = True


class RotaryOpposite(Rotary):
    signs = (1, -1)


class RotaryMixed(Attention):
    """Angles for neighbours, swap for halves."""

    def project(self, x):
        q, k, v = super().project(x)
        freq = 100.0 ** (-torch.arange(0, q.shape[-1], 2) / q.shape[-1])
        angle = (torch.arange(x.shape[1])[:, None] * freq).repeat_interleave(2, -1)
        swap = [torch.cat([-b, a], -1) for a, b in (t.chunk(2, -1) for t in (q, k))]
        q, k = (t * angle.cos() + u * angle.sin() for t, u in zip((q, k), swap, strict=True))
        return q, k, v


class RotaryKeysLag(Rotary):
    def project(self, x):
        q, k, v = Attention.project(self, x)
        i = torch.arange(x.shape[1]).float()
        return turn(q, i), turn(k, i // 2), v


class RotaryValues(Rotary):
    def project(self, x):
        q, k, v = super().project(x)
        return q, k, turn(v, torch.arange(x.shape[1]).float())


class Alibi(Causal):
    sign = -1

    def scores(self, q, k):
        i = torch.arange(q.shape[2])
        slope = 2.0 ** (-4 * torch.arange(1, self.h + 1) / self.h)
        distance = (i[:, None] - i[None, :]).abs()
        return super().scores(q, k) + self.sign * slope[:, None, None] * distance


class AlibiRewards(Alibi):
    sign = 1


class AlibiEncoder(Alibi):
    causal = False


class AlibiEncoderRewards(AlibiEncoder):
    sign = 1


class Table(nn.Module):
    def angle(self, n):
        return torch.arange(n)[:, None] * 10000.0 ** (-torch.arange(0, D, 2) / D)

    def forward(self, n):
        a = self.angle(n)
        return torch.stack([a.sin(), a.cos()], -1).flatten(1)


class SinesOnly(Table):
    def forward(self, n):
        a = self.angle(n)
        return torch.stack([a.sin(), a.sin()], -1).flatten(1)


class WholeNumbers(Table):
    def angle(self, n):
        return (torch.arange(n) // 2)[:, None] * 10000.0 ** (-torch.arange(0, D, 2) / D)


class Adds(nn.Module):
    """Adds a table to embeddings."""

    def __init__(self):
        super().__init__()
        self.register_buffer("table", Table()(64))

    def rows(self, x):
        return self.table[: x.shape[1]]

    def forward(self, x):
        return x * math.sqrt(D) + self.rows(x)


class AddsOnBatch(Adds):
    def rows(self, x):
        return self.table[: x.shape[0], None]


class AddsOneRow(Adds):
    def rows(self, x):
        return self.table[x.shape[1]]
