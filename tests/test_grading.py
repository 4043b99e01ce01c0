"""The grader itself, on an exercise made up for it: double each row, then add its neighbour."""

import random
from dataclasses import replace

import pytest
import torch
from torch import nn

from attnlib.exercises import Case, Complaint, Exercise, Suspect, check, exercises
from attnlib.exercises.comparing import difference
from attnlib.exercises.verdict import Verdict


def reference(x, layer):
    return 2 * layer(x) + x.roll(1, 0)


def cases():
    layer = nn.Linear(3, 3)
    yield Case("a square", (torch.randn(3, 3), layer), "square")
    yield Case("five rows", (torch.randn(5, 3), layer), "five-rows")
    yield Case("one row", (torch.randn(1, 3), layer), "one-row")
    yield Case("float64", (torch.randn(5, 3).double(), nn.Linear(3, 3).double()), "float64")


def rows_moved(solution):
    moved = solution(torch.eye(3), nn.Linear(3, 3))
    return f"{len(moved)} rows came back"


MADE_UP = Exercise(
    name="neighbour",
    chapter="qkv",
    task="Double and add.",
    takes=("x", "layer"),
    difficulty="easy",
    minutes=1,
    hints=("The first hint.", "The second hint."),
    reference=reference,
    cases=cases,
    suspects=(
        Suspect("wrong-way", "you took the next row", lambda x, f: 2 * f(x) + x.roll(-1, 0)),
        Suspect(
            "columns", "columns, not rows: {}", lambda x, f: 2 * f(x) + x.roll(1, 1), rows_moved
        ),
        Suspect("crashes", "it needs three rows", lambda x, f: 2 * f(x) + x[[2, 0, 1]]),
    ),
)


class Remembers:
    def __init__(self):
        self.calls = 0

    def __call__(self, x, layer):
        self.calls += 1
        return reference(x, layer) + self.calls


class Counts(Remembers):
    def __call__(self, x, layer):
        return reference(x, layer) + super().__call__(x, layer).new_tensor(0.0)


def next_row(x, layer):
    return 2 * layer(x) + torch.cat([x[1:], x[:1]])


def next_row_and_worse(x, layer):
    y = next_row(x, layer)
    return y + 1 if x.dtype == torch.float64 else y


def next_column(x, layer):
    return 2 * layer(x) + torch.cat([x[:, -1:], x[:, :-1]], 1)


def three_rows_only(x, layer):
    return reference(x, layer) + 0 * x[2]


def adds_in_place(x, layer):
    y = reference(x, layer)
    with torch.no_grad():
        x += 1
    return y


def changes_the_layer(x, layer):
    y = reference(x, layer)
    with torch.no_grad():
        layer.bias.zero_()
    return y


def doubles_in_place(x, layer):
    x.data.mul_(3)
    return reference(x, layer)


def nan_behind_a_where(x, layer):
    hidden = torch.where(x > -1e9, torch.zeros_like(x), x.abs().neg().sqrt())
    return reference(x, layer) + hidden


def unsqueezes_in_place(x, layer):
    y = reference(x, layer)
    x.unsqueeze_(0)
    return y


def halves_in_place(x, layer):
    y = reference(x, layer)
    x.data = x.half()
    return y


def trains(x, layer):
    layer.eval()
    return reference(x, layer)


def exits(x, layer):
    raise SystemExit(3)


WRONG = {
    "not-callable": [3, None, "neighbour", torch.zeros(2)],
    "wrong-signature": [lambda x: x, lambda: 0, lambda x, layer, *, scale: x, abs],
    "returns-none": [lambda x, layer: None],
    "wrong-type": [lambda x, layer: [1.0], lambda x, layer: reference(x, layer).tolist()],
    "raises": [lambda x, layer: x @ x[:2], exits],
    "wrong-shape": [lambda x, layer: reference(x, layer)[0]],
    "wrong-dtype": [lambda x, layer: reference(x, layer).double()],
    "loses-precision": [lambda x, layer: reference(x, layer).float().to(x.dtype)],
    "not-finite": [lambda x, layer: reference(x, layer) / 0],
    "differs": [lambda x, layer: x, lambda x, layer: reference(x, layer) * 1.0001],
    "random": [lambda x, layer: nn.functional.dropout(reference(x, layer), 0.5)],
    "keeps-state": [Remembers(), lambda x, layer: reference(x, layer) + random.random()],
    "wrong-way": [next_row, next_row_and_worse],
    "columns": [next_column],
    "fails-at-five-rows": [lambda x, layer: reference(x[:3], layer)],
    "crashes": [lambda x, layer: 2 * layer(x) + x.T.roll(1, 1).T[:3]],
    "fails-at-one-row": [three_rows_only, lambda x, layer: reference(x, layer).squeeze()],
    "changes-inputs": [
        adds_in_place,
        changes_the_layer,
        doubles_in_place,
        unsqueezes_in_place,
        halves_in_place,
        trains,
    ],
    "no-gradient": [
        lambda x, layer: reference(x.detach(), layer),
        lambda x, layer: reference(x, layer).detach(),
        lambda x, layer: torch.tensor(reference(x, layer).tolist(), dtype=x.dtype),
        lambda x, layer: torch.from_numpy(x.numpy()) - x.detach() + reference(x, layer),
    ],
    "wrong-gradient": [lambda x, layer: reference(x, layer) + x - x.detach()],
    "nan-gradient": [nan_behind_a_where],
}
PAIRS = [(key, solution) for key, solutions in WRONG.items() for solution in solutions]


