"""Attention as pure functions of tensors: the equation, and its fast twin."""

import math
from contextlib import nullcontext

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from attnlib.checks import can_be_read, check_floats, check_sizes
from attnlib.masks import check_mask, to_additive

# Without an explicit mask, PyTorch's kernel takes a row of NaN scores for one that may see nothing,
# and hides the NaN, if all keys fit into one vector register (16 floats at most, 32 to be safe).
_SHORT = 32


def attention(
    query: Float[Tensor, "*batch q_len d_head"],
    key: Float[Tensor, "*batch k_len d_head"],
    value: Float[Tensor, "*batch k_len d_value"],
    *,
    mask: Bool[Tensor, "#b #h #q_len #k_len"] | None = None,
    bias: Float[Tensor, "#b #h #q_len #k_len"] | None = None,
    scale: float | None = None,
) -> tuple[Float[Tensor, "*batch q_len d_value"], Float[Tensor, "*batch q_len k_len"]]:
    r"""Scaled dot-product attention, with the weights kept for inspection.

    .. math:: \mathrm{softmax}\left(\frac{QK^\top}{\sqrt{d_{head}}} + bias\right) V

    Scores and weights are computed in float32 or above, as in the fused kernels: rounded to
    bfloat16, a score between 16 and 32 is off by up to 1/16, and its weight by 6 percent.

    A NaN is not hidden. In a key or a value it reaches every query, even one to which the mask
    hides that key: NaN minus infinity is NaN, and so is 0 times NaN.

    Args:
        query: What each position is looking for. It may have 2 dimensions, 3 (with a batch) or
            4 (with a batch and heads); ``key`` and ``value`` then have as many.
        key: What each position offers.
        value: What each position hands over once it is chosen.
        mask: ``True`` where a query may attend to a key; always 4-D. A query that may attend to
            nothing gets weights and output of exactly 0.
        bias: Added to the scaled scores, in nats; always 4-D.
        scale: What the scores are multiplied by; :math:`1/\sqrt{d_{head}}` if left out.

    Returns:
        ``(output, weights)``, in the dtype of the values. Each row of ``weights`` sums to 1, or to
        0 where nothing may be seen.

    Raises:
        TypeError: If ``mask`` is not boolean, or ``query``, ``key``, ``value`` and ``bias`` are not
            of one float dtype.
        ValueError: If a shape or a device does not fit, or a sequence is empty.

    Example:
        >>> q = k = torch.zeros(2, 4)
        >>> v = torch.tensor([[1.0], [3.0]])
        >>> attention(q, k, v)[0].flatten()  # equal scores: the plain average
        tensor([2., 2.])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, equation 1. Checked against
        ``torch.nn.functional.scaled_dot_product_attention``, forward and gradient.
    """
    _check_inputs(query, key, value, mask, bias)
    n_dims = query.ndim
    query, key, value = _to_4d(query), _to_4d(key), _to_4d(value)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale

    scores = _products(query, key) * scale  # (B, H, Lq, Lk), in float32 or above
    if bias is not None:
        scores = scores + bias
    weights = masked_softmax(scores, mask).to(value.dtype)
    output = weights @ value  # (B, H, Lq, Dv)
    return _from_4d(output, n_dims), _from_4d(weights, n_dims)


