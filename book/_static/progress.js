// The page of what has been done: counts and marks, saved to a file, loaded from one, forgotten.
(function () {
  "use strict";
  const { all, keep, watch, works } = window.remembered;
  const part = (name) => document.getElementById(`done-${name}`);
  const BOOK = "The Three Attentions";
  const report = part("all");
  if (!works) {
    report.textContent = "This browser lets the page keep nothing, so nothing can be remembered. A private window, or a setting that blocks the data of sites, does this; some browsers do it for a page opened from a file.";
    report.nextElementSibling.remove();
    for (const count of document.querySelectorAll(".done-count")) count.remove();
    return;
  }

  const chapters = [...document.querySelectorAll("section:has(> .done-list)")].map((section) => {
    const count = section.querySelector(".done-count");
    const bar = document.createElement("progress");
    const words = document.createElement("span");
    bar.setAttribute("aria-label", "Done in this chapter");
    count.replaceChildren(bar, " ", words);
    const items = [...section.querySelectorAll(".done-list > li")].map((line) => {
      const mark = document.createElement("span");
      mark.className = "done-mark";
      line.firstElementChild.append(mark);
      return { line, mark, anchor: line.querySelector("a").hash.slice(1) };
    });
    return { bar, words, items };
  });

  function show() {
    const done = all();
    let there = 0, finished = 0;
    for (const { bar, words, items } of chapters) {
      const ready = items.filter(({ anchor }) => anchor in done).length;
      bar.max = items.length;
      bar.value = ready;
      words.textContent = `${ready} of ${items.length}`;
      there += items.length;
      finished += ready;
      for (const { line, mark, anchor } of items) {
        line.classList.toggle("done", anchor in done);
        mark.textContent = anchor in done ? ` (done on ${done[anchor]})` : "";
      }
    }
    report.textContent = `You have done ${finished} of ${there}.`;
  }
  watch(show);

  part("export").addEventListener("click", () => {
    const text = JSON.stringify({ book: BOOK, done: all() }, null, 1);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
    link.download = "three-attentions-done.json";
    link.click();
    URL.revokeObjectURL(link.href);
  });

  part("import").addEventListener("click", () => part("file").click());
  part("file").addEventListener("change", async (event) => {
    const [file] = event.target.files;
    event.target.value = "";
    const old = all();
    let found;
    try {
      found = JSON.parse(await file.text());
    } catch (broken) {
      found = null;
    }
    const entries = found?.book === BOOK && found.done && typeof found.done === "object" ? Object.entries(found.done) : [];
    if (!entries.length || !entries.every(([anchor, day]) => /^[\w-]+$/.test(anchor) && /^\d{4}-\d\d-\d\d$/.test(day))) {
      report.textContent = `${file.name} holds nothing that this page has saved; nothing was changed.`;
      return;
    }
    keep({ ...Object.fromEntries(entries), ...old });
    const added = Object.keys(all()).length - Object.keys(old).length;
    report.textContent += ` Loaded from ${file.name}: ${added} new.`;
  });

  part("clear").addEventListener("click", () => part("sure").showModal());
  part("sure").addEventListener("close", () => {
    if (part("sure").returnValue === "forget") keep({});
    part("sure").returnValue = "";
  });
})();
