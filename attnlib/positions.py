"""Telling attention where its tokens are: position encodings to add to the embeddings."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn


def sinusoidal_encoding(
    length: int, d_model: int, *, offset: int = 0, base: float = 10000.0
) -> Float[Tensor, "length d_model"]:
    r"""Give each position a row of sines and cosines, from fast waves to slow ones.

    .. math::
        PE_{pos,\,2i} = \sin\left(pos / base^{2i/d_{model}}\right), \quad
        PE_{pos,\,2i+1} = \cos\left(pos / base^{2i/d_{model}}\right)

    Args:
        length: Number of positions.
        d_model: Width of a row. An odd width ends with a sine that has no cosine.
        offset: The first position, in tokens; decoding with a cache starts later than 0.
        base: How much slower, in all, the slowest wave is than the fastest.

    Returns:
        Encoding of shape (length, d_model), float32; the angles (radians) are computed in float64.

    Raises:
        ValueError: If ``length`` or ``d_model`` is not positive, ``offset`` is negative, or
            ``base`` is not above 0.

    Example:
        >>> sinusoidal_encoding(2, 4)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """
    if length < 1 or d_model < 1 or offset < 0 or base <= 0:
        raise ValueError(
            "length and d_model must be 1 or more, offset 0 or more and base above 0, got "
            f"length={length}, d_model={d_model}, offset={offset}, base={base}"
        )
    position = torch.arange(offset, offset + length, dtype=torch.float64)
    exponent = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model  # 2i / d_model
    angle = position[:, None] * torch.exp(-math.log(base) * exponent)  # (L, ceil(D / 2))
    pairs = torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)  # sine, cosine, sine, …
    return pairs[:, :d_model].float()


class SinusoidalEncoding(nn.Module):
    """Add the sinusoidal encoding to embeddings. Nothing in it is learned.

    Args:
        d_model: Width of the embeddings, odd or even.
        max_len: How many positions are kept ready.

    Raises:
        ValueError: From ``forward``, if a width or a length does not fit.

    Example:
        >>> SinusoidalEncoding(6)(torch.zeros(1, 3, 6)).shape
        torch.Size([1, 3, 6])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """

    def __init__(self, d_model: int, max_len: int = 5000) -> None:
        super().__init__()
        self.register_buffer("encoding", sinusoidal_encoding(max_len, d_model), persistent=False)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], *, offset: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Add the encodings of positions ``offset`` to ``offset + length``."""
        return x + _rows(self.encoding, x, offset).to(x.dtype)


class LearnedEncoding(nn.Module):
    """Add a learned row to the embedding at each position.

    Args:
        d_model: Width of the embeddings.
        max_len: Number of positions; there is no row for a later one.

    Raises:
        ValueError: From ``forward``, if a width or a length does not fit.

    Example:
        >>> LearnedEncoding(6, max_len=10)(torch.zeros(1, 3, 6)).shape
        torch.Size([1, 3, 6])

    Source:
        Devlin et al. 2019 (BERT), arXiv:1810.04805, section 3.
    """

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        self.encoding = nn.Parameter(torch.randn(max_len, d_model) * 0.02)  # as BERT starts

    def forward(
        self, x: Float[Tensor, "batch length d_model"], *, offset: int = 0
    ) -> Float[Tensor, "batch length d_model"]:
        """Add the rows of positions ``offset`` to ``offset + length``."""
        return x + _rows(self.encoding, x, offset)


def _rows(encoding: Tensor, x: Tensor, offset: int) -> Float[Tensor, "length d_model"]:
    max_len, d_model = encoding.shape
    if x.ndim != 3 or x.shape[-1] != d_model:
        raise ValueError(f"x must be (batch, length, d_model={d_model}), got {tuple(x.shape)}")
    if offset < 0 or offset + x.shape[1] > max_len:
        raise ValueError(
            f"positions {offset} to {offset + x.shape[1] - 1} are asked for, but there are rows "
            f"for 0 to {max_len - 1} only; raise max_len or shorten the input"
        )
    return encoding[offset : offset + x.shape[1]]
