"""Order: can the module tell one order of tokens from another, where it should?"""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlib.doctor.clues import is_content_free, is_table, matters
from attnlib.doctor.findings import FAULT, NOTE, WARNING, Finding
from attnlib.doctor.measure import gap
from attnlib.doctor.patient import Patient

POSITION_WORDS = ("pos", "rope", "rotary", "freq", "angle", "pe", "bias_table", "rel")


def permuted(patient: Patient, order: Tensor) -> tuple[float, float]:
    """How far the output of permuted tokens is from the permuted output, and from the old one."""
    x = patient.main_in(patient.base)
    y = patient.y
    new = patient.out(patient.with_main(patient.base, x.index_select(patient.axis, order)))
    axis = patient.out_axis(y)
    along = [y if axis is None else y.index_select(axis, order)]
    for other in range(1, y.ndim):  # maps of pairs, and choices among the tokens
        if y.shape[other] == len(order) and other != axis:
            along += [y.index_select(other, order), along[0].index_select(other, order)]
    return min(gap(new, expected) for expected in along), gap(new, y)


def order(patient: Patient) -> Iterator[Finding]:
    """Permute the tokens: does the output do more than move along?

    Attention alone is blind to order. If order is meant to matter and outputs just move along, no
    position reaches the scores: it was forgotten, or it runs along another axis. If reversing moves
    along and permuting does not, distance is seen and direction is not.
    """
    if patient.main is None or not patient.batched or patient.sizes.length < 4:
        return
    if "memory" in patient.roles or "documents" in patient.roles or is_table(patient):
        return
    if "labels" in patient.roles or patient.y.ndim < 2 or is_content_free(patient):
        return
    if patient.promises.causal:
        yield from _past(patient)
        return
    length = patient.sizes.length
    level = 1e-5 * max(float(patient.y.abs().max()), 1e-3) + 10 * patient.floor
    mixed = torch.tensor([2, 0, 3, 1, *range(4, length)])
    blind = permuted(patient, mixed)[0] <= level
    mirror = permuted(patient, torch.arange(length).flip(0))[0] <= level
    matters = patient.promises.order_matters
    if blind and matters:
        words = "permuting the tokens permuted the outputs, and did nothing else"
        yield _invisible(patient, words)
    elif matters is False and not (blind and mirror):
        yield Finding(
            "order-visible", WARNING, "permuting the tokens did more than permute the outputs"
        )
    elif mirror and not blind:
        yield Finding(
            "direction-invisible",
            WARNING if matters else NOTE,
            "reversing the tokens reversed the outputs, exactly; other permutations are noticed"
            + ("" if matters else "; fine for a bias by distance, such as ALiBi in an encoder"),
        )


def _invisible(patient: Patient, seen: str) -> Finding:
    x = patient.main_in(patient.base)
    copies = x[:1].expand_as(x).clone()
    y = patient.out(patient.with_main(patient.base, copies))
    if patient.sizes.batch > 1 and gap(y, y[:1].expand_as(y)) > 10 * patient.floor:
        return Finding(
            "positions-on-batch", FAULT, f"{seen}; copies of a sample differ by their index"
        )
    signs = position_signs(patient)
    if signs:
        return Finding(
            "positions-wrong-axis",
            FAULT,
            f"{seen}, although positions are there: {signs}",
            others=("order-invisible",),
        )
    return Finding("order-invisible", FAULT, seen)


def position_signs(patient: Patient) -> str:
    """What in a module looks like positions and has an effect; empty if nothing does."""
    turning = [op for op in patient.heard.ops if op.name in {"sin", "cos"}]
    if turning:
        return f"angles of shape {tuple(turning[-1].outs[0].shape)}"
    stored = [n for n in _names(patient) if any(w in n.lower() for w in POSITION_WORDS)]
    return ", ".join([n for n in stored if matters(patient, n, patient.base)][:3])


def _names(patient: Patient) -> list[str]:
    if not patient.is_module:
        return []
    named = [*patient.called.named_parameters(), *patient.called.named_buffers()]
    return [name for name, _ in named]


def _past(patient: Patient) -> Iterator[Finding]:
    """In a causal module: does the last output notice the order of what came before?

    The triangle alone breaks the symmetry for all but the last token of one layer (NoPE), so this
    is judged only where order was promised to matter.
    """
    axis = patient.out_axis(patient.y)
    if not patient.promises.order_matters or axis is None:
        return
    length = patient.sizes.length
    mixed = torch.tensor([2, 0, 3, 1, *range(4, length)])
    x = patient.main_in(patient.base)
    new = patient.out(patient.with_main(patient.base, x.index_select(patient.axis, mixed)))
    last = length - 1
    shift = gap(new.select(axis, last), patient.y.select(axis, last))
    if shift <= 1e-5 * float(patient.y.abs().max()) + 10 * patient.floor:
        words = f"the last output moved by {shift:.1g} when earlier tokens changed places"
        yield Finding("order-invisible", FAULT, words)
