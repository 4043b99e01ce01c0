"""Put a lab on a blank page without a kernel, and carry what happens there back to Python."""

# The page's side of a widget, with what anywidget promises: get, set, on, off, save_changes.
# `set` goes through JSON, as a real one does on its way to Python.
START = """async ({state, theme}) => {
  document.documentElement.dataset.theme = theme;
  const listeners = {};
  const tell = (event) => (listeners[event] ?? []).forEach((listener) => listener());
  window.changes = {};
  window.model = {
    get: (name) => state[name],
    set(name, value) {
      if (JSON.stringify(state[name]) === JSON.stringify(value)) return;
      changes[name] = state[name] = JSON.parse(JSON.stringify(value));
      tell(`change:${name}`);
      tell("change");
    },
    on: (event, listener) => (listeners[event] ??= []).push(listener),
    off: (event, listener) => {
      listeners[event] = (listeners[event] ?? []).filter((other) => other !== listener);
    },
    save_changes() { window.saved = {...window.saved, ...changes}; window.changes = {}; },
  };
  const style = document.createElement("style");
  style.textContent = state._css;
  document.head.append(style);
  const code = new Blob([state._esm], {type: "text/javascript"});
  window.lab = await import(URL.createObjectURL(code));
  window.stop = await lab.default.render({model, el: document.querySelector("main")});
}"""

# JupyterLab's rule (Lumino): from the element with the focus upwards, whichever comes first, an
# element that a shortcut is meant for or one that asks for peace. Most are meant for ":focus".
TAKEN = """() => [...document.querySelectorAll(".lab-body :is(input, select, button, [tabindex])")]
  .filter((node) => { node.focus(); return document.activeElement === node; })
  .filter((node) => !node.hasAttribute("data-lm-suppress-shortcuts"))
  .map((node) => node.outerHTML)"""

PAGE = """<!doctype html><html lang="en"><head><title>A lab</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
body {margin: 16px; font-family: sans-serif}
[data-theme=dark] body {color: #ced6dd; background: #14181e}
</style></head><body><main><h1>A lab</h1></main></body></html>"""


def open_lab(browser, lab, *, width=800, theme="light"):
    """Open a page that shows a lab; ``page.problems`` collects errors and requests."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.problems = []
    page.on("console", lambda message: page.problems.append(message.text))
    page.on("pageerror", lambda error: page.problems.append(str(error)))
    page.on("request", lambda r: r.url.startswith("blob:") or page.problems.append(r.url))
    page.set_content(PAGE)
    state = {name: value for name, value in lab.get_state().items() if name != "layout"}
    page.evaluate(START, {"state": state, "theme": theme})
    return page


def without_keys(page):
    """Return the controls whose keys JupyterLab would take: an arrow would fold a chapter."""
    return page.evaluate(TAKEN)


def set_switches(page, **switches):
    """Set traits as Python does: the page hears of each change."""
    page.evaluate(
        "(all) => Object.entries(all).forEach(([name, value]) => model.set(name, value))", switches
    )


def give_to_python(page, lab):
    """Hand the switches that the page saved to the lab, as a kernel does."""
    lab.set_state(
        page.evaluate("() => { const s = window.saved ?? {}; window.saved = {}; return s; }")
    )
