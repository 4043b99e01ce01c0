"""Which modules a callable holds, and how to leave all of them as they were."""

import copy
import functools
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


def modules_behind(called: Any) -> list[nn.Module]:
    """The modules that a callable holds: itself, or in a closure, a partial or a bound method."""
    if isinstance(called, nn.Module):
        return [called]
    held: list[Any] = [getattr(called, "__self__", None)]
    if isinstance(called, functools.partial):
        held += [called.func, *called.args, *called.keywords.values()]
    held += [c.cell_contents for c in getattr(called, "__closure__", None) or () if c]
    held += list(getattr(called, "__defaults__", None) or ())
    names = getattr(getattr(called, "__code__", None), "co_names", ())
    held += [called.__globals__[n] for n in names if n in getattr(called, "__globals__", {})]
    found: list[nn.Module] = []
    for item in held:
        if isinstance(item, nn.Module):
            found.append(item)
        elif isinstance(item, functools.partial) or inspect.ismethod(item):
            found += modules_behind(item)
    return found


@contextmanager
def held_still(called: Any) -> Iterator[None]:
    """Put back, at the end, all that a callable's modules hold: modes, numbers and attributes."""
    parts = {id(m): m for top in modules_behind(called) for m in top.modules()}.values()
    kept = []
    for part in parts:
        tensors = [
            t for t in (*part._parameters.values(), *part._buffers.values()) if t is not None
        ]
        boxes = [(v, copy.copy(v)) for v in vars(part).values() if isinstance(v, dict | list)]
        state = [(t, t.detach().clone(), t.grad, t.requires_grad) for t in tensors]
        kept.append((part, dict(vars(part)), boxes, state))
    try:
        yield
    finally:
        for part, attributes, boxes, tensors in kept:
            vars(part).clear()
            vars(part).update(attributes)
            for box, content in boxes:
                _refill(box, content)
            for tensor, value, grad, asks in tensors:
                with torch.no_grad():
                    if not torch.equal(tensor, value) and not value.isnan().any():
                        tensor.copy_(value)
                tensor.requires_grad_(asks) if tensor.is_leaf else None
                tensor.grad = grad


def _refill(box: dict | list, content: dict | list) -> None:
    """Give a container its old content back, if it has changed."""
    if len(box) == len(content) and all(
        a is b
        for a, b in zip(
            box.values() if isinstance(box, dict) else box,
            content.values() if isinstance(content, dict) else content,
            strict=True,
        )
    ):
        return
    box.clear()
    box.update(content) if isinstance(box, dict) else box.extend(content)
