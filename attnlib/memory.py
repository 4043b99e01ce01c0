"""Where the memory goes: for the backward pass, for parameters, for a cache."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
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


class Kept(NamedTuple):
    """Bytes that training keeps for the backward pass, in two parts.

    ``weights`` has a number for each pair of tokens; it grows with the square of the length.
    ``activations`` is all the rest; it grows with the length alone.

    Example:
        >>> kept = Kept(weights=8, activations=4)
        >>> sum(kept)
        12
    """

    weights: int
    activations: int


@dataclass(frozen=True)
class LayerStack:
    r"""Predict what a stack of Transformer layers keeps for the backward pass, method by method.

    For each token a layer keeps vectors of width :math:`d = n_{heads} \cdot d_{head}`: its input,
    the input of each linear map and of each norm. What attention keeps besides is added by the
    methods of this class. Every one is held against :func:`saved_bytes`, to the byte.

    The layers are :class:`~attnlib.layers.EncoderLayer` with GELU, with either norm and without
    dropout; the mask is the causal one or none. Embeddings, logits and parameters are not counted.

    Args:
        length: Number of tokens, 32 or more; below, PyTorch's kernel takes other ways.
        n_layers: Number of layers.
        n_heads: Number of heads.
        d_head: Width of a head.
        batch: Number of sequences.
        d_ff: Inner width of the feed-forward network; four times the width of a token if left out.
        dtype: Type of the numbers. Scores and norms of 16-bit numbers are kept as the layers do.
        checkpointed: Whether each layer keeps its input alone, and runs again in the backward
            pass. What is counted then is the most that exists at a time: all inputs, and one layer.

    Raises:
        TypeError: If a size is not a whole number, or the dtype is not a float type.
        ValueError: If a size is too small.

    Example:
        >>> bert = LayerStack(length=512, n_layers=12, n_heads=12, d_head=64)
        >>> bert.fused()
        Kept(weights=0, activations=302383104)
        >>> bert.equation().weights  # at this length, about as much again
        301989888

    Source:
        Counted by hand from what each operation's gradient needs, and checked against
        :func:`saved_bytes` in float64, float32 and bfloat16.
    """

    length: int
    n_layers: int
    n_heads: int
    d_head: int
    batch: int = 1
    d_ff: int | None = None
    dtype: torch.dtype = torch.float32
    checkpointed: bool = False

    def __post_init__(self) -> None:
        check_sizes(n_layers=self.n_layers, n_heads=self.n_heads, d_head=self.d_head)
        check_sizes(batch=self.batch, d_ff=1 if self.d_ff is None else self.d_ff)
        check_sizes(at_least=32, length=self.length)
        if not isinstance(self.dtype, torch.dtype) or not self.dtype.is_floating_point:
            raise TypeError(f"dtype must be a float type, such as torch.float32, got {self.dtype}")

    def equation(self) -> Kept:
        """Attention that keeps its weights: the softmax, and what the values are multiplied by.

        The softmax is in float32 or above, and so are its queries and keys.
        """
        pairs = self._pairs * (self._precise + self.dtype.itemsize)
        inputs = self._vectors * (2 * self._precise + self.dtype.itemsize)
        sees_nothing = self._tokens * self.n_heads  # a boolean for each query
        return self._in_all(pairs, inputs + sees_nothing)

    def fused_with_dropout(self) -> Kept:
        """PyTorch's kernel if it is asked for dropout on the weights: it takes another way.

        The softmax, the mask of the dropout and their product are kept, in float32 or above.
        """
        return self._in_all(3 * self._pairs * self._precise, 3 * self._vectors * self._precise)

    def fused(self) -> Kept:
        """PyTorch's kernel as it should be: one number for each query, and no weights."""
        inputs = 3 * self._vectors * self.dtype.itemsize
        return self._in_all(0, inputs + self._log_sums)

    def tiled(self) -> Kept:
        """As the kernel; the output is kept before and after its heads are merged."""
        inputs_and_output = 4 * self._vectors * self.dtype.itemsize
        return self._in_all(0, inputs_and_output + self._log_sums)

    def sparse(self) -> Kept:
        """A window, or blocks, of any size: the output before and after, a boolean for each token.

        From 32 bits on, a length that is no multiple of the block is filled up to one, and what
        is filled in is kept as well; it is not counted here.
        """
        inputs_and_output = 4 * self._vectors * self.dtype.itemsize
        return self._in_all(0, inputs_and_output + self.length)

    def linformer(self, rank: int) -> Kept:
        """Low rank: queries, and the few keys and values that the tokens are mixed to.

        The learned mixing itself is a parameter, and does not count. To mix a batch of several
        sequences, PyTorch copies it first.

        Raises:
            TypeError: If ``rank`` is not a whole number.
            ValueError: If it does not lie between 32 and the length.
        """
        check_sizes(at_least=32, rank=rank)
        if rank > self.length:
            raise ValueError(f"rank={rank} must not be more than length={self.length}")
        short = 3 * self.batch * rank * self._d_model  # summaries, keys, values
        of_the_bias = 2 * (self.length + rank)
        queries_and_copy = self._vectors * (1 if self.batch == 1 else 2)
        numbers = queries_and_copy + short + of_the_bias
        return self._in_all(0, numbers * self.dtype.itemsize + self._log_sums)

    def parameters(self) -> int:
        """Bytes of the layers' parameters; see :func:`parameter_bytes` for what comes on top."""
        d, d_ff = self._d_model, self._d_ff
        projections, norms = 4 * (d * d + d), 2 * 2 * d
        feed_forward = 2 * d * d_ff + d_ff + d
        return self.n_layers * (projections + norms + feed_forward) * self.dtype.itemsize

    def _in_all(self, weights: int, inside_attention: int) -> Kept:
        """From what attention keeps in one layer to what the stack keeps."""
        # Inputs of: the layer, the output projection, both norms (or what follows them), both
        # halves of the feed-forward network and its bend; and each norm's mean and deviation.
        each_token = 5 * self._d_model + 2 * self._d_ff + 2 * 2
        activations = inside_attention + self._tokens * each_token * self.dtype.itemsize
        if not self.checkpointed:
            return Kept(self.n_layers * weights, self.n_layers * activations)
        inputs = (self.n_layers - 1) * self._vectors * self.dtype.itemsize  # of the other layers
        return Kept(weights, activations + inputs)

    @property
    def _d_model(self) -> int:
        return self.n_heads * self.d_head

    @property
    def _d_ff(self) -> int:
        return 4 * self._d_model if self.d_ff is None else self.d_ff

    @property
    def _tokens(self) -> int:
        return self.batch * self.length

    @property
    def _vectors(self) -> int:
        """How many numbers there are in one vector for each token."""
        return self._tokens * self._d_model

    @property
    def _pairs(self) -> int:
        return self._tokens * self.n_heads * self.length

    @property
    def _precise(self) -> int:
        """Bytes of a score: it has 32 bits or more."""
        return max(4, self.dtype.itemsize)

    @property
    def _log_sums(self) -> int:
        return self._tokens * self.n_heads * self._precise


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
