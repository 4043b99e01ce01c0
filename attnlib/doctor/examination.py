"""The examination: prepare the patient, run every probe, keep one cause for each symptom."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from attnlib.doctor.findings import NOTE, SEVERITIES, Finding
from attnlib.doctor.patient import Patient
from attnlib.doctor.probes import (
    alarms,
    batch,
    caching,
    cross,
    heads,
    labels,
    modes,
    order,
    padding,
    parameters,
    residuals,
    scores,
    seeing,
    tables,
)
from attnlib.doctor.promises import Promises
from attnlib.doctor.report import Report
from attnlib.doctor.stillness import held_still

Probe = Callable[[Patient], Iterator[Finding]]

ALWAYS: tuple[Probe, ...] = (parameters.unregistered,)
PROBES: tuple[Probe, ...] = (
    modes.opened,
    modes.repeated,
    modes.left_over,
    modes.train_after_eval,
    modes.modes,
    modes.inputs_kept,
    alarms.other_sizes,
    alarms.half,
    parameters.unused,
    parameters.shared,
    parameters.ignored,
    batch.other_samples,
    batch.index,
    padding.replaced_padding,
    padding.no_effect,
    padding.cropped,
    padding.other_ids,
    padding.empty_samples,
    padding.meaning,
    seeing.future,
    seeing.mixing,
    seeing.prefix,
    seeing.window,
    seeing.documents,
    seeing.pooled,
    seeing.scores_alone,
    cross.memory,
    cross.memory_order,
    cross.memory_padding,
    order.order,
    tables.table,
    tables.rotation,
    tables.inside,
    scores.scale,
    scores.softmax,
    scores.asked,
    scores.normed,
    scores.average,
    heads.split_and_merge,
    heads.own_slice,
    heads.groups,
    residuals.residual,
    residuals.feed_forward,
    residuals.normed_residual,
    residuals.coupled,
    caching.cache,
    labels.shift,
    labels.counted,
    labels.ignored,
)

PREPARE: tuple[Probe, ...] = (modes.opened, modes.repeated, modes.left_over)  # the others rely on

# A cause on the left explains symptoms that the causes on the right would be guesses at.
EXPLAINS: dict[str, set[str]] = {
    "unregistered": {"dropout-in-eval", "modes-differ", "unused-parameters"},
    "not-batch-first": {"needs-these-sizes", "wrong-sample", "samples-mix", "pooling-wrong-token"},
    "view-for-transpose": {
        "memory-order",
        "pairs-never-meet",
        "heads-cut-across-tokens",
        "heads-merged-wrong",
        "rotation-layout",
        "rotation-not-relative",
    },
    "attends-over-batch": {
        "memory-order",
        "no-mixing",
        "pairs-never-meet",
        "index-in-batch",
        "heads-merged-wrong",
    },
    "positions-on-batch": {"index-in-batch", "order-invisible"},
    "positions-wrong-axis": {"order-invisible"},
    "heads-cut-across-tokens": {
        "memory-order",
        "pairs-never-meet",
        "own-token-ignored",
        "future-leak",
        "heads-merged-wrong",
        "rotation-layout",
        "rotation-not-relative",
        "rotated-values",
    },
    "heads-merged-wrong": {"pairs-never-meet", "own-token-ignored", "future-leak"},
    "memory-ignored": {"future-leak"},
    "memory-truncated": {"memory-order"},
    "rotation-not-relative": {"order-invisible", "positions-wrong-axis"},
    "queries-from-memory": {"memory-order"},
    "samples-mix": {"memory-order"},
    "dropout-in-eval": {"modes-differ"},
    "no-mixing": {"unused-parameters", "parameters-cut-off"},
    "softmax-singleton": {"unused-parameters", "parameters-cut-off"},
    "mask-after-softmax": {"rows-not-one"},
    "memory-mask-from-target": {"needs-these-sizes"},
    "residual-lost": {"own-token-ignored"},
    "mask-head-batch-order": {"padding-leak", "empty-sample-poisons"},
    "padding-inverted": {"padding-leak", "padding-ignored", "positions-repeat"},
    "padding-on-rows": {"padding-leak", "padding-ignored"},
    "padding-ignored": {"padding-leak"},
    "leak-through-norm": {"norm-over-sequence"},
    "norm-not-applied": {"unused-parameters"},
    "leak-in-one-mode": {"modes-differ"},
    "leak-with-weights": {"weights-change-output"},
    "causal-inverted": {"past-ignored"},
    "pooling-wrong-token": {"unused-parameters", "pooling-includes-padding"},
}


def name_of(probe: Probe) -> str:
    """The name of a probe, as it stands in a report.

    Example:
        >>> name_of(seeing.future)
        'seeing.future'
    """
    return f"{probe.__module__.split('.')[-1]}.{probe.__name__}"


def examine(
    module: Callable,
    *inputs: Any,
    kwargs: dict[str, Any] | None = None,
    seed: int = 0,
    **promises: Any,
) -> Report:
    """Examine a module, or any callable, by how it behaves.

    Nothing of yours is changed: not the module's mode, parameters, buffers or gradients, not the
    random state, not the inputs. An error of the module is a finding, never an error of this call.

    Args:
        module: An ``nn.Module``, or a function such as ``attend(q, k, v, mask)``.
        *inputs: Example inputs. Probes make their own of the same kind, in other sizes.
        kwargs: Example inputs that are passed by name.
        seed: For the random inputs of the probes.
        **promises: What the module is meant to do; the fields of ``Promises``.

    Returns:
        A ``Report``.

    Raises:
        TypeError: If the module cannot be called, or a promise has an unknown name.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> examine(layer, torch.randn(2, 5, 8), causal=False, n_heads=2).ok
        True
        >>> report = examine(layer, torch.randn(2, 5, 8), causal=True, n_heads=2)
        >>> report.findings[0].cause
        'future-leak'
    """
    promised = Promises.named(**promises)
    found, ran, patient = _observed(module, inputs, kwargs, seed, promised, PROBES)
    findings = _reduced(found, promised)
    return Report(patient.name, findings, tuple(ran), tuple(patient.inferred))


def look(module: Callable, inputs: tuple, promises: dict[str, Any], names: Sequence[str]) -> Report:
    """Run a few probes only, by name, and keep all that they find.

    Args:
        module: As for ``examine``.
        inputs: As for ``examine``.
        promises: As for ``examine``, with its other keyword arguments.
        names: Names such as ``"seeing.future"``.

    Returns:
        A ``Report`` of what these probes found.

    Raises:
        TypeError: If the module cannot be called, or a promise has an unknown name.

    Example:
        >>> import torch
        >>> look(torch.nn.Identity(), (torch.randn(2, 5, 8),), {}, ["batch.index"]).probes[-1]
        'batch.index'
    """
    rest = {name: value for name, value in promises.items() if name not in {"kwargs", "seed"}}
    promised = Promises.named(**rest)
    probes = tuple(p for p in PROBES if p in PREPARE or name_of(p) in names)
    kwargs, seed = promises.get("kwargs"), promises.get("seed", 0)
    found, ran, patient = _observed(module, inputs, kwargs, seed, promised, probes)
    wanted = {"alarms.not_finite", "examination.raises", *names}
    findings = tuple(f for f in found if f.probe in wanted and f.cause not in promised.by_design)
    return Report(patient.name, findings, tuple(ran), tuple(patient.inferred))


def _observed(
    module: Callable,
    inputs: tuple,
    kwargs: dict[str, Any] | None,
    seed: int,
    promised: Promises,
    probes: tuple[Probe, ...],
) -> tuple[list[Finding], list[str], Patient]:
    """Run probes with everything of the caller's held still."""
    if not callable(module):
        raise TypeError(f"the patient must be a module or a function; got {type(module).__name__}")
    with held_still(module), warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(seed)
        patient = Patient(module, inputs, dict(kwargs or {}), promised, seed)
        return (*_run(patient, probes), patient)


