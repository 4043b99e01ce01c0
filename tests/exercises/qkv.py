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
}
