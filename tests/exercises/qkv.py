"""Right and wrong solutions of the exercises on queries, keys and values."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from attnlib.functional import attention

# ---------------------------------------------------------------------------------- attend


def attend_by_loops(q, k, v):
    rows = []
    for b in range(q.shape[0]):
        for i in range(q.shape[1]):
            scores = torch.stack([q[b, i] @ k[b, j] for j in range(k.shape[1])])
            shares = torch.softmax(scores / math.sqrt(k.shape[-1]), dim=0)
            rows.append((shares[:, None] * v[b]).sum(0))
    return torch.stack(rows).view(q.shape[0], q.shape[1], -1)


def attend_by_einsum(q, k, v):
    scores = torch.einsum("bqd,bkd->bqk", q, k) * q.shape[-1] ** -0.5
    return torch.einsum("bqk,bke->bqe", scores.softmax(-1), v)


def attend_by_bmm(query, key, value):
    query = query / query.size(2) ** 0.5
    weights = F.softmax(torch.bmm(query, key.transpose(1, 2)), dim=2)
    return torch.bmm(weights, value)


def attend_fused(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def attend_by_package(q, k, v):
    return attention(q, k, v)[0]


class AttendModule(nn.Module):
    def forward(self, q, k, v):
        d_k = q.size(-1)
        scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(d_k)
        return torch.matmul(torch.nn.functional.softmax(scores, dim=-1), v)


def unscaled(q, k, v):
    return torch.einsum("bqk,bke->bqe", torch.einsum("bqd,bkd->bqk", q, k).softmax(-1), v)


def divided_by_width(q, k, v):
    return F.softmax(q @ k.transpose(1, 2) / q.size(-1), dim=-1) @ v


def multiplied_by_root(q, k, v):
    return F.softmax(q @ k.transpose(1, 2) * math.sqrt(q.size(-1)), dim=-1) @ v


def root_of_root(q, k, v):
    root = math.sqrt(q.size(-1)) ** 0.5
    return F.softmax(q @ k.transpose(1, 2) / root, dim=-1) @ v


def root_of_value_width(q, k, v):
    return F.softmax(q @ k.transpose(1, 2) / v.size(-1) ** 0.5, dim=-1) @ v


def root_of_length(q, k, v):
    return F.softmax(q @ k.transpose(1, 2) / math.sqrt(k.size(1)), dim=-1) @ v


def width_of_64(q, k, v):
    d_k = 64
    return F.softmax(q @ k.transpose(1, 2) / math.sqrt(d_k), dim=-1) @ v


def softmax_dim_1(q, k, v):
    return F.softmax(q @ k.transpose(1, 2) / math.sqrt(q.size(-1)), dim=1) @ v


def softmax_dim_0(q, k, v):
    return F.softmax(q @ k.transpose(1, 2) / math.sqrt(q.size(-1)), dim=0) @ v


def one_letter_for_both_lengths(q, k, v):
    scores = torch.einsum("bnd,bnd->bn", q, k) / math.sqrt(q.shape[-1])
    return torch.einsum("bn,bne->bne", scores.softmax(-1), v)


def batch_letter_summed(q, k, v):
    scores = torch.einsum("bqd,xkd->bqk", q, k) / math.sqrt(q.shape[-1])
    return torch.einsum("bqk,bke->bqe", scores.softmax(-1), v)


def by_exp_and_sum(q, k, v):
    powers = torch.exp(torch.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5)
    return torch.einsum("bqk,bke->bqe", powers, v) / powers.sum(-1)[..., None]


def softmax_forgotten(q, k, v):
    return torch.einsum("bqk,bke->bqe", torch.einsum("bqd,bkd->bqk", q, k) / q.shape[-1] ** 0.5, v)


def weights_given_back(q, k, v):
    return F.softmax(torch.bmm(q, k.transpose(1, 2)) / q.shape[-1] ** 0.5, -1)


def keys_ask(q, k, v):
    scores = torch.einsum("bqd,bkd->bkq", q, k) / q.shape[-1] ** 0.5
    return scores.softmax(-1) @ v


def mixes_keys(q, k, v):
    return F.scaled_dot_product_attention(q, k, k)


def view_for_transpose(q, k, v):
    scores = q @ k.reshape(k.shape[0], k.shape[2], k.shape[1]) / q.shape[-1] ** 0.5
    return scores.softmax(-1) @ v


def squeezed(q, k, v):
    return F.scaled_dot_product_attention(q, k, v).squeeze()


def in_float32(q, k, v):
    return F.scaled_dot_product_attention(q.float(), k.float(), v.float()).to(v.dtype)


def dropout_left_on(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)


def causal_by_habit(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def scales_in_place(q, k, v):
    q /= math.sqrt(q.shape[-1])
    return (q @ k.mT).softmax(-1) @ v


def through_numpy(q, k, v):
    weights = F.softmax(q @ k.mT / q.shape[-1] ** 0.5, dim=-1)
    return torch.from_numpy(weights.detach().numpy()) @ v


def prints_only(q, k, v):
    F.scaled_dot_product_attention(q, k, v)


def first_16_keys(q, k, v):
    return F.scaled_dot_product_attention(q, k[:, :16], v[:, :16])


def unscaled_over_queries(q, k, v):
    return torch.bmm(F.softmax(torch.bmm(q, k.mT), dim=1), v)


def unscaled_and_causal(q, k, v):
    scores = torch.bmm(q, k.mT)
    later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(1)
    return scores.masked_fill(later, -1e9).softmax(-1) @ v


def with_weights(q, k, v):
    return attention(q, k, v)


# --------------------------------------------------------------------------------- softmax


def softmax_by_loop(scores):
    flat = scores.reshape(-1, scores.shape[-1])
    rows = []
    for row in flat:
        powers = torch.exp(row - max(row))
        rows.append(powers / powers.sum())
    return torch.stack(rows).reshape(scores.shape)


def softmax_by_amax(scores):
    powers = (scores - scores.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


def softmax_by_logsumexp(scores):
    return (scores - scores.logsumexp(-1, keepdim=True)).exp()


def softmax_detached(scores):
    shifted = scores - scores.max(dim=-1, keepdim=True).values.detach()
    return shifted.exp() / torch.einsum("...k->...", shifted.exp()).unsqueeze(-1)


def softmax_textbook(x):
    return torch.exp(x) / torch.exp(x).sum(dim=-1, keepdim=True)


def softmax_global_max(x):
    e = torch.exp(x - torch.max(x))
    return e / e.sum(-1, keepdim=True)


def softmax_min(x):
    e = torch.exp(x - x.min(-1, keepdim=True)[0])
    return e / e.sum(-1, keepdim=True)


def softmax_mean(x):
    e = torch.exp(x - x.mean(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def softmax_columns(x):
    e = torch.exp(x - x.amax(-2, keepdim=True))
    return e / e.sum(-2, keepdim=True)


def softmax_dim_zero(x):
    e = torch.exp(x - x.amax(0))
    return e / e.sum(0)


def softmax_all(x):
    e = torch.exp(x - x.max())
    return e / e.sum()


def softmax_undivided(x):
    return torch.exp(x - x.amax(-1, keepdim=True))


def softmax_plus(x):
    e = torch.exp(x + x.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def softmax_clipped(x):
    e = torch.exp(torch.clamp(x, max=80))
    return e / e.sum(-1, keepdim=True)


def softmax_log(x):
    return F.log_softmax(x, dim=-1)


def softmax_no_keepdim(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / e.sum(-1)


def softmax_of_matrix(x):
    e = torch.exp(x - x.max(1, keepdim=True).values)
    return e / e.sum(1, keepdim=True)


def softmax_in_place(x):
    x -= x.amax(-1, keepdim=True)
    x.exp_()
    x /= x.sum(-1, keepdim=True)
    return x


def softmax_in_double(x):
    e = torch.exp(x.double() - x.double().amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def softmax_with_eps(x):
    e = torch.exp(x - x.amax(-1, keepdim=True))
    return e / (e.sum(-1, keepdim=True) + 1e-6)


# --------------------------------------------------------------------------- masked_attend


def masked_by_loops(q, k, v, mask):
    mask = mask.expand(*q.shape[:3], k.shape[2])
    output = []
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = mask[b, h, i]
                scores = k[b, h][seen] @ q[b, h, i] / math.sqrt(q.shape[-1])
                output.append(scores.softmax(0) @ v[b, h][seen])
    return torch.stack(output).view(*q.shape[:3], -1)


def masked_by_where(q, k, v, mask):
    scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / math.sqrt(q.shape[-1])
    blind = ~mask.any(-1, keepdim=True)
    weights = torch.where(mask | blind, scores, -torch.inf).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights.masked_fill(blind, 0.0), v)


def masked_by_nan_to_num(q, k, v, mask):
    scores = q @ k.transpose(-2, -1) / k.size(-1) ** 0.5
    weights = scores.masked_fill(mask == 0, float("-inf")).softmax(dim=-1)
    return torch.nan_to_num(weights) @ v


def masked_fused(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def masked_by_package(q, k, v, mask):
    return attention(q, k, v, mask=mask)[0]


def scaled_scores(q, k):
    return q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))


def masked_not(q, k, v, mask):
    return scaled_scores(q, k).softmax(-1) @ v


def masked_no_underscore(q, k, v, mask):
    scores = scaled_scores(q, k)
    scores.masked_fill(~mask, float("-inf"))
    return F.softmax(scores, dim=-1) @ v


def masked_like_torch_mha(q, k, v, mask):
    return scaled_scores(q, k).masked_fill(mask, float("-inf")).softmax(-1) @ v


def masked_like_torch_mha_fused(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=~mask)


def masked_weights(q, k, v, mask):
    return (scaled_scores(q, k).softmax(-1) * mask) @ v


def masked_weights_renormalised(q, k, v, mask):
    weights = scaled_scores(q, k).softmax(-1).masked_fill(~mask, 0)
    return weights / weights.sum(-1, keepdim=True) @ v


def masked_weights_with_eps(q, k, v, mask):
    weights = scaled_scores(q, k).softmax(-1) * mask
    return weights / (weights.sum(-1, keepdim=True) + 1e-9) @ v


def masked_by_product(q, k, v, mask):
    return (scaled_scores(q, k) * mask).softmax(-1) @ v


def masked_with_ten(q, k, v, mask):
    return scaled_scores(q, k).masked_fill(~mask, -10.0).softmax(-1) @ v


def masked_as_float(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask.to(q.dtype))


def masked_over_queries(q, k, v, mask):
    return scaled_scores(q, k).masked_fill(~mask, float("-inf")).softmax(2) @ v


def masked_with_billion(q, k, v, mask):
    return scaled_scores(q, k).masked_fill(mask == 0, -1e9).softmax(-1) @ v


def masked_with_lowest(q, k, v, mask):
    scores = scaled_scores(q, k)
    lowest = torch.full_like(scores, torch.finfo(scores.dtype).min)
    return torch.where(mask, scores, lowest).softmax(-1) @ v


def masked_with_nan(q, k, v, mask):
    return scaled_scores(q, k).masked_fill(~mask, -torch.inf).softmax(-1) @ v


def masked_unscaled(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)


def masked_by_width(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1 / q.shape[-1])


def masked_values(q, k, v, mask):
    may_be_seen = mask.expand(q.shape[0], q.shape[1], -1, -1).any(dim=2).unsqueeze(-1)
    return scaled_scores(q, k).softmax(-1) @ v.masked_fill(~may_be_seen, 0)


def masked_first_head(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, 0].unsqueeze(1))


def masked_first_sequence(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[0])


def masked_first_query(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask[..., :1, :])


def masked_and_causal(q, k, v, mask):
    causal = torch.tril(torch.ones(q.size(2), k.size(2), dtype=torch.bool))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask & causal)


def masked_unscaled_and_ignored(q, k, v, mask):
    return (q @ k.mT).softmax(-1) @ v


def masked_in_place(q, k, v, mask):
    blind = ~mask.any(-1, keepdim=True)
    mask |= blind
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask).masked_fill(blind, 0)


def masked_by_adding(q, k, v, mask):
    scores = scaled_scores(q, k)
    added = torch.zeros_like(mask, dtype=scores.dtype).masked_fill(~mask, -torch.inf)
    return (scores + added).softmax(-1).nan_to_num(0.0) @ v


# --------------------------------------------------------------------------------- entropy


def entropy_by_loop(weights):
    rows = []
    for row in weights.reshape(-1, weights.shape[-1]):
        total = weights.new_zeros(())
        for w in row:
            if w > 0:
                total = total - w * w.log()
        rows.append(total)
    return torch.stack(rows).view(weights.shape[:-1])


def entropy_by_xlogy(weights):
    return -torch.special.xlogy(weights, weights).sum(dim=-1)


def entropy_by_entr(weights):
    return torch.special.entr(weights).sum(-1)


def entropy_by_where(weights):
    safe = torch.where(weights > 0, weights, 1.0)
    return -torch.einsum("...k,...k->...", weights, safe.log())


def entropy_by_masked_fill(weights):
    logs = weights.log().masked_fill(weights == 0, 0.0)
    return (weights * -logs).sum(-1)


def entropy_plain(weights):
    return -torch.sum(weights * torch.log(weights), dim=-1)


def entropy_of_distribution(weights):
    weights = weights / weights.sum(-1, keepdim=True)
    return torch.special.entr(weights).sum(-1)


def entropy_in_bits(weights):
    logs = torch.log2(weights).masked_fill(weights == 0, 0)
    return -(weights * logs).sum(-1)


def entropy_base_ten(weights):
    logs = torch.log10(weights).masked_fill(weights == 0, 0)
    return -(weights * logs).sum(-1)


def entropy_without_minus(weights):
    return torch.xlogy(weights, weights).sum(-1)


def entropy_of_columns(weights):
    return torch.special.entr(weights).sum(-2)


def entropy_of_all(weights):
    return torch.special.entr(weights).sum()


def entropy_mean(weights):
    return torch.special.entr(weights).sum(-1).mean()


def entropy_mean_of_keys(weights):
    return torch.special.entr(weights).mean(-1)


def entropy_relative(weights):
    return torch.special.entr(weights).sum(-1) / math.log(weights.shape[-1] or 1)


def entropy_perplexity(weights):
    return torch.special.entr(weights).sum(-1).exp()


def entropy_softmax_first(weights):
    return torch.special.entr(F.softmax(weights, dim=-1)).sum(-1)


def entropy_logs_only(weights):
    return -torch.log(weights).sum(-1)


def entropy_with_eps(weights):
    return -(weights * torch.log(weights + 1e-9)).sum(-1)


def entropy_keepdim(weights):
    return torch.special.entr(weights).sum(-1, keepdim=True)


def entropy_as_number(weights):
    return torch.special.entr(weights).sum(-1).tolist()


def entropy_by_categorical(weights):
    return torch.distributions.Categorical(probs=weights).entropy()


def entropy_detached(weights):
    with torch.no_grad():
        return torch.special.entr(weights).sum(-1)


def entropy_fills_in_place(weights):
    weights[weights == 0] = 1
    return -(weights * weights.log()).sum(-1)


RIGHT = {
    "attend": [
        attend_by_loops,
        attend_by_einsum,
        attend_by_bmm,
        attend_fused,
        attend_by_package,
        AttendModule(),
    ],
    "softmax": [softmax_by_loop, softmax_by_amax, softmax_by_logsumexp, softmax_detached],
    "masked_attend": [
        masked_by_loops,
        masked_by_where,
        masked_by_nan_to_num,
        masked_fused,
        masked_by_package,
    ],
    "entropy": [
        entropy_by_loop,
        entropy_by_xlogy,
        entropy_by_entr,
        entropy_by_where,
        entropy_by_masked_fill,
    ],
}

WRONG = {
    "attend": [
        (unscaled, "no-scale"),
        (divided_by_width, "scaled-by-width"),
        (multiplied_by_root, "scale-inverted"),
        (root_of_root, "scaled-by-fourth-root"),
        (root_of_value_width, "scaled-by-values"),
        (root_of_length, "scaled-by-length"),
        (width_of_64, "scale-hard-coded"),
        (softmax_dim_1, "softmax-over-queries"),
        (softmax_dim_0, "softmax-over-batch"),
        (one_letter_for_both_lengths, "diagonal-only"),
        (batch_letter_summed, "batch-mixed"),
        (by_exp_and_sum, "overflows"),
        (softmax_forgotten, "no-softmax"),
        (weights_given_back, "weights-returned"),
        (keys_ask, "roles-exchanged"),
        (mixes_keys, "keys-as-values"),
        (view_for_transpose, "view-for-transpose"),
        (squeezed, "fails-at-batch-of-one"),
        (in_float32, "loses-precision"),
        (dropout_left_on, "random"),
        (causal_by_habit, "causal-uncalled-for"),
        (scales_in_place, "changes-inputs"),
        (through_numpy, "no-gradient"),
        (prints_only, "returns-none"),
        (with_weights, "wrong-type"),
        (first_16_keys, "fails-at-long"),
        (unscaled_over_queries, "softmax-over-queries"),
        (unscaled_and_causal, "unwanted-causal"),
    ],
    "softmax": [
        (softmax_textbook, "overflows"),
        (softmax_global_max, "one-maximum-for-all"),
        (softmax_min, "minimum-subtracted"),
        (softmax_mean, "mean-subtracted"),
        (softmax_columns, "wrong-axis"),
        (softmax_dim_zero, "first-axis"),
        (softmax_all, "over-everything"),
        (softmax_undivided, "not-divided"),
        (softmax_plus, "maximum-added"),
        (softmax_clipped, "clamped"),
        (softmax_log, "logarithm"),
        (softmax_no_keepdim, "raises"),
        (softmax_of_matrix, "second-axis"),
        (softmax_in_place, "changes-inputs"),
        (softmax_in_double, "wrong-dtype"),
        (softmax_with_eps, "loses-precision"),
    ],
    "masked_attend": [
        (masked_not, "mask-ignored"),
        (masked_no_underscore, "mask-ignored"),
        (masked_like_torch_mha, "mask-inverted"),
        (masked_like_torch_mha_fused, "mask-inverted"),
        (masked_weights, "mask-after-softmax"),
        (masked_weights_renormalised, "renormalised"),
        (masked_weights_with_eps, "fails-at-huge"),
        (masked_by_product, "hidden-scores-zero"),
        (masked_with_ten, "fill-too-weak"),
        (masked_as_float, "mask-added"),
        (masked_over_queries, "softmax-over-queries"),
        (masked_with_billion, "minus-1e9"),
        (masked_with_lowest, "blind-rows-average"),
        (masked_with_nan, "blind-rows-nan"),
        (masked_unscaled, "no-scale"),
        (masked_by_width, "scaled-by-width"),
        (masked_values, "values-masked"),
        (masked_first_head, "one-head-for-all"),
        (masked_first_sequence, "one-sequence-for-all"),
        (masked_first_query, "one-query-for-all"),
        (masked_and_causal, "causal-too"),
        (masked_in_place, "changes-inputs"),
        (masked_by_adding, "nan-gradient"),
        (masked_unscaled_and_ignored, "padding-ignored"),
    ],
    "entropy": [
        (entropy_plain, "nan-at-zero"),
        (entropy_of_distribution, "fails-at-blind-row"),
        (entropy_in_bits, "bits"),
        (entropy_base_ten, "base-ten"),
        (entropy_without_minus, "sign"),
        (entropy_of_columns, "over-queries"),
        (entropy_of_all, "total"),
        (entropy_mean, "mean-of-rows"),
        (entropy_mean_of_keys, "mean-of-keys"),
        (entropy_relative, "relative"),
        (entropy_perplexity, "perplexity"),
        (entropy_softmax_first, "softmax-again"),
        (entropy_logs_only, "log-only"),
        (entropy_with_eps, "summand-in-log"),
        (entropy_keepdim, "wrong-shape"),
        (entropy_as_number, "wrong-type"),
        (entropy_by_categorical, "fails-at-blind-row"),
        (entropy_detached, "no-gradient"),
        (entropy_fills_in_place, "changes-inputs"),
    ],
}
