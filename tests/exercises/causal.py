"""Solutions of the exercises on causal attention, as readers write them."""

import math

import torch
import torch.nn.functional as F

from attnlib.functional import attention
from attnlib.masks import causal_mask, document_mask, left_padding_mask
from exercises import Solutions

solutions = Solutions()
RIGHT, WRONG = solutions.right, solutions.wrong
right, wrong = solutions.is_right, solutions.is_wrong
INF = torch.inf


def triangle(q_len, k_len, diagonal=0):
    return torch.ones(q_len, k_len, dtype=torch.bool).tril(k_len - q_len + diagonal)


# ------------------------------------------------------------------ causal_mask(q_len, k_len)


@right("causal_mask")
def mask_by_tril(q_len, k_len):
    return torch.ones(q_len, k_len, dtype=torch.bool).tril(k_len - q_len)[None, None]


@right("causal_mask")
def mask_by_comparison(q_len, k_len):
    queries = torch.arange(k_len - q_len, k_len)
    return (torch.arange(k_len) <= queries[:, None]).view(1, 1, q_len, k_len)


@right("causal_mask")
def mask_by_loop(q_len, k_len):
    rows = [[j <= i + k_len - q_len for j in range(k_len)] for i in range(q_len)]
    return torch.tensor([[rows]])


@right("causal_mask")
def mask_by_last_rows(q_len, k_len):
    return ~torch.ones(k_len, k_len, dtype=torch.bool).triu(1)[None, None, k_len - q_len :]


@right("causal_mask")
def mask_of_package(q_len, k_len):
    return causal_mask(q_len, k_len)


@wrong("causal_mask", "inverted")
def mask_true_is_blocked(q_len, k_len):
    return torch.ones(q_len, k_len, dtype=torch.bool).triu(k_len - q_len + 1)[None, None]


@wrong("causal_mask", "top-left")
def mask_top_left(q_len, k_len):
    return torch.tril(torch.ones(1, 1, q_len, k_len)).bool()


@wrong("causal_mask", "not-itself")
def mask_without_itself(q_len, k_len):
    queries = torch.arange(q_len)[:, None] + k_len - q_len
    return (torch.arange(k_len) < queries)[None, None]


@wrong("causal_mask", "one-ahead")
def mask_one_ahead(q_len, k_len):
    return torch.ones(1, 1, q_len, k_len, dtype=torch.bool).tril(diagonal=k_len - q_len + 1)


@wrong("causal_mask", "wrong-side")
def mask_of_the_future(q_len, k_len):
    return torch.triu(torch.ones(1, 1, q_len, k_len), diagonal=k_len - q_len).bool()


@wrong("causal_mask", "additive")
def mask_to_add(q_len, k_len):
    return torch.full((1, 1, q_len, k_len), -INF).triu(k_len - q_len + 1)


@wrong("causal_mask", "numbers")
def mask_of_ones_and_zeros(q_len, k_len):
    return torch.tril(torch.ones(1, 1, q_len, k_len), diagonal=k_len - q_len)


@wrong("causal_mask", "two-axes")
def mask_of_two_axes(q_len, k_len):
    return torch.ones(q_len, k_len).tril(k_len - q_len) == 1


@wrong("causal_mask", "square")
def mask_square(q_len, k_len):
    return torch.ones(q_len, q_len).tril().bool().view(1, 1, q_len, q_len)


@wrong("causal_mask", "hides-nothing")
def mask_hides_nothing(q_len, k_len):
    mask = torch.ones(1, 1, q_len, k_len, dtype=torch.bool)
    mask.tril(k_len - q_len)
    return mask


@wrong("causal_mask", "swapped-sizes")
def mask_swapped(q_len, k_len):
    return torch.ones(k_len, q_len, dtype=torch.bool).tril(q_len - k_len)[None, None]


BUFFER = torch.ones(8, 8, dtype=torch.bool).tril()


@wrong("causal_mask", "fails-at-long")
def mask_from_a_buffer(q_len, k_len):
    return BUFFER[k_len - q_len : k_len, :k_len][None, None]


# -------------------------------------------------------- decoder_mask(lengths, length)


@right("decoder_mask")
def decoder_by_and(lengths, length):
    real = torch.arange(length) >= length - lengths[:, None]
    return real[:, None, None, :] & torch.ones(length, length, dtype=torch.bool).tril()


