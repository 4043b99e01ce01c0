"""Heads that are split, merged, repeated or copied wrongly."""

from torch import nn

from zoo.further.base import Attention, Causal, D, H, heads


class MergedWrong(Attention):
    def merge(self, x):
        return x.reshape(x.shape[0], x.shape[2], -1)


class CausalMergedWrong(Causal):
    def merge(self, x):
        return x.reshape(x.shape[0], x.shape[2], -1)


class ValuesAreKeys(Attention):
    def project(self, x):
        return self.split(self.q(x)), self.split(self.k(x)), self.split(self.k(x))


class Grouped(Attention):
    h, kv = 4, 2

    def __init__(self):
        super().__init__()
        width = self.d // self.h
        self.k, self.v = (nn.Linear(self.d, self.kv * width) for _ in range(2))

    def repeat(self, t, values):
        return t.repeat_interleave(self.h // self.kv, 1)

    def project(self, x):
        k, v = (heads(p(x), self.kv) for p in (self.k, self.v))
        return heads(self.q(x), self.h), self.repeat(k, False), self.repeat(v, True)


class GroupsDiffer(Grouped):
    def repeat(self, t, values):
        n = self.h // self.kv
        return t.repeat(1, n, 1, 1) if values else t.repeat_interleave(n, 1)


class OneGroup(Grouped):
    def repeat(self, t, values):
        return t[:, :1].expand(-1, self.h, -1, -1)


class Copies(Attention):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(D, D // H) for _ in range(3))

    def split(self, x):
        return x[:, None].expand(-1, H, -1, -1)
