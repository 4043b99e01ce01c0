"""Every page of the built site, in a real browser, with all other hosts blocked."""

import re
from pathlib import Path

import pytest
from built_site import pages
from look import look_at, settle, switch_to, violations, watch
from weigh import files_of, kind

# Bytes over the wire: a little more than what is reached; tests/bench/site.md has the table.
FIRST_LOAD = 133_000
READ_TO_THE_END = 215_000
NEXT_PAGE = 150_000  # for a reader of any other page; read to the end, for one of the page before
SCRIPTS = 30_000  # on a phone they cost time as well; the search page brings its index

every_page = pytest.mark.parametrize("page", pages())


@every_page
def test_a_page_asks_no_other_host(look, page):
    seen = look(page)
    assert seen.foreign == []
    assert any(url.endswith(page) for url in seen.requests)  # the watch did see the page itself


@every_page
def test_a_page_has_nothing_to_complain_about(look, page):
    assert look(page).complaints == []


@every_page
def test_axe_finds_nothing_in_light_and_dark_on_screen_and_phone_all_open(look, page):
    found = look(page).axe
    assert set(found) == {"light", "dark", "phone"}
    assert {mode: list_ for mode, list_ in found.items() if list_} == {}


@every_page
def test_a_page_never_scrolls_sideways(look, page):
    assert look(page).overflow == {640: [], 390: [], 320: [], "large text": [], "paper": []}


@every_page
def test_a_page_serves_every_reader(look, page):
    seen = look(page)
    assert seen.icons >= 5
    assert seen.wrong == {"icon not drawn": [], "motion": [], "focus": [], "paper": []}


@every_page
def test_a_page_does_not_jump_while_it_loads(look, page):
    assert look(page).shift < 0.05


@every_page
def test_a_page_stays_within_its_budget(look, address, site, page):
    first = files_of(look(page).first_load, address, site)
    whole = files_of(look(page).requests, address, site)
    assert site / page in first
    assert site / "_static" / "book.css" in first
    assert sum(first.values()) <= FIRST_LOAD
    assert sum(whole.values()) <= READ_TO_THE_END
    scripts = sum(size for file, size in first.items() if kind(file) == "scripts")
    assert scripts <= SCRIPTS or page == "search.html"
    # If one is there, a formula has a glyph that is new to the book: run split_katex_fonts.py.
    assert [file.name for file in whole if "-Rest." in file.name] == []


