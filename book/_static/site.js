// What a page does beyond reading: colours, copy buttons, the mark in the table of contents.
// Menus open without it (popovers and <details>), and so do solutions.
(function () {
  "use strict";
  const root = document.documentElement;
  const all = (selector) => [...document.querySelectorAll(selector)];

  // ---- light, dark or as the system ----
  const system = matchMedia("(prefers-color-scheme: dark)");
  const NAMES = { auto: "as the system", light: "light", dark: "dark" };
  function colour(mode) {
    root.dataset.mode = mode;
    root.dataset.theme = mode === "auto" ? (system.matches ? "dark" : "light") : mode;
    for (const button of all(".theme-switch-button")) {
      button.title = `Colours: ${NAMES[mode]}`;
      button.setAttribute("aria-label", button.title);
    }
  }
  function nextColour() {
    const order = system.matches ? ["auto", "light", "dark"] : ["auto", "dark", "light"];
    const mode = order[(order.indexOf(root.dataset.mode) + 1) % order.length];
    try { localStorage.setItem("mode", mode); } catch (blocked) { /* then for this page only */ }
    colour(mode);
  }
  colour(NAMES[root.dataset.mode] ? root.dataset.mode : "auto");
  system.addEventListener("change", () => colour(root.dataset.mode));
  for (const button of all(".theme-switch-button")) button.addEventListener("click", nextColour);

  // ---- copy buttons on the reader's code, not on its output ----
  const announce = document.createElement("span");
  announce.setAttribute("role", "status");
  announce.className = "visually-hidden";
  document.querySelector("main").append(announce);
  for (const block of navigator.clipboard ? all(".cell_input .highlight, .bd-article > section .highlight:not(.cell_output .highlight)") : []) {
    if (block.querySelector(".copy-button")) continue;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "copy-button";
    button.title = "Copy";
    button.setAttribute("aria-label", "Copy this code");
    button.innerHTML = '<span class="icon icon-copy" aria-hidden="true"></span>';
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(block.querySelector("pre").innerText.replace(/\n$/, ""));
      button.firstChild.className = "icon icon-check";
      announce.textContent = "Copied";
      setTimeout(() => { button.firstChild.className = "icon icon-copy"; announce.textContent = ""; }, 1500);
    });
    block.append(button);
  }

  // ---- what scrolls sideways can be reached by keyboard ----
  const SCROLLS = "pre, .pst-scrollable-table-container, .katex-display, .cell_output .output";
  function markScrollable() {
    // First all widths, then all marks: in turns, each mark would make the browser lay out again.
    const boxes = all(SCROLLS).map((box) => [box, box.scrollWidth > box.clientWidth + 1]);
    for (const [box, scrolls] of boxes) {
      if (scrolls === box.hasAttribute("tabindex")) continue;
      if (scrolls) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  }
  addEventListener("load", markScrollable);
  addEventListener("resize", markScrollable);
  document.addEventListener("toggle", markScrollable, true);

  // ---- the section in view is marked in the table of contents ----
  const links = new Map(all(".page-toc a[href^='#']").map((a) => [a.hash.slice(1), a]));
  function mark(link) {
    for (const a of links.values()) {
      a.classList.toggle("active", a === link);
      if (a === link) a.setAttribute("aria-current", "location");
      else a.removeAttribute("aria-current");
    }
  }
  const seen = new IntersectionObserver((entries) => {
    const entry = entries.filter((e) => e.isIntersecting).pop();
    if (entry) mark(links.get(entry.target.closest("section[id]").id));
  }, { rootMargin: "0px 0px -70% 0px" });
  for (const id of links.keys()) {
    const heading = document.getElementById(id)?.querySelector(":scope > :is(h1, h2, h3, h4)");
    if (heading) seen.observe(heading);
  }
  for (const a of links.values()) a.addEventListener("click", () => document.getElementById("page-toc").hidePopover?.());

  // ---- a link into a closed fold opens it; paper has no folds, no dark colours and no later ----
  function openTarget() {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  }
  addEventListener("hashchange", openTarget);
  openTarget();
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = all("details.admonition:not([open])");
    for (const fold of closed) fold.open = true;
    for (const picture of all("img[loading=lazy]")) picture.loading = "eager";
    root.dataset.theme = "light";
  });
  addEventListener("afterprint", () => {
    for (const fold of closed) fold.open = false;
    colour(root.dataset.mode);
  });

  // ---- an open menu in the header closes at a click elsewhere, or at Escape ----
  const menus = all(".header-menu");
  addEventListener("click", (event) => {
    for (const menu of menus) if (!menu.contains(event.target)) menu.open = false;
  });
  addEventListener("keydown", (event) => {
    for (const menu of menus) {
      if (event.key !== "Escape" || !menu.open) continue;
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });

  // ---- Ctrl+K or Cmd+K: search ----
  addEventListener("keydown", (event) => {
    if (!(event.ctrlKey || event.metaKey) || event.shiftKey || event.altKey || event.key.toLowerCase() !== "k") return;
    event.preventDefault();
    const menu = document.getElementById("site-menu");
    if (getComputedStyle(menu).position === "fixed") menu.showPopover();
    menu.querySelector("input[name=q]").focus();
  });
})();
