"""Healthy designs that ask much of a doctor: layouts, arguments, cells, gates and closures."""

import torch
from torch import nn
from torch.nn import functional as F

from zoo.further.base import Attention, D, H, Row, T, heads, intent, rand, triangle, unheads, x_only
from zoo.further.reported import data_and_mask
from zoo.further.two_sequences import Translator, hidden, mha, source_and_target, tokens


class PaddingSeesPadding(nn.Module):  # Biohub/esm#299
    def __init__(self):
        super().__init__()
        self.lin, self.out = nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x, keep):
        q, k, v = (heads(z, H) for z in self.lin(x).chunk(3, -1))
        same = (keep[:, :, None] == keep[:, None, :])[:, None]
        return self.out(unheads(F.scaled_dot_product_attention(q, k, v, attn_mask=same)))


class Latent(nn.Module):  # multi-head latent attention, arXiv:2405.04434
    def __init__(self):
        super().__init__()
        self.q, self.down = nn.Linear(D, 12 * H, bias=False), nn.Linear(D, 12, bias=False)
        self.up, self.o = nn.Linear(8, 16 * H, bias=False), nn.Linear(8 * H, D)

    def turn(self, x):
        a = torch.outer(torch.arange(x.shape[-2]).float(), torch.tensor([1.0, 0.01])).repeat(1, 2)
        return x * a.cos() + torch.cat((-x[..., 2:], x[..., :2]), -1) * a.sin()

    def forward(self, x):
        qn, qr = heads(self.q(x), H).split((8, 4), -1)
        c, kr = self.down(x).split((8, 4), -1)
        kn, v = heads(self.up(c), H).chunk(2, -1)
        s = (qn @ kn.mT + self.turn(qr) @ self.turn(kr)[:, None].mT) / 12**0.5
        w = s.masked_fill(hidden(x.size(1)), float("-inf")).softmax(-1)
        return self.o(unheads(w @ v))


class SlotCells(nn.Module):  # arXiv:2006.15055
    def __init__(self):
        super().__init__()
        self.slots, self.kv = nn.Parameter(torch.randn(3, D)), nn.Linear(D, 2 * D)
        self.q, self.cell = nn.Linear(D, D), nn.GRUCell(D, D)

    def forward(self, x):
        (k, v), s = self.kv(x).chunk(2, -1), self.slots.expand(len(x), -1, -1)
        for _ in range(2):
            a = (self.q(s) @ k.mT / D**0.5).softmax(1)
            u = (a / a.sum(-1, keepdim=True)) @ v
            s = self.cell(u.flatten(0, 1), s.flatten(0, 1)).view_as(s)
        return s, a


class LayerScale(nn.Module):  # arXiv:2103.17239
    def __init__(self):
        super().__init__()
        self.norm, self.att, self.gamma = nn.LayerNorm(D), mha(), nn.Parameter(1e-6 * torch.ones(D))

    def forward(self, x):
        h = self.norm(x)
        return x + self.gamma * self.att(h, h, h, need_weights=False)[0]


class ObjectQueries(nn.Module):  # facebookresearch/detr#355
    def __init__(self):
        super().__init__()
        self.query, self.norm = nn.Embedding(4, D), nn.LayerNorm(D)
        self.cross, self.cls = mha(batch_first=False), nn.Linear(D, 6)

    def forward(self, memory, mask):
        m = memory.transpose(0, 1)
        q = self.query.weight[:, None].expand(-1, m.size(1), -1)
        t = torch.zeros_like(q)
        t = self.norm(t + self.cross(t + q, m, m, key_padding_mask=mask)[0])
        return self.cls(t).transpose(0, 1)


class DropPath(nn.Module):  # arXiv:1603.09382
    drop_path = 0.2

    def __init__(self):
        super().__init__()
        self.att = mha()

    def forward(self, x):
        y = self.att(x, x, x, need_weights=False)[0]
        if self.training:
            y = y * (torch.rand(len(x), 1, 1) >= self.drop_path) / (1 - self.drop_path)
        return x + y


class TypesAndPlaces(nn.Module):
    def __init__(self):
        super().__init__()
        self.word, self.kind, self.place = (
            nn.Embedding(20, D),
            nn.Embedding(2, D),
            nn.Embedding(9, D),
        )
        self.att = mha()

    def forward(self, input_ids, token_type_ids, position_ids, attention_mask):
        x = self.word(input_ids) + self.kind(token_type_ids) + self.place(position_ids)
        return x + self.att(x, x, x, key_padding_mask=attention_mask == 0)[0]


