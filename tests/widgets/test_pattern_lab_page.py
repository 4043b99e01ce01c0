"""The pattern lab as its reader sees it: in a real browser, without a kernel."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from lab_page import give_to_python, open_lab, set_switches
from test_pattern_lab import SOLUTIONS, evaluated, some_recipes

from attnlib.widgets.pattern_puzzles import PUZZLES
from attnlib.widgets.patterns import FORMS, PRESETS, PatternLab

READ_CELLS = """(canvas, at) => {
  const copy = document.createElement("canvas");
  [copy.width, copy.height] = [canvas.width, canvas.height];
  const pen = copy.getContext("2d", {willReadFrequently: true});
  pen.drawImage(canvas, 0, 0);
  const [n, cell] = [model.get("length"), canvas.width / model.get("length")];
  return [...Array(n).keys()].map((i) => [...Array(n).keys()].map((j) =>
    [...pen.getImageData((j + at) * cell, (i + 0.5) * cell, 1, 1).data.slice(0, 3)]));
}"""
BRIGHT, DARK = [254, 232, 56], [0, 34, 78]


@pytest.fixture
def lab():
    return PatternLab("window 2 or global 1 and causal", length=16)


def start(page, words):
    return page.locator("fieldset label", has_text=words).locator("select")


def control(page, line, words):
    """The switch of a line behind a label."""
    group = page.get_by_role("group", name=f"Line {line}", exact=True)
    return group.locator("label", has_text=words).locator("select, input")


def says(page):
    return page.locator("[aria-live=polite]:visible").last.inner_text()


def cells(page, which, at=0.15):
    """The colours of a picture: of each cell the middle of its left side, or another point."""
    canvas = page.locator(".lab-square canvas").nth(which)
    return canvas.evaluate(READ_CELLS, at)


def test_random_recipes_have_pythons_numbers_and_code(page):
    cases = [
        case | {"form": FORMS[i % 3], "puzzle": list(PUZZLES)[i % len(PUZZLES)]}
        for i, case in enumerate(some_recipes(20))
    ]
    theirs = page.evaluate(
        """(cases) => cases.map((switches) => {
          const state = {...switches, tables: model.get("tables")};
          return [lab.compute(state), lab.codeOf(state)];
        })""",
        cases,
    )
    for case, (numbers, code) in zip(cases, theirs, strict=True):
        lab = PatternLab(**case)
        ours = lab.result()
        assert numbers == {
            "allowed": ours.allowed.int().tolist(),
            "pairs": ours.pairs,
            "blind": ours.blind,
            "heard": ours.heard.tolist(),
            "costs": [list(cost) for cost in ours.costs],
            "tiled": ours.tiled,
            "misses": ours.misses,
        }
        assert code == lab.code()


def test_a_recipe_is_made_with_the_mouse_and_python_hears_of_it(page, lab):
    start(page, "Start from").select_option("Longformer")
    start(page, "Tokens").select_option("32")
    control(page, 2, "First tokens").fill("3")
    page.get_by_role("button", name="Add a line").click()
    control(page, 3, "Pattern").select_option("causal")
    control(page, 3, "Flip").check()
    control(page, 3, "Join").select_option("and")
    give_to_python(page, lab)
    assert (lab.recipe, lab.length) == ("window 2 or global 3 and not causal", 32)
    gains = page.locator(".lab-line:visible .lab-gain").all_inner_texts()
    first, second, third = lab.result().pairs
    assert gains == [f"{first} pairs", f"lets in {second - first}", f"takes out {second - third}"]
    page.get_by_role("button", name="Move line 3 up").click()
    page.get_by_role("button", name="Remove line 1").click()
    give_to_python(page, lab)
    assert lab.recipe == "not causal or global 3"
    page.get_by_role("button", name="Reset").click()
    give_to_python(page, lab)
    assert (lab.recipe, lab.length) == ("window 2 or global 1 and causal", 16)


def test_the_pictures_are_the_mask_and_what_was_heard_after_so_many_layers(page, lab):
    set_switches(page, query=15, layers=2)  # the frame of the query is drawn over its cells
    now = lab.result()
    wanted = [[BRIGHT if is_ else DARK for is_ in row] for row in now.allowed.tolist()]
    assert cells(page, 0)[:14] == wanted[:14]
    heard = [[colour != DARK for colour in row] for row in cells(page, 1)]
    assert heard[:14] == ((now.heard >= 0) & (now.heard <= 2)).tolist()[:14]
    assert len({tuple(colour) for row in cells(page, 1) for colour in row}) >= 4


def test_a_mouse_over_the_picture_and_the_arrow_keys_tell_of_a_pair(page, lab):
    box = page.locator(".lab-square").first.bounding_box()
    cell = box["width"] / 16
    page.mouse.move(box["x"] + 4.5 * cell, box["y"] + 5.5 * cell)
    told = (
        "Query 5 may see keys 0, 3–5, 4 of 16. Key 4 is allowed: line 1 lets it in. After 2 layers "
        "it has heard of 0–5."
    )
    assert says(page).strip() == told
    page.mouse.move(0, 0)
    page.locator(".lab-square").first.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    assert "Query 6 may see keys 0, 4–6, 4 of 16. Key 6 is allowed: line 1 lets" in says(page)
    page.keyboard.press("End")
    assert "Key 15 is blocked: no line lets it in." in says(page)
    page.keyboard.press("PageUp")
    assert "Query 0 may see key 0, 1 of 16. Key 15 is blocked: line 3 takes it out." in says(page)
    page.keyboard.press("ArrowUp")  # and stays inside
    give_to_python(page, lab)
    assert lab.query == 0


def test_queries_that_see_nothing_are_warned_of_and_hatched(page):
    assert "NaN" not in says(page)
    set_switches(page, recipe="causal and left_padding 2", query=9)
    assert "2 queries see nothing: a plain softmax makes NaN of that." in says(page)
    strokes = [[min(colour) > 100 for colour in row] for row in cells(page, 0, at=0.35)]
    assert [any(row) for row in strokes[:4]] == [True, True, False, False]


@pytest.mark.parametrize("puzzle", SOLUTIONS)
def test_each_puzzle_is_judged_live(page, puzzle):
    start(page, "Puzzle").select_option(puzzle)
    verdict = page.locator(".lab-puzzle [aria-live=polite]")
    count = len(PUZZLES[puzzle]["checks"])
    assert f"of {count} hold." in verdict.inner_text()
    assert start(page, "Tokens").is_disabled()
    set_switches(page, recipe=SOLUTIONS[puzzle])
    assert verdict.inner_text() == "Solved: all of it holds."
    assert page.locator(".lab-checks .lab-holds").count() == count
    page.get_by_text("Hint", exact=True).click()
    assert page.get_by_text(PUZZLES[puzzle]["hint"]).is_visible()


def test_a_puzzle_is_solved_by_the_keyboard_alone_and_its_faults_are_marked(page, lab):
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.press("1")  # a select jumps to the option with this beginning
    assert cells(page, 0, at=0.5)[3][5] == [0, 0, 0]  # a cross: the future is seen
    assert "✗ Nobody sees the future. Not yet." in page.locator(".lab-checks").inner_text()
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.closest('[aria-label=\"Line 2\"]') !== null"):
            break
    page.keyboard.press("a")
    give_to_python(page, lab)
    assert lab.recipe == "window 3 and causal"
    assert "Solved" in page.locator(".lab-puzzle").inner_text()
    assert cells(page, 0, at=0.5)[3][5] == DARK
    set_switches(page, recipe="window 2 and causal")  # a ring for what is missing
    assert cells(page, 0, at=0.26)[9][6] == [255, 255, 255]


def test_the_code_is_shown_copied_and_makes_the_mask(page, lab):
    page.get_by_text("The mask as code").click()
    page.evaluate(
        "Object.defineProperty(navigator, 'clipboard', {configurable: true, value:"
        " {writeText: async (text) => { window.copied = text; }}})"
    )
    page.get_by_role("button", name="Copy").click()
    page.get_by_text("Copied.").wait_for()
    made = evaluated(page.evaluate("copied"))["mask"]
    assert made[0, 0].tolist() == lab.result().allowed.tolist()
    page.locator("details label select").select_option("MultiheadAttention, True = blocked")
    assert "attn_mask = ~mask" in page.locator("pre").inner_text()
    assert "the opposite: True = blocked." in page.locator("details .lab-how").inner_text()
    give_to_python(page, lab)
    assert lab.form == "blocked"
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.get_by_role("button", name="Copy").click()  # on a page that may not write there
    page.get_by_text("It is marked: press Ctrl+C.").wait_for()
    assert page.evaluate("getSelection().toString()").strip() == lab.code()


def test_the_costs_are_told_with_their_growth(page, lab):
    page.get_by_text("What it costs").click()
    told = page.locator("details", has_text="What it costs")
    assert "grow 2.0-fold: in proportion to the length" in told.inner_text()
    row = told.locator("tr", has_text="bytes, allowed").locator("td").all_inner_texts()
    assert row[-1] == f"{lab.result().costs[-1].bytes / 1000:.0f} kB"
    lines = told.locator("polyline").evaluate_all("all => all.map((l) => l.getAttribute('points'))")
    assert [len(points.split()) for points in lines] == [5, 5]
    set_switches(page, recipe="causal")
    assert "grow 4.0-fold: with the square of the length" in told.inner_text()


def test_every_preset_and_the_most_lines_can_be_chosen(page, lab):
    for name, recipe in PRESETS.items():
        start(page, "Start from").select_option(name)
        give_to_python(page, lab)
        assert lab.recipe == recipe
    add = page.get_by_role("button", name="Add a line")
    while add.is_enabled():
        add.click()
    give_to_python(page, lab)
    assert len(page.locator(".lab-line:visible").all()) == 6
    assert lab.recipe.endswith("window 2 or window 2 or window 2 or window 2")


@pytest.mark.parametrize(("theme", "width"), [("light", 800), ("dark", 320)])
def test_it_fits_a_phone_and_is_accessible(browser, lab, theme, width):
    lab.pose("3 Padding in front")
    lab.recipe = "causal and not left_padding 5 or window 0"
    page = open_lab(browser, lab, width=width, theme=theme)
    for fold in page.locator("summary").all():
        fold.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    ends = page.locator(".lab-line:visible *").evaluate_all(
        "all => all.map((part) => part.getBoundingClientRect().right)"
    )
    assert max(ends) <= width - 16  # the page's margin: no button is cut off
    assert [(v["id"], v["nodes"]) for v in Axe().run(page).response["violations"]] == []
    page.close()


def test_a_view_that_was_closed_hears_nothing_more(page):
    before = says(page)
    page.evaluate("stop()")
    set_switches(page, recipe="causal", query=3)
    assert says(page) == before
