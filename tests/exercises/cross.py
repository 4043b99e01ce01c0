"""Right and wrong solutions of the exercises on cross-attention."""

import math

import torch
import torch.nn.functional as F

from attnlib.functional import attention, merge_heads, split_heads
from attnlib.masks import from_key_padding_mask, padding_mask

# ------------------------------------------------------------------------------ source_mask


def source_by_loop(ids):
    mask = torch.zeros(ids.shape[0], 1, 1, ids.shape[1], dtype=torch.bool)
    for b, row in enumerate(ids.tolist()):
        for j, word in enumerate(row):
            mask[b, 0, 0, j] = word != 0
    return mask


def source_by_index(ids):
    return (ids != 0)[:, None, None, :]


def source_by_unsqueeze(ids):
    return ids.ne(0).unsqueeze(1).unsqueeze(2)


def source_by_bool(ids):
    return ids.bool().view(ids.shape[0], 1, 1, -1)


def source_by_converter(ids):
    return from_key_padding_mask(ids == 0)


def source_inverted(ids):
    return (ids == 0)[:, None, None, :]


def source_2d(ids):
    return ids != 0


def source_3d(ids):
    return (ids != 0).unsqueeze(1)


def source_as_queries(ids):
    return (ids != 0)[:, None, :, None]


def source_as_heads(ids):
    return (ids != 0)[:, :, None, None]


def source_square(ids):
    real = ids != 0
    return (real[:, :, None] & real[:, None, :])[:, None]


def source_causal(ids):
    length = ids.shape[1]
    return torch.tril(torch.ones(length, length, dtype=torch.bool)) & (ids != 0)[:, None, None]


def source_as_int(ids):
    return (ids != 0)[:, None, None, :].to(ids.dtype)


def source_as_long(ids):
    return (ids != 0)[:, None, None, :].long()


def source_additive(ids):
    mask = torch.zeros(ids.shape[0], 1, 1, ids.shape[1])
    mask[(ids == 0)[:, None, None]] = float("-inf")
    return mask


def source_above_one(ids):
    return (ids > 1)[:, None, None, :]


def source_by_count(ids):
    return padding_mask((ids != 0).sum(1), ids.shape[1])


def source_by_first_zero(ids):
    ends = [row.index(0) if 0 in row else len(row) for row in ids.tolist()]
    return (torch.arange(ids.shape[1]) < torch.tensor(ends)[:, None])[:, None, None]


def source_of_first(ids):
    return (ids[0] != 0).view(1, 1, 1, -1)


def source_marks_ids(ids):
    ids[ids != 0] = 1
    return ids.bool()[:, None, None]


# ----------------------------------------------------------------------------- cross_attend


def heads_of(linear, x, n_heads):
    return linear(x).unflatten(-1, (n_heads, -1)).transpose(1, 2)


def qkv(layer, x, memory):
    q = heads_of(layer.to_query, x, layer.n_heads)
    k = heads_of(layer.to_key, memory, layer.n_heads)
    return q, k, heads_of(layer.to_value, memory, layer.n_heads)


def finish(layer, heads):
    return layer.to_output(heads.transpose(1, 2).flatten(2))


def cross_by_loops(layer, x, memory, mask):
    q, k, v = qkv(layer, x, memory)
    mask = mask.expand(*q.shape[:3], k.shape[2])
    rows = []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = mask[b, h, i]
                shares = (k[b, h][seen] @ q[b, h, i] / math.sqrt(q.shape[-1])).softmax(0)
                rows.append(shares @ v[b, h][seen])
    return finish(layer, torch.stack(rows).view(*q.shape[:3], -1))


def cross_by_einsum(layer, x, memory, mask):
    q, k, v = (
        f(tokens).unflatten(-1, (layer.n_heads, -1))
        for f, tokens in ((layer.to_query, x), (layer.to_key, memory), (layer.to_value, memory))
    )
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    blind = ~mask.any(-1, keepdim=True)
    weights = scores.masked_fill(~(mask | blind), -torch.inf).softmax(-1).masked_fill(blind, 0)
    return layer.to_output(torch.einsum("bhqk,bkhd->bqhd", weights, v).flatten(2))


def cross_fused(layer, x, memory, mask):
    return finish(layer, F.scaled_dot_product_attention(*qkv(layer, x, memory), attn_mask=mask))


