"""Measurements that probes share: who influences whom, and by how much."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from attnlib.doctor.patient import Patient
from attnlib.doctor.roles import Inputs
from attnlib.doctor.trace import AttentionCall, Hearing, Op


def gap(a: Tensor, b: Tensor) -> float:
    """The largest absolute difference; infinite if shapes differ or one of them is not finite."""
    if a.shape != b.shape:
        return float("inf")
    if a.numel() == 0:
        return 0.0
    both_nan = a.isnan() & b.isnan()
    difference = torch.where(both_nan, 0.0, (a.double() - b.double()).abs())
    worst = float(difference.nan_to_num(nan=float("inf"), posinf=float("inf")).max())
    return worst


def moved(a: Tensor, b: Tensor, axis: int) -> Tensor:
    """For each position along an axis, the largest absolute difference."""
    difference = (a.double() - b.double()).abs().nan_to_num(nan=0.0)
    return difference.movedim(axis, 0).flatten(1).amax(1)


def replaced(x: Tensor, other: Tensor, axis: int, where: Tensor) -> Tensor:
    """A sequence with new content at some positions."""
    shape = [1] * x.ndim
    shape[axis] = -1
    return torch.where(where.view(shape), other, x)


def different(patient: Patient, x: Tensor, role: str = "main", salt: int = 7) -> Tensor:
    """Other content of the same shape; each token differs from the old one."""
    place = patient.roles[role][0]
    other = patient.random_like(patient.given[place], tuple(x.shape), salt)
    if x.is_floating_point():
        return other * x.std().clamp(min=1e-3)
    low, high = int(min(x.min(), other.min())), int(max(x.max(), other.max()))
    shifted = torch.where(other == x, low + (x - low + 1) % max(high - low + 1, 2), other)
    pad = patient.pad_of(patient.given[place])
    return shifted if pad is None else torch.where((shifted == pad) | (x == pad), x, shifted)


def influence(
    patient: Patient, inputs: Inputs, role: str | None = None, **how: Any
) -> Tensor | None:
    """How far each output moves when one input token is replaced.

    One token after the other gets new content; everything else stays. Entry (t, s) is the largest
    change of output t when token s changed, over all samples and features. It shows what a map of
    weights cannot: every path from token to output, also around the attention.

    Returns:
        A matrix of shape (outputs, tokens), or None if outputs have no axis of tokens.
    """
    role = role or patient.seen
    x = patient.main_in(inputs, role)
    base = patient.out(inputs, **how)
    axis = patient.out_axis(base)
    if axis is None:
        return None
    run = x.shape[patient._axis(x)]
    other = different(patient, x, role)
    columns = []
    for s in range(run):
        where = torch.arange(run) == s
        changed = replaced(x, other, patient._axis(x), where)
        columns.append(
            moved(patient.out(patient.with_main(inputs, changed, role), **how), base, axis)
        )
    return torch.stack(columns, 1)


def reach(patient: Patient, inputs: Inputs, role: str = "main") -> Tensor:
    """How far the whole output moves when one input token is replaced: one number a token."""
    x = patient.main_in(inputs, role)
    base, other = patient.out(inputs), different(patient, x, role)
    length = x.shape[patient._axis(x)]
    result = []
    for s in range(length):
        changed = replaced(x, other, patient._axis(x), torch.arange(length) == s)
        result.append(gap(patient.out(patient.with_main(inputs, changed, role)), base))
    return torch.tensor(result)


def seen_at_any_scale(patient: Patient, role: str | None = None) -> Tensor | None:
    """The influence matrix, the largest of several draws and scales.

    A saturated softmax hides a key as well as a mask does. To say that a token is never seen, it
    must go unseen at small scores too.
    """
    best = None
    for scale, salt in ((1.0, 0), (0.2, 20)):
        found = influence(patient, patient.make(scale=scale, salt=salt), role)
        if found is None:
            return None
        found = found / found.max().clamp(min=1e-12)
        best = found if best is None else torch.maximum(best, found)
    return best


def future_leak(patient: Patient, inputs: Inputs, run: Callable[[Inputs], Tensor]) -> float:
    """The largest change of an output when only later tokens change, over three cuts."""
    role = patient.seen
    x = patient.main_in(inputs, role)
    along = patient._axis(x)
    length = x.shape[along]
    other, base = different(patient, x, role), run(inputs)
    axis = patient.out_axis(base, length)
    worst = 0.0
    for cut in {0, length // 2, length - 2} if axis is not None else ():
        changed = replaced(x, other, along, torch.arange(length) > cut)
        result = run(patient.with_main(inputs, changed, role))
        worst = max(worst, float(moved(result, base, axis)[: cut + 1].max()))
    return worst


# --------------------------------------------------------------------------- attention calls


def as_heads(tensor: Tensor, batch: int) -> Tensor | None:
    """A tensor of scores or weights as (batch, heads, queries, keys)."""
    if tensor.ndim < 3 or tensor.shape[:-2].numel() % batch:
        return None
    return tensor.reshape(batch, -1, *tensor.shape[-2:])


def hidden_how(call: AttentionCall, hidden: Tensor, rows: Tensor | None = None) -> str:
    """What happened to scores that should be hidden.

    Args:
        call: An attention that was heard.
        hidden: Bool, broadcasts to (batch, 1, queries, keys), True where a key must not be seen.
        rows: Bool, (batch, queries): the queries to look at; all if left out.

    Returns:
        ``"hidden"``, ``"multiplied"`` (all are 0), ``"tiny"`` (one number near 0), ``"after"`` (the
        weights are 0 and the scores are not low), ``"visible"``, or ``"unknown"``.
    """
    scores = as_heads(call.scores, hidden.shape[0])
    if scores is None or scores.shape[-2:] != hidden.shape[-2:] or not hidden.any():
        return "unknown"
    looked = torch.ones_like(hidden) if rows is None else rows[:, None, :, None]
    inside = scores[(hidden & looked).expand_as(scores)]
    outside = scores[(~hidden & looked).expand_as(scores)]
    if not inside.numel() or not outside.numel():
        return "unknown"
    ordinary = outside[outside > -50]  # the rest is hidden by another mask
    lowest = float(ordinary.min()) if ordinary.numel() else 0.0
    if bool((inside < min(-50.0, lowest - 30)).all()):
        return "hidden"
    if bool((inside == 0).all()):
        return "multiplied"
    if bool((inside == inside[0]).all()) and abs(float(inside[0])) < 1:
        return "tiny"
    weights = None if call.weights is None else as_heads(call.weights, hidden.shape[0])
    if weights is not None and weights.shape == scores.shape:
        if bool((weights[(hidden & looked).expand_as(weights)] == 0).all()):
            return "after"
    return "visible"


def zeroed(heard: Hearing) -> dict[int, Callable[[Tensor], Tensor]]:
    """Edits that switch all attention off: each result is zero."""
    return {call.index: torch.zeros_like for call in heard.calls if call.result is not None}


def product_inputs(heard: Hearing, op: Op) -> list[Tensor]:
    """The tensors that an operation read."""
    return [a for a in op.args if isinstance(a, Tensor)]
