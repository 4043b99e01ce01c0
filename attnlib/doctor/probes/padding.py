"""Padding: replaced, cropped away, on either side, and samples that are nothing else."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlib.doctor.clues import runs, why_padding_leaks
from attnlib.doctor.findings import FAULT, NOTE, WARNING, Finding
from attnlib.doctor.measure import as_heads, different, gap
from attnlib.doctor.patient import Patient
from attnlib.doctor.roles import Inputs


def has_padding(patient: Patient) -> bool:
    """Whether the module is told, or finds out, which tokens are padding."""
    return patient.batched and ("padding" in patient.roles or patient.promises.pad_id is not None)


def some_lengths(patient: Patient) -> list[int]:
    """A different number of real tokens in each sample, one of them full."""
    n = patient.sizes.length
    return [max(1, n - 2), n, max(1, n - 3), max(1, n - 1), max(1, n - 4)][
        : max(1, patient.sizes.batch)
    ]


def real_part(patient: Patient, y: Tensor, keep: Tensor) -> Tensor:
    """The outputs at real tokens, or the whole output if it has no axis of tokens."""
    pooled = patient.out_axis(patient.y) is None
    axis = None if pooled else patient.out_axis(y, keep.shape[1])
    return y if axis is None else y.movedim(axis, 1)[keep]


def replaced_padding(patient: Patient) -> Iterator[Finding]:
    """Give the padding other content: nothing may move at the real tokens.

    Samples have different lengths, so that a mask of another sample shows. If something moves, the
    scores of padded keys tell why: ordinary, exactly 0, hidden in some layers, hidden in rows.
    """
    if not has_padding(patient) or patient.promises.pad_id is not None:
        return
    for left in _sides(patient):
        lengths = some_lengths(patient)
        inputs = patient.make(lengths=lengths, left=left)
        keep = patient.keep(patient.sizes.batch, patient.sizes.length, lengths, left)
        leak = _moved_by_padding(patient, inputs, keep)
        if leak > 10 * patient.floor:
            cause, words = _name(patient, inputs, keep)
            words = f"real tokens moved by {leak:.2g} when only padding changed; {words}"
            yield _judged(patient, left, Finding(cause, FAULT, words))
            return


def _sides(patient: Patient) -> list[bool]:
    """The sides to pad, the example's own first; True is the left."""
    own = patient.pads_left
    if patient.promises.left_padding == "only":
        return [True]
    return [own, not own] if own or patient.promises.left_padding else [False]


def _judged(patient: Patient, left: bool, finding: Finding) -> Finding:
    """A finding, or a note where padding stood on the right and the example has it on the left."""
    if left or not patient.pads_left:
        return finding
    words = "only padding on the left is handled, as in the example; with it on the right, "
    return Finding("observed", NOTE, words + finding.evidence)


def _moved_by_padding(patient: Patient, inputs: Inputs, keep: Tensor) -> float:
    x = patient.main_in(inputs)
    shape = keep.view(*keep.shape, *[1] * (x.ndim - 2)) if x.ndim < 4 else keep[:, None, :, None]
    changed = patient.with_main(inputs, torch.where(shape, x, different(patient, x)))
    before, after = patient.out(inputs), patient.out(changed)
    return gap(real_part(patient, after, keep), real_part(patient, before, keep))


def _name(patient: Patient, inputs: Inputs, keep: Tensor) -> tuple[str, str]:
    left = bool(keep[:, -1].all())
    lengths = [patient.sizes.length - 2]
    equal = patient.make(lengths=lengths, left=left)
    equal_keep = patient.keep(patient.sizes.batch, patient.sizes.length, lengths, left)
    same = _moved_by_padding(patient, equal, equal_keep)
    if same <= 10 * patient.floor:
        return "mask-head-batch-order", "with one length for all samples it does not happen"
    cause, words = why_padding_leaks(patient, inputs, keep)
    if cause == "padding-after-attention" and patient.out_axis(patient.y) is None:
        return _name_pooling(patient, inputs, keep, words)
    return cause, words


