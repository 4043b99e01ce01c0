"""Heads: how they are split, projected, repeated and merged."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlib.doctor.clues import cut_across, merged_wrong
from attnlib.doctor.findings import FAULT, NOTE, WARNING, Finding
from attnlib.doctor.measure import as_heads, different, gap
from attnlib.doctor.patient import Patient


def split_and_merge(patient: Patient) -> Iterator[Finding]:
    """Row t of the queries comes from token t, and result t goes to output t.

    A view without a transpose has the right shape and cuts across tokens. The first attention
    shows how tokens come in, the last one how results go out.
    """
    if patient.main is None or not patient.batched:
        return
    for found in (cut_across(patient), merged_wrong(patient)):
        if found is not None:
            yield Finding(found[0], FAULT, found[1])


def own_slice(patient: Patient) -> Iterator[Finding]:
    """Replace one slice of the features, as wide as a head: which heads' queries move?

    A projection of the whole width lets every head see every feature. If each head moves with one
    slice only, the input was cut into heads before it was projected.
    """
    x = patient.main
    calls = [c for c in patient.heard.calls if c.product is not None]
    if x is None or not calls or not x.is_floating_point() or x.ndim != 3:
        return
    q = as_heads(calls[0].product.q, patient.sizes.batch)
    if q is None or q.shape[1] < 2 or q.shape[1] * q.shape[3] != x.shape[-1]:
        return
    heads, width = q.shape[1], q.shape[3]
    base = patient.main_in(patient.base)
    other, rows = different(patient, base), []
    for slice_number in range(heads):
        where = torch.arange(x.shape[-1]) // width == slice_number
        heard = patient.hear(patient.with_main(patient.base, torch.where(where, other, base)))[1]
        new = next(c for c in heard.calls if c.product is not None).product.q
        new = as_heads(new, patient.sizes.batch)
        rows.append((new - q).abs().amax((0, 2, 3)) > 1e-6 * float(q.abs().max()))
    seen = torch.stack(rows)  # (slice, head)
    if not bool((seen.sum(0) == 1).all() and (seen.sum(1) == 1).all()):
        return
    shared = _interchangeable(patient, base, q, width)
    words = "each head's queries move with one slice of the features only"
    words += "; moving the slices along moves the heads along: one projection serves all"
    if shared:
        yield Finding("heads-see-own-slice", FAULT, words)
    else:
        yield Finding("heads-see-own-slice", WARNING, words.split(";")[0])


def _interchangeable(patient: Patient, base: Tensor, q: Tensor, width: int) -> bool:
    heard = patient.hear(patient.with_main(patient.base, base.roll(width, -1)))[1]
    new = next(c for c in heard.calls if c.product is not None).product.q
    return gap(as_heads(new, patient.sizes.batch), q.roll(1, 1)) < 1e-5 * float(q.abs().max())


def groups(patient: Patient) -> Iterator[Finding]:
    """Which heads share their keys, and do the same heads share their values?

    Grouped-query attention repeats keys and values for the query heads. Both must be repeated in
    one order, and there must be as many different ones as were promised.
    """
    for call in patient.heard.calls:
        if call.product is None or call.v is None:
            continue
        k, v = (as_heads(t, patient.sizes.batch) for t in (call.product.k, call.v))
        q = as_heads(call.product.q, patient.sizes.batch)
        if k is None or v is None or q is None or k.shape[1] != v.shape[1] or k.shape[1] < 2:
            continue
        of_k, of_v = partition(k), partition(v)
        if of_k != of_v and max(of_k) > 0 and max(of_v) > 0:
            words = f"heads share keys as {of_k} and values as {of_v}"
            if len(set(of_k)) < len(of_k) and len(set(of_v)) < len(of_v):
                yield Finding("kv-groups-differ", FAULT, words)
                return
        yield from _count(patient, q, of_k, of_v)
        return


def partition(t: Tensor) -> list[int]:
    """For each head, the first head that holds the same numbers."""
    heads = t.shape[1]
    return [next(j for j in range(h + 1) if torch.equal(t[:, h], t[:, j])) for h in range(heads)]


def _count(patient: Patient, q: Tensor, of_k: list[int], of_v: list[int]) -> Iterator[Finding]:
    promised = patient.promises.kv_heads
    heads = len(of_k)
    found = len(set(of_k))
    if promised and heads > promised and found != promised and heads == q.shape[1]:
        words = f"{promised} key and value heads were promised, {found} different ones are used"
        yield Finding("kv-heads-differ", WARNING, words)
    if len(set(partition(q))) == 1 and q.shape[1] > 1 and found == 1:
        severity = WARNING if len(set(of_v)) > 1 else FAULT
        yield Finding("heads-are-copies", severity, f"all {heads} heads have the same scores")
    elif not promised and found == 1 and heads > 1 and len(set(of_v)) == 1:
        yield Finding("observed", NOTE, "all heads share keys and values: multi-query attention")
