// Which exercises and questions the reader has done: kept in this browser, and sent nowhere.
window.remembered = (function () {
  "use strict";
  const PLACE = "three-attentions.done"; // holds { anchor: day }
  const watchers = [];

  function all() {
    try {
      const kept = JSON.parse(localStorage.getItem(PLACE));
      return Object.fromEntries(Object.entries(kept ?? {}).filter(([, day]) => typeof day === "string"));
    } catch (blockedOrBroken) {
      return {};
    }
  }
  function refresh() {
    for (const show of watchers) show();
  }
  function keep(done) {
    try {
      localStorage.setItem(PLACE, JSON.stringify(done));
    } catch (blocked) {
      return false;
    }
    refresh();
    return true;
  }
  function set(anchor, isDone) {
    const done = all();
    if (isDone) done[anchor] ??= new Date().toLocaleDateString("sv"); // the reader's day, as 2026-01-31
    else delete done[anchor];
    keep(done);
  }
  function watch(show) {
    watchers.push(show);
    show();
  }
  addEventListener("storage", refresh); // another window
  addEventListener("pageshow", refresh); // the way back
  const works = keep(all());

  for (const line of document.querySelectorAll(".done-line")) {
    if (!works) {
      line.remove(); // the page of what has been done says why
      continue;
    }
    const box = line.parentElement;
    const isQuestion = box.tagName === "DETAILS";
    const button = document.createElement("button");
    button.type = "button";
    button.className = "done-button";
    button.innerHTML = `<span class="icon icon-check" aria-hidden="true"></span> ${isQuestion ? "Answered" : "Done"}`;
    line.append(button);
    const title = box.querySelector(".admonition-title").textContent.trim().replace(/\s+/g, " ");
    button.setAttribute("aria-label", `${button.textContent.trim()}: ${title}`);
    button.addEventListener("click", () => set(box.id, button.getAttribute("aria-pressed") === "false"));
    if (isQuestion) { // whoever opens a question has thought about it
      box.firstElementChild.addEventListener("click", () => { if (!box.open) set(box.id, true); });
    }
    watch(() => {
      const isDone = box.id in all();
      button.setAttribute("aria-pressed", isDone);
      box.classList.toggle("done", isDone);
    });
  }
  return { all, keep, watch, works };
})();
