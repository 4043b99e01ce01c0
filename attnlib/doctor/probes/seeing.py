"""Who sees whom: the future, the past, the window, the prefix, the documents."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from attnlib.doctor.clues import (
    coupled_before,
    coupled_outside,
    is_content_free,
    is_table,
    leak_by_operations,
    runs,
)
from attnlib.doctor.findings import FAULT, NOTE, WARNING, Finding
from attnlib.doctor.measure import (
    different,
    future_leak,
    influence,
    moved,
    reach,
    replaced,
    seen_at_any_scale,
)
from attnlib.doctor.patient import Patient
from attnlib.doctor.roles import Inputs

NEVER = 2e-6  # of the largest influence: float32 rounding is below, a key at distance 20 above


def mixes(patient: Patient) -> bool:
    """Whether outputs belong to tokens of one sequence that are meant to see each other."""
    if patient.out_axis(patient.y) is None:
        return False
    return not is_table(patient) and not is_content_free(patient)


def future(patient: Patient) -> Iterator[Finding]:
    """Replace the tokens after a cut; no output up to the cut may move.

    The loss of a model that sees the future is wonderful, and its attention maps may look causal.
    Only what goes in and what comes out can tell. The test is repeated for every way to call the
    module, as masks get lost on one path: without the padding mask, with padding, with the weights
    asked for, in train mode, with gradients, and with large scores.
    """
    if not patient.promises.causal or not mixes(patient):
        return
    leaks = {name: run() for name, run in _ways_to_leak(patient).items()}
    sick = {name: leak for name, leak in leaks.items() if leak > 10 * patient.floor}
    sick = _allow_prefix(patient, sick)
    if not sick:
        yield from _large_scores(patient)
        return
    cause, words = _name_leak(patient, sick, leaks)
    worst = max(sick, key=sick.get)
    yield Finding(
        cause,
        FAULT,
        f"outputs moved by up to {sick[worst]:.2g} when only later tokens changed "
        f"({', '.join(sick)}); {words}",
    )


def _allow_prefix(patient: Patient, sick: dict[str, float]) -> dict[str, float]:
    """Drop leaks that stay inside a promised prefix."""
    prefix = patient.promises.prefix
    if not prefix or not sick:
        return sick
    seen = influence(patient, patient.base)
    outside = seen.triu(1)
    outside[:prefix, :prefix] = 0
    return sick if float(outside.max()) > 10 * patient.floor else {}


def _ways_to_leak(patient: Patient) -> dict[str, Callable[[], float]]:
    base, promises = patient.base, patient.promises
    ways: dict[str, Callable[[], float]] = {"plain call": lambda: _leak(patient, base)}
    bare = patient.without(base, "padding")
    if bare is not None and runs(patient, bare):
        ways["without the mask"] = lambda: _leak(patient, bare)
    offered = offered_mask(patient)
    if offered is not None and runs(patient, offered):
        ways["with the mask"] = lambda: _leak(patient, offered)
    if "padding" in patient.roles or promises.pad_id is not None:
        some = patient.make(lengths=[patient.sizes.length - 2])
        ways["with padding"] = lambda: _leak(patient, some, real=patient.sizes.length - 2)
    if promises.weights:
        ways["weights asked for"] = lambda: _leak(patient, base, more=promises.weights)
    ways["train mode"] = lambda: _leak(patient, base, train=True)
    ways["with gradients"] = lambda: _leak(patient, base, grad=True)
    return ways


def offered_mask(patient: Patient) -> Inputs | None:
    """Inputs with a padding mask that the module takes and the example left out."""
    name = patient.promises.padding
    if not isinstance(name, str) or "padding" in patient.roles or name not in patient.names:
        return None
    real = torch.ones(patient.sizes.batch, patient.sizes.length, dtype=torch.bool)
    return {**patient.base, name: real if patient.promises.padding_means != "hide" else ~real}


def _leak(patient: Patient, inputs: Inputs, real: int | None = None, **how: Any) -> float:
    """How far earlier outputs move when later tokens change, the same dropout in both runs."""

    def run(given: Inputs) -> Tensor:
        torch.manual_seed(patient.seed)  # inside a fork of the random state
        return patient.out(given, **how)

    if real is None:
        return future_leak(patient, inputs, run)
    x = patient.main_in(inputs)
    places = torch.arange(x.shape[patient.axis])
    first = len(places) - real if patient.pads_left else 0
    cut = first + real // 2
    later = (places > cut) & (places < first + real)
    changed = replaced(x, different(patient, x), patient.axis, later)
    axis = patient.out_axis(patient.out(inputs))
    before, after = run(inputs), run(patient.with_main(inputs, changed))
    return float(moved(after, before, axis)[first : cut + 1].max())


def _name_leak(
    patient: Patient, sick: dict[str, float], leaks: dict[str, float]
) -> tuple[str, str]:
    """Which leak it is, from the calls that leak and from the shape of the influence."""
    plain, masked = "plain call" in sick, "with padding" in sick or "with the mask" in sick
    if "without the mask" in leaks and "without the mask" not in sick and (plain or masked):
        return "leak-with-mask", "without the padding mask nothing leaks"
    if not plain and set(sick) <= {"with padding", "with the mask"}:
        return "leak-with-mask", "without the padding mask nothing leaks"
    if "with the mask" in leaks and plain and not masked:
        return "leak-without-mask", "with an all-true mask nothing leaks"
    if "without the mask" in sick and not plain:
        return "leak-without-mask", "with the mask nothing leaks"
    if set(sick) == {"weights asked for"}:
        return "leak-with-weights", "a call that does not ask for weights is causal"
    if not plain or (plain and "train mode" in leaks and "train mode" not in sick):
        return "leak-in-one-mode", "other modes are causal"
    return _leak_by_shape(patient)


def _leak_by_shape(patient: Patient) -> tuple[str, str]:
    seen = influence(patient, patient.base)
    length = min(seen.shape)
    level = max(10 * patient.floor, NEVER * float(seen.max()))
    offsets = [k for k in range(1, length) if float(seen.diagonal(k).max()) > level]
    back = [k for k in range(1, length) if float(seen.diagonal(-k).max()) > level]
    yes = f"offsets seen ahead: {offsets}"
    if not back:
        return "causal-inverted", f"{yes}; nothing behind"
    named = leak_by_operations(patient)
    if named is not None:
        return named[0], f"{named[1]}; {yes}"
    if offsets == [1]:
        return "leak-by-one", yes
    outside = coupled_before(patient) or coupled_outside(patient)
    if outside is not None:
        return outside
    return "future-leak", yes


def _large_scores(patient: Patient) -> Iterator[Finding]:
    """The same test with inputs 30 times larger: a mask value of -100 hides nothing then."""
    if not patient.main.is_floating_point() or patient.promises.prefix:
        return
    big = patient.make(scale=30.0)
    y = patient.out(big)
    if not y.isfinite().all():
        yield Finding("observed", NOTE, "not finite for inputs 30 times larger than usual")
        return
    leak = _leak(patient, big)
    if leak > 1e-3 * float(y.abs().max()):
        yield Finding(
            "mask-value-too-small",
            FAULT,
            f"with inputs 30 times larger, earlier outputs move by {leak:.2g} when only later "
            "tokens change; at the usual size nothing leaks",
        )


def mixing(patient: Patient) -> Iterator[Finding]:
    """Replace one token at a time: which outputs move, and which never do?

    An attention that does not mix trains like a feed-forward network. A causal mask left over in
    an encoder, an inverted one, heads cut across tokens: each leaves its own holes in the matrix of
    influence. A token counts as unseen only if it goes unseen at small scores too.
    """
    if patient.promises.causal is None or not mixes(patient):
        return
    if "memory" in patient.roles and patient.seen == "main":
        return
    seen = seen_at_any_scale(patient)
    if seen is None or seen.shape[0] != seen.shape[1] or len(seen) < 2:
        return
    up, low = seen.triu(1).max(), seen.tril(-1).max()
    if max(up, low) <= NEVER:
        yield Finding("no-mixing", FAULT, "replacing any one token moved no other output at all")
    elif patient.promises.causal and low <= NEVER:
        yield Finding("past-ignored", FAULT, "replacing earlier tokens moved no later output")
    elif not patient.promises.causal and up <= NEVER:
        yield Finding(
            "unwanted-causal", FAULT, "replacing later tokens moved no earlier output at all"
        )
    elif not patient.promises.causal and low <= NEVER:
        yield Finding("causal-inverted", FAULT, "replacing earlier tokens moved no later output")
    else:
        yield from _holes(patient, seen)
    if patient.seen == "main":
        yield from _own_token(seen)


def _holes(patient: Patient, seen: Tensor) -> Iterator[Finding]:
    """Pairs that never meet although nothing was said that keeps them apart."""
    p = patient.promises
    if p.window or "documents" in patient.roles:
        return
    pairs = (
        torch.ones_like(seen, dtype=torch.bool).tril()
        if p.causal
        else torch.ones_like(seen, dtype=torch.bool)
    )
    holes = pairs & (seen <= NEVER) & ~torch.eye(len(seen), dtype=torch.bool)
    for salt in (21, 22, 23) if 0 < int(holes.sum()) <= len(seen) else ():  # chance, perhaps
        again = influence(patient, patient.make(scale=0.5, salt=salt))
        holes &= again <= NEVER * float(again.max())
    if not holes.any():
        return
    named = leak_by_operations(patient)
    cause, words = ("pairs-never-meet", "") if named is None else (named[0], f"; {named[1]}")
    yield Finding(
        cause,
        FAULT if named else WARNING,
        f"{int(holes.sum())} of {int(pairs.sum()) - len(seen)} pairs of tokens never influence "
        f"each other{words}",
    )


def _own_token(seen: Tensor) -> Iterator[Finding]:
    lost = (seen.diagonal() <= NEVER).nonzero().flatten().tolist()
    if lost and float(seen.max()) > NEVER:
        yield Finding(
            "own-token-ignored", WARNING, f"outputs {lost[:5]} did not move with their own token"
        )


def prefix(patient: Patient) -> Iterator[Finding]:
    """A prefix is meant to see itself both ways."""
    length = patient.promises.prefix
    if not length or length < 2 or not mixes(patient):
        return
    seen = seen_at_any_scale(patient)
    if seen is not None and float(seen[:length, :length].triu(1).max()) <= NEVER:
        yield Finding(
            "prefix-not-visible", WARNING, f"none of the first {length} tokens sees a later one"
        )


def window(patient: Patient) -> Iterator[Finding]:
    """How far back and ahead does a token reach, in a layer that is meant to be local?

    One layer with a window of w tokens, its own included, reaches w - 1 tokens; n layers reach n
    times as far. First tokens that everybody sees are left out. Influence between the two ends,
    with none in the middle, means that a cyclic shift wraps around.
    """
    w = patient.promises.window
    if not w or "memory" in patient.roles or not mixes(patient):
        return
    seen = seen_at_any_scale(patient)
    if seen is None:
        return
    length, layers = len(seen), max(1, len(patient.heard.calls))
    level = NEVER
    part = seen.clone()
    part[:, : patient.promises.sinks] = 0
    part[: patient.promises.sinks] = 0
    ahead = [k for k in range(1, length) if float(part.diagonal(k).max()) > level]
    back = [k for k in range(1, length) if float(part.diagonal(-k).max()) > level]
    offsets = sorted(set(ahead) | set(back))
    allowed = layers * (w - 1)
    if not offsets or allowed >= length - 1:
        return
    farthest = offsets[-1]
    words = f"a window of {w} in {layers} layers allows {allowed} tokens; seen: offsets {offsets}"
    holes = [k for k in range(1, farthest) if k not in offsets]
    if farthest <= allowed:
        if patient.promises.causal and farthest < allowed and farthest == layers * (w - 2):
            yield Finding("window-off-by-one", WARNING, words)
    elif (holes and farthest >= length - 2) or (farthest == length - 1 and _corners(part, w)):
        yield Finding("window-wraps", FAULT, words)
    elif farthest == layers * w and layers == 1 and patient.promises.causal:
        yield Finding("window-off-by-one", WARNING, words)
    elif farthest > layers * w:
        yield Finding("window-ignored", FAULT, words)


def _corners(seen: Tensor, window: int) -> bool:
    """Whether far pairs meet only at the two ends, and not in the middle."""
    length = len(seen)
    i = torch.arange(length)
    far = (i[:, None] - i[None, :]).abs() >= window
    ends = (i[:, None] < window) & (i[None, :] >= length - window)
    ends = ends | ends.T
    inner = far & ~ends
    return bool((seen[far & ends] > NEVER).any()) and not bool((seen[inner] > NEVER).any())


def documents(patient: Patient) -> Iterator[Finding]:
    """Change one of two packed documents; the other may not move."""
    if "documents" not in patient.roles or not mixes(patient):
        return
    x, length = patient.main_in(patient.base), patient.sizes.length
    first = torch.arange(length) < length // 2
    base, axis = patient.y, patient.out_axis(patient.y)
    other = different(patient, x)
    worst = 0.0
    for part in (first, ~first):
        changed = patient.with_main(patient.base, replaced(x, other, patient.axis, part))
        worst = max(worst, float(moved(patient.out(changed), base, axis)[~part].max()))
    if worst > 10 * patient.floor:
        yield Finding(
            "documents-mix",
            FAULT,
            f"tokens of one document moved by {worst:.2g} when only the other document changed",
        )


def pooled(patient: Patient) -> Iterator[Finding]:
    """An output without an axis of tokens must depend on every token of the sample.

    A classifier on a causal model that reads the first token has seen one token.
    """
    if patient.main is None or patient.out_axis(patient.y) is not None or patient.y.ndim == 0:
        return
    if patient.promises.window or "labels" in patient.roles or "memory" in patient.roles:
        return
    if is_content_free(patient):
        return
    seen = torch.maximum(
        reach(patient, patient.base), reach(patient, patient.make(scale=0.2, salt=20))
    )
    unseen = (seen <= NEVER * float(seen.max())).nonzero().flatten().tolist()
    if unseen and float(seen.max()) > 0:
        yield Finding(
            "pooling-wrong-token",
            WARNING,
            f"tokens {unseen} of {len(seen)} have no influence on the pooled output",
        )
    elif unseen:
        yield Finding("ignored-argument", FAULT, "the output depends on no token at all")


def scores_alone(patient: Patient) -> Iterator[Finding]:
    """A module that returns scores of pairs: (i, j) may depend on tokens i and j, on no other."""
    y, length = patient.y, patient.sizes.length
    if patient.main is None or y.ndim != 4 or tuple(y.shape[-2:]) != (length, length):
        return
    if patient.main.ndim != 3:
        return
    x, other = patient.main_in(patient.base), different(patient, patient.main_in(patient.base))
    worst, place = 0.0, None
    for s in range(length):
        where = torch.arange(length) == s
        result = patient.out(
            patient.with_main(patient.base, replaced(x, other, patient.axis, where))
        )
        change = (result - y).abs().amax((0, 1))
        change[s, :], change[:, s] = 0, 0
        if float(change.max()) > worst:
            worst = float(change.max())
            place = (divmod(int(change.argmax()), length), s)
    if worst > 10 * patient.floor:
        yield Finding(
            "score-reads-another-query",
            FAULT,
            f"the score of pair {place[0]} moved by {worst:.2g} when token {place[1]} changed",
        )
