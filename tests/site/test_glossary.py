"""The first use of a word in a chapter: what becomes a link, and what its card does."""

import re
import sys
from pathlib import Path

import pytest
from built_site import ROOT, pages
from docutils import nodes

sys.path.insert(0, str(ROOT / "book" / "_ext"))
from glossary_cards import EVERYWHERE, MOST, Entry, FirstUse, entries, first_uses

CARDS = ROOT / "book" / "_static" / "cards.js"
CHAPTERS = [p for p in pages() if (ROOT / p).with_suffix(".ipynb").exists()]
USE = re.compile(r'<a class="first-use" href="([^"]*)" aria-describedby="([^"]*)">')


# ------------------------------------------------------------------------------ what becomes a link


def known(*words: str) -> list[Entry]:
    return [Entry((word,), f"term-{word}", f"What {word} means.") for word in words]


def linked(*parts: nodes.Node, words: list[Entry]) -> list[str]:
    """The words that become links in a document of these parts."""
    document = nodes.document(None, None, "", *parts)
    first_uses(document, words)
    return [link.astext() for link in document.findall(FirstUse)]


def test_the_first_use_of_the_longest_word_is_a_link_with_plural_and_hyphen():
    text = "Two causal-masks hide; masks do, a mask does. An RNN is no rnn. A key-ring has keys."
    words = known("mask", "causal mask", "RNN", "key")
    assert linked(nodes.paragraph("", text), words=words) == [
        "causal-masks",
        "masks",
        "RNN",
        "keys",
    ]


@pytest.mark.parametrize(
    "part",
    [
        nodes.section("", nodes.title("", "A mask")),
        nodes.paragraph("", "", nodes.literal("", "mask")),
        nodes.paragraph("", "", nodes.math("", "mask")),
        nodes.paragraph("", "", nodes.reference("", "mask", refuri="x")),
        nodes.literal_block("", "mask"),
        nodes.note("", nodes.paragraph("", "a mask")),
        nodes.container("", nodes.paragraph("", "a mask"), classes=["cell"]),
    ],
    ids=lambda part: part.astext() + str(part)[:12],
)
def test_code_headings_formulas_links_and_boxes_are_left_alone(part):
    words = known("mask")
    assert linked(part.deepcopy(), words=words) == []
    later = nodes.paragraph("", "The mask.")
    assert linked(part.deepcopy(), later, words=words) == ["mask"]


def test_too_many_words_cost_the_commonest_first():
    rare = [f"rare{'abcdefghijklmnopqrstuvwxyz'[i]}" for i in range(MOST)]
    text = nodes.paragraph("", " ".join([EVERYWHERE[0], *rare]))
    assert linked(text, words=known(EVERYWHERE[0], *rare)) == rare


def test_an_entry_is_read_with_all_its_words_and_its_first_paragraph():
    term = nodes.term("", "cache", ids=["term-cache"])
    meaning = nodes.definition("", nodes.paragraph("", "Kept."), nodes.paragraph("", "More."))
    glossary = nodes.document(None, None, "", nodes.definition_list_item("", term, meaning))
    assert entries(glossary) == [Entry(("cache",), "term-cache", "Kept.")]


def test_each_chapter_has_its_cards(site):
    for page in CHAPTERS:
        text = (site / page).read_text("utf-8")
        uses = USE.findall(text)
        assert 10 <= len(uses) <= MOST
        assert len({card for _, card in uses}) == len(uses)
        assert [card for _, card in uses if text.count(f'id="{card}"') != 1] == []
        assert {href.replace("#term", "#card") for href, _ in uses} == {
            f"glossary.html#{card}" for _, card in uses
        }


# --------------------------------------------------------------------------- what a card does

PAGE = """<!doctype html><meta name="viewport" content="width=device-width">
<link rel="stylesheet" href="{css}"><p style="margin: 4rem 2rem">
A <a class="first-use" href="#there" aria-describedby="card-x">word</a> is here.</p>
<p>After it.</p><div hidden><p id="card-x">What it means.</p></div><script>{script}</script>"""


