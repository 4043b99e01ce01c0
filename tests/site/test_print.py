"""What a printer gets: the text, light, with stills for labs and everything open."""

from playwright.sync_api import expect

SHOWN = """(selector) => [...document.querySelectorAll(selector)]
  .filter((e) => e.checkVisibility()).length"""


def test_paper_has_stills_and_solutions_and_no_menus(browser, address):
    context = browser.new_context(color_scheme="dark", viewport={"width": 680, "height": 900})
    page = context.new_page()
    page.goto(address + "book/qkv.html", wait_until="load")
    page.wait_for_function("document.documentElement.dataset.hydrated")

    def shown(selector):
        return page.evaluate(SHOWN, selector)

    frame = "header, nav, button, .headerlink, .lab-live"
    bodies = "article details.admonition > :not(summary, .js-only)"
    assert shown(frame) > 10  # the twin: on the screen it is the other way round
    assert shown(bodies) == shown(".lab-still") == 0
    page.emulate_media(media="print")
    assert shown(frame) == 0
    assert shown(bodies) == page.locator(bodies).count() > 20
    assert shown(".lab-still") == page.locator(".lab-still").count() == 1
    expect(page.locator(".lab-still")).to_have_js_property("complete", False)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    assert page.locator("article details.admonition:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    assert page.locator("article details.admonition[open]").count() == 0
    context.close()
