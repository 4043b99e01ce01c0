"""Parameters: unused, cut off from the gradient, shared, copied, or not registered at all."""

from collections import Counter
from collections.abc import Iterator

import torch
from torch import Tensor, nn

from attnlib.doctor.clues import matters
from attnlib.doctor.findings import FAULT, NOTE, WARNING, Finding
from attnlib.doctor.measure import gap
from attnlib.doctor.patient import Patient
from attnlib.doctor.probes.alarms import graded
from attnlib.doctor.probes.padding import some_lengths
from attnlib.doctor.trace import SOFTMAXES, Listener


def unused(patient: Patient) -> Iterator[Finding]:
    """Which parameters get no gradient from any output, and do they matter to it?

    A parameter that is changed without any effect was created and forgotten. One that has an effect
    and no gradient is cut off by a detach. Biases may have no gradient by right: a bias of the keys
    adds one number to a whole row of scores, which the softmax takes out again.
    """
    if not patient.is_module:
        return
    module = patient.fresh()
    inputs = patient.make(lengths=some_lengths(patient) if "padding" in patient.roles else None)
    loss = graded(patient.call(inputs, module=module, grad=True, more=_extra(patient)))
    if loss is not None:
        loss.backward()
    dead, cut, frozen = [], [], []
    for name, p in module.named_parameters():
        if not p.requires_grad:
            frozen.append(name)
        elif (p.grad is None or not p.grad.any()) and not _excused(name, p):
            (cut if matters(patient, name, inputs) else dead).append(name)
    yield from _report_dead(dead, cut, frozen)


def _extra(patient: Patient) -> dict | None:
    return patient.promises.weights


def _excused(name: str, p: Tensor) -> bool:
    return name.endswith("bias") or p.numel() == 0


def _report_dead(dead: list[str], cut: list[str], frozen: list[str]) -> Iterator[Finding]:
    if dead:
        words = f"no output depends on {', '.join(dead[:6])}"
        norms = [n for n in dead if any(w in n for w in ("q_norm", "k_norm", "qk_norm"))]
        others = ("norm-not-applied",) if norms else ()
        yield Finding("unused-parameters", FAULT, words, others=others)
    if cut:
        words = f"{', '.join(cut[:6])} change the output and get a gradient of exactly zero"
        yield Finding("parameters-cut-off", FAULT, words)
    if frozen:
        yield Finding("parameters-frozen", NOTE, f"{', '.join(frozen[:6])} ask for no gradient")


def unregistered(patient: Patient) -> Iterator[Finding]:
    """Look for modules and parameters that a module holds and does not know of.

    A plain list or dict hides its layers from ``parameters()``, ``state_dict()``, ``to()`` and
    ``eval()``: they are never trained and stay in train mode.
    """
    if not patient.is_module:
        return
    known = {id(m) for m in patient.called.modules()}
    known |= {id(p) for p in patient.called.parameters()}
    for name, part in patient.called.named_modules():
        for attribute, value in vars(part).items():
            if attribute.startswith("_") and attribute in nn.Module().__dict__:
                continue
            lost = [v for v in _held(value) if id(v) not in known]
            if isinstance(value, Tensor) and value.numel() > 1 and id(value) not in known:
                place = f"{name}.{attribute}" if name else attribute
                words = f"{place} is a plain tensor: to() does not move it, state_dict() misses it"
                yield Finding("unregistered", WARNING, words)
            elif lost:
                kinds = ", ".join(sorted({type(v).__name__ for v in lost}))
                place = f"{name}.{attribute}" if name else attribute
                words = f"{place} holds {len(lost)} of {kinds} that the module does not know of"
                yield Finding("unregistered", FAULT, words)


def _held(value: object) -> list[object]:
    """Modules, and tensors that ask for a gradient, in plain containers."""
    if isinstance(value, nn.Module) or (isinstance(value, Tensor) and value.requires_grad):
        return [value] if not isinstance(value, Tensor) or value.is_leaf else []
    if isinstance(value, dict):
        return [v for item in value.values() for v in _held(item)]
    if isinstance(value, list | tuple | set):
        return [v for item in value for v in _held(item)]
    return []


