"""Padding that stands on the left alone, and memories whose order is seen."""

import torch
from torch import nn
from torch.nn import functional as F

from zoo.further.base import (
    KEEP,
    Attention,
    Causal,
    D,
    H,
    Row,
    T,
    heads,
    intent,
    left_padded,
    rand,
    unheads,
)


class CountsFromTheEnd(Attention):
    """Takes from the mask how many tokens are real, and looks for them at the end."""

    def first(self, keep):
        return keep.shape[1] - keep.sum(1)

    def hide(self, s, keep):
        real = torch.arange(keep.shape[1]) >= self.first(keep)[:, None]
        return super().hide(s, real)


class CausalFromTheEnd(CountsFromTheEnd, Causal):
    def hide(self, s, keep):
        return super().hide(s, keep).clamp(min=-1e4)


class OneTooMany(CountsFromTheEnd):
    def first(self, keep):
        return super().first(keep) - 1


class CausalOneTooMany(CausalFromTheEnd):
    def first(self, keep):
        return super().first(keep) - 1


class Reads(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.o = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)
        self.pos = nn.Embedding(64, D)

    def key_values(self, memory):
        return self.kv(memory).chunk(2, -1)

    def forward(self, x, memory):
        x = x + self.pos(torch.arange(x.shape[1]))
        q, k, v = (heads(t, H) for t in (self.q(x), *self.key_values(memory)))
        return self.o(unheads(F.scaled_dot_product_attention(q, k, v)))


class PlacesAgain(Reads):
    def key_values(self, memory):
        k, v = super().key_values(memory)
        return k + self.pos(torch.arange(memory.shape[1])), v


class NextValue(Reads):
    def key_values(self, memory):
        k, v = super().key_values(memory)
        return k, v.roll(-1, 1)


class EncodesFirst(Reads):
    """The positions of the memory belong to the encoder inside."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.TransformerEncoderLayer(D, H, 24, 0.0, batch_first=True)

    def key_values(self, memory):
        return super().key_values(self.encoder(memory + self.pos(torch.arange(memory.shape[1]))))


class Latents(Reads):
    """Reads raw bytes, as Perceiver does, and gives them positions."""

    def forward(self, x, context):
        return super().forward(x, context + self.pos(torch.arange(context.shape[1])))


def states():
    return rand(2, T - 1, D), rand(2, T + 1, D, seed=2)


LEFT = {"mask": KEEP + ", left padding"}
READ = intent(input="tgt_src_embed", causal=None)

FAULTS = [
    Row(
        "one padded key too many, on the left",
        OneTooMany,
        CountsFromTheEnd,
        left_padded,
        {"padding-leak"},
        intent(**LEFT),
    ),
    Row(
        "one padded key too many, on the left of a causal one",
        CausalOneTooMany,
        CausalFromTheEnd,
        left_padded,
        {"padding-leak"},
        intent(causal=True) | LEFT,
    ),
    Row("positions on the memory again", PlacesAgain, Reads, states, {"memory-order"}, READ),
    Row("values of the next place", NextValue, Reads, states, {"memory-order"}, READ),
]

LOOKALIKES = [
    Row("encodes its memory", None, EncodesFirst, states, intent=READ),
    Row("positions on raw input", None, Latents, states, intent=READ),
]
