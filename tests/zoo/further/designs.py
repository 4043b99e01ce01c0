"""Designs that look odd and are right."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from zoo.further.base import Attention, Causal, D, H, heads, triangle, unheads


class SoftmaxOne(Causal):
    def probs(self, s):
        e = (s - s.amax(-1, keepdim=True).clamp(min=0)).exp()
        return e / ((-s.amax(-1, keepdim=True).clamp(min=0)).exp() + e.sum(-1, keepdim=True))


class Cosine(Attention):
    def scores(self, q, k):
        return 10 * F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).transpose(-2, -1)


class QkNorm(Attention):
    def __init__(self):
        super().__init__()
        self.q_norm, self.k_norm = nn.RMSNorm(D // H, eps=1e-6), nn.RMSNorm(D // H, eps=1e-6)

    def scores(self, q, k):
        return super().scores(self.q_norm(q), self.k_norm(k))


class NormsUnused(QkNorm):
    def scores(self, q, k):
        return Attention.scores(self, q, k)


class Differential(Attention):
    def __init__(self):
        super().__init__()
        self.q2, self.k2, self.mix = (
            nn.Linear(D, D),
            nn.Linear(D, D),
            nn.Parameter(torch.tensor(0.4)),
        )

    def forward(self, x, keep=None, weights=False):
        q, k, v = self.project(x)
        q2, k2 = heads(self.q2(x), H), heads(self.k2(x), H)
        w = self.scores(q, k).softmax(-1) - self.mix * self.scores(q2, k2).softmax(-1)
        return self.out(unheads(w @ v))


class Gated(Attention):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(D, D)

    def forward(self, x, keep=None, weights=False):
        return super().forward(x) * self.gate(x).sigmoid()


class Registers(nn.Module):
    def __init__(self):
        super().__init__()
        self.attend, self.registers = Attention(), nn.Parameter(torch.randn(2, D))

    def forward(self, x):
        return self.attend(torch.cat([self.registers.expand(len(x), -1, -1), x], 1))


class Slots(nn.Module):
    def __init__(self):
        super().__init__()
        self.slots, self.a = nn.Parameter(torch.randn(3, D)), Attention()

    def forward(self, x):
        q = self.a.q(self.slots).expand(len(x), -1, -1)
        k, v = self.a.k(x), self.a.v(x)
        w = (q @ k.transpose(1, 2) / math.sqrt(D)).softmax(1) + 1e-8
        return self.a.out(w / w.sum(-1, keepdim=True) @ v)


class Retention(Causal):
    def forward(self, x, keep=None, weights=False):
        q, k, v = self.project(x)
        i = torch.arange(x.shape[1])
        decay = 0.9 ** (i[:, None] - i[None, :]).clamp(min=0) * triangle(x.shape[1])
        return self.out(unheads((q @ k.transpose(-2, -1) * decay) @ v))


class Gru(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(D, D, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0]


class Sink(Causal):
    """A learned logit that takes weight and gives nothing."""

    def __init__(self):
        super().__init__()
        self.sink = nn.Parameter(torch.randn(H, 1, 1))

    def probs(self, s):
        sink = self.sink.expand(len(s), -1, s.shape[2], -1)
        return torch.cat([s, sink], -1).softmax(-1)[..., :-1]


class SinkUnscaled(Sink):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1)


class LearnedKeys(Attention):
    """Three keys and values are parameters, beside those of the tokens."""

    def __init__(self):
        super().__init__()
        self.more = nn.Parameter(torch.randn(2, 1, H, 3, D // H))

    def project(self, x):
        q, k, v = super().project(x)
        k, v = (
            torch.cat([m.expand(len(x), -1, -1, -1), t], 2)
            for m, t in zip(self.more, (k, v), strict=True)
        )
        return q, k, v

    def hide(self, s, keep):
        return s


class LearnedKeysByModel(LearnedKeys):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / D**0.5


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.pos = nn.Embedding(20, D), nn.Embedding(64, D)
        self.block, self.head = Causal(), nn.Linear(D, 20, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens) + self.pos(torch.arange(tokens.shape[1]))
        return self.head(x + self.block(x))


class Learned2(nn.Module):
    """Positions that start at zero."""

    def __init__(self):
        super().__init__()
        self.pos, self.attend = nn.Parameter(torch.zeros(1, 64, D)), Attention()

    def forward(self, x):
        return self.attend(x + self.pos[:, : x.shape[1]])
