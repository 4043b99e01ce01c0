"""The causal lab as its reader sees it: in a real browser, without a kernel."""

import itertools
import json
import re
from dataclasses import asdict

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from lab_page import give_to_python, open_lab, set_switches
from torch.testing import assert_close

from attnlib.widgets.causal import DTYPES, FILLS, MASKS, PLACES, CausalLab

WORDS = ["the", "past", "is", "all", "there"]
SWITCHES = {
    "mask_kind": tuple(MASKS),
    "place": tuple(PLACES),
    "fill": FILLS,
    "dtype": DTYPES,
    "replaced": (0, 2, 4),
}
COMBINATIONS = [
    dict(zip(SWITCHES, values, strict=True)) for values in itertools.product(*SWITCHES.values())
]


@pytest.fixture(scope="module")
def numbers():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(5, width, generator=generator, dtype=torch.float64) for width in (7, 7, 3)]


@pytest.fixture
def lab(numbers):
    return CausalLab(WORDS, *numbers)


def control(page, words):
    """The select behind a label."""
    return page.locator("label", has_text=re.compile(f"^{words}")).locator("select")


def says(page):
    return page.locator("[aria-live=polite]").inner_text()


def computed(page, lab, combinations):
    """What the browser computes. JSON knows no infinity, but Python's reader does."""
    state = {name: getattr(lab, name) for name in ("tokens", "query", "key", "value")}
    text = page.evaluate(
        """([state, combinations]) => JSON.stringify(
          combinations.map((switches) => lab.compute({...state, ...switches})),
          (_, x) => typeof x === "number" && !Number.isFinite(x) ? `@${x}@` : x,
        ).replaceAll(/"@|@"/g, "")""",
        [state, combinations],
    )
    return json.loads(text)


def test_every_combination_of_switches_has_pythons_numbers(page, lab):
    theirs = computed(page, lab, COMBINATIONS)
    assert len(theirs) == len(COMBINATIONS) == 4 * 3 * 3 * 4 * 3
    ours = []
    for switches in COMBINATIONS:
        for name, value in switches.items():
            setattr(lab, name, value)
        ours.append(asdict(lab.result()))
    for part in ours[0]:
        expected = [torch.as_tensor(now[part]).double() for now in ours]
        assert_close(
            torch.tensor([now[part] for now in theirs], dtype=torch.float64),
            torch.stack(expected),
            atol=1e-6,  # the last bit of a sum may round a float32 the other way: 6e-8
            rtol=0,
            equal_nan=True,
        )


def test_numbers_are_rounded_as_pytorch_rounds_them(browser):
    """Ties, subnormal numbers, the end of the range: all bits, through scores of width 1."""
    hard = [1.0, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-11, 1 + 3 * 2**-11, 3e-8, 5.97e-8, 6e-5, 0.0]
    hard += [2**-24 * 1.5, 65504.0, 65519.0]
    key = torch.tensor([[x] for x in hard], dtype=torch.float64)
    ones = torch.ones(12, 1, dtype=torch.float64)
    lab = CausalLab([str(i) for i in range(12)], ones, key, ones, mask_kind="none")
    page = open_lab(browser, lab)
    for dtype in DTYPES:
        lab.dtype = dtype
        [now] = computed(page, lab, [{"mask_kind": "none", "place": "before", "dtype": dtype}])
        assert now["scores"][0] == key[:, 0].to(getattr(torch, dtype)).double().tolist()
    page.close()


def test_each_control_turns_its_switch_and_python_hears_of_it(page, lab):
    turns = [
        ("Blocked scores", "fill", "finfo.min", 2),
        ("Mask", "mask_kind", "padding", 3),
        ("Replace token", "replaced", 1, 1),
        ("Dtype", "dtype", "bfloat16", 2),
        ("Place", "place", "after", 1),
    ]
    for label, name, value, index in turns:
        before = page.locator(".lab-body").inner_text()
        control(page, label).select_option(index=index)
        give_to_python(page, lab)
        assert getattr(lab, name) == value
        assert page.locator(".lab-body").inner_text() != before, name
    assert not control(page, "Blocked scores").is_visible()  # nothing is filled in any more


def test_a_click_on_a_row_replaces_its_token(page, lab):
    page.locator("table", has_text="Weights").get_by_role("rowheader", name="is").click()
    give_to_python(page, lab)
    assert lab.replaced == 2
    assert page.locator("tr.lab-on th").all_inner_texts() == ["is", "is"]


def test_the_meter_shows_the_leak(page, lab):
    meter = page.locator("meter")
    assert meter.evaluate("(node) => node.value") == 0
    set_switches(page, place="after")
    lab.place = "after"
    assert meter.evaluate("(node) => node.value") == pytest.approx(lab.result().leak, abs=1e-6)
    assert page.locator("output").inner_text() == f"{lab.result().leak:.2f}"


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        ({}, "No leak: replacing “there” moves no output before it."),
        ({"replaced": 0}, "“the” is the first token: nothing comes before it."),
        ({"mask_kind": "one too far"}, "Leak: replacing “there” moves 1 output before it, by up"),
        ({"mask_kind": "none"}, "moves 4 outputs before it"),
        ({"place": "after"}, "4 rows of weights without a sum of 1."),
        ({"place": "divided", "dtype": "float64"}, "Only rounding is left: replacing “there”"),
        ({"mask_kind": "padding"}, "2 rows of NaN."),
        (
            {"mask_kind": "padding", "fill": "-1e9"},
            "2 rows may see nothing, and got equal shares of everything.",
        ),
        ({"dtype": "float16", "fill": "-1e9"}, "PyTorch refuses: −1e9 does not fit into float16."),
    ],
)
def test_the_result_is_spoken(page, switches, words):
    set_switches(page, **switches)
    assert words in says(page)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(browser, numbers, theme):
    page = open_lab(browser, CausalLab(WORDS, *numbers, place="after"), theme=theme)
    report = Axe().run(page)
    found = [(v["id"], v["nodes"][0]["html"]) for v in report.response["violations"]]
    assert found == []
    page.close()


@pytest.mark.parametrize("width", [320, 390])
def test_it_fits_a_phone(browser, numbers, width):
    page = open_lab(browser, CausalLab(WORDS, *numbers, mask_kind="padding"), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    page.close()


def test_everything_is_reached_by_the_keyboard(page, lab):
    reached = []
    for _ in range(5):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.closest('label').firstChild.data"))
    assert reached == ["Mask", "Place", "Blocked scores become", "Dtype", "Replace token"]
    control(page, "Dtype").focus()
    page.keyboard.press("b")  # a select jumps to the option with this letter
    give_to_python(page, lab)
    assert lab.dtype == "bfloat16"


def test_a_view_that_was_closed_hears_nothing_more(page):
    before = says(page)
    page.evaluate("stop()")
    set_switches(page, mask_kind="none")
    assert says(page) == before
