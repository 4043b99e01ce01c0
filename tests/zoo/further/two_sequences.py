"""Queries and memories apart, sequence first, and padding that is told by tokens."""

import torch
from torch import nn
from torch.nn import functional as F

from zoo.further.base import D, H, Row, T, intent, rand, triangle


def tokens(length, low=1, seed=1, top=20):
    return torch.randint(low, top, (2, length), generator=torch.Generator().manual_seed(seed))


def hidden(n):
    return ~triangle(n)


def mha(**options):
    return nn.MultiheadAttention(D, H, **({"batch_first": True} | options))


class Decoder(nn.Module):
    """PyTorch's decoder with its first layout: (length, batch, features)."""

    def __init__(self):
        super().__init__()
        self.core = nn.TransformerDecoderLayer(D, H, 24, 0.0)

    def triangle(self, n):
        return hidden(n)

    def forward(self, src, tgt):
        return self.core(tgt, src, tgt_mask=self.triangle(tgt.size(0)))


class DecoderWithoutMask(Decoder):  # DaoyuanLi2816/Molecule-Generator#22
    def triangle(self, n):
        return None


class FirstToken(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.fc = nn.TransformerEncoderLayer(D, H, 24, 0.0), nn.Linear(D, 3)

    def pool(self, h):
        return h[0]

    def forward(self, x):
        return self.fc(self.pool(self.enc(x)))


class FirstSample(FirstToken):  # huggingface/candle#3010
    def pool(self, h):
        return h[:, 0]


class Luong(nn.Module):
    """State (batch, d) and memory (source, batch, d) give a context and weights."""

    def __init__(self):
        super().__init__()
        self.attn = nn.Linear(D, D)

    def normalise(self, energies):
        return energies.softmax(0)

    def forward(self, hidden, encoder_outputs):
        alpha = self.normalise((hidden * self.attn(encoder_outputs)).sum(2))
        return torch.einsum("sb,sbh->bh", alpha, encoder_outputs), alpha.t()


class LuongOverBatch(Luong):  # jadore801120/attention-is-all-you-need-pytorch#19
    def normalise(self, energies):
        return energies.softmax(1)


class Bahdanau(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, 1)

    def drop(self, score, lens):
        return score.masked_fill(torch.arange(score.size(1)) >= lens[:, None], float("-inf"))

    def forward(self, query, values, lens):
        score = self.v(torch.tanh(self.w1(query[:, None]) + self.w2(values))).squeeze(-1)
        weights = self.drop(score, lens).softmax(1)
        return torch.einsum("bs,bsd->bd", weights, values), weights


class BahdanauUnmasked(Bahdanau):  # tensorflow/tensorflow#43941
    def drop(self, score, lens):
        return score


class CrossAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.o = nn.Linear(D, D), nn.Linear(D, 2 * D), nn.Linear(D, D)

    def seen(self, n, m):
        return torch.ones(n, m, dtype=torch.bool)

    def forward(self, x, context):
        k, v = self.kv(context).chunk(2, -1)
        see = self.seen(x.size(1), context.size(1))
        return self.o(F.scaled_dot_product_attention(self.q(x), k, v, attn_mask=see))


class TriangleOnMemory(CrossAttention):  # zhouhaoyi/Informer2020#38
    def seen(self, n, m):
        return super().seen(n, m).tril()


class Translator(nn.Module):
    """Padding is token 1 in the source and token 2 in the target."""

    def __init__(self):
        super().__init__()
        self.se, self.te = nn.Embedding(23, D), nn.Embedding(20, D)
        self.encoder = nn.TransformerEncoderLayer(D, H, 24, 0.0, batch_first=True)
        self.own, self.cross = mha(), mha()

    def source_padding(self, src):
        return src == 1

    def target_padding(self, tgt):
        return tgt == 2

    def forward(self, src, tgt):
        m = self.encoder(self.se(src), src_key_padding_mask=src == 1)
        x, n = self.te(tgt), tgt.size(1)
        pad = {"key_padding_mask": self.target_padding(tgt), "attn_mask": hidden(n)}
        x = x + self.own(x, x, x, need_weights=False, **pad)[0]
        pad = {"key_padding_mask": self.source_padding(src)}
        return x + self.cross(x, m, m, need_weights=False, **pad)[0]


class SourcePaddingSeen(Translator):  # DaoyuanLi2816/Molecule-Generator#22
    def source_padding(self, src):
        return None


class TargetPaddingOfSource(Translator):  # hyunwoongko/transformer#11
    def target_padding(self, tgt):
        return tgt == 1


def source_and_target():
    src, tgt = tokens(T, low=3, top=23), tokens(5, low=3, seed=2)
    src[1, 4:], tgt[0, 3:] = 1, 2
    return src, tgt


def sequence_first():
    return rand(5, 2, D), rand(7, 2, D, seed=2)


def state_and_memory():
    return rand(3, D), rand(5, 3, D, seed=2)


def query_and_values():
    return rand(3, D), rand(3, T, D, seed=2), torch.tensor([6, 4, 2])


def target_and_context():
    return rand(2, T, D), rand(2, T, D, seed=2)


FIRST = {"layout": "sequence first (T, B, d)"}
TRANSLATES = intent(input="src_tgt_tokens", causal="tgt", pad_id={"src": 1, "tgt": 2})
READS = intent(input="state (B,d), memory (S,B,d)", heads=1, order_matters=False)
ASKS = intent(input="query (B,d), values (B,S,d)", heads=1, order_matters=False)

FAULTS = [
    Row(
        "no target mask, sequence first",
        DecoderWithoutMask,
        Decoder,
        sequence_first,
        {"future-leak"},
        intent(input="src_tgt_embed", causal="tgt") | FIRST,
    ),
    Row(
        "first sample for first token",
        FirstSample,
        FirstToken,
        lambda: (rand(T, 2, D),),
        {"not-batch-first", "wrong-sample"},
        intent(output="(B, classes)") | FIRST,
    ),
    Row(
        "softmax over the batch of queries",
        LuongOverBatch,
        Luong,
        state_and_memory,
        {"softmax-over-batch", "samples-mix", "index-in-batch"},
        READS,
    ),
    Row(
        "lengths without effect",
        BahdanauUnmasked,
        Bahdanau,
        query_and_values,
        {"padding-ignored"},
        ASKS | {"mask": "lens (B,) long, real values of each sample"},
    ),
    Row(
        "a triangle on the memory",
        TriangleOnMemory,
        CrossAttention,
        target_and_context,
        {"memory-truncated"},
        intent(input="tgt_src_embed", heads=1),
    ),
    Row(
        "source padding is read",
        SourcePaddingSeen,
        Translator,
        source_and_target,
        {"memory-padding-leak"},
        TRANSLATES,
    ),
    Row(
        "the source's pad token in the target",
        TargetPaddingOfSource,
        Translator,
        source_and_target,
        {"pad-id"},
        TRANSLATES,
    ),
]
