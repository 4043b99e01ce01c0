"""Blocks, parameters, and what couples tokens outside the attention."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from zoo.further.base import Attention, Causal, D, H


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n1, self.n2 = Attention(), nn.LayerNorm(D), nn.LayerNorm(D)
        self.ffn = nn.Sequential(nn.Linear(D, 24), nn.GELU(), nn.Linear(24, D))

    def forward(self, x):
        x = x + self.a(self.n1(x))
        return x + self.ffn(self.n2(x))


class NoFfnResidual(Block):
    def forward(self, x):
        x = x + self.a(self.n1(x))
        return self.ffn(self.n2(x))


class NoResidual(Block):
    def forward(self, x):
        x = self.a(self.n1(x))
        return x + self.ffn(self.n2(x))


class ParallelBlock(Block):
    def forward(self, x):
        return x + self.a(self.n1(x)) + self.ffn(self.n2(x))


class PostNormBlock(Block):
    def forward(self, x):
        x = self.n1(x + self.a(x))
        return self.n2(x + self.ffn(x))


def blocks(make):
    return lambda: nn.Sequential(make(), make())


def copied_blocks():
    block = Block()
    return nn.Sequential(*(copy.deepcopy(block) for _ in range(2)))


class InDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = self.hold({"a": Attention(), "b": Attention()})

    def hold(self, parts):
        return parts

    def forward(self, x):
        return x + self.parts["a"](x) + self.parts["b"](x)


class InModuleDict(InDict):
    def hold(self, parts):
        return nn.ModuleDict(parts)


class LooseParameter(Attention):
    def __init__(self):
        super().__init__()
        self.gains = [nn.Parameter(torch.ones(D))]

    def forward(self, x, keep=None, weights=False):
        return super().forward(x) * self.gains[0]


class CutOff(Attention):
    def project(self, x):
        q, k, v = super().project(x)
        return q.detach(), k, v


class MeanOverTokens(Causal):
    """Centres each feature over the sequence."""

    def forward(self, x, keep=None, weights=False):
        return super().forward(x - x.mean(1, keepdim=True))


class CentresFeatures(Causal):
    def forward(self, x, keep=None, weights=False):
        return super().forward(x - x.mean(-1, keepdim=True))


class Convolved(Causal):
    pads = (1, 1)

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(D, D, 3)

    def forward(self, x, keep=None, weights=False):
        z = self.conv(F.pad(x.transpose(1, 2), self.pads)).transpose(1, 2)
        return x + super().forward(x) + z


class ConvolvedCausal(Convolved):
    pads = (2, 0)


class SeqFirst(nn.Module):
    first = False

    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(D, H, 24, dropout=0.0, batch_first=self.first)

    def forward(self, x):
        return self.layer(x)


class BatchFirst(SeqFirst):
    first = True
