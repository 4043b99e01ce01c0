"""Longformer's attention: a window around each token, and a few tokens that see everything.

The tokens are cut into blocks. All that a block of queries may see lies in one stretch of keys, so
their scores are one small product, and no score outside is ever computed.
"""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.nn.functional import pad

from attnlib.checks import can_be_read, check_sizes
from attnlib.efficient.tiled import _precise
from attnlib.functional import _check_inputs, fused_attention
from attnlib.masks import _check_bool

_SCORES = 2**20  # that many at once: 4 MiB, which stay in the cache


def window_attention(
    query: Float[Tensor, "batch heads length d_head"],
    key: Float[Tensor, "batch heads length d_head"],
    value: Float[Tensor, "batch heads length d_value"],
    *,
    radius: int,
    causal: bool = False,
    dilation: int = 1,
    is_global: Bool[Tensor, "#batch length"] | None = None,
    mask: Bool[Tensor, "#batch 1 1 length"] | None = None,
    scale: float | None = None,
    block_size: int | None = None,
) -> Float[Tensor, "batch heads length d_value"]:
    r"""Self-attention in which each token sees those near to it, and the global tokens.

    It is equal to :func:`~attnlib.functional.attention` with the mask
    ``window_mask(n, radius=radius, dilation=dilation) | global_mask(is_global)``, and
    ``& causal_mask(n)`` and ``& mask`` where they are asked for. But time and memory grow with
    :math:`length \cdot radius`, not with the square of the length.

    Args:
        query: What each position is looking for.
        key: What each position offers.
        value: What each position hands over.
        radius: How many keys on each side a query sees, besides its own; more than there are make
            it plain attention.
        causal: Whether it looks back only.
        dilation: Distance, in tokens, from one of these keys to the next.
        is_global: ``True`` at tokens that see everything and are seen by everything.
        mask: Hides keys, the same ones from every query, as ``padding_mask`` does.
        scale: What the scores are multiplied by; :math:`1/\sqrt{d_{head}}` if left out.
        block_size: Number of queries whose scores are computed in one product; it need not divide
            the length, and changes nothing but the time. Chosen by the radius if left out.

    Returns:
        The weighted average of the values for each query, 0 where nothing may be seen.

    Raises:
        TypeError: As :func:`~attnlib.functional.attention`, or if a number is not whole, or
            ``is_global`` is not boolean.
        ValueError: As there, or if a number is out of range, the lengths differ, ``is_global`` does
            not fit, or the mask differs by head or query.
        RuntimeError: In the backward pass, if a second derivative is asked for.

    Example:
        >>> q = k = torch.zeros(1, 1, 6, 2)  # equal scores: the average of what is seen
        >>> v = torch.arange(6.0).view(1, 1, 6, 1)
        >>> window_attention(q, k, v, radius=1).flatten().tolist()
        [0.5, 1.0, 2.0, 3.0, 4.0, 4.5]

    Source:
        Beltagy et al. 2020 (Longformer), arXiv:2004.05150, section 3.1. Their window of size w is a
        radius of w / 2. Checked against the equation with the same mask, forward and gradient.
    """
    _check_inputs(query, key, value, mask, None)
    _check_self_attention(query, key, mask)
    check_sizes(at_least=0, radius=radius)
    check_sizes(dilation=dilation)
    batch, _, length, d_head = query.shape
    radius = min(radius, (length - 1) // dilation)  # no key is further away
    if block_size is None:
        block_size = max(32, radius // 4)
    check_sizes(block_size=block_size)
    scale = 1 / math.sqrt(d_head) if scale is None else scale
    seen = query.new_ones(1, length, dtype=torch.bool) if mask is None else mask[:, 0, 0]
    extra = None
    if is_global is not None:
        _check_global(is_global, batch, length)
        if not is_global.any():
            is_global = None
    if is_global is not None:
        is_global, seen = is_global.expand(batch, -1), seen.expand(batch, -1)
        extra = _global_keys(key, value, is_global & seen, causal)
        seen = seen & ~is_global  # in the windows: they are seen as global keys already
    reach = _Reach(radius, 0 if causal else radius, block_size, scale)
    output = _dilated(query, key, value, seen.expand(batch, -1), extra, dilation, reach)
    if is_global is None:
        return output
    return _answer_global_queries(output, query, key, value, is_global, mask, causal, scale)


class _Reach(NamedTuple):
    """How far a query sees, in tokens, and how many queries are taken together."""

    before: int
    after: int
    block_size: int
    scale: float

    @property
    def width(self) -> int:
        """Number of keys that the queries of one block see together."""
        return self.before + self.block_size + self.after

    def chunks(self, length: int, at_once: int) -> Iterator[range]:
        """The numbers of the blocks, a few at a time."""
        n_blocks = -(-length // self.block_size)
        for start in range(0, n_blocks, at_once):
            yield range(start, min(start + at_once, n_blocks))

    def queries(
        self, x: Float[Tensor, "length width"], blocks: range
    ) -> Float[Tensor, "blocks size width"]:
        """What belongs to the queries of these blocks; the last block is filled up with zeros."""
        rows = x[blocks.start * self.block_size : blocks.stop * self.block_size]
        return _fill_up(rows, self.block_size).unflatten(0, (-1, self.block_size))

    def windows(
        self,
        x: Float[Tensor, "length width"],
        extra: Float[Tensor, "n_global width"] | None,
        blocks: range,
    ) -> Float[Tensor, "blocks n_keys width"]:
        """The keys, or the values, that each block may see: windows that overlap, not copied.

        Only the first and the last chunk are: they go on beyond the text, with zeros.
        """
        start = blocks.start * self.block_size - self.before
        stop = blocks.stop * self.block_size + self.after
        rows = x[max(start, 0) : stop]
        if start < 0 or stop > len(x):
            rows = pad(rows, (0, 0, max(-start, 0), max(stop - len(x), 0)))
        step = rows.stride(0)
        windows = rows.as_strided(
            (len(blocks), self.width, x.shape[1]), (self.block_size * step, step, 1)
        )
        if extra is None:
            return windows
        return torch.cat([windows, extra.expand(len(blocks), -1, -1)], dim=1)


class _GlobalKeys(NamedTuple):
    """The global keys and values of each sequence, and which query may see which of them."""

    key: Float[Tensor, "batch heads n_global d_head"]
    value: Float[Tensor, "batch heads n_global d_value"]
    allowed: Bool[Tensor, "batch length n_global"]


def _global_keys(
    key: Tensor, value: Tensor, is_global: Bool[Tensor, "batch length"], causal: bool
) -> _GlobalKeys:
    most = int(is_global.sum(-1).max())
    place = (
        (~is_global).byte().argsort(dim=-1, stable=True)[:, :most]
    )  # (B, G): the global ones first
    allowed = is_global.gather(-1, place)[:, None, :]  # a sequence with fewer has some left over
    query_place = torch.arange(key.shape[2], device=key.device)[None, :, None]
    allowed = allowed & (place[:, None, :] <= query_place if causal else query_place >= 0)
    chosen = place[:, None, :, None].expand(-1, key.shape[1], -1, -1)
    return _GlobalKeys(
        key.gather(2, chosen.expand(-1, -1, -1, key.shape[-1])),
        value.gather(2, chosen.expand(-1, -1, -1, value.shape[-1])),
        allowed,
    )


def _answer_global_queries(
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    is_global: Bool[Tensor, "batch length"],
    mask: Tensor | None,
    causal: bool,
    scale: float,
) -> Tensor:
    """Put the answers of the global tokens, which see everything, in place of their windows'."""
    position = torch.arange(query.shape[2], device=query.device)
    answers = []
    for b, row in enumerate(output):
        place = is_global[b].nonzero().squeeze(-1)  # (G,)
        if len(place) == 0:
            answers.append(row)
            continue
        allowed = position <= (place[:, None] if causal else len(position))
        allowed = allowed.expand(len(place), -1)[None, None]
        if mask is not None:
            allowed = allowed & mask[b if len(mask) > 1 else 0]
        one = slice(b, b + 1)
        answer = fused_attention(
            query[one, :, place], key[one], value[one], mask=allowed, scale=scale
        )
        answers.append(row.index_copy(1, place, answer[0].to(row.dtype)))
    return torch.stack(answers)


def _dilated(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    seen: Bool[Tensor, "batch length"],
    extra: _GlobalKeys | None,
    dilation: int,
    reach: _Reach,
) -> Tensor:
    """With gaps of ``d`` tokens, every d-th token is a sequence of its own, without gaps."""
    if dilation == 1:
        return _Windows.apply(query, key, value, seen, *(extra or (None,) * 3), reach)
    length = query.shape[2]
    query, key, value = (_deal(x, 2, dilation).flatten(0, 1) for x in (query, key, value))
    seen = _deal(seen, 1, dilation).flatten(0, 1)
    if extra is not None:
        k, v = (x.repeat_interleave(dilation, 0) for x in extra[:2])
        extra = (k, v, _deal(extra.allowed, 1, dilation).flatten(0, 1))
    output = _Windows.apply(query, key, value, seen, *(extra or (None,) * 3), reach)
    together = output.unflatten(0, (-1, dilation)).movedim(1, 3)  # (B, H, L/d, d, Dv)
    return together.flatten(2, 3)[:, :, :length]


def _deal(x: Tensor, dim: int, n: int) -> Tensor:
    """Deal the tokens out to ``n`` sequences, like cards; the new axis is the second."""
    missing = -x.shape[dim] % n
    padded = pad(x, [0, 0] * (x.ndim - dim - 1) + [0, missing])
    return padded.unflatten(dim, (-1, n)).movedim(dim + 1, 1)


class _Windows(torch.autograd.Function):
    """Goes through the heads one by one, and in each through a few blocks at a time."""

    @staticmethod
    def forward(ctx, query, key, value, seen, extra_key, extra_value, allowed, reach):  # noqa: ANN001, ANN205
        inputs = (query, key, value, extra_key, extra_value)
        scores = _room(query, extra_key, reach)
        filled = seen.shape[1] + -seen.shape[1] % reach.block_size
        output = scores.new_empty(*query.shape[:2], filled, value.shape[-1])
        output = output.unflatten(2, (-1, reach.block_size))
        with torch.autocast(query.device.type, enabled=False):
            for b in range(query.shape[0]):
                hidden = _Hidden(seen[b], None if allowed is None else allowed[b], scores, reach)
                for h in range(query.shape[1]):
                    head = _of_head(inputs, b, h, scores.dtype)
                    _attend(*head, output[b, h], hidden, scores, reach)
        output = output.flatten(2, 3)[:, :, : query.shape[2]].to(value.dtype)
        ctx.save_for_backward(*inputs, seen, allowed, output)
        ctx.reach = reach
        return output

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        if torch.is_grad_enabled():  # as create_graph=True asks: it would come out wrong, unseen
            raise RuntimeError(
                "window_attention has no second derivative; attnlib.functional.attention has"
            )
        *inputs, seen, allowed, output = ctx.saved_tensors
        grads = [None if x is None else torch.empty_like(x) for x in inputs]
        rooms = [_room(inputs[0], inputs[3], ctx.reach) for _ in range(2)]
        with torch.autocast(grad.device.type, enabled=False):
            for b in range(grad.shape[0]):
                hidden = _Hidden(
                    seen[b], None if allowed is None else allowed[b], rooms[0], ctx.reach
                )
                for h in range(grad.shape[1]):
                    head = _of_head((*inputs, output, grad), b, h, rooms[0].dtype)
                    parts = _differentiate(*head, hidden, *rooms, ctx.reach)
                    for whole, part in zip(grads, parts, strict=True):
                        if whole is not None:
                            whole[b, h] = part
        return *grads[:3], None, *grads[3:], None, None


def _room(
    query: Tensor, extra_key: Tensor | None, reach: _Reach
) -> Float[Tensor, "blocks size n_keys"]:
    """Memory for the scores of a few blocks, used again by the next: to get it anew is slow."""
    n_keys = reach.width + (0 if extra_key is None else extra_key.shape[2])
    n_blocks = -(-query.shape[2] // reach.block_size)
    at_once = max(1, _SCORES // (reach.block_size * n_keys))
    return query.new_empty(
        min(at_once, n_blocks), reach.block_size, n_keys, dtype=_precise(query.dtype)
    )


class _Hidden:
    """What the queries of each block may not see of the keys that it looks at."""

    def __init__(self, seen: Tensor, allowed: Tensor | None, scores: Tensor, reach: _Reach) -> None:
        size, width = reach.block_size, reach.width
        behind = -len(seen) % size  # what is missing to whole blocks
        beyond_edges = pad(seen, (reach.before, behind + reach.after))
        keys = ~beyond_edges.unfold(0, width, size)  # (blocks, width)
        # In most blocks there are none: ask once, not again for each head.
        some = keys.any(-1)
        self.some = some.tolist() if can_be_read(some) else [True] * len(some)
        self.extra = None
        if allowed is not None:
            self.extra = ~_fill_up(allowed, size).unflatten(0, (-1, size))
        # What is added to the scores, which is faster than to overwrite them: 0, or -inf.
        self.of_keys = scores.new_zeros(keys.shape).masked_fill(keys, -torch.inf)
        square = scores.new_full((size, size), -torch.inf)
        self.too_early, self.too_late = square.tril(-1), square.triu(1)

    def weights_(self, scores: Tensor, blocks: range) -> Tensor:
        """Put the weights in the place of the scores."""
        here = slice(blocks.start, blocks.stop)
        width, size = self.of_keys.shape[1], len(self.too_early)
        scores[..., :size].add_(self.too_early)
        scores[..., width - size : width].add_(self.too_late)
        if self.extra is not None:
            scores[..., width:].masked_fill_(self.extra[here], -torch.inf)
        if not any(self.some[here]):
            return torch.softmax(scores, -1, out=scores)  # each query sees its own key at least
        scores[..., :width].add_(self.of_keys[here, None])
        return _softmax_(scores)


def _attend(
    query: Float[Tensor, "length d_head"],
    key: Float[Tensor, "length d_head"],
    value: Float[Tensor, "length d_value"],
    extra_key: Float[Tensor, "n_global d_head"] | None,
    extra_value: Float[Tensor, "n_global d_value"] | None,
    output: Float[Tensor, "blocks size d_value"],
    hidden: _Hidden,
    scores: Float[Tensor, "at_once size n_keys"],
    reach: _Reach,
) -> None:
    """Write the attention of one head."""
    for blocks in reach.chunks(len(query), len(scores)):
        k, v = reach.windows(key, extra_key, blocks), reach.windows(value, extra_value, blocks)
        weights = _weights(reach.queries(query, blocks), k, hidden, blocks, scores, reach)
        torch.bmm(weights, v, out=output[blocks.start : blocks.stop])


def _weights(
    q: Float[Tensor, "blocks size d_head"],
    k: Float[Tensor, "blocks n_keys d_head"],
    hidden: _Hidden,
    blocks: range,
    room: Float[Tensor, "at_once size n_keys"],
    reach: _Reach,
) -> Float[Tensor, "blocks size n_keys"]:
    """Weights of a few blocks, in the room that there is for them."""
    return hidden.weights_(_product(q, k.mT, room[: len(blocks)], reach.scale), blocks)


def _product(
    a: Float[Tensor, "blocks rows inner"],
    b: Float[Tensor, "blocks inner columns"],
    out: Float[Tensor, "blocks rows columns"],
    scale: float = 1.0,
) -> Float[Tensor, "blocks rows columns"]:
    """Write ``scale * a @ b``; as it is written, it costs nothing to scale it."""
    return torch.baddbmm(out, a, b, beta=0, alpha=scale, out=out)


def _softmax_(scores: Float[Tensor, "... keys"]) -> Float[Tensor, "... keys"]:
    """Put the weights in the place of the scores; they are 0 for a query that sees nothing."""
    sees_nothing = scores.amax(-1, keepdim=True) == -torch.inf
    weights = torch.softmax(scores, -1, out=scores)
    if not can_be_read(sees_nothing) or sees_nothing.any():
        weights.masked_fill_(sees_nothing, 0.0)
    return weights


def _differentiate(
    query: Float[Tensor, "length d_head"],
    key: Float[Tensor, "length d_head"],
    value: Float[Tensor, "length d_value"],
    extra_key: Float[Tensor, "n_global d_head"] | None,
    extra_value: Float[Tensor, "n_global d_value"] | None,
    output: Float[Tensor, "length d_value"],
    grad: Float[Tensor, "length d_value"],
    hidden: _Hidden,
    room: Float[Tensor, "at_once size n_keys"],
    room_for_grad: Float[Tensor, "at_once size n_keys"],
    reach: _Reach,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of one head, as in tiled attention; but no row is cut, so no sum must be known."""
    minus_delta = -(grad * output).sum(-1, keepdim=True)
    n_blocks = -(-len(query) // reach.block_size)
    grad_query = query.new_empty(n_blocks, reach.block_size, query.shape[1])
    grad_key, grad_value = _OfKeys(key, extra_key, reach), _OfKeys(value, extra_value, reach)
    for blocks in reach.chunks(len(query), len(room)):
        q, g, minus_d = (reach.queries(x, blocks) for x in (query, grad, minus_delta))
        k, v = reach.windows(key, extra_key, blocks), reach.windows(value, extra_value, blocks)
        weights = _weights(q, k, hidden, blocks, room, reach)
        grad_scores = torch.baddbmm(minus_d, g, v.mT, out=room_for_grad[: len(blocks)])
        grad_scores *= weights
        _product(grad_scores, k, grad_query[blocks.start : blocks.stop], reach.scale)
        grad_key.add_(grad_scores, q, blocks, reach.scale)
        grad_value.add_(weights, g, blocks, 1.0)
    of_query = grad_query.flatten(0, 1)[: len(query)]
    return of_query, grad_key.inside, grad_value.inside, grad_key.extra, grad_value.extra


class _OfKeys:
    """Gradients of the keys, or of the values: each gets a share from every window it lies in."""

    def __init__(self, x: Tensor, extra: Tensor | None, reach: _Reach) -> None:
        n_blocks, of_window = (-(-n // reach.block_size) for n in (len(x), reach.width))
        self.total = x.new_zeros((n_blocks + of_window - 1) * reach.block_size, x.shape[1])
        self.extra = None if extra is None else torch.zeros_like(extra)
        self.inside = self.total[reach.before : reach.before + len(x)]
        self.reach = reach

    def add_(
        self,
        weights: Float[Tensor, "blocks size n_keys"],
        x: Float[Tensor, "blocks size width"],
        blocks: range,
        scale: float,
    ) -> None:
        """Add what the queries of these blocks hand to the keys in their windows."""
        size, width = self.reach.block_size, self.reach.width
        for start in range(0, width, size):  # one block of each window: these do not overlap
            stop = min(start + size, width)
            rows = self.total[blocks.start * size + start :][: len(blocks) * size]
            rows = rows.unflatten(0, (-1, size))[:, : stop - start]
            rows.baddbmm_(weights[..., start:stop].mT, x, alpha=scale)
        if self.extra is not None:
            self.extra.add_((weights[..., width:].mT @ x).sum(0), alpha=scale)


def _fill_up(x: Shaped[Tensor, "length ..."], block_size: int) -> Shaped[Tensor, "filled ..."]:
    """Zeros behind the tokens, up to a whole number of blocks."""
    missing = -len(x) % block_size
    return pad(x, [0, 0] * (x.ndim - 1) + [0, missing]) if missing else x


def _of_head(
    tensors: Sequence[Tensor | None], b: int, h: int, dtype: torch.dtype
) -> list[Tensor | None]:
    return [None if x is None else x[b, h].to(dtype).contiguous() for x in tensors]


def _check_self_attention(query: Tensor, key: Tensor, mask: Tensor | None) -> None:
    if query.ndim != 4:
        raise ValueError(
            f"query must be 4-D (batch, heads, length, d_head), got shape {tuple(query.shape)}"
        )
    if query.shape[2] != key.shape[2]:
        raise ValueError(
            f"each token sees those around itself, so there must be as many queries as keys, got "
            f"{query.shape[2]} and {key.shape[2]}"
        )
    if mask is not None and (mask.shape[1:3] != (1, 1) or mask.shape[3] != key.shape[2]):
        raise ValueError(
            f"mask hides keys here, from every query and head alike: its shape must be (batch, 1, "
            f"1, {key.shape[2]}), as padding_mask gives it, got {tuple(mask.shape)}"
        )


def _check_global(is_global: Tensor, batch: int, length: int) -> None:
    _check_bool(is_global, "is_global", "mark the places with True")
    if is_global.ndim != 2 or is_global.shape[0] not in (1, batch) or is_global.shape[1] != length:
        raise ValueError(
            f"is_global must be (batch, length) = ({batch}, {length}), got shape "
            f"{tuple(is_global.shape)}"
        )
