"""Right and wrong solutions of the exercises on multi-head attention."""

import copy
import math

import torch
import torch.nn.functional as F

from attnlib.functional import merge_heads, split_heads

# ------------------------------------------------------------------------------------ split


def split_by_loop(x, n_heads):
    width = x.shape[-1] // n_heads
    return torch.stack([x[..., h * width : (h + 1) * width] for h in range(n_heads)], dim=1)


def split_by_reshape(x, n_heads):
    batch, length, d_model = x.shape
    return x.reshape(batch, length, n_heads, d_model // n_heads).transpose(1, 2)


def split_by_einsum(x, n_heads):
    return torch.einsum("blhd->bhld", x.unflatten(2, (n_heads, x.shape[2] // n_heads)))


def split_by_chunk(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1)).permute(1, 0, 2, 3).contiguous()


def split_by_package(x, n_heads):
    return split_heads(x, n_heads)


def split_straight(x, n_heads):
    return x.reshape(x.size(0), n_heads, x.size(1), x.size(2) // n_heads)


def split_and_stay(x, n_heads):
    return x.reshape(x.size(0), x.size(1), n_heads, x.size(2) // n_heads)


def split_every_so_many(x, n_heads):
    return torch.stack([x[..., h::n_heads] for h in range(n_heads)], 1)


def split_for_keys(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).permute(0, 2, 3, 1)


def split_heads_first(x, n_heads):
    return torch.stack(x.chunk(n_heads, dim=-1))


def split_into_batch(x, n_heads):
    return torch.cat(split_by_loop(x, n_heads).unbind(0))


def split_by_width(x, n_heads):
    batch, length, d_model = x.shape
    return x.reshape(batch, length, d_model // n_heads, n_heads).permute(0, 2, 1, 3)


def split_batch_behind(x, n_heads):
    return x.unflatten(-1, (n_heads, -1)).permute(2, 1, 0, 3)


def split_repeats(x, n_heads):
    return x.unsqueeze(1).repeat(1, n_heads, 1, 1)


def split_of_16(x, n_heads):
    return x.reshape(x.shape[0], x.shape[1], n_heads, 4).transpose(1, 2)


def split_squeezed(x, n_heads):
    return split_by_reshape(x, n_heads).squeeze()


def split_resized(x, n_heads):
    x.unsqueeze_(2)
    return split_by_reshape(x.squeeze(2), n_heads)


def split_in_list(x, n_heads):
    return list(x.chunk(n_heads, dim=-1))


# ------------------------------------------------------------------------------------ merge


def merge_by_loop(heads):
    return torch.cat([heads[:, h] for h in range(heads.shape[1])], dim=-1)


def merge_by_reshape(heads):
    batch, n_heads, length, width = heads.shape
    return heads.transpose(1, 2).reshape(batch, length, n_heads * width)


def merge_by_view(heads):
    b, h, n, d = heads.size()
    return heads.permute(0, 2, 1, 3).contiguous().view(b, n, h * d)


def merge_by_einsum(heads):
    return torch.einsum("bhld->blhd", heads).flatten(2)


def merge_by_package(heads):
    return merge_heads(heads)


def merge_straight(heads):
    return heads.reshape(heads.size(0), heads.size(2), heads.size(1) * heads.size(3))


def merge_alternating(heads):
    return torch.stack(heads.unbind(1), dim=-1).flatten(2)


def merge_sum(heads):
    return torch.einsum("bhnd->bnd", heads)


def merge_mean(heads):
    return heads.mean(dim=1)


def merge_in_length(heads):
    return torch.cat(heads.unbind(1), dim=1)


def merge_in_batch(heads):
    return heads.reshape(-1, heads.shape[2], heads.shape[3])


def merge_not_yet(heads):
    return heads.permute(0, 2, 1, 3)


def merge_first(heads):
    return heads[:, 0, :, :]


def merge_turned(heads):
    return torch.cat(heads.mT.unbind(1), dim=1)


def merge_view(heads):
    b, h, n, d = heads.size()
    return heads.transpose(1, 2).view(b, n, h * d)


def merge_by_lists(heads):
    return torch.tensor(merge_by_loop(heads).tolist(), dtype=heads.dtype)


def merge_squeezed(heads):
    return merge_by_loop(heads).squeeze(0)


# --------------------------------------------------------------------------------- hand_out


def hand_out_by_loop(k, n_heads):
    each = n_heads // k.shape[1]
    return torch.stack([k[:, h // each] for h in range(n_heads)], dim=1)


def hand_out_by_expand(k, n_heads):
    b, g, n, d = k.shape
    return k[:, :, None].expand(b, g, n_heads // g, n, d).reshape(b, n_heads, n, d)


def hand_out_by_index(k, n_heads):
    return k[:, torch.arange(n_heads) // (n_heads // k.shape[1])]


def hand_out_by_interleave(k, n_heads):
    return torch.repeat_interleave(k, n_heads // k.size(1), dim=1)


def hand_out_by_einsum(k, n_heads):
    each = n_heads // k.shape[1]
    return torch.einsum("bgnd,r->bgrnd", k, k.new_ones(each)).flatten(1, 2)


def hand_out_tiled(k, n_heads):
    return k.repeat(1, n_heads // k.size(1), 1, 1)


def hand_out_all_times(k, n_heads):
    return k[:, :, None].expand(-1, -1, n_heads, -1, -1).flatten(1, 2)


def hand_out_batch(k, n_heads):
    return k.repeat_interleave(n_heads // k.size(1), 0)


def hand_out_tokens(k, n_heads):
    return k.repeat_interleave(n_heads // k.size(1), -2)


def hand_out_first(k, n_heads):
    return k[:, 0].unsqueeze(1).repeat(1, n_heads, 1, 1)


def hand_out_unflattened(k, n_heads):
    return k.unsqueeze(2).repeat(1, 1, n_heads // k.size(1), 1, 1)


def hand_out_mean(k, n_heads):
    return k.mean(dim=1, keepdim=True).repeat(1, n_heads, 1, 1)


def hand_out_nothing(k, n_heads):
    k.repeat_interleave(n_heads // k.shape[1], dim=1)
    return k


def hand_out_padded(k, n_heads):
    return F.pad(k, (0, 0, 0, 0, 0, n_heads - k.shape[1]))


def hand_out_last(k, n_heads):
    return torch.cat([k] + [k[:, -1:]] * (n_heads - k.shape[1]), dim=1)


def hand_out_two_groups(k, n_heads):
    first, second = k[:, :1], k[:, -1:]
    half = n_heads // 2
    return torch.cat([first.expand(-1, half, -1, -1), second.expand(-1, half, -1, -1)], 1)


def hand_out_detached(k, n_heads):
    return k.data.repeat_interleave(n_heads // k.shape[1], dim=1)


# ------------------------------------------------------------------------------- multi_head


def projected(layer, x):
    return [
        f(x).unflatten(-1, (layer.n_heads, -1))
        for f in (layer.to_query, layer.to_key, layer.to_value)
    ]


def heads_by_loop(layer, x):
    q, k, v = layer.to_query(x), layer.to_key(x), layer.to_value(x)
    width = q.shape[-1] // layer.n_heads
    outputs = []
    for h in range(layer.n_heads):
        part = slice(h * width, (h + 1) * width)
        scores = torch.bmm(q[..., part], k[..., part].transpose(1, 2)) / math.sqrt(width)
        outputs.append(torch.bmm(scores.softmax(-1), v[..., part]))
    return layer.to_output(torch.cat(outputs, dim=-1))


def heads_by_einsum(layer, x):
    q, k, v = projected(layer, x)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    return layer.to_output(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v).flatten(-2))


def heads_by_transposing(layer, x):
    q, k, v = (part.transpose(1, 2) for part in projected(layer, x))
    weights = F.softmax(q @ k.transpose(-2, -1) * q.size(-1) ** -0.5, dim=-1)
    return layer.to_output((weights @ v).transpose(1, 2).flatten(2))


def heads_fused(layer, x):
    q, k, v = (part.transpose(1, 2) for part in projected(layer, x))
    return layer.to_output(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def heads_by_layer(layer, x):
    return layer(x)


def run_heads(layer, x, scale=None, dim=-1):
    q, k, v = projected(layer, x)
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
    return layer.to_output(torch.einsum("bhqk,bkhd->bqhd", scores.softmax(dim), v).flatten(-2))


def heads_unscaled(layer, x):
    return run_heads(layer, x, scale=1.0)


def heads_by_d_model(layer, x):
    return run_heads(layer, x, scale=1 / math.sqrt(layer.to_query.out_features))


def heads_by_d_head(layer, x):
    return run_heads(layer, x, scale=layer.n_heads / layer.to_query.out_features)


def heads_of_width_4(layer, x):
    return run_heads(layer, x, scale=0.5)


def heads_over_queries(layer, x):
    return run_heads(layer, x, dim=2)


def heads_over_heads(layer, x):
    return run_heads(layer, x, dim=1)


def heads_viewed(layer, x):
    b, n, _ = x.shape
    q, k, v = (
        f(x).view(b, layer.n_heads, n, -1) for f in (layer.to_query, layer.to_key, layer.to_value)
    )
    out = F.scaled_dot_product_attention(q, k, v)
    return layer.to_output(out.transpose(1, 2).reshape(b, n, -1))


def heads_viewed_back(layer, x):
    q, k, v = (part.transpose(1, 2) for part in projected(layer, x))
    out = F.scaled_dot_product_attention(q, k, v)
    return layer.to_output(out.reshape(x.shape[0], x.shape[1], -1))


def heads_cut_fine(layer, x):
    maps = layer.to_query, layer.to_key, layer.to_value
    q, k, v = (
        torch.stack([f(x)[..., h :: layer.n_heads] for h in range(layer.n_heads)], 1) for f in maps
    )
    return layer.to_output(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def heads_woven(layer, x):
    q, k, v = (part.transpose(1, 2) for part in projected(layer, x))
    return layer.to_output(F.scaled_dot_product_attention(q, k, v).permute(0, 2, 3, 1).flatten(2))


def heads_are_one(layer, x):
    q, k, v = layer.to_query(x), layer.to_key(x), layer.to_value(x)
    return layer.to_output(F.scaled_dot_product_attention(q, k, v))


def heads_not_transposed(layer, x):
    q, k, v = projected(layer, x)
    return layer.to_output(F.scaled_dot_product_attention(q, k, v).flatten(2))


def heads_first_weights(layer, x):
    q, k, v = projected(layer, x)
    scores = torch.einsum("bqd,bkd->bqk", q[:, :, 0], k[:, :, 0]) / q.shape[-1] ** 0.5
    return layer.to_output(torch.einsum("bqk,bkhd->bqhd", scores.softmax(-1), v).flatten(-2))


def heads_mean_weights(layer, x):
    q, k, v = projected(layer, x)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    weights = scores.softmax(-1).mean(1)
    return layer.to_output(torch.einsum("bqk,bkhd->bqhd", weights, v).flatten(-2))


def heads_unmixed(layer, x):
    q, k, v = (part.transpose(1, 2) for part in projected(layer, x))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


def heads_without_bias(layer, x):
    return F.linear(heads_unmixed(layer, x), layer.to_output.weight)


def heads_key_asks(layer, x):
    q, k, v = (part.transpose(1, 2) for part in projected(layer, x))
    return layer.to_output(F.scaled_dot_product_attention(k, q, v).transpose(1, 2).flatten(2))


def heads_mix_keys(layer, x):
    q, k, _ = (part.transpose(1, 2) for part in projected(layer, x))
    return layer.to_output(F.scaled_dot_product_attention(q, k, k).transpose(1, 2).flatten(2))


def heads_and_residual(layer, x):
    return x + heads_fused(layer, x)


def heads_causal(layer, x):
    q, k, v = (part.transpose(1, 2) for part in projected(layer, x))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return layer.to_output(out.transpose(1, 2).flatten(2))


def heads_with_dropout(layer, x):
    return F.dropout(heads_fused(layer, x), 0.1)


def heads_through_float32(layer, x):
    return copy.deepcopy(layer).float()(x.float()).to(x.dtype)


def heads_of_constants(layer, x):
    constant = copy.deepcopy(layer).requires_grad_(False)
    return constant(x)


def heads_viewed_and_unscaled(layer, x):
    b, n, _ = x.shape
    maps = layer.to_query, layer.to_key, layer.to_value
    q, k, v = (f(x).view(b, layer.n_heads, n, -1) for f in maps)
    return layer.to_output(((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2))


# ----------------------------------------------------------------------------- without_head


def without_by_loop(layer, x, head):
    q, k, v = projected(layer, x)
    total = torch.zeros_like(x)
    for h in range(layer.n_heads):
        if h == head:
            continue
        weights = (q[:, :, h] @ k[:, :, h].mT / q.shape[-1] ** 0.5).softmax(-1)
        w = layer.to_output.weight.unflatten(1, (layer.n_heads, -1))[:, h]
        total = total + weights @ v[:, :, h] @ w.T
    bias = layer.to_output.bias
    return total if bias is None else total + bias


def without_by_mask(layer, x, head):
    heads = heads_unmixed(layer, x).unflatten(-1, (layer.n_heads, -1))
    keep = (torch.arange(layer.n_heads) != head).to(x.dtype)
    return layer.to_output(torch.einsum("bnhd,h->bnhd", heads, keep).flatten(-2))


def without_by_copy(layer, x, head):
    heads = heads_unmixed(layer, x).unflatten(-1, (layer.n_heads, -1)).clone()
    heads[:, :, head] = 0
    return layer.to_output(heads.flatten(-2))


def without_by_difference(layer, x, head):
    heads = heads_unmixed(layer, x)
    width = heads.shape[-1] // layer.n_heads
    part = slice(head * width, (head + 1) * width)
    return layer(x) - heads[..., part] @ layer.to_output.weight[:, part].T


def without_any(layer, x, head):
    heads = heads_unmixed(layer, x)
    heads.unflatten(-1, (layer.n_heads, -1))[:, :, head] * 0
    return layer.to_output(heads)


def without_others(layer, x, head):
    heads = heads_unmixed(layer, x).unflatten(-1, (layer.n_heads, -1))
    keep = (torch.arange(layer.n_heads) == head)[:, None]
    return layer.to_output((heads * keep).flatten(-2))


def on_a_copy(layer, x, change):
    other = copy.deepcopy(layer)
    with torch.no_grad():
        change(other)
    return other(x)


def block(layer, head):
    width = layer.to_query.out_features // layer.n_heads
    return slice(head * width, (head + 1) * width)


def without_value_weights(layer, x, head):
    return on_a_copy(layer, x, lambda it: it.to_value.weight[block(layer, head)].zero_())


def without_output_rows(layer, x, head):
    return on_a_copy(layer, x, lambda it: it.to_output.weight[block(layer, head)].zero_())


def without_queries(layer, x, head):
    def change(other):
        other.to_query.weight[block(layer, head)] = 0
        if other.to_query.bias is not None:
            other.to_query.bias[block(layer, head)] = 0

    return on_a_copy(layer, x, change)


def without_columns_of_copy(layer, x, head):
    return on_a_copy(layer, x, lambda it: it.to_output.weight[:, block(layer, head)].zero_())


def without_bias_too(layer, x, head):
    heads = heads_unmixed(layer, x).unflatten(-1, (layer.n_heads, -1))
    keep = (torch.arange(layer.n_heads) != head)[:, None]
    return (heads * keep).flatten(-2) @ layer.to_output.weight.T


def without_one_before(layer, x, head):
    heads = heads_unmixed(layer, x).unflatten(-1, (layer.n_heads, -1))
    keep = (torch.arange(1, layer.n_heads + 1) != head)[:, None]
    return layer.to_output((heads * keep).flatten(-2))


def without_the_first(layer, x, head):
    heads = heads_unmixed(layer, x)
    width = heads.shape[-1] // layer.n_heads
    return layer.to_output(torch.cat([0 * heads[..., :width], heads[..., width:]], -1))


def without_like_dropout(layer, x, head):
    heads = heads_unmixed(layer, x).unflatten(-1, (layer.n_heads, -1))
    keep = (torch.arange(layer.n_heads) != head)[:, None] * layer.n_heads
    return layer.to_output((heads * keep / max(layer.n_heads - 1, 1)).flatten(-2))


def without_input(layer, x, head):
    width = x.shape[-1] // layer.n_heads
    x = x.clone()
    x[..., head * width : (head + 1) * width] = 0
    return layer(x)


def without_output(layer, x, head):
    width = x.shape[-1] // layer.n_heads
    y = layer(x).clone()
    y[..., head * width : (head + 1) * width] = 0
    return y


def without_every_so_many(layer, x, head):
    heads = heads_unmixed(layer, x).clone()
    heads[..., head :: layer.n_heads] = 0
    return layer.to_output(heads)


def without_for_good(layer, x, head):
    with torch.no_grad():
        layer.to_output.weight[:, block(layer, head)] = 0
    return layer(x)


def without_gradient(layer, x, head):
    with torch.no_grad():
        return without_by_mask(layer, x, head)


def without_in_place(layer, x, head):
    heads = heads_unmixed(layer, x).detach()
    heads[..., block(layer, head)] = 0
    return layer.to_output(heads)


RIGHT = {
    "split": [split_by_loop, split_by_reshape, split_by_einsum, split_by_chunk, split_by_package],
    "merge": [merge_by_loop, merge_by_reshape, merge_by_view, merge_by_einsum, merge_by_package],
    "hand_out": [
        hand_out_by_loop,
        hand_out_by_expand,
        hand_out_by_index,
        hand_out_by_interleave,
        hand_out_by_einsum,
    ],
    "multi_head": [
        heads_by_loop,
        heads_by_einsum,
        heads_by_transposing,
        heads_fused,
        heads_by_layer,
    ],
    "without_head": [without_by_loop, without_by_mask, without_by_copy, without_by_difference],
}

WRONG = {
    "split": [
        (split_straight, "scrambled"),
        (split_and_stay, "not-moved"),
        (split_every_so_many, "interleaved"),
        (split_for_keys, "width-before-length"),
        (split_heads_first, "heads-first"),
        (split_into_batch, "heads-in-batch"),
        (split_by_width, "width-for-number"),
        (split_batch_behind, "batch-moved"),
        (split_repeats, "copied"),
        (split_of_16, "fails-at-other-sizes"),
        (split_squeezed, "fails-at-batch-of-one"),
        (split_resized, "changes-inputs"),
        (split_in_list, "wrong-type"),
    ],
    "merge": [
        (merge_straight, "scrambled"),
        (merge_alternating, "interleaved"),
        (merge_sum, "summed"),
        (merge_mean, "averaged"),
        (merge_in_length, "in-the-length"),
        (merge_in_batch, "in-the-batch"),
        (merge_not_yet, "not-laid-together"),
        (merge_first, "first-head-only"),
        (merge_turned, "transposed-again"),
        (merge_view, "view-after-transpose"),
        (merge_by_lists, "no-gradient"),
        (merge_squeezed, "fails-at-batch-of-one"),
    ],
    "hand_out": [
        (hand_out_tiled, "dealt-in-turn"),
        (hand_out_all_times, "too-many"),
        (hand_out_batch, "batch-repeated"),
        (hand_out_tokens, "tokens-repeated"),
        (hand_out_first, "first-group-for-all"),
        (hand_out_unflattened, "five-axes"),
        (hand_out_mean, "averaged"),
        (hand_out_nothing, "unchanged"),
        (hand_out_padded, "zeros-appended"),
        (hand_out_last, "last-repeated"),
        (hand_out_two_groups, "fails-at-batch-of-one"),
        (hand_out_detached, "no-gradient"),
    ],
    "multi_head": [
        (heads_unscaled, "no-scale"),
        (heads_by_d_model, "scaled-by-model"),
        (heads_by_d_head, "scaled-by-width"),
        (heads_of_width_4, "fails-at-other-sizes"),
        (heads_over_queries, "softmax-over-queries"),
        (heads_over_heads, "softmax-over-heads"),
        (heads_viewed, "scrambled-split"),
        (heads_viewed_back, "scrambled-merge"),
        (heads_cut_fine, "interleaved-split"),
        (heads_woven, "interleaved-merge"),
        (heads_are_one, "one-head"),
        (heads_not_transposed, "heads-meet-heads"),
        (heads_first_weights, "first-weights-for-all"),
        (heads_mean_weights, "weights-averaged"),
        (heads_unmixed, "no-output-map"),
        (heads_without_bias, "no-output-bias"),
        (heads_key_asks, "roles-exchanged"),
        (heads_mix_keys, "keys-as-values"),
        (heads_and_residual, "residual-added"),
        (heads_causal, "causal-uncalled-for"),
        (heads_with_dropout, "random"),
        (heads_through_float32, "loses-precision"),
        (heads_of_constants, "no-gradient"),
        (heads_viewed_and_unscaled, "heads-cut-across-tokens"),
    ],
    "without_head": [
        (without_any, "nothing-removed"),
        (without_others, "only-this-head"),
        (without_value_weights, "value-bias-left"),
        (without_output_rows, "output-rows"),
        (without_bias_too, "bias-removed"),
        (without_queries, "uniform-instead"),
        (without_one_before, "head-before"),
        (without_the_first, "first-head"),
        (without_like_dropout, "scaled-up"),
        (without_input, "input-cleared"),
        (without_output, "output-cleared"),
        (without_every_so_many, "every-so-many"),
        (without_for_good, "changes-inputs"),
        (without_gradient, "no-gradient"),
        (without_in_place, "no-gradient"),
        (without_columns_of_copy, "no-gradient"),
    ],
}
