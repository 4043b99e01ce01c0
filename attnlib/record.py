"""See the weights that a model really used: recorded from its one real forward pass."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from attnlib.checks import check_module


class AttentionMap(NamedTuple):
    """The weights of one attention layer in one call.

    ``layer`` is the layer's name inside the model; ``weights`` has a row for each query.

    Example:
        >>> import torch
        >>> AttentionMap("layers.0.attention", torch.tensor([[[[0.25, 0.75]]]])).weights.shape
        torch.Size([1, 1, 1, 2])
    """

    layer: str
    weights: Float[Tensor, "batch heads q_len k_len"]


@contextmanager
def record_attention(model: nn.Module) -> Iterator[list[AttentionMap]]:
    """Record the weights of every attention layer while a model runs.

    The weights come from the forward pass that you run yourself, with its masks and its inputs.
    While a recorder listens, a layer runs the equation in place of the fused kernel; its output is
    the same to float precision.

    Args:
        model: Any module with attention layers of ``attnlib`` inside: a layer can be heard that has
            a list of ``listeners`` and calls each of them with its weights.

    Yields:
        A list, filled in the order in which the layers are called. The weights are part of the
        graph: ``.detach()`` what you keep.

    Raises:
        TypeError: If it is not a module.
        ValueError: If the model holds no attention layer of ``attnlib``.

    Example:
        >>> import torch
        >>> from attnlib.layers import EncoderLayer
        >>> layer = EncoderLayer(8, n_heads=2, d_ff=16)
        >>> with record_attention(layer) as maps:
        ...     output = layer(torch.randn(1, 5, 8))
        >>> maps[0].layer, maps[0].weights.shape
        ('attention', torch.Size([1, 2, 5, 5]))
    """
    check_module("model", model, "a Bert, or a layer of it")
    places = {name: m for name, m in model.named_modules() if hasattr(m, "listeners")}
    if not places:
        raise ValueError(
            f"{type(model).__name__} holds no attnlib attention layer, so there is nothing to "
            "record; build it with attnlib.layers.MultiHeadAttention"
        )
    maps: list[AttentionMap] = []
    listening = []
    try:
        for name, place in places.items():
            layer = re.sub(r"(^|\.)attend$", "", name)  # an Attend goes by the name of its owner
            listener = partial(_append, maps, layer)
            place.listeners.append(listener)
            listening.append((place, listener))
        yield maps
    finally:
        for place, listener in listening:
            place.listeners.remove(listener)


def _append(maps: list[AttentionMap], layer: str, weights: Tensor) -> None:
    maps.append(AttentionMap(layer, weights))