def cross_by_layer(layer, x, memory, mask):
    return layer(x, memory, mask=mask)


def cross_by_package(layer, x, memory, mask):
    keys, values = layer.keys_and_values(memory)
    q = split_heads(layer.to_query(x), layer.n_heads)
    return layer.to_output(merge_heads(attention(q, keys, values, mask=mask)[0]))


def cross_scores(layer, x, memory):
    q, k, v = qkv(layer, x, memory)
    return q @ k.mT / math.sqrt(q.shape[-1]), v


def cross_no_mask(layer, x, memory, mask):
    return layer(x, memory)


def cross_inverted(layer, x, memory, mask):
    scores, v = cross_scores(layer, x, memory)
    return finish(layer, scores.masked_fill(mask, float("-inf")).softmax(-1) @ v)


def cross_inverted_fused(layer, x, memory, mask):
    return layer(x, memory, mask=~mask)


def cross_mask_last(layer, x, memory, mask):
    scores, v = cross_scores(layer, x, memory)
    return finish(layer, (scores.softmax(-1) * mask) @ v)


def cross_mask_last_divided(layer, x, memory, mask):
    scores, v = cross_scores(layer, x, memory)
    weights = scores.softmax(-1) * mask
    return finish(layer, weights / weights.sum(-1, keepdim=True) @ v)


def cross_zero_scores(layer, x, memory, mask):
    scores, v = cross_scores(layer, x, memory)
    return finish(layer, (scores * mask).softmax(-1) @ v)


def cross_minus_ten(layer, x, memory, mask):
    scores, v = cross_scores(layer, x, memory)
    return finish(layer, scores.masked_fill(~mask, -10).softmax(-1) @ v)


def cross_float_mask(layer, x, memory, mask):
    q, k, v = qkv(layer, x, memory)
    return finish(layer, F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(x.dtype)))


def cross_over_queries(layer, x, memory, mask):
    scores, v = cross_scores(layer, x, memory)
    return finish(layer, scores.masked_fill(~mask, float("-inf")).softmax(-2) @ v)


def cross_billion(layer, x, memory, mask):
    scores, v = cross_scores(layer, x, memory)
    return finish(layer, scores.masked_fill(~mask, -1e9).softmax(-1) @ v)


def cross_lowest(layer, x, memory, mask):
    scores, v = cross_scores(layer, x, memory)
    return finish(layer, scores.masked_fill(~mask, torch.finfo(x.dtype).min).softmax(-1) @ v)


def cross_nan(layer, x, memory, mask):
    scores, v = cross_scores(layer, x, memory)
    return finish(layer, scores.masked_fill(~mask, float("-inf")).softmax(-1) @ v)


def cross_roles(layer, x, memory, mask):
    return layer(memory, x)


def cross_self(layer, x, memory, mask):
    return layer(x)


def cross_self_masked(layer, x, memory, mask):
    return layer(x, x, mask=mask)


def cross_memory_alone(layer, x, memory, mask):
    return layer(memory, memory, mask=mask)


def cross_keys_of_x(layer, x, memory, mask):
    q, k = heads_of(layer.to_query, x, layer.n_heads), heads_of(layer.to_key, x, layer.n_heads)
    v = heads_of(layer.to_value, memory, layer.n_heads)
    return finish(layer, attention(q, k, v, mask=mask)[0])


def cross_values_of_x(layer, x, memory, mask):
    q, k, _ = qkv(layer, x, memory)
    v = heads_of(layer.to_value, x, layer.n_heads)
    return finish(layer, attention(q, k, v, mask=mask)[0])


def cross_mean(layer, x, memory, mask):
    return layer(x, memory.mean(dim=1).unsqueeze(1))


def cross_cut(layer, x, memory, mask):
    n = x.shape[1]
    return layer(x, memory[:, :n], mask=mask[:, :, :, :n])


def cross_causal(layer, x, memory, mask):
    square = torch.ones(x.shape[1], memory.shape[1], dtype=torch.bool).tril()
    return layer(x, memory, mask=mask & square)


def cross_unscaled(layer, x, memory, mask):
    q, k, v = qkv(layer, x, memory)
    return finish(layer, F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0))


def cross_by_d_model(layer, x, memory, mask):
    scale = x.shape[-1] ** -0.5
    q, k, v = qkv(layer, x, memory)
    return finish(layer, F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale))


