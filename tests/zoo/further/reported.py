"""Patients after public reports, in the ways that people write: each with its healthy twin."""

import torch
from torch import nn
from torch.nn import functional as F

from zoo.further.base import (
    ALONE,
    Attention,
    Causal,
    D,
    H,
    Row,
    heads,
    intent,
    rand,
    triangle,
    unheads,
    x_only,
)
from zoo.further.two_sequences import hidden, mha, tokens


class Latents(nn.Module):
    def __init__(self):
        super().__init__()
        self.latents, self.attend = nn.Parameter(torch.randn(3, D)), mha()

    def hidden(self, mask):
        return ~mask

    def forward(self, data, mask=None):
        q = self.latents.expand(len(data), -1, -1)
        hide = None if mask is None else self.hidden(mask)
        return q + self.attend(q, data, data, key_padding_mask=hide, need_weights=False)[0]


class LatentsReadPadding(Latents):  # lucidrains/halonet-pytorch#4
    def hidden(self, mask):
        return mask


class LeftPadded(nn.Module):
    """A causal model with learned positions; rows of padding see themselves."""

    def __init__(self):
        super().__init__()
        self.wte, self.wpe, self.att = nn.Embedding(20, D), nn.Embedding(32, D), mha()

    def positions(self, mask):
        return (mask.cumsum(-1) - 1).clamp(min=0)

    def forward(self, input_ids, attention_mask):
        x, n = self.wte(input_ids) + self.wpe(self.positions(attention_mask)), input_ids.size(1)
        hide = (hidden(n) | (attention_mask == 0)[:, None]) & ~torch.eye(n, dtype=torch.bool)
        hide = hide.repeat_interleave(H, 0)
        return self.finish(x + self.att(x, x, x, attn_mask=hide)[0], attention_mask)

    def finish(self, x, mask):
        return x


class PositionsOfPlaces(LeftPadded):  # ndif-team/nnsight#673
    def positions(self, mask):
        return torch.arange(mask.size(1))[None]


class LastToken(LeftPadded):
    def finish(self, x, mask):
        last = (mask * torch.arange(mask.size(1))).argmax(1)
        return x[torch.arange(len(x)), last]


class TokenAtTheSum(LeftPadded):  # huggingface/transformers#35909
    def finish(self, x, mask):
        return x[torch.arange(len(x)), mask.sum(1) - 1]


class Performer(nn.Module):
    def inverse(self, d):
        return 1 / d

    def forward(self, q, k, v):
        q, k = F.relu(q) + 1e-3, F.relu(k) + 1e-3
        d = self.inverse((q * k.cumsum(-2)).sum(-1, keepdim=True))
        return (
            torch.einsum("...nd,...nde->...ne", q, (k[..., None] * v[..., None, :]).cumsum(-3)) * d
        )


class TimesTheNormaliser(Performer):  # lucidrains/performer-pytorch#40
    def inverse(self, d):
        return d


class PreNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2, self.att = nn.LayerNorm(D), nn.LayerNorm(D), mha()
        self.mlp = nn.Sequential(nn.Linear(D, 24), nn.GELU(), nn.Linear(24, D))

    def past(self, x, n):
        return x

    def forward(self, x):
        n = self.n1(x)
        x = self.past(x, n) + self.att(n, n, n, need_weights=False)[0]
        n = self.n2(x)
        return self.past(x, n) + self.mlp(n)


class NormGoesPast(PreNorm):  # Howuhh/faster-trajectory-transformer#3
    def past(self, x, n):
        return n


class Rotation(nn.Module):
    """Queries and keys, turned."""

    def table(self, n, d):
        f = torch.outer(torch.arange(n).float(), 1e4 ** (-torch.arange(0, d, 2) / d))
        return torch.cat((f, f), -1)

    def forward(self, q, k):
        a = self.table(*q.shape[-2:])
        halves = [torch.cat((-x.chunk(2, -1)[1], x.chunk(2, -1)[0]), -1) for x in (q, k)]
        return tuple(x * a.cos() + h * a.sin() for x, h in zip((q, k), halves, strict=True))