def fused_attention(
    query: Float[Tensor, "*batch q_len d_head"],
    key: Float[Tensor, "*batch k_len d_head"],
    value: Float[Tensor, "*batch k_len d_value"],
    *,
    mask: Bool[Tensor, "#b #h #q_len #k_len"] | None = None,
    bias: Float[Tensor, "#b #h #q_len #k_len"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "*batch q_len d_value"]:
    r"""The output of :func:`attention`, from PyTorch's fused kernel, which never keeps the weights.

    Same arguments, same errors, same output. PyTorch skips the future half of the work if the mask
    is recognised as causal. It is if it equals ``causal_mask(n)`` with n of 32 or more, in shape
    (1, 1, n, n), on a CPU, with no bias beside it, and neither compiled nor under ``torch.vmap``.

    What is skipped is not looked at. So under a recognised mask a NaN in a key or a value shows in
    the queries that may see it, but not in all of the earlier ones, as it does in the equation.

    Args:
        query: As for :func:`attention`.
        key: As for :func:`attention`.
        value: As for :func:`attention`.
        mask: As for :func:`attention`.
        bias: As for :func:`attention`.
        scale: As for :func:`attention`.

    Returns:
        The weighted average of the values for each query.

    Raises:
        TypeError: As :func:`attention`.
        ValueError: As :func:`attention`.

    Example:
        >>> q = k = torch.zeros(2, 4)
        >>> v = torch.tensor([[1.0], [3.0]])
        >>> fused_attention(q, k, v).flatten()
        tensor([2., 2.])

    Source:
        ``torch.nn.functional.scaled_dot_product_attention``.
    """
    _check_inputs(query, key, value, mask, bias)
    n_dims = query.ndim
    query, key, value = _to_4d(query), _to_4d(key), _to_4d(value)

    is_short = torch.compiler.is_compiling() or key.shape[-2] < _SHORT  # compiled for any length
    if mask is None and bias is None and is_short:
        mask = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=query.device)  # hides nothing
    is_causal = bias is None and mask is not None and not is_short and _is_square_causal(mask)
    if is_causal:
        added = None
    elif bias is None or mask is None:
        added = mask if bias is None else bias
    else:
        added = bias + to_additive(mask, bias.dtype)
    output = F.scaled_dot_product_attention(
        query, key, value, attn_mask=added, is_causal=is_causal, scale=scale
    )
    return _from_4d(output, n_dims)


def masked_softmax(
    scores: Float[Tensor, "*batch q_len k_len"],
    mask: Bool[Tensor, "*#batch #q_len #k_len"] | None = None,
) -> Float[Tensor, "*batch q_len k_len"]:
    r"""Softmax over the keys that the mask allows.

    .. math:: w_{ij} = \frac{m_{ij}\, e^{s_{ij}}}{\sum_k m_{ik}\, e^{s_{ik}}}

    A row in which nothing is allowed, or every score is -inf, has no such average and gets zeros:
    no NaN arises on the way, neither forward nor backward. A NaN in the scores stays a NaN.

    Args:
        scores: Scores in nats: a difference of :math:`\ln 2` doubles the weight.
        mask: ``True`` where a query may attend; anything that broadcasts to the scores.

    Returns:
        Weights. Each row sums to 1, or to 0 where nothing is allowed.

    Raises:
        TypeError: If ``scores`` is not a float tensor, or ``mask`` is not boolean.
        ValueError: If the mask does not broadcast to the shape of the scores.

    Example:
        >>> masked_softmax(torch.zeros(1, 4), torch.tensor([[True, True, False, False]]))
        tensor([[0.5000, 0.5000, 0.0000, 0.0000]])
    """
    check_floats("scores", scores)
    if mask is not None:
        additive = to_additive(mask, scores.dtype)
        if not _broadcasts(mask.shape, scores.shape):
            raise ValueError(
                f"mask of shape {tuple(mask.shape)} does not broadcast to the scores' shape "
                f"{tuple(scores.shape)}"
            )
        scores = scores + additive  # added, not filled in: NaN - inf is still NaN
    sees_nothing = (scores == -torch.inf).all(-1, keepdim=True)
    # A row of nothing but -inf has no softmax: make it one of zeros, then take its weights away.
    return scores.masked_fill(sees_nothing, 0.0).softmax(-1).masked_fill(sees_nothing, 0.0)