def _name_pooling(patient: Patient, inputs: Inputs, keep: Tensor, words: str) -> tuple[str, str]:
    """Whether a mean takes in all padding, or one token in the wrong place was picked."""
    x, other, base = patient.main_in(inputs), None, patient.out(inputs)
    other = different(patient, x)
    shape = [1] * x.ndim
    count = 0
    padded = (~keep).any(0).nonzero().flatten().tolist()
    for s in padded:
        where = torch.arange(keep.shape[1]) == s
        shape[patient.axis] = -1
        mixed = torch.where(where.view(shape), other, x)
        real = keep.view(*keep.shape, *[1] * (x.ndim - 2))
        changed = patient.with_main(inputs, torch.where(real, x, mixed))
        count += gap(patient.out(changed), base) > 10 * patient.floor
    if count == 1 and len(padded) > 1:
        return "pooling-wrong-token", f"{words}; one padded place moves the pooled vector"
    return "pooling-includes-padding", f"{words}; {count} padded places move the pooled vector"


def no_effect(patient: Patient) -> Iterator[Finding]:
    """Two masks, one content: real tokens must notice which others they may see."""
    if "padding" not in patient.roles or not patient.batched:
        return
    lengths = some_lengths(patient)
    inputs = patient.make(lengths=lengths)
    keep = patient.keep(patient.sizes.batch, patient.sizes.length, lengths)
    masked, free = patient.out(inputs), patient.out(patient.base)
    if gap(real_part(patient, masked, keep), real_part(patient, free, keep)) == 0.0:
        if "memory" in patient.roles or (
            patient.promises.causal and patient.out_axis(free) is not None and not patient.pads_left
        ):
            return  # no real token could see right padding, mask or no mask
        yield Finding("padding-ignored", FAULT, "any two padding masks give the same output")


def cropped(patient: Patient) -> Iterator[Finding]:
    """A sample must come out the same with its padding and without it.

    Replacing the padding does not show a mean over all places, whose denominator counts padding, or
    positions that start at the padding. Cutting it off does.
    """
    if not has_padding(patient):
        return
    for left in _sides(patient):
        worst, scale = _crop_gap(patient, left)
        if worst > 1e-4 * max(scale, 1e-3) + 10 * patient.floor:
            cause, others, words = _name_crop(patient, left)
            seen = f"real tokens differ by {worst:.2g} with padding on the "
            seen += f"{'left' if left else 'right'} and without it{words}"
            yield _judged(patient, left, Finding(cause, FAULT, seen, others=others))
            return


def _crop_gap(patient: Patient, left: bool) -> tuple[float, float]:
    lengths = some_lengths(patient)
    inputs = patient.make(lengths=lengths, left=left)
    keep = patient.keep(patient.sizes.batch, patient.sizes.length, lengths, left)
    together = patient.out(inputs)
    worst = 0.0
    for b, length in enumerate(lengths):
        alone = _cut_out(patient, inputs, b, keep)
        if alone is None or length == patient.sizes.length:
            continue
        y = patient.out(alone)
        one = torch.ones(1, length, dtype=torch.bool)
        whole = real_part(patient, together[b : b + 1], keep[b : b + 1])
        worst = max(worst, gap(real_part(patient, y, one), whole))
    return worst, float(together.abs().nan_to_num().max())


def _cut_out(patient: Patient, inputs: Inputs, b: int, keep: Tensor) -> Inputs | None:
    """Sample b without its padding."""
    length = int(keep[b].sum())
    small = patient.make(patient.resized(batch=1, length=length))
    x = patient.main_in(inputs)[b : b + 1]
    places = keep[b].nonzero().flatten()
    small = patient.with_main(small, x.index_select(patient.axis, places))
    for role in ("memory", "memory_padding", "each"):
        for place in patient.roles.get(role, ()):
            small[place] = inputs[place][b : b + 1]
    return small if runs(patient, small) else None


def _name_crop(patient: Patient, left: bool) -> tuple[str, tuple[str, ...], str]:
    lengths = some_lengths(patient)
    inputs = patient.make(lengths=lengths, left=left)
    keep = patient.keep(patient.sizes.batch, patient.sizes.length, lengths, left)
    cause, words = why_padding_leaks(patient, inputs, keep)
    if patient.promises.pad_id is not None and cause != "padding-after-attention":
        return "pad-id", ("padding-leak",), f"; {words}"
    if cause == "padding-after-attention":
        if patient.out_axis(patient.y) is None:
            return "pooling-includes-padding", (), ""
        return ("left-padding-positions" if left else cause), (), f"; {words}"
    return cause, (), f"; {words}"


