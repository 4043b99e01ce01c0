"""Solutions of the exercises on long sequences and decoding, as readers write them."""

import math

import torch
import torch.nn.functional as F

from attnlib.masks import causal_mask as package_mask
from attnlib.masks import window_mask
from attnlib.memory import cache_bytes
from exercises import Solutions

solutions = Solutions()
RIGHT, WRONG = solutions.right, solutions.wrong
right, wrong = solutions.is_right, solutions.is_wrong
INF = torch.inf

# ------------------------------------------------------------------ online_average(blocks)


@right("online_average")
def average_with_running_maximum(blocks):
    blocks = iter(blocks)
    scores, values = next(blocks)
    top = scores.amax(1, keepdim=True)
    first = (scores - top.masked_fill(top == -INF, 0)).exp()
    total, output = first.sum(1, keepdim=True), first @ values
    for scores, values in blocks:
        new_top = torch.maximum(top, scores.amax(1, keepdim=True))
        safe = new_top.masked_fill(new_top == -INF, 0)
        shrink, weights = (top - safe).exp(), (scores - safe).exp()
        total = total * shrink + weights.sum(1, keepdim=True)
        output = output * shrink + weights @ values
        top = new_top
    return output / total


@right("online_average")
def average_by_logaddexp(blocks):
    size, output = None, 0.0
    for scores, values in blocks:
        here = scores.logsumexp(1, keepdim=True)
        mean = torch.softmax(scores, 1).nan_to_num(0.0) @ values
        new = here if size is None else torch.logaddexp(size, here)
        old_share = 0.0 if size is None else (size - new).exp().nan_to_num(0.0)
        output = output * old_share + mean * (here - new).exp().nan_to_num(0.0)
        size = new
    return output


@right("online_average")
def average_of_finite_minus_infinity(blocks):
    lowest = None
    for scores, values in blocks:
        if lowest is None:
            lowest = torch.finfo(scores.dtype).min
            top = torch.full((scores.shape[0],), lowest, dtype=scores.dtype)
            total, output = torch.zeros_like(top), 0 * scores[:, :1] * values[:1]
            output = torch.zeros(scores.shape[0], values.shape[1], dtype=values.dtype)
        new_top = torch.maximum(top, scores.max(dim=1).values)
        old = torch.exp(top - new_top)
        weights = torch.exp(scores - new_top[:, None])
        total = old * total + weights.sum(dim=1)
        output = old[:, None] * output + torch.einsum("qk,kv->qv", weights, values)
        top = new_top
    return output / total[:, None]


@right("online_average")
def average_row_by_row(blocks):
    tops, totals, outputs = {}, {}, {}
    for scores, values in blocks:
        for i, row in enumerate(scores):
            top = max(tops.get(i, -INF), row.max().item())
            if top == -INF:
                continue
            weights = (row - top).exp()
            shrink = math.exp(tops.get(i, -INF) - top)
            tops[i] = top
            totals[i] = totals.get(i, 0) * shrink + weights.sum()
            outputs[i] = outputs.get(i, 0) * shrink + weights @ values
    return torch.stack([outputs[i] / totals[i] for i in sorted(outputs)])


def streamed(blocks, *, shrink_sum=True, shrink_output=True, start=-INF, sign=1, per_row=True):
    """One pass with one step changed, to build wrong ones from."""
    top = total = output = None
    for scores, values in blocks:
        if top is None:
            top = scores.new_full((len(scores), 1), start)
            total, output = 0 * top.clamp(min=0), 0.0
        best = scores.amax(1, keepdim=True) if per_row else scores.max().expand(len(scores), 1)
        new_top = torch.maximum(top, best)
        safe = new_top.masked_fill(new_top == -INF, 0)
        shrink, weights = (sign * (top - safe)).exp(), (scores - safe).exp()
        total = total * (shrink if shrink_sum else 1) + weights.sum(1, keepdim=True)
        output = output * (shrink if shrink_output else 1) + weights @ values
        top = new_top
    return output, total


