"""Scores and weights: the scale, the axis of the softmax, and the weights that are shown."""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlib.doctor.clues import softmax_axis
from attnlib.doctor.findings import FAULT, NOTE, WARNING, Finding
from attnlib.doctor.measure import as_heads, gap
from attnlib.doctor.patient import Patient
from attnlib.doctor.probes.padding import real_part, some_lengths
from attnlib.doctor.trace import SOFTMAXES, AttentionCall, Product, tensors_in


def scale(patient: Patient) -> Iterator[Finding]:
    """The factor between the products of queries and keys and the scores.

    It is read off the operations that were heard, wherever it is applied: to the scores, to the
    queries, to both, or inside the fused function. Three designs have no fixed scale and are left
    alone: a learned temperature, queries and keys of fixed length (cosine, QK-norm), and what was
    declared.
    """
    declared = patient.promises.scale
    for call in patient.heard.calls:
        product = call.product
        if product is None or declared is True:
            continue
        width = product.q.shape[-1]
        if product.learned or product.factor is None or width < 2:
            continue
        if declared is not None and declared is not False:
            if abs(product.factor / float(declared) - 1) > 0.01:
                words = f"scores are scaled by {product.factor:.4g}, declared is {declared:.4g}"
                yield Finding("scale-other", WARNING, words)
                return
            continue
        widths = {width, product.width or width}
        if any(abs(product.factor * w**0.5 - 1) < 0.01 for w in widths):
            continue
        yield _name_scale(patient, product, width)
        return


def _name_scale(patient: Patient, product: Product, width: int) -> Finding:
    factor = product.factor
    x = patient.main
    heads = patient.promises.n_heads or 1
    model = (
        x.shape[-1] if x is not None and x.is_floating_point() and x.ndim == 3 else width * heads
    )
    known = [
        ("scale-missing", 1.0),
        ("scale-inverted", width**0.5),
        ("scale-doubled", 1 / width),
        ("scale-by-d-model", model**-0.5),
    ]
    fits = [cause for cause, value in known if abs(factor / value - 1) < 0.01] or ["scale-other"]
    words = (
        f"scores are {factor:.4g} times the products of queries and keys; 1/sqrt(d_head) is "
        f"{width**-0.5:.4g} for d_head={width}"
    )
    if _fixed_length(product.q) and _fixed_length(product.k):
        return Finding(
            "scale-other", NOTE, f"{words}; queries and keys have a fixed length, so that is free"
        )
    return Finding(
        fits[0], FAULT if fits[0] == "scale-inverted" else WARNING, words, others=tuple(fits[1:])
    )


def _fixed_length(t: Tensor) -> bool:
    lengths = t.detach().norm(dim=-1)
    return float(lengths.std()) < 1e-3 * float(lengths.mean())


def softmax(patient: Patient) -> Iterator[Finding]:
    """Over which axis do the weights that multiply the values sum to 1?

    Axes are told apart by what happens next: the product with the values sums over the keys. A
    softmax over another axis trains, and can leak the future. Weights that sum to nothing special
    are a design (sigmoid attention, talking heads), and noted.
    """
    told = set()
    for call in patient.heard.calls:
        axis = softmax_axis(patient, call)
        if axis in told or axis in {"keys", "unknown"}:
            continue
        told.add(axis)
        if axis == "rows":
            sums = call.weights.sum(-1)
            words = f"weights sum to {float(sums.min()):.3g} to {float(sums.max()):.3g} over keys"
            yield Finding("rows-not-one", NOTE, words + ": fine if it is meant")
        elif axis == "softmax-over-queries" and patient.out_axis(patient.y) is None:
            yield Finding(axis, NOTE, "slots compete for tokens: fine if it is meant")
        else:
            size, shape = call.probs.shape[call.dim], tuple(call.probs.shape)
            words = f"softmax over axis {call.dim} (of length {size}) of scores of shape {shape}"
            yield Finding(axis, FAULT, words + _key_sums(call))
    yield from _twice(patient)


def _key_sums(call: AttentionCall) -> str:
    if call.weights is None:
        return ""
    sums = call.weights.sum(-1)
    return f"; over the keys they sum to {float(sums.min()):.3g} to {float(sums.max()):.3g}"


def _twice(patient: Patient) -> Iterator[Finding]:
    """A softmax of a softmax, or logarithms used as weights."""
    listener = patient.heard.listener
    through = {"view", "_unsafe_view", "mul", "div", "masked_fill", "transpose", "clone", "detach"}
    for op in patient.heard.ops:
        if op.name not in SOFTMAXES:
            continue
        found = listener.ancestors(op.args[0], op.index, through | {"slice", "alias", "add"})
        if any(f.name in {"_softmax", "_safe_softmax"} for f in found.values()):
            yield Finding("softmax-twice", FAULT, f"a softmax went into operation {op.name}")
            break
    for call in patient.heard.calls:
        made = patient.heard.ops[call.softmax_index]
        if made.name == "_log_softmax" and call.weights is not None:
            if bool((call.weights <= 0).all()):
                yield Finding("weights-are-logs", FAULT, "all weights are negative: a log_softmax")
                break