@pytest.mark.parametrize(("key", "solution"), PAIRS, ids=[key for key, _ in PAIRS])
def test_each_way_to_be_wrong_has_its_diagnosis(key, solution):
    verdict = check(MADE_UP, solution)
    assert (verdict.ok, verdict.diagnosis) == (False, key)
    assert verdict.what[0].isupper()
    assert verdict.what.endswith(".")


@pytest.mark.parametrize(
    "solution",
    [
        reference,
        lambda x, layer: layer(x) + layer(x) + torch.cat([x[-1:], x[:-1]]),
        lambda data, f, unused=1: reference(data, f),
        lambda *both: reference(*both),
    ],
)
def test_right_solutions_are_right(solution):
    verdict = check(MADE_UP, solution)
    assert (verdict.ok, verdict.diagnosis, verdict.hint) == (True, "right", "")
    assert str(verdict) == "neighbour: right in 4 cases"


def test_the_verdict_holds_what_was_measured():
    assert check(MADE_UP, next_row).what.startswith(
        "You took the next row. Wrong first for a square: 9 of 9 numbers are off; at (0, 0) it has"
    )
    assert "there is more" not in check(MADE_UP, next_row).what.lower()
    assert check(MADE_UP, next_row_and_worse).what.endswith("There is more that is wrong, too.")
    assert "Columns, not rows: 3 rows came back." in check(MADE_UP, next_column).what
    assert "It is right in 3 of 4 cases." in check(MADE_UP, WRONG["fails-at-one-row"][1]).what
    assert "no gradient reaches x (a square)" in check(MADE_UP, WRONG["no-gradient"][0]).what
    assert "caller's layer changed" in check(MADE_UP, changes_the_layer).what
    assert "it raises SystemExit: 3" in check(MADE_UP, exits).what
    assert "It got an int, which" in check(MADE_UP, 3).what
    assert "but takes (x): too many" in check(MADE_UP, lambda x: x).what


def test_hints_come_one_by_one():
    hints = [check(MADE_UP, next_row, hints=number).hint for number in range(4)]
    first = "The first hint. (There is another one: hints=2.)"
    assert hints == ["", first, "The second hint.", "The second hint."]
    assert check(MADE_UP, next_row) == check(MADE_UP, next_row, hints=1)


def test_a_probe_has_the_last_word():
    asked = []

    def probe(solution):
        asked.append(solution)
        return Complaint("too-long", "It takes 9 lines.") if len(asked) > 1 else None

    exercise = replace(MADE_UP, probes=(probe,))
    assert not check(exercise, next_row).ok
    assert not asked
    assert check(exercise, reference).ok
    assert check(exercise, reference).diagnosis == "too-long"


def test_the_doctor_is_asked_about_what_no_suspect_explains():
    def patient(solution):
        return lambda x: solution(x[0], nn.Linear(3, 3)), (torch.randn(2, 5, 3),), {"causal": False}

    exercise = replace(MADE_UP, patient=patient)
    found = check(exercise, lambda x, layer: 3 * layer(x))
    assert found.diagnosis != "differs"
    assert found.what.startswith("No single mistake explains it. The doctor sees: ")
    assert check(exercise, next_row).diagnosis == "wrong-way"
    healthy = replace(MADE_UP, patient=lambda f: (nn.Linear(3, 3), (torch.randn(2, 5, 3),), {}))
    assert check(healthy, lambda x, layer: 3 * layer(x)).diagnosis == "differs"


def test_a_class_may_be_handed_in():
    class Doubler:
        def __init__(self, layer):
            self.layer = layer

        def __call__(self, x):
            return reference(x, self.layer)

    def run(solution, x, layer):
        return solution(layer)(x)

    exercise = replace(MADE_UP, takes=("layer",), reference=Doubler, suspects=(), call=run)
    assert check(exercise, Doubler).ok
    assert check(exercise, reference).diagnosis == "wrong-signature"
    assert (
        check(exercise, type("Half", (Doubler,), {"__call__": lambda s, x: x})).diagnosis
        == "differs"
    )


def test_nothing_is_left_behind():
    torch.manual_seed(7)
    before = torch.get_rng_state()
    for solution in (reference, next_row, WRONG["random"][0]):
        check(MADE_UP, solution)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_list_of_exercises_is_a_table():
    every = exercises()
    assert str(exercises("qkv")).splitlines()[0].split()[:4] == ["attend", "qkv", "easy", "10"]
    assert len(str(every).splitlines()) == len(every)
    html = every._repr_html_()
    assert html.count('<th scope="row">') == len(every)
    assert "<code>attend(q, k, v)</code>" in html
    assert f"<caption>{len(every)} exercises</caption>" in html
    assert {e.chapter for e in exercises("qkv")} == {"qkv"}
    assert repr(every) == str(every)


