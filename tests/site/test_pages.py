"""Every page of the built site, in a real browser, with all other hosts blocked."""

import re
from pathlib import Path

import pytest
from built_site import pages
from look import settle, switch_to, violations, watch

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
def test_axe_finds_nothing_in_light_and_dark_on_screen_and_phone(look, page):
    found = look(page).axe
    assert set(found) == {"light", "dark", "phone"}
    assert {mode: list_ for mode, list_ in found.items() if list_} == {}


@every_page
def test_a_page_never_scrolls_sideways(look, page):
    assert look(page).overflow == {640: [], 390: [], 320: []}


@every_page
def test_every_icon_is_drawn(browser, address, page):
    opened = _open(browser, address, page)
    icons = opened.locator(".icon").evaluate_all(
        "icons => icons.map((e) => [e.className, getComputedStyle(e).maskImage.slice(0, 9)])"
    )
    opened.context.close()
    assert len(icons) >= 5
    assert [name for name, mask in icons if mask != 'url("data'] == []


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


def test_whatever_has_the_focus_shows_it(browser, address):
    page = _open(browser, address, "book/qkv.html")
    bare = []
    for _ in range(25):
        page.keyboard.press("Tab")
        style = page.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            " return [e.outerHTML.slice(0, 90), s.outlineStyle, s.boxShadow]; })()"
        )
        if style[1] == "none" and style[2] == "none":
            bare.append(style[0])
    page.context.close()
    assert bare == []


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


def test_a_reader_who_wants_less_motion_gets_none(browser, address):
    page = _open(browser, address, reduced_motion="reduce")
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].map((e) => getComputedStyle(e)).filter((s) =>"
        " parseFloat(s.transitionDuration) + parseFloat(s.animationDuration) > 0).length"
    )
    page.context.close()
    assert moving == 0


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