def asked(patient: Patient) -> Iterator[Finding]:
    """Ask for the weights: the output may not change, and they must be the ones that were used.

    Two code paths are common, one with the fused function and one that shows its weights. The mask
    gets lost on one of them, or the weights are computed a second time from something else.
    """
    if not patient.promises.weights:
        return
    more = patient.promises.weights
    plain = {p: v for p, v in patient.base.items() if p not in more}
    made = {"": (plain, None)}
    if "padding" in patient.roles:
        lengths = some_lengths(patient)
        keep = patient.keep(patient.sizes.batch, patient.sizes.length, lengths)
        made[", for tokens beside padding,"] = (patient.make(lengths=lengths), keep)
    for words, (inputs, keep) in made.items():
        try:
            both = [patient.out(inputs, more=more), patient.out(inputs)]
        except Exception:
            return
        y, bare = both if keep is None else [real_part(patient, t, keep) for t in both]
        difference = gap(y, bare)
        if difference > 1e-5 * float(bare.abs().max()) + 10 * patient.floor:
            words = f"the output differs by {difference:.2g}{words} when the weights are asked for"
            yield Finding("weights-change-output", FAULT, words)
            break
    yield from _shown(patient, plain, more)


def _shown(patient: Patient, inputs: dict, more: dict) -> Iterator[Finding]:
    module = patient.fresh()
    heard = patient.hear(inputs, more=more, module=module)[1]
    from_call = list(tensors_in(patient.call(inputs, module=module, more=more)))
    used = [c.weights for c in heard.calls if c.weights is not None]
    batch = patient.sizes.batch
    for shown in from_call[1:]:
        if shown.ndim < 3 or not used or shown.shape[-2:] != used[0].shape[-2:]:
            continue
        forms = [as_heads(w, batch) for w in used]
        forms = [w for w in forms if w is not None]
        forms += [w.mean(1, keepdim=True) for w in forms]
        mine = shown.detach().unsqueeze(1) if shown.ndim == 3 else shown.detach()
        near = [gap(w, mine) for w in forms if w.shape == mine.shape]
        if near and min(near) > 1e-4:
            yield Finding(
                "weights-not-used",
                WARNING,
                f"the weights returned differ by {min(near):.2g} from those that multiply the "
                "values",
            )
            return


def normed(patient: Patient) -> Iterator[Finding]:
    """With queries and keys normalised, the weights do not change when the input grows."""
    if not patient.promises.qk_norm or patient.main is None:
        return
    calls = [c for c in patient.heard.calls if c.product is not None]
    if calls and not (_steady(calls[0].product.q) and _steady(calls[0].product.k)):
        yield Finding(
            "norm-not-applied",
            FAULT,
            "lengths of queries and keys vary from token to token: "
            f"{_range(calls[0].product.q)} and {_range(calls[0].product.k)}",
        )


def _steady(t: Tensor) -> bool:
    lengths = t.detach().norm(dim=-1)
    return float(lengths.std()) < 0.05 * float(lengths.mean())


def _range(t: Tensor) -> str:
    lengths = t.detach().norm(dim=-1)
    return f"{float(lengths.min()):.3g} to {float(lengths.max()):.3g}"


def average(patient: Patient) -> Iterator[Finding]:
    """An average of constants is that constant, at every position."""
    if patient.main is None:
        return
    if not patient.promises.averages:
        yield from _multiplied(patient)
        return
    axis = patient.out_axis(patient.y)
    if axis is None:
        return
    x = patient.main_in(patient.base)
    y = patient.out(patient.with_main(patient.base, torch.ones_like(x)))
    sizes = y.movedim(axis, 0).flatten(1).abs().amax(1)
    if float(sizes.max() - sizes.min()) > 1e-3 * float(sizes.max()):
        words = f"ones come out with sizes {float(sizes[0]):.3g} to {float(sizes[-1]):.3g}"
        yield Finding("unnormalised", FAULT, f"{words} from the first position to the last")


def _multiplied(patient: Patient) -> Iterator[Finding]:
    """A sum of constants grows with the number of keys at most; a normaliser that multiplies, more.

    Attention without a normaliser is a design. One whose result grows with the square of the
    position was multiplied by the normaliser that it should have been divided by.
    """
    values = [p for p in patient.roles.get("memory", ()) if patient.name_of(p).startswith("v")]
    axis = patient.out_axis(patient.y)
    if not patient.is_qkv or not values or axis is None or not patient.promises.causal:
        return
    inputs = {p: v[..., :1, :].expand_as(v).clone() for p, v in patient.base.items()}
    y = patient.out({**inputs, values[0]: torch.ones_like(inputs[values[0]])})
    sizes = y.movedim(axis, 0).flatten(1).abs().amax(1)
    if float(sizes[-1]) > 2 * len(sizes) * float(sizes[0]):
        words = f"values of 1 come out as {float(sizes[0]):.3g} at the first position and as "
        yield Finding("unnormalised", FAULT, f"{words}{float(sizes[-1]):.3g} at the last one")
