"""The blocks that every Transformer is made of."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlib.functional import attention, fused_attention, merge_heads, split_heads


class Attend(nn.Module):
    """The one place in a layer where queries meet keys, and where a recorder may listen.

    It owns no parameters. With nobody listening it runs the fused kernel. While somebody listens
    it runs the equation on the very same tensors, and hands the weights over.
    """

    def __init__(self) -> None:
        super().__init__()
        self.listeners: list[Callable[[Tensor], None]] = []

    def __getstate__(self) -> dict[str, object]:
        return self.__dict__ | {"listeners": []}  # who listens to this layer does not to its copies

    def forward(
        self,
        query: Float[Tensor, "batch heads q_len d_head"],
        key: Float[Tensor, "batch heads k_len d_head"],
        value: Float[Tensor, "batch heads k_len d_value"],
        *,
        mask: Bool[Tensor, "#batch #heads #q_len #k_len"] | None = None,
        bias: Float[Tensor, "#batch #heads #q_len #k_len"] | None = None,
    ) -> Float[Tensor, "batch heads q_len d_value"]:
        """Return the weighted average of the values for each query."""
        if not self.listeners:
            return fused_attention(query, key, value, mask=mask, bias=bias)
        output, weights = attention(query, key, value, mask=mask, bias=bias)
        for listener in self.listeners:
            listener(weights)
        return output


class MultiHeadAttention(nn.Module):
    r"""Attention in several learned subspaces at once: self, cross or causal, by its inputs.

    .. math::
        \mathrm{head}_h = \mathrm{Attention}(X W^Q_h,\; M W^K_h,\; M W^V_h), \quad
        \mathrm{output} = \mathrm{Concat}(\mathrm{head}_1, \dots, \mathrm{head}_H)\, W^O

    Self-attention is ``layer(x)``: the memory :math:`M` is :math:`X` itself. Causal attention is
    ``layer(x, mask=causal_mask(length))``. Cross-attention is ``layer(x, memory)``.

    There is no dropout on the weights: PyTorch's fused kernel would fall back to keeping all of
    them, and BART and others do without it as well.

    Args:
        d_model: Width of the tokens that ask, and of the output.
        n_heads: Number of heads.
        d_head: Width of a head's queries and keys; ``d_model / n_heads`` if left out.
        d_value: Width of a head's values; ``d_head`` if left out.
        d_memory: Width of the tokens that answer; ``d_model`` if left out.
        bias: Whether the four projections add a bias vector.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is not positive, or ``d_head`` is left out and ``n_heads`` does not
            divide ``d_model``.

    Example:
        >>> layer = MultiHeadAttention(d_model=8, n_heads=2)
        >>> layer(torch.randn(1, 5, 8), torch.randn(1, 7, 8)).shape  # 5 tokens ask 7 others
        torch.Size([1, 5, 8])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2. Checked against
        ``torch.nn.MultiheadAttention``, forward and gradient of every parameter.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_head: int | None = None,
        d_value: int | None = None,
        d_memory: int | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if d_head is None:
            d_head = _even_share(d_model, n_heads)
        d_value = d_head if d_value is None else d_value
        d_memory = d_model if d_memory is None else d_memory
        _check_positive(d_model=d_model, n_heads=n_heads, d_head=d_head)
        _check_positive(d_value=d_value, d_memory=d_memory)
        self.n_heads = n_heads
        self.to_query = nn.Linear(d_model, n_heads * d_head, bias=bias)
        self.to_key = nn.Linear(d_memory, n_heads * d_head, bias=bias)
        self.to_value = nn.Linear(d_memory, n_heads * d_value, bias=bias)
        self.attend = Attend()
        self.to_output = nn.Linear(n_heads * d_value, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "batch q_len d_model"],
        memory: Float[Tensor, "batch k_len d_memory"] | None = None,
        *,
        mask: Bool[Tensor, "#batch #heads #q_len #k_len"] | None = None,
        bias: Float[Tensor, "#batch #heads #q_len #k_len"] | None = None,
    ) -> Float[Tensor, "batch q_len d_model"]:
        """Let each token of ``x`` gather from ``memory`` what it attends to.

        Args:
            x: The tokens that ask.
            memory: The tokens that answer; ``x`` itself if left out.
            mask: ``True`` where a query may attend to a key.
            bias: Added to the scaled scores, in nats.

        Returns:
            One vector for each token of ``x``. The residual connection is the caller's.

        Raises:
            TypeError: If ``mask`` is not boolean, or dtypes differ.
            ValueError: If a shape does not fit, or a sequence is empty.
        """
        memory = x if memory is None else memory
        _check_tokens("x", x, self.to_query.in_features, self.to_query.weight)
        _check_tokens("memory", memory, self.to_key.in_features, self.to_key.weight)
        query = split_heads(self.to_query(x), self.n_heads)  # (B, H, Lq, Dh)
        key = split_heads(self.to_key(memory), self.n_heads)  # (B, H, Lk, Dh)
        value = split_heads(self.to_value(memory), self.n_heads)  # (B, H, Lk, Dv)
        heads = self.attend(query, key, value, mask=mask, bias=bias)  # (B, H, Lq, Dv)
        return self.to_output(merge_heads(heads))


