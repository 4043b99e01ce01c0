"""The grader: run a solution, compare it with the reference, and name the mistake."""

import difflib
import html
import inspect
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from attnlib.checks import check_sizes
from attnlib.doctor import examine
from attnlib.exercises import (
    causal,
    cross,
    debugging,
    long_sequences,
    multi_head,
    positions,
    qkv,
    rnn_limits,
    variants,
)
from attnlib.exercises.comparing import difference
from attnlib.exercises.exercise import Case, Complaint, Exercise, Suspect
from attnlib.exercises.verdict import Verdict

_CHAPTERS = (  # in the order of the book
    rnn_limits,
    qkv,
    multi_head,
    cross,
    causal,
    positions,
    variants,
    debugging,
    long_sequences,
)
_LOW = (torch.float16, torch.bfloat16)


class Contents(tuple):
    """Exercises as a table: print it, show it in a notebook, or go through it.

    Example:
        >>> isinstance(exercises(), Contents)
        True
    """

    def __str__(self) -> str:
        return "\n".join(
            f"{e.name:18} {e.chapter:11} {e.difficulty:6} {e.minutes:3} min  {e.task}" for e in self
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(
            f'<th scope="col">{name}</th>'
            for name in ("exercise", "chapter", "difficulty", "minutes", "task")
        )
        rows = "".join(
            f'<tr><th scope="row"><code>{html.escape(e.usage)}</code></th><td>{e.chapter}</td>'
            f"<td>{e.difficulty}</td><td>{e.minutes}</td><td>{html.escape(e.task)}</td></tr>"
            for e in self
        )
        caption = f"<caption>{len(self)} exercises</caption>"
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def exercises(chapter: str | None = None) -> Contents:
    """List the exercises that have a grader.

    Args:
        chapter: Only those of one page, such as ``"qkv"``; all of them if left out.

    Returns:
        The exercises, which print as a table.

    Raises:
        ValueError: If no exercise is of that chapter.

    Example:
        >>> [exercise.chapter for exercise in exercises("qkv")][:2]
        ['qkv', 'qkv']
    """
    every = [exercise for module in _CHAPTERS for exercise in module.EXERCISES]
    chosen = Contents(e for e in every if chapter in (None, e.chapter))
    if not chosen:
        known = sorted({e.chapter for e in every})
        raise ValueError(f"no exercise is of chapter {chapter!r}; there are some of {known}")
    return chosen


def check(exercise: str | Exercise, solution: Any, *, hints: int = 1) -> Verdict:
    """Say whether a solution is right, and if not, which mistake it looks like.

    It is called on inputs of many sizes and dtypes, twice each, and its outputs and gradients are
    compared with those of a reference. A wrong one is compared with the mistakes to expect. What
    the solution raises, changes or forgets to return is a verdict, too.

    Args:
        exercise: The name of an exercise, as ``exercises()`` lists them, or one of your own.
        solution: The reader's function, module or class, as the exercise says.
        hints: Which hint to give; ``hints=2`` gives the second one, and 0 none.

    Returns:
        The verdict. The same solution always gets the same one.

    Raises:
        ValueError: If there is no such exercise, ``hints`` is negative, or the reference of an
            exercise of your own fails.
        TypeError: If ``hints`` is not a whole number.

    Example:
        >>> import torch
        >>> def softmax(scores):
        ...     return scores.exp() / scores.exp().sum(-1, keepdim=True)
        >>> check("softmax", softmax, hints=0).diagnosis
        'overflows'
    """
    exercise = exercise if isinstance(exercise, Exercise) else _named(exercise)
    check_sizes(at_least=0, hints=hints)
    with _seeded(0), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = list(exercise.cases())
        complaint = _complaint(exercise, solution, cases)
    if complaint is None:
        number = f"{len(cases)} cases" if len(cases) > 1 else "1 case"
        return Verdict(exercise.name, True, "right", f"right in {number}")
    hint = exercise.hints[min(hints, len(exercise.hints)) - 1] if hints else ""
    if 0 < hints < len(exercise.hints):
        hint += f" (There is another one: hints={hints + 1}.)"
    return Verdict(exercise.name, False, complaint.key, complaint.says, hint)


def _named(name: str) -> Exercise:
    by_name = {exercise.name: exercise for exercise in exercises()}
    if name not in by_name:
        close = difflib.get_close_matches(str(name), by_name, n=3) or sorted(by_name)
        raise ValueError(f"there is no exercise {name!r}; did you mean one of {close}?")
    return by_name[name]


def _complaint(exercise: Exercise, solution: Any, cases: list[Case]) -> Complaint | None:
    """The first thing that is wrong with a solution."""
    refused = _refused(exercise, solution)
    if refused:
        return refused
    first = [_run(exercise, solution, case, watch=True) for case in cases]
    return (
        _not_repeatable(exercise, solution, cases, first)
        or _wrong_output(exercise, solution, cases, first)
        or _changed_inputs(cases, first)
        or _wrong_gradient(exercise, solution, cases)
        or next(filter(None, (_ask(probe, solution) for probe in exercise.probes)), None)
    )


def _refused(exercise: Exercise, solution: Any) -> Complaint | None:
    """What cannot even be called as the exercise says."""
    if not callable(solution):
        says = f"It got {_kind(solution)}, which cannot be called. Hand in {exercise.name} itself."
        return Complaint("not-callable", says)
    called = solution.forward if isinstance(solution, nn.Module) else solution
    try:
        takes = inspect.signature(called)
        takes.bind(*exercise.takes)
    except TypeError as error:
        says = f"It is called as {exercise.usage}, but takes {takes}: {error}."
        return Complaint("wrong-signature", says)
    except ValueError:  # a function written in C does not say what it takes
        return None
    return None


def _kind(thing: Any) -> str:
    """What a thing is, with its article."""
    name = type(thing).__name__
    return f"an {name}" if name[0] in "aeiouAEIOU" else f"a {name}"


def _ask(probe: Callable[[Callable], Complaint | None], solution: Callable) -> Complaint | None:
    with _seeded(0):
        return probe(solution)


# ---------------------------------------------------------------------------------- one call


@dataclass(frozen=True)
class _Outcome:
    """What came of one call: a value or an error, and which arguments it changed."""

    value: Any
    error: BaseException | None
    changed: tuple[str, ...]

    def difference(self, due: "_Outcome") -> Complaint | None:
        """How it differs from another outcome."""
        if self.error is None and due.error is None:
            return difference(self.value, due.value)
        if self.error is not None and due.error is not None:
            return None
        return Complaint("raises", f"it raises {_short(self.error or due.error)}")


def _short(error: BaseException | None) -> str:
    """The kind of an error and the start of its text."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:120].rstrip('.')}"


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """A random state of our own, so that the caller's stays as it was."""
    state = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(state)


def _fresh(value: Any) -> Any:
    """A copy of an argument."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, tuple | list):
        return type(value)(_fresh(part) for part in value)
    return _fresh_module(value) if isinstance(value, nn.Module) else value


def _fresh_module(module: nn.Module) -> nn.Module:
    """A copy with parameters of its own; ten times as fast as ``copy.deepcopy``."""
    other = object.__new__(type(module))
    held = {name: x.copy() if isinstance(x, dict | list) else x for name, x in vars(module).items()}
    for name, x in held["_parameters"].items():
        if x is not None:
            held["_parameters"][name] = nn.Parameter(x.detach().clone(), x.requires_grad)
    for name, x in held["_buffers"].items():
        held["_buffers"][name] = _fresh(x)
    for name, x in held["_modules"].items():
        held["_modules"][name] = _fresh(x)
    vars(other).update(held)
    return other


def _run(
    exercise: Exercise, solution: Callable, case: Case, *, seed: int = 0, watch: bool = False
) -> _Outcome:
    """Call a solution with copies of the arguments of a case; watch whether it changes them."""
    arguments = _fresh(case.arguments)
    value, error = None, None
    with _seeded(seed):
        try:
            value = exercise.run(solution, arguments)
        except (Exception, SystemExit) as caught:
            error = caught
    pairs = zip(_names(exercise, case), case.arguments, arguments, strict=True)
    changed = (name for name, before, after in pairs if watch and not _is_same(before, after))
    return _Outcome(value, error, tuple(changed))


def _names(exercise: Exercise, case: Case) -> list[str]:
    """What the arguments of a case are called, where the exercise has names for them."""
    names = exercise.takes if exercise.call is None else ()
    return [*names, *(f"argument {i}" for i in range(len(names), len(case.arguments)))]


def _is_same(before: Any, after: Any) -> bool:
    """Whether an argument still holds the same numbers."""
    if isinstance(before, Tensor):
        if (before.shape, before.dtype) != (after.shape, after.dtype):
            return False
        if before.is_floating_point():
            return torch.allclose(before, after, rtol=0, atol=0, equal_nan=True)
        return torch.equal(before, after)
    if isinstance(before, tuple | list):
        return len(before) == len(after) and all(map(_is_same, before, after))
    if isinstance(before, nn.Module):
        old, new = before.state_dict(), after.state_dict()
        same = old.keys() == new.keys() and all(_is_same(old[name], new[name]) for name in old)
        return same and before.training == after.training
    return before == after if isinstance(before, str | int | float) else True


# -------------------------------------------------------------------- what may be wrong with it


def _not_repeatable(
    exercise: Exercise, solution: Callable, cases: list[Case], first: list[_Outcome]
) -> Complaint | None:
    """Call it again in the same way: with another seed, and then with the same one."""
    again = [_run(exercise, solution, case, seed=1) for case in cases]
    for case, before, after in zip(cases, first, again, strict=True):
        found = after.difference(before) or before.difference(after)
        if not found:
            continue
        third = _run(exercise, solution, case)
        if before.error is None and not third.difference(before):
            says = "Two calls with the same input differ, as they draw random numbers"
            return Complaint("random", f"{says} (seen with {case.words}).")
        says = "A second call with the same input differs: something is left over from the first"
        return Complaint("keeps-state", f"{says} (seen with {case.words}).")
    return None


def _wrong_output(
    exercise: Exercise, solution: Callable, cases: list[Case], outcomes: list[_Outcome]
) -> Complaint | None:
    """Compare with the reference; if that differs, with the suspects."""
    due = [_run(exercise, exercise.reference, case) for case in cases]
    for case, outcome in zip(cases, due, strict=True):
        if outcome.error is not None:
            raise ValueError(
                f"the reference of {exercise.name} fails for {case.words}: {_short(outcome.error)}"
            )
    found = [mine.difference(right) for mine, right in zip(outcomes, due, strict=True)]
    wrong = [i for i, one in enumerate(found) if one]
    if not wrong:
        return None
    case, what = cases[wrong[0]], found[wrong[0]]
    evidence = f"Wrong first for {case.words}: {what.says}."
    suspect, is_all = _named_suspect(exercise, cases, outcomes, wrong)
    if suspect:
        rest = "" if is_all else " There is more that is wrong, too."
        return Complaint(suspect.key, f"{_sentence(suspect, solution)} {evidence}{rest}")
    changed = _changed_inputs(cases, outcomes)
    if changed:
        return Complaint(changed.key, f"{changed.says} {evidence}")
    if wrong[0] == 0 or what.key in ("wrong-dtype", "loses-precision"):
        seen = _by_the_doctor(exercise, solution) if what.key == "differs" else None
        if seen:
            return Complaint(seen.key, f"{seen.says} {evidence}")
        return Complaint(what.key, f"No known mistake explains it. {evidence}")
    right = f"It is right in {len(cases) - len(wrong)} of {len(cases)} cases."
    return Complaint(f"fails-at-{case.key}", f"{right} {evidence}")


def _by_the_doctor(exercise: Exercise, solution: Callable) -> Complaint | None:
    """What the doctor finds in a solution that no single mistake explains."""
    if exercise.patient is None:
        return None
    with _seeded(0):
        module, inputs, promises = exercise.patient(solution)
        report = examine(module, *inputs, **promises)
    found = [f for f in report.findings if f.severity != "note"]
    if not found:
        return None
    said = "; ".join(f"{f.title} ({f.evidence})" for f in found)
    return Complaint(found[0].cause, f"No single mistake explains it. The doctor sees: {said}.")


def _named_suspect(
    exercise: Exercise, cases: list[Case], outcomes: list[_Outcome], wrong: list[int]
) -> tuple[Suspect | None, bool]:
    """The suspect that behaves like the solution in every case, or else in most that are wrong.

    One that fits in part must fit up to the first wrong case, and in another wrong one, and better
    than all others.
    """
    partly: list[tuple[int, Suspect]] = []
    for suspect in exercise.suspects:
        fits = []
        for case, mine in zip(cases, outcomes, strict=True):
            fits.append(mine.difference(_run(exercise, suspect.twin, case)) is None)
            if not fits[-1] and len(fits) <= wrong[0] + 1:
                break
        if len(fits) == len(cases):
            if all(fits):
                return suspect, True
            partly.append((sum(fits[i] for i in wrong), suspect))
    best = max((number for number, _ in partly), default=0)
    chosen = [suspect for number, suspect in partly if number == best]
    return (chosen[0], False) if best > 1 and len(chosen) == 1 else (None, False)


def _sentence(suspect: Suspect, solution: Callable) -> str:
    """What a suspect says, with what was measured filled in."""
    says = suspect.says
    if suspect.measure is not None:
        says = says.format(suspect.measure(solution))
    return f"{says[0].upper()}{says[1:]}."


def _changed_inputs(cases: list[Case], outcomes: list[_Outcome]) -> Complaint | None:
    for case, outcome in zip(cases, outcomes, strict=True):
        if outcome.changed:
            names = ", ".join(outcome.changed)
            says = f"The caller's {names} changed: work on a copy ({case.words})."
            return Complaint("changes-inputs", says)
    return None


# ---------------------------------------------------------------------------------- gradients


def _wrong_gradient(exercise: Exercise, solution: Callable, cases: list[Case]) -> Complaint | None:
    """Compare the gradients with those of the reference, in all but the short dtypes."""
    for case in filter(lambda case: case.gradient, cases):
        due = _gradients(exercise, exercise.reference, case)
        try:
            got = _gradients(exercise, solution, case) if due else {}
        except Exception as error:
            says = f"The result is right, but no gradient comes back: {_short(error)}."
            return Complaint("no-gradient", says)
        size = max((float(right.abs().max()) for right in due.values()), default=0.0)
        for name, right in due.items():
            mine = got.get(name)
            if mine is None and float(right.abs().max()) > 1e-5 * size:
                says = f"The result is right, but no gradient reaches {name} ({case.words})."
                return Complaint("no-gradient", says)
            found = None if mine is None else difference(mine, right, size=10 * size)
            if found:
                key = "nan-gradient" if found.key == "not-finite" else "wrong-gradient"
                says = f"The result is right, but the gradient of {name} is not ({case.words})"
                return Complaint(key, f"{says}: {found.says}.")
    return None


def _gradients(exercise: Exercise, solution: Callable, case: Case) -> dict[str, Tensor]:
    """The gradient of a fixed mix of the outputs, for each argument and parameter it reaches."""
    arguments = _fresh(case.arguments)
    leaves = {}
    for name, argument in zip(_names(exercise, case), arguments, strict=True):
        if isinstance(argument, nn.Module):
            leaves |= {f"{name}.{inner}": p for inner, p in argument.named_parameters()}
        elif isinstance(argument, Tensor) and argument.is_floating_point():
            leaves[name] = argument.requires_grad_()
    if not leaves or any(leaf.dtype in _LOW for leaf in leaves.values()):
        return {}
    with _seeded(0):
        outputs = [y for y in _tensors(exercise.run(solution, arguments)) if y.requires_grad]
        mix = sum((y * torch.randn(y.shape, dtype=y.dtype)).sum() for y in outputs)
    if not outputs:
        return {}
    found = torch.autograd.grad(mix, list(leaves.values()), allow_unused=True)
    return {name: g for name, g in zip(leaves, found, strict=True) if g is not None}


def _tensors(value: Any) -> Iterator[Tensor]:
    """The tensors in a result."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | tuple | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)
