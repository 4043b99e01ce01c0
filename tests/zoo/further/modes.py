"""Dropout, half precision, NaN and side effects."""

import math

import torch.nn.functional as F
from torch import nn

from zoo.further.base import Attention, Causal, unheads
from zoo.further.scores import OnceScaled


class AlwaysDrops(Attention):
    def probs(self, s):
        return F.dropout(s.softmax(-1), 0.2)


class DropsInTraining(Attention):
    def probs(self, s):
        return F.dropout(s.softmax(-1), 0.2, self.training)


class NeverDrops(Attention):
    def __init__(self):
        super().__init__()
        self.drop = nn.Dropout(0.2)


class DropsFused(OnceScaled):
    p = 0.2

    def chance(self):
        return self.p

    def forward(self, x, keep=None, weights=False):
        y = F.scaled_dot_product_attention(*self.project(x), dropout_p=self.chance())
        return self.out(unheads(y))


class DropsFusedInTraining(DropsFused):
    def chance(self):
        return self.p if self.training else 0.0


class HugeMask(Causal):
    def hide(self, s, keep):
        return s.masked_fill(~self.allowed(s.shape[-1]), -1e9)


class ScalesLate(Attention):
    def scores(self, q, k):
        return (q @ k.transpose(-2, -1)) / math.sqrt(q.shape[-1])


class ScalesEarly(Attention):
    def scores(self, q, k):
        return (q / q.shape[-1]) @ (k * q.shape[-1] ** 0.5).transpose(-2, -1)


class EvalDiffers(Attention):
    def scores(self, q, k):
        return super().scores(q, k) * (1.0 if self.training else 1.3)


class WritesInput(Attention):
    def forward(self, x, keep=None, weights=False):
        x -= x.mean(-1, keepdim=True)
        return super().forward(x)


class EmptyMean(nn.Module):
    def count(self, keep):
        return keep.sum(1, keepdim=True)

    def forward(self, x, keep):
        return (x * keep[..., None]).sum(1) / self.count(keep)


class GuardedMean(EmptyMean):
    def count(self, keep):
        return keep.sum(1, keepdim=True).clamp(min=1)


class BadRoot(Attention):
    """A root of an exact zero: finite forward, infinite backward, and then 0 times infinity."""

    def forward(self, x, keep=None, weights=False):
        y = super().forward(x)
        gap = (y - y.detach()).pow(2).sum(-1, keepdim=True)
        return y + self.root(gap)

    def root(self, gap):
        return gap.sqrt()


class GoodRoot(BadRoot):
    def root(self, gap):
        return (gap + 1e-6).sqrt()
