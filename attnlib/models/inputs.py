"""What every model does before its layers run: check what came, and say who sees whom."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor, nn

from attnlib.cache import KVCache, LayerCache
from attnlib.checks import can_be_read, check_whole_numbers
from attnlib.efficient.window_cache import WindowKVCache
from attnlib.masks import causal_mask, check_mask, left_padding_mask, window_mask


def check_ids(name: str, ids: Tensor, vocab_size: int | None = None) -> None:
    """Refuse what is not a batch of token ids.

    Args:
        name: What the caller calls them.
        ids: Token ids, (batch, length).

        vocab_size: How many ids there are; they are not looked at if left out.

    Raises:
        TypeError: If they are not a tensor of int64 or int32.
        ValueError: If they are not 2-D, there are none, or one of them is not in the vocabulary.

    Example:
        >>> check_ids("source", torch.tensor([[5, 6]]))
    """
    check_whole_numbers(name, ids, "write torch.tensor([[5, 6]]), one row of ids for each text")
    if ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"{name} must be int64 or int32, got {ids.dtype}; convert with .long()")
    if ids.ndim != 2 or 0 in ids.shape:
        raise ValueError(
            f"{name} must be (batch, length) with one token or more, got shape {tuple(ids.shape)}"
        )
    if vocab_size is None or ids.device.type != "cpu" or not can_be_read(ids):
        return  # on an accelerator, looking would make the host wait
    least, most = (end.item() for end in ids.aminmax())
    if least < 0 or most >= vocab_size:
        raise ValueError(
            f"{name} must lie in 0 to {vocab_size - 1}, as vocab_size={vocab_size}, got ids from "
            f"{least} to {most}"
        )


def encoder_mask(
    ids: Int[Tensor, "batch length"],
    n_heads: int,
    *,
    padding: Int[Tensor, " batch"] | None = None,
    mask: Bool[Tensor, "#batch #heads #length #length"] | None = None,
) -> Bool[Tensor, "#batch #heads #length #length"] | None:
    """Who sees whom in an encoder: everyone, except for padding and what the caller hides.

    Args:
        ids: The tokens.
        n_heads: Number of heads, for which the mask must fit.
        padding: How many tokens of padding stand in front of each text.
        mask: What the caller hides.

    Returns:
        ``True`` where a token may attend, or None if nothing is hidden.

    Raises:
        TypeError: If ``padding`` is not a tensor of whole numbers, or ``mask`` is not boolean.
        ValueError: If ``padding`` is not one number for each text, 0 or more, or ``mask`` does not
            fit.

    Example:
        >>> encoder_mask(torch.zeros(2, 3).long(), 1, padding=torch.tensor([1, 0]))[:, 0, 0].int()
        tensor([[0, 1, 1],
                [1, 1, 1]], dtype=torch.int32)
    """
    batch, length = ids.shape
    return _hide_padding((batch, n_heads, length, length), padding, mask)


def decoder_mask(
    ids: Int[Tensor, "batch q_len"],
    n_heads: int,
    *,
    offset: int = 0,
    padding: Int[Tensor, " batch"] | None = None,
    mask: Bool[Tensor, "#batch #heads #q_len #k_len"] | None = None,
) -> Bool[Tensor, "#batch #heads #q_len #k_len"] | None:
    """Who sees whom in a decoder: as :func:`encoder_mask`, and nobody sees the future.

    Args:
        ids: The tokens that are new.
        n_heads: Number of heads, for which the mask must fit.
        offset: How many tokens are cached, which are keys as well.
        padding: How many tokens of padding stand in front of each text.
        mask: What the caller hides.

    Returns:
        ``True`` where a token may attend, or None if nothing is hidden.

    Raises:
        TypeError: As :func:`encoder_mask`.
        ValueError: As :func:`encoder_mask`.

    Example:
        >>> decoder_mask(torch.zeros(1, 2).long(), 1, offset=1)[0, 0].int()
        tensor([[1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    batch, q_len = ids.shape
    k_len = offset + q_len
    mask = _hide_padding((batch, n_heads, q_len, k_len), padding, mask)
    if q_len == 1:  # a single query is the last one: nothing comes after it
        return mask
    causal = causal_mask(q_len, k_len, device=ids.device)
    return causal if mask is None else causal & mask


def hide_beyond_window(
    mask: Bool[Tensor, "#batch #heads #q_len #total_len"] | None,
    ids: Int[Tensor, "batch q_len"],
    window: int | None,
    cache: KVCache | None,
) -> Bool[Tensor, "#batch #heads #q_len #k_len"] | None:
    """Narrow a decoder's mask to a window, and to the keys that a cache of the window still has.

    Args:
        mask: Who sees whom among all tokens so far, or None if nothing is hidden.
        ids: The tokens that are new.
        window: How many tokens each one sees, itself included; None for all before it.
        cache: The cache, before the new tokens are in it.

    Returns:
        ``True`` where a token may attend, or None if nothing is hidden.

    Raises:
        ValueError: If the cache forgets what is beyond another window than the model's.

    Example:
        >>> hide_beyond_window(None, torch.zeros(1, 4).long(), 2, None)[0, 0].tril().int()
        tensor([[1, 0, 0, 0],
                [1, 1, 0, 0],
                [0, 1, 1, 0],
                [0, 0, 1, 1]], dtype=torch.int32)
    """
    _check_window(cache, window)
    if window is None:
        return mask
    q_len, earlier = ids.shape[1], 0 if cache is None else cache.length
    near = window_mask(q_len, earlier + q_len, radius=window - 1, device=ids.device)
    mask = near if mask is None else near & mask
    forgets = isinstance(cache, WindowKVCache)
    return mask[..., -(min(earlier, window - 1) + q_len) :] if forgets else mask


def cache_of_each(layers: nn.ModuleList, cache: KVCache | None) -> list[LayerCache | None]:
    """Find the cache of each layer; there is None for each if there is no cache.

    Args:
        layers: The layers of a decoder.
        cache: The cache of all of them.

    Raises:
        ValueError: If the cache has another number of layers.

    Example:
        >>> cache_of_each(nn.ModuleList([nn.Identity(), nn.Identity()]), None)
        [None, None]
    """
    if cache is None:
        return [None] * len(layers)
    if len(cache.layers) != len(layers):
        raise ValueError(
            f"the cache has {len(cache.layers)} layers, but the model has {len(layers)}"
        )
    return cache.layers


def _check_window(cache: KVCache | None, window: int | None) -> None:
    if isinstance(cache, WindowKVCache) and cache.window != window:
        raise ValueError(
            f"the cache keeps a window of {cache.window} tokens, but the model's window is {window}"
        )


def _hide_padding(
    shape: tuple[int, int, int, int], padding: Tensor | None, mask: Tensor | None
) -> Bool[Tensor, "#batch #heads #q_len #k_len"] | None:
    """Hide, for all queries of a (batch, heads, q_len, k_len), the padding in front of the keys."""
    batch, _, _, k_len = shape
    if mask is not None:
        _check_fits(mask, shape)
    if padding is None:
        return mask
    _check_padding(padding, batch)
    real = left_padding_mask((k_len - padding).clamp(min=0), k_len)
    return real if mask is None else mask & real


def _check_fits(mask: Tensor, target: tuple[int, ...]) -> None:
    check_mask(mask)
    if any(size not in (1, most) for size, most in zip(mask.shape, target, strict=True)):
        raise ValueError(
            f"mask of shape {tuple(mask.shape)} does not broadcast to (batch, heads, q_len, k_len) "
            f"= {target}"
        )


def _check_padding(padding: Tensor, batch: int) -> None:
    if not isinstance(padding, Tensor) or padding.dtype not in (torch.int64, torch.int32):
        got = padding.dtype if isinstance(padding, Tensor) else type(padding).__name__
        raise TypeError(f"padding must be a tensor of whole numbers, got {got}")
    if padding.shape != (batch,):
        raise ValueError(
            f"padding must say one number for each of {batch} texts, got shape "
            f"{tuple(padding.shape)}"
        )
    if can_be_read(padding) and (padding < 0).any():
        raise ValueError(f"padding must be 0 or more tokens, got {padding.tolist()}")
