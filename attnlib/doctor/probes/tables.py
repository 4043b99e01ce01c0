"""Positions by themselves: tables of sinusoids, encodings that are added, and rotations."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlib.doctor.clues import is_content_free, is_table
from attnlib.doctor.findings import FAULT, WARNING, Finding
from attnlib.doctor.measure import as_heads, gap
from attnlib.doctor.patient import Patient
from attnlib.doctor.stillness import modules_behind
from attnlib.doctor.trace import tensors_in


def table(patient: Patient) -> Iterator[Finding]:
    """A table of positions: rows differ, neighbours resemble each other, and only distance counts.

    With sine and cosine of one frequency side by side, or in two halves, the product of rows i and
    j is a sum of cosines of i - j: constant along each diagonal. Frequencies fall from 1, so
    neighbours are alike. Tables that are learned are only looked at for repeated rows.
    """
    found = patient.y
    if patient.main is None:
        numbers = [v for v in patient.given.values() if type(v) is int]
        if len(numbers) != 1 or not found.is_floating_point():
            return  # a grid, say, has no single distance
        found = found[0] if found.ndim == 3 and len(found) == 1 else found
        if found.ndim == 2 and found.shape[0] != found.shape[1]:
            yield from judge_table(found, _is_learned(patient))
        elif found.ndim in (3, 4) and found.shape[-1] == found.shape[-2]:
            yield from judge_distances(found.flatten(0, -3))
    elif is_content_free(patient):
        rows = found[0] if found.ndim == 3 else found
        if rows.ndim == 2:
            yield from judge_table(rows, _is_learned(patient))
    elif is_table(patient):
        yield from _added(patient)


def _is_learned(patient: Patient) -> bool:
    return any(True for m in modules_behind(patient.called) for _ in m.parameters())


def _added(patient: Patient) -> Iterator[Finding]:
    """The numbers that a module adds to its input, found by giving it zeros."""
    x = patient.main_in(patient.base)
    pe = patient.out(patient.with_main(patient.base, torch.zeros_like(x)))
    if float(pe.abs().max()) < 1e-4:
        return
    if patient.sizes.batch > 1 and gap(pe, pe[:1].expand_as(pe)) > 1e-6:
        yield Finding("positions-on-batch", FAULT, "the numbers added differ between samples")
        return
    rows = pe[0].flatten(0, -3) if pe.ndim > 3 else pe[0]
    yield from judge_table(rows, _is_learned(patient))


def judge_table(pe: Tensor, learned: bool = False) -> Iterator[Finding]:
    """Look at a table of positions, one row each."""
    pe = pe.detach().double()
    n, d = pe.shape
    if not pe.isfinite().all():
        yield Finding("nan", FAULT, "the table of positions is not finite")
        return
    apart = torch.cdist(pe, pe) + torch.eye(n) * 1e9
    if n > 1 and float(apart.min()) < 1e-6:
        i, j = divmod(int(apart.argmin()), n)
        yield Finding("positions-repeat", FAULT, f"rows {i} and {j} of the table are equal")
        return
    sinusoidal = float(pe.abs().max()) <= 1.0001 and float(pe.std()) > 0.3
    if learned or not sinusoidal or d < 4 or n < 4:
        return
    near = float(((pe[:-1] * pe[1:]).sum(-1) / (pe[:-1].norm(dim=-1) * pe[1:].norm(dim=-1))).mean())
    if near < 0.5:
        yield Finding(
            "sinusoid-multiplied",
            FAULT,
            f"neighbouring rows have a cosine similarity of {near:.2f}; a sinusoid that slows down "
            "from channel to channel has 0.75 or more",
        )
        return
    gram = pe @ pe.T
    spread = max(float(gram.diagonal(k).max() - gram.diagonal(k).min()) for k in range(n - 1))
    if spread > 1e-3 * d:
        yield Finding(
            "sinusoid-formula",
            FAULT,
            f"products of rows at one distance differ by up to {spread:.2g}: they should depend on "
            "the distance alone",
        )


def rotation(patient: Patient) -> Iterator[Finding]:
    """A rotation alone: it keeps lengths, and products depend on the distance only.

    The same content stands at every place. What comes out for place i is R(i) c, so its product
    with R(j) c' must be a function of i - j. If it is one of i + j, one of the two was turned the
    other way.
    """
    x = patient.main
    if (
        x is None
        or x.ndim != 4
        or _is_learned(patient)
        or patient.y.shape != patient.main_in(patient.base).shape
    ):
        return
    if patient.promises.causal is not None or not _is_linear(patient):
        return
    a, b = _constant(patient, 1), _constant(patient, 2)
    if gap(a, a[..., :1, :].expand_as(a)) < 1e-6:
        yield Finding(
            "positions-wrong-axis", FAULT, "the same content is turned the same way at every place"
        )
        return
    lengths = a.norm(dim=-1)
    if gap(lengths, lengths[..., :1].expand_as(lengths)) > 1e-3 * float(lengths.max()):
        yield Finding("rotation-layout", FAULT, "the length of a vector changes with its place")
        return
    yield from judge_relative(a[0] @ b[0].transpose(-2, -1))


def _is_linear(patient: Patient) -> bool:
    x = patient.main_in(patient.base)
    double = patient.out(patient.with_main(patient.base, 2 * x))
    return gap(double, 2 * patient.y) < 1e-4 and float(patient.y.abs().max()) > 0


def _constant(patient: Patient, number: int) -> Tensor:
    """The output for one content at every place; the second output if there are two."""
    x = patient.main_in(patient.make(salt=30 + number))
    inputs = patient.with_main(patient.base, x[..., :1, :].expand_as(x).clone())
    for place in patient.roles.get("memory", ()):
        inputs[place] = inputs[place][..., :1, :].expand_as(inputs[place]).clone()
    outs = list(tensors_in(patient.call(inputs)))
    return outs[1] if number == 2 and len(outs) == 2 else outs[0]


def judge_relative(scores: Tensor) -> Iterator[Finding]:
    """Whether scores of constant content depend on the distance alone.

    Args:
        scores: Of shape (heads, queries, keys), with as many keys as queries.
    """
    size = float(scores.max() - scores.min())
    n = scores.shape[-1]
    along = max(
        float((d.amax(-1) - d.amin(-1)).max())
        for d in (scores.diagonal(k, -2, -1) for k in range(2 - n, n - 1))
    )
    if along <= 1e-3 * max(size, 1e-3):
        return
    flipped = scores.flip(-1)
    across = max(
        float((d.amax(-1) - d.amin(-1)).max())
        for d in (flipped.diagonal(k, -2, -1) for k in range(2 - n, n - 1))
    )
    if across <= 1e-3 * size:
        yield Finding("rotation-opposite", FAULT, "scores of constant content depend on i + j")
    else:
        yield Finding(
            "rotation-not-relative",
            FAULT,
            f"scores of constant content at one distance differ by {along:.2g} of {size:.2g}",
        )


def inside(patient: Patient) -> Iterator[Finding]:
    """Positions inside an attention: give every token one content, and look at the scores.

    With constant content, all that is left in the scores is position. If queries differ from place
    to place though their projections do not, they were rotated, and the scores must depend on the
    distance alone. A bias that rises with the distance favours what is far.
    """
    calls = [c for c in patient.heard.calls if c.product is not None]
    x = patient.main
    if not calls or x is None or not x.is_floating_point() or x.ndim != 3 or is_table(patient):
        return
    base = patient.main_in(patient.base)
    constant = patient.with_main(patient.base, base[:, :1].expand_as(base).clone())
    heard = patient.hear(constant)[1]
    call = next(c for c in heard.calls if c.product is not None)
    q, k = (as_heads(t, patient.sizes.batch) for t in (call.product.q, call.product.k))
    scores = as_heads(call.scores, patient.sizes.batch)
    length = patient.sizes.length
    if q is None or scores is None or scores.shape[-2:] != (length, length):
        return
    if q.shape[2] == length and k is not None and k.shape[2] == length:
        yield from _rotated(patient, heard, q[0], k[0], call)
    yield from _by_distance(scores[0], q[0], patient)


def _rotated(
    patient: Patient, heard: object, q: Tensor, k: Tensor, call: object
) -> Iterator[Finding]:
    turned = gap(q, q[:, :1].expand_as(q)) > 1e-5 * float(q.abs().max())
    if not turned or not _projected_alike(patient, heard, call):
        return
    for t, name in ((q, "queries"), (k, "keys")):
        lengths = t.norm(dim=-1)
        spread = gap(lengths, lengths[:, :1].expand_as(lengths))
        if spread > 1e-3 * float(lengths.max()):
            words = f"lengths of {name} of one content differ by {spread:.2g} from place to place"
            yield Finding("rotation-layout", WARNING, words, others=("rotation-not-relative",))
            return
    if k.shape[0] != q.shape[0]:
        k = k.repeat_interleave(q.shape[0] // k.shape[0], 0)
    yield from judge_relative(q @ k.transpose(-2, -1))
    v = None if call.v is None else as_heads(call.v, patient.sizes.batch)
    if v is not None and gap(v, v[:, :, :1].expand_as(v)) > 1e-5 * float(v.abs().max()):
        yield Finding("rotated-values", WARNING, "values of one content differ from place to place")


def _projected_alike(patient: Patient, heard: object, call: object) -> bool:
    """Whether the last projection before the score gave every place the same vector."""
    batch, length = patient.sizes.batch, patient.sizes.length
    for op in reversed(heard.ops[: call.product.index]):
        if op.name in {"mm", "addmm"} and op.outs[0].shape[0] == batch * length:
            rows = op.outs[0].detach()
            one = rows.view(batch, length, -1) if rows.is_contiguous() else None
            if one is None:
                return False
            return gap(one, one[:, :1].expand_as(one)) < 1e-5 * float(one.abs().max())
    return False


def _by_distance(scores: Tensor, q: Tensor, patient: Patient) -> Iterator[Finding]:
    """A bias that is linear in the distance must fall with it."""
    if gap(q, q[:, :1].expand_as(q)) > 1e-5 * float(q.abs().max()):
        return
    yield from judge_distances(scores)


def judge_distances(scores: Tensor) -> Iterator[Finding]:
    """Whether a bias that is linear in the distance falls with it.

    Args:
        scores: Of shape (heads, queries, keys), of constant content.
    """
    n = scores.shape[-1]
    steps = torch.stack(
        [scores.diagonal(-k, -2, -1)[:, -1] for k in range(n)], -1
    )  # (heads, distance), looking back from the last query
    if not steps.isfinite().all():
        return
    slope = steps[:, 1:] - steps[:, :-1]
    flat = gap(slope, slope[:, :1].expand_as(slope)) <= 1e-3 * float(slope.abs().max())
    if flat and float(slope[:, 0].max()) > 1e-4 and bool((slope[:, 0] > 0).all()):
        yield Finding(
            "distance-rewarded",
            FAULT,
            f"with constant content the score rises by {float(slope[:, 0].max()):.2g} a token of "
            "distance",
        )