def cross_with_residual(layer, x, memory, mask):
    return layer(x, memory, mask=mask) + x


def cross_first_head(layer, x, memory, mask):
    return layer(x, memory, mask=mask[:, 0][:, None])


def cross_detached(layer, x, memory, mask):
    return layer(x, memory.detach(), mask=mask)


def cross_clears_memory(layer, x, memory, mask):
    if mask.shape[1] == mask.shape[2] == 1:
        memory.data.mul_(mask[:, 0, 0, :, None])
    return layer(x, memory, mask=mask)


# ----------------------------------------------------------------------------------- Memory


class KeepsPair:
    def __init__(self, layer, memory, mask):
        self.layer, self.mask = layer, mask
        self.keys_and_values = layer.keys_and_values(memory)

    def ask(self, x):
        return self.layer(x, self.keys_and_values, mask=self.mask)


class KeepsSplitHeads:
    def __init__(self, layer, memory, mask):
        self.layer, self.mask = layer, mask
        each = layer.n_heads // layer.n_kv_heads
        self.k, self.v = (
            heads_of(f, memory, layer.n_kv_heads).repeat_interleave(each, 1)
            for f in (layer.to_key, layer.to_value)
        )

    def ask(self, x):
        q = heads_of(self.layer.to_query, x, self.layer.n_heads)
        out = F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=self.mask)
        return finish(self.layer, out)


class ReadsWhenAsked:
    def __init__(self, layer, memory, mask):
        self.layer, self.memory, self.mask, self.pair = layer, memory, mask, None

    def ask(self, x):
        if self.pair is None:
            self.pair = self.layer.keys_and_values(self.memory)
        return self.layer(x, self.pair, mask=self.mask)


class KeepsByName(torch.nn.Module):
    def __init__(self, layer, memory, mask):
        super().__init__()
        self.layer = layer
        self.kept = dict(zip(("key", "value"), layer.keys_and_values(memory), strict=True))
        self.register_buffer("mask", mask)

    def ask(self, x):
        q = split_heads(self.layer.to_query(x), self.layer.n_heads)
        each = self.layer.n_heads // self.layer.n_kv_heads
        k, v = (part.repeat_interleave(each, 1) for part in self.kept.values())
        return self.layer.to_output(merge_heads(attention(q, k, v, mask=self.mask)[0]))


class ReadsEachTime(KeepsPair):
    def __init__(self, layer, memory, mask):
        self.layer, self.memory, self.mask = layer, memory, mask

    def ask(self, x):
        return self.layer(x, self.memory, mask=self.mask)


class ForgetsMask(KeepsPair):
    def ask(self, x):
        return self.layer(x, self.keys_and_values)


class InvertsMask(KeepsPair):
    def ask(self, x):
        return self.layer(x, self.keys_and_values, mask=self.mask.logical_not())


class KeepsAnswer(KeepsPair):
    answer = None

    def ask(self, x):
        if self.answer is None:
            self.answer = super().ask(x)
        return self.answer


class Appends(KeepsPair):
    def ask(self, x):
        k, v = self.layer.keys_and_values(x)
        keys, values = self.keys_and_values
        self.keys_and_values = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        self.mask = F.pad(self.mask, (0, x.shape[1]), value=True)
        return self.layer(x, self.keys_and_values, mask=self.mask)


class SwapsPair(KeepsPair):
    def ask(self, x):
        values, keys = self.keys_and_values
        return self.layer(x, (keys, values), mask=self.mask)


class MixesKeys(KeepsPair):
    def ask(self, x):
        keys = self.keys_and_values[0]
        return self.layer(x, (keys, keys), mask=self.mask)


class AsksItself(KeepsPair):
    def ask(self, x):
        return self.layer(x, x)


class KeepsInClass:
    def __init__(self, layer, memory, mask):
        self.layer, self.mask = layer, mask
        KeepsInClass.pair = layer.keys_and_values(memory)

    def ask(self, x):
        return self.layer(x, KeepsInClass.pair, mask=self.mask)


class KeepsFirst:
    def __init__(self, layer, memory, mask):
        if not hasattr(layer, "source"):
            layer.source = [layer.keys_and_values(memory)]
        self.layer, self.mask = layer, mask

    def ask(self, x):
        return self.layer(x, self.layer.source[0], mask=self.mask)


