"""Cross-attention: the memory is read, all of it, with its own mask, by the right queries."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlib.doctor.findings import FAULT, NOTE, WARNING, Finding
from attnlib.doctor.measure import different, gap, reach, replaced, seen_at_any_scale
from attnlib.doctor.patient import Patient
from attnlib.doctor.probes.order import position_signs
from attnlib.doctor.probes.padding import real_part
from attnlib.doctor.roles import Inputs
from attnlib.doctor.trace import tensors_in

STATES = {"memory", "mem", "enc", "enc_out", "encoder", "encoder_output", "encoder_out"}
STATES |= {"encoder_hidden_states", "source_states"}


def memory(patient: Patient) -> Iterator[Finding]:
    """Replace one token of the memory after the other: each must reach some output.

    No output moves: keys and values come from elsewhere. Only the last ones count: a window was
    inherited. The output has the length of the memory: the roles are swapped.
    """
    if "memory" not in patient.roles or patient.y.ndim < 2:
        return
    if patient.sizes.length != patient.sizes.memory and patient.out_axis(patient.y) is None:
        axis = patient.out_axis(patient.y, patient.sizes.memory)
        if axis is not None:
            words = f"{patient.sizes.length} queries and {patient.sizes.memory} memory tokens give"
            words += f" an output of shape {tuple(patient.y.shape)}"
            yield Finding("queries-from-memory", FAULT, words)
            return
    if _reaches_another_output(patient):
        return
    seen = reach(patient, patient.base, "memory")
    for salt in (20, 21):
        small = patient.make(scale=0.2, salt=salt)
        seen = torch.maximum(seen, reach(patient, small, "memory"))
    level = max(patient.floor, 1e-7 * float(seen.max()))
    unseen = (seen <= level).nonzero().flatten().tolist()
    if len(unseen) == len(seen):
        yield Finding("memory-ignored", FAULT, "replacing the whole memory moved no output")
    elif unseen:
        words = f"tokens {unseen} of a memory of {len(seen)} have no influence on any output"
        yield Finding("memory-truncated", FAULT, words)
    elif not patient.is_qkv:
        yield from _seen_in_part(patient)


def _seen_in_part(patient: Patient) -> Iterator[Finding]:
    """Whether a triangle lies on the memory: an output sees it up to its own place only."""
    pairs = seen_at_any_scale(patient, "memory")
    if pairs is None or len(pairs) < 3:
        return
    ahead = torch.ones_like(pairs, dtype=torch.bool).triu(1)
    if ahead.any() and float(pairs[ahead].max()) <= 2e-6 < float(pairs[~ahead].min()):
        words = "no output sees a token of the memory that is further on than its own place"
        yield Finding("memory-truncated", FAULT, words)


def _reaches_another_output(patient: Patient) -> bool:
    """Whether the memory is what a second output is made of, as in a rotation of q and k."""
    x = patient.main_in(patient.base, "memory")
    changed = patient.with_main(patient.base, different(patient, x, "memory"), "memory")
    outs, new = (list(tensors_in(patient.call(i))) for i in (patient.base, changed))
    return len(outs) == 2 and outs[1].shape == x.shape and gap(outs[1], new[1]) > patient.floor


def memory_order(patient: Patient) -> Iterator[Finding]:
    """Permute the memory, its mask included: attention over states does not notice.

    A memory carries its positions inside, put there by the encoder. A module that encodes the
    memory itself sees order by right, and so may one that adds positions to what it reads. So it
    is judged only where each key comes from its own place of the memory, and positions count as
    wrong only where the memory is called an encoder's states.
    """
    p = patient.promises
    if "memory" not in patient.roles or not patient.batched or _is_ordered(patient):
        return
    shift = _permuted_memory(patient)
    if shift <= 1e-5 * max(float(patient.y.abs().max()), 1e-3) + 10 * patient.floor:
        return
    words = f"outputs moved by {shift:.2g} when the memory was permuted, its mask with it"
    signs = position_signs(patient)
    if p.order_matters is False:
        yield Finding("memory-order", WARNING, words)
    elif not _reads_each_place_alone(patient):
        return
    elif not signs:
        yield Finding("memory-order", FAULT, f"{words}; no positions were found in the module")
    elif p.order_matters or patient.name_of(patient.roles["memory"][0]).lower() not in STATES:
        yield Finding("memory-order", NOTE, f"{words}; the module adds positions to it: {signs}")
    else:
        yield Finding("memory-order", WARNING, f"{words}; positions are added again: {signs}")


def _is_ordered(patient: Patient) -> bool:
    """Whether what was promised or given makes the order of the memory matter."""
    p, m = patient.promises, patient.sizes.memory
    if (patient.is_qkv and p.causal is not False) or p.window or "documents" in patient.roles:
        return True
    known = {place for places in patient.roles.values() for place in places}
    rest = [v for place, v in patient.base.items() if place not in known]
    return any(isinstance(v, Tensor) and m in v.shape and v.unique().numel() > 1 for v in rest)


def _permuted_memory(patient: Patient) -> float:
    """How far outputs are from the old ones when the memory is permuted."""
    m, inputs = patient.sizes.memory, dict(patient.base)
    turned = torch.arange(m).roll(2).flip(0)
    for role in ("memory", "memory_padding"):
        for place in patient.roles.get(role, ()):
            x = inputs[place]
            if x.ndim > 1:
                axis = patient._axis(x) if role == "memory" else x.ndim - 1
                inputs[place] = x.index_select(axis, turned)
    y, new = patient.y, patient.out(inputs)
    along = [i for i in range(1, y.ndim) if y.shape[i] == m]  # choices among the memory's tokens
    return min(gap(new, old) for old in (y, *[y.index_select(i, turned) for i in along]))


def _reads_each_place_alone(patient: Patient) -> bool:
    """Whether one token of the memory moves its own scores, and no others, where it is first read.

    In a module that encodes the memory, a token moves the scores of its neighbours too.
    """
    x, m = patient.main_in(patient.base, "memory"), patient.sizes.memory
    if not x.is_floating_point():
        return False
    where = torch.arange(m) == 1
    new = replaced(x, different(patient, x, "memory"), patient._axis(x), where)
    after = patient.hear(patient.with_main(patient.base, new, "memory"))[1].calls
    for old, now in zip(patient.heard.calls, after, strict=False):
        if old.scores.shape != now.scores.shape or m not in old.scores.shape:
            continue
        change = (old.scores - now.scores).nan_to_num().abs()
        if float(change.max()) > 1e-5 * float(old.scores.nan_to_num().abs().max()):
            axis = old.scores.ndim - 1 if old.scores.shape[-1] == m else old.dim
            rows = change.movedim(axis, 0).flatten(1).amax(1)
            return old.scores.shape[axis] == m and not bool((rows[~where] > 1e-6).any())
    return False


def memory_padding(patient: Patient) -> Iterator[Finding]:
    """Padding of the memory must be hidden, by the memory's own mask.

    With two masks of one shape it is easy to pass the wrong one. So the target's mask is varied
    while the memory's says that some tokens are padding, and the other way round: what is hidden
    must follow the memory's mask.
    """
    if "memory" not in patient.roles:
        return
    yield from _memory_cropped(patient)
    if "memory_padding" not in patient.roles:
        return
    n, m = patient.sizes.length, patient.sizes.memory
    inputs = patient.make(memory_lengths=[m - 2])
    leak = _moved(patient, inputs, range(m - 2, m))
    if leak <= 10 * patient.floor:
        return
    if "padding" in patient.roles and n == m:
        masked = patient.make(lengths=[n - 3], left=False)
        keep = patient.keep(patient.sizes.batch, n, [n - 3], False)
        lost = _moved(patient, masked, range(n - 2, m), keep)
        if lost <= 10 * patient.floor:
            yield Finding(
                "memory-mask-from-target",
                FAULT,
                f"padding of the memory moved outputs by {leak:.2g}; real tokens of the memory go "
                "unseen where the target has padding",
            )
            return
    words = f"outputs moved by {leak:.2g} when only the memory's padding changed"
    yield Finding("memory-padding-leak", FAULT, words)


def _memory_cropped(patient: Patient) -> Iterator[Finding]:
    """Cut off the padding of a memory whose padding is told by its tokens."""
    x = patient.main_in(patient.base, "memory")
    if patient.promises.memory_pad_id is None or x.is_floating_point():
        return
    m = patient.sizes.memory
    inputs = patient.make(memory_lengths=[m - 2])
    place = patient.roles["memory"][0]
    short = {**inputs, place: inputs[place][:, : m - 2]}
    a, b = patient.out(inputs), patient.out(short)
    if gap(a, b) > 1e-4 * max(float(b.abs().max()), 1e-3) + 10 * patient.floor:
        words = f"outputs differ by {gap(a, b):.2g} with padding in the memory and without it"
        yield Finding("memory-padding-leak", FAULT, words)


def _moved(patient: Patient, inputs: Inputs, places: range, keep: Tensor | None = None) -> float:
    """How far outputs move when some places of the memory change."""
    x = patient.main_in(inputs, "memory")
    shape = [1] * x.ndim
    shape[patient._axis(x)] = -1
    where = torch.tensor([i in places for i in range(patient.sizes.memory)]).view(shape)
    changed = torch.where(where, different(patient, x, "memory"), x)
    base, new = patient.out(inputs), patient.out(patient.with_main(inputs, changed, "memory"))
    if keep is None:
        return gap(new, base)
    return gap(real_part(patient, new, keep), real_part(patient, base, keep))
