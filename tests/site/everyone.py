"""What a page owes to every reader, asked of the open page: scripts that look.py runs in it.

Each returns what is wrong, as a list of lines, and an empty list where all is well.
"""

# Folds, the menus of the header, and the folds within labs.
OPEN_EVERYTHING = "for (const fold of document.querySelectorAll('details')) fold.open = true"

# All jumps since the page began, none of them asked for by the reader.
SHIFT = """async () => {
  let sum = 0;
  const watch = new PerformanceObserver((list) => {
    for (const jump of list.getEntries()) if (!jump.hadRecentInput) sum += jump.value;
  });
  watch.observe({ type: "layout-shift", buffered: true });
  for (let i = 0; i < 3; i++) await new Promise((done) => requestAnimationFrame(done));
  return sum;
}"""

# A picture that is not shown, such as the still of a lab that is up, is not waited for.
READ_TO_THE_END = """async () => {
  for (let y = 0; y < document.body.scrollHeight; y += 500) {
    scrollTo(0, y);
    await new Promise((done) => requestAnimationFrame(done));
  }
  scrollTo(0, 0);
  const shown = [...document.images].filter((image) => image.checkVisibility());
  await Promise.all(shown.map((image) => image.decode()));
}"""

STICKS_OUT = """() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  const clips = (e) => getComputedStyle(e).overflowX !== "visible";
  const inside = (e) => e.parentElement && (clips(e.parentElement) || inside(e.parentElement));
  const out = [...document.querySelectorAll("main *")]
    .filter((e) => e.getBoundingClientRect().right > width + 1 && !inside(e))
    .map((e) => e.outerHTML.slice(0, 120)).slice(0, 5);
  return out.length ? out : ["the page is wider than the window"];
}"""

STICKS_OUT_WITH_LARGE_TEXT = f"""() => {{
  document.documentElement.style.fontSize = "200%";
  const out = ({STICKS_OUT})();
  document.documentElement.style.fontSize = "";
  return out;
}}"""

UNDRAWN_ICONS = """() => [...document.querySelectorAll(".icon")]
  .filter((e) => !getComputedStyle(e).maskImage.startsWith('url("data'))
  .map((e) => e.outerHTML)"""

# For a reader who asked for less motion.
MOVES = """() => [...document.querySelectorAll("*")].filter((e) => {
  const s = getComputedStyle(e);
  const seconds = (list) => Math.max(...list.split(",").map(parseFloat));
  return seconds(s.transitionDuration) > 0 || seconds(s.animationDuration) > 0
    || s.scrollBehavior === "smooth" || e.getAnimations().length;
}).map((e) => e.outerHTML.slice(0, 100))"""

# One control of each kind is enough: the others have the same rules. A control that Tab passes by
# must have a neighbour that Tab reaches, from which arrow keys lead to it.
NO_FOCUS = """() => {
  const CONTROLS = `a[href], button, input, select, textarea, summary, [onclick], [tabindex="0"],
    [role=button], [role=slider], [role=checkbox], [role=radio], [role=switch], [role=tab]`;
  const GROUPS = "[role=radiogroup], [role=toolbar], [role=tablist], [role=grid], table, svg";
  const bad = [], seen = new Set();
  for (const e of document.querySelectorAll(CONTROLS)) {
    if (e.disabled || !e.checkVisibility({ visibilityProperty: true })) continue;
    const place = e.parentElement.getAttribute("class");
    const own = [e.localName, e.getAttribute("class"), e.getAttribute("role"), e.type];
    const kind = [...own, e.tabIndex, place].join("|");
    if (seen.has(kind)) continue;
    seen.add(kind);
    const line = e.outerHTML.slice(0, 120);
    if (e.tabIndex < 0) {
      if (!e.closest(GROUPS)?.querySelector("[tabindex='0']")) bad.push("no Tab reaches " + line);
      continue;
    }
    e.focus({ focusVisible: true, preventScroll: true });
    const { outlineStyle, outlineWidth, boxShadow } = getComputedStyle(e);
    const ring = outlineStyle !== "none" && parseFloat(outlineWidth) >= 2;
    if (document.activeElement !== e) bad.push("takes no focus: " + line);
    else if (!ring && boxShadow === "none") bad.push("does not show its focus: " + line);
    e.blur();
  }
  return bad;
}"""

# With the rules for print in force, and a window as wide as paper.
WRONG_ON_PAPER = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const shown = (e) => e.checkVisibility();
  const cut = (e) => e.clientWidth > 1 && e.scrollWidth > e.clientWidth + 1
    && getComputedStyle(e).overflowX !== "visible";
  const lines = (what, found) => found.map((e) => `${what}: ${e.outerHTML.slice(0, 120)}`);
  const useless = "header, nav, button, input, select, .headerlink, .lab-live";
  const kept = "h1, .lab-still, article details.admonition > :not(summary, .js-only)";
  return [
    ...lines("of no use", all(useless).filter(shown)),
    ...lines("lost", all(kept).filter((e) => !shown(e))),
    ...lines("cut", all("main :is(pre, div, figure, table)").filter(cut)),
  ];
}"""
