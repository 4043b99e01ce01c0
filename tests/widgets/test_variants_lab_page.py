"""The variants lab as its reader sees it: in a real browser, without a kernel."""

import itertools

import pytest
from axe_playwright_python.sync_playwright import Axe
from lab_page import give_to_python, open_lab, set_switches
from test_variants_lab import KNOWN, TASKS

from attnlib.widgets.variants import MASKS, SHIFTS, STACKS, VariantsLab

COMBINATIONS = [
    dict(zip(("stacks", "mask", "task", "shift"), switches, strict=True))
    for switches in itertools.product(STACKS, MASKS, TASKS, SHIFTS)
]


@pytest.fixture
def lab():
    return VariantsLab(TASKS, KNOWN)


def test_every_combination_of_switches_has_attnlibs_masks(page, lab):
    given = {"tasks": lab.tasks, "known": lab.known}
    theirs = page.evaluate(
        "([given, all]) => all.map((switches) => lab.compute({...given, ...switches}))",
        [given, COMBINATIONS],
    )
    assert len(theirs) == len(COMBINATIONS) == 36
    for switches, now in zip(COMBINATIONS, theirs, strict=True):
        for name, value in switches.items():
            setattr(lab, name, value)
        ours = lab.result()
        assert now["allowed"] == ours.allowed.tolist()
        for name in ("tokens", "answers", "copied", "missed", "model"):
            assert now[name] == getattr(ours, name), (name, switches)


def test_each_control_turns_its_switch_and_python_hears_of_it(page, lab):
    turns = {
        "Stacks": ("two", "stacks", "two"),
        "Who answers sees": ("the past", "mask", "past"),
        "Task": ("spans", "task", "spans"),
        "Labels, as written": ("not shifted", "shift", "as it is"),
    }
    for label, (words, name, value) in turns.items():
        page.locator("label", has_text=label).locator("select").select_option(words)
        give_to_python(page, lab)
        assert getattr(lab, name) == value
    page.get_by_role("button", name="Reset").click()
    give_to_python(page, lab)
    assert (lab.stacks, lab.mask, lab.task, lab.shift) == ("one", "all", "hidden", "shifted")


def test_the_table_shows_who_sees_whom_and_what_must_be_said(page):
    set_switches(page, stacks="two", mask="past", task="spans")
    rows = page.locator("tbody tr").all()
    shown = [[cell or "." for cell in row.locator("td").all_inner_texts()] for row in rows]
    assert ["".join(row) for row in shown] == ["•••...", "•••...", "•••...", "×××•.<0>", "×××••b"]
    assert page.locator("td.lab-blocked").count() == 7
    set_switches(page, shift="as it is")
    assert page.locator("tbody td", has_text="!").count() == 2


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        ({}, "This is BERT."),
        ({"mask": "prefix"}, "This is BERT. There is nothing but source"),
        ({"mask": "past"}, "does not see 1 of the 3 tokens that it should read"),
        ({"task": "next"}, "2 of 3 labels see their own answer"),
        ({"task": "next", "shift": "as it is"}, "Every label sees its own answer"),
        ({"task": "spans", "mask": "past"}, "None of the models here was made so"),
        ({"task": "spans", "mask": "prefix", "stacks": "two"}, "This is T5. No source stands"),
    ],
)
def test_the_sentence_says_what_comes_of_it(page, switches, words):
    set_switches(page, **switches)
    assert words in page.locator("[aria-live=polite]").inner_text().replace("  ", " ")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone_and_is_accessible(browser, lab, theme):
    lab.stacks, lab.task = "two", "spans"
    page = open_lab(browser, lab, width=320, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    found = Axe().run(page).response["violations"]
    assert [violation["id"] for violation in found] == []
    page.close()
