"""Masks, windows and prefixes that are wrong, beside the right ones."""

import torch
from torch import nn

from zoo.further.base import Attention, Causal, D, triangle, unheads


class SeesNext(Causal):
    def allowed(self, t):
        return triangle(t, offset=1)


class UpsideDown(Causal):
    def allowed(self, t):
        return triangle(t).T


class CausalInTraining(Causal):
    def allowed(self, t):
        return triangle(t) if self.training else torch.ones(t, t, dtype=torch.bool)


class WeightsUnmasked(Causal):
    def forward(self, x, keep=None, weights=False):
        q, k, v = self.project(x)
        s = self.scores(q, k)
        w = self.probs(s if weights else self.hide(s, keep))
        y = self.out(self.merge(w @ v))
        return (y, w) if weights else y


class MaskAfterSoftmax(Causal):
    def hide(self, s, keep):
        return s

    def probs(self, s):
        return s.softmax(-1) * self.allowed(s.shape[-1])


class TinyMaskValue(Causal):
    def hide(self, s, keep):
        return s.masked_fill(~self.allowed(s.shape[-1]), -1e-9)


class PrettyMap(Causal):
    """The map that is returned is causal; the output is made from another one."""

    def forward(self, x, keep=None, weights=False):
        q, k, v = self.project(x)
        s = self.scores(q, k)
        y = self.out(self.merge(s.softmax(-1) @ v))
        return (y, self.probs(self.hide(s, keep))) if weights else y


class InvertedPadding(Attention):
    def hide(self, s, keep):
        return s.masked_fill(keep[:, None, None, :], -1e9)


class PaddingAsNumber(Attention):
    def hide(self, s, keep):
        return s + keep[:, None, None, :].float()


class TinyPadding(Attention):
    def hide(self, s, keep):
        return s.masked_fill(~keep[:, None, None, :], 1e-9)


class PaddingForgotten(Attention):
    def hide(self, s, keep):
        return s


class Stack(nn.Module):
    def __init__(self, kind=Attention, n=2):
        super().__init__()
        self.layers = nn.ModuleList(kind() for _ in range(n))

    def masks(self, keep):
        return [keep for _ in self.layers]

    def forward(self, x, keep=None):
        for layer, mask in zip(self.layers, self.masks(keep), strict=True):
            x = x + layer(x, mask)
        return x


class MaskInFirstLayer(Stack):
    def masks(self, keep):
        return [keep, *[None] * (len(self.layers) - 1)]


class StaleMask(Causal):
    def allowed(self, t):
        if getattr(self, "kept", None) is None or len(self.kept) != t:
            self.kept = triangle(t)
        return self.kept

    def hide(self, s, keep):
        if not hasattr(self, "keep") and keep is not None:
            self.keep = keep
        keep = self.keep if keep is not None and self.keep.shape == keep.shape else keep
        return super().hide(s, keep)


class Squeezes(Attention):
    def forward(self, x, keep=None, weights=False):
        return super().forward(x).squeeze().view(-1, x.shape[1], self.d)[:, :, :]

    def merge(self, x):
        return unheads(x.squeeze()) if x.ndim == 4 else x


class ChunkLeft(nn.Module):
    """Padding on the left, learned positions that count it."""

    def __init__(self):
        super().__init__()
        self.pos, self.attend = nn.Embedding(64, D), Attention()

    def places(self, keep):
        return torch.arange(keep.shape[1]).expand(keep.shape)

    def forward(self, x, keep):
        return self.attend(x + self.pos(self.places(keep)), keep)


class CountsReal(ChunkLeft):
    def places(self, keep):
        return (keep.long().cumsum(-1) - 1).clamp(min=0)


class Window(Causal):
    width = 3

    def allowed(self, t):
        i = torch.arange(t)
        back = i[:, None] - i[None, :]
        return (back >= 0) & (back < self.width)


class WindowTooWide(Window):
    width = 4


class PrefixLM(Causal):
    def allowed(self, t):
        mask = triangle(t)
        mask[:3, :3] = True
        return mask
