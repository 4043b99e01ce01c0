"""Clues to a cause: what the heard operations say about a fault that was seen from outside."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlib.doctor.measure import as_heads, different, gap, hidden_how, moved, replaced, zeroed
from attnlib.doctor.patient import Patient
from attnlib.doctor.roles import Inputs
from attnlib.doctor.trace import AttentionCall, tensors_in


def is_table(patient: Patient) -> bool:
    """Whether the module only adds numbers that do not depend on the input: positions, alone."""
    x = patient.main
    if (
        x is None
        or not x.is_floating_point()
        or patient.y.shape != patient.main_in(patient.base).shape
    ):
        return False
    one, two = patient.base, patient.make(salt=3)
    a, b = patient.main_in(one), patient.main_in(two)
    shift = patient.y - patient.out(two)
    factor = float((shift * (a - b)).sum() / (a - b).pow(2).sum())
    return gap(shift, factor * (a - b)) < 1e-4 * max(1.0, abs(factor))


def runs(patient: Patient, inputs: Inputs) -> bool:
    """Whether a call comes back."""
    try:
        patient.call(inputs, module=patient.fresh())
    except Exception:
        return False
    return True


def is_content_free(patient: Patient) -> bool:
    """Whether the output has an axis of tokens and does not depend on their content: a table."""
    if patient.main is None or patient.sizes.length not in patient.y.shape:
        return False
    return gap(patient.out(patient.make(salt=3)), patient.y) == 0.0


def matters(patient: Patient, name: str, inputs: Inputs) -> bool:
    """Whether any output moves when a parameter or a buffer gets other numbers."""
    module = patient.fresh()
    before = [t.detach().clone() for t in tensors_in(patient.call(inputs, module=module))]
    value = {**dict(module.named_parameters()), **dict(module.named_buffers())}[name]
    with torch.no_grad():
        value.add_(torch.randn(value.shape, generator=patient.generator(70)).to(value.dtype))
    after = list(tensors_in(patient.call(inputs, module=module)))
    return any(gap(a, b) > 1e-6 for a, b in zip(before, after, strict=True))


def leak_by_operations(patient: Patient) -> tuple[str, str] | None:
    """Look at the attention that was heard: how was the future hidden, if it was?"""
    for found in (cut_across(patient), merged_wrong(patient)):
        if found is not None:
            return found
    batch = patient.sizes.batch
    hidden = torch.ones(patient.sizes.length, patient.sizes.length, dtype=torch.bool).triu(1)
    for call in patient.heard.calls:
        axis = softmax_axis(patient, call)
        if axis in {"softmax-over-queries", "softmax-over-batch", "softmax-over-heads"}:
            return axis, "the softmax runs over another axis than the keys"
        if call.scores.shape[-2:] != hidden.shape:
            continue
        how = hidden_how(call, hidden.expand(batch, 1, -1, -1))
        if how == "after":
            return "mask-after-softmax", "hidden weights are 0, hidden scores are not low"
        if how == "multiplied":
            return "mask-multiplied", "hidden scores are exactly 0"
        if how == "tiny":
            return "mask-value-wrong", "hidden scores are all one number near 0"
    return None


def softmax_axis(patient: Patient, call: AttentionCall) -> str:
    """Over which axis the weights of an attention sum to 1."""
    probs, weights = call.probs, call.weights
    size = probs.shape[call.dim]
    if size == 1 and probs.numel() > 1:
        return "softmax-singleton"
    if weights is None:
        return "unknown"
    if _sums_to_one(weights.sum(-1)):
        return "keys"
    if _sums_to_one(weights.sum(-2)):
        return "softmax-over-queries"
    if probs.ndim >= 3 and call.dim == 0 and size % patient.sizes.batch == 0:
        return "softmax-over-batch"
    if probs.ndim == 4 and call.dim in (1, 2) and size != weights.shape[-1]:
        return "softmax-over-heads"
    if probs.ndim == 4 and call.dim == 1:
        return "softmax-over-heads"
    return "rows"


def _sums_to_one(sums: Tensor) -> bool:
    """Whether all sums are 0 or 1: rows without keys may be empty."""
    return bool((((sums - 1).abs() < 1e-3) | (sums.abs() < 1e-6)).all())


def coupled_outside(patient: Patient) -> tuple[str, str] | None:
    """Switch all attention off: is a token still moved by another one?"""
    edits = zeroed(patient.heard)
    x = patient.main_in(patient.base)
    if not edits or not x.is_floating_point():
        return None
    length = x.shape[patient.axis]
    last = torch.arange(length) == length - 1
    changed = replaced(x, different(patient, x), patient.axis, last)
    first = patient.hear(patient.base, edits)[0]
    second = patient.hear(patient.with_main(patient.base, changed), edits)[0]
    axis = patient.out_axis(first)
    shift = float(moved(second, first, axis)[:-1].max())
    if not shift > 10 * patient.floor:
        return None
    words = f"with all attention results set to zero, outputs still moved by {shift:.2g}"
    if over_tokens(patient):
        return "leak-through-norm", f"{words}; a normalisation runs over {over_tokens(patient)}"
    return "leak-outside-attention", words


def coupled_before(patient: Patient) -> tuple[str, str] | None:
    """Does a row of the first queries move when only later tokens change?"""
    calls = [c for c in patient.heard.calls if c.product is not None]
    x = patient.main_in(patient.base)
    q = as_heads(calls[0].product.q, patient.sizes.batch) if calls else None
    length = patient.sizes.length
    if q is None or q.shape[2] != length or not x.is_floating_point():
        return None
    changed = replaced(x, different(patient, x), patient.axis, torch.arange(length) == length - 1)
    heard = patient.hear(patient.with_main(patient.base, changed))[1]
    new = next(c for c in heard.calls if c.product is not None).product.q
    shift = float(moved(as_heads(new, patient.sizes.batch), q, 2)[:-1].max())
    if shift <= 1e-6 * float(q.abs().max()):
        return None
    words = f"queries of earlier tokens moved by {shift:.2g}, before any attention"
    if over_tokens(patient):
        return "leak-through-norm", f"{words}; a normalisation runs over {over_tokens(patient)}"
    return "leak-outside-attention", words


def over_tokens(patient: Patient) -> str:
    """The normalisations that take several tokens together, as they were heard."""
    for op in patient.heard.ops:
        if op.name == "native_layer_norm" and len(op.args[1]) > 1:
            return f"{len(op.args[1])} axes of sizes {list(op.args[1])}"
        if op.name in {"native_group_norm", "native_batch_norm"}:
            return f"what {op.name} takes together"
        if op.name in {"mean", "var_mean", "var", "std", "std_mean"} and len(op.args) > 1:
            axes, value = op.args[1], op.args[0]
            axes = axes if isinstance(axes, list | tuple) else [axes]
            if value.ndim == 3 and any(isinstance(a, int) and a % 3 == 1 for a in axes):
                return f"axes {list(axes)} of a tensor of shape {tuple(value.shape)}"
    return ""


def cut_across(patient: Patient) -> tuple[str, str] | None:
    """Whether a row of the first queries depends on other tokens: heads cut across tokens.

    Sample s has another token s; then only row s of its queries may differ, in every head.
    """
    x, length = patient.main_in(patient.base), patient.sizes.length
    if not x.is_floating_point() or x.ndim != 3:
        return None
    inputs = patient.copies(length + 1)  # and one sample as it was
    x = patient.main_in(inputs)
    mine = torch.eye(length + 1, length, dtype=torch.bool)[..., None]
    changed = patient.with_main(inputs, torch.where(mine, different(patient, x), x))
    calls = [c for c in patient.hear(changed)[1].calls if c.product is not None]
    q = as_heads(calls[0].product.q, length + 1) if calls else None
    if q is None or q.shape[2] != length:
        return None
    moved = (q[:-1] - q[-1]).abs().amax(3) > 1e-6 * float(q.abs().max())  # (s, head, row)
    lost = int((~moved.diagonal(dim1=0, dim2=2)).sum())
    if not lost:
        return None
    pairs = q.shape[1] * length
    return (
        "heads-cut-across-tokens",
        f"in {lost} of {pairs} cases the query of a token does not depend on that token",
    )


def merged_wrong(patient: Patient) -> tuple[str, str] | None:
    """Change the result of the last attention for one query: does another output move?

    If the output of that token stays, and another one moves, heads were merged without moving
    their axis back.
    """
    calls = [c for c in patient.heard.calls if c.result is not None and c.weights is not None]
    axis = patient.out_axis(patient.y)
    if not calls or axis is None or not patient.main_in(patient.base).is_floating_point():
        return None
    call, batch = calls[-1], patient.sizes.batch
    result = as_heads(call.result, batch)
    length = patient.sizes.length
    if result is None or result.shape[2] != length or result.shape[3] == length:
        return None
    if result.shape[1] < 2:
        return None
    lost = []
    inputs = patient.copies(length)
    as_it_was, again = patient.hear(inputs)
    number = [c for c in again.calls if c.result is not None and c.weights is not None][-1].index
    for head in (slice(None), *range(result.shape[1])):
        new = patient.hear(inputs, {number: _nudge(length, head)})[0]
        change = (new - as_it_was).abs().movedim(axis, 1).flatten(2).amax(2)  # (sample, place)
        hit = change > 10 * patient.floor
        own = hit.diagonal()
        if head == slice(None):
            lost = (hit.any(1) & ~own).nonzero().flatten().tolist()
            if lost or bool((hit.sum(1) < 2).all()):
                break
        else:
            lost += (~own).nonzero().flatten().tolist()
    if not lost:
        return None
    places = sorted(set(lost))
    return (
        "heads-merged-wrong",
        f"the attention result of a head at positions {places} does not reach the output there",
    )


def _nudge(length: int, head: int | slice) -> Callable[[Tensor], Tensor]:
    """An edit that changes the result of an attention for query t in sample t, in some heads."""

    def edit(result: Tensor) -> Tensor:
        new = result.clone()
        each = torch.arange(length)
        parts = as_heads(new, length)
        heads = range(parts.shape[1]) if isinstance(head, slice) else [head]
        for number in heads:
            parts[each, number, each] += 1.0
        return new

    return edit


def why_padding_leaks(patient: Patient, inputs: Inputs, keep: Tensor) -> tuple[str, str]:
    """Look at the scores of padded keys in every attention, and name how the mask failed."""
    calls = patient.hear(inputs)[1].calls
    batch, length = keep.shape
    hidden = (~keep)[:, None, None, :].expand(batch, 1, length, length)
    right = [c for c in calls if c.scores.shape[-1] == length]
    hows = []
    for call in right:
        count = call.scores.shape[-2]
        real = keep if count == length else None  # what padding sees is of no account
        hows.append(hidden_how(call, hidden[..., :1, :].expand(batch, 1, count, length), real))
    if not hows or set(hows) == {"unknown"}:
        return "padding-leak", "no attention was heard that could be looked into"
    if set(hows) == {"hidden"}:
        return "padding-after-attention", "every attention hides the padded keys"
    if "hidden" in hows:
        place = [i for i, how in enumerate(hows) if how != "hidden"]
        return "mask-in-some-layers", f"attention number {place} does not hide the padded keys"
    for how, cause in (("multiplied", "mask-multiplied"), ("after", "mask-after-softmax")):
        if how in hows:
            return cause, {"multiplied": "padded keys have a score of exactly 0"}.get(
                how, "padded keys have a weight of 0 and an ordinary score"
            )
    if "tiny" in hows:
        return "mask-value-wrong", "the scores of padded keys are one number near 0"
    if _added_as_number(patient, calls, keep):
        return "mask-added-as-number", "the mask moves the scores of padded keys by one or so"
    for call in right:
        named = _rows_or_real(call, keep)
        if named is not None:
            return named
    return "padding-leak", "padded keys have ordinary scores"


def _added_as_number(patient: Patient, calls: list[AttentionCall], keep: Tensor) -> bool:
    """Compare the first scores with those of a mask that hides nothing: a small constant step?"""
    free = patient.make(lengths=[keep.shape[1]])
    first = next(
        (c for c in patient.hear(free)[1].calls if c.scores.shape[-1] == keep.shape[1]), None
    )
    mine = next((c for c in calls if c.scores.shape[-1] == keep.shape[1]), None)
    if first is None or mine is None or first.scores.shape != mine.scores.shape:
        return False
    step = as_heads(mine.scores - first.scores, len(keep))
    if step is None or not step.isfinite().all():
        return False
    padded = (~keep)[:, None, None, :].expand_as(step)
    inside, outside = step[padded], step[~padded]
    size = float(inside.abs().max())
    flat = float(inside.max() - inside.min()) < 1e-3 and float(outside.abs().max()) < 1e-3
    return flat and 1e-2 < size <= 2


def _rows_or_real(call: AttentionCall, keep: Tensor) -> tuple[str, str] | None:
    batch, length = keep.shape
    scores = as_heads(call.scores, batch)
    queries = scores.shape[-2]
    real_hidden = hidden_how(call, keep[:, None, None, :].expand(batch, 1, queries, length))
    some = keep.any(-1) & ~keep.all(-1)
    if real_hidden == "hidden":
        return "padding-inverted", "real keys are hidden, padded keys are not"
    if queries != length:
        return None
    rows = scores.transpose(1, 2)[some][~keep[some]]  # rows of padded queries
    other = scores.transpose(1, 2)[keep]
    if (
        len(rows)
        and bool((rows == rows[..., :1]).all())
        and not bool((other == other[..., :1]).all())
    ):
        return "padding-on-rows", "the rows of padded queries are uniform, padded keys are visible"
    return None


def hides_other_samples(patient: Patient, inputs: Inputs, keep: Tensor) -> bool:
    """Whether some head hides the keys that are padding in another sample."""
    batch, length = keep.shape
    for call in patient.hear(inputs)[1].calls:
        scores = as_heads(call.scores, batch)
        if scores is None or scores.shape[-1] != length:
            continue
        low = (scores < scores.amax((-1, -2), keepdim=True) - 50).any(2)  # (batch, heads, keys)
        wrong = (low != (~keep)[:, None]).any(-1)
        copies = (low[:, :, None] == (~keep)[None, None]).all(-1).any(-1) & low.any(-1)
        if bool((wrong & copies).any()):
            return True
    return False
