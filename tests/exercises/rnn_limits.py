"""Right and wrong solutions of the exercises on recurrent networks."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

# ------------------------------------------------------------------------------- last_state


def last_by_loop(outputs, lengths):
    return torch.stack([outputs[b, lengths[b] - 1] for b in range(outputs.shape[0])])


def last_by_two_indices(outputs, lengths):
    return outputs[torch.arange(outputs.shape[0]), lengths - 1]


def last_by_gather(outputs, lengths):
    index = (lengths.long() - 1)[:, None, None].expand(-1, 1, outputs.shape[2])
    return outputs.gather(1, index)[:, 0]


def last_by_take_along(outputs, lengths):
    return torch.take_along_dim(outputs, (lengths.long() - 1).view(-1, 1, 1), dim=1).squeeze(1)


def last_by_packing(outputs, lengths):
    packed = pack_padded_sequence(outputs, lengths, batch_first=True, enforce_sorted=False)
    real, _ = pad_packed_sequence(packed, batch_first=True)
    return torch.stack([row[n - 1] for row, n in zip(real, lengths.tolist(), strict=True)])


def last_of_row(outputs, lengths):
    return outputs[:, -1, :]


def one_too_far(outputs, lengths):
    return outputs[torch.arange(outputs.size(0)), lengths]


def one_before(outputs, lengths):
    return outputs[torch.arange(outputs.size(0)), lengths - 2]


def first_of_row(outputs, lengths):
    return outputs[:, 0]


def last_of_batch(outputs, lengths):
    return outputs[-1]


def one_index(outputs, lengths):
    return outputs[:, lengths - 1]


def cut_at_longest(outputs, lengths):
    return outputs[:, max(lengths) - 1]


def cut_at_first(outputs, lengths):
    return outputs[:, lengths[0] - 1]


def mean_of_real(outputs, lengths):
    rows = [outputs[b, : lengths[b]].mean(0) for b in range(len(outputs))]
    return torch.stack(rows)


def times_one_hot(outputs, lengths):
    place = F.one_hot(lengths.long() - 1, outputs.shape[1]).to(outputs.dtype)
    return torch.einsum("blw,bl->bw", outputs, place)


def max_pooled(outputs, lengths):
    return outputs.max(dim=1).values


def gathered_with_axis(outputs, lengths):
    index = (lengths.long() - 1)[:, None, None].expand(-1, 1, outputs.shape[2])
    return outputs.gather(1, index)


def gathered_and_squeezed(outputs, lengths):
    index = (lengths.long() - 1)[:, None, None].expand(-1, 1, outputs.shape[2])
    return outputs.gather(1, index).squeeze()


def through_lists(outputs, lengths):
    rows = [outputs[b, n - 1].tolist() for b, n in enumerate(lengths.tolist())]
    return torch.tensor(rows, dtype=outputs.dtype)


def decrements_lengths(outputs, lengths):
    lengths -= 1
    return outputs[torch.arange(len(outputs)), lengths]


# -------------------------------------------------------------------------------- backwards


def backwards_by_loop(source, lengths):
    result = source.clone()
    for b, n in enumerate(lengths.tolist()):
        result[b, :n] = source[b, :n].flip(0)
    return result


def backwards_by_gather(source, lengths):
    place = torch.arange(source.shape[1]).expand_as(source)
    mirrored = lengths[:, None] - 1 - place
    return torch.gather(source, 1, torch.where(mirrored >= 0, mirrored, place))


def backwards_by_roll(source, lengths):
    rows = []
    for row, n in zip(source, lengths.tolist(), strict=True):
        rows.append(torch.cat([row.flip(0).roll(n - len(row))[:n], row[n:]]))
    return torch.stack(rows)


def backwards_by_sorting(source, lengths):
    place = torch.arange(source.shape[1])[None]
    rank = torch.where(place < lengths[:, None], lengths[:, None] - 1 - place, place)
    return torch.take_along_dim(source, rank.argsort(1), 1)


def flip_all(source, lengths):
    return torch.flip(source, dims=[1])


def flip_batch(source, lengths):
    return torch.flip(source, dims=[0])


def flip_both(source, lengths):
    return backwards_by_loop(source, lengths).flip(0)


def forgets_to_keep(source, lengths):
    for b, n in enumerate(lengths.tolist()):
        source[b, :n].flip(0)
    return source


def without_minus_one(source, lengths):
    place = torch.arange(source.shape[1]).expand_as(source)
    mirrored = (lengths[:, None] - place).clamp(max=source.shape[1] - 1)
    return source.gather(1, torch.where(place < lengths[:, None], mirrored, place))


def by_longest(source, lengths):
    longest = int(lengths.max())
    return torch.cat([source[:, :longest].flip(1), source[:, longest:]], dim=1)


def by_first(source, lengths):
    n = lengths[0]
    return torch.cat([source[:, :n].flip(1), source[:, n:]], dim=1)


def by_nonzero(source, lengths):
    return backwards_by_loop(source, (source != 0).sum(1))


def pads_with_zeros(source, lengths):
    result = torch.zeros_like(source)
    for b, n in enumerate(lengths.tolist()):
        result[b, :n] = source[b, :n].flip(0)
    return result


def to_the_end(source, lengths):
    pairs = zip(source, lengths, strict=True)
    return torch.stack([torch.cat([row[n:], row[:n]]) for row, n in pairs])


def reversed_in_place(source, lengths):
    for b, n in enumerate(lengths.tolist()):
        source[b, :n] = source[b, :n].flip(0)
    return source


def ragged(source, lengths):
    return [row[:n].flip(0) for row, n in zip(source, lengths, strict=True)]


def as_floats(source, lengths):
    result = torch.zeros(source.shape)
    for b, n in enumerate(lengths.tolist()):
        result[b] = torch.cat([source[b, :n].flip(0), source[b, n:]])
    return result


# --------------------------------------------------------------------------------- gru_step


def gates(x, h, cell):
    return cell.from_input(x).chunk(3, dim=-1), cell.from_state(h).chunk(3, dim=-1)


def gru_by_chunks(x, h, cell):
    (xr, xk, xn), (hr, hk, hn) = gates(x, h, cell)
    reset, keep = torch.sigmoid(xr + hr), torch.sigmoid(xk + hk)
    return (1 - keep) * torch.tanh(xn + reset * hn) + keep * h


def gru_by_lerp(x, h, cell):
    width = h.shape[-1]
    a, b = cell.from_input(x), cell.from_state(h)
    r, k = torch.sigmoid(a[:, : 2 * width] + b[:, : 2 * width]).split(width, dim=1)
    return torch.lerp(torch.tanh(a[:, 2 * width :] + r * b[:, 2 * width :]), h, k)


def gru_by_matrices(x, h, cell):
    w = cell.from_input.weight.view(3, h.shape[1], x.shape[1])
    u = cell.from_state.weight.view(3, h.shape[1], h.shape[1])
    a = torch.einsum("gij,bj->gbi", w, x) + cell.from_input.bias.view(3, 1, -1)
    b = torch.einsum("gij,bj->gbi", u, h) + cell.from_state.bias.view(3, 1, -1)
    k = (a[1] + b[1]).sigmoid()
    return h + (1 - k) * ((a[2] + (a[0] + b[0]).sigmoid() * b[2]).tanh() - h)


def gru_by_torch(x, h, cell):
    weights = cell.from_input.weight, cell.from_state.weight
    return torch.gru_cell(x, h, *weights, cell.from_input.bias, cell.from_state.bias)


def keep_on_new(x, h, cell):
    (xr, xk, xn), (hr, hk, hn) = gates(x, h, cell)
    z = torch.sigmoid(xk + hk)
    return z * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + (1 - z) * h


def keep_comes_first(x, h, cell):
    (xk, xr, xn), (hk, hr, hn) = gates(x, h, cell)
    z = torch.sigmoid(xk + hk)
    return (1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn) + z * h


def as_in_the_paper(x, h, cell):
    (xr, xk, xn), (hr, hk, _) = gates(x, h, cell)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xk + hk)
    hn = cell.from_state(r * h).chunk(3, -1)[2]
    return (1 - z) * torch.tanh(xn + hn) + z * h


def bias_escapes(x, h, cell):
    (xr, xk, xn), (hr, hk, _) = gates(x, h, cell)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xk + hk)
    w, b = cell.from_state.weight.chunk(3)[2], cell.from_state.bias.chunk(3)[2]
    return (1 - z) * torch.tanh(xn + r * (h @ w.T) + b) + z * h


def resets_input(x, h, cell):
    (xr, xk, xn), (hr, hk, hn) = gates(x, h, cell)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xk + hk)
    return (1 - z) * torch.tanh(r * xn + hn) + z * h


def resets_sum(x, h, cell):
    (xr, xk, xn), (hr, hk, hn) = gates(x, h, cell)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xk + hk)
    return (1 - z) * torch.tanh(r * (xn + hn)) + z * h


def never_resets(x, h, cell):
    (_, xk, xn), (_, hk, hn) = gates(x, h, cell)
    z = torch.sigmoid(xk + hk)
    return (1 - z) * torch.tanh(xn + hn) + z * h


def unbounded(x, h, cell):
    (xr, xk, xn), (hr, hk, hn) = gates(x, h, cell)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xk + hk)
    return (1 - z) * (xn + r * hn) + z * h


def all_sigmoids(x, h, cell):
    (xr, xk, xn), (hr, hk, hn) = gates(x, h, cell)
    r, z = torch.sigmoid(xr + hr), torch.sigmoid(xk + hk)
    return (1 - z) * torch.sigmoid(xn + r * hn) + z * h


def all_tanhs(x, h, cell):
    (xr, xk, xn), (hr, hk, hn) = gates(x, h, cell)
    r, z = torch.tanh(xr + hr), torch.tanh(xk + hk)
    return (1 - z) * torch.tanh(xn + r * hn) + z * h


def new_alone(x, h, cell):
    (xr, _, xn), (hr, _, hn) = gates(x, h, cell)
    return torch.tanh(xn + torch.sigmoid(xr + hr) * hn)


def adds_to_old(x, h, cell):
    (xr, xk, xn), (hr, hk, hn) = gates(x, h, cell)
    z = torch.sigmoid(xk + hk)
    return h + (1 - z) * torch.tanh(xn + torch.sigmoid(xr + hr) * hn)


def every_third(x, h, cell):
    a, b = cell.from_input(x), cell.from_state(h)
    r = torch.sigmoid(a[:, 0::3] + b[:, 0::3])
    z = torch.sigmoid(a[:, 1::3] + b[:, 1::3])
    return (1 - z) * torch.tanh(a[:, 2::3] + r * b[:, 2::3]) + z * h


def deaf_gates(x, h, cell):
    (xr, xk, xn), (_, _, hn) = gates(x, h, cell)
    z = torch.sigmoid(xk)
    return (1 - z) * torch.tanh(xn + torch.sigmoid(xr) * hn) + z * h


def gives_a_state(x, h, cell):
    return cell(x, (h,))


def chunks_the_batch(x, h, cell):
    xr, xk, xn = cell.from_input(x).chunk(3, dim=0)
    hr, hk, hn = cell.from_state(h).chunk(3, dim=0)
    return torch.sigmoid(xr + hr) * torch.tanh(xn + hn) + torch.sigmoid(xk + hk)


def without_state_gradient(x, h, cell):
    return gru_by_chunks(x, h.detach(), cell)


def state_in_place(x, h, cell):
    (xr, xk, xn), (hr, hk, hn) = gates(x, h, cell)
    z = torch.sigmoid(xk + hk)
    new = torch.tanh(xn + torch.sigmoid(xr + hr) * hn)
    h.data.mul_(z)
    return h + (1 - z) * new


# -------------------------------------------------------------------------------------- ask


def ask_by_loops(query, memory, mask, layer):
    mask = mask.expand(query.shape[0], 1, query.shape[1], memory.shape[1])[:, 0]
    rows = []
    for b in range(query.shape[0]):
        for i in range(query.shape[1]):
            seen = memory[b][mask[b, i]]
            pair = torch.tanh(layer.to_query(query[b, i]) + layer.to_key(seen))
            rows.append((layer.to_score(pair).softmax(0) * seen).sum(0))
    return torch.stack(rows).view(*query.shape[:2], -1)


def ask_by_einsum(query, memory, mask, layer):
    q = torch.einsum("bqd,ad->bqa", query, layer.to_query.weight)
    k = torch.einsum("bkd,ad->bka", memory, layer.to_key.weight)
    pairs = torch.tanh(q.unsqueeze(2) + k.unsqueeze(1))
    scores = torch.einsum("bqka,a->bqk", pairs, layer.to_score.weight[0])
    blind = ~mask[:, 0].any(-1, keepdim=True)
    scores = torch.where(mask[:, 0] | blind, scores, float("-inf"))
    weights = scores.softmax(-1).masked_fill(blind, 0)
    return torch.einsum("bqk,bkd->bqd", weights, memory)


def ask_by_bmm(query, memory, mask, layer):
    q, k = layer.to_query(query)[:, :, None], layer.to_key(memory)[:, None]
    scores = layer.to_score(torch.tanh(q + k)).squeeze(-1)
    allowed = mask.squeeze(1).expand_as(scores)
    shifted = scores.masked_fill(~allowed, torch.finfo(scores.dtype).min)
    powers = (shifted - shifted.amax(-1, keepdim=True)).exp() * allowed
    return torch.bmm(powers / powers.sum(-1, keepdim=True).clamp_min(1e-4), memory)


def ask_by_layer(query, memory, mask, layer):
    return layer(query, memory, mask=mask)


def ask_by_nan_to_num(query, memory, mask, layer):
    scores = scores_of_pairs(query, memory, layer).masked_fill(~mask[:, 0], float("-inf"))
    return scores.softmax(-1).nan_to_num(0.0) @ memory


def scores_of_pairs(query, memory, layer):
    pairs = layer.to_query(query)[:, :, None] + layer.to_key(memory)[:, None]
    return layer.to_score(torch.tanh(pairs))[..., 0]


def no_mask(query, memory, mask, layer):
    return scores_of_pairs(query, memory, layer).softmax(-1) @ memory


def no_underscore(query, memory, mask, layer):
    scores = scores_of_pairs(query, memory, layer)
    scores.masked_fill(~mask[:, 0], float("-inf"))
    return scores.softmax(-1) @ memory


def polarity(query, memory, mask, layer):
    scores = scores_of_pairs(query, memory, layer)
    return scores.masked_fill(mask[:, 0], float("-inf")).softmax(-1) @ memory


def mask_last(query, memory, mask, layer):
    weights = scores_of_pairs(query, memory, layer).softmax(-1)
    return weights.masked_fill(~mask[:, 0], 0) @ memory


def mask_last_and_divide(query, memory, mask, layer):
    weights = scores_of_pairs(query, memory, layer).softmax(-1).masked_fill(~mask[:, 0], 0)
    return weights / weights.sum(-1, keepdim=True) @ memory


def fills_zero(query, memory, mask, layer):
    scores = scores_of_pairs(query, memory, layer)
    return scores.masked_fill(~mask[:, 0], 0).softmax(-1) @ memory


def over_queries(query, memory, mask, layer):
    scores = scores_of_pairs(query, memory, layer).masked_fill(~mask[:, 0], float("-inf"))
    return scores.softmax(1) @ memory


def minus_billion(query, memory, mask, layer):
    scores = scores_of_pairs(query, memory, layer).masked_fill(~mask[:, 0], -1e9)
    return scores.softmax(-1) @ memory


def lowest_number(query, memory, mask, layer):
    scores = scores_of_pairs(query, memory, layer)
    lowest = torch.finfo(scores.dtype).min
    return scores.masked_fill(~mask[:, 0], lowest).softmax(-1) @ memory


def minus_infinity(query, memory, mask, layer):
    scores = scores_of_pairs(query, memory, layer).masked_fill(~mask[:, 0], float("-inf"))
    return scores.softmax(-1) @ memory


def adds_minus_infinity(query, memory, mask, layer):
    scores = scores_of_pairs(query, memory, layer)
    scores = scores + torch.zeros(mask[:, 0].shape).masked_fill(~mask[:, 0], float("-inf")).to(
        scores
    )
    return scores.softmax(-1).nan_to_num(0.0) @ memory


def linear_scores(query, memory, mask, layer):
    pairs = layer.to_query(query)[:, :, None] + layer.to_key(memory)[:, None]
    weights = weigh(layer.to_score(pairs)[..., 0], mask)
    return weights @ memory


def late_tanh(query, memory, mask, layer):
    pairs = layer.to_query(query)[:, :, None] + layer.to_key(memory)[:, None]
    return weigh(layer.to_score(pairs)[..., 0].tanh(), mask) @ memory


def two_tanhs(query, memory, mask, layer):
    q, k = layer.to_query(query).tanh()[:, :, None], layer.to_key(memory).tanh()[:, None]
    return weigh(layer.to_score(q + k)[..., 0], mask) @ memory


def products(query, memory, mask, layer):
    return weigh(torch.bmm(layer.to_query(query), layer.to_key(memory).mT), mask) @ memory


def scaled_like_products(query, memory, mask, layer):
    scores = scores_of_pairs(query, memory, layer) / layer.to_query.out_features**0.5
    return weigh(scores, mask) @ memory


def averages_keys(query, memory, mask, layer):
    return weigh(scores_of_pairs(query, memory, layer), mask) @ layer.to_key(memory)


def weigh(scores, mask):
    blind = ~mask[:, 0].any(-1, keepdim=True)
    hidden = ~mask[:, 0] & ~blind
    return scores.masked_fill(hidden, float("-inf")).softmax(-1).masked_fill(blind, 0)


# ------------------------------------------------------------------------------------- scan


def scan_by_pad(a, b):
    reach = 1
    while reach < len(a):
        before_a = F.pad(a[:-reach], (0, 0, reach, 0), value=1.0)
        before_b = F.pad(b[:-reach], (0, 0, reach, 0))
        a, b = a * before_a, a * before_b + b
        reach = 2 * reach
    return b


def scan_by_cat(a, b):
    n, step = a.shape[0], 1
    while step < n:
        new_b = torch.cat([b[:step], a[step:] * b[:-step] + b[step:]])
        a = torch.cat([a[:step], a[step:] * a[:-step]])
        b, step = new_b, step * 2
    return b


def scan_by_halves(a, b):
    n = len(a)
    if n == 1:
        return b
    even = n - n % 2
    pair_a = a[1:even:2] * a[0:even:2]
    pair_b = a[1:even:2] * b[0:even:2] + b[1:even:2]
    odd = scan_by_halves(pair_a, pair_b)
    before = F.pad(odd, (0, 0, 1, 0))[: (n + 1) // 2]
    evens = a[0::2] * before + b[0::2]
    woven = torch.stack([evens[: even // 2], odd], 1).flatten(0, 1)
    return torch.cat([woven, evens[even // 2 :]])


def scan_by_matrix(a, b):
    n = len(a)
    later = torch.ones(n, n, dtype=torch.bool).tril(-1)[..., None]
    factors = torch.where(later, a[:, None], torch.ones_like(a[:, None])).cumprod(0)
    return torch.einsum("tsw,sw->tw", factors * torch.ones(n, n).tril()[..., None].to(a), b)


def scan_by_where(a, b):
    place, reach = torch.arange(len(a))[:, None], 1
    while reach < len(a):
        near = place < reach
        old_a, old_b = a.roll(reach, 0), b.roll(reach, 0)
        b = torch.where(near, b, a * old_b + b)
        a = torch.where(near, a, a * old_a)
        reach += reach
    return b


def loops(a, b):
    h, states = torch.zeros(a.shape[1], dtype=a.dtype), []
    for t in range(len(a)):
        h = a[t] * h + b[t]
        states.append(h)
    return torch.stack(states)


def only_sums(a, b):
    return torch.cumsum(b, dim=0)


def divides(a, b):
    products = torch.cumprod(a, 0)
    return products * torch.cumsum(b / products, 0)


def same_factors(a, b):
    reach = 1
    while reach < len(a):
        b = torch.cat([b[:reach], a[reach:] * b[:-reach] + b[reach:]])
        reach *= 2
    return b


def factors_first(a, b):
    reach = 1
    while reach < len(a):
        a = torch.cat([a[:reach], a[reach:] * a[:-reach]])
        b = torch.cat([b[:reach], a[reach:] * b[:-reach] + b[reach:]])
        reach *= 2
    return b


def stops_early(a, b):
    reach = 1
    while 2 * reach < len(a):
        b = torch.cat([b[:reach], a[reach:] * b[:-reach] + b[reach:]])
        a = torch.cat([a[:reach], a[reach:] * a[:-reach]])
        reach *= 2
    return b


def one_round(a, b):
    return torch.cat([b[:1], a[1:] * b[:-1] + b[1:]])


def from_the_end(a, b):
    return scan_by_cat(a.flip(0), b.flip(0)).flip(0)


def over_width(a, b):
    return scan_by_cat(a.T, b.T).T


def state_before(a, b):
    return torch.cat([torch.zeros_like(b[:1]), scan_by_cat(a, b)[:-1]])


def last_only(a, b):
    return scan_by_cat(a, b)[-1]


def factor_on_both(a, b):
    return scan_by_cat(a, a * b)


def rolls_around(a, b):
    for r in range((len(a) - 1).bit_length()):
        old_a, old_b = torch.roll(a, 2**r, 0), torch.roll(b, 2**r, 0)
        a, b = a * old_a, a * old_b + b
    return b


def in_place_rounds(a, b):
    reach = 1
    with torch.no_grad():
        while reach < len(a):
            b[reach:] = a[reach:] * b[:-reach] + b[reach:]
            a[reach:] = a[reach:] * a[:-reach]
            reach *= 2
    return b


def powers_of_two_only(a, b):
    n, width = a.shape
    for r in range(n.bit_length() - 1):
        a, b = a.view(-1, 2**r, width), b.view(-1, 2**r, width)
        last_a, last_b = a[0::2, -1:], b[0::2, -1:]
        b = torch.stack([b[0::2], a[1::2] * last_b + b[1::2]], 1).flatten(0, 2)
        a = torch.stack([a[0::2], a[1::2] * last_a], 1).flatten(0, 2)
    return b


RIGHT = {
    "last_state": [
        last_by_loop,
        last_by_two_indices,
        last_by_gather,
        last_by_take_along,
        last_by_packing,
    ],
    "backwards": [
        backwards_by_loop,
        backwards_by_gather,
        backwards_by_roll,
        backwards_by_sorting,
    ],
    "gru_step": [gru_by_chunks, gru_by_lerp, gru_by_matrices, gru_by_torch],
    "ask": [ask_by_loops, ask_by_einsum, ask_by_bmm, ask_by_layer, ask_by_nan_to_num],
    "scan": [scan_by_pad, scan_by_cat, scan_by_halves, scan_by_matrix, scan_by_where],
}

WRONG = {
    "last_state": [
        (last_of_row, "last-place"),
        (one_too_far, "off-by-one"),
        (one_before, "one-too-early"),
        (first_of_row, "first-place"),
        (last_of_batch, "last-sequence"),
        (one_index, "all-pairs"),
        (cut_at_longest, "longest-for-all"),
        (cut_at_first, "first-for-all"),
        (mean_of_real, "averaged"),
        (times_one_hot, "summed-with-mask"),
        (max_pooled, "largest"),
        (gathered_with_axis, "axis-of-length-left"),
        (gathered_and_squeezed, "squeezed"),
        (through_lists, "no-gradient"),
        (decrements_lengths, "changes-inputs"),
    ],
    "backwards": [
        (flip_all, "padding-first"),
        (flip_batch, "batch-reversed"),
        (flip_both, "both-reversed"),
        (forgets_to_keep, "unchanged"),
        (without_minus_one, "off-by-one"),
        (by_longest, "longest-for-all"),
        (by_first, "first-for-all"),
        (by_nonzero, "length-from-zeros"),
        (pads_with_zeros, "padding-overwritten"),
        (to_the_end, "rolled"),
        (reversed_in_place, "changes-inputs"),
        (ragged, "wrong-type"),
        (as_floats, "wrong-dtype"),
    ],
    "gru_step": [
        (keep_on_new, "shares-exchanged"),
        (keep_comes_first, "gates-exchanged"),
        (as_in_the_paper, "reset-before-product"),
        (bias_escapes, "reset-without-bias"),
        (resets_input, "reset-on-input"),
        (resets_sum, "reset-on-both"),
        (never_resets, "reset-forgotten"),
        (unbounded, "no-tanh"),
        (all_sigmoids, "sigmoid-for-tanh"),
        (all_tanhs, "tanh-for-sigmoid"),
        (new_alone, "old-state-lost"),
        (adds_to_old, "old-state-whole"),
        (every_third, "parts-interleaved"),
        (deaf_gates, "gates-without-state"),
        (gives_a_state, "wrong-type"),
        (chunks_the_batch, "wrong-shape"),
        (without_state_gradient, "no-gradient"),
        (state_in_place, "changes-inputs"),
        (nn.GRUCell(5, 5), "wrong-signature"),
    ],
    "ask": [
        (no_mask, "mask-ignored"),
        (no_underscore, "mask-ignored"),
        (polarity, "mask-inverted"),
        (mask_last, "mask-after-softmax"),
        (mask_last_and_divide, "renormalised"),
        (fills_zero, "hidden-scores-zero"),
        (over_queries, "softmax-over-queries"),
        (minus_billion, "minus-1e9"),
        (lowest_number, "blind-rows-average"),
        (minus_infinity, "blind-rows-nan"),
        (adds_minus_infinity, "nan-gradient"),
        (linear_scores, "no-tanh"),
        (late_tanh, "tanh-last"),
        (two_tanhs, "query-not-heard"),
        (products, "dot-product"),
        (scaled_like_products, "divided-by-root"),
        (averages_keys, "keys-mixed"),
    ],
    "scan": [
        (loops, "loops-over-time"),
        (only_sums, "factors-ignored"),
        (divides, "divides-by-products"),
        (same_factors, "factors-not-combined"),
        (factors_first, "factor-updated-first"),
        (stops_early, "one-round-too-few"),
        (one_round, "one-round-only"),
        (from_the_end, "backwards"),
        (over_width, "along-width"),
        (state_before, "one-step-late"),
        (last_only, "last-state-only"),
        (factor_on_both, "factor-on-input"),
        (rolls_around, "wraps-around"),
        (in_place_rounds, "changes-inputs"),
        (powers_of_two_only, "fails-at-seven-steps"),
    ],
}
