"""Linformer's attention: the keys and values of all tokens, mixed down to a few summaries."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import linear

from attnlib.checks import check_floats, check_module, check_sizes
from attnlib.functional import merge_heads, split_heads
from attnlib.layers import Attend, _check_tokens, _even_share
from attnlib.masks import check_mask


class LengthProjection(nn.Module):
    r"""Mix a sequence of tokens down to a fixed number of summaries, by learned weights.

    .. math:: \bar x_r = \sum_{i} E_{ri}\, x_i

    Each position has weights of its own. So a sequence can't be longer than those that were learned
    from, and a shorter one uses the first of them.

    Args:
        max_len: Number of tokens in the longest sequence.
        rank: Number of summaries.

    Raises:
        TypeError: If a number is not whole.
        ValueError: If a number is not positive, or there are more summaries than tokens.

    Example:
        >>> LengthProjection(max_len=64, rank=8)(torch.randn(2, 50, 16)).shape
        torch.Size([2, 8, 16])

    Source:
        Wang et al. 2020 (Linformer), arXiv:2006.04768, equation 7.
    """

    def __init__(self, max_len: int, rank: int) -> None:
        super().__init__()
        check_sizes(max_len=max_len, rank=rank)
        if rank > max_len:
            raise ValueError(
                f"rank={rank} summaries of at most max_len={max_len} tokens save nothing; lower "
                "rank, or use plain attention"
            )
        # Sums of max_len random numbers: so a summary starts about as large as a token.
        self.weight = nn.Parameter(torch.randn(rank, max_len) / max_len**0.5)

    def forward(self, x: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch rank width"]:
        """Return the summaries.

        Raises:
            TypeError: If ``x`` is not a float tensor.
            ValueError: If it is not 3-D, or is longer than ``max_len``.
        """
        check_floats("x", x)
        if x.ndim != 3:
            raise ValueError(f"x must be 3-D (batch, length, width), got shape {tuple(x.shape)}")
        length, max_len = x.shape[1], self.weight.shape[1]
        if length > max_len:
            raise ValueError(
                f"{length} tokens are more than the max_len={max_len} that the projection has "
                "weights for; make it with a larger max_len, and train it on such lengths"
            )
        return self.weight[:, :length] @ x


class LinformerAttention(nn.Module):
    r"""Self-attention to a few summaries of the sequence, in place of its tokens.

    .. math:: \mathrm{head} = \mathrm{softmax}\left(
        \frac{(X W^Q)(E X W^K)^\top}{\sqrt{d_{head}}}\right) (F X W^V)

    The matrix of weights is (length, rank): time and memory grow with the length alone. This is
    another model than plain attention, not another way to compute it. It can't be causal: a
    summary mixes all tokens, the last one included, and what is mixed can't be hidden any more.

    Args:
        d_model: Width of the tokens.
        n_heads: Number of heads.
        to_short: Mixes the tokens down for the keys, and for the values unless ``value_to_short``
            is given. Layers that get the same object share its weights.
        value_to_short: Mixes them down for the values.
        bias: Whether the four projections add a bias vector.

    Raises:
        TypeError: If a size is not a whole number, or a projection is no :class:`LengthProjection`.
        ValueError: If a size is not positive, ``n_heads`` does not divide ``d_model``, or the two
            projections have different ranks.

    Example:
        >>> layer = LinformerAttention(16, n_heads=2, to_short=LengthProjection(64, rank=8))
        >>> layer(torch.randn(3, 50, 16)).shape
        torch.Size([3, 50, 16])

    Source:
        Wang et al. 2020 (Linformer), arXiv:2006.04768, equation 7. Checked against the equation
        with the mixed keys and values, forward and gradient.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        to_short: LengthProjection,
        value_to_short: LengthProjection | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        _even_share(d_model, n_heads)
        value_to_short = to_short if value_to_short is None else value_to_short
        for name, module in (("to_short", to_short), ("value_to_short", value_to_short)):
            check_module(name, module, "LengthProjection(max_len, rank)")
        ranks = len(to_short.weight), len(value_to_short.weight)
        if ranks[0] != ranks[1]:
            raise ValueError(f"each key needs a value, but the ranks are {ranks[0]} and {ranks[1]}")
        self.n_heads = n_heads
        self.to_short = to_short
        self.value_to_short = value_to_short
        self.to_query = nn.Linear(d_model, d_model, bias=bias)
        self.to_key = nn.Linear(d_model, d_model, bias=bias)
        self.to_value = nn.Linear(d_model, d_model, bias=bias)
        self.attend = Attend()
        self.to_output = nn.Linear(d_model, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        *,
        mask: Bool[Tensor, "#batch 1 1 length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Let each token gather from the summaries.

        Args:
            x: The tokens.
            mask: Which of them count, as ``padding_mask`` says it. The others are left out of the
                summaries.

        Returns:
            One vector for each token. The residual connection is the caller's.

        Raises:
            TypeError: If ``mask`` is not boolean, or dtypes differ.
            ValueError: If a shape does not fit, the sequence is longer than the projection, or the
                mask differs by query, as a causal one does.
        """
        _check_tokens("x", x, self.to_query.in_features, self.to_query.weight)
        query = split_heads(self.to_query(x), self.n_heads)  # (B, H, L, Dh)
        if mask is not None:
            _check_keys_alone(mask, x)
            x = x.masked_fill(~mask[:, 0, 0, :, None], 0.0)
        short = self.to_short(x)  # (B, R, D)
        shared = self.value_to_short is self.to_short
        value_short = short if shared else self.value_to_short(x)
        key = self._project(self.to_key, short, self.to_short, x, mask)
        value = self._project(self.to_value, value_short, self.value_to_short, x, mask)
        heads = self.attend(query, key, value)  # weights: (B, H, L, R)
        return self.to_output(merge_heads(heads))

    def _project(
        self,
        to_heads: nn.Linear,
        short: Float[Tensor, "batch rank d_model"],
        to_short: LengthProjection,
        x: Float[Tensor, "batch length d_model"],
        mask: Bool[Tensor, "#batch 1 1 length"] | None,
    ) -> Float[Tensor, "batch heads rank d_head"]:
        """E (x W + b), computed as (E x) W + (E 1) b: the sums of few rows cost less to project."""
        projected = linear(short, to_heads.weight)
        if to_heads.bias is not None:
            ones = x.new_ones(1, x.shape[1], 1) if mask is None else mask[:, 0, 0, :, None].to(x)
            projected = projected + to_short(ones) * to_heads.bias
        return split_heads(projected, self.n_heads)


def _check_keys_alone(mask: Tensor, x: Tensor) -> None:
    check_mask(mask)
    batch, length, _ = x.shape
    if mask.shape[2] > 1:
        raise ValueError(
            f"Linformer can't hide other keys from each query, so it can't be causal: every "
            f"summary mixes all tokens, those after a query included. Its mask must be (batch, 1, "
            f"1, {length}), as padding_mask gives it, got {tuple(mask.shape)}"
        )
    if mask.shape[0] not in (1, batch) or mask.shape[1] != 1 or mask.shape[3] != length:
        raise ValueError(
            f"mask must be (batch, 1, 1, length) = ({batch}, 1, 1, {length}), got "
            f"{tuple(mask.shape)}"
        )