def shared(patient: Patient) -> Iterator[Finding]:
    """Layers that are one object, and layers that start with the same numbers.

    The modules that a pass goes through are counted: one block that runs several times is one set
    of weights. Layers made by deepcopy are separate, and start as copies.
    """
    if not patient.is_module:
        return
    yield from _one_object(patient)
    yield from _copies(patient)


def _one_object(patient: Patient) -> Iterator[Finding]:
    module, runs = patient.fresh(), Counter()
    names = {id(m): n for n, m in module.named_modules()}
    layers = (patient.promises.n_layers or 1) > 1
    attends: set[int] = set()
    with Listener() as listener:
        hooks = _counted(module, runs, attends, listener)
        patient.call(patient.base, module=module, grad=True)
    for hook in hooks:
        hook.remove()
    often = [(names[i], n) for i, n in runs.items() if n > 1 and (layers or i in attends)]
    for m in module.modules():
        if isinstance(m, nn.ModuleList | nn.Sequential):
            weighty = [q for q in m if any(p.ndim > 1 for p in q.parameters())]
            same = Counter(id(q) for q in weighty)
            often += [(names[i], n) for i, n in same.items() if n > 1]
    if often:
        name, number = often[0]
        severity = NOTE if patient.promises.shared_layers else WARNING
        yield Finding("layers-shared", severity, f"{name or 'one module'} runs {number} times")


def _counted(module: nn.Module, runs: Counter, attends: set[int], listener: Listener) -> list:
    """Count how often each part runs, and which parts hold an attention; cells are meant to."""
    starts: dict[int, int] = {}

    def begin(part: nn.Module, _: tuple) -> None:
        starts[id(part)] = len(listener.ops)

    def end(part: nn.Module, *_: object) -> None:
        runs.update([id(part)])
        inside = {op.name for op in listener.ops[starts[id(part)] :]}
        if inside & SOFTMAXES or any(n.startswith("_scaled_dot_product") for n in inside):
            attends.add(id(part))

    hooks = []
    for part in module.modules():
        heavy = sum(p.ndim > 1 for p in part.parameters()) > 1
        if heavy and part is not module and not isinstance(part, nn.RNNCellBase):
            hooks += [part.register_forward_pre_hook(begin), part.register_forward_hook(end)]
    return hooks


def _copies(patient: Patient) -> Iterator[Finding]:
    for name, m in patient.called.named_modules():
        if not isinstance(m, nn.ModuleList | nn.Sequential) or len(m) < 2:
            continue
        for a, b in zip(list(m)[:-1], list(m)[1:], strict=True):
            if a is b or type(a) is not type(b):
                continue
            pairs = list(zip(a.parameters(), b.parameters(), strict=False))
            big = [(p, q) for p, q in pairs if p.ndim > 1 and float(p.detach().std()) > 0]
            if big and all(p.shape == q.shape and torch.equal(p, q) for p, q in big):
                severity = NOTE if patient.promises.shared_layers else WARNING
                words = f"neighbours in {name or 'the stack'} hold the same numbers"
                yield Finding("layers-identical", severity, words)
                return


def ignored(patient: Patient) -> Iterator[Finding]:
    """Every argument of the call should matter."""
    known = {p for r, places in patient.roles.items() for p in places}
    for place, value in patient.given.items():
        if place in known or not isinstance(value, Tensor) or value.numel() < 2:
            continue
        if patient.sizes != patient.given_sizes:
            inputs = dict(patient.make(patient.given_sizes))
        else:
            inputs = dict(patient.base)
        base = patient.out(inputs, module=patient.fresh())
        seen = 0.0
        for other in _others(patient, value):
            try:
                seen = max(seen, gap(patient.out({**inputs, place: other}), base))
            except Exception:
                seen = 1.0
        if seen == 0.0:
            words = f"{patient.name_of(place)} was changed, and no output moved"
            yield Finding("ignored-argument", WARNING, words)


def _others(patient: Patient, value: Tensor) -> list[Tensor]:
    """Other contents for an argument of unknown meaning."""
    if value.dtype == torch.bool:
        return [~value, value.flip(-1)]
    if value.is_floating_point():
        noise = torch.randn(value.shape, generator=patient.generator(80)).to(value.dtype)
        return [value + noise, torch.zeros_like(value)]
    return [value.flip(-1), (value + 1) % (int(value.max()) + 1)]