class Closure(nn.Module):  # karpathy/minGPT keeps its feed-forward in a lambda
    def __init__(self):
        super().__init__()
        self.att, self.drop = mha(), nn.Dropout(0.1)
        self.mlp = nn.ModuleDict({"fc": nn.Linear(D, 24), "proj": nn.Linear(24, D)})
        m = self.mlp
        self.run = lambda x: self.drop(m["proj"](F.gelu(m["fc"](x))))

    def forward(self, x):
        x = x + self.att(x, x, x, attn_mask=hidden(x.size(1)), need_weights=False)[0]
        return x + self.run(x)


class MasksFromOutside(nn.Module):  # harvardnlp/annotated-transformer
    def __init__(self):
        super().__init__()
        self.own, self.cross = Attention(), Attention()

    def attend(self, a, x, m, mask):
        q, k, v = heads(a.q(x), H), heads(a.k(m), H), heads(a.v(m), H)
        s = a.scores(q, k).masked_fill(~mask[:, None], -1e9)
        return a.out(unheads(s.softmax(-1) @ v))

    def forward(self, src, tgt, src_mask, tgt_mask):
        x = tgt + self.attend(self.own, tgt, tgt, tgt_mask)
        return x + self.attend(self.cross, x, src, src_mask)


class Pointer(nn.Module):  # arXiv:1506.03134
    def __init__(self):
        super().__init__()
        self.w1, self.w2, self.v = nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, 1)
        self.cell = nn.GRUCell(D, D)

    def forward(self, items):
        b, n, d = items.shape
        h, x, out = items.new_zeros(b, d), items.mean(1), []
        for _ in range(n):
            h = self.cell(x, h)
            p = self.v(torch.tanh(self.w1(items) + self.w2(h)[:, None])).squeeze(-1).log_softmax(-1)
            out.append(p)
            x = (p.exp()[..., None] * items).sum(1)
        return torch.stack(out, 1)


class LocalThenFull(nn.Module):  # arXiv:2408.00118
    def __init__(self):
        super().__init__()
        self.a, self.b = mha(), mha()

    def forward(self, x):
        n = x.size(1)
        far = hidden(n) | triangle(n, offset=-3)
        x = x + self.a(x, x, x, attn_mask=far, need_weights=False)[0]
        return x + self.b(x, x, x, attn_mask=hidden(n), need_weights=False)[0]


def words_types_places():
    mask = torch.ones(2, T, dtype=torch.long)
    mask[1, 4:] = 0
    kinds = torch.tensor([[0, 0, 0, 1, 1, 1]] * 2)
    return tokens(T), kinds, torch.arange(T).expand(2, T), mask


def sentences_and_masks():
    mask = torch.ones(2, 1, 6, dtype=torch.bool)
    return rand(2, 6, D), rand(2, 5, D, seed=2), mask, triangle(5)[None]


LOOKALIKES = [
    Row(
        "padding sees padding",
        None,
        PaddingSeesPadding,
        data_and_mask,
        intent=intent(mask="keep (B,T) bool, True = residue"),
    ),
    Row("latent keys", None, Latent, x_only, intent=intent(causal=True)),
    Row(
        "slots with cells",
        None,
        SlotCells,
        x_only,
        intent=intent(order_matters=False, softmax="over the slots"),
    ),
    Row("layer scale", None, LayerScale, x_only, intent=intent()),
    Row(
        "object queries",
        None,
        ObjectQueries,
        lambda: (data_and_mask()[0], ~data_and_mask()[1]),
        intent=intent(order_matters=False, mask="mask (B,T) bool, True = outside of the image"),
    ),
    Row("dropped paths", None, DropPath, x_only, intent=intent(drop_path=0.2)),
    Row(
        "types and places",
        None,
        TypesAndPlaces,
        words_types_places,
        intent=intent(input="tokens, types, places", mask="attention_mask (B,T), 1 = attend"),
    ),
    Row("a closure", None, Closure, x_only, intent=intent(causal=True, dropout=0.1)),
    Row(
        "masks from outside",
        None,
        MasksFromOutside,
        sentences_and_masks,
        intent=intent(input="src_tgt_embed", causal="tgt", mask="src_mask, tgt_mask: True = see"),
    ),
    Row(
        "pointer",
        None,
        Pointer,
        x_only,
        intent=intent(heads=1, order_matters=False, output="(B,N,N) log-probabilities"),
    ),
    Row(
        "two vocabularies",
        None,
        Translator,
        source_and_target,
        intent=intent(input="src_tgt_tokens", causal="tgt", pad_id={"src": 1, "tgt": 2}),
    ),
    Row(
        "local, then full",
        None,
        LocalThenFull,
        lambda: (rand(2, 9, D),),
        intent=intent(causal=True, layers=2, window=3, layer_types=["local", "full"]),
    ),
]