@right("decoder_mask")
def decoder_by_loop(lengths, length):
    mask = torch.zeros(len(lengths), 1, length, length, dtype=torch.bool)
    for b, real in enumerate(lengths.tolist()):
        for i in range(length - real, length):
            mask[b, 0, i, length - real : i + 1] = True
    return mask


@right("decoder_mask")
def decoder_by_both(lengths, length):  # rows of padding are blind with or without the second real
    real = torch.arange(length, 0, -1) <= lengths[:, None]
    return (real[:, :, None] & real[:, None, :]).tril()[:, None]


@right("decoder_mask")
def decoder_by_blocked(lengths, length):
    future = torch.ones(length, length).triu(1) > 0
    padding = torch.arange(length).expand(len(lengths), -1) < (length - lengths).unsqueeze(1)
    return torch.logical_not(future[None, None] | padding[:, None, None])


@right("decoder_mask")
def decoder_of_package(lengths, length):
    return causal_mask(length) & left_padding_mask(lengths, length)


def real_at(lengths, length):
    return torch.arange(length) >= length - lengths[:, None]


@wrong("decoder_mask", "or")
def decoder_by_or(lengths, length):
    return causal_mask(length) | left_padding_mask(lengths, length)


@wrong("decoder_mask", "no-causal")
def decoder_padding_only(lengths, length):
    return real_at(lengths, length)[:, None, None].repeat(1, 1, length, 1)


@wrong("decoder_mask", "no-padding")
def decoder_causal_only(lengths, length):
    return triangle(length, length).expand(len(lengths), 1, length, length)


@wrong("decoder_mask", "queries-hidden")
def decoder_hides_queries(lengths, length):
    return triangle(length, length) & real_at(lengths, length)[:, None, :, None]


@wrong("decoder_mask", "padding-inverted")
def decoder_keeps_padding(lengths, length):
    ignored = ~real_at(lengths, length)  # as key_padding_mask wants it
    return triangle(length, length) & ignored[:, None, None]


@wrong("decoder_mask", "all-inverted")
def decoder_true_is_blocked(lengths, length):
    return ~triangle(length, length) | ~real_at(lengths, length)[:, None, None]


@wrong("decoder_mask", "one-too-many")
def decoder_sees_last_padding(lengths, length):
    real = torch.arange(length) >= length - lengths[:, None] - 1
    return triangle(length, length) & real[:, None, None]


@wrong("decoder_mask", "one-too-few")
def decoder_hides_first_token(lengths, length):
    real = torch.arange(length) > length - lengths[:, None]
    return triangle(length, length) & real[:, None, None]


@wrong("decoder_mask", "behind")
def decoder_pads_behind(lengths, length):
    real = torch.arange(length) < lengths[:, None]
    return triangle(length, length) & real[:, None, None]


@wrong("decoder_mask", "no-head-axis")
def decoder_of_three_axes(lengths, length):
    return triangle(length, length)[None] & real_at(lengths, length)[:, None]


@wrong("decoder_mask", "one-length")
def decoder_of_longest(lengths, length):
    real = torch.arange(length) >= length - lengths.max()
    return (triangle(length, length) & real).expand(len(lengths), 1, length, length)


# --------------------------------------------------------------- packed_mask(documents)


@right("packed_mask")
def packed_by_comparison(documents):
    same = documents[:, None] == documents[None, :]
    return (same & torch.ones_like(same).tril())[None, None]


@right("packed_mask")
def packed_by_loop(documents):
    length = len(documents)
    mask = torch.zeros(1, 1, length, length, dtype=torch.bool)
    for i in range(length):
        for j in range(i + 1):
            mask[0, 0, i, j] = documents[i] == documents[j]
    return mask


@right("packed_mask")
def packed_by_one_hot(documents):
    which = (documents[:, None] == documents.unique()).float()
    return torch.einsum("id,jd->ij", which, which).tril().bool()[None, None]


@right("packed_mask")
def packed_by_blocks(documents):
    _, sizes = documents.unique_consecutive(return_counts=True)
    blocks = [torch.ones(n, n).tril() for n in sizes.tolist()]
    return torch.block_diag(*blocks).bool().view(1, 1, len(documents), -1)


