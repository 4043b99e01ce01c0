"""The attention lab as its reader sees it: in a real browser, without a kernel."""

import itertools
import json
import math
from dataclasses import asdict

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from lab_page import give_to_python, open_lab, set_switches
from torch.testing import assert_close

from attnlib.widgets.attention import AttentionLab

WORDS = ["the", "animal", "crossed", "it", "tired"]
DRAWINGS = (
    "xxxxx xxxxx xxxxx xxxxx xxxxx",
    "..... x.x.x .x.x. ..xx. xxxxx",
    "....x ..... xx... ....x x....",
)
MASKS = (
    {"mask_kind": "none"},
    {"mask_kind": "causal"},
    *({"mask_kind": "padding", "length": length} for length in (0, 1, 3, 5)),
    *({"mask_kind": "window", "radius": radius} for radius in (0, 1, 2, 4)),
    *(
        {"mask_kind": "drawn", "drawn": [[cell == "x" for cell in row] for row in picture.split()]}
        for picture in DRAWINGS
    ),
)
OTHERS = {
    "scaled": (True, False),
    "polarity": ("attend", "blocked"),
    "softmax_over": ("keys", "queries"),
    "temperature": (0.1, 0.63, 1.0, 10.0),
    "d_k": (1, 2, 4, 7),
}
COMBINATIONS = [
    {**mask, **dict(zip(OTHERS, others, strict=True))}
    for mask, others in itertools.product(MASKS, itertools.product(*OTHERS.values()))
]
TITLES = {
    "scores": "1 Scores",
    "scaled": "2 Scaled",
    "mask": "3 Mask",
    "masked": "4 Masked",
    "weights": "5 Weights",
    "output": "6 Output",
}


@pytest.fixture(scope="module")
def numbers():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(5, width, generator=generator, dtype=torch.float64) for width in (7, 7, 3)]


@pytest.fixture
def lab(numbers):
    return AttentionLab(WORDS, *numbers)


def control(page, words):
    """The select, checkbox or range behind a label."""
    return page.locator("label", has_text=words).locator("select, input")


def says(page):
    return page.locator("[aria-live=polite]").inner_text()


def cells(page, title):
    """The texts of a table's cells, row by row, without the headers."""
    table = page.locator("table", has=page.locator("caption", has_text=title))
    return table.evaluate(
        """(table) => [...table.tBodies[0].rows].map(
          (row) => [...row.querySelectorAll("td")].map((cell) => cell.textContent))"""
    )


def contrast(one, other):
    """Contrast of two colours by WCAG 2.1, 1 to 21."""

    def luminance(rgb):
        channels = [c / 255 for c in rgb]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def written(value):
    """A number as the lab writes it."""
    if isinstance(value, bool):
        return "T" if value else "F"
    if math.isinf(value):
        return "−∞"
    if math.isnan(value):
        return "–"
    decimals = 2 if abs(value) < 9.995 else 1
    return f"{value:.{decimals}f}".replace("-0.00", "0.00").replace("-", "−")


# --------------------------------------------------------------------------------- numbers


def test_every_combination_of_switches_has_attnlibs_numbers(page, lab):
    """The browser's arithmetic, at full precision, against the package's."""
    state = {name: getattr(lab, name) for name in ("tokens", "query", "key", "value")}
    # JSON knows no infinity, but Python's reader does.
    text = page.evaluate(
        """([state, combinations]) => JSON.stringify(
          combinations.map((switches) => lab.compute({...state, ...switches})),
          (_, x) => typeof x === "number" && !Number.isFinite(x) ? `@${x}@` : x,
        ).replaceAll(/"@|@"/g, "")""",
        [state, COMBINATIONS],
    )
    theirs = json.loads(text)
    assert len(theirs) == len(COMBINATIONS) == 13 * 2 * 2 * 2 * 4 * 4
    ours = []
    for switches in COMBINATIONS:
        for name, value in switches.items():
            setattr(lab, name, value)
        ours.append(asdict(lab.result()))
    for stage in ours[0]:
        assert_close(
            torch.tensor([now[stage] for now in theirs], dtype=torch.float64),
            torch.stack([now[stage] for now in ours]).double(),
            atol=1e-9,  # the promise is 1e-6
            rtol=0,
            equal_nan=True,
        )


@pytest.mark.parametrize("switches", COMBINATIONS[::97])
def test_the_page_shows_these_numbers(page, lab, switches):
    for name, value in switches.items():
        setattr(lab, name, value)
    set_switches(page, **switches)
    now = asdict(lab.result())
    for stage, title in TITLES.items():
        expected = [[written(value) for value in row] for row in now[stage].tolist()]
        if stage == "weights":
            more = zip(now["row_sums"].tolist(), now["entropy"].tolist(), strict=True)
            expected = [
                row + list(map(written, pair)) for row, pair in zip(expected, more, strict=True)
            ]
            expected.append([*map(written, now["column_sums"].tolist()), "", ""])
        assert cells(page, title) == expected, title