def test_a_glyph_that_is_new_to_the_book_comes_from_the_rest_of_its_font(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/book/notation.html", wait_until="load")
    page.evaluate("""document.querySelector("article p").innerHTML =
        '<span class="katex"><span class="mord">\u2111</span></span>'""")
    with page.expect_response("**/KaTeX_Main-Regular-Rest.woff2") as response:
        page.evaluate("document.fonts.ready")
    page.close()
    assert response.value.ok


def new_bytes(page: dict[Path, int], *before: dict[Path, int]) -> int:
    """Return what a page costs a reader who has what the pages before asked for."""
    return sum(size for file, size in page.items() if not any(file in files for files in before))


@every_page
def test_the_next_page_costs_less(look, address, site, page):
    first = files_of(look(page).first_load, address, site)
    whole = files_of(look(page).requests, address, site)
    others = [name for name in pages() if name != page]
    had = {name: files_of(look(name).first_load, address, site) for name in others}
    assert {name for name in others if new_bytes(first, had[name]) > NEXT_PAGE} == set()
    if page in pages()[1:]:
        before = pages()[pages().index(page) - 1]
        assert new_bytes(whole, files_of(look(before).requests, address, site)) <= NEXT_PAGE


def test_what_the_next_page_brings_is_weighed():
    """The twin: what a reader has already is free, and nothing else is."""
    css, one, two, font = map(Path, ("book.css", "one.html", "two.html", "maths.woff2"))
    seen, page = {css: 20_000, one: 90_000}, {css: 20_000, two: 100_000, font: 60_000}
    assert new_bytes(page) == 180_000
    assert new_bytes(page, seen) == 160_000 > NEXT_PAGE
    assert new_bytes(page, seen, {font: 60_000}) == 100_000


@every_page
def test_a_page_works_when_opened_from_a_file(browser, site, page):
    context = browser.new_context()
    opened = context.new_page()
    seen = watch(opened, site.as_uri())
    opened.goto((site / page).as_uri(), wait_until="load")
    settle(opened)
    context.close()
    assert (seen.foreign, seen.complaints) == ([], [])
    assert any(url.endswith("book.css") for url in seen.requests)


def test_the_watch_sees_what_it_should_see(browser, tmp_path):
    """The twin of the tests above: a bad page is found out in each respect."""
    (tmp_path / "bad.html").write_text(
        '<html><img src="https://example.org/a.png"><p style="width: 900px">wide</p>'
        '<p style="color: #aaa; background: #fff">pale</p>'
        "<script>console.warn('hm'); nonsense()</script>",
        "utf-8",
    )
    context = browser.new_context(viewport={"width": 320, "height": 600})
    opened = context.new_page()
    seen = watch(opened, tmp_path.as_uri())
    opened.goto((tmp_path / "bad.html").as_uri(), wait_until="load")
    assert seen.foreign == ["https://example.org/a.png"]
    kinds = {line.split(":")[0] for line in seen.complaints}  # the order is the browser's affair
    assert kinds == {"console warning", "console error", "page error"}
    assert {"image-alt", "color-contrast"} <= {line.split(" ")[0] for line in violations(opened)}
    [pale] = violations(opened, colours_only=True)
    assert "pale" in pale
    assert opened.evaluate("document.documentElement.scrollWidth") > 320
    context.close()


def test_a_page_that_serves_nobody_is_found_out(browser, tmp_path):
    """The twin of the tests of what look.py asks: each question finds what is wrong."""
    (tmp_path / "bad.html").write_text(
        "<html lang=en data-theme=light><style>.still {outline: none !important; transition: 1s}"
        "</style><header id=site-menu popover>menu</header>"
        "<main><h1>Bad</h1><a class=still href=x>no ring</a><p onclick=go()>no key</p>"
        "<div role=button tabindex=-1>no neighbour</div><span class=icon></span>"
        "<article><details class=admonition><summary>a</summary><p hidden>lost</p></details>"
        f"</article><pre style='overflow: hidden; width: 200px'>{'long' * 99}</pre><button>press"
        "</button>"
        "<p style='width: 60rem'>wide when the text is large</p></main>"
        "<script>const dark = matchMedia('(prefers-color-scheme: dark)');"
        "dark.onchange = () => { document.documentElement.dataset.theme = 'dark' };"
        "requestAnimationFrame(() => requestAnimationFrame(() => document.querySelector('main')"
        ".insertAdjacentHTML('beforebegin', '<p style=\"height: 500px\">late</p>')))</script>",
        "utf-8",
    )
    seen = look_at(browser, tmp_path.as_uri() + "/", "bad.html")
    assert seen.shift > 0.05
    assert [len(seen.wrong[name]) for name in ("icon not drawn", "motion")] == [1, 1]
    for what in ("does not show its focus: <a", "no Tab reaches <p", "no Tab reaches <div"):
        assert [line for line in seen.wrong["focus"] if line.startswith(what)], what
    said = {line.split(": ")[0] for line in seen.wrong["paper"]}
    assert said == {"of no use", "lost", "cut"}
    assert all(seen.overflow.values())


def _open(browser, address, page="book/index.html", **options):
    opened = browser.new_context(**options).new_page()
    opened.goto(address + page, wait_until="load")
    return opened


def test_the_first_tab_reaches_the_skip_link_and_it_leads_to_the_text(browser, address):
    page = _open(browser, address)
    page.keyboard.press("Tab")
    box = page.locator(":focus").bounding_box()
    assert page.locator(":focus").inner_text() == "Skip to the text"
    assert box["y"] >= 0  # it came into sight
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main-content"
    page.context.close()


# What Tab should reach, in any order: of the buttons of one choice, the chosen one.
TABBABLE = """() => {
  window.reached = new Set();
  addEventListener("focusin", (event) => reached.add(event.target));
  const controls = document.querySelectorAll("a[href], button, input, select, summary, [tabindex]");
  window.expected = [...controls].filter((e) => e.tabIndex >= 0 && !e.disabled
    && e.checkVisibility({ visibilityProperty: true }) && (e.type !== "radio" || e.checked));
  return expected.length;
}"""


@pytest.mark.parametrize("page", ["book/index.html", "book/qkv.html", "search.html"])
def test_tab_walks_through_all_controls_and_is_caught_by_none(browser, address, page):
    opened = _open(browser, address, page)
    settle(opened)
    for _ in range(opened.evaluate(TABBABLE) + 1):
        opened.keyboard.press("Tab")
    missed = opened.evaluate(
        "expected.filter((e) => !reached.has(e)).map((e) => e.outerHTML.slice(0, 120))"
    )
    opened.context.close()
    assert missed == []


def test_the_colour_button_goes_round_and_is_remembered(browser, address):
    page = _open(browser, address, color_scheme="light")
    button = page.locator(".theme-switch-button")
    theme = "document.documentElement.dataset.theme"
    names, themes = [], []
    for _ in range(3):
        names.append(button.get_attribute("aria-label"))
        themes.append(page.evaluate(theme))
        button.click()
    assert names == ["Colours: as the system", "Colours: dark", "Colours: light"]
    assert themes == ["light", "dark", "light"]
    button.click()
    page.reload()
    assert page.evaluate(theme) == "dark"
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert sum(map(int, re.findall(r"\d+", background)[:3])) < 150
    page.context.close()


def test_on_a_phone_the_menus_open_and_close_by_keyboard(browser, address):
    page = _open(browser, address, viewport={"width": 320, "height": 700})
    for button, menu in ((".menu-button", "#site-menu"), (".toc-button", "#page-toc")):
        assert not page.locator(menu).is_visible()
        page.locator(button).focus()
        page.keyboard.press("Enter")
        assert page.locator(menu).is_visible()
        assert violations(page) == []
        page.keyboard.press("Escape")
        assert not page.locator(menu).is_visible()
    page.context.close()


@pytest.mark.parametrize("from_file", [False, True], ids=["over http", "from a file"])
def test_the_search_finds_a_word(browser, address, site, from_file):
    home = site.as_uri() + "/" if from_file else address
    context = browser.new_context(color_scheme="light", reduced_motion="reduce")
    page = context.new_page()
    seen = watch(page, home.rstrip("/"))
    page.goto(home + "book/index.html", wait_until="load")
    page.keyboard.press("Control+k")
    page.keyboard.type("query")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results li a")
    page.wait_for_function("!/Searching/.test(document.getElementById('search-results').innerText)")
    assert violations(page) == []
    switch_to(page, "dark")
    assert violations(page, colours_only=True) == []
    if not from_file:
        assert "QW_Q" not in page.locator("#search-results").inner_text()  # a formula told twice
    hits = page.locator("#search-results li a").evaluate_all("links => links.map((a) => a.href)")
    page.goto(hits[0], wait_until="load")
    text = page.locator("main").inner_text().lower()
    context.close()
    assert "quer" in text
    assert seen.foreign == []
    assert seen.complaints == []


def test_the_first_file_leads_to_the_front_page(browser, site):
    context = browser.new_context()
    page = context.new_page()
    page.goto((site / "index.html").as_uri())
    page.wait_for_url("**/book/index.html")
    assert page.locator("h1").inner_text() == "The Three Attentions"
    context.close()


def test_the_menu_of_downloads_opens_and_closes(browser, address):
    page = _open(browser, address, "book/qkv.html")
    menu = page.locator(".header-menu").last
    menu.locator("summary").focus()
    page.keyboard.press("Enter")
    assert menu.get_by_text(".ipynb").first.is_visible()
    page.keyboard.press("Escape")
    assert menu.get_attribute("open") is None
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    menu.locator("summary").click()
    page.locator("h1").click()
    assert menu.get_attribute("open") is None
    page.context.close()


def test_each_page_can_be_downloaded_as_it_was_written(site):
    for page in (p for p in pages() if Path(p).parts[0] == "book"):
        source = site / "_sources" / page.replace(".html", "")
        assert any(source.with_suffix(s).is_file() for s in (".ipynb", ".md")), source
