"""BigBird's attention: blocks see their neighbours, a few blocks for all, and some at random.

A pattern of whole blocks is a small matrix, the *layout*: which block of queries sees which block
of keys. :func:`block_sparse_attention` computes any of them, and only what is in it.
"""

import math
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlib.checks import can_be_read, check_sizes
from attnlib.efficient.longformer import (
    _check_self_attention,
    _fill_up,
    _of_head,
    _product,
    _softmax_,
)
from attnlib.efficient.tiled import _precise
from attnlib.functional import _check_inputs
from attnlib.masks import _check_bool

_SCORES = 2**19  # that many at once: they stay in the cache, with the keys and values gathered


def bigbird_layout(
    n_blocks: int,
    *,
    window_blocks: int = 3,
    global_blocks: Sequence[int] = (0, -1),
    random_blocks: int = 3,
    generator: torch.Generator | None = None,
) -> Bool[Tensor, "n_blocks n_blocks"]:
    """Which block of queries sees which block of keys in BigBird.

    The random blocks are drawn among those that would not be seen otherwise; a block that has fewer
    of them sees them all. Draw once and keep the layout: it belongs to the model, in training and
    afterwards alike.

    Args:
        n_blocks: Number of blocks that the sequence is cut into.
        window_blocks: How many neighbouring blocks each one sees, itself in the middle: an odd
            number.
        global_blocks: Blocks that see everything and are seen by everything; -1 is the last.
        random_blocks: How many further blocks each one sees.
        generator: Source of randomness; give one with a seed to draw the same layout again.

    Returns:
        ``True`` where a block of queries (row) sees a block of keys (column).

    Raises:
        TypeError: If a number is not whole.
        ValueError: If a number is out of range, or ``window_blocks`` is even.

    Example:
        >>> bigbird_layout(5, global_blocks=[0], random_blocks=0).int()
        tensor([[1, 1, 1, 1, 1],
                [1, 1, 1, 0, 0],
                [1, 1, 1, 1, 0],
                [1, 0, 1, 1, 1],
                [1, 0, 0, 1, 1]], dtype=torch.int32)

    Source:
        Zaheer et al. 2020 (BigBird), arXiv:2007.14062, section 2 and appendix D.
    """
    check_sizes(n_blocks=n_blocks, window_blocks=window_blocks)
    check_sizes(at_least=0, random_blocks=random_blocks)
    if window_blocks % 2 == 0:
        raise ValueError(
            f"window_blocks counts a block and as many on each side of it, so it must be odd, got "
            f"{window_blocks}"
        )
    place = torch.arange(n_blocks)
    layout = (place - place[:, None]).abs() <= window_blocks // 2
    for block in global_blocks:
        if not -n_blocks <= block < n_blocks:
            raise ValueError(
                f"global_blocks must lie in {-n_blocks}..{n_blocks - 1}, as there are {n_blocks} "
                f"blocks, got {block}"
            )
        layout[block] = layout[:, block] = True
    # A random number for each block; those that are seen already come last.
    order = torch.rand(n_blocks, n_blocks, generator=generator).masked_fill(layout, 2.0).argsort(-1)
    drawn = order[:, :random_blocks]
    return layout.scatter(-1, drawn, True)


def layout_mask(
    layout: Bool[Tensor, "n_blocks n_blocks"], block_size: int, length: int
) -> Bool[Tensor, "1 1 length length"]:
    """Write a layout of blocks out as a mask of tokens, for plain attention and for pictures.

    Args:
        layout: ``True`` where a block of queries sees a block of keys.
        block_size: Number of tokens in a block.
        length: Number of tokens; the last block may be shorter.

    Returns:
        Mask of shape (1, 1, length, length).

    Raises:
        TypeError: If ``layout`` is not boolean, or a number is not whole.
        ValueError: If the layout is not square, or does not have as many blocks as the length.

    Example:
        >>> layout_mask(torch.eye(2).bool(), block_size=2, length=3)[0, 0].int()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]], dtype=torch.int32)
    """
    check_sizes(block_size=block_size, length=length)
    _check_layout(layout, block_size, length)
    block = torch.arange(length, device=layout.device) // block_size
    return layout[block][:, block][None, None]


