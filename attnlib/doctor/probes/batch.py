"""Samples must not know of each other."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlib.doctor.clues import hides_other_samples, is_content_free, softmax_axis
from attnlib.doctor.findings import FAULT, WARNING, Finding
from attnlib.doctor.measure import different, gap, moved
from attnlib.doctor.patient import Patient
from attnlib.doctor.probes.padding import some_lengths
from attnlib.doctor.roles import Inputs


def comparable(patient: Patient) -> bool:
    """Whether there are samples to compare, and an output for each."""
    return (
        patient.batched
        and patient.sizes.batch > 1
        and patient.y.ndim >= 1
        and patient.y.shape[0] == patient.sizes.batch
        and "labels" not in patient.roles
        and not is_content_free(patient)
    )


def other_samples(patient: Patient) -> Iterator[Finding]:
    """Replace one sample: the others may not move, and it must.

    How they move tells why: through the same place in the sequence only, when attention runs over
    the batch; in a scattered pattern, when view re-cut the memory; only for unequal lengths, when
    a mask is in the wrong order.
    """
    if not comparable(patient):
        return
    lengths = some_lengths(patient) if "padding" in patient.roles else None
    for some in (None, lengths):
        inputs = patient.make(lengths=some)
        worst, own = _cross_talk(patient, inputs, some)
        if worst > 10 * patient.floor:
            cause, words = _name(patient, inputs, some)
            yield Finding(
                cause,
                FAULT,
                f"other samples moved by {worst:.2g} when one sample changed; {words}",
            )
            return
        if own <= patient.floor:
            yield Finding("wrong-sample", FAULT, "a sample changed and its own output did not")
            return
        if lengths is None:
            break
    if not patient.random:  # other shapes roll other dice
        yield from _alone(patient, lengths)


def _swapped(patient: Patient, inputs: Inputs, b: int) -> Inputs:
    """The inputs with sample b replaced, in every sequence."""
    new = dict(inputs)
    for role in ("main", "memory", "each"):
        for place in patient.roles.get(role, ()):
            x = inputs[place]
            other = different(patient, x, role)
            mine = (torch.arange(x.shape[0]) == b).view(-1, *[1] * (x.ndim - 1))
            new[place] = torch.where(mine, other, x)
    places = patient.roles.get("main", ())
    for place in places[1:]:
        new[place] = new[places[0]]
    return new


def _cross_talk(patient: Patient, inputs: Inputs, lengths: list[int] | None) -> tuple[float, float]:
    """How far the other samples move, and the least that a changed sample moves itself."""
    base = patient.out(inputs)
    keep = patient.keep(patient.sizes.batch, patient.sizes.length, lengths)
    axis = patient.out_axis(base)
    worst, own = 0.0, float("inf")
    for b in range(patient.sizes.batch):
        new = patient.out(_swapped(patient, inputs, b))
        change = (new - base).abs()
        if axis is not None:
            shown = keep.view(*keep.shape, *[1] * (change.ndim - 2))
            change = torch.where(shown, change.movedim(axis, 1), 0.0)
        each = change.flatten(1).amax(1)
        others = torch.arange(len(each)) != b
        worst, own = max(worst, float(each[others].max())), min(own, float(each[b]))
    return worst, own


def _alone(patient: Patient, lengths: list[int] | None) -> Iterator[Finding]:
    """A sample must come out the same alone and in company."""
    for some in {None, tuple(lengths) if lengths else None}:
        inputs = patient.make(lengths=None if some is None else list(some))
        together = patient.out(inputs)
        one = {
            p: v[:1] if isinstance(v, Tensor) and self_sized(patient, p, v) else v
            for p, v in inputs.items()
        }
        try:
            alone = patient.out(one)
        except Exception:
            return  # other_sizes reports it
        keep = patient.keep(patient.sizes.batch, patient.sizes.length, some and list(some))
        axis = patient.out_axis(together)
        a, b = alone, together[:1]
        if axis is not None:
            a, b = a.movedim(axis, 1)[keep[:1]], b.movedim(axis, 1)[keep[:1]]
        difference = gap(a, b)
        if difference > 1e-4 * max(1.0, float(together.abs().max())) + 10 * patient.floor:
            if some is not None and _is_mask_skipped(patient, one, a, axis, keep[:1]):
                words = "for one sample alone, a mask with padding and one without give the same"
                yield Finding("padding-ignored", FAULT, words)
                return
            yield Finding(
                "samples-mix" if some is None else "mask-head-batch-order",
                FAULT,
                f"sample 0 differs by {difference:.2g} alone and with others in the batch",
            )
            return


def _is_mask_skipped(
    patient: Patient, one: Inputs, alone: Tensor, axis: int | None, keep: Tensor
) -> bool:
    """Whether a sample alone comes out the same when its mask hides nothing."""
    free = patient.make(patient.resized(batch=1))
    masks = {p: free[p] for p in patient.roles.get("padding", ())}
    y = patient.out({**one, **masks})
    return gap(y if axis is None else y.movedim(axis, 1)[keep], alone) == 0.0


def self_sized(patient: Patient, place: int | str, value: Tensor) -> bool:
    """Whether an argument has one entry for each sample."""
    known = {p for places in patient.roles.values() for p in places}
    return (
        value.ndim > 0
        and value.shape[0] == patient.sizes.batch
        and (place in known or value.ndim > 2)
    )


def _name(patient: Patient, inputs: Inputs, lengths: list[int] | None) -> tuple[str, str]:
    if lengths is not None:
        keep = patient.keep(patient.sizes.batch, patient.sizes.length, lengths)
        words = "only when samples have different lengths"
        if hides_other_samples(patient, inputs, keep):
            words += ": some heads hide the padding of another sample"
        return "mask-head-batch-order", words
    for call in patient.heard.calls:
        if softmax_axis(patient, call) == "softmax-over-batch":
            return "softmax-over-batch", "the softmax runs over the batch"
    for op in patient.heard.ops:
        if op.name == "native_batch_norm":
            return "batch-statistics", "a batch normalisation was heard"
    return _pattern(patient, inputs)


def _pattern(patient: Patient, inputs: Inputs) -> tuple[str, str]:
    """Change one token of one sample: which (sample, token) moves?"""
    axis = patient.out_axis(patient.y)
    x = patient.main_in(inputs)
    if axis is None or x.ndim > 3:
        return "samples-mix", ""
    changed = x.clone()
    place = patient.sizes.length // 2
    changed[0, place] = different(patient, x)[0, place]
    base, new = patient.out(inputs), patient.out(patient.with_main(inputs, changed))
    hit = (new - base).abs().flatten(2).amax(2) > 10 * patient.floor  # (batch, tokens)
    same_place = hit.clone()
    same_place[:, place] = False
    if hit[:, place].all() and not same_place.any():
        return "attends-over-batch", "a token reaches the same place of every sample, and no other"
    if hit.all():
        return "samples-mix", "one token reaches every token of every sample"
    return "view-for-transpose", (
        f"token {place} of sample 0 reaches {[tuple(p) for p in hit.nonzero().tolist()][:8]} "
        "(sample, token)"
    )


def index(patient: Patient) -> Iterator[Finding]:
    """The same sample at every index of the batch must give the same output."""
    if not comparable(patient) or patient.random:
        return
    inputs = dict(patient.base)
    for role in ("main", "memory", "each"):
        for place in patient.roles.get(role, ()):
            inputs[place] = inputs[place][:1].expand_as(inputs[place]).clone()
    for place in patient.roles.get("main", ())[1:]:
        inputs[place] = inputs[patient.roles["main"][0]]
    y = patient.out(inputs)
    worst = float(moved(y, y[:1].expand_as(y), 0).max())
    if worst > 10 * patient.floor:
        severity = FAULT if worst > 1e-4 * float(y.abs().max()) else WARNING
        yield Finding(
            "index-in-batch",
            severity,
            f"copies of one sample differ by {worst:.2g} from one index of the batch to another",
            others=("positions-on-batch",),
        )
