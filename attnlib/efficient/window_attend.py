"""The place where queries meet keys, in a layer whose tokens see a window of those before them."""

from jaxtyping import Bool, Float
from torch import Tensor

from attnlib.checks import check_sizes
from attnlib.efficient.longformer import window_attention
from attnlib.layers import Attend
from attnlib.masks import causal_mask, window_mask


class WindowAttend(Attend):
    r"""Let each token see itself and the last ones before it, without a matrix of length by length.

    It takes the place of a layer's ``attend``. A whole text goes to
    :func:`~attnlib.efficient.longformer.window_attention`. The matrix is made only where it is
    needed: somebody listens to the weights, a bias is added to the scores, the mask differs by head
    or query, or there are fewer queries than keys, as with a cache. The result is the same.

    Args:
        window: How many tokens each one sees, itself included.
        scale: What the scores are multiplied by; :math:`1/\sqrt{d_{head}}` if left out.

    Raises:
        TypeError: If ``window`` is not a whole number.
        ValueError: If it is not positive.

    Example:
        >>> import torch
        >>> from attnlib.layers import MultiHeadAttention
        >>> layer, x = MultiHeadAttention(8, n_heads=2), torch.randn(1, 5, 8)
        >>> dense = layer(x, mask=causal_mask(5) & window_mask(5, radius=1))
        >>> layer.attend = WindowAttend(window=2)
        >>> torch.allclose(layer(x), dense, atol=1e-6)
        True
    """

    def __init__(self, window: int, scale: float | None = None) -> None:
        super().__init__(scale)
        check_sizes(window=window)
        self.window = window

    def forward(
        self,
        query: Float[Tensor, "batch heads q_len d_head"],
        key: Float[Tensor, "batch heads k_len d_head"],
        value: Float[Tensor, "batch heads k_len d_value"],
        *,
        mask: Bool[Tensor, "#batch #heads #q_len #k_len"] | None = None,
        bias: Float[Tensor, "#batch #heads #q_len #k_len"] | None = None,
    ) -> Float[Tensor, "batch heads q_len d_value"]:
        """Return the weighted average of the values in its window for each query.

        The mask need hide neither the future nor what is beyond the window. The last query is at
        the last key.
        """
        q_len, k_len, radius = query.shape[2], key.shape[2], self.window - 1
        hides_keys = mask is None or mask.shape[1:] == (1, 1, k_len)
        if q_len == k_len and hides_keys and bias is None and not self.listeners:
            return window_attention(
                query, key, value, radius=radius, causal=True, mask=mask, scale=self.scale
            )
        near = window_mask(q_len, k_len, radius=radius, device=query.device)
        near = near & causal_mask(q_len, k_len, device=query.device)
        mask = near if mask is None else near & mask
        return super().forward(query, key, value, mask=mask, bias=bias)