@right("packed_mask")
def packed_of_package(documents):
    return causal_mask(len(documents)) & document_mask(documents[None])


@wrong("packed_mask", "no-causal")
def packed_sees_its_future(documents):
    return (documents.unsqueeze(0) == documents.unsqueeze(1))[None, None]


@wrong("packed_mask", "no-documents")
def packed_one_text(documents):
    return triangle(len(documents), len(documents))[None, None]


@wrong("packed_mask", "or")
def packed_by_or(documents):
    return causal_mask(len(documents)) | document_mask(documents[None])


@wrong("packed_mask", "earlier-documents")
def packed_sees_earlier_texts(documents):
    earlier = documents[None, :] <= documents[:, None]
    return (earlier & triangle(*earlier.shape))[None, None]


@wrong("packed_mask", "not-itself")
def packed_without_itself(documents):
    same = documents[:, None] == documents
    return (same & triangle(*same.shape, diagonal=-1))[None, None]


@wrong("packed_mask", "inverted")
def packed_true_is_blocked(documents):
    other = documents[:, None] != documents
    return (other | ~triangle(*other.shape))[None, None]


@wrong("packed_mask", "wrong-side")
def packed_sees_only_later(documents):
    same = documents[:, None] == documents
    return same.triu()[None, None]


@wrong("packed_mask", "two-axes")
def packed_two_axes(documents):
    same = documents[:, None] == documents
    return same.tril()


@wrong("packed_mask", "additive")
def packed_to_add(documents):
    allowed = (documents[:, None] == documents).tril()
    return torch.zeros(allowed.shape).masked_fill(~allowed, -INF)[None, None]


@wrong("packed_mask", "first-and-rest")
def packed_zero_and_rest(documents):
    first = documents == documents[0]
    return (first[:, None] == first).tril()[None, None]


@wrong("packed_mask", "first-only")
def packed_first_alone(documents):
    first = documents == documents[0]
    return (first[:, None] & first[None]).tril()[None, None]


@wrong("packed_mask", "neighbour-only")
def packed_looks_one_back(documents):
    length = len(documents)
    mask = torch.eye(length, dtype=torch.bool)
    mask[1:].diagonal().copy_(documents[1:] == documents[:-1])
    return mask[None, None]


# -------------------------------------------------------------- causal_attention(q, k, v)


@right("causal_attention")
def attend_by_fill(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    future = ~triangle(q.shape[-2], k.shape[-2])
    return scores.masked_fill(future, -INF).softmax(-1) @ v


@right("causal_attention")
def attend_by_loop(q, k, v):
    outputs = []
    for i in range(q.shape[-2]):
        seen = k.shape[-2] - q.shape[-2] + i + 1
        scores = (q[..., i : i + 1, :] * k[..., :seen, :]).sum(-1) * q.shape[-1] ** -0.5
        outputs.append((scores.softmax(-1)[..., None] * v[..., :seen, :]).sum(-2))
    return torch.stack(outputs, dim=-2)


@right("causal_attention")
def attend_by_einsum(q, k, v):
    scores = torch.einsum("bhqd,bhkd->bhqk", q / q.shape[-1] ** 0.5, k)
    added = torch.full(scores.shape[-2:], -INF, dtype=q.dtype)
    scores = scores + added.triu(k.shape[-2] - q.shape[-2] + 1)
    return torch.einsum("bhqk,bhke->bhqe", scores.softmax(-1), v)


@right("causal_attention")
def attend_by_bmm(q, k, v):
    batch, heads, q_len, width = q.shape
    scores = torch.bmm(q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2)) / width**0.5
    keys, queries = torch.arange(k.shape[2]), torch.arange(q_len) + k.shape[2] - q_len
    scores = torch.where(keys <= queries[:, None], scores, torch.finfo(q.dtype).min)
    return torch.bmm(scores.softmax(-1), v.flatten(0, 1)).unflatten(0, (batch, heads))


@right("causal_attention")
def attend_by_sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=triangle(q.shape[-2], k.shape[-2]))


@right("causal_attention")
def attend_by_package(q, k, v):
    return attention(q, k, v, mask=causal_mask(q.shape[-2], k.shape[-2]))[0]


