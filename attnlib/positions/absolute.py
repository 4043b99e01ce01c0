"""Positions that are added to the embeddings: of a line of tokens, or of a grid of patches."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlib.checks import can_be_read, check_floats, check_sizes


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
        TypeError: If ``length``, ``d_model`` or ``offset`` is not a whole number.
        ValueError: If ``length`` or ``d_model`` is not positive, ``offset`` is negative, or
            ``base`` is not above 0.

    Example:
        >>> sinusoidal_encoding(2, 4)
        tensor([[0.0000, 1.0000, 0.0000, 1.0000],
                [0.8415, 0.5403, 0.0100, 0.9999]])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.5.
    """
    check_sizes(length=length, d_model=d_model)
    check_sizes(at_least=0, offset=offset)
    if not 0 < base < math.inf:
        raise ValueError(f"base must be a number above 0, got {base}")
    return _waves(torch.arange(offset, offset + length), d_model, base).float()


class SinusoidalEncoding(nn.Module):
    """Add the sinusoidal encoding to embeddings. Nothing in it is learned.

    Args:
        d_model: Width of the embeddings, odd or even.
        max_len: How many positions are kept ready.

    Raises:
        TypeError: From ``forward``, if the embeddings are not a float tensor.
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
        self,
        x: Float[Tensor, "batch length d_model"],
        *,
        offset: int | Int[Tensor, " batch"] = 0,
    ) -> Float[Tensor, "batch length d_model"]:
        """Add the encodings of positions ``offset`` to ``offset + length``.

        Sequences of a batch may each have an offset of their own. It is below 0 where padding
        stands in front; the padding gets the encoding of position 0.
        """
        return x + _rows(self.encoding, x, offset).to(x.dtype)


class LearnedEncoding(nn.Module):
    """Add a learned row to the embedding at each position.

    Args:
        d_model: Width of the embeddings.
        max_len: Number of positions; there is no row for a later one.

    Raises:
        TypeError: If a size is not a whole number; from ``forward``, if the embeddings are not a
            float tensor.
        ValueError: If a size is not positive; from ``forward``, if a width or a length does not
            fit.

    Example:
        >>> LearnedEncoding(6, max_len=10)(torch.zeros(1, 3, 6)).shape
        torch.Size([1, 3, 6])

    Source:
        Devlin et al. 2019 (BERT), arXiv:1810.04805, section 3.
    """

    def __init__(self, d_model: int, max_len: int) -> None:
        super().__init__()
        check_sizes(d_model=d_model, max_len=max_len)
        self.encoding = nn.Parameter(torch.randn(max_len, d_model) * 0.02)  # as BERT starts

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        *,
        offset: int | Int[Tensor, " batch"] = 0,
    ) -> Float[Tensor, "batch length d_model"]:
        """Add the rows of positions ``offset`` to ``offset + length``.

        Sequences of a batch may each have an offset of their own. It is below 0 where padding
        stands in front; the padding gets the row of position 0.
        """
        return x + _rows(self.encoding, x, offset)


def sinusoidal_grid_encoding(
    rows: int, columns: int, d_model: int, *, base: float = 10000.0
) -> Float[Tensor, "rows columns d_model"]:
    """Give each patch of an image waves for its row, followed by waves for its column.

    Args:
        rows: Number of rows of patches.
        columns: Number of columns of patches.
        d_model: Width of an encoding, even: one half is for the row, the other for the column.
        base: As for :func:`sinusoidal_encoding`.

    Returns:
        Encoding of shape (rows, columns, d_model), float32. ``.flatten(0, 1)`` lists the patches
        row by row.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is not positive, ``d_model`` is odd, or ``base`` is not above 0.

    Example:
        >>> sinusoidal_grid_encoding(2, 2, 4)[1, 0]  # second row, first column
        tensor([0.8415, 0.5403, 0.0000, 1.0000])

    Source:
        Carion et al. 2020 (DETR), arXiv:2005.12872, appendix A.4. Checked against Hugging Face's
        DETR, which counts rows and columns from 1.
    """
    check_sizes(rows=rows, columns=columns, d_model=d_model)
    half = _half(d_model)
    row = sinusoidal_encoding(rows, half, base=base)[:, None].expand(-1, columns, -1)
    column = sinusoidal_encoding(columns, half, base=base)[None].expand(rows, -1, -1)
    return torch.cat([row, column], dim=-1)


class SinusoidalGridEncoding(nn.Module):
    """Add the sinusoidal encoding of row and column to the patches of an image.

    Args:
        d_model: Width of the patches' embeddings, even.

    Raises:
        TypeError: If ``d_model`` is not a whole number; from ``forward``, if the embeddings are not
            a float tensor.
        ValueError: If it is not positive or odd; from ``forward``, if a shape does not fit.

    Example:
        >>> SinusoidalGridEncoding(8)(torch.zeros(1, 2, 3, 8)).shape
        torch.Size([1, 2, 3, 8])

    Source:
        As :func:`sinusoidal_grid_encoding`.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        check_sizes(d_model=d_model)
        self.d_model = 2 * _half(d_model)

    def forward(
        self, x: Float[Tensor, "batch rows columns d_model"]
    ) -> Float[Tensor, "batch rows columns d_model"]:
        """Add the encoding of each patch. ``.flatten(1, 2)`` then lists the patches row by row."""
        _check_grid(x, self.d_model)
        return x + sinusoidal_grid_encoding(*x.shape[1:]).to(x)

    def extra_repr(self) -> str:
        """Show the width."""
        return f"d_model={self.d_model}"


