"""The blocks that every Transformer is made of."""

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from attnlib.cache import KeysAndValues, LayerCache
from attnlib.checks import check_floats, check_module, check_sizes
from attnlib.dropout import Dropout
from attnlib.functional import attention, fused_attention, merge_heads, split_heads
from attnlib.positions import Positions


class Attend(nn.Module):
    """The one place in a layer where queries meet keys, and where a recorder may listen.

    It owns no parameters. With nobody listening it runs the fused kernel. While somebody listens
    it runs the equation on the very same tensors, and hands the weights over.

    Example:
        >>> attend, heard = Attend(), []
        >>> attend.listeners.append(heard.append)
        >>> x = torch.zeros(1, 1, 2, 4)
        >>> attend(x, x, x).shape, heard[0].tolist()
        (torch.Size([1, 1, 2, 4]), [[[[0.5, 0.5], [0.5, 0.5]]]])
    """

    def __init__(self, scale: float | None = None) -> None:
        super().__init__()
        self.scale = scale
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
            return fused_attention(query, key, value, mask=mask, bias=bias, scale=self.scale)
        output, weights = attention(query, key, value, mask=mask, bias=bias, scale=self.scale)
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

    With fewer key-value heads than heads, neighbouring heads share one: grouped-query attention,
    or multi-query attention if there is just one. The cache gets smaller by as much.

    There is no dropout on the weights: on a CPU, PyTorch's fused kernel has none, and would fall
    back to keeping all of them. Hugging Face's BART and LLaMA have none by default either.

    Args:
        d_model: Width of the tokens that ask, and of the output.
        n_heads: Number of heads.
        d_head: Width of a head's queries and keys; ``d_model / n_heads`` if left out.
        d_value: Width of a head's values; ``d_head`` if left out.
        d_memory: Width of the tokens that answer; ``d_model`` if left out.
        n_kv_heads: Number of heads for keys and values; ``n_heads`` if left out.
        bias: Whether the four projections add a bias vector.
        scale: What the scores are multiplied by; :math:`1/\sqrt{d_{head}}` if left out.
        positions: Positions that act on queries, keys or scores, such as
            :class:`~attnlib.positions.Rope`.

    Raises:
        TypeError: If a size is not a whole number, or ``positions`` is none of these modules.
        ValueError: If a size is not positive, ``d_head`` is left out and ``n_heads`` does not
            divide ``d_model``, or ``n_kv_heads`` does not divide ``n_heads``.

    Example:
        >>> layer = MultiHeadAttention(d_model=8, n_heads=2)
        >>> layer(torch.randn(1, 5, 8), torch.randn(1, 7, 8)).shape  # 5 tokens ask 7 others
        torch.Size([1, 5, 8])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2. Checked against
        ``torch.nn.MultiheadAttention``, forward and gradient of every parameter. Shared keys and
        values: Shazeer 2019, arXiv:1911.02150, and Ainslie et al. 2023, arXiv:2305.13245.
    """

    def __init__(
        self,
        d_model: int,
        n_heads: int,
        *,
        d_head: int | None = None,
        d_value: int | None = None,
        d_memory: int | None = None,
        n_kv_heads: int | None = None,
        bias: bool = True,
        scale: float | None = None,
        positions: Positions | None = None,
    ) -> None:
        super().__init__()
        if d_head is None:
            d_head = _even_share(d_model, n_heads)
        d_value = d_head if d_value is None else d_value
        d_memory = d_model if d_memory is None else d_memory
        n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
        check_sizes(d_model=d_model, n_heads=n_heads, d_head=d_head)
        check_sizes(d_value=d_value, d_memory=d_memory, n_kv_heads=n_kv_heads)
        if n_heads % n_kv_heads:
            raise ValueError(
                f"n_kv_heads={n_kv_heads} must divide n_heads={n_heads}: each is shared by as many"
            )
        _check_positions(positions)
        self.n_heads = n_heads
        self.n_kv_heads = n_kv_heads
        self.positions = positions
        self.to_query = nn.Linear(d_model, n_heads * d_head, bias=bias)
        self.to_key = nn.Linear(d_memory, n_kv_heads * d_head, bias=bias)
        self.to_value = nn.Linear(d_memory, n_kv_heads * d_value, bias=bias)
        self.attend = Attend(scale)
        self.to_output = nn.Linear(n_heads * d_value, d_model, bias=bias)

    def forward(
        self,
        x: Float[Tensor, "batch q_len d_model"],
        memory: Float[Tensor, "batch k_len d_memory"] | KeysAndValues | None = None,
        *,
        mask: Bool[Tensor, "#batch #heads #q_len #k_len"] | None = None,
        bias: Float[Tensor, "#batch #heads #q_len #k_len"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch q_len d_model"]:
        """Let each token of ``x`` gather from ``memory`` what it attends to.

        Args:
            x: The tokens that ask.
            memory: The tokens that answer; ``x`` itself if left out. Or their keys and values, if
                :meth:`keys_and_values` was called before. In a layer with ``positions``, ``x``
                must be the end of it.
            mask: ``True`` where a query may attend to a key, cached keys included.
            bias: Added to the scaled scores, in nats.
            cache: Keys and values of earlier tokens, for self-attention; those of ``x`` are
                appended to it.

        Returns:
            One vector for each token of ``x``. The residual connection is the caller's.

        Raises:
            TypeError: If ``mask`` is not boolean, or dtypes differ.
            ValueError: If a shape does not fit, a sequence is empty, or both a memory and a cache
                are given.
        """
        if memory is not None and cache is not None:
            raise ValueError("a cache grows with x: give either a memory or a cache, not both")
        _check_tokens("x", x, self.to_query.in_features, self.to_query.weight)
        query = split_heads(self.to_query(x), self.n_heads)  # (B, H, Lq, Dh)
        if isinstance(memory, tuple):
            key, value = memory
        else:
            key, value = self.keys_and_values(x if memory is None else memory)  # (B, G, Lk, Dh)
        if self.positions is not None:
            start = 0 if cache is None else cache.length
            last = key.shape[2] - query.shape[2]  # 0, unless x is the end of a longer memory
            if last < 0:
                raise ValueError(
                    f"in a layer with positions x is the end of the memory, but x has "
                    f"{query.shape[2]} tokens and the memory {key.shape[2]}; for cross-attention "
                    "leave positions out"
                )
            query = self.positions.rotate(query, start + last)
            key = self.positions.rotate(key, start)
        if cache is not None:
            key, value = cache.append(key, value)
        if self.positions is not None:
            bias = _add(bias, self.positions.bias(query, key))
        key, value = self._share(key), self._share(value)  # (B, H, Lk, Dh)
        heads = self.attend(query, key, value, mask=mask, bias=bias)  # (B, H, Lq, Dv)
        return self.to_output(merge_heads(heads))

    def keys_and_values(
        self, memory: Float[Tensor, "batch k_len d_memory"]
    ) -> tuple[
        Float[Tensor, "batch kv_heads k_len d_head"], Float[Tensor, "batch kv_heads k_len d_value"]
    ]:
        """Project a memory once, for a decoder that asks it many times.

        Raises:
            TypeError: If its dtype is not the layer's.
            ValueError: If its shape does not fit.

        Example:
            >>> layer = MultiHeadAttention(d_model=8, n_heads=2)
            >>> x, memory = torch.randn(1, 5, 8), torch.randn(1, 7, 8)
            >>> torch.equal(layer(x, layer.keys_and_values(memory)), layer(x, memory))
            True
        """
        _check_tokens("memory", memory, self.to_key.in_features, self.to_key.weight)
        key = split_heads(self.to_key(memory), self.n_kv_heads)
        return key, split_heads(self.to_value(memory), self.n_kv_heads)

    def _share(
        self, x: Float[Tensor, "batch kv_heads k_len width"]
    ) -> Float[Tensor, "batch heads k_len width"]:
        """Hand each key-value head to the neighbouring heads that share it."""
        if self.n_kv_heads == self.n_heads:
            return x
        return x.repeat_interleave(self.n_heads // self.n_kv_heads, dim=1)


class FeedForward(nn.Module):
    r"""Two linear maps with a bend between them, applied to each token on its own.

    .. math:: \mathrm{FFN}(x) = \mathrm{activation}(x W_1 + b_1)\, W_2 + b_2

    Args:
        d_model: Width of the tokens.
        d_ff: Width in between.
        activation: The bend; ReLU in the original Transformer, GELU in BERT.
        bias: Whether the two maps add a bias vector; T5's do not.

    Raises:
        TypeError: If a width is not a whole number.
        ValueError: If a width is not positive.

    Example:
        >>> FeedForward(8, 32)(torch.randn(1, 5, 8)).shape
        torch.Size([1, 5, 8])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.3.
    """

    def __init__(
        self, d_model: int, d_ff: int, *, activation: nn.Module | None = None, bias: bool = True
    ) -> None:
        super().__init__()
        check_sizes(d_model=d_model, d_ff=d_ff)
        self.widen = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = nn.ReLU() if activation is None else activation
        self.narrow = nn.Linear(d_ff, d_model, bias=bias)
        check_module("activation", self.activation, "nn.GELU()")

    def forward(
        self, x: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch length d_model"]:
        """Transform each token by itself."""
        return self.narrow(self.activation(self.widen(x)))


class GatedFeedForward(nn.Module):
    r"""A feed-forward network in which one half decides how much of the other passes.

    .. math:: \mathrm{FFN}(x) = (\mathrm{activation}(x W_g) \odot x W_1)\, W_2

    Args:
        d_model: Width of the tokens.
        d_ff: Width in between.
        activation: The bend in the gate; GELU if left out, which makes it a GEGLU.
        bias: Whether the three projections add a bias vector.

    Raises:
        TypeError: If a width is not a whole number.
        ValueError: If a width is not positive.

    Example:
        >>> GatedFeedForward(8, 32)(torch.randn(1, 5, 8)).shape
        torch.Size([1, 5, 8])

    Source:
        Shazeer 2020, arXiv:2002.05202, equation 6.
    """

    def __init__(
        self, d_model: int, d_ff: int, *, activation: nn.Module | None = None, bias: bool = False
    ) -> None:
        super().__init__()
        check_sizes(d_model=d_model, d_ff=d_ff)
        self.gate = nn.Linear(d_model, d_ff, bias=bias)
        self.widen = nn.Linear(d_model, d_ff, bias=bias)
        self.activation = nn.GELU() if activation is None else activation
        self.narrow = nn.Linear(d_ff, d_model, bias=bias)
        check_module("activation", self.activation, "nn.GELU()")

    def forward(
        self, x: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch length d_model"]:
        """Transform each token by itself."""
        return self.narrow(self.activation(self.gate(x)) * self.widen(x))


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
        self.dropout = Dropout(dropout)

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
        norm: What normalises: ``nn.LayerNorm``, or ``nn.RMSNorm`` as in T5.

    Example:
        >>> x = torch.randn(1, 3, 4)
        >>> torch.equal(PreNorm(4)(x, torch.zeros_like), x)
        True

    Source:
        Xiong et al. 2020, arXiv:2002.04745, figure 1.
    """

    def __init__(
        self,
        d_model: int,
        *,
        dropout: float = 0.0,
        eps: float = 1e-5,
        norm: type[nn.LayerNorm] | type[nn.RMSNorm] = nn.LayerNorm,
    ) -> None:
        super().__init__()
        self.norm = norm(d_model, eps=eps)
        self.dropout = Dropout(dropout)

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
        positions: Positions that act inside attention, if any.
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
        positions: Positions | None = None,
        activation: nn.Module | None = None,
        dropout: float = 0.0,
        eps: float = 1e-5,
    ) -> None:
        super().__init__()
        _check_residual(residual)
        self.attention = MultiHeadAttention(d_model, n_heads, positions=positions)
        self.around_attention = residual(d_model, dropout=dropout, eps=eps)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation)
        self.around_feed_forward = residual(d_model, dropout=dropout, eps=eps)

    def forward(
        self,
        x: Float[Tensor, "batch length d_model"],
        *,
        mask: Bool[Tensor, "#batch #heads #length #total_len"] | None = None,
        bias: Float[Tensor, "#batch #heads #length #total_len"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch length d_model"]:
        """Let the tokens look at each other, then let each think by itself.

        With a causal mask and a cache this is also the layer of a decoder that has no encoder.
        """
        x = self.around_attention(x, lambda y: self.attention(y, mask=mask, bias=bias, cache=cache))
        return self.around_feed_forward(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Self-attention, cross-attention and the feed-forward network, each in a residual connection.

    Self-attention is causal if its mask is: ``layer(x, memory, mask=causal_mask(length))``.

    Args:
        d_model: Width of the tokens, and of the memory.
        n_heads: Number of heads.
        d_ff: Inner width of the feed-forward network.
        residual: Where the normalisation goes: :class:`PostNorm` or :class:`PreNorm`.
        activation: The bend in the feed-forward network; ReLU if left out.
        dropout: Probability that a number of a sublayer's output is dropped in training.
        eps: Added to the variance in the normalisations.

    Raises:
        TypeError: If a size is not a whole number, or ``residual`` or ``activation`` is of another
            kind.
        ValueError: If a size is not positive, or ``n_heads`` does not divide ``d_model``.

    Example:
        >>> layer = DecoderLayer(8, n_heads=2, d_ff=32)
        >>> layer(torch.randn(1, 5, 8), torch.randn(1, 7, 8)).shape
        torch.Size([1, 5, 8])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.1. Checked against
        ``torch.nn.TransformerDecoderLayer``, forward and gradient of every parameter.
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
        _check_residual(residual)
        self.self_attention = MultiHeadAttention(d_model, n_heads)
        self.around_self_attention = residual(d_model, dropout=dropout, eps=eps)
        self.cross_attention = MultiHeadAttention(d_model, n_heads)
        self.around_cross_attention = residual(d_model, dropout=dropout, eps=eps)
        self.feed_forward = FeedForward(d_model, d_ff, activation=activation)
        self.around_feed_forward = residual(d_model, dropout=dropout, eps=eps)

    def forward(
        self,
        x: Float[Tensor, "batch q_len d_model"],
        memory: Float[Tensor, "batch k_len d_model"] | KeysAndValues,
        *,
        mask: Bool[Tensor, "#batch #heads #q_len #total_len"] | None = None,
        memory_mask: Bool[Tensor, "#batch #heads #q_len #k_len"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch q_len d_model"]:
        """Let the tokens look at each other, then at the memory, then think by themselves.

        Args:
            x: The tokens that are being written.
            memory: The encoder's output, or its keys and values from
                ``layer.cross_attention.keys_and_values``.
            mask: Who may attend to whom among the tokens, cached ones included.
            memory_mask: Which tokens of the memory may be seen: it belongs to the keys' sequence.
            cache: Keys and values of earlier tokens.

        Returns:
            One vector for each token of ``x``.
        """
        x = self.around_self_attention(x, lambda y: self.self_attention(y, mask=mask, cache=cache))
        x = self.around_cross_attention(
            x, lambda y: self.cross_attention(y, memory, mask=memory_mask)
        )
        return self.around_feed_forward(x, self.feed_forward)


def _add(a: Tensor | None, b: Tensor | None) -> Tensor | None:
    return b if a is None else a if b is None else a + b


def _even_share(d_model: int, n_heads: int) -> int:
    """The width of one head when the heads share ``d_model`` evenly."""
    check_sizes(d_model=d_model, n_heads=n_heads)
    if d_model % n_heads:
        near = max(1, round(d_model / n_heads)) * n_heads
        raise ValueError(
            f"d_model={d_model} must be a multiple of n_heads={n_heads}; try d_model={near}, or "
            "give d_head yourself"
        )
    return d_model // n_heads


def _check_positions(positions: Positions | None) -> None:
    if positions is None:
        return
    check_module("positions", positions, "Rope(d_head)")
    if not isinstance(positions, Positions):
        raise TypeError(
            f"positions must act inside attention, as Rope does, got {type(positions).__name__}; "
            "what is added to the embeddings belongs in front of the first layer"
        )


def _check_residual(residual: Callable[..., nn.Module]) -> None:
    if isinstance(residual, nn.Module) or not callable(residual):
        raise TypeError(f"residual must be a class, PostNorm or PreNorm, got {residual!r}")


def _check_tokens(name: str, x: Tensor, width: int, weight: Tensor) -> None:
    check_floats(name, x)
    if x.ndim != 3 or x.shape[-1] != width:
        raise ValueError(f"{name} must be (batch, length, {width}), got shape {tuple(x.shape)}")
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        raise TypeError(f"{name} is {x.dtype}, but the layer is {weight.dtype}; convert with .to()")
    if x.device != weight.device:
        raise ValueError(f"{name} is on {x.device}, but the layer is on {weight.device}")
