"""Relative positions that a query can ask for: Shaw's, and Transformer-XL's with its memory."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnlib.checks import check_floats, check_sizes
from attnlib.positions.absolute import _waves
from attnlib.positions.base import (
    Positions,
    _check_heads,
    _check_same_kind,
    _pick,
    relative_position,
)


class ShawRelative(Positions):
    r"""A learned vector for each clipped distance, which the query is compared with.

    .. math::
        bias_{ij} = \frac{q_i \cdot a_{clip(j - i)}}{\sqrt{d_{head}}}, \quad
        clip(x) = \max(-m, \min(m, x))

    so that the score is :math:`q_i \cdot (k_j + a_{clip(j-i)}) / \sqrt{d_{head}}`. All heads share
    the vectors. The paper adds such vectors to the values too, and finds that it does as well
    without them; here are those of the keys only.

    Args:
        d_head: Width of a head.
        max_distance: m, in tokens. All keys at this distance or farther look the same.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is not positive.

    Example:
        >>> x = torch.randn(1, 2, 3, 4)
        >>> ShawRelative(d_head=4).bias(x, x).shape
        torch.Size([1, 2, 3, 3])

    Source:
        Shaw et al. 2018, arXiv:1803.02155, equation 4 (for the keys only). Checked against Hugging
        Face's Wav2Vec2-BERT with ``relative_key``.
    """

    def __init__(self, d_head: int, max_distance: int = 16) -> None:
        super().__init__()
        check_sizes(d_head=d_head, max_distance=max_distance)
        self.max_distance = max_distance
        # Row r is for distance r - max_distance.
        self.vectors = nn.Parameter(torch.randn(2 * max_distance + 1, d_head) * 0.02)

    def bias(
        self,
        query: Float[Tensor, "batch heads q_len d_head"],
        key: Float[Tensor, "batch key_heads k_len d_head"],
    ) -> Float[Tensor, "batch heads q_len k_len"]:
        """Each query compared with the vector for its distance to each key.

        Raises:
            TypeError: If ``query`` or ``key`` is not a float tensor, or of another dtype than the
                vectors.
            ValueError: If a shape or device does not fit, or there are more queries than keys.
        """
        d_head = self.vectors.shape[1]
        _check_heads("query", query, d_head=d_head)
        _check_heads("key", key, d_head=d_head)
        _check_same_kind(query, self.vectors)
        position = relative_position(query.shape[2], key.shape[2], device=query.device)
        row = position.clamp(-self.max_distance, self.max_distance) + self.max_distance
        by_distance = (query / math.sqrt(d_head)) @ self.vectors.T  # (B, H, Lq, 2m + 1)
        return _pick(by_distance, row)

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"d_head={self.vectors.shape[1]}, max_distance={self.max_distance}"


class TransformerXL(Positions):
    r"""Transformer-XL's relative attention: two terms for the distance, one for the key alone.

    .. math::
        bias_{ij} = \frac{u \cdot k_j + (q_i + v) \cdot W_R\, R_{i - j}}{\sqrt{d_{head}}}

    R is the sinusoidal encoding of the *signed* distance, so it tells before from after. u and v
    stand in for the position of the query, which has no place in a relative score. Together with
    :math:`q_i \cdot k_j` these are the paper's four terms.

    All heads have their own u, v and :math:`W_R`. The scores for one distance are computed once
    and handed to all pairs that have it; so there is no shifting trick.

    Args:
        d_model: Width of the sinusoids.
        n_heads: Number of heads.
        d_head: Width of a head; ``d_model / n_heads`` if left out.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is not positive, or ``d_head`` is left out and ``n_heads`` does not
            divide ``d_model``.

    Example:
        >>> x = torch.randn(1, 2, 3, 4)
        >>> TransformerXL(d_model=8, n_heads=2).bias(x, x).shape
        torch.Size([1, 2, 3, 3])

    Source:
        Dai et al. 2019, arXiv:1901.02860, section 3.3. Checked against Hugging Face's XLNet, which
        lists all sines before all cosines.
    """

    def __init__(self, d_model: int, n_heads: int, *, d_head: int | None = None) -> None:
        super().__init__()
        check_sizes(d_model=d_model, n_heads=n_heads)
        if d_head is None and d_model % n_heads:
            raise ValueError(
                f"d_model={d_model} is no multiple of n_heads={n_heads}; give d_head yourself"
            )
        d_head = d_model // n_heads if d_head is None else d_head
        check_sizes(d_head=d_head)
        self.to_distance = nn.Linear(d_model, n_heads * d_head, bias=False)  # W_R
        self.u = nn.Parameter(torch.randn(n_heads, d_head) * 0.02)  # 0.02 as in the authors' code
        self.v = nn.Parameter(torch.randn(n_heads, d_head) * 0.02)
        nn.init.normal_(self.to_distance.weight, std=0.02)

    def bias(
        self,
        query: Float[Tensor, "batch heads q_len d_head"],
        key: Float[Tensor, "batch key_heads k_len d_head"],
    ) -> Float[Tensor, "batch heads q_len k_len"]:
        """All of the score that is not query times key.

        Raises:
            TypeError: If ``query`` or ``key`` is not a float tensor, or of another dtype than the
                weights.
            ValueError: If a shape or device does not fit, there are more queries than keys, or the
                heads are no multiple of the key heads.
        """
        n_heads, d_head = self.u.shape
        _check_heads("query", query, n_heads=n_heads, d_head=d_head)
        _check_heads("key", key, d_head=d_head)
        _check_same_kind(query, self.u)
        q_len, k_len = query.shape[2], key.shape[2]
        position = relative_position(q_len, k_len, device=query.device)  # 1-Lk .. Lq-1
        each = torch.arange(1 - k_len, q_len)
        waves = _waves(-each, self.to_distance.in_features).to(self.u)  # R of i - j
        vectors = self.to_distance(waves).unflatten(-1, (n_heads, d_head)).transpose(0, 1)
        scale = 1 / math.sqrt(d_head)  # first: float16 ends at 65504
        by_distance = ((query + self.v[:, None]) * scale) @ vectors.mT  # (B, H, Lq, Lq+Lk-1)
        relative = _pick(by_distance, position + k_len - 1)  # (B, H, Lq, Lk)
        return (relative + self._of_keys(key * scale)).to(query.dtype)

    def _of_keys(
        self, key: Float[Tensor, "batch key_heads k_len d_head"]
    ) -> Float[Tensor, "batch heads 1 k_len"]:
        """How much each head likes each key, whoever asks."""
        key_heads = key.shape[1]
        if self.u.shape[0] % key_heads:
            raise ValueError(
                f"the number of heads, {self.u.shape[0]}, must be a multiple of the number of key "
                f"heads, {key_heads}"
            )
        u = self.u.unflatten(0, (key_heads, -1))  # the heads that share a key
        return (u @ key.mT).flatten(1, 2).unsqueeze(2)

    def extra_repr(self) -> str:
        """Show the sizes."""
        n_heads, d_head = self.u.shape
        return f"d_model={self.to_distance.in_features}, n_heads={n_heads}, d_head={d_head}"


class SegmentMemory:
    r"""The last hidden states of earlier segments, for one layer to look back at.

    .. math:: \tilde h_{\tau} = [\,\mathrm{stopgrad}(h_{\tau-1}) \circ h_{\tau}\,]

    Long text is read in segments. Each layer's keys and values come from its remembered input
    followed by the new one, its queries from the new one only. No gradient flows into the past.
    Each layer has a memory of its own; each batch of texts starts with an empty one.

    The layer needs positions that act inside attention, such as :class:`TransformerXL`: the last
    query sits at the last key.

    Args:
        memory_len: How many states are kept, in tokens.

    Raises:
        TypeError: If ``memory_len`` is not a whole number.
        ValueError: If it is not positive.

    Example:
        >>> memory = SegmentMemory(memory_len=4)
        >>> for segment in torch.randn(1, 9, 8).split(3, dim=1):
        ...     print(memory.extend(segment).shape[1])  # give it to a layer as its memory
        3
        6
        7

    Source:
        Dai et al. 2019, arXiv:1901.02860, section 3.2.
    """

    def __init__(self, memory_len: int) -> None:
        check_sizes(memory_len=memory_len)
        self.memory_len = memory_len
        self.states: Float[Tensor, "batch kept d_model"] | None = None

    def extend(
        self, x: Float[Tensor, "batch length d_model"]
    ) -> Float[Tensor, "batch kept_and_length d_model"]:
        """Put what is remembered before ``x``, then remember the last of both.

        Raises:
            TypeError: If ``x`` is not a float tensor.
            ValueError: If ``x`` is not 3-D, or does not continue what is remembered: its batch or
                width, dtype or device is another.
        """
        check_floats("x", x)
        if x.ndim != 3:
            raise ValueError(f"x must be 3-D (batch, length, d_model), got shape {tuple(x.shape)}")
        if self.states is not None:
            self._check_continues(x)
            x = torch.cat([self.states, x], dim=1)
        self.states = x.detach()[:, -self.memory_len :].clone()  # a copy: nothing else stays alive
        return x

    def reset(self) -> None:
        """Forget everything, as before the first segment of other texts."""
        self.states = None

    def _check_continues(self, x: Tensor) -> None:
        kept, new = ((y.shape[0], y.shape[2], y.dtype, y.device) for y in (self.states, x))
        if kept != new:
            raise ValueError(
                "x does not continue what is remembered: (batch, width, dtype, device) was "
                f"{kept}, now {new}; call reset() before another batch"
            )