def test_a_verdict_prints_and_renders():
    wrong = Verdict("a", False, "b<c", "seen <here> " + "long " * 30, "why & how")
    lines = str(wrong).splitlines()
    assert lines[:2] == ["a: not yet (b<c)", "  seen: seen <here> " + ("long " * 16).rstrip()]
    assert lines[-1] == "  hint: why & how"
    assert max(map(len, lines)) <= 100
    assert repr(wrong) == str(wrong)
    html = wrong._repr_html_()
    assert "<caption>a: not yet (b&lt;c)</caption>" in html
    assert '<th scope="row">hint</th><td>why &amp; how</td>' in html
    assert "hint" not in Verdict("a", False, "b", "c")._repr_html_() + str(
        Verdict("a", False, "b", "c")
    )
    right = Verdict("a", True, "right", "right in <2> cases")
    assert right._repr_html_() == "<p><strong>a</strong>: right in &lt;2&gt; cases</p>"


# ------------------------------------------------------------------------------- comparing

ONE, NAN, INFINITE = torch.ones(2), torch.tensor([1.0, torch.nan]), torch.tensor([1.0, torch.inf])


@pytest.mark.parametrize(
    ("got", "due", "kind"),
    [
        (ONE, ONE + 1e-6, None),
        (ONE, ONE + 1e-4, "differs"),
        (100 * ONE, 100 * ONE + 1e-3, None),
        (ONE.double(), ONE.double() + 1e-7, "loses-precision"),
        (ONE.double(), ONE.double() + 1e-11, None),
        (ONE.half(), ONE.half() + 0.002, None),
        (ONE.half(), ONE.half() + 0.01, "differs"),
        (NAN, NAN, None),
        (NAN, ONE, "not-finite"),
        (ONE, NAN, "differs"),
        (INFINITE, INFINITE, None),
        (-INFINITE, INFINITE, "differs"),
        (INFINITE, ONE, "not-finite"),
        (ONE, ONE.bool(), "wrong-dtype"),
        (ONE.bool(), ~ONE.bool(), "differs"),
        (ONE.int(), ONE.int(), None),
        (torch.ones(0, 2), torch.ones(0, 2), None),
        (ONE, torch.ones(2, 1), "wrong-shape"),
        ([1.0, 1.0], ONE, "wrong-type"),
        (None, ONE, "returns-none"),
        (None, None, None),
        (3, 3, None),
        (3.0, 3, None),
        (torch.tensor(3), 3, None),
        (ONE, 3, "wrong-type"),
        (True, 1, "wrong-type"),
        (float("nan"), 1.0, "differs"),
        ("a", "a", None),
        ("a", "b", "differs"),
        (1, "b", "wrong-type"),
        ((ONE, ONE), (ONE, ONE), None),
        ([ONE, ONE], (ONE, ONE), None),
        ((ONE, 2 * ONE), (ONE, ONE), "differs"),
        ((ONE,), (ONE, ONE), "wrong-type"),
        (ONE, (ONE, ONE), "wrong-type"),
        ({"a": ONE}, {"a": ONE}, None),
        ({"a": 2 * ONE}, {"a": ONE}, "differs"),
        ({"b": ONE}, {"a": ONE}, "wrong-type"),
    ],
)
def test_differences_are_found_and_named(got, due, kind):
    found = difference(got, due)
    assert (found and found.key) == kind
    assert found is None or found.says


def test_a_difference_says_where():
    due = torch.zeros(2, 3)
    due[1, 2] = 0.25
    words = difference(torch.zeros(2, 3), due).says
    assert words == "1 of 6 numbers are off; at (1, 2) it has 0, due 0.25"
    assert difference(ONE.bool(), ~ONE.bool()).says.endswith("at (0,) it has True, due False")
    assert difference(ONE, ONE + 1e-4, size=100) is None


# ------------------------------------------------------------------------------- refusals


@pytest.mark.messages
def test_what_is_no_exercise_is_refused():
    with pytest.raises(ValueError, match=r"no exercise 'atend'; did you mean one of \['attend'"):
        check("atend", reference)
    with pytest.raises(ValueError, match="no exercise is of chapter 'cooking'; there are some of"):
        exercises("cooking")
    with pytest.raises(ValueError, match="hints must be 0 or more, got -1"):
        check(MADE_UP, reference, hints=-1)
    with pytest.raises(TypeError, match="hints must be a whole number"):
        check(MADE_UP, reference, hints=1.5)
    with pytest.raises(ValueError, match=r"difficulty must be one of .*, got 'so so'"):
        replace(MADE_UP, difficulty="so so")
    with pytest.raises(ValueError, match="the exercise neighbour has no hint"):
        replace(MADE_UP, hints=())
    broken = replace(MADE_UP, reference=lambda x, layer: x @ x)
    with pytest.raises(ValueError, match="reference of neighbour fails for five rows: RuntimeErr"):
        check(broken, reference)
