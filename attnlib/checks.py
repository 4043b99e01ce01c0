"""What every module refuses in the same words: sizes, tensors and modules that are none."""

import torch
from torch import Tensor, nn


def check_sizes(*, at_least: int = 1, **sizes: int) -> None:
    """Refuse sizes that are no whole numbers, or too small.

    ``True`` is refused as well: to Python it is a 1, but here it is an argument in a wrong place.

    Args:
        at_least: The smallest size that makes sense.
        **sizes: The sizes, by the names that the caller knows them by.

    Raises:
        TypeError: If a size is not a whole number.
        ValueError: If it is below ``at_least``.

    Example:
        >>> check_sizes(d_model=512, n_heads=8)
    """
    for name, size in sizes.items():
        if not _is_whole(size):
            raise TypeError(f"{name} must be a whole number, got {_no_size(size)}")
        if size < at_least:
            raise ValueError(f"{name} must be {at_least} or more, got {size}")


def check_tensor(name: str, x: Tensor) -> None:
    """Refuse what is not a tensor, such as a list of numbers.

    Args:
        name: What the caller calls it.
        x: Any tensor.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> check_tensor("values", torch.zeros(2, 3))
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor, got {_kind(x)}; write torch.as_tensor(...)")


def check_floats(name: str, x: Tensor) -> None:
    """Refuse what is not a float tensor.

    Args:
        name: What the caller calls it.
        x: Any tensor of float32, bfloat16 or the like.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> check_floats("scores", torch.zeros(2, 3))
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a float tensor, got {_kind(x)}; write torch.tensor(...)")
    if not x.is_floating_point():
        raise TypeError(f"{name} must be a float tensor, got {x.dtype}; convert with .float()")


def check_whole_numbers(name: str, x: Tensor, advice: str = "write torch.tensor(...)") -> None:
    """Refuse what is not a tensor of whole numbers, such as token ids or lengths.

    Args:
        name: What the caller calls it.
        x: Any tensor of int64, int32 or the like.
        advice: How the caller gets one.

    Raises:
        TypeError: If it is something else; booleans are.

    Example:
        >>> check_whole_numbers("lengths", torch.tensor([3, 5]))
    """
    if isinstance(x, Tensor) and not x.is_floating_point() and x.dtype != torch.bool:
        return
    raise TypeError(f"{name} must be a tensor of whole numbers, got {_kind(x)}; {advice}")


def check_module(name: str, module: nn.Module, example: str) -> None:
    """Refuse what is not a module, such as the name of one, or its class.

    Args:
        name: What the caller calls it.
        module: The module.
        example: What the caller may write.

    Raises:
        TypeError: If it is something else.

    Example:
        >>> check_module("activation", nn.GELU(), "nn.GELU()")
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"{name} must be a module, such as {example}, got {_kind(module)}")


def can_be_read(x: Tensor) -> bool:
    """Whether Python may branch on what a tensor holds.

    It may not while a graph is compiled, which has to serve other numbers too, nor under
    ``torch.vmap``, where the tensor stands for many. A tensor on the device *meta* holds nothing.

    Example:
        >>> can_be_read(torch.zeros(2)), can_be_read(torch.zeros(2, device="meta"))
        (True, False)
    """
    if torch.compiler.is_compiling() or x.is_meta:
        return False
    return not torch._C._functorch.is_batchedtensor(x)


def _is_whole(size: object) -> bool:
    if isinstance(size, (bool, Tensor)):
        return False
    # int comes first: the compiler's own whole numbers can be asked that, but not hasattr.
    return isinstance(size, int) or hasattr(size, "__index__")


def _no_size(size: object) -> str:
    if isinstance(size, Tensor):
        return "Tensor; take the number out with .item()"
    return _kind(size) + ("; divide with //" if isinstance(size, float) else "")


def _kind(x: object) -> str:
    """Say what came: the dtype of a tensor, otherwise the type, and the thing itself if short."""
    if isinstance(x, Tensor):
        return str(x.dtype)
    if isinstance(x, type):
        return f"the class {x.__name__} itself"
    name, text = type(x).__name__, repr(x)
    return f"{name} {text}" if len(text) <= 40 else name
