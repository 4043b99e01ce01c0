"""The debugging lab as its reader sees it: in a real browser, without a kernel."""

import itertools

import pytest
from axe_playwright_python.sync_playwright import Axe
from lab_page import give_to_python, open_lab, set_switches
from test_debugging_lab import GIVEN, run

from attnlib.widgets.debugging import FAULTS, HEALTHY, DebuggingLab

COMBINATIONS = [
    dict(zip(FAULTS, positions, strict=True))
    for positions in itertools.product(*((HEALTHY[n], *names) for n, names in FAULTS.items()))
]


@pytest.fixture
def lab():
    return DebuggingLab(run, **GIVEN)


def test_every_combination_shows_what_is_stored_for_it(page, lab):
    theirs = page.evaluate(
        "([outcomes, all]) => all.map((switches) => lab.compute({outcomes, ...switches}))",
        [lab.outcomes, COMBINATIONS],
    )
    assert len(theirs) == 36
    for switches, now in zip(COMBINATIONS, theirs, strict=True):
        for name, position in switches.items():
            setattr(lab, name, position)
        assert now == {"faults": list(lab.faults), **lab.result()}


def test_each_control_turns_its_switch_and_the_page_follows(page, lab):
    selects = page.locator("select").all()
    assert len(selects) == len(FAULTS)
    for select, names in zip(selects, FAULTS.values(), strict=True):
        select.select_option(names[-1])
    give_to_python(page, lab)
    assert lab.faults == ("only itself", "no positions", "no scale", "no offset")
    assert page.locator("li").all_inner_texts() == [
        f"{severity}: {title}. Fix: {fix}" for severity, title, fix in lab.result()["findings"]
    ]
    assert "→ 04, 25 % right" in page.locator("[aria-live=polite]").inner_text()
    cells = page.locator("tbody td").all_inner_texts()
    assert cells == [f"{w:.2f}" for row in lab.result()["weights"] for w in row]
    assert len(page.locator("polyline").get_attribute("points").split()) == 4
    page.get_by_role("button", name="Reset").click()
    assert page.locator("li").all_inner_texts() == ["healthy"]


def test_the_sentence_judges_the_loss_by_what_is_possible(page, lab):
    told = page.locator("[aria-live=polite]")
    for last, words in ((0.1, "lower than is possible"), (1.0, "honest model"), (2.0, "too high")):
        healthy = lab.outcomes[""] | {"losses": [3.0, 3.0, 3.0, last]}
        set_switches(page, outcomes=lab.outcomes | {"": healthy})
        assert words in told.inner_text()  # and new outcomes are shown as they come


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone_and_is_accessible(browser, lab, theme):
    lab.mask = "no mask"
    page = open_lab(browser, lab, width=320, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    assert [violation["id"] for violation in Axe().run(page).response["violations"]] == []
    page.close()