@wrong("online_average", "never-rescaled")
def average_never_rescales(blocks):
    output, total = streamed(blocks, shrink_sum=False, shrink_output=False)
    return output / total


@wrong("online_average", "output-not-rescaled")
def average_rescales_only_the_sum(blocks):
    output, total = streamed(blocks, shrink_output=False)
    return output / total


@wrong("online_average", "sum-not-rescaled")
def average_rescales_only_the_output(blocks):
    output, total = streamed(blocks, shrink_sum=False)
    return output / total


@wrong("online_average", "starts-at-zero")
def average_starts_at_zero(blocks):
    output, total = streamed(blocks, start=0.0)
    return output / total


@wrong("online_average", "one-maximum-for-all")
def average_one_maximum_per_block(blocks):
    output, total = streamed(blocks, per_row=False)
    return output / total


@wrong("online_average", "not-divided")
def average_forgets_to_divide(blocks):
    return streamed(blocks)[0]


@wrong("online_average", "overflows")
def average_without_maximum(blocks):
    total, output = 0.0, 0.0
    for scores, values in blocks:
        weights = scores.exp()
        total = total + weights.sum(1, keepdim=True)
        output = output + weights @ values
    return output / total


@wrong("online_average", "mean-of-blocks")
def average_of_averages(blocks):
    means = [scores.softmax(1).nan_to_num(0) @ values for scores, values in blocks]
    return torch.stack(means).mean(0)


@wrong("online_average", "sum-of-blocks")
def average_adds_block_softmaxes(blocks):
    return sum(scores.softmax(1).nan_to_num(0) @ values for scores, values in blocks)


@wrong("online_average", "weighted-by-size")
def average_weighs_by_block_size(blocks):
    output, n = 0.0, 0
    for scores, values in blocks:
        output = output + scores.softmax(1).nan_to_num(0) @ values * len(values)
        n += len(values)
    return output / n


@wrong("online_average", "hidden-block")
def average_breaks_on_hidden_blocks(blocks):
    top, total, output = torch.tensor(-INF), 0.0, 0.0
    for scores, values in blocks:
        new_top = torch.maximum(top, scores.amax(1, keepdim=True))
        shrink, weights = (top - new_top).exp(), (scores - new_top).exp()
        total = total * shrink + weights.sum(1, keepdim=True)
        output = output * shrink + weights @ values
        top = new_top
    return output / total


@wrong("online_average", "last-block-only")
def average_keeps_the_last(blocks):
    for block in blocks:
        scores, values = block
    return scores.softmax(1) @ values


@wrong("online_average", "keeps-blocks")
def average_collects_all(blocks):
    kept = list(blocks)
    scores = torch.cat([scores for scores, _ in kept], dim=1)
    values = torch.cat([values for _, values in kept])
    return scores.softmax(1) @ values


@wrong("online_average", "read-twice")
def average_reads_twice(blocks):
    top = torch.stack([scores.amax(1) for scores, _ in blocks]).amax(0)[:, None]
    total, output = 0.0, 0.0
    for scores, values in blocks:
        weights = (scores - top).exp()
        total = total + weights.sum(1, keepdim=True)
        output = output + weights @ values
    return output / total


# ----------------------------------------------------------- tiled_attention(q, k, v, block)


@right("tiled_attention")
def tiled_with_running_maximum(q, k, v, block):
    length, rows = q.shape[-2], torch.arange(q.shape[-2])[:, None]
    top = q.new_full((*q.shape[:-1], 1), -INF)
    total, output = torch.zeros_like(top), torch.zeros_like(v)
    for start in range(0, length, block):
        keys, values = k[..., start : start + block, :], v[..., start : start + block, :]
        scores = q @ keys.mT / math.sqrt(q.shape[-1])
        later = torch.arange(start, start + keys.shape[-2]) > rows
        scores = scores.masked_fill(later, -INF)
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink, weights = (top - new_top).exp(), (scores - new_top).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        output = output * shrink + weights @ values
        top = new_top
    return output / total


