"""Modes and state: what one call leaves behind, and what train, eval and gradients change."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from attnlib.doctor.findings import FAULT, NOTE, WARNING, Finding
from attnlib.doctor.measure import gap
from attnlib.doctor.patient import Patient
from attnlib.doctor.probes.padding import real_part, some_lengths
from attnlib.doctor.roles import Inputs


def repeated(patient: Patient) -> Iterator[Finding]:
    """Two calls in eval mode with one input: any difference is dropout, or another dice."""
    module = patient.fresh()
    a, b = (patient.out(patient.base, module=module) for _ in range(2))
    if gap(a, b) <= 1e-6 * max(1.0, float(a.abs().max())):
        return
    state = torch.get_rng_state()
    patient.call(patient.base, module=module)
    if torch.equal(state, torch.get_rng_state()):
        patient.stateful = True
        words = (
            f"the same call gave results that differ by {gap(a, b):.2g}, and no dice were rolled"
        )
        yield Finding("stale-state", FAULT, words)
        return
    dice = [op.name for op in patient.heard.ops if op.name in {"bernoulli_", "native_dropout"}]
    dice += [op.name for op in patient.heard.ops if op.name.startswith(("rand", "normal"))]
    again = patient.out(patient.base, module=module)
    patient.random = True
    if dice or gap(again, b) > 0:
        words = f"; heard: {', '.join(sorted(set(dice)))}" if dice else ""
        yield Finding("dropout-in-eval", FAULT, f"the outputs differ by {gap(a, b):.2g}{words}")


def left_over(patient: Patient) -> Iterator[Finding]:
    """Call, call with something else, call again: the first and the last must be the same.

    A mask, a table or a cache that is built once and kept is right for the first batch only. The
    calls in between have another content, another length, another padding, another size.
    """
    between: dict[str, Inputs] = {"another content": patient.make(salt=40)}
    if patient.main is not None:
        between["another length"] = patient.make(patient.resized(length=patient.given_sizes.length))
        between["a shorter one"] = patient.make(
            patient.resized(length=max(2, patient.sizes.length - 2))
        )
        between["a longer one"] = patient.make(patient.resized(length=patient.sizes.length + 2))
        between["fewer samples"] = patient.make(patient.resized(batch=1))
    lengths = some_lengths(patient) if "padding" in patient.roles else None
    if lengths:
        between["another padding"] = patient.make(lengths=[patient.sizes.length])
    asked = patient.make(lengths=lengths)
    for name, other in between.items():
        yield from _after(patient, asked, other, name)
        if patient.stateful:
            return


def _after(patient: Patient, asked: Inputs, other: Inputs, name: str) -> Iterator[Finding]:
    module = patient.fresh()
    alone = patient.out(asked, module=patient.fresh())
    if gap(alone, patient.out(asked, module=patient.fresh())) > 0:
        return  # random: reported elsewhere
    words = "changed the result of this one"
    try:
        patient.call(other, module=module)
    except Exception:
        return
    try:
        after = patient.out(asked, module=module)
    except Exception as error:
        patient.stateful = True
        words = f"an earlier call with {name} makes this one raise {type(error).__name__}: {error}"
        yield Finding("stale-state", FAULT, words)
        return
    difference = gap(after, alone)
    if difference > 1e-6 * max(1.0, float(alone.abs().nan_to_num().max())):
        patient.stateful = True
        yield Finding(
            "stale-state", FAULT, f"an earlier call with {name} {words}, by {difference:.2g}"
        )


def train_after_eval(patient: Patient) -> Iterator[Finding]:
    """Dropout must still be there after a pass in eval mode."""
    if not patient.is_module or patient.random:
        return
    module = patient.fresh()
    before = _spread(patient, module)
    patient.call(patient.base, module=module)
    after = _spread(patient, module)
    if before > 1e-6 and after == 0.0:
        yield Finding(
            "eval-changes-train",
            FAULT,
            f"two calls in train mode differed by {before:.2g} before a pass in eval mode, and "
            "not at all after it",
        )
    elif before == 0.0 and patient.promises.dropout:
        words = f"dropout of {patient.promises.dropout} was promised; train mode is deterministic"
        yield Finding("dropout-missing", WARNING, words)
    elif before == 0.0 and after > 1e-6:
        yield Finding("stale-state", FAULT, "train mode is random only after a pass in eval mode")


def _spread(patient: Patient, module: nn.Module) -> float:
    """How far calls in train mode are apart: a few, as a dropped branch is rare."""
    first = patient.out(patient.base, module=module, train=True)
    for _ in range(12):
        apart = gap(first, patient.out(patient.base, module=module, train=True))
        if apart > 0:
            return apart
    return 0.0


def without_dropout(module: nn.Module) -> nn.Module:
    """Switch off every dropout that a module's attributes know of."""
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        for name, value in vars(part).items():
            if isinstance(value, float) and ("drop" in name.lower() or name == "p"):
                setattr(part, name, 0.0)
    return module


