"""Boolean attention masks. One rule: ``True`` means "this query may attend to this key".

Every builder returns a 4-D mask that broadcasts to ``(batch, heads, q_len, k_len)``, so masks
combine with ``&`` and ``|``, and nobody has to guess which axis is which. The *last* query always
sits at the *last* key: the same call serves training (``q_len == k_len``) and decoding with a
cache (``q_len == 1``).

Other libraries have other conventions. The converters at the end of this file are the only place
where one is turned into another.
"""

import torch
from jaxtyping import Bool, Float, Int, Integer
from torch import Tensor

from attnlib.checks import can_be_read, check_sizes, check_whole_numbers

# ---------------------------------------------------------------------------------- builders


def causal_mask(
    q_len: int, k_len: int | None = None, *, device: torch.device | str | None = None
) -> Bool[Tensor, "1 1 q_len k_len"]:
    """Let each query see its own position and everything before it.

    Args:
        q_len: Number of queries.
        k_len: Number of keys; ``q_len`` if left out. With more keys than queries, the queries are
            the last ones, as in decoding with a cache.
        device: Where the mask is made.

    Returns:
        Mask of shape (1, 1, q_len, k_len).

    Raises:
        TypeError: If a length is not a whole number.
        ValueError: If a length is not positive or there are fewer keys than queries.

    Example:
        >>> causal_mask(2, 4)[0, 0].int()
        tensor([[1, 1, 1, 0],
                [1, 1, 1, 1]], dtype=torch.int32)

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.2.3.
    """
    return _key_minus_query(q_len, k_len, device) <= 0


def window_mask(
    q_len: int,
    k_len: int | None = None,
    *,
    radius: int,
    dilation: int = 1,
    device: torch.device | str | None = None,
) -> Bool[Tensor, "1 1 q_len k_len"]:
    """Let each query see the keys near to it, on both sides.

    Combine it with :func:`causal_mask` for a window that looks back only.

    Args:
        q_len: Number of queries.
        k_len: Number of keys; ``q_len`` if left out.
        radius: How many keys on each side, besides the query's own position.
        dilation: Distance, in tokens, from one of these keys to the next.
        device: Where the mask is made.

    Returns:
        Mask of shape (1, 1, q_len, k_len).

    Raises:
        TypeError: If a length, the radius or the dilation is not a whole number.
        ValueError: If a length or the dilation is not positive, or the radius is negative.

    Example:
        >>> window_mask(4, radius=1)[0, 0].int()
        tensor([[1, 1, 0, 0],
                [1, 1, 1, 0],
                [0, 1, 1, 1],
                [0, 0, 1, 1]], dtype=torch.int32)

    Source:
        Beltagy et al. 2020 (Longformer), arXiv:2004.05150, section 3.1. Their window of size w is
        a radius of w / 2.
    """
    check_sizes(at_least=0, radius=radius)  # 0 lets a token see only itself
    check_sizes(dilation=dilation)  # 1 means no gaps
    distance = _key_minus_query(q_len, k_len, device).abs()
    return (distance <= radius * dilation) & (distance % dilation == 0)


