"""The distance lab as its reader sees it: in a real browser, without a kernel."""

import itertools

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from lab_page import give_to_python, open_lab, set_switches
from torch.testing import assert_close

from attnlib.recurrent import GRUCell, LSTMCell, RNNCell
from attnlib.widgets.distance import DistanceLab

COMBINATIONS = [
    dict(zip(("gates", "gate_bias", "gain"), switches, strict=True))
    for switches in itertools.product((True, False), (-2.0, 0.0, 3.5, 8.0), (0.5, 1.0, 2.0))
]


@pytest.fixture
def lab():
    torch.manual_seed(0)
    cells = [kind(3, 5) for kind in (RNNCell, LSTMCell, GRUCell)]
    return DistanceLab(torch.randn(40, 3), *cells)


def control(page, words):
    """The select, checkbox or range behind a label."""
    return page.locator("label", has_text=words).locator("select, input")


def says(page):
    return page.locator("[aria-live=polite]").inner_text()


def cells(page):
    return page.locator("tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.querySelectorAll('td')].map((c) => c.textContent))"
    )


def written(share):
    """A share as the lab writes it."""
    return f"{share:.2f}" if share >= 0.00995 else f"{share:.0e}".replace("e-0", "e-")


def test_every_combination_of_switches_has_attnlibs_numbers(page, lab):
    given = {"x": lab.x, "weights": lab.weights}
    theirs = page.evaluate(
        "([given, all]) => all.map((switches) => lab.compute({...given, ...switches}))",
        [given, COMBINATIONS],
    )
    assert len(theirs) == len(COMBINATIONS) == 24
    for switches, now in zip(COMBINATIONS, theirs, strict=True):
        for name, value in switches.items():
            setattr(lab, name, value)
        ours = lab.result()
        for stage in ("signals", "shares"):
            got = torch.tensor(now[stage], dtype=torch.float64)
            assert_close(got, getattr(ours, stage), rtol=1e-9, atol=0)  # the promise is 1e-6


@pytest.mark.parametrize("switches", COMBINATIONS[::7])
def test_the_page_shows_these_numbers(page, lab, switches):
    set_switches(page, **switches, reader="gru", distance=8)
    for name, value in switches.items():
        setattr(lab, name, value)
    shares = lab.result().shares
    expected = [[written(row[t].item()) for t in (1, 2, 4, 8, 16, 32)] for row in shares]
    assert [[cell.replace("−", "-") for cell in row] for row in cells(page)] == expected
    assert says(page).replace("−", "-").startswith(f"GRU: {expected[2][3]} of the first token’s")


def test_the_lines_stand_where_the_numbers_are(page, lab):
    shares = lab.result().shares.clamp(1e-12, 10).log10()
    for row, line in zip(shares, page.locator("polyline").all(), strict=True):
        points = [pair.split(",") for pair in line.get_attribute("points").split()]
        heights = torch.tensor([float(y) for _, y in points], dtype=torch.float64)
        slope = (heights - heights[0]) / row.sub(row[0])
        assert_close(slope[1:], slope[1].expand(39), rtol=1e-6, atol=0)  # a straight scale
        assert slope[1] < 0  # less is lower: y counts downwards


def test_each_control_turns_its_switch_and_python_hears_of_it(page, lab):
    turns = {
        "reader": (lambda: control(page, "Reader").select_option("GRU"), "gru"),
        "gates": (lambda: control(page, "Gates").click(), False),
        "gain": (lambda: control(page, "Recurrent").fill("1.5"), 1.5),
        "distance": (lambda: control(page, "Distance").fill("5"), 5),
    }
    for name, (turn, value) in turns.items():
        before = says(page)
        turn()
        give_to_python(page, lab)
        assert getattr(lab, name) == value
        assert says(page) != before, name
    control(page, "Gates").click()
    before = cells(page)
    control(page, "Gate bias").fill("6")
    give_to_python(page, lab)
    assert (lab.gates, lab.gate_bias) == (True, 6.0)
    assert cells(page) != before
    page.get_by_role("rowheader", name="attention").click()
    give_to_python(page, lab)
    assert lab.reader == "attention"
    page.get_by_role("button", name="Reset").click()
    give_to_python(page, lab)
    assert (lab.reader, lab.gates, lab.gate_bias, lab.gain) == ("lstm", True, 0.0, 1.0)


def test_everything_is_reached_by_the_keyboard(page, lab):
    reached = []
    for _ in range(6):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.labels?.[0]?.firstChild.data ?? ''"))
    assert reached[:5] == ["Reader", "Gates", "Gate bias", "Recurrent ×", "Distance"]
    control(page, "Distance").focus()
    page.keyboard.press("ArrowRight")
    give_to_python(page, lab)
    assert lab.distance == 21


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        ({"gate_bias": 8.0}, "It stays above a thousandth over all 39 steps."),
        ({"reader": "rnn"}, "An RNN has no gates: their switches change nothing."),
        ({"reader": "attention"}, "neither gates nor recurrent weights: the switches change"),
        ({"reader": "gru", "gates": False}, "Without gates a GRU is a plain RNN."),
        ({"gates": False}, "everything is added to the memory, and nothing is taken away."),
    ],
)
def test_the_result_is_spoken(page, switches, words):
    set_switches(page, **switches)
    assert words in says(page)


def test_the_distance_of_a_thousandth_is_the_first_one(page, lab):
    row = lab.result().shares[1]
    gone = int((row < 1e-3).nonzero()[0])
    assert f"It falls below a thousandth at distance {gone}." in says(page)


def test_a_view_that_was_closed_hears_nothing_more(page):
    before = says(page)
    page.evaluate("stop()")
    set_switches(page, reader="attention")
    assert says(page) == before


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(browser, lab, theme):
    page = open_lab(browser, lab, theme=theme)
    set_switches(page, gates=False)
    report = Axe().run(page)
    assert [(v["id"], v["nodes"][0]["html"]) for v in report.response["violations"]] == []
    page.close()


@pytest.mark.parametrize("width", [320, 390])
def test_it_fits_a_phone(browser, lab, width):
    page = open_lab(browser, lab, width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()
