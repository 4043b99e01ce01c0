"""The memory lab as its reader sees it: in a real browser, without a kernel."""

import itertools
import math
import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from lab_page import give_to_python, open_lab, set_switches

from attnlib.widgets.memory import PRESETS, MemoryLab

SHAPES = [
    {"n_layers": 3, "n_heads": 6, "kv_heads": 2, "d_head": 16, "batch": 5, "memory": 2.0},
    {"n_layers": 1, "n_heads": 1, "kv_heads": 1, "d_head": 8, "batch": 1, "memory": 4096.0},
    {"n_layers": 96, "n_heads": 96, "kv_heads": 8, "d_head": 128, "batch": 64, "memory": 12.7},
]
COMBINATIONS = [
    shape | {"length": length, "dtype": dtype, "checkpointed": again, "window": window}
    for shape, length, dtype, again, window in itertools.product(
        SHAPES, (32, 300, 5000, 2**20), ("float32", "bfloat16"), (False, True), (0, 4096)
    )
]


@pytest.fixture
def lab():
    return MemoryLab(**PRESETS["BERT-base at 512"])


def control(page, words):
    """The select, checkbox, field or range behind a label."""
    begins = re.compile(f"^{re.escape(words)}")
    return page.locator("label", has_text=begins).locator("select, input")


def says(page):
    return page.locator("[aria-live=polite]").inner_text()


def table(page):
    return page.locator("tbody tr").evaluate_all(
        "(rows) => rows.map((row) => [...row.querySelectorAll('td')].map((c) => c.textContent))"
    )


def set_both(page, lab, switches):
    for name, value in switches.items():
        setattr(lab, name, value)
    set_switches(page, **switches)


def test_every_combination_of_switches_has_attnlibs_numbers(page, lab):
    given = {"patterns": lab.patterns}
    theirs = page.evaluate(
        "([given, all]) => all.map((switches) => lab.compute({...given, ...switches}))",
        [given, COMBINATIONS],
    )
    assert len(theirs) == len(COMBINATIONS) == 96
    for switches, now in zip(COMBINATIONS, theirs, strict=True):
        for name, value in switches.items():
            setattr(lab, name, value)
        ours = lab.result()
        for got, kept in zip(now["training"], ours.training.values(), strict=True):
            assert got == pytest.approx(kept, rel=1e-12, abs=0)  # beyond 2^53 not to the byte
        assert now["caches"] == list(ours.caches.values())
        assert now["longest"] == list(ours.longest.values())
        assert now["keys"] == pytest.approx(list(ours.keys.values()), rel=1e-12, abs=0)
        assert now["parameters"] == ours.parameters


def test_the_page_shows_these_numbers(page, lab):
    set_both(page, lab, {"length": 4096, "window": 256, "method": "SDPA + dropout", "memory": 20})
    bill, rows = lab.result(), table(page)
    ends = [f"{end:,}" for end in list(bill.longest.values())[:-1]]
    assert bill.longest["cache as set"] == math.inf
    assert [row[3] for row in rows] == [*ends, "no end"]
    weights, activations = (
        [x / 2**30 for x in part] for part in zip(*bill.training.values(), strict=True)
    )
    assert [row[1] for row in rows] == [*(f"{x:.1f} GiB" for x in activations), "", ""]
    assert [f"{x:.0f} GiB" for x in weights[:2]] == [row[0] for row in rows[:2]]
    assert [row[0] for row in rows[2:]] == ["none"] * 5 + ["", ""]
    assert [row[2] for row in rows] == [""] * 7 + ["9.00 GiB", "576 MiB"]
    assert [row[4] for row in rows] == ["4,096"] * 4 + ["497", "622", "256", "", ""]
    end = ends[1]
    assert "Training with SDPA with dropout on the weights keeps 936 GiB, 864 GiB" in says(page)
    assert f"It does not fit into 20 GiB. It meets the line at {end} tokens." in says(page)
    assert says(page).endswith("a cache of 576 MiB; it meets the line at no length.")
    assert page.locator(".lab-says strong").inner_text().strip() == "It does not fit into 20 GiB."
    told = page.locator(".lab-how").first.inner_text()
    assert f"SDPA + dropout {end}, fused {ends[2]}," in told
    assert "two averages (1.27 GiB in this type)" in page.locator(".lab-how").last.inner_text()


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        ({"method": "fused"}, "Training with the fused kernel keeps 9.01 GiB, activations alone."),
        ({"method": "fused"}, "It fits into 16 GiB. It meets the line at 909 tokens."),
        ({"checkpointed": True}, "the inputs of all layers and one layer that runs again."),
        ({"batch": 1024, "memory": 1.0}, "It is above the line with 32 tokens already."),
    ],
)
def test_the_result_is_spoken(page, switches, words):
    set_switches(page, **switches)
    assert words in says(page)


def curve(page, i):
    points = page.locator("polyline").nth(i).get_attribute("points").split()
    return [tuple(map(float, pair.split(","))) for pair in points]


