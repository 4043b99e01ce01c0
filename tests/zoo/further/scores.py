"""Scales and softmaxes that are wrong, beside the right ones."""

import math

import torch
import torch.nn.functional as F

from zoo.further.base import Attention, Causal, unheads


class ByModel(Attention):
    d, h = 24, 3

    def scores(self, q, k):
        return q @ k.transpose(-2, -1) / math.sqrt(self.d)


class ByHead(Attention):
    d, h = 24, 3


class TwiceScaled(Attention):
    def forward(self, x, keep=None, weights=False):
        q, k, v = self.project(x)
        return self.out(unheads(F.scaled_dot_product_attention(q * q.shape[-1] ** -0.5, k, v)))


class OnceScaled(Attention):
    def forward(self, x, keep=None, weights=False):
        q, k, v = self.project(x)
        return self.out(unheads(F.scaled_dot_product_attention(q, k, v)))


class OddScale(Attention):
    def scores(self, q, k):
        return q @ k.transpose(-2, -1) * 0.05


class OverBatch(Attention):
    def probs(self, s):
        return s.softmax(0)


class Twice(Attention):
    def probs(self, s):
        return s.softmax(-1).softmax(-1)


class Logs(Attention):
    def probs(self, s):
        return s.log_softmax(-1)


class LinearAttention(Causal):
    def total(self, k):
        return k.sum(2, keepdim=True).expand_as(k)

    def forward(self, x, keep=None, weights=False):
        q, k, v = self.project(x)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state = torch.einsum("bhtk,bhtv->bhtkv", k, v).cumsum(2)
        y = torch.einsum("bhtk,bhtkv->bhtv", q, state)
        return self.out(unheads(y / (q * self.total(k)).sum(-1, keepdim=True)))


class RunningLinear(LinearAttention):
    def total(self, k):
        return k.cumsum(2)
