"""Remember keys and values while a text grows, so that no token is computed twice."""

from collections.abc import Sequence

from jaxtyping import Float, Int
from torch import Tensor

KeysAndValues = tuple[
    Float[Tensor, "batch heads k_len d_head"], Float[Tensor, "batch heads k_len d_value"]
]


class LayerCache:
    """The keys and values of one attention layer, in memory that is reserved once.

    Args:
        max_len: How many tokens there is room for.

    Raises:
        ValueError: If ``max_len`` is not positive.

    Example:
        >>> import torch
        >>> cache = LayerCache(max_len=8)
        >>> key = value = torch.zeros(1, 2, 3, 4)  # three tokens, two heads
        >>> keys, values = cache.append(key, value)
        >>> keys, values = cache.append(key, value)
        >>> keys.shape, cache.length
        (torch.Size([1, 2, 6, 4]), 6)
    """

    def __init__(self, max_len: int) -> None:
        if max_len < 1:
            raise ValueError(f"max_len must be 1 or more, got {max_len}")
        self.max_len = max_len
        self.length = 0
        self._keys: Tensor | None = None
        self._values: Tensor | None = None

    def append(
        self,
        key: Float[Tensor, "batch heads new d_head"],
        value: Float[Tensor, "batch heads new d_value"],
    ) -> KeysAndValues:
        """Store the keys and values of new tokens, and return those of all tokens so far.

        What comes back is a view of the cache, and no gradient flows through it: a cache is for
        generation, under ``torch.no_grad()``.

        Raises:
            ValueError: If there is no room left, or the batch, the heads or a width changed.
        """
        if self._keys is None:
            self._keys = key.new_empty(*key.shape[:2], self.max_len, key.shape[-1])
            self._values = value.new_empty(*value.shape[:2], self.max_len, value.shape[-1])
        self._check_fits(key, value)
        end = self.length + key.shape[2]
        self._keys[:, :, self.length : end] = key.detach()
        self._values[:, :, self.length : end] = value.detach()
        self.length = end
        return self._keys[:, :, :end], self._values[:, :, :end]

    def crop(self, length: int) -> None:
        """Forget all tokens after the first ``length``.

        Raises:
            ValueError: If ``length`` is negative, or more than is stored.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"length must lie in 0..{self.length}, which is stored, got {length}")
        self.length = length

    def reorder(self, rows: Int[Tensor, " batch"]) -> None:
        """Let row ``i`` continue what row ``rows[i]`` held, as beam search wants it.

        Raises:
            ValueError: If a row does not exist.
        """
        if self._keys is None:
            return
        if rows.numel() == 0 or rows.min() < 0 or rows.max() >= len(self._keys):
            raise ValueError(f"rows must lie in 0..{len(self._keys) - 1}, got {rows.tolist()}")
        keys = self._keys.new_empty(len(rows), *self._keys.shape[1:])
        values = self._values.new_empty(len(rows), *self._values.shape[1:])
        keys[:, :, : self.length] = self._keys[rows, :, : self.length]
        values[:, :, : self.length] = self._values[rows, :, : self.length]
        self._keys, self._values = keys, values

    def _check_fits(self, key: Tensor, value: Tensor) -> None:
        if self.length + key.shape[2] > self.max_len:
            raise ValueError(
                f"the cache holds {self.length} tokens and has room for {self.max_len}; "
                f"{key.shape[2]} more do not fit. Make it with a larger max_len"
            )
        for name, new, old in (("key", key, self._keys), ("value", value, self._values)):
            if (*new.shape[:2], new.shape[3]) != (*old.shape[:2], old.shape[3]):
                raise ValueError(
                    f"{name} has (batch, heads, width) = {(*new.shape[:2], new.shape[3])}, but the "
                    f"cache was started with {(*old.shape[:2], old.shape[3])}"
                )


class KVCache:
    """One :class:`LayerCache` for each layer, and what cross-attention needs of the source.

    Args:
        n_layers: Number of decoder layers.
        max_len: How many tokens there is room for.

    Attributes:
        layers: The caches of self-attention.
        memory: The keys and values of cross-attention, computed once for each layer; empty in a
            model without an encoder.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> import torch
        >>> cache = KVCache(n_layers=2, max_len=8)
        >>> key = value = torch.zeros(1, 2, 3, 4)
        >>> for layer in cache.layers:
        ...     keys, values = layer.append(key, value)
        >>> cache.length
        3
        >>> cache.crop(1)
        >>> cache.length
        1
    """

    def __init__(self, n_layers: int, max_len: int) -> None:
        if n_layers < 1:
            raise ValueError(f"n_layers must be 1 or more, got {n_layers}")
        self.layers = [LayerCache(max_len) for _ in range(n_layers)]
        self.memory: Sequence[KeysAndValues] = ()

    @property
    def length(self) -> int:
        """How many tokens are stored: the position of the next one."""
        return self.layers[0].length

    def crop(self, length: int) -> None:
        """Forget all tokens after the first ``length``."""
        for layer in self.layers:
            layer.crop(length)

    def reorder(self, rows: Int[Tensor, " batch"]) -> None:
        """Let row ``i`` continue what row ``rows[i]`` held, in every layer."""
        for layer in self.layers:
            layer.reorder(rows)
        self.memory = [(keys[rows], values[rows]) for keys, values in self.memory]

    def bytes(self) -> int:
        """How many bytes of tensors the cache keeps reserved."""
        tensors = [t for layer in self.layers for t in (layer._keys, layer._values)]
        tensors += [t for pair in self.memory for t in pair]
        return sum(t.nbytes for t in tensors if t is not None)
