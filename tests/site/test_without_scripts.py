"""Every page with scripts switched off: all of it can be read."""

import pytest
from built_site import pages

every_page = pytest.mark.parametrize("name", [p for p in pages() if p.startswith("book/")])


@pytest.fixture(scope="module")
def scriptless(browser):
    context = browser.new_context(java_script_enabled=False)
    yield context
    context.close()


# What must be seen, and how high it must be: a formula that is not laid out is a line of nothing.
HIDDEN = """() => {
  const heights = { "h1": 10, "img.lab-still": 50, ".katex-display .katex-html": 10 };
  const folded = [...document.querySelectorAll("article details > :not(summary, .js-only)")];
  const bad = folded.filter((e) => !e.checkVisibility());
  for (const [selector, height] of Object.entries(heights))
    for (const e of document.querySelectorAll(selector))
      if (!e.checkVisibility() || e.getBoundingClientRect().height < height) bad.push(e);
  for (const e of document.querySelectorAll(".js-only")) if (e.checkVisibility()) bad.push(e);
  return bad.map((e) => e.outerHTML.slice(0, 100));
}"""


@every_page
def test_a_page_reads_whole_without_scripts(scriptless, address, name):
    page = scriptless.new_page()
    page.goto(address + name, wait_until="load")
    hidden = page.evaluate(HIDDEN)
    page.close()
    assert hidden == []


def test_what_cannot_be_read_is_found(scriptless):
    page = scriptless.new_page()
    page.set_content(
        "<h1 style='height: 1px; overflow: hidden'>flat</h1><img class='lab-still' hidden>"
        "<button class='js-only'>dead</button>"
        "<article><details><summary>a</summary><p>closed</p></details></article>"
    )
    hidden = page.evaluate(HIDDEN)
    page.close()
    assert [line.split(">")[0].split(" ")[0] for line in hidden] == ["<p", "<h1", "<img", "<button"]


def test_the_menu_opens_on_a_phone_without_scripts(browser, address):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 320, "height": 700})
    page = context.new_page()
    page.goto(address + "book/index.html", wait_until="load")
    page.locator(".menu-button").click()
    assert page.locator("#site-menu nav a").first.is_visible()
    context.close()