def padding_mask(lengths: Integer[Tensor, " batch"], k_len: int) -> Bool[Tensor, "batch 1 1 k_len"]:
    """Hide the padding behind each sequence.

    Args:
        lengths: Number of real tokens in each sequence, 0 to ``k_len``.
        k_len: Number of keys, padding included.

    Returns:
        Mask of shape (batch, 1, 1, k_len), on the device of ``lengths``.

    Raises:
        TypeError: If ``lengths`` is not a tensor of whole numbers.
        ValueError: If it is not 1-D, or a length is negative or longer than ``k_len``.

    Example:
        >>> padding_mask(torch.tensor([1, 3]), 3)[:, 0, 0].int()
        tensor([[1, 0, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    _check_lengths(lengths, k_len)
    position = torch.arange(k_len, device=lengths.device)
    return (position < lengths[:, None])[:, None, None, :]


def left_padding_mask(
    lengths: Integer[Tensor, " batch"], k_len: int
) -> Bool[Tensor, "batch 1 1 k_len"]:
    """Hide the padding in front of each sequence, where batched generation puts it.

    Args:
        lengths: Number of real tokens in each sequence, 0 to ``k_len``.
        k_len: Number of keys, padding included.

    Returns:
        Mask of shape (batch, 1, 1, k_len), on the device of ``lengths``.

    Raises:
        TypeError: If ``lengths`` is not a tensor of whole numbers.
        ValueError: If it is not 1-D, or a length is negative or longer than ``k_len``.

    Example:
        >>> left_padding_mask(torch.tensor([1, 3]), 3)[:, 0, 0].int()
        tensor([[0, 0, 1],
                [1, 1, 1]], dtype=torch.int32)
    """
    return padding_mask(lengths, k_len).flip(-1)


def global_mask(
    is_global: Bool[Tensor, "batch k_len"], q_len: int | None = None
) -> Bool[Tensor, "batch 1 q_len k_len"]:
    """Let some tokens see everything and be seen by everything.

    It is meant for an ``|`` with a window: ``window_mask(n, radius=2) | global_mask(is_global)``.

    Args:
        is_global: ``True`` at the global tokens of each sequence.
        q_len: Number of queries, the last ones of the sequence; all of them if left out.

    Returns:
        Mask of shape (batch, 1, q_len, k_len).

    Raises:
        TypeError: If ``is_global`` is not boolean.
        ValueError: If it is not 2-D, or there are fewer keys than queries.

    Example:
        >>> global_mask(torch.tensor([[True, False, False]]))[0, 0].int()
        tensor([[1, 1, 1],
                [1, 0, 0],
                [1, 0, 0]], dtype=torch.int32)

    Source:
        Beltagy et al. 2020 (Longformer), arXiv:2004.05150, section 3.1.
    """
    _check_bool(is_global, "is_global", "convert 0/1 with .bool()")
    _check_ndim(is_global, "is_global", "(batch, k_len)", 2)
    k_len = is_global.shape[-1]
    first = _first_query(k_len if q_len is None else q_len, k_len)
    return is_global[:, None, None, :] | is_global[:, None, first:, None]


def random_block_mask(
    length: int, *, block_size: int, n_blocks: int, generator: torch.Generator | None = None
) -> Bool[Tensor, "1 1 length length"]:
    """Let each block of queries see some blocks of keys, drawn at random.

    The queries of a block share their draw, as in BigBird: memory is then read in whole blocks.

    Args:
        length: Number of tokens, queries and keys alike. The last block may be shorter.
        block_size: Number of tokens in a block.
        n_blocks: How many different blocks of keys each block of queries sees.
        generator: Source of randomness; give one with a seed to draw the same mask again.

    Returns:
        Mask of shape (1, 1, length, length).

    Raises:
        TypeError: If a number is not whole.
        ValueError: If a number is not positive, or there are fewer than ``n_blocks`` blocks.

    Example:
        >>> mask = random_block_mask(6, block_size=2, n_blocks=1)
        >>> mask.sum(-1).flatten().tolist()  # one block of two keys for every query
        [2, 2, 2, 2, 2, 2]

    Source:
        Zaheer et al. 2020 (BigBird), arXiv:2007.14062, section 2.
    """
    check_sizes(length=length, block_size=block_size, n_blocks=n_blocks)
    total = -(-length // block_size)
    if n_blocks > total:
        raise ValueError(
            f"n_blocks={n_blocks} is more than the {total} blocks of {block_size} that a length "
            f"of {length} has; lower n_blocks or block_size"
        )
    order = torch.rand(total, total, generator=generator).argsort(-1)
    chosen = torch.zeros(total, total, dtype=torch.bool).scatter(-1, order[:, :n_blocks], True)
    per_token = torch.arange(length) // block_size
    return chosen[per_token][:, per_token][None, None]


def prefix_mask(
    prefix_lengths: Integer[Tensor, " batch"], q_len: int, k_len: int | None = None
) -> Bool[Tensor, "batch 1 q_len k_len"]:
    """Let everything see the prefix, and be causal after it (a prefix language model).

    Args:
        prefix_lengths: Number of tokens in each sequence's prefix, 0 to ``k_len``.
        q_len: Number of queries.
        k_len: Number of keys; ``q_len`` if left out.

    Returns:
        Mask of shape (batch, 1, q_len, k_len), on the device of ``prefix_lengths``.

    Raises:
        TypeError: If ``prefix_lengths`` is not a tensor of whole numbers.
        ValueError: If a length is out of range or there are fewer keys than queries.

    Example:
        >>> prefix_mask(torch.tensor([2]), 4)[0, 0].int()
        tensor([[1, 1, 0, 0],
                [1, 1, 0, 0],
                [1, 1, 1, 0],
                [1, 1, 1, 1]], dtype=torch.int32)

    Source:
        Raffel et al. 2020 (T5), arXiv:1910.10683, section 3.2.1.
    """
    k_len = q_len if k_len is None else k_len
    prefix = padding_mask(prefix_lengths, k_len)
    return prefix | causal_mask(q_len, k_len, device=prefix_lengths.device)


def document_mask(
    documents: Integer[Tensor, "batch k_len"], q_len: int | None = None
) -> Bool[Tensor, "batch 1 q_len k_len"]:
    """Keep documents that share one sequence from seeing each other.

    Args:
        documents: The number of the document that each token belongs to.
        q_len: Number of queries, the last ones of the sequence; all of them if left out.

    Returns:
        Mask of shape (batch, 1, q_len, k_len).

    Raises:
        TypeError: If ``documents`` does not hold whole numbers.
        ValueError: If it is not 2-D, or there are fewer keys than queries.

    Example:
        >>> document_mask(torch.tensor([[0, 0, 1]]))[0, 0].int()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]], dtype=torch.int32)
    """
    check_whole_numbers("documents", documents, "number the documents 0, 1, 2")
    _check_ndim(documents, "documents", "(batch, k_len)", 2)
    k_len = documents.shape[-1]
    first = _first_query(k_len if q_len is None else q_len, k_len)
    return (documents[:, first:, None] == documents[:, None, :])[:, None]


def receptive_field(
    mask: Bool[Tensor, "batch heads length length"], n_layers: int
) -> Bool[Tensor, "batch heads length length"]:
    """Which tokens each token has heard of after some layers that all use the same mask.

    In each layer a token hears from those that it may attend to what they have heard before; its
    residual connection keeps what it knew itself. A window grows by its radius in each layer; one
    global token is enough for all to have heard of all after two.

    Args:
        mask: ``True`` where a query may attend to a key, with as many queries as keys.
        n_layers: Number of layers; 0 leaves each token with itself.

    Returns:
        A mask of the same shape: ``True`` where a query (row) has heard of a token (column).

    Raises:
        TypeError: If the mask is not boolean, or ``n_layers`` is not a whole number.
        ValueError: If the mask is not 4-D and square, or ``n_layers`` is negative.

    Example:
        >>> window = window_mask(5, radius=1) & causal_mask(5)
        >>> receptive_field(window, n_layers=2)[0, 0].int()
        tensor([[1, 0, 0, 0, 0],
                [1, 1, 0, 0, 0],
                [1, 1, 1, 0, 0],
                [0, 1, 1, 1, 0],
                [0, 0, 1, 1, 1]], dtype=torch.int32)

    Source:
        Beltagy et al. 2020 (Longformer), arXiv:2004.05150, section 3.1.
    """
    check_mask(mask)
    check_sizes(at_least=0, n_layers=n_layers)
    length = mask.shape[-1]
    if mask.shape[-2] != length:
        raise ValueError(
            f"each layer's outputs are the next one's keys, so there must be as many queries as "
            f"keys, got mask of shape {tuple(mask.shape)}"
        )
    itself = torch.eye(length, dtype=torch.bool, device=mask.device)
    hears = (mask | itself).float()
    heard = itself.expand(mask.shape)
    for _ in range(n_layers):
        heard = hears @ heard.float() > 0  # counts the ways; one is enough
    return heard


# -------------------------------------------------------------------------------- converters


def from_attention_mask(
    keep: Integer[Tensor, "batch k_len"] | Bool[Tensor, "batch k_len"],
) -> Bool[Tensor, "batch 1 1 k_len"]:
    """Read the ``attention_mask`` of a Hugging Face tokenizer: 1 = keep, 0 = padding.

    Args:
        keep: Zeros and ones (or booleans) for each token.

    Returns:
        Mask of shape (batch, 1, 1, k_len).

    Raises:
        TypeError: If ``keep`` is no tensor, or a float tensor, which may be an additive mask.
        ValueError: If it is not 2-D or holds anything but 0 and 1.

    Example:
        >>> from_attention_mask(torch.tensor([[1, 1, 0]])).flatten().tolist()
        [True, True, False]
    """
    if not isinstance(keep, Tensor) or keep.dtype != torch.bool:
        check_whole_numbers(
            "attention_mask",
            keep,
            'tokenizers give it by return_tensors="pt"; numbers to add are read by from_additive',
        )
        if can_be_read(keep) and not ((keep == 0) | (keep == 1)).all():
            raise ValueError(
                f"attention_mask must hold only 0 (padding) and 1 (keep), got values from "
                f"{keep.min()} to {keep.max()}; token ids become a mask with ids != pad_id"
            )
    _check_ndim(keep, "attention_mask", "(batch, k_len)", 2)
    return keep.bool()[:, None, None, :]


def to_attention_mask(mask: Bool[Tensor, "batch 1 1 k_len"]) -> Int[Tensor, "batch k_len"]:
    """Write a padding mask as Hugging Face's ``attention_mask``: 1 = keep, 0 = padding.

    Raises:
        TypeError: If ``mask`` is not boolean.
        ValueError: If it says different things to different queries or heads.

    Example:
        >>> to_attention_mask(padding_mask(torch.tensor([2]), 3))
        tensor([[1, 1, 0]])
    """
    return _one_row_per_sequence(mask, "attention_mask").long()


def from_key_padding_mask(
    ignored: Bool[Tensor, "batch k_len"],
) -> Bool[Tensor, "batch 1 1 k_len"]:
    """Read the ``key_padding_mask`` of ``torch.nn.MultiheadAttention``: True = ignore.

    Raises:
        TypeError: If ``ignored`` is not boolean.
        ValueError: If it is not 2-D.

    Example:
        >>> from_key_padding_mask(torch.tensor([[False, True]])).flatten().tolist()
        [True, False]
    """
    _check_bool(
        ignored, "key_padding_mask", "True = ignore; 1 = keep is read by from_attention_mask"
    )
    _check_ndim(ignored, "key_padding_mask", "(batch, k_len)", 2)
    return ~ignored[:, None, None, :]


def to_key_padding_mask(mask: Bool[Tensor, "batch 1 1 k_len"]) -> Bool[Tensor, "batch k_len"]:
    """Write a padding mask as ``torch.nn.MultiheadAttention`` wants it: True = ignore.

    Raises:
        TypeError: If ``mask`` is not boolean.
        ValueError: If it says different things to different queries or heads.

    Example:
        >>> to_key_padding_mask(padding_mask(torch.tensor([2]), 3))
        tensor([[False, False,  True]])
    """
    return ~_one_row_per_sequence(mask, "key_padding_mask")


def from_torch_attn_mask(
    blocked: Bool[Tensor, "*batch q_len k_len"], n_heads: int = 1
) -> Bool[Tensor, "b h q_len k_len"]:
    """Read the ``attn_mask`` of ``torch.nn.MultiheadAttention``: True = blocked.

    Args:
        blocked: Shape (q_len, k_len), or (batch * n_heads, q_len, k_len) with the heads of a
            sequence side by side.
        n_heads: Number of heads; it matters only for a 3-D mask.

    Returns:
        Mask of shape (1, 1, q_len, k_len) or (batch, n_heads, q_len, k_len).

    Raises:
        TypeError: If ``blocked`` is not boolean.
        ValueError: If it is neither 2-D nor 3-D, or its first axis is no multiple of ``n_heads``.

    Example:
        >>> from_torch_attn_mask(torch.ones(2, 2, dtype=torch.bool).triu(1))[0, 0].int()
        tensor([[1, 0],
                [1, 1]], dtype=torch.int32)
    """
    _check_bool(blocked, "attn_mask", "numbers to add are read by from_additive")
    if blocked.ndim == 2:
        return ~blocked[None, None]
    _check_ndim(blocked, "attn_mask", "(batch * n_heads, q_len, k_len), or 2-D (q_len, k_len)", 3)
    check_sizes(n_heads=n_heads)
    if blocked.shape[0] % n_heads:
        raise ValueError(
            f"a 3-D attn_mask has batch * n_heads rows, but {blocked.shape[0]} is no multiple of "
            f"n_heads={n_heads}"
        )
    return ~blocked.unflatten(0, (-1, n_heads))


def to_torch_attn_mask(
    mask: Bool[Tensor, "b h q_len k_len"], batch: int, n_heads: int
) -> Bool[Tensor, "batch_heads q_len k_len"]:
    """Write a mask as ``torch.nn.MultiheadAttention`` wants its ``attn_mask``: True = blocked.

    Args:
        mask: A mask of ours; its query and key axes must be written out, not broadcast.
        batch: Number of sequences.
        n_heads: Number of heads.

    Returns:
        Mask of shape (batch * n_heads, q_len, k_len), the heads of a sequence side by side.

    Raises:
        TypeError: If ``mask`` is not boolean.
        ValueError: If it is not 4-D, or does not broadcast to the batch and the heads.

    Example:
        >>> to_torch_attn_mask(causal_mask(2), batch=1, n_heads=1)
        tensor([[[False,  True],
                 [False, False]]])
    """
    check_mask(mask)
    if mask.shape[0] not in (1, batch) or mask.shape[1] not in (1, n_heads):
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} does not broadcast to batch={batch} and "
            f"n_heads={n_heads}"
        )
    return ~mask.expand(batch, n_heads, -1, -1).flatten(0, 1)


def to_additive(
    mask: Bool[Tensor, "*shape"], dtype: torch.dtype = torch.float32
) -> Float[Tensor, "*shape"]:
    """Write a mask as numbers to add to the scores: 0 = may attend, -inf = blocked.

    Args:
        mask: ``True`` where a query may attend.
        dtype: The float type of the scores.

    Raises:
        TypeError: If ``mask`` is not boolean or ``dtype`` is not a float type.

    Example:
        >>> to_additive(causal_mask(2))[0, 0]
        tensor([[0., -inf],
                [0., 0.]])
    """
    _check_bool(mask, "mask", "from a 0/1 mask use mask.bool()")
    if not dtype.is_floating_point:
        raise TypeError(f"dtype must be a float type, which can hold -inf; got {dtype}")
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill(~mask, -torch.inf)


def from_additive(additive: Float[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
    """Read a mask that others add to the scores: 0 = may attend, hugely negative = blocked.

    -inf, the smallest number of the dtype, and -1e4 or below (as in -1e9) count as blocked.

    Raises:
        TypeError: If ``additive`` is not a float tensor.
        ValueError: If a number is neither 0 nor hugely negative: it is a bias, not a mask.

    Example:
        >>> from_additive(torch.tensor([0.0, -1e9, -torch.inf])).tolist()
        [True, False, False]
    """
    if not isinstance(additive, Tensor) or not additive.is_floating_point():
        raise TypeError(f"an additive mask is a float tensor, got {_kind(additive)}")
    allowed, blocked = additive == 0, additive <= -1e4
    if can_be_read(additive) and not (allowed | blocked).all():
        raise ValueError(
            "an additive mask holds 0 (may attend) and -1e4 or below (blocked) only, got "
            f"{additive[~(allowed | blocked)][0]}; scores to add are passed as bias="
        )
    return allowed


# ------------------------------------------------------------------------------------ checks


def check_mask(mask: Tensor) -> None:
    """Refuse a mask that is not boolean or not 4-D, and say how to make one that is.

    Raises:
        TypeError: If ``mask`` is not a boolean tensor.
        ValueError: If it is not 4-D: (batch, k_len) and (q_len, k_len) cannot be told apart.

    Example:
        >>> check_mask(causal_mask(3))
    """
    if not isinstance(mask, Tensor):
        raise TypeError(f"mask must be a torch.Tensor of booleans, got {type(mask).__name__}")
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be torch.bool (True = may attend), got {mask.dtype}. From a 0/1 mask use "
            "mask.bool(); numbers to add to the scores are passed as bias="
        )
    if mask.ndim != 4:
        raise ValueError(
            f"mask must be 4-D (batch, heads, q_len, k_len), got shape {tuple(mask.shape)}. A 2-D "
            "mask could be (batch, k_len) or (q_len, k_len): use padding_mask(...), "
            "causal_mask(...), or write mask[:, None, None, :] or mask[None, None]"
        )


def _key_minus_query(
    q_len: int, k_len: int | None, device: torch.device | str | None
) -> Int[Tensor, "1 1 q_len k_len"]:
    """How many positions each key lies behind (negative: before) each query."""
    k_len = q_len if k_len is None else k_len
    query = torch.arange(_first_query(q_len, k_len), k_len, device=device)
    return (torch.arange(k_len, device=device) - query[:, None])[None, None]


def _first_query(q_len: int, k_len: int) -> int:
    """Where the first query sits among the keys, when the last one sits at the last key."""
    check_sizes(q_len=q_len, k_len=k_len)
    if k_len < q_len:
        raise ValueError(
            f"there must be at least as many keys as queries, got k_len={k_len}, q_len={q_len}: "
            "the last query sits at the last key"
        )
    return k_len - q_len


def _one_row_per_sequence(mask: Tensor, target: str) -> Bool[Tensor, "batch k_len"]:
    check_mask(mask)
    if mask.shape[1:3] != (1, 1):
        raise ValueError(
            f"{target} holds one row for a sequence, so the mask must have shape (batch, 1, 1, "
            f"k_len), got {tuple(mask.shape)}; pass the part that differs by query or head apart"
        )
    return mask[:, 0, 0]


def _check_lengths(lengths: Tensor, k_len: int) -> None:
    check_sizes(k_len=k_len)
    check_whole_numbers("lengths", lengths, "write torch.tensor([3, 5])")
    _check_ndim(lengths, "lengths", "(batch,)", 1)
    if not can_be_read(lengths):
        return
    whole = lengths.long()  # k_len need not fit into the type of the lengths: 300 is 44 in int8
    if ((whole < 0) | (whole > k_len)).any():
        raise ValueError(f"lengths must lie in 0..k_len={k_len}, got {lengths.tolist()}")


def _check_bool(x: Tensor, name: str, advice: str) -> None:
    if not isinstance(x, Tensor) or x.dtype != torch.bool:
        raise TypeError(f"{name} must be a boolean tensor, got {_kind(x)}; {advice}")


def _kind(x: object) -> str:
    return str(x.dtype) if isinstance(x, Tensor) else type(x).__name__


def _check_ndim(x: Tensor, name: str, shape: str, ndim: int) -> None:
    if x.ndim != ndim:
        raise ValueError(f"{name} must be {ndim}-D {shape}, got shape {tuple(x.shape)}")