def test_the_lines_are_straight_with_their_slopes_and_meet_the_memory_where_it_says(page, lab):
    set_switches(page, lines="costs")
    slopes = []
    for i in range(3):
        (x0, y0), *_, (x1, y1) = curve(page, i)
        slopes.append((y0 - y1) / (x1 - x0))
    weights, activations, cache = slopes
    assert weights / cache == pytest.approx(2, rel=1e-3)  # lengths between are rounded
    assert activations / cache == pytest.approx(1, rel=1e-3)
    set_switches(page, lines="methods", method="fused")
    ends = list(lab.result().longest.values())
    dots = page.locator("circle").all()
    line = page.locator("line.lab-memory").get_attribute("y1")
    for dot, end in zip(dots, ends, strict=True):
        assert dot.get_attribute("cy") == line
        x = 76 + (math.log2(end) - 7) / 13 * (466 - 76)
        assert float(dot.get_attribute("cx")) == pytest.approx(x)
    (x0, y0), (x1, y1) = [p for p in curve(page, 2) if 76 + 90 - 8 < p[0] < 76 + 90 + 16][:2]
    met = x0 + (float(line) - y0) / (y1 - y0) * (x1 - x0)
    assert met == pytest.approx(float(dots[2].get_attribute("cx")), abs=0.5)
    set_switches(page, lines="costs")
    assert page.locator("polyline").first.get_attribute("points") == ""
    assert "weights: none" in page.locator("svg text").all_text_contents()


def test_each_control_turns_its_switch_and_python_hears_of_it(page, lab):
    turns = {
        "length": (lambda: control(page, "Length").fill("12"), 4096),
        "batch": (lambda: control(page, "Batch").fill("3"), 8),
        "n_layers": (lambda: control(page, "Layers").first.fill("7"), 7),
        "d_head": (lambda: control(page, "Width of a head").fill("128"), 128),
        "dtype": (lambda: control(page, "Numbers").select_option("16 bits"), "bfloat16"),
        "method": (lambda: control(page, "Method").select_option("tiled"), "tiled"),
        "checkpointed": (lambda: control(page, "Layers run again").click(), True),
        "kv_heads": (lambda: control(page, "Key heads").fill("2"), 3),
        "window": (lambda: control(page, "Window of").select_option("1,024 tokens"), 1024),
        "memory": (lambda: control(page, "Your memory (GiB)").fill("12.7"), 12.7),
    }
    for name, (turn, value) in turns.items():
        before = says(page)
        turn()
        give_to_python(page, lab)
        assert getattr(lab, name) == value, name
        assert says(page) != before, name
    control(page, "… or slide it").fill("5")
    give_to_python(page, lab)
    assert lab.memory == 32
    assert control(page, "Your memory (GiB)").input_value() == "32"
    control(page, "Lines").select_option("the three costs")
    page.get_by_role("rowheader", name="BigBird").click()
    page.get_by_role("rowheader", name="whole cache").click()  # no method: nothing changes
    give_to_python(page, lab)
    assert (lab.lines, lab.method) == ("costs", "BigBird")
    page.get_by_role("button", name="Reset").click()
    give_to_python(page, lab)
    assert lab.result() == MemoryLab(**PRESETS["BERT-base at 512"]).result()


def test_a_preset_fills_in_the_sizes_and_other_sizes_are_ones_own(page, lab):
    start = control(page, "Start from")
    start.select_option("Mistral-7B at 32,768")
    give_to_python(page, lab)
    assert lab.result() == MemoryLab(**PRESETS["Mistral-7B at 32,768"]).result()
    assert start.evaluate("(select) => select.selectedOptions[0].text") == "Mistral-7B at 32,768"
    control(page, "Heads").first.fill("9")  # 8 heads for keys do not divide it
    give_to_python(page, lab)
    assert (lab.n_heads, lab.kv_heads) == (9, 9)
    assert start.evaluate("(select) => select.selectedOptions[0].text") == "(my own sizes)"
    assert control(page, "Key heads").get_attribute("aria-valuetext") == "9 of 9"
    assert control(page, "Key heads").get_attribute("max") == "2"  # 1, 3 or 9 of them


def test_what_is_typed_counts_if_it_is_a_memory(page, lab):
    memory = control(page, "Your memory (GiB)")
    memory.focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("0")
    give_to_python(page, lab)
    assert lab.memory == 16
    page.keyboard.type(".75")
    give_to_python(page, lab)
    assert lab.memory == 0.75
    page.keyboard.press("Control+a")
    page.keyboard.type("99999")
    page.keyboard.press("Tab")
    assert memory.input_value() == "999"  # the last one within the limits
    give_to_python(page, lab)
    assert lab.memory == 999


def test_everything_is_reached_by_the_keyboard(page, lab):
    reached = []
    for _ in range(14):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.labels?.[0]?.firstChild.data ?? ''"))
    assert reached == [
        *("Start from", "Length", "Batch", "Layers", "Heads", "Width of a head", "Numbers"),
        *("Method", "Layers run again", "Key heads", "Window of the cache"),
        *("Your memory (GiB)", "… or slide it", "Lines"),
    ]
    control(page, "Length").focus()
    page.keyboard.press("ArrowRight")
    give_to_python(page, lab)
    assert lab.length == 1024


def test_a_view_that_was_closed_hears_nothing_more(page):
    before = says(page)
    page.evaluate("stop()")
    set_switches(page, method="window")
    assert says(page) == before


@pytest.mark.parametrize(("theme", "width"), [("light", 320), ("dark", 1000)])
def test_axe_finds_nothing_and_it_fits(browser, lab, theme, width):
    page = open_lab(browser, lab, theme=theme, width=width)
    report = Axe().run(page)
    assert [(v["id"], v["nodes"][0]["html"]) for v in report.response["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()
