// Before the pages that Sphinx finds by their words: what has the name that was asked for.
(function () {
  "use strict";
  const IGNORED = new Set("a an and by for how in is it of on or the to what why with equation formula figure exercise".split(" "));
  const wordsOf = (text) => text.toLowerCase().match(/[\p{Script=Han}]+|[\p{L}\p{N}_]+/gu) || [];
  const squeeze = (text) => text.toLowerCase().replace(/[^\p{L}\p{N}]/gu, "");
  const ORDER = ["equation", "glossary", "section", "lab", "exercise", "figure"];

  function has(words, word) {
    if (/\p{Script=Han}/u.test(word)) return words.some((each) => each.includes(word));
    if (word.length < 3) return words.includes(word);
    return words.some((each) => each.startsWith(word) || each.startsWith(word.replace(/e?s$/, "")));
  }
  // How well a place fits, 0 if it doesn't: its whole name, its name, or name and further words.
  function fit([kind, name, further], query) {
    const asked = wordsOf(query).filter((word) => !IGNORED.has(word));
    if (!asked.length) return 0;
    if (squeeze(name) === asked.map(squeeze).join("")) return 4;
    const more = wordsOf(further);
    const own = wordsOf(name).concat(kind === "glossary" ? more : []); // its other names
    const exact = asked.every((word) => own.includes(word)) ? 0.5 : 0;
    if (asked.every((word) => has(own, word))) return exact + (own.length <= asked.length + 2 ? 3 : 2);
    if (asked.length > 1 && asked.every((word) => has(own.concat(more), word))) return 1.5;
    return kind === "equation" && squeeze(query).length > 2 && squeeze(further).includes(squeeze(query)) ? 2 : 0;
  }
  function find(query) {
    const rank = (place) => ORDER.indexOf(place[0].split(" ")[0]);
    return NAMED.map((place) => [fit(place, query), place])
      .filter(([points]) => points)
      .sort(([p, a], [q, b]) => q - p || rank(a) - rank(b))
      .slice(0, 10).map(([, place]) => place);
  }

  const query = new URLSearchParams(location.search).get("q") || "";
  const found = find(query);
  if (!found.length) return;
  const list = document.createElement("ul");
  for (const [kind, name, , address] of found) {
    const link = document.createElement("a");
    link.href = address;
    link.textContent = name;
    const item = document.createElement("li");
    item.append(link, ` (${kind})`);
    list.append(item);
  }
  const heading = document.createElement("h2");
  heading.textContent = "By name";
  document.getElementById("named-places").append(heading, list);
})();
