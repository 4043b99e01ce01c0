"""Residual connections and normalisation: what is left of a token without its branches."""

from collections.abc import Iterator

import torch

from attnlib.doctor.clues import coupled_outside, over_tokens
from attnlib.doctor.findings import NOTE, WARNING, Finding
from attnlib.doctor.measure import different, moved, zeroed
from attnlib.doctor.patient import Patient
from attnlib.doctor.trace import SHAPINGS, VIEWS, Edit, Hearing, tensors_in

ACTIVATIONS = {"relu", "gelu", "silu", "elu", "leaky_relu", "tanh", "sigmoid", "relu_", "mish"}
ACTIVATIONS |= {"threshold", "hardswish", "softplus", "silu_", "gelu_"}


def is_block(patient: Patient) -> bool:
    """Whether this is a block or a stack, which has residual connections, not a bare attention."""
    if patient.out_axis(patient.y) is None or "memory" in patient.roles or patient.main is None:
        return False
    if (
        not patient.main.is_floating_point()
        or patient.y.shape != patient.main_in(patient.base).shape
    ):
        return False
    return bool(feed_forwards(patient.heard)) or stacked(patient.heard)


def stacked(heard: Hearing) -> bool:
    """Whether the queries of a later attention come from the result of an earlier one."""
    calls = [c for c in heard.calls if c.result is not None and c.product is not None]
    if len(calls) < 2:
        return False
    every = {op.name for op in heard.ops}
    last = calls[-1].product
    return calls[0].index in heard.listener.ancestors(last.q, last.index, every)


def residual(patient: Patient) -> Iterator[Finding]:
    """Set every attention result to zero: an output must still depend on its own token.

    In a block, x + attention(x) leaves x. Where the input was overwritten before the addition,
    nothing of the token is left, and tokens grow alike with depth.
    """
    edits = zeroed(patient.heard)
    if not edits or not is_block(patient):
        return
    own = _own_shift(patient, edits)
    if own <= 10 * patient.floor:
        yield Finding(
            "residual-lost",
            WARNING,
            f"with all attention results set to zero, outputs moved by {own:.1g} with their token",
        )


def normed_residual(patient: Patient) -> Iterator[Finding]:
    """In a pre-norm block the branch reads the normalised input, and the raw input goes past it.

    In ``x = norm(x); x = x + f(x)`` the size of the input is lost at every branch, and nothing
    normalises what comes out, as a post-norm block would.
    """
    if not is_block(patient):
        return
    heard, every = patient.heard.listener, {op.name for op in patient.heard.ops}
    norms = [op for op in patient.heard.ops if op.name == "native_layer_norm"]
    past = []
    for op in patient.heard.ops:
        if op.name not in {"add", "add_"} or len(list(tensors_in(op.args))) < 2:
            continue
        a, b = list(tensors_in(op.args))[:2]
        for straight, branch in ((a, b), (b, a)):
            near = heard.ancestors(straight, op.index, VIEWS)
            far = heard.ancestors(branch, op.index, every)
            past += [n.index for n in norms if n.index in near and n.index in far]
    end = heard.ancestors(patient.heard.ops[-1].outs[0], len(patient.heard.ops), VIEWS)
    if len(norms) > 1 and {n.index for n in norms} == set(past) and not set(past) & set(end):
        words = (
            f"all {len(norms)} normalisations feed a branch and go past it too; none ends a block"
        )
        yield Finding("residual-normed", WARNING, words)


def feed_forward(patient: Patient) -> Iterator[Finding]:
    """Set every feed-forward result to zero: an output must still depend on its own token."""
    if not is_block(patient):
        return
    places = feed_forwards(patient.heard)
    calls = [c for c in patient.heard.calls if c.result is not None]
    if not places or len(places) != len(calls):
        return
    own = _own_shift(patient, dict.fromkeys(places, torch.zeros_like))
    if own <= 10 * patient.floor:
        yield Finding(
            "ffn-residual-lost",
            WARNING,
            f"with all feed-forward results set to zero, outputs moved by {own:.1g} with their "
            "token",
        )


def feed_forwards(heard: Hearing) -> list[int]:
    """The second projections of feed-forward parts: an activation of a projection comes in."""
    found = []
    for op in heard.ops:
        if op.name not in {"addmm", "mm"}:
            continue
        value = op.args[1] if op.name == "addmm" else op.args[0]
        through = VIEWS | SHAPINGS | ACTIVATIONS | {"native_dropout", "bernoulli_"}
        back = heard.listener.ancestors(value, op.index, through)
        names = {o.name for o in back.values()}
        if names & (ACTIVATIONS - {"tanh", "sigmoid"}) and names & {"addmm", "mm"}:
            found.append(op.index)
    return found


def _own_shift(patient: Patient, edits: dict[int, Edit]) -> float:
    """How far an output moves with its own token while some results are replaced."""
    x = patient.main_in(patient.base)
    changed = patient.with_main(patient.base, different(patient, x))
    first, second = (patient.hear(i, edits)[0] for i in (patient.base, changed))
    return float(moved(second, first, patient.out_axis(first)).min())


def coupled(patient: Patient) -> Iterator[Finding]:
    """Set every attention result to zero: no output may depend on another token any more.

    A normalisation over the sequence couples tokens without attention, and leaks the future.
    Convolutions and shifts do so on purpose; that is noted.
    """
    if patient.out_axis(patient.y) is None or "memory" in patient.roles:
        return
    if patient.promises.causal or patient.main is None:
        return  # the search for leaks looks at it
    found = coupled_outside(patient)
    if found is None:
        return
    if over_tokens(patient):
        yield Finding("norm-over-sequence", WARNING, found[1])
    elif _reached_by_attention_only(patient):
        yield Finding("observed", NOTE, found[1])


def _reached_by_attention_only(patient: Patient) -> bool:
    """Whether there is an attention at all, so that the rest is worth a note."""
    return any(c.result is not None for c in patient.heard.calls)
