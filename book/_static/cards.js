// The card of a word of the glossary: up at hover, keyboard focus or tap; away at Escape, or once pointer
// and focus have left both word and card. It lies above the page and moves nothing.
(function () {
  "use strict";
  if (!("popover" in HTMLElement.prototype)) return; // then the words are plain links
  const card = document.createElement("div");
  card.className = "word-card";
  card.popover = "manual";
  card.setAttribute("aria-hidden", "true"); // the word is described by the hidden text, which is the same
  document.body.append(card);
  let shown = null, timer = 0, touched = false;

  function show(word) {
    clearTimeout(timer);
    shown = word;
    card.textContent = document.getElementById(word.getAttribute("aria-describedby")).textContent;
    card.showPopover();
    const box = word.getBoundingClientRect();
    const room = document.documentElement.clientWidth - card.offsetWidth - 8;
    const below = box.bottom + 4;
    const fits = below + card.offsetHeight < innerHeight || box.top < card.offsetHeight + 4;
    card.style.left = `${scrollX + Math.max(8, Math.min(box.left, room))}px`;
    card.style.top = `${scrollY + (fits ? below : box.top - card.offsetHeight - 4)}px`;
  }
  function hide() {
    clearTimeout(timer);
    shown = null;
    card.hidePopover();
  }
  function soon(action, ...args) {
    clearTimeout(timer);
    timer = setTimeout(action, 250, ...args);
  }

  for (const word of document.querySelectorAll(".first-use")) {
    word.addEventListener("pointerenter", (event) => event.pointerType === "touch" || soon(show, word));
    word.addEventListener("pointerleave", (event) => event.pointerType === "touch" || soon(hide));
    word.addEventListener("focus", () => word.matches(":focus-visible") && show(word));
    word.addEventListener("blur", hide);
    word.addEventListener("click", (event) => {
      if (!touched || shown === word) return; // a second tap follows the link
      event.preventDefault();
      show(word);
    });
  }
  card.addEventListener("pointerenter", () => clearTimeout(timer));
  card.addEventListener("pointerleave", () => document.activeElement === shown || soon(hide));
  addEventListener("pointerdown", (event) => {
    touched = event.pointerType === "touch";
    if (shown && !shown.contains(event.target) && !card.contains(event.target)) hide();
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
})();
