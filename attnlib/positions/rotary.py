"""Rotary positions (RoPE): queries and keys are turned by an angle that grows with position."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from attnlib.checks import check_floats, check_sizes
from attnlib.positions.base import Positions, _check_heads


class Rope(Positions):
    r"""Rotary positions in the *halves* layout: entry i is paired with entry i + d_head / 2.

    Each pair is a point in the plane, turned by an angle proportional to its position m:

    .. math::
        \begin{pmatrix} x'_i \\ x'_{i + d/2} \end{pmatrix} =
        \begin{pmatrix} \cos m\theta_i & -\sin m\theta_i \\
                        \sin m\theta_i & \cos m\theta_i \end{pmatrix}
        \begin{pmatrix} x_i \\ x_{i + d/2} \end{pmatrix}, \quad \theta_i = base^{-2i/d}

    Where a query and a key are turned by m and n, their dot product depends on m - n only. The
    paper pairs neighbours, 2i with 2i + 1: :func:`interleaved_to_halves` converts weights that
    were trained that way. Nothing is learned, and no position is too far.

    Angles are computed in float64, the rotation in float32 or above.

    Args:
        d_head: Width of a head, even. All of it is turned.
        base: The slowest pair takes ``2 * pi * base ** (1 - 2 / d_head)`` tokens for a full turn.

    Raises:
        TypeError: If ``d_head`` is not a whole number.
        ValueError: If ``d_head`` is odd or not positive, or ``base`` is not a number above 0.

    Example:
        >>> x = torch.tensor([[[[1.0, 0.0], [1.0, 0.0]]]])  # twice the same, at positions 0 and 1
        >>> Rope(d_head=2).rotate(x)[0, 0]  # the second is turned by one radian
        tensor([[1.0000, 0.0000],
                [0.5403, 0.8415]])

    Source:
        Su et al. 2021 (RoFormer), arXiv:2104.09864, equation 15; halves as in GPT-NeoX and LLaMA.
        Checked against Hugging Face's LLaMA (halves) and GPT-J (neighbours).
    """

    def __init__(self, d_head: int, base: float = 10000.0) -> None:
        super().__init__()
        check_sizes(d_head=d_head)
        if d_head % 2:
            raise ValueError(
                f"d_head must be even, as its entries are turned in pairs, got {d_head}; "
                f"try {d_head + 1}"
            )
        if not 0 < base < math.inf:
            raise ValueError(f"base must be a number above 0, got {base}")
        self.d_head = d_head
        self.base = base

    def rotate(
        self, x: Float[Tensor, "batch heads length d_head"], offset: int = 0
    ) -> Float[Tensor, "batch heads length d_head"]:
        """Turn each vector by the angles of its position.

        Args:
            x: Queries or keys; the first of them is at position ``offset``.
            offset: In tokens.

        Returns:
            The turned vectors, as long as before, in the dtype of ``x``.

        Raises:
            TypeError: If ``x`` is not a float tensor or ``offset`` not a whole number.
            ValueError: If ``x`` is not 4-D with a width of ``d_head``, or ``offset`` is negative.
        """
        _check_heads("x", x, d_head=self.d_head)
        check_sizes(at_least=0, offset=offset)
        dtype = torch.promote_types(x.dtype, torch.float32)
        angle = self._angles(x.shape[2], offset)  # (L, Dh / 2)
        cos, sin = angle.cos().to(x.device, dtype), angle.sin().to(x.device, dtype)
        first, second = x.to(dtype).chunk(2, dim=-1)  # (B, H, L, Dh / 2) each
        turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)
        return turned.to(x.dtype)

    def _angles(self, length: int, offset: int) -> Float[Tensor, "length half"]:
        position = torch.arange(offset, offset + length, dtype=torch.float64)
        exponent = torch.arange(0, self.d_head, 2, dtype=torch.float64) / self.d_head  # 2i / d
        return position[:, None] * torch.exp(-math.log(self.base) * exponent)

    def extra_repr(self) -> str:
        """Show the width of a head and the base."""
        return f"d_head={self.d_head}, base={self.base}"


def interleaved_to_halves(
    weight: Float[Tensor, "n_rows ..."], n_heads: int
) -> Float[Tensor, "n_rows ..."]:
    """Reorder a query or key projection that was trained with neighbours turned as pairs.

    Row ``2i`` of each head moves to ``i``, row ``2i + 1`` to ``i + d_head / 2``. With the queries
    and the keys reordered alike, all scores stay what they were. Values keep their order.

    Args:
        weight: Weight of the projection, (n_heads * d_head, d_model), or its bias vector.
        n_heads: Number of heads in it; for grouped keys, the number of key heads.

    Returns:
        A reordered copy.

    Raises:
        TypeError: If ``weight`` is not a float tensor or ``n_heads`` not a whole number.
        ValueError: If ``n_heads`` is not positive, or the rows are not ``n_heads`` times an even
            number.

    Example:
        >>> interleaved_to_halves(torch.tensor([0.0, 1.0, 2.0, 3.0]), n_heads=1)
        tensor([0., 2., 1., 3.])

    Source:
        Checked against the rotation of Hugging Face's GPT-J, which pairs neighbours.
    """
    _check_pairs(weight, n_heads)
    return weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)


def halves_to_interleaved(
    weight: Float[Tensor, "n_rows ..."], n_heads: int
) -> Float[Tensor, "n_rows ..."]:
    """Reorder a query or key projection for code that turns neighbours as pairs.

    Args:
        weight: Weight of the projection, (n_heads * d_head, d_model), or its bias vector.
        n_heads: Number of heads in it; for grouped keys, the number of key heads.

    Returns:
        A reordered copy, which undoes :func:`interleaved_to_halves`.

    Raises:
        TypeError: As :func:`interleaved_to_halves`.
        ValueError: As :func:`interleaved_to_halves`.

    Example:
        >>> halves_to_interleaved(torch.tensor([0.0, 2.0, 1.0, 3.0]), n_heads=1)
        tensor([0., 1., 2., 3.])
    """
    _check_pairs(weight, n_heads)
    return weight.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def _check_pairs(weight: Tensor, n_heads: int) -> None:
    check_floats("weight", weight)
    check_sizes(n_heads=n_heads)
    if weight.ndim == 0 or weight.shape[0] == 0 or weight.shape[0] % (2 * n_heads):
        raise ValueError(
            f"weight must have n_heads * d_head rows, with d_head even, got n_heads={n_heads} and "
            f"shape {tuple(weight.shape)}"
        )