@wrong("causal_attention", "no-mask")
def attend_forgets_the_underscore(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores.masked_fill(~triangle(q.shape[-2], k.shape[-2]), -INF)
    return scores.softmax(-1) @ v


@wrong("causal_attention", "after-softmax")
def attend_masks_the_weights(q, k, v):
    weights = (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)
    return weights.tril(k.shape[-2] - q.shape[-2]) @ v


@wrong("causal_attention", "zero-scores")
def attend_multiplies_the_scores(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return (scores * triangle(q.shape[-2], k.shape[-2])).softmax(-1) @ v


@wrong("causal_attention", "top-left")
def attend_is_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@wrong("causal_attention", "inverted")
def attend_hands_over_blocked(q, k, v):
    blocked = torch.ones(q.shape[-2], k.shape[-2]).triu(k.shape[-2] - q.shape[-2] + 1) == 1
    return F.scaled_dot_product_attention(q, k, v, attn_mask=blocked)


@wrong("causal_attention", "not-itself")
def attend_not_to_itself(q, k, v):
    earlier = triangle(q.shape[-2], k.shape[-2], diagonal=-1)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=earlier)


@wrong("causal_attention", "one-ahead")
def attend_triu_without_one(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    future = torch.ones(scores.shape[-2:]).triu(k.shape[-2] - q.shape[-2] + 2).bool()
    return scores.masked_fill(future, -INF).softmax(-1) @ v


@wrong("causal_attention", "weak-fill")
def attend_fills_ten(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return scores.masked_fill(~triangle(*scores.shape[-2:]), -10.0).softmax(-1) @ v


@wrong("causal_attention", "no-scale")
def attend_without_scale(q, k, v):
    return attention(q, k, v, mask=causal_mask(q.shape[-2], k.shape[-2]), scale=1.0)[0]


@wrong("causal_attention", "scaled-by-width")
def attend_divides_by_width(q, k, v):
    scores = q @ k.mT / q.shape[-1]
    return scores.masked_fill(~triangle(*scores.shape[-2:]), -INF).softmax(-1) @ v


@wrong("causal_attention", "scaled-by-values")
def attend_takes_width_of_values(q, k, v):
    scores = q @ k.mT / math.sqrt(v.shape[-1])
    return scores.masked_fill(~triangle(*scores.shape[-2:]), -INF).softmax(-1) @ v


@wrong("causal_attention", "scale-hard-coded")
def attend_divides_by_eight(q, k, v):
    scores = q @ k.mT / 8
    return scores.masked_fill(~triangle(*scores.shape[-2:]), -INF).softmax(-1) @ v


@wrong("causal_attention", "softmax-over-queries")
def attend_softmax_over_queries(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    hidden = ~triangle(*scores.shape[-2:])
    return scores.masked_fill(hidden, torch.finfo(q.dtype).min).softmax(-2) @ v


@wrong("causal_attention", "overflows")
def attend_own_softmax(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    powers = scores.exp() * triangle(*scores.shape[-2:])
    return powers / powers.sum(-1, keepdim=True) @ v


@wrong("causal_attention", "overflows")
def attend_own_softmax_filled(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    powers = scores.masked_fill(~triangle(*scores.shape[-2:]), -INF).exp()
    return powers / powers.sum(-1, keepdim=True) @ v


@wrong("causal_attention", "fails-at-float16")
def attend_fills_minus_a_billion(q, k, v):
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    return scores.masked_fill(~triangle(*scores.shape[-2:]), -1e9).softmax(-1) @ v


@wrong("causal_attention", "wrong-dtype")
def attend_adds_a_float_mask(q, k, v):
    hidden = torch.full((q.shape[-2], k.shape[-2]), -INF).triu(k.shape[-2] - q.shape[-2] + 1)
    weights = (q.float() @ k.float().mT / math.sqrt(q.shape[-1]) + hidden).softmax(-1)
    return weights @ v.float()


@wrong("causal_attention", "changes-inputs")
def attend_scales_in_place(q, k, v):
    q /= math.sqrt(q.shape[-1])
    scores = q @ k.mT
    return scores.masked_fill(~triangle(*scores.shape[-2:]), -INF).softmax(-1) @ v


@wrong("causal_attention", "no-gradient")
def attend_without_gradient(q, k, v):
    with torch.no_grad():
        return attend_by_fill(q, k, v)


@wrong("causal_attention", "uniform")
def attend_averages_the_past(q, k, v):
    seen = triangle(q.shape[-2], k.shape[-2]).to(v)
    return seen / seen.sum(-1, keepdim=True) @ v


# ------------------------------------------------------------- leak_by_gradient(run, x)


@right("leak_by_gradient")
def leak_by_jacobian(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x)
    return jacobian.abs().amax((1, 3)).triu(1).max().item()


@right("leak_by_gradient")
def leak_by_one_gradient_each(run, x):
    x, worst = x.detach().clone().requires_grad_(), 0.0
    y = run(x)
    for i in range(len(y) - 1):
        for output in y[i]:
            (gradient,) = torch.autograd.grad(output, x, retain_graph=True)
            worst = max(worst, float(gradient[i + 1 :].abs().max()))
    return worst


@right("leak_by_gradient")
def leak_by_backward(run, x):
    worst = torch.zeros(())
    for i in range(len(x) - 1):
        for e in range(run(x).shape[1]):
            leaf = x.clone().detach().requires_grad_(True)
            run(leaf)[i, e].backward()
            worst = torch.maximum(worst, leaf.grad[i + 1 :].abs().max())
    return worst


@right("leak_by_gradient")
def leak_by_columns(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x, vectorize=True)
    later = torch.ones(len(x), len(x)).triu(1).bool()[:, None, :, None]
    return torch.where(later, jacobian, 0).abs().max()


@wrong("leak_by_gradient", "present")
def leak_counts_the_present(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x)
    return jacobian.abs().amax((1, 3)).triu().max().item()


@wrong("leak_by_gradient", "past")
def leak_of_the_past(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x)
    return jacobian.abs().amax((1, 3)).tril(-1).max().item()


@wrong("leak_by_gradient", "signed")
def leak_without_abs(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x)
    return jacobian.amax((1, 3)).triu(1).max().item()


@wrong("leak_by_gradient", "summed-outputs")
def leak_of_the_sum(run, x):
    leaf = x.clone().requires_grad_()
    run(leaf).sum().backward()
    return leaf.grad[1:].abs().max().item()


@wrong("leak_by_gradient", "summed-widths")
def leak_sums_the_widths(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x)
    return jacobian.sum((1, 3)).abs().triu(1).max().item()


@wrong("leak_by_gradient", "mean-widths")
def leak_averages_the_widths(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x)
    return jacobian.abs().mean((1, 3)).triu(1).max().item()


@wrong("leak_by_gradient", "first-feature")
def leak_of_one_feature(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x)
    return jacobian[:, 0, :, 0].abs().triu(1).max().item()


@wrong("leak_by_gradient", "first-output")
def leak_of_first_output(run, x):
    leaf, worst = x.clone().requires_grad_(), 0.0
    for output in run(leaf)[0]:
        (gradient,) = torch.autograd.grad(output, leaf, retain_graph=True)
        worst = max(worst, gradient[1:].abs().max().item())
    return worst


@wrong("leak_by_gradient", "next-only")
def leak_of_the_next(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x)
    return jacobian.abs().amax((1, 3)).diagonal(1).max().item()


@wrong("leak_by_gradient", "total")
def leak_adds_all_up(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x)
    return jacobian.abs().amax((1, 3)).triu(1).sum().item()


@wrong("leak_by_gradient", "yes-or-no")
def leak_says_yes(run, x):
    jacobian = torch.autograd.functional.jacobian(run, x)
    return (jacobian.abs().amax((1, 3)).triu(1) > 0).any().item()


@wrong("leak_by_gradient", "changes-inputs")
def leak_leaves_a_gradient(run, x):
    x.requires_grad_()
    y, worst = run(x), 0.0
    for i in range(len(y) - 1):
        for output in y[i]:
            (gradient,) = torch.autograd.grad(output, x, retain_graph=True)
            worst = max(worst, gradient[i + 1 :].abs().max().item())
    return worst


@wrong("leak_by_gradient", "accumulated")
def leak_never_zeroes(run, x):
    leaf, worst = x.clone().requires_grad_(), 0.0
    y = run(leaf)
    for i in range(len(y) - 1):
        for output in y[i]:
            output.backward(retain_graph=True)
            worst = max(worst, leaf.grad[i + 1 :].abs().max().item())
    return worst