def _run(patient: Patient, probes: tuple[Probe, ...]) -> tuple[list[Finding], list[str]]:
    """All findings, and the names of the probes that ran."""
    found, ran = _probe(patient, ALWAYS)
    try:
        patient.call(patient.given, module=patient.fresh())
    except Exception as error:
        raised = replace(alarms.explain_error(patient, error), probe="examination.raises")
        return [*found, raised], [*ran, raised.probe]
    bad, names = _probe(patient, (alarms.not_finite,))
    found, ran = found + bad, ran + names
    if any(f.cause.startswith("nan") and f.cause != "nan-gradient" for f in bad):
        return found, ran
    patient.choose_sizes()
    more, names = _probe(patient, probes)
    return found + more, ran + names


def _probe(patient: Patient, probes: tuple[Probe, ...]) -> tuple[list[Finding], list[str]]:
    """Run some probes; one that the patient breaks is told of, and the others go on."""
    found: list[Finding] = []
    ran: list[str] = []
    for probe in probes:
        name = name_of(probe)
        try:
            for finding in probe(patient):
                found.append(replace(finding, probe=name))
            ran.append(name)
        except Exception as error:
            first = str(error).splitlines()[0] if str(error) else ""
            patient.inferred.append(f"{name} did not apply ({type(error).__name__}: {first})")
    return found, ran


def _reduced(found: list[Finding], promises: Promises) -> tuple[Finding, ...]:
    """One finding for each cause, without those that another one explains; worst first."""
    causes = {f.cause for f in found if f.severity != NOTE}
    explained = {late for cause in causes for late in EXPLAINS.get(cause, ())}
    kept: dict[str, Finding] = {}
    for finding in found:
        if finding.cause in explained:
            continue
        if finding.cause in promises.by_design:
            finding = replace(finding, severity=NOTE)
        old = kept.get(finding.cause)
        if old is None or SEVERITIES.index(finding.severity) < SEVERITIES.index(old.severity):
            kept[finding.cause] = finding
    order = sorted(kept.values(), key=lambda f: SEVERITIES.index(f.severity))
    return tuple(order)
