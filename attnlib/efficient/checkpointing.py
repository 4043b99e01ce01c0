"""Gradient checkpointing: keep the input of each layer alone, and run the layer again backward."""

from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from attnlib.checks import check_module


class Checkpointed(nn.Module):
    """A layer that keeps nothing but its input for the backward pass, and runs again there.

    It holds the parts of the layer under their own names: parameters, states and recorded maps are
    called as before. Without gradients, or with a cache, which must not grow twice, the layer runs
    as it always does. While a recorder listens, it hears a layer again when that runs again.

    Args:
        layer: Any module. Dropout draws the same again.

    Raises:
        TypeError: If it is not a module.

    Example:
        >>> layer = Checkpointed(nn.Sequential(nn.Linear(3, 5), nn.Tanh()))
        >>> layer(torch.zeros(2, 3)).shape, [name for name, _ in layer.named_parameters()]
        (torch.Size([2, 5]), ['0.weight', '0.bias'])

    Source:
        Chen et al. 2016, arXiv:1604.06174; ``torch.utils.checkpoint``, without re-entrance.
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        check_module("layer", layer, "an EncoderLayer")
        self._modules = layer._modules  # the very same: what is set in one is set in the other
        self._parameters, self._buffers = layer._parameters, layer._buffers
        self.training = layer.training
        object.__setattr__(self, "layer", layer)  # not as a part: that would change the names

    def __getattr__(self, name: str) -> Any:
        """Whatever else the layer has."""
        if name == "layer":  # not there yet: while it is being unpickled
            raise AttributeError(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.layer, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the layer."""
        if not torch.is_grad_enabled() or kwargs.get("cache") is not None:
            return self.layer(*args, **kwargs)
        return checkpoint(self.layer, *args, use_reentrant=False, **kwargs)


def checkpoint_layers(model: nn.Module) -> nn.Module:
    """Let each layer of a model keep its input alone for the backward pass.

    The gradients stay the same. What is kept shrinks to one vector for each token and layer; each
    layer is computed twice, so a step of training takes about a third longer.

    Args:
        model: A model with its layers in one or more ``nn.ModuleList``, as all Transformers of
            ``attnlib`` have them. It is changed in place.

    Returns:
        The model itself.

    Raises:
        TypeError: If it is not a module.
        ValueError: If it has no list of layers.

    Example:
        >>> from attnlib.layers import EncoderLayer
        >>> model = nn.Module()
        >>> model.layers = nn.ModuleList(EncoderLayer(8, n_heads=2, d_ff=16) for _ in range(3))
        >>> [type(layer).__name__ for layer in checkpoint_layers(model).layers]
        ['Checkpointed', 'Checkpointed', 'Checkpointed']
    """
    check_module("model", model, "a GPT")
    stacks = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    if not stacks:
        raise ValueError(
            f"{type(model).__name__} has no nn.ModuleList, so it is not clear what its layers are; "
            "wrap them yourself with Checkpointed"
        )
    for stack in stacks:
        for i, layer in enumerate(stack):
            if not isinstance(layer, Checkpointed):
                stack[i] = Checkpointed(layer)
    return model
