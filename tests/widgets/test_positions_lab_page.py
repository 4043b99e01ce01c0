"""The positions lab as its reader sees it: in a real browser, without a kernel."""

import itertools

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from lab_page import give_to_python, open_lab, set_switches
from torch.testing import assert_close

from attnlib.widgets.positions import BASES, WAYS, PositionsLab

COMBINATIONS = [
    dict(zip(("encoding", "base", "length", "offset"), switches, strict=True))
    for switches in itertools.product(WAYS, BASES, (2, 7), (0, 13))
]


@pytest.fixture
def lab():
    torch.manual_seed(0)
    return PositionsLab(torch.randn(6) / 2, torch.randn(16, 6) / 2)  # all scores have two decimals


def control(page, words):
    return page.locator("label", has_text=words).locator("select, input")


def says(page):
    return page.locator("[aria-live=polite]").inner_text()


def test_every_combination_of_switches_has_attnlibs_numbers(page, lab):
    given = {"token": lab.token, "table": lab.table}
    theirs = page.evaluate(
        "([given, all]) => all.map((switches) => lab.compute({...given, ...switches}))",
        [given, COMBINATIONS],
    )
    assert len(theirs) == len(COMBINATIONS) == 100
    for switches, now in zip(COMBINATIONS, theirs, strict=True):
        for name, value in switches.items():
            setattr(lab, name, value)
        ours = lab.result()
        got = torch.tensor(now["scores"], dtype=torch.float64)
        assert_close(got, ours.scores, rtol=0, atol=1e-6, equal_nan=True)
        assert abs(now["spread"] - ours.spread) < 2e-6


def test_the_page_shows_these_numbers(page, lab):
    for switches in COMBINATIONS[1::23]:
        set_switches(page, **switches)
        for name, value in switches.items():
            setattr(lab, name, value)
        shown = page.locator("tbody td").all_inner_texts()
        ours = lab.result().scores.flatten().tolist()
        expected = ["–" if x != x else f"{x:.2f}".replace("-0.00", "0.00") for x in ours]
        assert [cell.replace("−", "-") for cell in shown] == expected


def test_each_control_turns_its_switch_and_python_hears_of_it(page, lab):
    turns = {
        "encoding": (lambda: control(page, "Encoding").select_option("RoPE"), "rope"),
        "base": (lambda: control(page, "Base").select_option("100"), 100),
        "length": (lambda: control(page, "Length").fill("5"), 5),
        "offset": (lambda: control(page, "Offset").fill("20"), 20),
    }
    for name, (turn, value) in turns.items():
        turn()
        give_to_python(page, lab)
        assert getattr(lab, name) == value
    assert page.locator("thead th").all_inner_texts() == ["20", "21", "22", "23", "24"]
    page.get_by_role("button", name="Reset").click()
    give_to_python(page, lab)
    assert (lab.encoding, lab.base, lab.length, lab.offset) == ("sinusoidal", 10_000, 8, 0)


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        ({"encoding": "none"}, "nothing tells the places apart. The base changes nothing"),
        ({"encoding": "rope", "offset": 60}, "Each diagonal holds one number"),
        ({"encoding": "sinusoidal"}, "Scores of the same distance differ by up to"),
        ({"encoding": "learned", "offset": 12}, "The table ends at position 15."),
        ({"encoding": "learned", "offset": 80}, "has no row for these positions"),
    ],
)
def test_the_sentence_says_what_is_seen(page, switches, words):
    set_switches(page, **switches)
    assert words in says(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_a_phone_and_is_accessible(browser, lab, theme):
    lab.length = 12
    page = open_lab(browser, lab, width=320, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    found = Axe().run(page).response["violations"]
    assert [violation["id"] for violation in found] == []
    page.close()