def test_blocked_cells_are_hatched_and_the_others_are_not(page, lab):
    set_switches(page, mask_kind="causal", polarity="blocked")
    lab.mask_kind, lab.polarity = "causal", "blocked"
    for title in ("3 Mask", "4 Masked", "5 Weights"):
        table = page.locator("table", has=page.locator("caption", has_text=title))
        hatched = table.evaluate(
            """(table) => [...table.querySelectorAll("tbody tr:not(.lab-foot)")].map((row) =>
              [...row.querySelectorAll("td:not(.lab-more)")].map(
                (cell) => Boolean(cell.matches(".lab-blocked, :has(.lab-blocked)"))))"""
        )
        assert torch.equal(~torch.tensor(hatched), lab.result().allowed), title


def test_a_number_arrives_with_every_digit(page, lab):
    assert page.evaluate("model.get('query')") == lab.query


# ------------------------------------------------------------------------------------ mouse


def test_each_control_turns_its_switch_and_python_hears_of_it(page, lab):
    turns = {
        "scaled": (lambda: control(page, "Scale").click(), False),
        "d_k": (lambda: control(page, "d_k, columns").select_option("4"), 4),
        "temperature": (lambda: control(page, "Temperature").fill("-0.3"), 0.5),
        "mask_kind": (lambda: control(page, "Mask").select_option("window"), "window"),
        "radius": (lambda: control(page, "Window reach").fill("2"), 2),
        "polarity": (lambda: control(page, "True means").select_option(index=1), "blocked"),
        "softmax_over": (lambda: control(page, "Softmax over").select_option(index=1), "queries"),
        "selected": (lambda: control(page, "Explain query").select_option("it"), 3),
    }
    for name, (turn, value) in turns.items():
        before = says(page), cells(page, "5 Weights")
        turn()
        give_to_python(page, lab)
        assert getattr(lab, name) == value
        assert (says(page), cells(page, "5 Weights")) != before, name
    control(page, "Mask").select_option("padding")
    control(page, "Real tokens").fill("2")
    give_to_python(page, lab)
    assert (lab.mask_kind, lab.length) == ("padding", 2)


def test_a_range_is_shown_only_with_its_mask(page):
    shown = {}
    for mask in ("none", "causal", "padding", "window", "drawn"):
        control(page, "Mask").select_option(mask)
        shown[mask] = [control(page, w).is_visible() for w in ("Real tokens", "Window reach")]
    nothing = [False, False]
    assert shown == {
        "none": nothing,
        "causal": nothing,
        "padding": [True, False],
        "window": [False, True],
        "drawn": nothing,
    }


def test_a_click_on_a_cell_draws_and_starts_from_the_mask_shown(page, lab):
    control(page, "Mask").select_option("causal")
    page.get_by_role("button", name="the to it: False, blocked", pressed=False).click()
    give_to_python(page, lab)
    assert lab.mask_kind == "drawn"
    assert lab.drawn == [
        [True, False, False, True, False],
        [True, True, False, False, False],
        [True, True, True, False, False],
        [True, True, True, True, False],
        [True, True, True, True, True],
    ]
    assert lab.selected == 0
    drawn = page.get_by_role("button", name="the to it: True, may attend", pressed=True)
    assert drawn.count() == 1


def test_choosing_drawn_starts_from_the_mask_shown_too(page, lab):
    control(page, "Mask").select_option("padding")
    control(page, "Mask").select_option("drawn")
    give_to_python(page, lab)
    assert lab.drawn == [[True, True, True, True, False]] * 5


def test_a_click_on_a_row_explains_it_through_every_step(page, lab):
    page.locator("table", has_text="5 Weights").get_by_role("rowheader", name="crossed").click()
    give_to_python(page, lab)
    assert lab.selected == 2
    marked = page.locator("tr.lab-on:visible th").all_inner_texts()
    assert marked == ["crossed"] * 6
    assert "“crossed” → " in page.locator(".lab-how").inner_text()


def test_reset_brings_back_what_was_stored(page, lab):
    before = cells(page, "5 Weights")
    control(page, "Scale").click()
    control(page, "Mask").select_option("causal")
    control(page, "Temperature").fill("1")
    page.get_by_role("button", name="Reset").click()
    give_to_python(page, lab)
    assert (lab.scaled, lab.mask_kind, lab.temperature) == (True, "none", 1.0)
    assert cells(page, "5 Weights") == before


# ----------------------------------------------------------------------------------- python


