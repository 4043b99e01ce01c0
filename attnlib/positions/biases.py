"""Biases that depend on the distance between query and key alone: ALiBi and T5's."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlib.checks import check_sizes
from attnlib.positions.base import (
    Positions,
    _check_heads,
    _pick,
    relative_position,
)


class Alibi(Positions):
    r"""Make far keys matter less: each head subtracts a fixed slope for each token of distance.

    .. math:: bias_{hij} = -slope_h\,|i - j|

    With a causal mask this is the paper's. Without one, as in an encoder, it has no direction: a
    key two tokens before the query and one two tokens after it look alike.

    Nothing is learned. The bias is computed in float32 or above, then rounded once to the dtype
    of the queries.

    Args:
        n_heads: Number of heads. The slopes are a geometric sequence from :math:`2^{-8/n}` down
            to :math:`2^{-8}`, if n is a power of two; otherwise those of the next smaller power
            and, for the heads that are left, every other one of twice that power.

    Raises:
        TypeError: If ``n_heads`` is not a whole number.
        ValueError: If it is not positive.

    Example:
        >>> x = torch.zeros(1, 8, 3, 4)
        >>> Alibi(n_heads=8).bias(x, x)[0, 0]
        tensor([[ 0.0000, -0.5000, -1.0000],
                [-0.5000,  0.0000, -0.5000],
                [-1.0000, -0.5000,  0.0000]])

    Source:
        Press et al. 2022, arXiv:2108.12409, section 3 and the authors' code for other head
        counts. Checked against Hugging Face's BLOOM.
    """

    def __init__(self, n_heads: int) -> None:
        super().__init__()
        check_sizes(n_heads=n_heads)
        self.slopes = _slopes(n_heads)  # not a buffer: .half() would round it

    def bias(
        self,
        query: Float[Tensor, "batch heads q_len d_head"],
        key: Float[Tensor, "batch key_heads k_len d_head"],
    ) -> Float[Tensor, "1 heads q_len k_len"]:
        """The slope of each head times the distance, below 0.

        Raises:
            TypeError: If ``query`` or ``key`` is not a float tensor.
            ValueError: If a shape does not fit, or there are more queries than keys.
        """
        _check_heads("query", query, n_heads=len(self.slopes))
        _check_heads("key", key)
        position = relative_position(query.shape[2], key.shape[2], device=query.device)
        dtype = torch.promote_types(query.dtype, torch.float32)
        slopes = torch.tensor(self.slopes, dtype=dtype, device=query.device)
        return (slopes[:, None, None] * -position.abs())[None].to(query.dtype)  # (1, H, Lq, Lk)

    def extra_repr(self) -> str:
        """Show the number of heads."""
        return f"n_heads={len(self.slopes)}"


def _slopes(n_heads: int) -> tuple[float, ...]:
    power = 2 ** (int(n_heads).bit_length() - 1)  # the largest power of two up to n_heads
    slopes = tuple(2 ** (-8 * h / power) for h in range(1, power + 1))
    between = tuple(2 ** (-8 * h / (2 * power)) for h in range(1, 2 * power, 2))
    return slopes + between[: n_heads - power]


class T5Bias(Positions):
    r"""A learned number for each head and each bucket of distances.

    .. math:: bias_{hij} = table_{bucket(j - i),\,h}

    Near distances have a bucket each; farther ones share buckets that widen logarithmically up to
    ``max_distance``, after which all is one.

    T5 has one such table for all layers of a stack, adds it to scores that are not divided by
    :math:`\sqrt{d_{head}}`, and has none in cross-attention.

    Args:
        n_heads: Number of heads.
        n_buckets: Number of rows in the table.
        max_distance: The distance, in tokens, from which on all share the last bucket.
        bidirectional: Whether keys after the query have buckets of their own, half of all. If
            not, as in a decoder, they share bucket 0 with the query itself.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is not positive, or too small to leave a bucket for far distances.

    Example:
        >>> x = torch.zeros(1, 2, 3, 4)
        >>> T5Bias(n_heads=2).bias(x, x).shape
        torch.Size([1, 2, 3, 3])

    Source:
        Raffel et al. 2020, arXiv:1910.10683, section 2.1. Checked against Hugging Face's T5.
    """

    def __init__(
        self,
        n_heads: int,
        n_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
    ) -> None:
        super().__init__()
        check_sizes(n_heads=n_heads, n_buckets=n_buckets, max_distance=max_distance)
        n_exact = n_buckets // (4 if bidirectional else 2)
        if n_exact < 1 or max_distance <= n_exact:
            raise ValueError(
                f"n_buckets must be {4 if bidirectional else 2} or more, and max_distance above "
                "the distances that have a bucket each, got "
                f"n_buckets={n_buckets}, max_distance={max_distance}"
            )
        self.max_distance = max_distance
        self.bidirectional = bidirectional
        self.table = nn.Parameter(torch.randn(n_buckets, n_heads) * 0.02)  # as BERT's positions

    def bias(
        self,
        query: Float[Tensor, "batch heads q_len d_head"],
        key: Float[Tensor, "batch key_heads k_len d_head"],
    ) -> Float[Tensor, "1 heads q_len k_len"]:
        """The entry of the table for each head and distance.

        Raises:
            TypeError: If ``query`` or ``key`` is not a float tensor.
            ValueError: If a shape does not fit, or there are more queries than keys.
        """
        _check_heads("query", query, n_heads=self.table.shape[1])
        _check_heads("key", key)
        return self.between(query.shape[2], key.shape[2]).to(query.dtype)

    def between(self, q_len: int, k_len: int) -> Float[Tensor, "1 heads q_len k_len"]:
        """The same from the lengths alone, for a stack of layers that computes it once.

        Args:
            q_len: Number of queries; the last one sits at the last key.
            k_len: Number of keys.

        Raises:
            TypeError: If a length is not a whole number.
            ValueError: If a length is not positive, or there are more queries than keys.

        Example:
            >>> T5Bias(n_heads=2).between(1, 5).shape
            torch.Size([1, 2, 1, 5])
        """
        position = relative_position(q_len, k_len, device=self.table.device)  # 1-Lk .. Lq-1
        each = torch.arange(1 - k_len, q_len, device=self.table.device)
        by_distance = self.table[self.bucket(each)].T  # (H, Lq+Lk-1): far cheaper than one per pair
        by_distance = by_distance[None, :, None].expand(-1, -1, q_len, -1)
        return _pick(by_distance, position + k_len - 1)  # (1, H, Lq, Lk)

    def bucket(self, position: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """Sort distances into buckets.

        Args:
            position: Key position minus query position, in tokens.

        Returns:
            Row of the table for each.

        Example:
            >>> T5Bias(n_heads=1, n_buckets=8, max_distance=16).bucket(torch.arange(-9, 4))
            tensor([3, 3, 3, 3, 2, 2, 2, 2, 1, 0, 5, 6, 6])
        """
        n_buckets = self.table.shape[0]
        if self.bidirectional:
            n_buckets //= 2
            first, distance = (position > 0) * n_buckets, position.abs()
        else:
            first, distance = 0, (-position).clamp(min=0)
        n_exact = n_buckets // 2
        # In float32 and in this order, as where it comes from: the rounding decides at the edges.
        beyond = torch.log(distance.clamp(min=n_exact).float() / n_exact)
        beyond = beyond / math.log(self.max_distance / n_exact) * (n_buckets - n_exact)
        far = (n_exact + beyond.long()).clamp(max=n_buckets - 1)
        return first + torch.where(distance < n_exact, distance, far)

    def extra_repr(self) -> str:
        """Show the sizes."""
        n_buckets, n_heads = self.table.shape
        return (
            f"n_heads={n_heads}, n_buckets={n_buckets}, max_distance={self.max_distance}, "
            f"bidirectional={self.bidirectional}"
        )
