"""Every right solution is accepted, every wrong one is rejected, and for its own reason.

The solutions are in ``tests/exercises``, a file for each chapter. They are written as readers write
them, and share no code with the graders.
"""

import inspect

import pytest
from kill_table import RIGHT, WRONG, name_of, parts, table, verdicts

from attnlib.exercises import check, exercises

NAMES = [exercise.name for exercise in exercises()]


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
    right, _ = verdicts(name)
    said = {name_of(s): v.what for s, v in zip(RIGHT[name], right, strict=True) if not v.ok}
    assert said == {}


@pytest.mark.parametrize("name", NAMES)
def test_wrong_solutions_are_rejected_each_for_its_own_reason(name):
    _, wrong = verdicts(name)
    lines = code_lines(RIGHT[name])
    for (solution, diagnosis), verdict in zip(WRONG[name], wrong, strict=True):
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


def test_the_table_of_the_page_is_the_one_of_today():
    assert parts()[1] == table(), "python tests/kill_table.py --write"


def squeezed(text):
    return "".join(text.split())


def code_lines(solutions):
    """The lines of code in right solutions that would give something away."""
    things = [s if inspect.isroutine(s) or inspect.isclass(s) else type(s) for s in solutions]
    every = (line for thing in things for line in inspect.getsource(thing).splitlines())
    lines = {squeezed(line).removeprefix("return") for line in every}
    return {x for x in lines if len(x) > 11 and not x.startswith(("def", "class", "for"))}
