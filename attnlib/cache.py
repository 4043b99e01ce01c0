"""Remember keys and values while a text grows, so that no token is computed twice."""

from collections.abc import Sequence

from jaxtyping import Bool, Float, Int
from torch import Tensor

from attnlib.checks import check_sizes

KeysAndValues = tuple[
    Float[Tensor, "batch heads k_len d_head"], Float[Tensor, "batch heads k_len d_value"]
]


class LayerCache:
    """The keys and values of one attention layer, in memory that is reserved once.

    Args:
        max_len: How many tokens there is room for.

    Raises:
        TypeError: If ``max_len`` is not a whole number.
        ValueError: If it is not positive.

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
        check_sizes(max_len=max_len)
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
            ValueError: If there is no room left, there are not as many values as keys, or the
                batch, the heads, a width or the dtype is not that of the first tokens.
        """
        start, new = self.length, key.shape[2]
        end = start + new
        if end > self.max_len:
            raise ValueError(
                f"the cache holds {start} tokens and has room for {self.max_len}; {new} more do "
                "not fit. Make it with a larger max_len"
            )
        if value.shape[2] != new:
            raise ValueError(f"each key needs a value, got {new} keys and {value.shape[2]} values")
        if self._keys is None:
            self._keys = key.new_empty(*key.shape[:2], self.max_len, key.shape[3])
            self._values = value.new_empty(*value.shape[:2], self.max_len, value.shape[3])
        _check_continues("key", key, self._keys)
        _check_continues("value", value, self._values)
        self._keys.narrow(2, start, new).copy_(key.detach())
        self._values.narrow(2, start, new).copy_(value.detach())
        self.length = end
        return self._keys.narrow(2, 0, end), self._values.narrow(2, 0, end)

    def crop(self, length: int) -> None:
        """Forget all tokens after the first ``length``.

        Raises:
            ValueError: If ``length`` is negative, or more than is stored.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"length must lie in 0..{self.length}, which is stored, got {length}")
        self.length = length

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Let row ``i`` continue what row ``rows[i]`` held, as beam search wants it.

        There may be more or fewer rows than before.

        Raises:
            ValueError: If a row does not exist, or there are none.
        """
        if self._keys is None:
            return
        if rows.numel() == 0 or rows.min() < 0 or rows.max() >= len(self._keys):
            raise ValueError(f"rows must lie in 0..{len(self._keys) - 1}, got {rows.tolist()}")
        self._keys = self._rows_of(self._keys, rows)
        self._values = self._rows_of(self._values, rows)

    def _rows_of(self, stored: Tensor, rows: Tensor) -> Tensor:
        chosen = stored.narrow(2, 0, self.length).index_select(0, rows)
        if len(rows) != len(stored):
            stored = stored.new_empty(len(rows), *stored.shape[1:])
        stored.narrow(2, 0, self.length).copy_(chosen)
        return stored


class KVCache:
    """What a decoder remembers of a batch: a :class:`LayerCache` for each layer, and the source.

    Args:
        n_layers: Number of decoder layers.
        max_len: How many tokens there is room for.
        memory: For cross-attention, the keys and values of the source, computed once for each
            layer; empty in a model without an encoder.
        memory_mask: ``True`` at the tokens of the source that may be seen.

    Attributes:
        layers: The caches of self-attention.
        memory: As given; :meth:`reorder` reorders it.
        memory_mask: As given; :meth:`reorder` reorders it.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If a size is not positive, or there is not one pair of keys and values for each
            layer.

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

    def __init__(
        self,
        n_layers: int,
        max_len: int,
        *,
        memory: Sequence[KeysAndValues] = (),
        memory_mask: Bool[Tensor, "#batch #heads #q_len k_len"] | None = None,
    ) -> None:
        check_sizes(n_layers=n_layers)
        if memory and len(memory) != n_layers:
            raise ValueError(
                f"each of {n_layers} layers needs the keys and values of the source, got "
                f"{len(memory)} pairs"
            )
        self.layers = [LayerCache(max_len) for _ in range(n_layers)]
        self.memory = list(memory)
        self.memory_mask = memory_mask

    @property
    def length(self) -> int:
        """How many tokens are stored, which is the position of the next one."""
        return self.layers[0].length

    @property
    def max_len(self) -> int:
        """How many tokens there is room for."""
        return self.layers[0].max_len

    def crop(self, length: int) -> None:
        """Forget all tokens after the first ``length``, but nothing of the source.

        Raises:
            ValueError: If ``length`` is negative, or more than is stored.
        """
        for layer in self.layers:
            layer.crop(length)

    def reorder(self, rows: Int[Tensor, " new_batch"]) -> None:
        """Let row ``i`` continue what row ``rows[i]`` held, in every layer.

        There may be more or fewer rows than before.

        Raises:
            ValueError: If a row does not exist, or there are none.
        """
        for layer in self.layers:
            layer.reorder(rows)
        self.memory = [tuple(t.index_select(0, rows) for t in pair) for pair in self.memory]
        if self.memory_mask is not None and len(self.memory_mask) > 1:  # else it serves all rows
            self.memory_mask = self.memory_mask.index_select(0, rows)

    def bytes(self) -> int:
        """How many bytes the keys and values take, room that is not used yet included."""
        tensors = [t for layer in self.layers for t in (layer._keys, layer._values)]
        tensors += [t for pair in self.memory for t in pair]
        return sum(t.nbytes for t in tensors if t is not None)


def _check_continues(name: str, new: Tensor, stored: Tensor) -> None:
    if (
        new.shape[:2] != stored.shape[:2]
        or new.shape[3:] != stored.shape[3:]
        or new.dtype != stored.dtype
    ):
        raise ValueError(
            f"{name} has (batch, heads, width) = {(*new.shape[:2], *new.shape[3:])} and "
            f"{new.dtype}, but the cache was started with {(*stored.shape[:2], stored.shape[3])} "
            f"and {stored.dtype}"
        )