@right("tiled_attention")
def tiled_by_blocks_of_queries(q, k, v, block):
    outputs = []
    for start in range(0, q.shape[-2], block):
        queries = q[..., start : start + block, :]
        seen = start + queries.shape[-2]
        mask = torch.ones(queries.shape[-2], seen, dtype=torch.bool).tril(start)
        attend = F.scaled_dot_product_attention
        outputs.append(attend(queries, k[..., :seen, :], v[..., :seen, :], attn_mask=mask))
    return torch.cat(outputs, dim=-2)


@right("tiled_attention")
def tiled_by_single_queries(q, k, v, block):
    outputs = []
    for i in range(q.shape[2]):
        scores = torch.einsum("bhd,bhkd->bhk", q[:, :, i], k[:, :, : i + 1])
        weights = (scores * q.shape[-1] ** -0.5).softmax(-1)
        outputs.append(torch.einsum("bhk,bhke->bhe", weights, v[:, :, : i + 1]))
    return torch.stack(outputs, dim=2)


@right("tiled_attention")
def tiled_both_ways(q, k, v, block):
    outputs = []
    for first in range(0, q.shape[-2], block):
        queries = q[..., first : first + block, :] / math.sqrt(q.shape[-1])
        size, output = None, 0.0
        for start in range(0, first + 1, block):
            keys, values = k[..., start : start + block, :], v[..., start : start + block, :]
            scores = queries @ keys.transpose(-1, -2)
            at = torch.arange(queries.shape[-2])[:, None] + first
            scores = scores.masked_fill(torch.arange(keys.shape[-2]) + start > at, -INF)
            here = scores.logsumexp(-1, keepdim=True)
            new = here if size is None else torch.logaddexp(size, here)
            old = 0.0 if size is None else output * (size - new).exp()
            output, size = old + (scores - new).exp() @ values, new
        outputs.append(output)
    return torch.cat(outputs, dim=-2)


def tiled(q, k, v, block, *, scale=None, later=None, rescale=True, ends=None):
    """Tiles with one step changed, to build wrong ones from."""
    length, rows = q.shape[-2], torch.arange(q.shape[-2])[:, None]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    later = (
        (lambda start, rows, n: torch.arange(start, start + n) > rows) if later is None else later
    )
    top = q.new_full((*q.shape[:-1], 1), -INF)
    total, output = torch.zeros_like(top), torch.zeros_like(v)
    for start in range(0, length if ends is None else ends, block):
        keys, values = k[..., start : start + block, :], v[..., start : start + block, :]
        scores = q @ keys.mT * scale
        scores = scores.masked_fill(later(start, rows, keys.shape[-2]), -INF)
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        safe = new_top.masked_fill(new_top == -INF, 0)
        shrink = (top - safe).exp() if rescale else 1.0
        weights = (scores - safe).exp()
        total = total * shrink + weights.sum(-1, keepdim=True)
        output = output * shrink + weights @ values
        top = new_top
    return output / total


@wrong("tiled_attention", "whole-matrix")
def tiled_not_at_all(q, k, v, block):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:]).triu(1).bool()
    return scores.masked_fill(future, -INF).softmax(-1) @ v


@wrong("tiled_attention", "whole-matrix")
def tiled_with_a_whole_mask(q, k, v, block):
    future = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    later = lambda start, rows, n: future[:, start : start + n]  # noqa: E731
    return tiled(q, k, v, block, later=later)


