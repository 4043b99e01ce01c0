"""What the reader has done is kept in the browser: by buttons, on a page, in a file."""

import json
import re

import pytest
from built_site import Page
from look import watch
from test_index_of_figures import LABEL, sources

EXERCISE, CHAPTER, LIST = "ex-qkv-shapes", "book/qkv.html", "book/progress.html"
DONE = "() => JSON.parse(localStorage.getItem('three-attentions.done'))"
CLOSES = """() => { window.closed = new Promise((then) =>
    document.getElementById("done-sure").addEventListener("close", () => then(true), {once: true})
); }"""


@pytest.fixture
def reader(browser):
    """A context of its own: a reader who has done nothing yet."""
    context = browser.new_context(accept_downloads=True)
    yield context.new_page()
    context.close()


def test_what_is_done_is_remembered_saved_forgotten_and_loaded(reader, address, tmp_path):
    seen = watch(reader, address)
    reader.goto(address + CHAPTER)
    button = reader.locator(f"#{EXERCISE} .done-button")
    button.focus()
    reader.keyboard.press("Enter")
    question = reader.locator("details.question").nth(1)
    question.locator("summary").click()
    name = question.get_attribute("id")
    question.locator(".done-button[aria-pressed=true]").wait_for()
    reader.reload()
    assert button.get_attribute("aria-pressed") == "true"
    assert button.get_attribute("aria-label").startswith("Done: Exercise")
    assert question.locator(".done-button").get_attribute("aria-pressed") == "true"
    assert reader.locator(".done-button[aria-pressed=true]").count() == 2

    reader.goto(address + LIST)
    marked = reader.locator(".done-list > li.done a").evaluate_all("all => all.map((a) => a.hash)")
    assert marked == [f"#{EXERCISE}", f"#{name}"]
    assert re.match(r"You have done 2 of \d{3}", reader.locator("#done-all").inner_text())
    with reader.expect_download() as download:
        reader.locator("#done-export").click()
    saved = tmp_path / download.value.suggested_filename
    download.value.save_as(saved)
    assert set(json.loads(saved.read_text("utf-8"))["done"]) == {EXERCISE, name}

    for answer, left in (("keep", 2), ("forget", 0)):
        reader.locator("#done-clear").click()
        reader.evaluate(CLOSES)
        reader.locator(f"#done-sure [value={answer}]").click()
        reader.evaluate("() => window.closed")  # the browser tells the page a little later
        assert len(reader.evaluate(DONE)) == left
    assert reader.locator("li.done").count() == 0

    bad = tmp_path / "bad.json"
    bad.write_text('{"book": "The Three Attentions", "done": {"<b>": "2026-01-01"}}')
    reader.locator("#done-file").set_input_files(bad)
    reader.get_by_text("bad.json holds nothing").wait_for()
    assert reader.evaluate(DONE) == {}
    reader.locator("#done-file").set_input_files(saved)
    reader.get_by_text("2 new").wait_for()
    assert set(reader.evaluate(DONE)) == {EXERCISE, name}
    assert reader.context.cookies() == []
    assert (seen.foreign, seen.complaints) == ([], [])


def test_a_question_that_only_a_link_or_paper_opens_is_not_answered(reader, address, site):
    name = next(i for i in Page(site / CHAPTER).ids if i.startswith("question-"))
    reader.goto(f"{address}{CHAPTER}#{name}")
    assert reader.locator(f"#{name}").get_attribute("open") is not None
    reader.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert reader.locator("details.question:not([open])").count() == 0
    assert reader.evaluate(DONE) == {}


def test_a_browser_that_keeps_nothing_is_told_so(reader, address):
    reader.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new Error('blocked'); } });"
    )
    seen = watch(reader, address)
    reader.goto(address + CHAPTER)
    assert reader.locator(".done-button").count() == 0
    reader.goto(address + LIST)
    assert "nothing can be remembered" in reader.locator("#done-all").inner_text()
    assert reader.locator(".done-button:visible, progress").count() == 0
    assert seen.complaints == []


def test_every_exercise_and_question_is_on_the_list(site):
    links = [a for _, a in Page(site / LIST).links if ".html#" in a]
    listed = [tuple(link.split("#")) for link in links]
    assert len(listed) == len(set(listed))
    wanted = [(f"{page}.html", x) for page, words, _ in sources() for x in LABEL.findall(words)]
    assert len(wanted) > 60
    assert set(wanted) - set(listed) == set()
    for page, words, _ in sources():
        questions = [x for x in listed if x[0] == f"{page}.html" and x[1].startswith("question-")]
        assert len(questions) == words.count(":class: dropdown question"), page
