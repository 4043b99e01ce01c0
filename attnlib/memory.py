"""Where the memory goes: for the backward pass, for parameters, for a cache."""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.functional import max_pool2d

from attnlib.checks import check_sizes
from attnlib.masks import check_mask


def saved_bytes(run: Callable[[], object], *, leave_out: Iterable[Tensor | nn.Module] = ()) -> int:
    """Count the bytes that a forward pass keeps for the backward pass.

    This is what fills a machine in training: each operation keeps what its gradient will need.
    The count is exact and the same on every machine. Memory that several operations keep is
    counted once, whole, even if they keep only a part of it.

    Args:
        run: Runs the forward pass, and returns its outcome.
        leave_out: What is there anyway and shall not count: the inputs, and the model, which stands
            for its parameters and buffers.

    Returns:
        Bytes. What is kept outside of PyTorch's graph (a list of outputs, say) is not seen.

    Raises:
        TypeError: If ``leave_out`` holds anything but tensors and modules.

    Example:
        >>> x = torch.randn(10, 100, requires_grad=True)
        >>> saved_bytes(lambda: x.exp().sum(), leave_out=[x])  # the gradient of exp is exp(x)
        4000

    Source:
        ``torch.autograd.graph.saved_tensors_hooks``.
    """
    known = {_address(tensor) for tensor in _tensors(leave_out)}
    saved = {}  # the storages themselves: while we hold them, no address is given out twice

    def pack(tensor: Tensor) -> Tensor:
        if _address(tensor) not in known:
            saved[_address(tensor)] = _here(tensor).untyped_storage()
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        run()
    return sum(storage.nbytes() for storage in saved.values())


def parameter_count(model: nn.Module) -> int:
    """Count the numbers that a model learns; a parameter that two layers share counts once.

    Example:
        >>> parameter_count(nn.Linear(3, 5))  # 3 · 5 weights and 5 biases
        20
    """
    return sum(parameter.numel() for parameter in model.parameters())


def parameter_bytes(model: nn.Module) -> int:
    """Count the bytes of a model's parameters; AdamW needs three times as much besides.

    In training each parameter has a gradient and AdamW's two averages, all of the same size.

    Example:
        >>> parameter_bytes(nn.Linear(3, 5).half())
        40
    """
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def cache_bytes(
    length: int,
    *,
    n_layers: int,
    n_heads: int,
    d_head: int,
    batch: int = 1,
    window: int | None = None,
    dtype: torch.dtype = torch.float32,
) -> int:
    r"""Count the bytes of the keys and values that generation keeps.

    .. math:: 2 \cdot batch \cdot n_{layers} \cdot n_{heads} \cdot length \cdot d_{head} \cdot bytes

    Args:
        length: Number of tokens that are kept.
        n_layers: Number of layers that attend.
        n_heads: Number of heads that have keys and values of their own; with grouped queries, those
            are fewer than the heads that ask.
        d_head: Width of a head.
        batch: Number of sequences.
        window: How many tokens a query sees, if not all of them: no more are kept then.
        dtype: Type of the numbers.

    Raises:
        TypeError: If a number is not whole.
        ValueError: If a number is negative, or the window is not positive.

    Example:
        >>> cache_bytes(4096, n_layers=32, n_heads=32, d_head=128, dtype=torch.float16) / 2**30
        2.0

    Source:
        Shazeer 2019, arXiv:1911.02150, section 2.4.1.
    """
    sizes = {
        "length": length,
        "n_layers": n_layers,
        "n_heads": n_heads,
        "d_head": d_head,
        "batch": batch,
    }
    check_sizes(at_least=0, **sizes)
    if window is not None:
        check_sizes(window=window)
        sizes["length"] = min(length, window)
    return 2 * dtype.itemsize * math.prod(sizes.values())  # a key and a value


class MaskCost(NamedTuple):
    """What attention with a mask costs, if no more is computed than has to be.

    ``pairs`` counts the queries and keys that meet, over all sequences and heads; ``share`` is
    their part of all there are; ``flops`` are the additions and multiplications of scores and
    averages; ``bytes`` are those of one weight for each pair.

    Example:
        >>> MaskCost(pairs=6, share=0.75, flops=96, bytes=24).share
        0.75
    """

    pairs: int
    share: float
    flops: int
    bytes: int


def mask_cost(
    mask: Bool[Tensor, "batch heads q_len k_len"],
    *,
    d_head: int,
    n_heads: int = 1,
    block_size: int = 1,
    dtype: torch.dtype = torch.float32,
) -> MaskCost:
    r"""Count the pairs that a mask allows, and what they cost.

    A pair takes :math:`2 d_{head}` operations for its score, and as many for its part of the
    average. What computes in blocks pays for each block that is not wholly hidden.

    Args:
        mask: ``True`` where a query may attend; its query and key axes must be written out, not
            broadcast.
        d_head: Width of a head.
        n_heads: Number of heads, if the mask is the same for all of them.
        block_size: Side of the square blocks that are computed whole; 1 counts single pairs.
        dtype: Type of the weights.

    Raises:
        TypeError: If the mask is not boolean, or a number is not whole.
        ValueError: If the mask is not 4-D, differs by head but not for ``n_heads``, or a number is
            not positive.

    Example:
        >>> from attnlib.masks import causal_mask
        >>> mask_cost(causal_mask(1000), d_head=64)
        MaskCost(pairs=500500, share=0.5005, flops=128128000, bytes=2002000)
        >>> mask_cost(causal_mask(1000), d_head=64, block_size=100).share
        0.55
    """
    check_mask(mask)
    check_sizes(d_head=d_head, n_heads=n_heads, block_size=block_size)
    if mask.shape[1] > 1 and n_heads not in (1, mask.shape[1]):
        raise ValueError(f"the mask has {mask.shape[1]} heads, but n_heads={n_heads}")
    q_len, k_len = mask.shape[2:]
    computed = mask
    if block_size > 1:
        blocks = max_pool2d(mask.float(), block_size, ceil_mode=True).bool()
        computed = blocks.repeat_interleave(block_size, 2).repeat_interleave(block_size, 3)
        computed = computed[:, :, :q_len, :k_len]  # a block at the edge is smaller
    pairs = int(computed.sum())
    share = pairs / mask.numel()
    if mask.shape[1] == 1:
        pairs *= n_heads
    return MaskCost(pairs, share, 4 * d_head * pairs, dtype.itemsize * pairs)


def _tensors(things: Iterable[Tensor | nn.Module]) -> Iterable[Tensor]:
    for thing in things:
        if isinstance(thing, nn.Module):
            yield from thing.parameters()
            yield from thing.buffers()
        elif isinstance(thing, Tensor):
            yield thing
        else:
            raise TypeError(
                f"leave_out takes tensors and modules, got {type(thing).__name__}; unpack a batch "
                "with *batch"
            )


def _address(tensor: Tensor) -> tuple[torch.device, int]:
    return tensor.device, _here(tensor).untyped_storage().data_ptr()


def _here(tensor: Tensor) -> Tensor:
    """The part that this process holds, if a tensor is dealt out to several (a ``DTensor``)."""
    return getattr(tensor, "_local_tensor", tensor)
