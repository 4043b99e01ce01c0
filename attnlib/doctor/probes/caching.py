"""The cache of keys and values: decoding step by step must equal the full pass, at every split."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from attnlib.doctor.findings import FAULT, WARNING, Finding
from attnlib.doctor.measure import as_heads, gap
from attnlib.doctor.patient import Patient
from attnlib.doctor.roles import Inputs
from attnlib.doctor.trace import AttentionCall, Hearing, Listener

Step = Callable[[Any, Any, Any], tuple[Any, Any]]


def stepper(patient: Patient) -> Step | None:
    """A function that decodes one chunk: from a module, inputs and a cache to output and cache."""
    how = patient.promises.cache
    if how is None:
        return None
    if callable(how):
        return lambda module, inputs, cache: how(module, patient.main_in(inputs), cache)
    name = how if isinstance(how, str) else patient.name_of(how)

    def step(module: Any, inputs: Inputs, cache: Any) -> tuple[Any, Any]:
        rest = {p: v for p, v in inputs.items() if p != how and p != name}
        output = patient.call(rest, module=module, more={name: cache})
        if hasattr(output, name):
            return output, getattr(output, name)
        return output[0], output[1]

    return step


def decoded(patient: Patient, step: Step, sizes: list[int]) -> Tensor:
    """The outputs of a decoding in chunks of some sizes, one after the other."""
    module, cache, parts, start = patient.fresh(), None, [], 0
    patient._switch(module, False)
    x = patient.main_in(patient.base)
    for size in sizes:
        inputs = patient.with_main(patient.base, x.narrow(patient.axis, start, size))
        with torch.no_grad():
            output, cache = step(module, inputs, cache)
        parts.append(patient.main_of(output))
        start += size
    return torch.cat(parts, patient.out_axis(parts[0], sizes[0]) or 1)


def splits(length: int) -> list[list[int]]:
    """Token by token, then two chunks cut at every place, then three."""
    two = [[cut, length - cut] for cut in range(1, length)]
    return [[1] * length, *two, [2, 1, length - 3]]


def cache(patient: Patient) -> Iterator[Finding]:
    """Compare the full pass with decoding in chunks, cut at every place.

    If they differ, the keys of one step are compared with those of the full pass, layer by layer.
    Other keys mean other positions, from the first layer on or above it. The same keys mean that
    the step sees other ones: the mask is aligned with the wrong corner, or keys are lost.
    """
    step = stepper(patient)
    if step is None or patient.main is None or not patient.batched:
        return
    full = decoded(patient, step, [patient.sizes.length])
    level = 1e-4 * max(1e-3, float(full.abs().max())) + 10 * patient.floor
    bad: dict[str, float] = {}
    for sizes in splits(patient.sizes.length):
        name = "token by token" if max(sizes) == 1 else "+".join(map(str, sizes))
        try:
            difference = gap(decoded(patient, step, sizes), full)
        except Exception as error:
            words = f"decoding {name} raises {type(error).__name__}: {error}"
            yield Finding("cache-mismatch", FAULT, words)
            return
        if difference > level:
            bad[name] = difference
    plain = patient.y
    if not bad and plain.shape == full.shape and gap(plain, full) > level:
        words = f"a call without a cache and a first call with one differ by {gap(plain, full):.2g}"
        yield Finding("cache-mismatch", WARNING, words)
    if not bad:
        return
    cause, words = _name(patient, step, bad)
    worst = max(bad, key=bad.get)
    yield Finding(
        cause,
        FAULT,
        f"decoding {worst} differs from the full pass by {bad[worst]:.2g} ({len(bad)} of "
        f"{len(splits(patient.sizes.length))} splits differ); {words}",
    )


def _heard_step(patient: Patient, step: Step, sizes: list[int]) -> list[list[AttentionCall]]:
    """The attentions of each chunk."""
    module, cache, heard, start = patient.fresh(), None, [], 0
    patient._switch(module, False)
    x = patient.main_in(patient.base)
    for size in sizes:
        listener = Listener()
        inputs = patient.with_main(patient.base, x.narrow(patient.axis, start, size))
        with torch.no_grad(), listener:
            _, cache = step(module, inputs, cache)
        heard.append(
            Hearing(listener, list(module.parameters()) if patient.is_module else []).calls
        )
        start += size
    return heard


def _name(patient: Patient, step: Step, bad: dict[str, float]) -> tuple[str, str]:
    """The first layer whose keys, or whose visible keys, are not those of the full pass."""
    length, batch = patient.sizes.length, patient.sizes.batch
    single = "token by token" in bad
    sizes = [1] * length if single else [length // 2, length - length // 2]
    full = _heard_step(patient, step, [length])[0]
    steps = _heard_step(patient, step, sizes)
    for number, call in enumerate(full):
        last = steps[-1][number] if number < len(steps[-1]) else None
        if last is None or last.product is None or call.product is None:
            break
        k, mine = (as_heads(c.product.k, batch) for c in (call, last))
        if k is None or mine is None:
            break
        if mine.shape[2] != k.shape[2]:
            words = f"at the last step there are {mine.shape[2]} keys, in the full pass {length}"
            return "cache-not-used", words
        new = sizes[-1]
        if _differ(k[:, :, -new:], mine[:, :, -new:]) or _differ_q(call, last, batch, new):
            cause = "cache-positions" if number == 0 else "cache-positions-upper"
            return cause, f"layer {number} gets other queries or keys for the same new tokens"
        if _differ(k, mine):
            return "cache-positions", f"layer {number} holds other keys for earlier tokens"
        if _visible(last, batch) != _visible(call, batch, new):
            sees = _visible(last, batch)[-1]
            words = f"the keys are the same; the last step sees keys {sees} of {length}"
            return ("cache-mask-alignment" if single else _chunk(call, last, batch, new)), words
    return "cache-mismatch", "the attentions give no reason"


def _chunk(call: AttentionCall, last: AttentionCall, batch: int, new: int) -> str:
    """In a chunk: does a token see more than it should, or less?"""
    more = any(
        set(a) - set(b)
        for a, b in zip(_visible(last, batch), _visible(call, batch, new), strict=True)
    )
    return "cache-leak" if more else "cache-mask-alignment"


def _differ(a: Tensor, b: Tensor) -> bool:
    return gap(a, b) > 1e-4 * max(1e-3, float(a.abs().max()))


def _differ_q(call: AttentionCall, last: AttentionCall, batch: int, new: int) -> bool:
    q, mine = as_heads(call.product.q, batch), as_heads(last.product.q, batch)
    return q is not None and mine is not None and _differ(q[:, :, -new:], mine[:, :, -new:])


def _visible(call: AttentionCall, batch: int, rows: int | None = None) -> list[list[int]]:
    """For each query, the keys that are not hidden in the first head of the first sample."""
    scores = as_heads(call.scores, batch)[0, 0]
    shown = scores > scores.amax(-1, keepdim=True) - 1e4
    shown = shown & scores.isfinite()
    lists = [row.nonzero().flatten().tolist() for row in shown]
    return lists if rows is None else lists[-rows:]