class FeedForward(nn.Module):
    r"""Two linear maps with a bend between them, applied to each token on its own.

    .. math:: \mathrm{FFN}(x) = \mathrm{activation}(x W_1 + b_1)\, W_2 + b_2

    Args:
        d_model: Width of the tokens.
        d_ff: Width in between.
        activation: The bend; ReLU in the original Transformer, GELU in BERT.

    Raises:
        TypeError: If a width is not a whole number.
        ValueError: If a width is not positive.

    Example:
        >>> FeedForward(8, 32)(torch.randn(1, 5, 8)).shape
        torch.Size([1, 5, 8])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.3.
    """

    def __init__(self, d_model: int, d_ff: int, *, activation: nn.Module | None = None) -> None:
        super().__init__()
        _check_positive(d_model=d_model, d_ff=d_ff)
        self.widen = nn.Linear(d_model, d_ff)
        self.activation = nn.ReLU() if activation is None else activation
        self.narrow = nn.Linear(d_ff, d_model)

    def forward(
        self, x: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch length d_model"]:
        """Transform each token by itself."""
        return self.narrow(self.activation(self.widen(x)))


class PostNorm(nn.Module):
    r"""A residual connection, normalised afterwards, as in the original paper and BERT.

    .. math:: \mathrm{LayerNorm}(x + \mathrm{dropout}(\mathrm{sublayer}(x)))

    Args:
        d_model: Width of the tokens.
        dropout: Probability that a number of the sublayer's output is dropped in training.
        eps: Added to the variance.

    Example:
        >>> PostNorm(4)(torch.randn(1, 3, 4), torch.zeros_like).shape
        torch.Size([1, 3, 4])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.1.
    """

    def __init__(self, d_model: int, *, dropout: float = 0.0, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch length d_model"]:
        """Run the sublayer on ``x``, add ``x``, then normalise."""
        return self.norm(x + self.dropout(sublayer(x)))


class PreNorm(nn.Module):
    r"""A residual connection whose sublayer sees normalised input, as in GPT-2.

    .. math:: x + \mathrm{dropout}(\mathrm{sublayer}(\mathrm{LayerNorm}(x)))

    Args:
        d_model: Width of the tokens.
        dropout: Probability that a number of the sublayer's output is dropped in training.
        eps: Added to the variance.

    Example:
        >>> x = torch.randn(1, 3, 4)
        >>> torch.equal(PreNorm(4)(x, torch.zeros_like), x)
        True

    Source:
        Xiong et al. 2020, arXiv:2002.04745, figure 1.
    """

    def __init__(self, d_model: int, *, dropout: float = 0.0, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, eps=eps)
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Float[Tensor, "batch length d_model"], sublayer: Callable[[Tensor], Tensor]
    ) -> Float[Tensor, "batch length d_model"]:
        """Normalise ``x`` for the sublayer, then add the outcome to ``x`` itself."""
        return x + self.dropout(sublayer(self.norm(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then the feed-forward network, each inside a residual connection.

    Args:
        d_model: Width of the tokens.
        n_heads: Number of heads.
        d_ff: Inner width of the feed-forward network.
        residual: Where the normalisation goes: :class:`PostNorm` or :class:`PreNorm`.
        activation: The bend in the feed-forward network; ReLU if left out.
        dropout: Probability that a number of a sublayer's output is dropped in training.
        eps: Added to the variance in the normalisations.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is not positive, or ``n_heads`` does not divide ``d_model``.

    Example:
        >>> EncoderLayer(8, n_heads=2, d_ff=32)(torch.randn(1, 5, 8)).shape
        torch.Size([1, 5, 8])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.1. Checked against
        ``torch.nn.TransformerEncoderLayer``, forward and gradient of every parameter.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        d_ff: int,
        *,
        residual: type[PostNorm] | type[PreNorm] = PostNorm,
        activation: nn.Module | None = None,
        dropout: float = 0.0,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        self.attention = MultiHeadAttention(d_model, n_heads)
        self.around_attention = residual(d_model, dropout=dropout, eps=eps)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation)
        self.around_feed_forward = residual(d_model, dropout=dropout, eps=eps)

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        *,
        mask: Bool[Tensor, "#batch #heads #length #length"] | None = None,
        bias: Float[Tensor, "#batch #heads #length #length"] | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Let the tokens look at each other, then let each think by itself."""
        x = self.around_attention(x, lambda y: self.attention(y, mask=mask, bias=bias))
        return self.around_feed_forward(x, self.feed_forward)


def _even_share(d_model: int, n_heads: int) -> int:
    """The width of one head when the heads share ``d_model`` evenly."""
    _check_positive(d_model=d_model, n_heads=n_heads)
    if d_model % n_heads:
        near = max(1, round(d_model / n_heads)) * n_heads
        raise ValueError(
            f"d_model={d_model} must be a multiple of n_heads={n_heads}; try d_model={near}, or "
            "give d_head yourself"
        )
    return d_model // n_heads


def _check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if not hasattr(size, "__index__"):
            raise TypeError(f"{name} must be a whole number, got {size!r}; divide with //")
        if size < 1:
            raise ValueError(f"{name} must be 1 or more, got {size}")


def _check_tokens(name: str, x: Tensor, width: int, weight: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a float tensor, got {type(x).__name__}")
    if x.ndim != 3 or x.shape[-1] != width:
        raise ValueError(f"{name} must be (batch, length, {width}), got shape {tuple(x.shape)}")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(f"{name} is {x.dtype}, but the layer is {weight.dtype}; convert with .to()")
    if x.device != weight.device:
        raise ValueError(f"{name} is on {x.device}, but the layer is on {weight.device}")
