"""Exact attention that never holds the score matrix: one tile of it at a time.

FlashAttention's algorithm, in plain PyTorch. Read ``_attend_head`` first, which is the forward pass
of one head, then ``_differentiate_head``, which computes each tile a second time.
"""

import math
from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from attnlib.checks import can_be_read, check_sizes
from attnlib.functional import _check_inputs, _from_4d, _to_4d

# 2048 · 512 scores of 4 bytes are 4 MiB: they stay in the cache from the product to the average.
_Q_TILE, _K_TILE = 2048, 512


def tiled_attention(
    query: Float[Tensor, "*batch q_len d_head"],
    key: Float[Tensor, "*batch k_len d_head"],
    value: Float[Tensor, "*batch k_len d_value"],
    *,
    mask: Bool[Tensor, "#b #h #q_len #k_len"] | None = None,
    bias: Float[Tensor, "#b #h #q_len #k_len"] | None = None,
    scale: float | None = None,
    q_tile: int = _Q_TILE,
    k_tile: int = _K_TILE,
) -> Float[Tensor, "*batch q_len d_value"]:
    r"""The output of :func:`~attnlib.functional.attention`, one tile of scores at a time.

    The softmax of a row seems to need the whole row. It does not: with the averages over two parts
    of the keys, and the sums :math:`e^{L}` of their exponentials, the average over both is

    .. math::
        o = \frac{e^{L_1} o_1 + e^{L_2} o_2}{e^{L_1} + e^{L_2}}, \quad
        L_i = \ln \sum_{j \in i} e^{s_j}

    (:func:`merge_averages`). So the keys are taken tile by tile. For the backward pass only the
    output and one number for each query, :math:`L`, are kept; each tile of weights is computed
    again, as :math:`e^{s - L}`. The arithmetic stays quadratic in the length, and the memory is
    linear. A tile in which the mask allows nothing is skipped: a causal mask saves half the work.

    What is hidden may not be looked at: a NaN in a key or a value shows in the queries that may see
    it, but not in all of the others, as it does in the equation.

    Args:
        query: As for :func:`~attnlib.functional.attention`.
        key: As there.
        value: As there.
        mask: As there.
        bias: As there; it gets its gradient.
        scale: As there.
        q_tile: Number of queries in a tile; it need not divide their number.
        k_tile: Number of keys in a tile.

    Returns:
        The weighted average of the values for each query, 0 where nothing may be seen.

    Raises:
        TypeError: As :func:`~attnlib.functional.attention`, or if a tile is not a whole number.
        ValueError: As there, or if a tile is not positive.
        RuntimeError: In the backward pass, if a second derivative is asked for.

    Example:
        >>> q, k, v = torch.randn(3, 1000, 8).unbind()
        >>> tiled = tiled_attention(q, k, v, q_tile=64, k_tile=300)
        >>> dense = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        >>> torch.allclose(tiled, dense, atol=1e-6)
        True

    Source:
        Dao et al. 2022 (FlashAttention), arXiv:2205.14135, algorithms 1 and 4; Milakov and
        Gimelshein 2018, arXiv:1805.02867. Checked against the equation, forward and gradient.
    """
    _check_inputs(query, key, value, mask, bias)
    check_sizes(q_tile=q_tile, k_tile=k_tile)
    n_dims = query.ndim
    query, key, value = _to_4d(query), _to_4d(key), _to_4d(value)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    output = _Tiled.apply(query, key, value, mask, bias, scale, (q_tile, k_tile))
    return _from_4d(output, n_dims)


def merge_averages(
    output_a: Float[Tensor, "*batch q_len d_value"],
    log_sum_a: Float[Tensor, "*batch q_len"],
    output_b: Float[Tensor, "*batch q_len d_value"],
    log_sum_b: Float[Tensor, "*batch q_len"],
) -> tuple[Float[Tensor, "*batch q_len d_value"], Float[Tensor, "*batch q_len"]]:
    r"""Two attention outputs over different keys become the one over all of them: online softmax.

    .. math:: o = (1 - w)\, o_a + w\, o_b, \quad w = \frac{e^{L_b}}{e^{L_a} + e^{L_b}}
        = \mathrm{sigmoid}(L_b - L_a)

    Args:
        output_a: Average of the values of some keys, for each query.
        log_sum_a: :math:`L_a`, the logarithm of the sum of ``exp(scores)`` over these keys, in
            nats; -inf where none of them may be seen.
        output_b: Average over other keys.
        log_sum_b: The same for them.

    Returns:
        ``(output, log_sum)`` over all the keys.

    Example:
        >>> scores, value = torch.tensor([[0.0, 1.0, 2.0, 3.0]]), torch.arange(4.0)[:, None]
        >>> def average(part):
        ...     return scores[:, part].softmax(-1) @ value[part], scores[:, part].logsumexp(-1)
        >>> output, _ = merge_averages(*average(slice(0, 2)), *average(slice(2, 4)))
        >>> torch.allclose(output, scores.softmax(-1) @ value)
        True

    Source:
        Milakov and Gimelshein 2018, arXiv:1805.02867, section 3.1.
    """
    share_b = torch.sigmoid(log_sum_b - log_sum_a)
    share_b = share_b.masked_fill(log_sum_b == -torch.inf, 0.0)  # also where both see nothing
    output = torch.lerp(output_a, output_b, share_b.unsqueeze(-1))
    return output, torch.logaddexp(log_sum_a, log_sum_b)