def test_when_python_turns_a_switch_the_view_follows(page):
    set_switches(page, scaled=False, temperature=2.5, mask_kind="window", radius=3, selected=4)
    assert not control(page, "Scale").is_checked()
    assert page.locator(".lab-value").first.inner_text() == "2.50"
    assert control(page, "Temperature").get_attribute("aria-valuetext") == "2.50"
    assert control(page, "Mask").input_value() == "window"
    assert control(page, "Window reach").input_value() == "3"
    assert control(page, "Explain query").input_value() == "tired"
    assert says(page).startswith("“tired”")


def test_a_view_that_was_closed_hears_nothing_more(page):
    before = says(page)
    page.evaluate("stop()")
    set_switches(page, selected=4)
    assert says(page) == before


def test_a_second_view_of_the_same_lab_follows(page):
    page.evaluate(
        """() => { const el = document.createElement("aside"); document.body.append(el);
                   lab.default.render({model, el}); }"""
    )
    control(page, "Explain query").first.select_option("it")
    first, second = page.locator("[aria-live=polite]").all_inner_texts()
    assert first == second
    assert first.startswith("“it”")


# --------------------------------------------------------------------------------- keyboard


def test_everything_is_reached_by_the_keyboard_and_the_mask_is_one_stop(page):
    reached = []
    for _ in range(12):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                """() => (document.activeElement.closest("label")?.firstChild.data
                  ?? document.activeElement.ariaLabel ?? document.activeElement.textContent)"""
            )
        )
    assert reached[:10] == [
        "Scale",
        "d_k, columns used",
        "Temperature",
        "Mask",
        "True means",
        "Softmax over",
        "Explain query",
        "Reset",
        "the to the: True, may attend",
        "Q, K and V, the numbers that came in",
    ]


def test_switches_answer_to_keys(page, lab):
    control(page, "Scale").focus()
    page.keyboard.press("Space")
    control(page, "Temperature").focus()
    page.keyboard.press("ArrowRight")
    control(page, "Mask").focus()
    page.keyboard.press("c")  # a select jumps to the option with this letter
    page.get_by_role("button", name="Reset").focus()
    give_to_python(page, lab)
    assert (lab.scaled, lab.temperature, lab.mask_kind) == (False, 1.12, "causal")
    page.keyboard.press("Enter")
    give_to_python(page, lab)
    assert (lab.scaled, lab.temperature, lab.mask_kind) == (True, 1.0, "none")


def test_a_mask_is_drawn_with_arrow_keys_and_space(page, lab):
    page.locator("td button").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft", "Space"):
        page.keyboard.press(key)
    page.keyboard.press("End")
    page.keyboard.press("ArrowRight")  # stays at the edge
    for key in ("ArrowDown", "Space"):
        page.keyboard.press(key)
    give_to_python(page, lab)
    blocked = [(i, j) for i in range(5) for j in range(5) if not lab.drawn[i][j]]
    assert blocked == [(0, 1), (1, 4)]
    focused = page.evaluate("document.activeElement.ariaLabel")
    assert focused == "animal to tired: False, blocked"
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Tab")  # the table is one stop, and remembers the cell
    assert page.evaluate("document.activeElement.ariaLabel") == focused
    assert page.locator("td button[tabindex='0']").count() == 1


# -------------------------------------------------------------------------------- sentences


@pytest.mark.parametrize(
    ("switches", "words"),
    [
        ({"selected": 3}, "“it” looks most at “the” (73 %); entropy 0.93 nats; row sums to 1.00."),
        ({"mask_kind": "causal", "selected": 0}, "“the” looks most at “the” (100 %); entropy 0.00"),
        ({"mask_kind": "window", "radius": 0, "polarity": "blocked"}, "lies outside its window."),
        ({"mask_kind": "causal", "polarity": "blocked"}, "now sees only the future. 1 of 5 tokens"),
        ({"mask_kind": "padding", "polarity": "blocked"}, "now sees only the padding."),
        (
            {"mask_kind": "drawn", "polarity": "blocked"},
            "just what was to be hidden. No token sees",
        ),
        ({"polarity": "blocked"}, "There is no mask, so its polarity changes nothing."),
        (
            {"mask_kind": "padding", "length": 0},
            "“the” sees nothing: its weights and its output are",
        ),
        ({"softmax_over": "queries", "selected": 3}, "columns sum to 1, rows do not"),
        ({"temperature": 10, "d_k": 1, "mask_kind": "padding", "length": 1}, "“the” (100 %)"),
    ],
)
def test_the_result_is_spoken(page, switches, words):
    set_switches(page, **switches)
    assert words in says(page).replace("\u00a0", " ")


