"""Run every solution in ``tests/exercises``, and count: the table on the page of the graders.

``python tests/kill_table.py`` prints it, and with ``--write`` puts it into ``book/graders.md``.
"""

import sys
from functools import cache
from importlib import import_module
from pathlib import Path

TESTS = Path(__file__).resolve().parent
PAGE = TESTS.parent / "book" / "graders.md"
BEGIN, END = "<!-- the table: python tests/kill_table.py --write -->\n", "<!-- its end -->\n"
HEAD = (
    "exercise",
    "chapter",
    "difficulty",
    "minutes",
    "right accepted",
    "wrong rejected",
    "diagnoses",
)

CHAPTERS = sorted(p.stem for p in (TESTS / "exercises").glob("[a-z]*.py"))
SOLUTIONS = [import_module(f"exercises.{chapter}") for chapter in CHAPTERS]
RIGHT = {name: each for one in SOLUTIONS for name, each in one.RIGHT.items()}
WRONG = {name: each for one in SOLUTIONS for name, each in one.WRONG.items()}


def name_of(solution):
    return getattr(solution, "__name__", type(solution).__name__)


@cache
def verdicts(name):
    """What the grader says of each right and of each wrong solution of one exercise."""
    from attnlib.exercises import check

    right = [check(name, solution, hints=0) for solution in RIGHT[name]]
    wrong = [check(name, solution, hints=0) for solution, _ in WRONG[name]]
    return right, wrong


def table():
    """The table in Markdown, with a row for the sums."""
    from attnlib.exercises import exercises

    rows, sums = [], [0, 0, 0, 0]
    for exercise in exercises():
        right, wrong = verdicts(exercise.name)
        accepted, rejected = sum(v.ok for v in right), sum(not v.ok for v in wrong)
        diagnoses = len({v.diagnosis for v in wrong if not v.ok})
        counts = f"{accepted} of {len(right)}", f"{rejected} of {len(wrong)}", diagnoses
        rows.append(
            (exercise.name, exercise.chapter, exercise.difficulty, exercise.minutes, *counts)
        )
        sums = [
            a + b for a, b in zip(sums, (accepted, len(right), rejected, len(wrong)), strict=True)
        ]
    number = f"{len(rows)} exercises"
    rows.append((number, "", "", "", f"{sums[0]} of {sums[1]}", f"{sums[2]} of {sums[3]}", ""))
    lines = [HEAD, ("---",) * len(HEAD), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)


def parts():
    """The page before the table, the table, and the page after it."""
    before, rest = PAGE.read_text("utf-8").split(BEGIN)
    found, after = rest.split(END)
    return before, found.strip("\n") + "\n", after


if __name__ == "__main__":
    sys.path.insert(0, str(TESTS.parent))
    print(table(), end="")
    if sys.argv[1:] == ["--write"]:
        before, _, after = parts()
        PAGE.write_text(f"{before}{BEGIN}\n{table()}\n{END}{after}", "utf-8")