class _Tiled(torch.autograd.Function):
    """Goes through the heads one by one, so that a tile is a plain matrix."""

    @staticmethod
    def forward(ctx, query, key, value, mask, bias, scale, tile):  # noqa: ANN001, ANN205
        output = value.new_empty(*query.shape[:-1], value.shape[-1])
        log_sum = query.new_empty(query.shape[:-1], dtype=_precise(query.dtype))
        with torch.autocast(query.device.type, enabled=False):
            for head in _heads(query):
                q, k, v = (x[head].to(log_sum.dtype) for x in (query, key, value))
                hides = _of_head(mask, head, query, key), _of_head(bias, head, query, key)
                output[head], log_sum[head] = _attend_head(q, k, v, *hides, scale, tile)
        ctx.save_for_backward(query, key, value, mask, bias, output, log_sum)
        ctx.scale, ctx.tile = scale, tile
        return output

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        if torch.is_grad_enabled():  # as create_graph=True asks: it would come out wrong, unseen
            raise RuntimeError(
                "tiled_attention has no second derivative; attnlib.functional.attention has"
            )
        query, key, value, mask, bias, output, log_sum = ctx.saved_tensors
        grads = [torch.empty_like(x) for x in (query, key, value)]
        grad_bias = (
            bias.new_zeros(bias.shape, dtype=log_sum.dtype) if ctx.needs_input_grad[4] else None
        )
        with torch.autocast(query.device.type, enabled=False):
            for head in _heads(query):
                all_of = (query, key, value, output, grad)
                q, k, v, o, g = (x[head].to(log_sum.dtype) for x in all_of)
                hides = _of_head(mask, head, query, key), _of_head(bias, head, query, key)
                of_bias = None if grad_bias is None else _own(grad_bias, head)
                of_head = _differentiate_head(
                    q, k, v, *hides, o, log_sum[head], g, of_bias, ctx.scale, ctx.tile
                )
                for whole, part in zip(grads, of_head, strict=True):
                    whole[head] = part
        grads += [None, None if grad_bias is None else grad_bias.to(bias.dtype)]
        return *grads, None, None


def _attend_head(
    query: Float[Tensor, "q_len d_head"],
    key: Float[Tensor, "k_len d_head"],
    value: Float[Tensor, "k_len d_value"],
    mask: Bool[Tensor, "q_len k_len"] | None,
    bias: Float[Tensor, "q_len k_len"] | None,
    scale: float,
    tile: tuple[int, int],
) -> tuple[Float[Tensor, "q_len d_value"], Float[Tensor, " q_len"]]:
    """Attention of one head, and for each query the log of the sum of its exponentials."""
    output = query.new_zeros(len(query), value.shape[-1])
    log_sum = query.new_full((len(query),), -torch.inf)
    room = query.new_empty(_area(query, key, tile))  # fresh memory for each tile is slow to get
    for rows, columns, allowed in _tiles(len(query), len(key), mask, tile):
        q, k, v = query[rows], key[columns], value[columns]
        scores = _cut(room, q, k)
        torch.addmm(scores, q, k.T, beta=0, alpha=scale, out=scores)  # faster than to scale first
        if bias is not None:
            scores += bias[rows, columns]
        if allowed is not None:
            scores.masked_fill_(~allowed, -torch.inf)
        output[rows], log_sum[rows] = merge_averages(
            output[rows], log_sum[rows], *_average(scores, v)
        )
    return output, log_sum


def _average(
    scores: Float[Tensor, "*tiles rows columns"], value: Float[Tensor, "*tiles columns d_value"]
) -> tuple[Float[Tensor, "*tiles rows d_value"], Float[Tensor, "*tiles rows"]]:
    """Attention over the keys of a tile alone; its weights take the place of the scores."""
    top = scores.amax(-1, keepdim=True)
    weights = torch.softmax(scores, -1, out=scores)
    # The greatest weight is exp(top) over the sum of all exp: so the sum needs no second pass.
    log_sum = top - weights.amax(-1, keepdim=True).log()
    sees_nothing = top == -torch.inf  # of this tile; the softmax of that is NaN
    if not can_be_read(top) or sees_nothing.any():
        weights.masked_fill_(sees_nothing, 0.0)
        log_sum.masked_fill_(sees_nothing, -torch.inf)
    return weights @ value, log_sum.squeeze(-1)


