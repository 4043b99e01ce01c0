"""How what came differs from what was due, in words."""

from typing import Any

import torch
from torch import Tensor

from attnlib.exercises.exercise import Complaint

# Of the largest number due. Twice what the right ways of writing an exercise differ by, and more.
TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 2e-5,
    torch.float16: 4e-3,
    torch.bfloat16: 3e-2,
}


def difference(got: Any, due: Any, *, size: float = 1e-3) -> Complaint | None:
    """Compare two results: tensors, numbers, text, or tuples, lists and dicts of these.

    Args:
        got: What came.
        due: What was due.
        size: Rounding is measured against the largest number due, or against this if it is larger.

    Returns:
        The first difference, or None. Its key is ``returns-none``, ``wrong-type``, ``wrong-shape``,
        ``wrong-dtype``, ``not-finite``, ``loses-precision`` or ``differs``.

    Example:
        >>> difference(torch.zeros(2, 3), torch.zeros(3, 2)).says
        'it returned the shape (2, 3), and (3, 2) was due'
        >>> difference(1.0, 1.0 + 1e-12) is None
        True
    """
    if got is None and due is not None:
        return Complaint("returns-none", "it returned None: a return may be missing")
    if isinstance(due, Tensor):
        return _between_tensors(got, due, size)
    if isinstance(due, bool | int | float):
        return _between_numbers(got, due)
    if isinstance(due, dict):
        if not isinstance(got, dict) or got.keys() != due.keys():
            return _type(got, f"a dict with the keys {list(due)}")
        return difference(list(got.values()), [due[k] for k in got], size=size)
    if isinstance(due, tuple | list):
        if not isinstance(got, tuple | list) or len(got) != len(due):
            return _type(got, f"{len(due)} things, as a {type(due).__name__}")
        parts = (difference(g, d, size=size) for g, d in zip(got, due, strict=True))
        return next((part for part in parts if part is not None), None)
    if type(got) is not type(due):
        return _type(got, f"{type(due).__name__}")
    return None if got == due else Complaint("differs", f"it returned {got!r}, {due!r} was due")


def _type(got: Any, due: str) -> Complaint:
    kind = type(got).__name__
    if isinstance(got, tuple | list):
        kind = f"a {kind} of {len(got)}"
    return Complaint("wrong-type", f"it returned {kind}, and {due} was due")


def _between_numbers(got: Any, due: float) -> Complaint | None:
    if isinstance(got, Tensor) and got.ndim == 0:
        got = got.item()
    if isinstance(got, bool) != isinstance(due, bool) or not isinstance(got, bool | int | float):
        return _type(got, f"a {type(due).__name__}")
    if abs(got - due) <= 1e-6 * max(1.0, abs(due)):  # NaN compares as unequal
        return None
    mine, right = (f"{x}" if isinstance(x, bool) else f"{x:.4g}" for x in (got, due))
    return Complaint("differs", f"it returned {mine}, and {right} was due")


def _between_tensors(got: Any, due: Tensor, size: float) -> Complaint | None:
    if not isinstance(got, Tensor):
        return _type(got, "a tensor")
    if got.shape != due.shape:
        words = f"it returned the shape {tuple(got.shape)}, and {tuple(due.shape)} was due"
        return Complaint("wrong-shape", words)
    if got.dtype != due.dtype:
        return Complaint("wrong-dtype", f"it returned {got.dtype}, and {due.dtype} was due")
    if not due.is_floating_point():
        return _of_entries("differs", got != due, got, due)
    got, exact = got.detach().double(), due.detach().double()
    lost = ~got.isfinite() & exact.isfinite()
    if lost.any():
        return _of_entries("not-finite", lost, got, exact)
    size = max(size, float(exact.nan_to_num(0, 0, 0).abs().max())) if exact.numel() else size
    off = (got - exact).abs() / size
    off = torch.where(got == exact, 0.0, off)  # infinite in both
    off = torch.where(got.isnan() & exact.isnan(), 0.0, off).nan_to_num(nan=1.0)
    wrong = off > TOLERANCE[due.dtype]
    rounded = due.dtype == torch.float64 and bool((off < 1e-5).all())
    return _of_entries("loses-precision" if rounded else "differs", wrong, got, exact)


def _of_entries(kind: str, wrong: Tensor, got: Tensor, due: Tensor) -> Complaint | None:
    """How many entries are wrong, and the first of them."""
    if not wrong.any():
        return None
    place = tuple(wrong.nonzero()[0].tolist())
    show = "{}" if due.dtype == torch.bool else "{:.4g}"
    mine, right = show.format(got[place].item()), show.format(due[place].item())
    if kind == "loses-precision":
        mine, right = f"{got[place].item():.12g}", f"{due[place].item():.12g}"
    at = f" at {place}" if place else ""
    words = f"{int(wrong.sum())} of {wrong.numel()} numbers are off;{at} it has {mine}, due {right}"
    return Complaint(kind, words)
