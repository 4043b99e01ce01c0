"""Open a page in the browser with every other host blocked, and write down what happens."""

from dataclasses import dataclass, field
from pathlib import Path

import axe_playwright_python
import everyone

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text("utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
COLOURS = ["color-contrast", "link-in-text-block"]
PHONE, SMALL_PHONE, ZOOMED = 390, 320, 640  # CSS pixels; 640 is a 1280 pixel window at 200 %
PAPER = 680  # A4 within margins of 15 mm


@dataclass
class Look:
    """What one page did."""

    requests: list[str] = field(default_factory=list)  # all that were let through
    first_load: list[str] = field(default_factory=list)  # of these, before the reader scrolls
    foreign: list[str] = field(default_factory=list)  # requests to other hosts, blocked
    complaints: list[str] = field(default_factory=list)  # console errors, warnings, page errors
    axe: dict[str, list[str]] = field(default_factory=dict)  # violations, by mode
    overflow: dict[int | str, list[str]] = field(default_factory=dict)  # by width: what sticks out
    wrong: dict[str, list[str]] = field(default_factory=dict)  # by question of everyone.py
    shift: float = 0.0  # how far things jumped while the page was loading
    icons: int = 0


def watch(page, home: str) -> Look:
    """Block other hosts for a page and note what it asks for and complains about."""
    look = Look()

    def decide(route) -> None:
        url = route.request.url
        if url.startswith((home, "data:", "blob:")):
            look.requests.append(url)
            route.continue_()
        else:
            look.foreign.append(url)
            route.abort()

    page.route("**/*", decide)
    page.on("pageerror", lambda error: look.complaints.append(f"page error: {error}"))
    page.on(
        "console",
        lambda line: (
            line.type in ("error", "warning")
            and look.complaints.append(f"console {line.type}: {line.text}")
        ),
    )
    return look


def settle(page) -> None:
    """Wait for the labs of a page, if it has any, and for its fonts."""
    page.wait_for_function(
        "!document.getElementById('labs') || document.documentElement.dataset.hydrated"
    )
    page.evaluate("document.fonts.ready.then(() => true)")


# Contrast is the one slow rule: 30 s on a long chapter, which has thousands of coloured words of
# code. Two texts of the same colour, size, weight and ground have the same contrast, so the rule
# sees one of each kind.
PICK_ONE_TEXT_OF_EACH_KIND = """() => {
  const grounds = new Map([[null, ""]]);
  const ground = (e) => {
    if (!grounds.has(e)) {
      const s = getComputedStyle(e);
      const own = ["", s.backgroundColor, s.backgroundImage, s.opacity, s.filter].join("|");
      const above = ground(e.parentElement);
      grounds.set(e, above.endsWith(own) ? above : above + own);
    }
    return grounds.get(e);
  };
  const seen = new Set();
  for (const e of document.querySelectorAll("body *")) {
    e.removeAttribute("data-kind");
    const hasText = [...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    const visible = e.checkVisibility({ visibilityProperty: true, opacityProperty: true });
    if (!hasText || !visible) continue;
    const s = getComputedStyle(e);
    const kind = [s.color, s.fontSize, s.fontWeight, s.textShadow, ground(e)].join("|");
    if (!seen.has(kind)) e.setAttribute("data-kind", seen.size);
    seen.add(kind);
  }
  return seen.size;
}"""


# One run for all rules: half of the time goes into axe's own picture of the page, made in each run.
RUN_AXE = """async (rules) => {
  axe.configure({ rules: [{ id: "color-contrast", selector: "[data-kind]" }] });
  const options = { runOnly: rules, resultTypes: ["violations"], preload: false };  // no request
  const result = await axe.run(document, options);
  return result.violations.map(({ id, nodes }) =>
    `${id} (${nodes.length}): ${nodes[0].html.slice(0, 200)} ${nodes[0].failureSummary}`);
}"""


def violations(page, *, colours_only: bool = False) -> list[str]:
    """Run axe on an open page; return what it found, one line a rule.

    Args:
        page: a page of playwright.
        colours_only: leave out the rules that do not look at colours.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE)
    page.evaluate(PICK_ONE_TEXT_OF_EACH_KIND)
    return page.evaluate(RUN_AXE, COLOURS if colours_only else RULES)


def switch_to(page, scheme: str) -> None:
    """Let the system of the reader change its colours, and wait until the page has followed."""
    page.emulate_media(color_scheme=scheme)
    page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=scheme)


def look_at(browser, home: str, name: str) -> Look:
    """Open a page and look at it as different readers do, with all that opens open."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900},
        color_scheme="light",
        reduced_motion="reduce",  # axe must not meet a colour that is on its way to another
    )
    try:
        page = context.new_page()
        look = watch(page, home)
        page.goto(home + name, wait_until="load")
        settle(page)
        look.first_load = list(look.requests)
        look.shift = page.evaluate(everyone.SHIFT)
        page.evaluate(everyone.READ_TO_THE_END)
        page.evaluate(everyone.OPEN_EVERYTHING)
        look.axe["light"] = violations(page)
        look.icons = page.locator(".icon").count()
        for name, question in (
            ("icon not drawn", everyone.UNDRAWN_ICONS),
            ("motion", everyone.MOVES),
            ("focus", everyone.NO_FOCUS),
        ):
            look.wrong[name] = page.evaluate(question)
        look.overflow["large text"] = page.evaluate(everyone.STICKS_OUT_WITH_LARGE_TEXT)
        page.evaluate(everyone.OPEN_EVERYTHING)  # the focus has closed a menu
        switch_to(page, "dark")
        look.axe["dark"] = violations(page, colours_only=True)
        for width in (ZOOMED, PHONE, SMALL_PHONE):
            page.set_viewport_size({"width": width, "height": 800})
            look.overflow[width] = page.evaluate(everyone.STICKS_OUT)
            if width == PHONE:
                page.evaluate("document.getElementById('site-menu').showPopover()")
                look.axe["phone"] = violations(page)
                page.evaluate("document.getElementById('site-menu').hidePopover()")
        page.set_viewport_size({"width": PAPER, "height": 800})
        page.emulate_media(media="print")
        look.wrong["paper"] = page.evaluate(everyone.WRONG_ON_PAPER)
        look.overflow["paper"] = page.evaluate(everyone.STICKS_OUT)
        return look
    finally:
        context.close()