class WithoutGradient(KeepsPair):
    def __init__(self, layer, memory, mask):
        self.layer, self.mask = layer, mask
        with torch.no_grad():
            self.keys_and_values = layer.keys_and_values(memory)


class TakesNoMask:
    def __init__(self, layer, memory):
        self.layer, self.memory = layer, memory

    def ask(self, x):
        return self.layer(x, self.memory)


class IsCalled(KeepsPair):
    ask = None

    def __call__(self, x):
        return self.layer(x, self.keys_and_values, mask=self.mask)


# ------------------------------------------------------------------------------------ falls


def falls_by_clone(log_p, source, words):
    before, falls = log_p(source), []
    for place in range(source.shape[1]):
        other = source.clone()
        other[:, place] = words[:, place]
        falls.append(before - log_p(other))
    return torch.stack(falls, dim=-1)


def falls_by_where(log_p, source, words):
    places = torch.eye(source.shape[1], dtype=torch.bool)
    after = [log_p(torch.where(here, words, source)) for here in places]
    return log_p(source)[..., None] - torch.stack(after, -1)


def falls_in_one_batch(log_p, source, words):
    batch, length = source.shape
    here = torch.eye(length, dtype=torch.bool)[:, None]
    after = log_p(torch.where(here, words, source).flatten(0, 1))
    return (log_p(source) - after.view(length, batch, -1)).permute(1, 2, 0)


def falls_put_back(log_p, source, words):
    source = source.clone()
    before = log_p(source)
    falls = before.new_empty(*before.shape, source.shape[1])
    for place in range(source.shape[1]):
        kept = source[:, place].clone()
        source[:, place] = words[:, place]
        falls[..., place] = before - log_p(source)
        source[:, place] = kept
    return falls


def each_place(log_p, source, words, compare, dim=-1):
    falls = []
    for place in range(source.shape[1]):
        other = source.clone()
        other[:, place] = words[:, place]
        falls.append(compare(log_p(source), log_p(other)))
    return torch.stack(falls, dim=dim)


def falls_are_rises(log_p, source, words):
    return each_place(log_p, source, words, lambda before, after: after - before)


def falls_first_axis(log_p, source, words):
    return each_place(log_p, source, words, lambda before, after: before - after, dim=0)


def falls_middle_axis(log_p, source, words):
    return each_place(log_p, source, words, lambda before, after: before - after, dim=1)


def falls_after_only(log_p, source, words):
    return each_place(log_p, source, words, lambda before, after: after)


def falls_of_p(log_p, source, words):
    return each_place(log_p, source, words, lambda before, after: before.exp() - after.exp())


def falls_absolute(log_p, source, words):
    return each_place(log_p, source, words, lambda before, after: abs(before - after))


def falls_averaged(log_p, source, words):
    return each_place(log_p, source, words, lambda before, after: (before - after).mean(0))


def falls_add_up(log_p, source, words):
    before, other, falls = log_p(source), source.clone(), []
    for place in range(source.shape[1]):
        other[:, place] = words[:, place]
        falls.append(before - log_p(other))
    return torch.stack(falls, dim=-1)


def falls_in_place(log_p, source, words):
    before, falls = log_p(source), []
    for place in range(source.shape[1]):
        kept = source[:, place]
        source[:, place] = words[:, place]
        falls.append(before - log_p(source))
        source[:, place] = kept
    return torch.stack(falls, dim=-1)


def falls_of_rows(log_p, source, words):
    before, falls = log_p(source), []
    for place in range(source.shape[1]):
        other = source.clone()
        other[place : place + 1] = words[place : place + 1]
        falls.append(before - log_p(other))
    return torch.stack(falls, dim=-1)


def falls_of_others(log_p, source, words):
    before, falls = log_p(source), []
    for place in range(source.shape[1]):
        other = words.clone()
        other[:, place] = source[:, place]
        falls.append(before - log_p(other))
    return torch.stack(falls, dim=-1)


def falls_hidden(log_p, source, words):
    before, falls = log_p(source), []
    for place in range(source.shape[1]):
        other = source.clone()
        other[:, place] = 0
        falls.append(before - log_p(other))
    return torch.stack(falls, dim=-1)


def falls_same_word(log_p, source, words):
    before, falls = log_p(source), []
    for place in range(source.shape[1]):
        other = source.clone()
        other[:, place] = words[0, place]
        falls.append(before - log_p(other))
    return torch.stack(falls, dim=-1)


