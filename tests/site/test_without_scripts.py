"""Every page with scripts switched off: all of it can be read."""

import pytest
from built_site import pages

every_page = pytest.mark.parametrize("name", [p for p in pages() if p.startswith("book/")])


@pytest.fixture(scope="module")
def scriptless(browser):
    context = browser.new_context(java_script_enabled=False)
    yield context
    context.close()


@every_page
def test_a_page_reads_whole_without_scripts(scriptless, site, address, name):
    page = scriptless.new_page()
    page.goto(address + name, wait_until="load")
    for still in page.locator("img.lab-still").all():
        assert still.is_visible()
    for formula in page.locator(".katex-display .katex-html").all():
        assert formula.bounding_box()["height"] > 10
    for fold in page.locator("details.fold").all():
        body = fold.locator(":scope > :not(summary)").first
        if fold.locator("xpath=ancestor::details").count():
            continue  # a fold in a fold: open once its parent is
        assert not body.is_visible()
        fold.locator(":scope > summary").click()
        assert body.is_visible()
    assert page.locator("h1").first.is_visible()
    assert page.locator(".js-only:visible").count() == 0
    page.close()


def test_the_menu_opens_on_a_phone_without_scripts(browser, address):
    context = browser.new_context(java_script_enabled=False, viewport={"width": 320, "height": 700})
    page = context.new_page()
    page.goto(address + "book/index.html", wait_until="load")
    page.locator(".menu-button").click()
    assert page.locator("#site-menu nav a").first.is_visible()
    context.close()
