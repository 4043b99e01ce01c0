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

_SCORES = 2**19  # that many at once: 2 MiB, which stay in the cache


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
        with torch.autocast(query.device.type, enabled=False):
            head = _Head(inputs, reach)
            filled = query.shape[0], query.shape[1], head.n_blocks, reach.block_size
            output = head.query.new_empty(*filled, value.shape[-1])
            for b in range(query.shape[0]):
                hidden = _Hidden(seen[b], None if allowed is None else allowed[b], head)
                for h in range(query.shape[1]):
                    head.load(b, h)
                    _attend(head, hidden, output[b, h])
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
        with torch.autocast(grad.device.type, enabled=False):
            head = _Head(inputs, ctx.reach)
            for b in range(grad.shape[0]):
                hidden = _Hidden(seen[b], None if allowed is None else allowed[b], head)
                for h in range(grad.shape[1]):
                    head.load(b, h)
                    outcome = _of_head((output, grad), b, h, head.query.dtype)
                    parts = _differentiate(head, hidden, *outcome)
                    for whole, part in zip(grads, parts, strict=True):
                        if whole is not None:
                            whole[b, h] = part
        return *grads[:3], None, *grads[3:], None, None


class _Head:
    """One head at a time, with zeros in front and behind: so every block has a whole window.

    All heads are put into the same memory, one after the other: fresh memory is slow to get.
    """

    def __init__(self, inputs: Sequence[Tensor | None], reach: _Reach) -> None:
        query, key, value, extra_key, _ = self.inputs = inputs
        self.reach, self.length = reach, query.shape[2]
        self.n_blocks = -(-self.length // reach.block_size)
        blocks_of_window = -(-reach.width // reach.block_size)  # rounded up, for add_windows_
        self.n_filled = (self.n_blocks + blocks_of_window - 1) * reach.block_size
        precise = {"dtype": _precise(query.dtype)}
        self.query = query.new_zeros(self.n_blocks, reach.block_size, query.shape[3], **precise)
        self.key = key.new_zeros(self.n_filled, key.shape[3], **precise)
        self.value = value.new_zeros(self.n_filled, value.shape[3], **precise)
        n_keys = reach.width + (0 if extra_key is None else extra_key.shape[2])
        at_once = max(1, _SCORES // (reach.block_size * n_keys))
        self.scores = self.query.new_empty(
            min(at_once, self.n_blocks), reach.block_size, n_keys
        )  # of a few blocks

    @property
    def inside(self) -> slice:
        """Where the tokens lie between the zeros."""
        return slice(self.reach.before, self.reach.before + self.length)

    def load(self, b: int, h: int) -> None:
        """Take another head; its queries are scaled."""
        query, key, value = (x[b, h] for x in self.inputs[:3])
        self.query.flatten(0, 1)[: self.length].copy_(query).mul_(self.reach.scale)
        self.key[self.inside].copy_(key)
        self.value[self.inside].copy_(value)
        self.extra_key, self.extra_value = _of_head(self.inputs[3:], b, h, self.query.dtype)

    def in_blocks(self, x: Tensor) -> Float[Tensor, "blocks size width"]:
        """Cut what belongs to the queries into blocks, the last of which is filled up with 0."""
        return _fill_up(x, self.reach.block_size).view(self.n_blocks, -1, x.shape[-1])

    def chunks(self) -> Iterator[slice]:
        """A few blocks at a time."""
        step = len(self.scores)
        for start in range(0, self.n_blocks, step):
            yield slice(start, min(start + step, self.n_blocks))

    def windows(self, x: Tensor, extra: Tensor | None, blocks: slice) -> Tensor:
        """The keys, or the values, that each block may see: windows that overlap, not copied."""
        n, size = blocks.stop - blocks.start, self.reach.block_size
        step = x.stride(0)
        windows = x.as_strided(
            (n, self.reach.width, x.shape[1]), (size * step, step, 1), blocks.start * size * step
        )
        if extra is None:
            return windows
        return torch.cat([windows, extra.expand(n, -1, -1)], dim=1)

    def add_windows_(
        self, total: Tensor, extra: Tensor | None, part: Tensor, blocks: slice
    ) -> None:
        """Add gradients of windows to those of the keys; the other way round than above."""
        size, width = self.reach.block_size, self.reach.width
        for start in range(0, width, size):  # one block of each window: these do not overlap
            stop = min(start + size, width)
            rows = total[blocks.start * size + start :][: (blocks.stop - blocks.start) * size]
            rows.view(-1, size, total.shape[1])[:, : stop - start].add_(part[:, start:stop])
        if extra is not None:
            extra += part[:, width:].sum(0)


class _Hidden:
    """What the queries of each block may not see of the keys that it looks at."""

    def __init__(self, seen: Tensor, allowed: Tensor | None, head: _Head) -> None:
        size, width = head.reach.block_size, head.reach.width
        behind = -len(seen) % size  # what is missing to whole blocks
        beyond_edges = pad(seen, (head.reach.before, behind + head.reach.after))
        keys = ~beyond_edges.unfold(0, width, size)  # (blocks, width)
        # In most blocks there are none: ask once, not again for each head.
        some = keys.any(-1)
        self.some = some.tolist() if can_be_read(some) else [True] * len(some)
        self.extra = None
        if allowed is not None:
            self.extra = ~_fill_up(allowed, size).unflatten(0, (-1, size))
        # What is added to the scores, which is faster than to overwrite them: 0, or -inf.
        self.of_keys = head.query.new_zeros(keys.shape).masked_fill(keys, -torch.inf)
        square = head.query.new_full((size, size), -torch.inf)
        self.too_early, self.too_late = square.tril(-1), square.triu(1)

    def weights_(self, scores: Tensor, blocks: slice) -> Tensor:
        """Put the weights in the place of the scores."""
        width, size = self.of_keys.shape[1], len(self.too_early)
        scores[..., :size].add_(self.too_early)
        scores[..., width - size : width].add_(self.too_late)
        if self.extra is not None:
            scores[..., width:].masked_fill_(self.extra[blocks], -torch.inf)
        if not any(self.some[blocks]):
            return torch.softmax(scores, -1, out=scores)  # each query sees its own key at least
        scores[..., :width].add_(self.of_keys[blocks, None])
        return _softmax_(scores)


def _attend(head: _Head, hidden: _Hidden, output: Float[Tensor, "blocks size d_value"]) -> None:
    """Write the attention of one head."""
    for blocks in head.chunks():
        query = head.query[blocks]
        key = head.windows(head.key, head.extra_key, blocks)
        value = head.windows(head.value, head.extra_value, blocks)
        scores = torch.bmm(query, key.mT, out=head.scores[: len(query)])  # (blocks, size, width)
        torch.bmm(hidden.weights_(scores, blocks), value, out=output[blocks])


def _softmax_(scores: Float[Tensor, "... keys"]) -> Float[Tensor, "... keys"]:
    """Put the weights in the place of the scores; they are 0 for a query that sees nothing."""
    sees_nothing = scores.amax(-1, keepdim=True) == -torch.inf
    weights = torch.softmax(scores, -1, out=scores)
    if not can_be_read(sees_nothing) or sees_nothing.any():
        weights.masked_fill_(sees_nothing, 0.0)
    return weights


def _differentiate(
    head: _Head,
    hidden: _Hidden,
    output: Float[Tensor, "length d_value"],
    grad: Float[Tensor, "length d_value"],
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Gradients of one head, as in tiled attention; but no row is cut, so no sum must be known."""
    grad_query = torch.empty_like(head.query)
    grad_key, grad_value = torch.zeros_like(head.key), torch.zeros_like(head.value)
    grad_extra_key, grad_extra_value = (
        None if x is None else torch.zeros_like(x) for x in (head.extra_key, head.extra_value)
    )
    minus_delta = head.in_blocks(-(grad * output).sum(-1, keepdim=True))
    grad = head.in_blocks(grad)
    room = torch.empty_like(head.scores)
    for blocks in head.chunks():
        q, g = head.query[blocks], grad[blocks]
        k = head.windows(head.key, head.extra_key, blocks)
        v = head.windows(head.value, head.extra_value, blocks)
        scores = torch.bmm(q, k.mT, out=head.scores[: len(q)])
        weights = hidden.weights_(scores, blocks)
        grad_scores = torch.baddbmm(minus_delta[blocks], g, v.mT, out=room[: len(q)])
        grad_scores *= weights
        torch.bmm(grad_scores, k, out=grad_query[blocks])
        head.add_windows_(grad_key, grad_extra_key, grad_scores.mT @ q, blocks)
        head.add_windows_(grad_value, grad_extra_value, weights.mT @ g, blocks)
    grad_query = grad_query.flatten(0, 1)[: head.length] * head.reach.scale
    inside = head.inside
    return grad_query, grad_key[inside], grad_value[inside], grad_extra_key, grad_extra_value


def _fill_up(x: Shaped[Tensor, "length ..."], block_size: int) -> Shaped[Tensor, "filled ..."]:
    """Zeros behind the tokens, up to a whole number of blocks."""
    missing = -len(x) % block_size
    return pad(x, [0, 0] * (x.ndim - 1) + [0, missing]) if missing else x


def _of_head(
    tensors: Sequence[Tensor | None], b: int, h: int, dtype: torch.dtype
) -> list[Tensor | None]:
    return [None if x is None else x[b, h].to(dtype) for x in tensors]


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
