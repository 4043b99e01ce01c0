"""Comparing with a reference: the same weights and inputs, forward and gradient."""

import torch
from torch import Tensor, nn
from torch.testing import assert_close


def leaves(*tensors: Tensor) -> list[Tensor]:
    """Copies that gather gradients of their own."""
    return [t.detach().clone().requires_grad_() for t in tensors]


def assert_same(ours: Tensor, theirs: Tensor, our_leaves: list, their_leaves: list) -> None:
    """Two outputs agree, and so do the gradients of one random sum over them."""
    assert_close(ours, theirs)
    probe = torch.randn_like(theirs)
    assert_close(
        torch.autograd.grad(ours, our_leaves, probe, retain_graph=True),
        torch.autograd.grad(theirs, their_leaves, probe, retain_graph=True),
    )


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """The gradient of every parameter by name; a parameter without one is a fault."""
    found = {name: parameter.grad for name, parameter in module.named_parameters()}
    missing = [name for name, gradient in found.items() if gradient is None]
    assert not missing, f"no gradient reached {missing}"
    return found
