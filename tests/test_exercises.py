"""Every right solution is accepted, every wrong one is rejected, and for its own reason.

The solutions are in ``tests/exercises``, a file for each chapter. They are written as readers write
them, and share no code with the graders.
"""

import inspect
from importlib import import_module
from pathlib import Path

import pytest

from attnlib.exercises import check, exercises

CHAPTERS = sorted(p.stem for p in (Path(__file__).parent / "exercises").glob("[a-z]*.py"))
SOLUTIONS = {chapter: import_module(f"exercises.{chapter}") for chapter in CHAPTERS}
RIGHT = {name: each for one in SOLUTIONS.values() for name, each in one.RIGHT.items()}
WRONG = {name: each for one in SOLUTIONS.values() for name, each in one.WRONG.items()}
NAMES = [exercise.name for exercise in exercises()]


def name_of(solution):
    return getattr(solution, "__name__", type(solution).__name__)


@pytest.mark.parametrize("name", NAMES)
def test_each_exercise_has_four_right_and_eight_wrong_solutions(name):
    assert len({name_of(solution) for solution in RIGHT[name]}) >= 4
    assert len({name_of(solution) for solution, _ in WRONG[name]}) >= 8
    assert len({diagnosis for _, diagnosis in WRONG[name]}) >= 8


def test_no_solution_is_of_an_unknown_exercise():
    assert set(RIGHT) == set(WRONG) == set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_right_solutions_are_accepted(name):
    verdicts = {name_of(solution): check(name, solution) for solution in RIGHT[name]}
    assert {who: verdict.what for who, verdict in verdicts.items() if not verdict.ok} == {}


@pytest.mark.parametrize("name", NAMES)
def test_wrong_solutions_are_rejected_each_for_its_own_reason(name):
    lines = code_lines(RIGHT[name])
    for solution, diagnosis in WRONG[name]:
        verdict = check(name, solution, hints=0)
        assert (name_of(solution), verdict.ok) == (name_of(solution), False)
        assert (name_of(solution), verdict.diagnosis) == (name_of(solution), diagnosis)
        assert not [line for line in lines if line in squeezed(str(verdict))]


@pytest.mark.parametrize("exercise", exercises(), ids=lambda exercise: exercise.name)
def test_each_suspect_is_told_from_all_others_and_gives_nothing_away(exercise):
    keys = [suspect.key for suspect in exercise.suspects]
    found = [check(exercise, suspect.twin).diagnosis for suspect in exercise.suspects]
    assert found == keys
    told = squeezed("\n".join([*exercise.hints, *(suspect.says for suspect in exercise.suspects)]))
    assert not [line for line in code_lines(RIGHT[exercise.name]) if line in told]


def squeezed(text):
    return "".join(text.split())


def code_lines(solutions):
    """The lines of code in right solutions that would give something away."""
    sources = [
        inspect.getsource(s if inspect.isroutine(s) or inspect.isclass(s) else type(s))
        for s in solutions
    ]
    lines = {
        squeezed(line).removeprefix("return") for source in sources for line in source.splitlines()
    }
    return {
        line for line in lines if len(line) > 11 and not line.startswith(("def", "class", "for"))
    }