def split_heads(
    x: Float[Tensor, "batch length width"], n_heads: int
) -> Float[Tensor, "batch n_heads length d_head"]:
    """Cut each token's vector into heads, and put the heads before the positions.

    Args:
        x: One vector for each token; its width is ``n_heads * d_head``.
        n_heads: Number of heads.

    Returns:
        Head ``h`` of token ``t`` is ``x[:, t, h * d_head : (h + 1) * d_head]``. It is a view.

    Raises:
        TypeError: If ``x`` is not a float tensor or ``n_heads`` not a whole number.
        ValueError: If ``x`` is not 3-D or its width is no multiple of ``n_heads``.

    Example:
        >>> x = torch.tensor([[[1.0, 2.0, 3.0, 4.0]]])  # one token, two heads of width 2
        >>> split_heads(x, 2)[0, :, 0]
        tensor([[1., 2.],
                [3., 4.]])
    """
    check_floats("x", x)
    check_sizes(n_heads=n_heads)
    if x.ndim != 3:
        raise ValueError(f"x must be 3-D (batch, length, width), got shape {tuple(x.shape)}")
    if x.shape[-1] % n_heads:
        raise ValueError(
            f"a width of {x.shape[-1]} does not split into n_heads={n_heads} equal heads"
        )
    batch, length, width = x.shape
    return x.view(batch, length, n_heads, width // n_heads).transpose(1, 2)  # (B, H, L, Dh)


def merge_heads(
    x: Float[Tensor, "batch n_heads length d_head"],
) -> Float[Tensor, "batch length width"]:
    """Put the heads of each token side by side again: the inverse of :func:`split_heads`.

    Raises:
        TypeError: If ``x`` is not a float tensor.
        ValueError: If ``x`` is not 4-D.

    Example:
        >>> x = torch.randn(2, 3, 8)
        >>> torch.equal(merge_heads(split_heads(x, 4)), x)
        True
    """
    check_floats("x", x)
    if x.ndim != 4:
        raise ValueError(f"x must be 4-D (batch, heads, length, d_head), got {tuple(x.shape)}")
    return x.transpose(1, 2).flatten(2)  # (B, H, L, Dh) -> (B, L, H·Dh)


def _products(
    query: Float[Tensor, "batch heads q_len d_head"], key: Float[Tensor, "batch heads k_len d_head"]
) -> Float[Tensor, "batch heads q_len k_len"]:
    """Each query times each key, in float32 or above, under autocast too."""
    dtype = torch.promote_types(query.dtype, torch.float32)
    device = query.device.type
    has_autocast = torch.amp.is_autocast_available(device)
    with torch.autocast(device, enabled=False) if has_autocast else nullcontext():
        return query.to(dtype) @ key.to(dtype).mT


def _is_square_causal(mask: Bool[Tensor, "b h q_len k_len"]) -> bool:
    """Whether the mask is exactly ``causal_mask(n)``, found out by looking at all of it.

    A matrix is causal if its first rows and columns are, and each entry equals the one a step up
    its diagonal. Eight booleans are compared at a time, as one integer, where the length allows.
    """
    length = mask.shape[-1]
    if mask.shape != (1, 1, length, length) or mask.device.type != "cpu" or not can_be_read(mask):
        return False  # on an accelerator, looking would make the host wait
    if mask[0, 0, 0, -1]:
        return False  # one look at the corner turns most other masks away
    seen = mask[0, 0].contiguous()
    step = 8 if length % 8 == 0 and seen.storage_offset() % 8 == 0 else 1
    words = seen.view(torch.int64) if step == 8 else seen
    edge = torch.ones(length, step, dtype=torch.bool, device=seen.device).tril()
    corner_and_below, ones_after = seen[:, :step], seen[:step, step:]
    return (
        torch.equal(corner_and_below, edge)
        and not ones_after.any()
        and torch.equal(words[step:, 1:], words[:-step, :-1])
    )


def _check_inputs(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, bias: Tensor | None
) -> None:
    named = (("query", query), ("key", key), ("value", value))
    for name, x in named:
        check_floats(name, x)
    q, k, v = query.shape, key.shape, value.shape
    _check_shapes(q, k, v)
    for name, x in named[1:]:
        _check_same_dtype(name, x, query)
        _check_same_device(name, x, query)
    if mask is not None:
        check_mask(mask)
        _check_same_device("mask", mask, query)
        _check_broadcast("mask", mask, q, k)
    if bias is not None:
        _check_bias(bias)
        _check_same_dtype("bias", bias, query)
        _check_same_device("bias", bias, query)
        _check_broadcast("bias", bias, q, k)


def _check_shapes(q: torch.Size, k: torch.Size, v: torch.Size) -> None:
    if not 2 <= len(q) <= 4 or not len(q) == len(k) == len(v):
        raise ValueError(
            f"query, key and value must have the same 2, 3 or 4 dimensions, got {_shapes(q, k, v)}"
        )
    if not q[:-2] == k[:-2] == v[:-2]:
        raise ValueError(
            f"query, key and value must agree in batch and heads, got {_shapes(q, k, v)}"
        )
    if q[-1] != k[-1]:
        raise ValueError(
            f"query and key are compared number by number, so their widths must be equal, got "
            f"{q[-1]} and {k[-1]}"
        )
    if k[-2] != v[-2]:
        raise ValueError(
            f"each key hands over one value, so their lengths must be equal, got {k[-2]} keys and "
            f"{v[-2]} values"
        )
    if 0 in (q[-2], k[-2], q[-1]):
        raise ValueError(
            f"a sequence of no tokens, or of no width, can't be attended to: {_shapes(q, k, v)}"
        )


def _shapes(q: torch.Size, k: torch.Size, v: torch.Size) -> str:
    """Put into words only when something is wrong: it takes as long as all the checks."""
    return f"query {tuple(q)}, key {tuple(k)}, value {tuple(v)}"


def _check_same_dtype(name: str, x: Tensor, query: Tensor) -> None:
    if x.dtype != query.dtype and not torch.is_autocast_enabled(query.device.type):
        raise TypeError(
            f"query is {query.dtype}, but {name} is {x.dtype}; convert one of them with .to()"
        )


def _check_same_device(name: str, x: Tensor, query: Tensor) -> None:
    if x.device != query.device:
        raise ValueError(
            f"{name} is on {x.device}, but query is on {query.device}; move one of them with .to()"
        )


def _check_bias(bias: Tensor) -> None:
    if not isinstance(bias, Tensor) or not bias.is_floating_point():
        got = bias.dtype if isinstance(bias, Tensor) else type(bias).__name__
        raise TypeError(
            f"bias must be a float tensor, to be added to the scores, got {got}; what may be "
            "attended to is said by mask="
        )
    if bias.ndim != 4:
        raise ValueError(
            f"bias must be 4-D (batch, heads, q_len, k_len), got shape {tuple(bias.shape)}"
        )


def _check_broadcast(name: str, x: Tensor, q: torch.Size, k: torch.Size) -> None:
    batch, heads = ((1, 1), (q[0], 1), q[:2])[len(q) - 2]
    target = (batch, heads, q[-2], k[-2])
    if not _broadcasts(x.shape, target):
        raise ValueError(
            f"{name} of shape {tuple(x.shape)} does not broadcast to (batch, heads, q_len, k_len) "
            f"= {target}"
        )


def _broadcasts(shape: torch.Size, target: tuple[int, ...]) -> bool:
    if len(shape) > len(target):
        return False
    pairs = zip(reversed(shape), reversed(target), strict=False)
    return all([a in (1, b) for a, b in pairs])  # noqa: C419 - a list is 2x as fast as a generator


def _to_4d(x: Tensor) -> Float[Tensor, "batch heads length width"]:
    return x if x.ndim == 4 else x.unsqueeze(1) if x.ndim == 3 else x[None, None]


def _from_4d(x: Tensor, n_dims: int) -> Tensor:
    return x if n_dims == 4 else x.squeeze(1) if n_dims == 3 else x[0, 0]