@wrong("tiled_attention", "last-block-lost")
def tiled_whole_blocks_only(q, k, v, block):
    return tiled(q, k, v, block, ends=q.shape[-2] // block * block)


@wrong("tiled_attention", "no-mask")
def tiled_sees_all(q, k, v, block):
    return tiled(q, k, v, block, later=lambda start, rows, n: torch.zeros(1, n).bool())


@wrong("tiled_attention", "local-mask")
def tiled_counts_from_the_block(q, k, v, block):
    return tiled(q, k, v, block, later=lambda start, rows, n: torch.arange(n) > rows)


@wrong("tiled_attention", "whole-blocks-seen")
def tiled_masks_blocks_only(q, k, v, block):
    def later(start, rows, n):
        return (start // block > rows // block).expand(-1, n)

    return tiled(q, k, v, block, later=later)


@wrong("tiled_attention", "own-block-hidden")
def tiled_hides_the_own_block(q, k, v, block):
    later = lambda start, rows, n: (start >= rows // block * block).expand(-1, n)  # noqa: E731
    return tiled(q, k, v, block, later=later).nan_to_num(0)


@wrong("tiled_attention", "not-itself")
def tiled_not_itself(q, k, v, block):
    return tiled(q, k, v, block, later=lambda s, rows, n: torch.arange(s, s + n) >= rows)


@wrong("tiled_attention", "never-rescaled")
def tiled_never_rescales(q, k, v, block):
    return tiled(q, k, v, block, rescale=False)


@wrong("tiled_attention", "no-scale")
def tiled_without_scale(q, k, v, block):
    return tiled(q, k, v, block, scale=1.0)


@wrong("tiled_attention", "scaled-by-block")
def tiled_scaled_by_block(q, k, v, block):
    return tiled(q, k, v, block, scale=block**-0.5)


@wrong("tiled_attention", "block-softmax")
def tiled_softmax_per_block(q, k, v, block):
    output, rows = torch.zeros_like(v), torch.arange(q.shape[-2])[:, None]
    for start in range(0, q.shape[-2], block):
        keys = k[..., start : start + block, :]
        scores = q @ keys.mT / math.sqrt(q.shape[-1])
        later = torch.arange(start, start + keys.shape[-2]) > rows
        weights = scores.masked_fill(later, -INF).softmax(-1).nan_to_num(0)
        output = output + weights @ v[..., start : start + block, :]
    return output


@wrong("tiled_attention", "window-of-a-block")
def tiled_diagonal_blocks(q, k, v, block):
    outputs = []
    for parts in zip(*(x.split(block, dim=-2) for x in (q, k, v)), strict=True):
        outputs.append(F.scaled_dot_product_attention(*parts, is_causal=True))
    return torch.cat(outputs, dim=-2)


@wrong("tiled_attention", "wrong-dtype")
def tiled_into_float32(q, k, v, block):
    return tiled(q.float(), k.float(), v.float(), block)


@wrong("tiled_attention", "no-gradient")
@torch.no_grad()
def tiled_without_gradient(q, k, v, block):
    return tiled(q, k, v, block)


# -------------------------------------------------------------- window(q_len, k_len, size)


@right("window")
def window_by_comparison(q_len, k_len, size):
    query = torch.arange(k_len - q_len, k_len)[:, None]
    key = torch.arange(k_len)
    return ((key <= query) & (key > query - size))[None, None]


@right("window")
def window_by_band(q_len, k_len, size):
    ones = torch.ones(1, 1, q_len, k_len, dtype=torch.bool)
    return ones.tril(k_len - q_len).triu(k_len - q_len - size + 1)


@right("window")
def window_by_loop(q_len, k_len, size):
    mask = torch.zeros(q_len, k_len, dtype=torch.bool)
    for i in range(q_len):
        last = i + k_len - q_len
        mask[i, max(0, last - size + 1) : last + 1] = True
    return mask.view(1, 1, q_len, k_len)


@right("window")
def window_of_package(q_len, k_len, size):
    return package_mask(q_len, k_len) & window_mask(q_len, k_len, radius=size - 1)


def window_of(q_len, k_len, rule):
    query, key = torch.arange(q_len)[:, None] + k_len - q_len, torch.arange(k_len)
    return rule(query, key)[None, None]


@wrong("window", "one-too-many")
def window_and_itself(q_len, k_len, size):
    return window_of(q_len, k_len, lambda q, k: (k <= q) & (q - k <= size))


@wrong("window", "one-too-few")
def window_one_less(q_len, k_len, size):
    return window_of(q_len, k_len, lambda q, k: (k <= q) & (q - k < size - 1))


@wrong("window", "two-sided")
def window_both_sides(q_len, k_len, size):
    return window_mask(q_len, k_len, radius=size - 1)


@wrong("window", "centred")
def window_around(q_len, k_len, size):
    return window_of(q_len, k_len, lambda q, k: (k <= q + size // 2) & (k >= q - size // 2))


@wrong("window", "no-window")
def window_forgotten(q_len, k_len, size):
    return window_of(q_len, k_len, lambda q, k: k <= q)


@wrong("window", "no-causal")
def window_open_ahead(q_len, k_len, size):
    return window_of(q_len, k_len, lambda q, k: k > q - size)


@wrong("window", "top-left")
def window_from_the_top(q_len, k_len, size):
    ones = torch.ones(q_len, k_len, dtype=torch.bool)
    return (ones.tril() & ones.triu(1 - size)).view(1, 1, q_len, k_len)


@wrong("window", "inverted")
def window_blocked(q_len, k_len, size):
    return ~window_by_comparison(q_len, k_len, size)


@wrong("window", "chunks")
def window_in_chunks(q_len, k_len, size):
    return window_of(q_len, k_len, lambda q, k: (k <= q) & (k // size == q // size))


@wrong("window", "not-itself")
def window_without_itself(q_len, k_len, size):
    return window_of(q_len, k_len, lambda q, k: (k < q) & (k >= q - size))


@wrong("window", "outside")
def window_of_the_far(q_len, k_len, size):
    return window_of(q_len, k_len, lambda q, k: k <= q - size)


@wrong("window", "last-keys")
def window_of_last_keys(q_len, k_len, size):
    return window_of(q_len, k_len, lambda q, k: (k <= q) & (k >= k_len - size))


@wrong("window", "wrong-dtype")
def window_of_numbers(q_len, k_len, size):
    return window_by_band(q_len, k_len, size).int()


# -------------------------------------------------------- attend_with_cache(q, k, v, cache)


def seen_by(q, k):
    return torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(k.shape[-2] - q.shape[-2])


@right("attend_with_cache")
def cached_by_cat(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat([cache[0], k], dim=-2), torch.cat([cache[1], v], dim=-2)
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return scores.masked_fill(~seen_by(q, k), -INF).softmax(-1) @ v, (k, v)


@right("attend_with_cache")
def cached_with_sdpa(q, k, v, cache):
    keys, values = (
        (k, v) if cache is None else (torch.cat(p, 2) for p in zip(cache, (k, v), strict=True))
    )
    output = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen_by(q, keys))
    return output, (keys, values)


@right("attend_with_cache")
def cached_by_loop(q, k, v, cache):
    keys, values = cache if cache else (k[:, :, :0], v[:, :, :0])
    outputs = []
    for i in range(q.shape[2]):
        keys = torch.cat([keys, k[:, :, i : i + 1]], dim=2)
        values = torch.cat([values, v[:, :, i : i + 1]], dim=2)
        scores = torch.einsum("bhd,bhkd->bhk", q[:, :, i], keys) / q.shape[-1] ** 0.5
        outputs.append(torch.einsum("bhk,bhke->bhe", scores.softmax(-1), values))
    return torch.stack(outputs, dim=2), (keys, values)


@right("attend_with_cache")
def cached_by_bmm(q, k, v, cache):
    if cache is not None:
        k, v = (torch.cat((old, new), dim=2) for old, new in zip(cache, (k, v), strict=True))
    flat = [x.flatten(0, 1) for x in (q, k, v)]
    scores = torch.bmm(flat[0], flat[1].mT) / math.sqrt(q.shape[-1])
    later = torch.arange(k.shape[2]) > torch.arange(k.shape[2] - q.shape[2], k.shape[2])[:, None]
    weights = scores.masked_fill(later, -1e30).softmax(-1)
    return torch.bmm(weights, flat[2]).unflatten(0, q.shape[:2]), (k, v)


def cached(q, k, v, cache, *, mask=seen_by, dim=2, swap=False, scale=None):
    """A cached step with one thing changed, to build wrong ones from."""
    if cache is not None:
        pairs = zip(cache, (k, v), strict=True)
        k, v = (torch.cat((new, old) if swap else (old, new), dim=dim) for old, new in pairs)
    output = F.scaled_dot_product_attention(q, k, v, attn_mask=mask(q, k), scale=scale)
    return output, (k, v)


@wrong("attend_with_cache", "ignores-cache")
def cached_reads_nothing(q, k, v, cache):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen_by(q, k)), (k, v)


@wrong("attend_with_cache", "no-mask")
def cached_without_mask(q, k, v, cache):
    return cached(q, k, v, cache, mask=lambda q, k: None)


@wrong("attend_with_cache", "top-left")
def cached_is_causal(q, k, v, cache):
    if cache is not None:
        k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True), (k, v)


@wrong("attend_with_cache", "returns-new-only")
def cached_hands_back_the_new(q, k, v, cache):
    return cached(q, k, v, cache)[0], (k, v)


@wrong("attend_with_cache", "new-in-front")
def cached_new_first(q, k, v, cache):
    return cached(q, k, v, cache, swap=True)


@wrong("attend_with_cache", "wrong-axis")
def cached_along_heads(q, k, v, cache):
    return cached(q, k, v, cache, dim=1)


@wrong("attend_with_cache", "keys-and-values-swapped")
def cached_swaps(q, k, v, cache):
    output, (keys, values) = cached(q, k, v, cache)
    return output, (values, keys)


@wrong("attend_with_cache", "keys-only")
def cached_keys_only(q, k, v, cache):
    if cache is not None:
        k = torch.cat([cache[0], k], dim=2)
        v = torch.cat([v.new_zeros(*v.shape[:2], k.shape[2] - v.shape[2], v.shape[3]), v], dim=2)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=seen_by(q, k)), (k, v)


@wrong("attend_with_cache", "cache-hidden")
def cached_hides_the_past(q, k, v, cache):
    def mask(q, k):
        new = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
        return F.pad(new, (k.shape[2] - q.shape[2], 0))

    return cached(q, k, v, cache, mask=mask)


@wrong("attend_with_cache", "not-itself")
def cached_not_itself(q, k, v, cache):
    def mask(q, k):
        return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(
            k.shape[2] - q.shape[2] - 1
        )

    return cached(q, k, v, cache, mask=mask)


@wrong("attend_with_cache", "last-token-only")
def cached_last_query(q, k, v, cache):
    output, cache = cached(q, k, v, cache)
    return output[:, :, -1:], cache


@wrong("attend_with_cache", "no-scale")
def cached_without_scale(q, k, v, cache):
    return cached(q, k, v, cache, scale=1.0)


MEMORY = []


@wrong("attend_with_cache", "keeps-state")
def cached_in_a_global(q, k, v, cache):
    MEMORY.append((k, v))
    keys, values = (torch.cat(parts, dim=2) for parts in zip(*MEMORY[-3:], strict=True))
    return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen_by(q, keys)), (
        keys,
        values,
    )


@wrong("attend_with_cache", "changes-cache")
def cached_into_the_old_list(q, k, v, cache):
    if cache is None:
        cache = [k, v]
    else:
        cache[0] = torch.cat([cache[0], k], dim=2)
        cache[1] = torch.cat([cache[1], v], dim=2)
    mask = seen_by(q, cache[0])
    return F.scaled_dot_product_attention(q, *cache, attn_mask=mask), cache


# ------------------------------------------------------ write_greedily(model, prompt, n_new)


@right("write_greedily")
def greedy_by_cat(model, prompt, n_new):
    text, new, cache = prompt, prompt, None
    for _ in range(n_new):
        logits, cache = model(new, cache)
        new = logits[:, -1:].argmax(-1)
        text = torch.cat([text, new], dim=1)
    return text


@right("write_greedily")
def greedy_into_reserved(model, prompt, n_new):
    start = prompt.shape[1]
    text = torch.zeros(len(prompt), start + n_new, dtype=prompt.dtype)
    text[:, :start] = prompt
    logits, cache = model(prompt, None)
    for i in range(start, start + n_new):
        text[:, i] = logits[:, -1].argmax(dim=-1)
        logits, cache = model(text[:, i : i + 1], cache)
    return text


@right("write_greedily")
def greedy_by_recursion(model, prompt, n_new):
    def more(new, cache, n):
        if n == 0:
            return []
        logits, cache = model(new, cache)
        new = logits[:, -1].max(-1).indices[:, None]
        return [new, *more(new, cache, n - 1)]

    return torch.cat([prompt, *more(prompt, None, n_new)], dim=1)


@right("write_greedily")
def greedy_token_by_token(model, prompt, n_new):
    cache = None
    for token in prompt.split(1, dim=1):
        logits, cache = model(token, cache)
    written = [logits[:, -1].topk(1).indices]
    while len(written) < n_new:
        logits, cache = model(written[-1], cache)
        written.append(torch.topk(logits[:, -1, :], k=1).indices)
    return torch.hstack([prompt, *written])


@wrong("write_greedily", "all-again")
def greedy_feeds_all_again(model, prompt, n_new):
    text, cache = prompt, None
    for _ in range(n_new):
        logits, cache = model(text, cache)
        text = torch.cat([text, logits[:, -1:].argmax(-1)], dim=1)
    return text


@wrong("write_greedily", "cache-forgotten")
def greedy_drops_the_cache(model, prompt, n_new):
    text, new = prompt, prompt
    for _ in range(n_new):
        logits, _ = model(new, None)
        new = logits[:, -1:].argmax(-1)
        text = torch.cat([text, new], dim=1)
    return text


@wrong("write_greedily", "first-cache")
def greedy_keeps_the_first_cache(model, prompt, n_new):
    logits, cache = model(prompt, None)
    text = torch.cat([prompt, logits[:, -1:].argmax(-1)], dim=1)
    for _ in range(n_new - 1):
        logits, _ = model(text[:, -1:], cache)
        text = torch.cat([text, logits[:, -1:].argmax(-1)], dim=1)
    return text


@wrong("write_greedily", "no-cache")
def greedy_computes_all_again(model, prompt, n_new):
    text = prompt
    for _ in range(n_new):
        logits, _ = model(text, None)
        text = torch.cat([text, logits[:, -1:].argmax(-1)], dim=1)
    return text


@wrong("write_greedily", "last-token-twice")
def greedy_repeats_the_last_token(model, prompt, n_new):
    _, cache = model(prompt, None)
    text = prompt
    for _ in range(n_new):
        logits, cache = model(text[:, -1:], cache)
        text = torch.cat([text, logits[:, -1:].argmax(-1)], dim=1)
    return text


@wrong("write_greedily", "first-place")
def greedy_reads_the_first_place(model, prompt, n_new):
    text, new, cache = prompt, prompt, None
    for _ in range(n_new):
        logits, cache = model(new, cache)
        new = logits[:, :1].argmax(-1)
        text = torch.cat([text, new], dim=1)
    return text


@wrong("write_greedily", "new-only")
def greedy_without_prompt(model, prompt, n_new):
    return greedy_by_cat(model, prompt, n_new)[:, prompt.shape[1] :]


@wrong("write_greedily", "one-too-few")
def greedy_counts_the_first(model, prompt, n_new):
    return greedy_by_cat(model, prompt, n_new - 1)


@wrong("write_greedily", "one-too-many")
def greedy_goes_on(model, prompt, n_new):
    return greedy_by_cat(model, prompt, n_new + 1)


@wrong("write_greedily", "total-length")
def greedy_until_length(model, prompt, n_new):
    return greedy_by_cat(model, prompt, max(0, n_new - prompt.shape[1]))


@wrong("write_greedily", "first-of-batch")
def greedy_for_one(model, prompt, n_new):
    text, new, cache = prompt, prompt, None
    for _ in range(n_new):
        logits, cache = model(new, cache)
        new = logits[0, -1].argmax().expand(len(prompt), 1)
        text = torch.cat([text, new], dim=1)
    return text


@wrong("write_greedily", "random")
def greedy_samples(model, prompt, n_new):
    text, new, cache = prompt, prompt, None
    for _ in range(n_new):
        logits, cache = model(new, cache)
        new = torch.multinomial(logits[:, -1].softmax(-1), 1)
        text = torch.cat([text, new], dim=1)
    return text


@wrong("write_greedily", "least-likely")
def greedy_takes_the_least(model, prompt, n_new):
    text, new, cache = prompt, prompt, None
    for _ in range(n_new):
        logits, cache = model(new, cache)
        new = (-logits[:, -1:]).argmax(-1)
        text = torch.cat([text, new], dim=1)
    return text


# --- count_cache_bytes(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each)


@right("count_cache_bytes")
def bytes_by_formula(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 2 * length * batch * n_layers * n_kv_heads * d_head * bytes_each


@right("count_cache_bytes")
def bytes_by_loop(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    total = 0
    for _ in range(n_layers):
        for _ in ("keys", "values"):
            total += math.prod((batch, n_kv_heads, length, d_head)) * bytes_each
    return total


@right("count_cache_bytes")
def bytes_by_building(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    one = torch.empty(batch, n_kv_heads, length, d_head, device="meta")
    return 2 * n_layers * one.numel() * bytes_each


@right("count_cache_bytes")
def bytes_of_package(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    dtype = {1: torch.int8, 2: torch.float16, 4: torch.float32}[bytes_each]
    sizes = {"n_layers": n_layers, "n_heads": n_kv_heads, "d_head": d_head}
    return cache_bytes(length, batch=batch, dtype=dtype, **sizes)


@wrong("count_cache_bytes", "keys-only")
def bytes_of_keys(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return length * batch * n_layers * n_kv_heads * d_head * bytes_each


@wrong("count_cache_bytes", "query-heads")
def bytes_of_query_heads(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 2 * length * batch * n_layers * n_heads * d_head * bytes_each


@wrong("count_cache_bytes", "one-layer")
def bytes_of_one_layer(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 2 * length * batch * n_kv_heads * d_head * bytes_each


@wrong("count_cache_bytes", "one-sequence")
def bytes_of_one_sequence(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 2 * length * n_layers * n_kv_heads * d_head * bytes_each


@wrong("count_cache_bytes", "one-head")
def bytes_of_one_head(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 2 * length * batch * n_layers * d_head * bytes_each


@wrong("count_cache_bytes", "squared")
def bytes_of_weights(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return length**2 * batch * n_layers * n_heads * bytes_each


@wrong("count_cache_bytes", "numbers")
def bytes_as_numbers(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 2 * length * batch * n_layers * n_kv_heads * d_head


@wrong("count_cache_bytes", "bits")
def bytes_as_bits(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 16 * length * batch * n_layers * n_kv_heads * d_head * bytes_each


@wrong("count_cache_bytes", "float32-only")
def bytes_of_float32(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 8 * length * batch * n_layers * n_kv_heads * d_head


@wrong("count_cache_bytes", "three-of-each")
def bytes_of_three(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 3 * length * batch * n_layers * n_kv_heads * d_head * bytes_each


@wrong("count_cache_bytes", "divided-twice")
def bytes_split_again(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 2 * length * batch * n_layers * n_kv_heads * d_head // n_heads * bytes_each


@wrong("count_cache_bytes", "mebibytes")
def bytes_in_mib(length, batch, n_layers, n_heads, n_kv_heads, d_head, bytes_each):
    return 2 * length * batch * n_layers * n_kv_heads * d_head * bytes_each / 2**20
