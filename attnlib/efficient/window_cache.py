"""A cache that forgets: for decoding when each token sees only a window of those before it."""

import sys

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlib.cache import KeysAndValues, KVCache, LayerCache, _check_continues
from attnlib.checks import check_sizes
from attnlib.masks import causal_mask, window_mask


class WindowCache(LayerCache):
    """The keys and values of the last tokens alone: its bytes stop growing at the window.

    In a layer with grouped queries it holds only the heads that keys and values have, so the two
    savings multiply: see :func:`~attnlib.memory.cache_bytes`. Rotated positions are those of the
    whole text, as ``length`` goes on counting.

    Args:
        window: How many tokens a query sees, itself included; a window of radius r that looks back
            only has ``r + 1``.

    Raises:
        TypeError: If ``window`` is not a whole number.
        ValueError: If it is not positive.

    Example:
        >>> from attnlib.layers import MultiHeadAttention
        >>> layer = MultiHeadAttention(8, n_heads=4, n_kv_heads=2)
        >>> cache = WindowCache(window=3)
        >>> with torch.no_grad():
        ...     for _ in range(10):
        ...         output = layer(torch.randn(1, 1, 8), mask=cache.mask(1), cache=cache)
        >>> cache.length, cache.bytes()  # 3 tokens, 2 heads, 2 numbers of 4 bytes, keys and values
        (10, 96)

    Source:
        Jiang et al. 2023 (Mistral 7B), arXiv:2310.06825, section 2.
    """

    def __init__(self, window: int) -> None:
        check_sizes(window=window)
        super().__init__(max_len=window)

    def mask(self, new: int) -> Bool[Tensor, "1 1 new k_len"]:
        """What each of so many new tokens may see of the keys that :meth:`append` will return."""
        check_sizes(new=new)
        k_len = min(self.length, self.max_len - 1) + new
        return causal_mask(new, k_len) & window_mask(new, k_len, radius=self.max_len - 1)

    def append(
        self,
        key: Float[Tensor, "batch heads new d_head"],
        value: Float[Tensor, "batch heads new d_value"],
    ) -> KeysAndValues:
        """Return the keys and values that the new tokens may see, and keep the last of them.

        No gradient flows through what was kept: a cache is for generation.

        Raises:
            ValueError: If there are not as many values as keys, or the batch, the heads, a width or
                the dtype is not that of the first tokens.
        """
        new = key.shape[2]
        if value.shape[2] != new:
            raise ValueError(f"each key needs a value, got {new} keys and {value.shape[2]} values")
        if self._keys is not None:
            _check_continues("key", key, self._keys)
            _check_continues("value", value, self._values)
            start = max(0, self._keys.shape[2] - self.max_len + 1)  # who left the window
            key = torch.cat([self._keys[:, :, start:], key], dim=2)
            value = torch.cat([self._values[:, :, start:], value], dim=2)
        start = max(0, key.shape[2] - self.max_len)
        self._keys = key[:, :, start:].detach().clone()  # a view would keep all of a long prompt
        self._values = value[:, :, start:].detach().clone()
        self.length += new
        return key, value

    def crop(self, length: int) -> None:
        """Refuse to go back: what left the window is gone.

        Raises:
            ValueError: Always, unless nothing is to be forgotten.
        """
        if length != self.length:
            raise ValueError(
                f"a WindowCache can't go back to {length} of {self.length} tokens: what left the "
                "window is gone. Use a LayerCache"
            )

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Let row ``i`` continue what row ``rows[i]`` held, as beam search wants it.

        Raises:
            ValueError: If a row does not exist, or there are none.
        """
        if self._keys is None:
            return
        if rows.numel() == 0 or rows.min() < 0 or rows.max() >= len(self._keys):
            raise ValueError(f"rows must lie in 0..{len(self._keys) - 1}, got {rows.tolist()}")
        self._keys = self._keys.index_select(0, rows)
        self._values = self._values.index_select(0, rows)

    def bytes(self) -> int:
        """How many bytes the keys and values take."""
        return 0 if self._keys is None else self._keys.nbytes + self._values.nbytes


class WindowKVCache(KVCache):
    """What a decoder with a window remembers: a :class:`WindowCache` for each layer.

    The text may grow for ever; the bytes stop growing at the window.

    Args:
        n_layers: Number of decoder layers.
        window: How many tokens a query sees, itself included: that of the model.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is not positive.

    Example:
        >>> from attnlib.models.gpt import GPT, GPTConfig
        >>> model = GPT(GPTConfig(11, d_model=8, n_heads=2, n_layers=2, d_ff=16, window=3))
        >>> cache = WindowKVCache(n_layers=2, window=3)
        >>> with torch.no_grad():
        ...     logits = model(torch.arange(10)[None], cache=cache)
        >>> cache.length, cache.bytes()  # 2 layers, 3 tokens of 8 numbers, keys and values
        (10, 384)
    """

    def __init__(self, n_layers: int, window: int) -> None:
        super().__init__(n_layers, max_len=window)
        self.window = window
        self.layers = [WindowCache(window) for _ in range(n_layers)]

    @property
    def max_len(self) -> int:
        """How many tokens there is room for, more than anyone will ask."""
        return sys.maxsize
