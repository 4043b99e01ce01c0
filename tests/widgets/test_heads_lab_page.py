"""The heads lab as its reader sees it: in a real browser, without a kernel."""

import itertools
from dataclasses import asdict

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from lab_page import give_to_python, open_lab, set_switches
from torch.testing import assert_close

from attnlib.layers import MultiHeadAttention
from attnlib.widgets.heads import HeadsLab

HEADS = (1, 2, 4, 8, 16)
COMBINATIONS = [
    {"n_heads": heads, "cut": cut, "reshape": reshape, "selected": 2}
    for heads in HEADS
    for cut, reshape in itertools.product(range(-1, heads), ("right", "wrong"))
]


@pytest.fixture(scope="module")
def made():
    torch.manual_seed(0)
    layers = [MultiHeadAttention(16, h) for h in HEADS]
    inputs = [3 * torch.randn(8, 16) for _ in HEADS]
    return layers, inputs, torch.randn(8, 16)


@pytest.fixture
def lab(made):
    return HeadsLab("ABCDEFGH", *made, groups=["left", "right"], n_heads=4)


def control(page, words):
    """The visible select behind a label."""
    return page.locator("label:visible", has_text=words).locator("select")


def cells(page, title):
    table = page.locator("table:visible", has=page.locator("caption", has_text=title))
    return table.evaluate(
        """(table) => [...table.tBodies[0].rows].map(
          (row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent))"""
    )


def says(page):
    return page.locator("[aria-live=polite]").inner_text()


def test_every_combination_of_switches_has_attnlibs_numbers(page, lab):
    given = {name: getattr(lab, name) for name in ("tokens", "layers", "target", "groups")}
    theirs = page.evaluate(
        "([given, all]) => all.map((switches) => lab.compute({...given, ...switches}))",
        [given, COMBINATIONS],
    )
    assert len(theirs) == len(COMBINATIONS) == 2 * (sum(HEADS) + len(HEADS))
    for switches, now in zip(COMBINATIONS, theirs, strict=True):
        for name, value in switches.items():
            setattr(lab, name, value)
        for name, ours in asdict(lab.result()).items():
            got = torch.tensor(now[name], dtype=torch.float64)
            assert_close(got, ours.double(), atol=1e-9, rtol=0)  # the promise is 1e-6


def test_the_page_shows_these_numbers(page, lab):
    for switches in ({"cut": 1}, {"n_heads": 2, "reshape": "wrong", "cut": -1, "selected": 3}):
        for name, value in switches.items():
            setattr(lab, name, value)
        set_switches(page, **switches)
        now = lab.result()
        names = [[f"{'ABCDEFGH'[c // 16]}{c % 16}" for c in row] for row in now.cells.tolist()]
        assert cells(page, "1 Cells") == names
        looks = [[f"{w:.2f}" for w in row] for row in now.weights[:, lab.selected].tolist()]
        assert cells(page, "2 Weights") == looks
        errors = [*now.errors.tolist(), now.errors.mean().item()]
        assert cells(page, "3 Error") == [[f"{e:.2f}" for e in errors]]


def test_a_cut_head_is_hatched(page):
    control(page, "Cut out").select_option("head 2")
    hatched = page.evaluate(
        """() => [...document.querySelectorAll("tbody tr")].filter((row) => row.offsetParent)
          .map((row) => [...row.cells].slice(1).flatMap(
            (cell, i) => (cell.matches(".lab-blocked") ? [i] : [])))"""
    )
    head_2 = [8, 9, 10, 11]
    assert hatched == [head_2] * 8 + [[], [], list(range(8)), []] + [[]]


def test_each_control_turns_its_switch_and_python_hears_of_it(page, lab):
    turns = {
        "reshape": ("Reshape", "wrong: view only", "wrong"),
        "cut": ("Cut out", "head 3", 3),
        "selected": ("Look from", "C", 2),
    }
    for name, (label, option, value) in turns.items():
        before = says(page)
        control(page, label).select_option(option)
        give_to_python(page, lab)
        assert getattr(lab, name) == value
        assert says(page) != before, name
    control(page, "Heads").select_option("2")
    give_to_python(page, lab)
    assert (lab.n_heads, lab.cut) == (2, -1)  # another model, another head 3
    page.locator("table", has_text="1 Cells").get_by_role("rowheader", name="E").click()
    give_to_python(page, lab)
    assert lab.selected == 4
    page.get_by_role("button", name="Reset").click()
    give_to_python(page, lab)
    assert (lab.n_heads, lab.reshape, lab.cut, lab.selected) == (4, "right", -1, 0)


def test_everything_is_reached_by_the_keyboard(page):
    reached = []
    for _ in range(5):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => (document.activeElement.closest("label")?.firstChild.data
                  ?? document.activeElement.textContent)"""
            )
        )
    assert reached == ["Heads", "Reshape", "Cut out", "Look from", "Reset"]


def test_the_result_is_spoken(page, lab):
    heard = {}
    for name, switches in {
        "plain": {},
        "cut": {"cut": 0},
        "wrong": {"reshape": "wrong", "cut": -1},
        "one": {"n_heads": 1},
        "none": {"cut": 0, "reshape": "right"},
    }.items():
        set_switches(page, **switches)
        heard[name] = says(page)
    error = lab.result().errors.mean()
    assert heard["plain"].startswith(f"4 heads of width 4: error {error:.2f}. From A, head ")
    assert "Without head 0: " in heard["cut"]
    assert heard["wrong"].endswith("a head holds only some tokens.")
    assert heard["one"].endswith("With a single head the wrong reshape moves nothing.")
    assert heard["none"].endswith("Nothing is left.")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_and_it_fits_a_phone(browser, lab, theme):
    lab.reshape, lab.cut = "wrong", 1
    page = open_lab(browser, lab, width=320, theme=theme)
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    report = Axe().run(page)
    assert [(v["id"], v["nodes"][0]["html"]) for v in report.response["violations"]] == []
    page.close()