class PairsAndHalves(Rotation):  # raiyanyahya/how-to-train-your-gpt#6
    def table(self, n, d):
        return super().table(n, d)[:, : d // 2].repeat_interleave(2, -1)


class TokenLoss(nn.Module):
    def count(self, mask):
        return mask.sum()

    def forward(self, logits, target, mask):
        ce = F.cross_entropy(logits.transpose(1, 2), target, reduction="none")
        return (ce * mask).sum() / self.count(mask)


class DividedByAll(TokenLoss):  # NovaSky-AI/SkyRL#462
    def count(self, mask):
        return mask.numel()


class LossInside(nn.Module):
    """A causal model of tokens that shifts its labels itself."""

    offset = 1

    def __init__(self):
        super().__init__()
        self.emb, self.pos, self.att = nn.Embedding(20, D), nn.Embedding(32, D), mha()
        self.head = nn.Linear(D, 20)

    def forward(self, input_ids, labels):
        n = input_ids.size(1)
        x = self.emb(input_ids) + self.pos.weight[:n]
        logits = self.head(x + self.att(x, x, x, attn_mask=hidden(n))[0])
        rows, wanted = logits[:, : n - self.offset], labels[:, self.offset :]
        return F.cross_entropy(rows.flatten(0, 1), wanted.flatten()), logits


class LossShiftsTwice(LossInside):  # huggingface/transformers#47394
    offset = 2


class LossShiftsNot(LossInside):  # huggingface/transformers#35066
    offset = 0


class Packed(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.att = nn.Embedding(20, D), mha()

    def same(self, rows):
        return rows[:, :, None] == rows[:, None, :]

    def forward(self, input_ids, seq_ids):
        x, n = self.emb(input_ids), input_ids.size(1)
        hide = ~(self.same(seq_ids) & triangle(n)).repeat_interleave(H, 0)
        return x + self.att(x, x, x, attn_mask=hide, need_weights=False)[0]


class PackedTogether(Packed):  # axolotl-ai-cloud/axolotl#3796
    def same(self, rows):
        return torch.ones_like(rows, dtype=torch.bool)[:, :, None]


class TopKeys(Causal):
    """Only the three strongest keys are read."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(D, 1)

    def strength(self, g, n):
        return g.mT.expand(-1, n, -1).masked_fill(hidden(n), float("-inf"))

    def forward(self, x):
        q, k, v = self.project(x)
        g, n = self.gate(x), x.size(1)
        keep = torch.zeros(len(x), n, n, dtype=torch.bool)
        keep.scatter_(2, self.strength(g, n).topk(3).indices, True)
        keep = ((keep & triangle(n)) | torch.eye(n, dtype=torch.bool))[:, None]
        y = F.scaled_dot_product_attention(q, k, v * g.sigmoid()[:, None], attn_mask=keep)
        return self.out(unheads(y))


class TopKeysOfAll(TopKeys):  # HKUSTDial/flash-sparse-attention#146
    def strength(self, g, n):
        return g.mT.expand(-1, n, -1)


class FusedOrShown(Attention):
    def shown_mask(self, keep):
        return keep

    def forward(self, x, keep=None, weights=False):
        if weights:
            return super().forward(x, self.shown_mask(keep), weights=True)
        q, k, v = (heads(p(x), H) for p in (self.q, self.k, self.v))
        see = None if keep is None else keep[:, None, None]
        return self.out(unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=see)))


class ShownWithoutMask(FusedOrShown):  # huggingface/transformers#30652
    def shown_mask(self, keep):
        return None


class AnyBatch(Attention):
    def forward(self, x, keep):
        return super().forward(x, self.used(keep))

    def used(self, keep):
        return keep


class BatchOfOneUnmasked(AnyBatch):  # huggingface/transformers#46773
    def used(self, keep):
        return keep if len(keep) > 1 else None


def data_and_mask():
    keep = torch.ones(2, 7, dtype=torch.bool)
    keep[1, 5:] = False
    return rand(2, 7, D), keep


def left_padded_tokens():
    mask = torch.ones(2, 6, dtype=torch.long)
    mask[1, :3] = 0
    return tokens(6), mask


def logits_target_mask():
    return rand(2, 6, 11), tokens(6, low=0, top=11), left_padded_tokens()[1].flip(1)


LEFT = intent(input="tokens", causal=True, mask="attention_mask (B,T), 1 = real; left padding")
LABELS = intent(input="tokens", causal=True, output="(loss, logits)")

FAULTS = [
    Row(
        "latents read padding",
        LatentsReadPadding,
        Latents,
        data_and_mask,
        {"padding-inverted"},
        intent(mask="mask (B,T) bool, True = valid", order_matters=False, output="(B,3,d)"),
    ),
    Row(
        "positions start at the padding",
        PositionsOfPlaces,
        LeftPadded,
        left_padded_tokens,
        {"left-padding-positions"},
        LEFT,
    ),
    Row(
        "the last token of right padding",
        TokenAtTheSum,
        LastToken,
        left_padded_tokens,
        {"pooling-includes-padding", "pooling-wrong-token"},
        LEFT | {"output": "(B,d)"},
    ),
    Row(
        "times the normaliser",
        TimesTheNormaliser,
        Performer,
        lambda: tuple(rand(2, 2, 6, 8, seed=s) for s in (1, 2, 3)),
        {"unnormalised"},
        intent(input="q, k, v (B,h,T,d)", causal=True),
    ),
    Row("the norm goes past", NormGoesPast, PreNorm, x_only, {"residual-normed"}, intent()),
    Row(
        "rotation in pairs and halves",
        PairsAndHalves,
        Rotation,
        lambda: (rand(2, 2, 7, 8), rand(2, 2, 7, 8, seed=2)),
        {"rotation-layout"},
        ALONE | {"input": "q, k (B,h,T,d)", "output": "(q, k)"},
    ),
    Row(
        "divided by all tokens",
        DividedByAll,
        TokenLoss,
        logits_target_mask,
        {"labels-of-padding"},
        ALONE | {"input": "logits, target", "mask": "mask (B,T), 1 = real", "output": "loss"},
    ),
    Row(
        "a model that shifts twice",
        LossShiftsTwice,
        LossInside,
        lambda: (tokens(7), tokens(7, seed=3)),
        {"labels-shifted-twice"},
        LABELS,
    ),
    Row(
        "a model that does not shift",
        LossShiftsNot,
        LossInside,
        lambda: (tokens(7), tokens(7)),
        {"labels-not-shifted"},
        LABELS,
    ),
    Row(
        "packed rows by another name",
        PackedTogether,
        Packed,
        lambda: (tokens(6), torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 1, 2, 2, 2]])),
        {"documents-mix"},
        intent(input="tokens", causal=True, mask="seq_ids (B,T) long, number of the packed row"),
    ),
    Row(
        "top keys of all",
        TopKeysOfAll,
        TopKeys,
        lambda: (rand(2, 8, D),),
        {"future-leak", "leak-outside-attention"},
        intent(causal=True),
    ),
    Row(
        "the mask is lost with the weights",
        ShownWithoutMask,
        FusedOrShown,
        data_and_mask,
        {"weights-change-output"},
        intent(mask="keep (B,T) bool, True = real", weights="weights=True -> (y, w)"),
    ),
    Row(
        "one sample is not masked",
        BatchOfOneUnmasked,
        AnyBatch,
        data_and_mask,
        {"padding-ignored"},
        intent(mask="keep (B,T) bool, True = real"),
    ),
]