def broken_promises(browser, address: str) -> set[str]:
    """Open the first card of a page in each way; name what WCAG 1.4.13 asks for and is not kept."""
    broken = set()

    def demand(promise: str, kept: bool) -> None:
        broken.update(set() if kept else {promise})

    context = browser.new_context(viewport={"width": 800, "height": 600})
    page = context.new_page()
    page.clock.install()
    page.goto(address, wait_until="load")
    word, card = page.locator(".first-use").first, page.locator(".word-card")
    word.scroll_into_view_if_needed()
    meaning = page.locator(f"#{word.get_attribute('aria-describedby')}").text_content()

    def wait(milliseconds: int = 1000) -> bool:
        page.clock.run_for(milliseconds)
        return card.count() == 1 and card.is_visible()

    place = "[...document.querySelectorAll('p')].map((p) => p.getBoundingClientRect().top)"
    before = page.evaluate(place)
    word.hover()
    demand("opens at hover", wait() and card.text_content() == meaning)
    demand("moves nothing", page.evaluate(place) == before)
    if wait(0):
        card.hover()
        demand("stays under the pointer", wait())
        page.mouse.move(5, 5)
    demand("closes when the pointer leaves", not wait())
    page.evaluate("document.querySelector('.first-use').focus({ focusVisible: true })")
    demand("opens at focus", wait())
    page.keyboard.press("Escape")
    demand("closes at Escape", not wait())
    context.close()

    context = browser.new_context(viewport={"width": 320, "height": 600}, has_touch=True)
    page = context.new_page()
    page.goto(address, wait_until="load")
    word, card = page.locator(".first-use").first, page.locator(".word-card")
    word.tap()
    demand("opens at a tap", card.is_visible() and "#" not in page.url)
    if card.is_visible():
        box = card.bounding_box()
        demand("fits the screen", box["x"] >= 0 and box["x"] + box["width"] <= 320)
        word.tap()
        page.wait_for_url("**#*")
    context.close()
    return broken


@pytest.fixture
def made_up(tmp_path, site):
    """A function that writes a small page with one word and the script, changed or not."""

    def write(old: str = "", new: str = "") -> str:
        script = CARDS.read_text("utf-8")
        assert old in script
        css = (site / "_static" / "book.css").as_uri()
        path = Path(tmp_path, "page.html")
        path.write_text(PAGE.format(css=css, script=script.replace(old, new)), "utf-8")
        return path.as_uri()

    return write


def test_a_card_keeps_its_promises(browser, address, made_up):
    assert broken_promises(browser, made_up()) == set()
    assert broken_promises(browser, address + "book/long_sequences.html") == set()


@pytest.mark.parametrize(
    ("old", "new", "promise"),
    [
        ('event.key === "Escape"', "false", "closes at Escape"),
        ('"focus"', '"nothing"', "opens at focus"),
        ('card.addEventListener("pointerenter"', "Math.max(0", "stays under the pointer"),
        ("event.preventDefault()", "", "opens at a tap"),
        ("document.body.append", "document.body.prepend", "moves nothing"),
        ('card.addEventListener("pointerleave"', "Math.max(0", "closes when the pointer leaves"),
    ],
)
def test_a_broken_promise_is_found(browser, made_up, old, new, promise):
    if promise == "moves nothing":  # a card in the flow of the text
        new += "(Object.assign(card, { style: 'position: static; display: block' })); void "
        old = "document.body.append"
    assert promise in broken_promises(browser, made_up(old, new))


def test_without_scripts_a_word_is_a_link(browser, address):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(address + CHAPTERS[0], wait_until="load")
    word = page.locator(".first-use").first
    term = word.get_attribute("href").partition("#")[2]
    word.click()
    page.wait_for_url(f"**/book/glossary.html#{term}")
    assert page.locator(f"#{term}").is_visible()
    context.close()