def falls_shifted(log_p, source, words):
    before, falls = log_p(source), []
    for place in range(source.shape[1]):
        other = source.clone()
        other[:, place - 1] = words[:, place - 1]
        falls.append(before - log_p(other))
    return torch.stack(falls, dim=-1)


def falls_of_sentence(log_p, source, words):
    return each_place(log_p, source, words, lambda before, after: (before - after).sum(-1))


RIGHT = {
    "source_mask": [
        source_by_loop,
        source_by_index,
        source_by_unsqueeze,
        source_by_bool,
        source_by_converter,
    ],
    "cross_attend": [
        cross_by_loops,
        cross_by_einsum,
        cross_fused,
        cross_by_layer,
        cross_by_package,
    ],
    "Memory": [KeepsPair, KeepsSplitHeads, ReadsWhenAsked, KeepsByName],
    "falls": [falls_by_clone, falls_by_where, falls_in_one_batch, falls_put_back],
}

WRONG = {
    "source_mask": [
        (source_inverted, "inverted"),
        (source_2d, "no-axes"),
        (source_3d, "one-axis-missing"),
        (source_as_queries, "queries-hidden"),
        (source_as_heads, "heads-hidden"),
        (source_square, "square"),
        (source_causal, "causal-too"),
        (source_as_int, "not-boolean"),
        (source_as_long, "not-boolean"),
        (source_additive, "additive"),
        (source_above_one, "id-one-hidden"),
        (source_by_count, "counted"),
        (source_by_first_zero, "only-at-the-end"),
        (source_of_first, "batch-lost"),
        (source_marks_ids, "changes-inputs"),
    ],
    "cross_attend": [
        (cross_no_mask, "mask-ignored"),
        (cross_inverted, "mask-inverted"),
        (cross_inverted_fused, "mask-inverted"),
        (cross_mask_last, "mask-after-softmax"),
        (cross_mask_last_divided, "renormalised"),
        (cross_zero_scores, "hidden-scores-zero"),
        (cross_minus_ten, "fill-too-weak"),
        (cross_float_mask, "mask-added"),
        (cross_over_queries, "softmax-over-queries"),
        (cross_billion, "minus-1e9"),
        (cross_lowest, "blind-rows-average"),
        (cross_nan, "blind-rows-nan"),
        (cross_roles, "roles-exchanged"),
        (cross_self, "memory-not-read"),
        (cross_self_masked, "memory-not-read"),
        (cross_memory_alone, "memory-asks-itself"),
        (cross_keys_of_x, "keys-of-x"),
        (cross_values_of_x, "values-of-x"),
        (cross_mean, "memory-averaged"),
        (cross_cut, "memory-cut"),
        (cross_causal, "causal-too"),
        (cross_unscaled, "no-scale"),
        (cross_by_d_model, "scaled-by-model"),
        (cross_with_residual, "residual-added"),
        (cross_first_head, "one-head-for-all"),
        (cross_detached, "no-gradient"),
        (cross_clears_memory, "changes-inputs"),
    ],
    "Memory": [
        (ReadsEachTime, "projects-again"),
        (ForgetsMask, "mask-ignored"),
        (InvertsMask, "mask-inverted"),
        (KeepsAnswer, "answers-once"),
        (Appends, "grows"),
        (SwapsPair, "keys-for-values"),
        (MixesKeys, "keys-as-values"),
        (AsksItself, "source-not-read"),
        (KeepsInClass, "last-for-all"),
        (KeepsFirst, "first-for-all"),
        (WithoutGradient, "no-gradient"),
        (TakesNoMask, "wrong-signature"),
        (IsCalled, "raises"),
    ],
    "falls": [
        (falls_are_rises, "sign"),
        (falls_first_axis, "places-first"),
        (falls_middle_axis, "places-in-the-middle"),
        (falls_after_only, "no-difference"),
        (falls_of_p, "probabilities"),
        (falls_absolute, "absolute"),
        (falls_averaged, "batch-averaged"),
        (falls_add_up, "not-put-back"),
        (falls_in_place, "not-put-back"),
        (falls_of_rows, "row-replaced"),
        (falls_of_others, "others-replaced"),
        (falls_hidden, "hidden-not-replaced"),
        (falls_same_word, "one-word-for-all"),
        (falls_shifted, "next-place"),
        (falls_of_sentence, "wrong-shape"),
    ],
}