def other_ids(patient: Patient) -> Iterator[Finding]:
    """Put every token in turn at one place: only the padding may be hidden there.

    The samples of one batch differ at that place alone. A real token that later queries may not
    see is taken for padding.
    """
    promised = {"main": patient.promises.pad_id, "memory": patient.promises.memory_pad_id}
    for role, pad in promised.items():
        if (
            pad is None
            or role not in patient.roles
            or patient.main_in(patient.base, role).ndim != 2
        ):
            continue
        hidden = _hidden_ids(patient, role) - {pad}
        if hidden:
            words = f"queries do not see token {sorted(hidden)[:4]}; padding is token {pad}"
            yield Finding("pad-id", FAULT, words)
            return


def _hidden_ids(patient: Patient, role: str) -> set[int]:
    """The tokens that the last query of some attention cannot see at the second place."""
    rows = patient.vocabulary(patient.given[patient.roles[role][0]]) or 0
    many = min(rows, 64)
    if many < 2:
        return set()
    inputs = patient.make(patient.resized(batch=many))
    inputs = {p: v[:1].expand_as(v).clone() for p, v in inputs.items() if isinstance(v, Tensor)}
    x = inputs[patient.roles[role][0]]
    x[:, 1] = torch.arange(many)
    hidden: set[int] = set()
    for call in patient.hear(inputs)[1].calls:
        scores = as_heads(call.scores, many)
        if scores is None or scores.shape[-1] != x.shape[1]:
            continue
        last = scores[:, :, -1].amax(1)  # (tokens, keys)
        low = last[:, 1] < last.amax(-1) - 50
        if not low.all():
            hidden |= set(low.nonzero().flatten().tolist())
    return hidden


def empty_samples(patient: Patient) -> Iterator[Finding]:
    """A sample that is all padding: NaN stays where it is, at best; it may not spread."""
    if "padding" not in patient.roles or patient.sizes.batch < 2:
        return
    n = patient.sizes.length
    inputs = patient.make(lengths=[n, 0, n])
    try:
        y = patient.out(inputs)
    except Exception as error:
        words = f"a sample that is all padding raises {type(error).__name__}: {error}"
        yield Finding("observed", NOTE, words)
        return
    if y.shape[0] != patient.sizes.batch:
        return
    bad = ~y.isfinite().flatten(1).all(1)
    if bool(bad[1]) and bool(bad[0]):
        yield Finding("empty-sample-poisons", FAULT, "one empty sample makes the others NaN")
    elif bool(bad[1]):
        yield Finding("empty-sample", NOTE, "a sample that is all padding comes out as NaN")


def meaning(patient: Patient) -> Iterator[Finding]:
    """What does True mean in the mask? If nobody says it, and no name does, look who is seen.

    A mask that is promised to keep, and hides, shows here too: real tokens go unseen.
    """
    if "padding" not in patient.roles or not patient.batched or patient.sizes.length < 5:
        return
    n = patient.sizes.length
    lengths = [n - 2]
    inputs = patient.make(lengths=lengths)
    keep = patient.keep(patient.sizes.batch, n, lengths)
    axis = patient.out_axis(patient.y)
    if axis is None or "memory" in patient.roles:
        return
    x, base = patient.main_in(inputs), patient.out(inputs)
    start = 2 if patient.pads_left else 0
    first = torch.arange(n) == start
    shape = [1] * x.ndim
    shape[patient.axis] = -1
    changed = torch.where(first.view(shape), different(patient, x), x)
    after = patient.out(patient.with_main(inputs, changed))
    seen = gap(after.narrow(axis, start + 1, n - 3), base.narrow(axis, start + 1, n - 3))
    leak = _moved_by_padding(patient, inputs, keep)
    if seen <= patient.floor and leak > 10 * patient.floor:
        yield Finding(
            "padding-inverted",
            FAULT if patient.promises.padding_means else WARNING,
            f"a real token moved no other (by {seen:.1g}), padding did (by {leak:.2g})",
        )