def block_sparse_attention(
    query: Float[Tensor, "batch heads length d_head"],
    key: Float[Tensor, "batch heads length d_head"],
    value: Float[Tensor, "batch heads length d_value"],
    *,
    layout: Bool[Tensor, "n_blocks n_blocks"],
    block_size: int,
    mask: Bool[Tensor, "#batch 1 1 length"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "batch heads length d_value"]:
    r"""Self-attention in which whole blocks of queries see whole blocks of keys.

    It is equal to :func:`~attnlib.functional.attention` with the mask
    ``layout_mask(layout, block_size, length)``, and ``& mask`` where there is one. Each block of
    queries gathers the blocks of keys that it sees; no score of any other is computed.

    Args:
        query: What each position is looking for.
        key: What each position offers.
        value: What each position hands over.
        layout: ``True`` where a block of queries sees a block of keys; all heads have the same.
        block_size: Number of tokens in a block. It need not divide the length: the last block is
            shorter then.
        mask: Hides keys, the same ones from every query, as ``padding_mask`` does.
        scale: What the scores are multiplied by; :math:`1/\sqrt{d_{head}}` if left out.

    Returns:
        The weighted average of the values for each query, 0 where nothing may be seen.

    Raises:
        TypeError: As :func:`~attnlib.functional.attention`, or if ``layout`` is not boolean.
        ValueError: As there, or if the layout does not fit, or the mask differs by head or query.
        RuntimeError: In the backward pass, if a second derivative is asked for.

    Example:
        >>> q, k, v = torch.randn(3, 1, 2, 70, 4).unbind()
        >>> layout = bigbird_layout(9, generator=torch.Generator().manual_seed(0))  # 9 x 8 > 70
        >>> block_sparse_attention(q, k, v, layout=layout, block_size=8).shape
        torch.Size([1, 2, 70, 4])

    Source:
        Zaheer et al. 2020 (BigBird), arXiv:2007.14062, appendix D. Checked against the equation
        with the same mask, forward and gradient.
    """
    _check_inputs(query, key, value, mask, None)
    _check_self_attention(query, key, mask)
    check_sizes(block_size=block_size)
    batch, _, length, d_head = query.shape
    _check_layout(layout, block_size, length)
    scale = 1 / math.sqrt(d_head) if scale is None else scale
    seen = query.new_ones(1, length, dtype=torch.bool) if mask is None else mask[:, 0, 0]
    plan = list(_plan(layout, block_size))
    return _Blocks.apply(query, key, value, seen.expand(batch, -1), plan, block_size, scale)


def _plan(
    layout: Bool[Tensor, "n_blocks n_blocks"], block_size: int
) -> Iterator[tuple[Int[Tensor, " rows"], Int[Tensor, "rows columns"]]]:
    """Blocks of queries that see equally many blocks of keys, a few at a time, and which ones."""
    count = layout.sum(-1)
    for n in count.unique().tolist():
        if n == 0:
            continue
        rows = (count == n).nonzero().squeeze(-1)
        columns = layout[rows].nonzero()[:, 1].view(-1, n)
        at_once = max(1, _SCORES // (block_size**2 * n))
        yield from zip(rows.split(at_once), columns.split(at_once), strict=True)


class _Blocks(torch.autograd.Function):
    """Goes through the heads one by one, and in each through a few blocks of queries at a time."""

    @staticmethod
    def forward(ctx, query, key, value, seen, plan, block_size, scale):  # noqa: ANN001, ANN205
        room = _Room(query, value, plan, block_size)
        in_blocks = *query.shape[:2], seen.shape[1] + -seen.shape[1] % block_size, value.shape[-1]
        output = room.values.new_zeros(in_blocks).unflatten(2, (-1, block_size))
        with torch.autocast(query.device.type, enabled=False):
            for b in range(query.shape[0]):
                hidden = _hidden(seen[b], block_size)
                for h in range(query.shape[1]):
                    head = _of_head((query, key, value), b, h, _precise(query.dtype))
                    blocks = [_in_blocks(x, block_size) for x in head]
                    _attend(*blocks, output[b, h], hidden, plan, scale, room)
        output = output.flatten(2, 3)[:, :, : query.shape[2]].to(value.dtype)
        ctx.save_for_backward(query, key, value, seen, output)
        ctx.plan, ctx.block_size, ctx.scale = plan, block_size, scale
        return output

    @staticmethod
    def backward(ctx, grad):  # noqa: ANN001, ANN205
        if torch.is_grad_enabled():  # as create_graph=True asks: it would come out wrong, unseen
            raise RuntimeError(
                "block_sparse_attention has no second derivative; attnlib.functional.attention has"
            )
        query, key, value, seen, output = ctx.saved_tensors
        grads = [torch.empty_like(x) for x in (query, key, value)]
        rooms = [_Room(query, value, ctx.plan, ctx.block_size) for _ in range(2)]
        with torch.autocast(grad.device.type, enabled=False):
            for b in range(grad.shape[0]):
                hidden = _hidden(seen[b], ctx.block_size)
                for h in range(grad.shape[1]):
                    all_of = (query, key, value, output, grad)
                    head = _of_head(all_of, b, h, _precise(query.dtype))
                    blocks = [_in_blocks(x, ctx.block_size) for x in head]
                    parts = _differentiate(*blocks, hidden, ctx.plan, ctx.scale, *rooms)
                    for whole, part in zip(grads, parts, strict=True):
                        whole[b, h] = _in_line(part, grad.shape[2])
        return *grads, None, None, None, None


def _attend(
    query: Float[Tensor, "n_blocks size d_head"],
    key: Float[Tensor, "n_blocks size d_head"],
    value: Float[Tensor, "n_blocks size d_value"],
    output: Float[Tensor, "n_blocks size d_value"],
    hidden: Bool[Tensor, "n_blocks size"] | None,
    plan: list,
    scale: float,
    room: "_Room",
) -> None:
    """Write the attention of one head; blocks that see nothing are left out."""
    for rows, columns in plan:
        q = query.index_select(0, rows)
        k, v = room.gather(key, value, columns)
        scores = _product(q, k.mT, room.for_scores(columns), scale)
        output[rows] = torch.bmm(_weights_(scores, hidden, columns), v)


def _differentiate(
    query: Float[Tensor, "n_blocks size d_head"],
    key: Float[Tensor, "n_blocks size d_head"],
    value: Float[Tensor, "n_blocks size d_value"],
    output: Float[Tensor, "n_blocks size d_value"],
    grad: Float[Tensor, "n_blocks size d_value"],
    hidden: Bool[Tensor, "n_blocks size"] | None,
    plan: list,
    scale: float,
    room: "_Room",
    room_for_grads: "_Room",
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of one head, as in tiled attention; but no row is cut, so no sum must be known."""
    grad_query, grad_key, grad_value = map(torch.zeros_like, (query, key, value))
    minus_delta = -(grad * output).sum(-1, keepdim=True)
    for rows, columns in plan:
        q, g = query.index_select(0, rows), grad.index_select(0, rows)
        k, v = room.gather(key, value, columns)
        scores = _product(q, k.mT, room.for_scores(columns), scale)
        weights = _weights_(scores, hidden, columns)
        grad_scores = room_for_grads.for_scores(columns)
        torch.baddbmm(minus_delta[rows], g, v.mT, out=grad_scores)
        grad_scores *= weights
        grad_query[rows] = torch.bmm(grad_scores, k).mul_(scale)
        parts = room_for_grads.for_keys(columns), room_for_grads.for_values(columns)
        _product(grad_scores.mT, q, parts[0], scale)
        torch.bmm(weights.mT, g, out=parts[1])
        for total, part in zip((grad_key, grad_value), parts, strict=True):
            total.index_add_(0, columns.flatten(), part.view(-1, *total.shape[1:]))
    return grad_query, grad_key, grad_value


class _Room:
    """Memory for one step of the plan, used again by the next: to get it anew is slow."""

    def __init__(self, query: Tensor, value: Tensor, plan: list, size: int) -> None:
        self.size = size
        most = max((columns.numel() for _, columns in plan), default=0)
        precise = {"dtype": _precise(query.dtype)}
        self.keys = query.new_empty(most, size, query.shape[-1], **precise)
        self.values = value.new_empty(most, size, value.shape[-1], **precise)
        self.scores = query.new_empty(most * size**2, **precise)

    def for_keys(self, columns: Tensor) -> Float[Tensor, "rows keys d_head"]:
        return self.keys[: columns.numel()].view(len(columns), -1, self.keys.shape[2])

    def for_values(self, columns: Tensor) -> Float[Tensor, "rows keys d_value"]:
        return self.values[: columns.numel()].view(len(columns), -1, self.values.shape[2])

    def for_scores(self, columns: Tensor) -> Float[Tensor, "rows size keys"]:
        room = self.scores[: columns.numel() * self.size**2]
        return room.view(len(columns), self.size, -1)

    def gather(self, key: Tensor, value: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """The keys and values that each row sees: ``key[columns]``, which would take longer."""
        if columns.shape[1] == len(key):  # all of them, in order
            return tuple(x.flatten(0, 1).expand(len(columns), -1, -1) for x in (key, value))
        n = columns.numel()
        torch.index_select(key, 0, columns.flatten(), out=self.keys[:n])
        torch.index_select(value, 0, columns.flatten(), out=self.values[:n])
        return self.for_keys(columns), self.for_values(columns)


def _weights_(
    scores: Float[Tensor, "rows size keys"],
    hidden: Bool[Tensor, "n_blocks size"] | None,
    columns: Int[Tensor, "rows columns"],
) -> Float[Tensor, "rows size keys"]:
    """Put the weights in the place of the scores."""
    if hidden is None:
        return torch.softmax(scores, -1, out=scores)
    return _softmax_(scores.masked_fill_(hidden[columns].flatten(1)[:, None], -torch.inf))


def _hidden(seen: Bool[Tensor, " length"], block_size: int) -> Bool[Tensor, "n_blocks size"] | None:
    """What may not be seen, and what fills up the last block; None if there is nothing."""
    hidden = ~_in_blocks(seen, block_size)
    return hidden if not can_be_read(hidden) or hidden.any() else None


def _in_blocks(x: Tensor, block_size: int) -> Tensor:
    """Cut the tokens into blocks, the last of which is filled up with zeros."""
    return _fill_up(x, block_size).unflatten(0, (-1, block_size))


def _in_line(x: Tensor, length: int) -> Tensor:
    return x.flatten(0, 1)[:length]


def _check_layout(layout: Tensor, block_size: int, length: int) -> None:
    _check_bool(layout, "layout", "bigbird_layout makes one")
    n_blocks = -(-length // block_size)
    if layout.shape != (n_blocks, n_blocks):
        raise ValueError(
            f"a length of {length} has {n_blocks} blocks of {block_size}, so layout must be "
            f"({n_blocks}, {n_blocks}), got shape {tuple(layout.shape)}"
        )