class LearnedGridEncoding(nn.Module):
    """Add to the patches of an image a learned vector for the row and one for the column.

    One half of the width is for the row, the other for the column. ``rows + columns`` vectors
    serve ``rows * columns`` patches.

    Args:
        d_model: Width of the patches' embeddings, even.
        max_rows: Number of rows; there is no vector for a later one.
        max_columns: Number of columns.

    Raises:
        TypeError: If a size is not a whole number; from ``forward``, if the embeddings are not a
            float tensor.
        ValueError: If a size is not positive or ``d_model`` is odd; from ``forward``, if a shape
            does not fit.

    Example:
        >>> LearnedGridEncoding(8, max_rows=5, max_columns=5)(torch.zeros(1, 2, 3, 8)).shape
        torch.Size([1, 2, 3, 8])

    Source:
        Dosovitskiy et al. 2021 (ViT), arXiv:2010.11929, appendix D.4.
    """

    def __init__(self, d_model: int, max_rows: int, max_columns: int) -> None:
        super().__init__()
        check_sizes(d_model=d_model, max_rows=max_rows, max_columns=max_columns)
        self.rows = nn.Parameter(torch.randn(max_rows, _half(d_model)) * 0.02)  # as ViT starts
        self.columns = nn.Parameter(torch.randn(max_columns, _half(d_model)) * 0.02)

    def forward(
        self, x: Float[Tensor, "batch rows columns d_model"]
    ) -> Float[Tensor, "batch rows columns d_model"]:
        """Add the vectors of each patch. ``.flatten(1, 2)`` then lists the patches row by row."""
        _check_grid(x, 2 * self.rows.shape[1])
        _, rows, columns, _ = x.shape
        if rows > len(self.rows) or columns > len(self.columns):
            raise ValueError(
                f"x has {rows} rows and {columns} columns, but there are vectors for "
                f"{len(self.rows)} and {len(self.columns)} only; raise max_rows or max_columns"
            )
        row = self.rows[:rows, None].expand(-1, columns, -1)
        column = self.columns[None, :columns].expand(rows, -1, -1)
        return x + torch.cat([row, column], dim=-1)


def _waves(
    position: Int[Tensor, " length"], d_model: int, base: float = 10000.0
) -> Float[Tensor, "length d_model"]:
    """Sine, cosine, sine, … of each position, negative ones too, in float64."""
    exponent = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model  # 2i / d_model
    angle = position[:, None] * torch.exp(-math.log(base) * exponent)  # (L, ceil(D / 2))
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(-2)[:, :d_model]


def _half(d_model: int) -> int:
    if d_model % 2:
        raise ValueError(
            "d_model must be even, as one half is for the row and the other for the column, got "
            f"{d_model}; try {d_model + 1}"
        )
    return d_model // 2


def _check_grid(x: Tensor, d_model: int) -> None:
    check_floats("x", x)
    if x.ndim != 4 or x.shape[-1] != d_model:
        raise ValueError(
            f"x must be (batch, rows, columns, d_model={d_model}), got shape {tuple(x.shape)}; "
            "patches in one line become a grid by x.unflatten(1, (rows, columns))"
        )


def _rows(
    encoding: Tensor, x: Tensor, offset: int | Tensor
) -> Float[Tensor, "*batch length d_model"]:
    check_floats("x", x)
    max_len, d_model = encoding.shape
    if x.ndim != 3 or x.shape[-1] != d_model:
        raise ValueError(f"x must be (batch, length, d_model={d_model}), got {tuple(x.shape)}")
    length = x.shape[1]
    if isinstance(offset, Tensor):
        if offset.shape != x.shape[:1]:
            raise ValueError(
                f"each of {x.shape[0]} sequences needs one offset, got shape {tuple(offset.shape)}"
            )
        position = offset[:, None] + torch.arange(length, device=offset.device)  # (B, L)
        if can_be_read(offset):
            _check_last(int(offset.max()) + length, 0, max_len)
        return encoding[position.clamp(min=0)]
    _check_last(offset + length, offset, max_len)
    return encoding[offset : offset + length]


def _check_last(end: int, first: int, max_len: int) -> None:
    if first < 0 or end > max_len:
        raise ValueError(
            f"positions {first} to {end - 1} are asked for, but there are rows for 0 to "
            f"{max_len - 1} only; raise max_len or shorten the input"
        )