def _differentiate_head(
    query: Float[Tensor, "q_len d_head"],
    key: Float[Tensor, "k_len d_head"],
    value: Float[Tensor, "k_len d_value"],
    mask: Bool[Tensor, "q_len k_len"] | None,
    bias: Float[Tensor, "q_len k_len"] | None,
    output: Float[Tensor, "q_len d_value"],
    log_sum: Float[Tensor, " q_len"],
    grad: Float[Tensor, "q_len d_value"],
    grad_bias: Float[Tensor, "#q_len #k_len"] | None,
    scale: float,
    tile: tuple[int, int],
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Gradients of one head: for query, key and value; that of the bias is added to ``grad_bias``.

    With weights :math:`P`, their gradient :math:`G V^\top` and scores :math:`S`:
    :math:`\partial S = P \odot (G V^\top - \delta)`, where :math:`\delta` is, for each query, the
    sum of :math:`P \odot G V^\top` over all keys. That is :math:`G \cdot O`: no tile is needed.
    """
    grad_query, grad_key, grad_value = map(torch.zeros_like, (query, key, value))
    # exp(-inf) is 0, so a query that sees nothing, for whom the log of the sum is -inf, keeps it.
    minus_log_sum = torch.where(log_sum == -torch.inf, log_sum, -log_sum)[:, None]
    minus_delta = -(grad * output).sum(-1, keepdim=True)
    room, more_room = (query.new_empty(_area(query, key, tile)) for _ in range(2))
    for rows, columns, allowed in _tiles(len(query), len(key), mask, tile):
        q, k, v, g = query[rows], key[columns], value[columns], grad[rows]
        scores = torch.addmm(minus_log_sum[rows], q, k.T, alpha=scale, out=_cut(room, q, k))
        if bias is not None:
            scores += bias[rows, columns]
        weights = scores.exp_()
        if allowed is not None:
            weights.masked_fill_(~allowed, 0.0)
        grad_scores = torch.addmm(minus_delta[rows], g, v.T, out=_cut(more_room, q, k))
        grad_scores *= weights
        grad_value[columns].addmm_(weights.T, g)
        grad_query[rows].addmm_(grad_scores, k, alpha=scale)
        grad_key[columns].addmm_(grad_scores.T, q, alpha=scale)
        if grad_bias is not None:
            part = _own(grad_bias, (rows, columns))
            part += grad_scores.sum_to_size(part.shape)
    return grad_query, grad_key, grad_value


def _tiles(
    q_len: int, k_len: int, mask: Tensor | None, tile: tuple[int, int]
) -> Iterator[tuple[slice, slice, Bool[Tensor, "rows columns"] | None]]:
    """Which queries and keys, and the mask where it matters; a tile that hides all is left out."""
    for q_start in range(0, q_len, tile[0]):
        rows = slice(q_start, q_start + tile[0])
        for k_start in range(0, k_len, tile[1]):
            columns = slice(k_start, k_start + tile[1])
            allowed = None if mask is None else mask[rows, columns]
            if allowed is not None and can_be_read(allowed):
                if not allowed.any():
                    continue
                allowed = None if allowed.all() else allowed
            yield rows, columns, allowed


def _heads(query: Tensor) -> Iterator[tuple[int, int]]:
    return ((b, h) for b in range(query.shape[0]) for h in range(query.shape[1]))


def _of_head(
    x: Tensor | None, head: tuple[int, int], query: Tensor, key: Tensor
) -> Shaped[Tensor, "q_len k_len"] | None:
    """One head's part of a mask or bias, written out for all queries and keys without a copy."""
    if x is None:
        return None
    return x.expand(*query.shape[:3], key.shape[2])[head]


def _own(x: Tensor, at: tuple) -> Tensor:
    """The part of ``x`` at two indices or slices, of which an axis that is broadcast has none."""
    first, second = (
        i if n > 1 else (0 if isinstance(i, int) else slice(None))
        for i, n in zip(at, x.shape, strict=False)
    )
    return x[first, second]


def _area(query: Tensor, key: Tensor, tile: tuple[int, int]) -> int:
    return min(len(query), tile[0]) * min(len(key), tile[1])


def _cut(room: Tensor, query: Tensor, key: Tensor) -> Float[Tensor, "rows columns"]:
    """As much of the memory as a tile needs; those at the edge are smaller."""
    return room[: len(query) * len(key)].view(len(query), len(key))


def _precise(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)