def test_equal_weights_are_spoken_as_such(browser):
    zero = torch.zeros(3, 2)
    page = open_lab(browser, AttentionLab(["a", "b", "c"], zero, zero, zero))
    assert says(page) == "“a” looks equally at 3 tokens; entropy 1.10 nats; row sums to 1.00."
    page.close()


def test_the_arithmetic_is_spelled_out(browser):
    query, key = torch.tensor([[2.0, 1.0], [1.0, 0.0]]), torch.tensor([[1.0, -1.0], [0.5, 2.0]])
    page = open_lab(browser, AttentionLab(["a", "b"], query, key, torch.eye(2), temperature=2.0))
    assert page.locator(".lab-how").inner_text() == (
        "“a” → “b”: q·k = 2.00·0.50 + 1.00·2.00 = 3.00 ÷ √2 ÷ 2.00 = 1.06; "
        "weight = e^1.06 ÷ 4.31 (the row’s sum of e^score) = 0.67; output = 0.67·v(b) + 0.33·v(a)"
    )
    set_switches(page, mask_kind="padding", length=0)
    assert "every score is −∞" in page.locator(".lab-how").inner_text()
    page.close()


# ------------------------------------------------------------------------------------- looks


MARKUP = ["<b>x</b>", "</script><script>window.hacked = 1</script>", "&lt;", '"onclick="', "${1}"]


def test_tokens_with_markup_are_shown_as_text(browser, numbers):
    page = open_lab(browser, AttentionLab(MARKUP, *numbers, selected=1))
    assert page.locator(".lab-body b, .lab-body script").count() == 0
    heads = page.locator("table").first.locator("thead th").all_text_contents()
    assert heads == MARKUP
    assert says(page).startswith("“</script><script>window.hacked = 1</script>” looks")
    assert page.evaluate("window.hacked") is None
    assert page.problems == []
    page.close()


def test_a_token_that_occurs_twice_is_numbered(browser, numbers):
    page = open_lab(browser, AttentionLab(["a", "b", "a", "a", "constructor"], *numbers))
    heads = page.locator("table").first.locator("thead th").all_text_contents()
    assert heads == ["a₁", "b", "a₂", "a₃", "constructor"]
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    "switches", [{"mask_kind": "causal", "polarity": "blocked"}, {"softmax_over": "queries"}]
)
def test_axe_finds_nothing(browser, numbers, theme, switches):
    page = open_lab(browser, AttentionLab(WORDS, *numbers, **switches), theme=theme)
    page.locator("summary").click()
    report = Axe().run(page)
    found = [(v["id"], v["nodes"][0]["html"]) for v in report.response["violations"]]
    assert found == []
    assert "color-contrast" in {rule["id"] for rule in report.response["passes"]}
    page.close()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_number_can_be_read_on_its_colour(browser, numbers, theme):
    """Axe gives up on some cells, so the contrast of all coloured ones is computed here."""
    page = open_lab(browser, AttentionLab(WORDS, *numbers, scaled=False), theme=theme)
    pairs = page.evaluate(
        """() => [...document.querySelectorAll("td[style*=background]")].map((cell) => {
          const { color, backgroundColor } = getComputedStyle(cell);
          return [color, backgroundColor].map((rgb) => rgb.match(/\\d+/g).map(Number));
        })"""
    )
    assert len(pairs) > 4 * 25
    assert min(contrast(*pair) for pair in pairs) >= 4.5  # WCAG 2.1 AA
    page.close()


WIDE_MATRICES = """() => [...document.querySelectorAll(".lab-matrix")]
  .filter((matrix) => matrix.scrollWidth > matrix.clientWidth)
  .map((matrix) => [matrix.tabIndex, matrix.getAttribute("role")])"""


@pytest.mark.parametrize("width", [320, 390])
@pytest.mark.parametrize("count", [6, 12])
def test_it_fits_a_phone(browser, width, count):
    x = torch.randn(count, 4)
    words = ["antidisestablishmentarianism", *(f"token{i}" for i in range(1, count))]
    page = open_lab(browser, AttentionLab(words, x, x, x, mask_kind="window"), width=width)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    scrolling = page.evaluate(WIDE_MATRICES)
    assert all(how == [0, "region"] for how in scrolling)  # then the keyboard gets there
    assert bool(scrolling) == (count == 12)
    page.close()


def test_the_colours_follow_the_theme(browser, lab):
    backgrounds = set()
    for theme in ("light", "dark"):
        page = open_lab(browser, lab, theme=theme)
        backgrounds.add(
            page.locator(".lab-body").evaluate("(node) => getComputedStyle(node).backgroundColor")
        )
        page.close()
    assert backgrounds == {"rgb(255, 255, 255)", "rgb(20, 24, 30)"}
