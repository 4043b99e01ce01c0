"""Does it run at all, and are the numbers finite?"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor, nn

from attnlib.doctor.clues import is_content_free
from attnlib.doctor.findings import FAULT, NOTE, WARNING, Finding
from attnlib.doctor.patient import Patient
from attnlib.doctor.roles import Inputs, Sizes
from attnlib.doctor.trace import Hearing, Op, scalar, tensors_in


def explain_error(patient: Patient, error: Exception) -> Finding:
    """Name the cause of an exception: heads that do not divide the width, or just its message.

    The message of a failed view names shapes, not reasons. So numbers are looked up: those that
    were promised, and attributes of the module that sound like a width or a number of heads.
    """
    said = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    for width, heads, where in _widths(patient):
        if heads > 0 and width % heads:
            return Finding(
                "heads-do-not-divide",
                FAULT,
                f"d_model={width} is not divisible by {heads} heads{where}; it raises {said}",
            )
    if "overflow" in said:
        return Finding("half-mask-value", FAULT, said)
    return Finding("raises", FAULT, said)


def _widths(patient: Patient) -> Iterator[tuple[int, int, str]]:
    heads, main = patient.promises.n_heads, patient.main
    if heads and main is not None and main.is_floating_point() and main.ndim == 3:
        yield main.shape[-1], heads, ""
    if not isinstance(patient.called, nn.Module):
        return
    for name, part in patient.called.named_modules():
        numbers = {k.lower(): v for k, v in vars(part).items() if type(v) is int}
        many = [
            v for k, v in numbers.items() if k in {"h", "heads"} or ("head" in k and "n" in k[:4])
        ]
        wide = [
            v for k, v in numbers.items() if k in {"d", "dim", "d_model", "embed_dim", "hidden"}
        ]
        for width in wide:
            for number in many:
                yield width, number, f" (in {name or 'the module'})"


def not_finite(patient: Patient) -> Iterator[Finding]:
    """NaN or infinity for the example inputs: which operation makes it, and from what.

    NaN spreads, so the output says little about its origin. The operations are heard in order, and
    the first that makes NaN out of good numbers is the place. A softmax does so for a row with
    nothing but minus infinity (no key to see) or with plus infinity (a sign slipped).
    """
    y, heard = patient.hear(patient.given, module=patient.fresh())
    if y.isfinite().all():
        yield from _bad_gradient(patient)
        return
    op = heard.first_bad()
    share = f"{int((~y.isfinite()).sum())} of {y.numel()} output numbers are not finite"
    if op is None:
        yield Finding("nan", FAULT, f"{share}; no operation makes NaN from good numbers")
        return
    cause, words = name_bad(patient, heard, op)
    yield Finding(cause, FAULT, f"{share}; the first NaN comes from {op.name}: {words}")


def name_bad(patient: Patient, heard: Hearing, op: Op) -> tuple[str, str]:
    """The cause behind the operation that made the first NaN, and what was seen there."""
    source = next(tensors_in(op.args), None)
    if "softmax" in op.name or op.name.startswith("_scaled_dot"):
        call = next((c for c in heard.calls if c.softmax_index == op.index), None)
        scores = source if call is None else call.scores
        if bool((scores == float("inf")).any()):
            return "nan-plus-infinity", "its input holds plus infinity where keys are hidden"
        empty = (scores == float("-inf")).all(-1)
        rows = sorted({int(i) for i in empty.nonzero()[:, -1]}) if empty.any() else []
        words = f"query rows {rows} have minus infinity for every key"
        if rows == [0] and scores.shape[-2] > 1 and empty[..., 0].all():
            return "nan-diagonal-hidden", f"{words}, the first of all samples"
        return ("nan-row-without-keys" if rows else "nan"), words
    if op.name in {"div", "div_", "mean", "reciprocal"}:
        return "nan-division", "0 divided by 0"
    if op.name.startswith("mul"):
        return "nan", "zero times infinity: hide with masked_fill, not by a product"
    if op.name in {"add", "sub", "add_", "sub_", "bmm", "mm"}:
        return "nan", "infinities meet"
    return "nan", f"its input reaches from {float(source.min()):.3g} to {float(source.max()):.3g}"


def _bad_gradient(patient: Patient) -> Iterator[Finding]:
    """A finite output can still have NaN gradients: 0 * inf on the way back."""
    module = patient.fresh()
    if not isinstance(module, nn.Module):
        return
    output = patient.call(patient.given, module=module, grad=True)
    loss = graded(output)
    if loss is None:
        return
    loss.backward()
    bad = [n for n, p in module.named_parameters() if p.grad is not None and p.grad.isnan().any()]
    if bad:
        yield Finding("nan-gradient", FAULT, f"the gradients of {', '.join(bad[:4])} hold NaN")


def graded(output: object) -> Tensor | None:
    """One number that depends on every finite output that carries a gradient."""
    parts = [
        t for t in tensors_in(output) if t.is_floating_point() and t.requires_grad and t.numel()
    ]
    if not parts:
        return None
    source = torch.Generator().manual_seed(5)
    total = 0
    for t in parts:
        weight = torch.randn(t.shape, generator=source).to(t.dtype)
        total = total + torch.where(t.isfinite(), t, 0.0).mul(weight).sum()
    return total


def other_sizes(patient: Patient) -> Iterator[Finding]:
    """Run it with several numbers of samples, and with a length that differs from all else.

    A mask with an axis too few lines up with whatever axis has its size. It raises for most batch
    sizes, and is silently wrong for one. A squeeze() without an axis breaks at one sample.
    """
    if patient.main is None or not patient.batched or is_content_free(patient):
        return
    promises, failed = patient.promises, {}
    numbers = {1, 2, 3, 5, promises.n_heads, promises.kv_heads, patient.given_sizes.batch}
    for batch in sorted(n for n in numbers if n):
        sizes = patient.resized(batch=batch)
        try:
            y = patient.out(patient.make(sizes), module=patient.fresh())
        except Exception as error:
            failed[batch] = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            continue
        if (
            y.ndim
            and y.ndim >= 2
            and batch > 1
            and y.shape[0] != batch
            and not patient.roles.get("labels")
        ):
            yield Finding(
                "not-batch-first",
                FAULT,
                f"{batch} samples of {sizes.length} tokens give an output of shape "
                f"{tuple(y.shape)}",
                others=("wrong-sample",),
            )
            return
    if failed:
        batch, words = next(iter(failed.items()))
        yield Finding(
            "needs-these-sizes",
            FAULT,
            f"it raises for batches of {', '.join(map(str, failed))} samples and runs for others; "
            f"for {batch}: {words}",
        )
    yield from _lengths(patient)


def _lengths(patient: Patient) -> Iterator[Finding]:
    """Lengths that were refused while sizes were chosen: a limit to know, or two mixed axes."""
    chosen = patient.sizes
    for sizes, words in patient.refused.items():
        if (
            sizes.length != sizes.memory
            and chosen.length == chosen.memory
            and "memory" in patient.roles
            and not _turned_together(patient)
        ):
            yield Finding(
                "needs-these-sizes",
                WARNING,
                f"it runs only if source and target have one length; {sizes}: {words}",
            )
            return
    lengths = {s.length: w for s, w in patient.refused.items() if s.length != chosen.length}
    if lengths:
        length, words = next(iter(lengths.items()))
        yield Finding("observed", NOTE, f"it refuses {length} tokens ({words})")


def _turned_together(patient: Patient) -> bool:
    """Whether both sequences come out again, as from a rotation of queries and keys."""
    shapes = [patient.main_in(patient.base, r).shape for r in ("main", "memory")]
    outs = [t.shape for t in tensors_in(patient.call(patient.base))]
    return outs == shapes and len(shapes[0]) == 4


def tried(patient: Patient, sizes: Sizes) -> str | None:
    """The error for some sizes, or None if it runs."""
    try:
        patient.call(patient.make(sizes), module=patient.fresh())
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def half(patient: Patient) -> Iterator[Finding]:
    """The example in half precision: what raises or turns into NaN there, and nowhere else.

    float16 ends at 65504. A mask value of -1e9 does not fit, finfo.min plus a score overflows, and
    so do scores that are scaled only after the product. Inputs keep the size of the example, and a
    second run has padding on the left if that was promised.
    """
    if not patient.is_module or patient.main is None or not patient.main.is_floating_point():
        return
    wanted = {"float16", "half", "fp16", "torch.float16"} & set(patient.promises.dtypes)
    severity = FAULT if wanted else NOTE
    for inputs in _half_inputs(patient):
        try:
            y, heard = patient.hear(inputs, module=patient.fresh().half())
        except Exception as error:
            yield from _half_error(str(error), severity, bool(wanted))
            return
        if y.isfinite().all() or y.dtype != torch.float16:
            continue
        op = heard.first_bad()
        cause, words = _half_cause(heard, op)
        at = "" if op is None else f" (first in {op.name})"
        bad = f"{int((~y.isfinite()).sum())} of {y.numel()} numbers are not finite in float16"
        yield Finding(cause, severity, f"{bad}{at}, all are in float32; {words}")
        return


def _half_inputs(patient: Patient) -> Iterator[Inputs]:
    """The example, then new content of the same size and spread, all in half precision."""
    spread = float(patient.given[patient.roles["main"][0]].std())
    sizes = replace(patient.given_sizes, batch=16 if patient.batched else 1)
    lengths = [max(1, sizes.length - n) for n in range(4)] if "padding" in patient.roles else None
    left = True if patient.promises.left_padding else None
    drawn = [
        patient.make(sizes, lengths=lengths, left=left, scale=spread, salt=salt)
        for salt in ((1, 2, 3) if tried(patient, sizes) is None else ())
    ]
    for inputs in (patient.given, *drawn):
        if inputs is not patient.given and not patient.out(inputs).isfinite().all():
            continue
        yield {
            p: v.half() if isinstance(v, Tensor) and v.is_floating_point() else v
            for p, v in inputs.items()
        }


def _half_error(message: str, severity: str, wanted: bool) -> Iterator[Finding]:
    first = message.splitlines()[0] if message else "an error"
    if "overflow" in message:
        yield Finding("half-mask-value", severity, f"in float16 it raises: {first}")
    elif "dtype" in message and "not implemented" not in message:
        yield Finding("half-mixed-dtypes", severity if wanted else NOTE, f"in float16: {first}")


def _half_cause(heard: Hearing, bad: Op | None) -> tuple[str, str]:
    """Whether an infinity came from adding masks or from a product."""
    low = torch.finfo(torch.float16).min
    for op in heard.ops if bad is None else heard.ops[: bad.index]:
        outs = [t for t in op.outs if t.dtype == torch.float16]
        ins = [t for t in tensors_in(op.args) if t.dtype == torch.float16]
        fresh = any(t.isinf().any() for t in outs) and not any(t.isinf().any() for t in ins)
        if not fresh or op.name in {"masked_fill", "masked_fill_", "full", "fill_", "empty"}:
            continue
        if op.name in {"add", "add_", "sub", "sub_"}:
            least = min(float(t.min()) for t in ins)
            if least <= low / 2:
                return "half-masks-added", f"a score plus {least:.0f} became minus infinity"
        if op.name in {"bmm", "mm", "baddbmm", "mul", "addmm", "pow", "exp"}:
            return "half-overflow", f"{op.name} overflowed beyond 65504"
    if bad is not None and scalar(bad.args[0]) is None and "softmax" in bad.name:
        return "half-masks-added", "the softmax got a row of minus infinity"
    return "half-overflow", "an operation overflowed"