def modes(patient: Patient) -> Iterator[Finding]:
    """Train and eval, with gradients and without: once dropout is off, all must agree.

    Only real tokens are compared: PyTorch's fast path, for one, returns zeros at padding.
    """
    if not patient.is_module:
        return
    lengths = some_lengths(patient) if "padding" in patient.roles else None
    inputs = patient.make(lengths=lengths)
    keep = patient.keep(patient.sizes.batch, patient.sizes.length, lengths)
    module = without_dropout(patient.fresh())
    results: dict[str, Tensor] = {}
    for name, how in {
        "eval": {},
        "eval with gradients": {"grad": True},
        "train": {"train": True, "grad": True},
    }.items():
        results[name] = real_part(patient, patient.out(inputs, module=module, **how), keep)
    again = real_part(patient, patient.out(inputs, module=module, train=True, grad=True), keep)
    size = max(1e-3, float(results["eval"].abs().nan_to_num().max()))
    statistics = any(isinstance(m, nn.modules.batchnorm._NormBase) for m in module.modules())
    for name, y in results.items():
        difference = gap(y, results["eval"])
        if difference <= 1e-4 * size + 10 * patient.floor:
            continue
        if name == "train" and (statistics or gap(again, y) > 0):
            continue
        yield Finding(
            "modes-differ",
            WARNING if name != "train" else FAULT,
            f"'eval' and '{name}' differ by {difference:.2g}, with dropout off",
        )


def inputs_kept(patient: Patient) -> Iterator[Finding]:
    """The tensors that go in must be the same afterwards."""
    inputs = patient.make(lengths=some_lengths(patient) if "padding" in patient.roles else None)
    inputs = {p: v.clone() if isinstance(v, Tensor) else v for p, v in inputs.items()}
    before = {p: v.clone() for p, v in inputs.items() if isinstance(v, Tensor)}
    patient.call(inputs, module=patient.fresh())
    for place, value in before.items():
        now = inputs[place]
        if now.shape != value.shape or not torch.equal(now.nan_to_num(), value.nan_to_num()):
            yield Finding("input-changed", WARNING, f"{patient.name_of(place)} was written into")


def opened(patient: Patient) -> Iterator[Finding]:
    """Gates of zero close a branch at the start (ReZero, LayerScale): open them, and go on.

    What a closed gate hides cannot be examined, and is no fault. So parameters that are all zero,
    biases apart, or all one tiny number, get random numbers before the other probes run.
    """
    if not patient.is_module:
        return
    module = patient.fresh()
    closed = [
        (name, p)
        for name, p in module.named_parameters()
        if not name.endswith("bias") and p.numel() and _is_closed(p.detach())
    ]
    if not closed or module is patient.called:
        return
    y = patient.out(patient.base)
    source = patient.generator(60)
    for _, p in closed:
        noise = torch.randn(p.shape, generator=source).to(p.dtype)
        with torch.no_grad():
            p.copy_(1 + 0.1 * noise if p.ndim < 2 else 0.3 * noise)
    changed = gap(patient.out(patient.base, module=module), y)
    patient.replace(module)
    if changed > 0:
        names = ", ".join(name for name, _ in closed[:3])
        yield Finding("zero-gate", NOTE, f"{names} start near 0; examined with the gate opened")


def _is_closed(p: Tensor) -> bool:
    """Whether a parameter is zero, or one number too small to let anything through."""
    return not p.any() or (
        p.ndim < 2 and bool((p == p.flatten()[0]).all() & (p.abs() < 1e-2).all())
    )
