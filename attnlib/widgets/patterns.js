// The pattern lab. The arithmetic is in `compute`, which touches no page.

/** Read "window 2 or not causal" line by line, as recipes.py does. */
function readRecipe(recipe) {
  const words = recipe.split(" ");
  const lines = [];
  while (words.length) {
    const join = lines.length ? words.shift() : "and";
    const negated = words[0] === "not";
    if (negated) words.shift();
    const kind = words.shift();
    lines.push({ join, negated, kind, size: kind === "causal" ? 0 : Number(words.shift()) });
  }
  return lines;
}

function recipeOf(lines) {
  return lines.flatMap(({ join, negated, kind, size }, i) => [
    ...(i ? [join] : []), ...(negated ? ["not"] : []), kind, ...(kind === "causal" ? [] : [size]),
  ]).join(" ");
}

/** The keys that query i of n may see by a pattern, as pieces from one key up to another. */
const PIECES = {
  causal: (n, size, i) => [[0, i + 1]],
  padding: (n, size) => [[0, n - size]],
  left_padding: (n, size) => [[size, n]],
  window: (n, size, i) => [[Math.max(0, i - size), i + size + 1]],
  global: (n, size, i) => [[0, i < size ? n : size]],
  random: (n, size, i, { draws, limits: { block } }) => {
    const each = draws[n].length / (n / block); // digits for a block of queries, two for each draw
    const from = Math.floor(i / block) * each;
    return [...Array(size).keys()].map((k) => parseInt(draws[n].slice(from + 2 * k, from + 2 * k + 2), 16))
      .map((b) => [b * block, (b + 1) * block]);
  },
  prefix: (n, size, i) => [[0, Math.max(size, i + 1)]],
  document: (n, size, i) => [[i - (i % size), i - (i % size) + size]],
};

/** The size of a line, no larger than a length has room for. */
function fitting({ kind, size }, n, { limits }) {
  return Math.min(size, kind === "random" ? Math.ceil(n / limits.block) : n);
}

/** The mask after each line, as one number for each pair, row by row. */
function masksOf(lines, n, tables) {
  const masks = lines.map(() => new Uint8Array(n * n));
  lines.forEach((line, l) => {
    const [mask, before] = [masks[l], masks[l - 1]];
    const size = fitting(line, n, tables);
    if (line.negated) mask.fill(1);
    for (let i = 0; i < n; i += 1) {
      for (const [from, to] of PIECES[line.kind](n, size, i, tables)) {
        mask.fill(line.negated ? 0 : 1, i * n + from, i * n + Math.min(to, n));
      }
    }
    if (!before) return;
    const isAnd = line.join === "and"; // loops: a million pairs for each line, while a slider moves
    for (let at = 0; at < mask.length; at += 1) {
      mask[at] = isAnd ? mask[at] & before[at] : mask[at] | before[at];
    }
  });
  return masks;
}
const maskOf = (recipe, n, tables) => masksOf(readRecipe(recipe), n, tables).at(-1);

function sumOf(numbers) {
  let sum = 0;
  for (const x of numbers) sum += x;
  return sum;
}
const nested = (flat, n) => Array.from({ length: n }, (_, i) => Array.from(flat.subarray(i * n, i * n + n)));

/** After how many layers each token has heard of each other: 0 of itself, −1 for not at all. */
function heardAfter(mask, n, layers) {
  const heard = new Int8Array(n * n).fill(-1);
  for (let i = 0; i < n; i += 1) heard[i * n + i] = 0;
  for (let layer = 1; layer <= layers; layer += 1) {
    for (let i = 0; i < n; i += 1) {
      for (let j = 0; j < n; j += 1) {
        if (!mask[i * n + j]) continue;
        for (let k = 0; k < n; k += 1) {
          const told = heard[j * n + k];
          if (told >= 0 && told < layer && heard[i * n + k] < 0) heard[i * n + k] = layer;
        }
      }
    }
  }
  return heard;
}

/** What the allowed pairs cost, and the share of pairs if whole blocks are computed. */
function costOf(mask, n, { d_head, n_heads, tile }) {
  const across = Math.ceil(n / tile);
  const used = new Uint8Array(across * across);
  let pairs = 0;
  for (let i = 0, at = 0; i < n; i += 1) {
    const row = Math.floor(i / tile) * across;
    for (let j = 0; j < n; j += 1, at += 1) {
      if (mask[at]) { pairs += 1; used[row + Math.floor(j / tile)] = 1; }
    }
  }
  const tiled = sumOf(used) * tile * tile / (n * n);
  const all = n_heads * pairs;
  return { cost: [all, pairs / (n * n), 4 * d_head * all, 4 * all], tiled };
}

/** How far a check of a puzzle is from holding; 0 if it holds. */
function missesOf([, kind, needs], lines, mask, n, tables) {
  const count = (test) => mask.reduce((sum, is, at) => sum + (test(is, at) ? 1 : 0), 0);
  if (kind === "only" || kind === "all") {
    const asked = maskOf(needs, n, tables);
    return count((is, at) => (kind === "only" ? is > asked[at] : is < asked[at]));
  }
  if (kind === "sighted") return blindOf(mask, n).length;
  if (kind === "heard") return heardAfter(mask, n, needs[2])[needs[0] * n + needs[1]] < 0 ? 1 : 0;
  if (kind === "everyone") return heardAfter(mask, n, needs).filter((layer) => layer < 0).length;
  if (kind === "band") return count((is, at) => at >= n && at % n > 0 && is !== mask[at - n - 1]);
  if (kind === "pairs") return Math.max(sumOf(mask) - needs, 0);
  return lines.filter((line) => line.kind === needs).length;
}

function blindOf(mask, n) {
  return [...Array(n).keys()].filter((i) => !mask.subarray(i * n, i * n + n).includes(1));
}

/** What a recipe leads to. */
export function compute({ recipe, length, puzzle, tables }) {
  const lines = readRecipe(recipe);
  const masks = masksOf(lines, length, tables);
  const mask = masks.at(-1);
  const large = tables.layer.lengths.map((n) => costOf(maskOf(recipe, n, tables), n, tables.layer));
  const posed = tables.puzzles[puzzle];
  const judged = posed && maskOf(recipe, posed.length, tables);
  return {
    allowed: nested(mask, length),
    pairs: masks.map(sumOf),
    blind: blindOf(mask, length),
    heard: nested(heardAfter(mask, length, 8), length),
    costs: large.map(({ cost }) => cost),
    tiled: large.map(({ tiled }) => tiled),
    misses: posed ? posed.checks.map((c) => missesOf(c, lines, judged, posed.length, tables)) : [],
  };
}

/** The mask as code, as PatternLab.code writes it. */
export function codeOf({ recipe, length, form, tables }) {
  const lines = readRecipe(recipe);
  const names = new Set();
  const body = lines.map((line, i) => {
    const pattern = tables.patterns[line.kind][1];
    names.add(pattern.split("(")[0]);
    const sign = i ? `mask ${line.join === "and" ? "&" : "|"} ` : "";
    return `mask = ${sign}${line.negated ? "~" : ""}`
      + pattern.replace("{size}", fitting(line, length, tables));
  });
  if (form === "additive") {
    names.add("to_additive");
    body.push("bias = to_additive(mask, torch.float32)  # 0 and -inf");
  } else if (form === "blocked" && lines.every(({ kind }) => kind.endsWith("padding"))) {
    names.add("to_key_padding_mask");
    body.push("key_padding_mask = to_key_padding_mask(mask)  # True = ignore");
  } else if (form === "blocked") {
    body.push("attn_mask = ~mask.expand(1, 1, n, n)[0, 0]  # True = blocked");
  }
  const imports = `from attnlib.masks import ${[...names].sort().join(", ")}`;
  return ["import torch", imports, "", `n = ${length}`, ...body].join("\n");
}

// ------------------------------------------------------------------------------------- words

const KINDS = [ // the name, the words for it, what its size is, the size that it starts with
  ["causal", "causal", "", 0], ["window", "window", "Radius", 2], ["global", "global", "First tokens", 1],
  ["random", "random blocks", "Blocks in a row", 1], ["prefix", "prefix", "Tokens", 6],
  ["document", "documents", "Tokens in each", 4], ["padding", "padding behind", "Tokens", 4],
  ["left_padding", "padding in front", "Tokens", 4],
];
const KIND = Object.fromEntries(KINDS.map(([kind, words, size, start]) => [kind, { words, size, start }]));

const plain = (x) => x.toLocaleString("en");
const percent = (share) => (share > 0 && share < 0.01 ? "<1 %" : `${Math.round(100 * share)} %`);
const many = (count, word, words = `${word}s`) => `${plain(count)} ${count === 1 ? word : words}`;

/** 3 significant digits with k, M or G in front of a unit. */
function large(x, unit) {
  const power = x < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(x) / 3));
  const value = x / 1000 ** power;
  return `${value >= 100 || !power ? Math.round(value) : value.toPrecision(3)} ${["", "k", "M", "G"][power]}${unit}`;
}

/** "0, 3–5" for the places where a row is true. */
function ranges(row) {
  const found = [];
  row.forEach((is, j) => {
    if (!is) return;
    if (j && row[j - 1]) found.at(-1)[1] = j;
    else found.push([j, j]);
  });
  const words = found.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`));
  return words.length > 6 ? `${words.slice(0, 5).join(", ")} and others` : words.join(", ");
}

/** Which line decided about a pair, in words. */
function reason(lines, own, at, allowed) {
  let [is, by] = [0, -1];
  lines.forEach(({ join }, l) => {
    const next = !l ? own[l][at] : join === "and" ? is & own[l][at] : is | own[l][at];
    if (next !== is) [is, by] = [next, l];
  });
  if (by < 0) return "no line lets it in";
  return allowed ? `line ${by + 1} lets it in` : `line ${by + 1} takes it out`;
}

function tell({ length: n, layers }, now, lines, own, [i, j]) {
  const row = now.allowed[i];
  const count = sumOf(row);
  const sees = count ? `may see ${count === 1 ? "key" : "keys"} ${ranges(row)}, ${count} of ${n}` : "sees nothing";
  const pair = `Key ${j} is ${row[j] ? "allowed" : "blocked"}: ${reason(lines, own, i * n + j, row[j])}.`;
  const heard = now.heard[i].map((layer) => layer >= 0 && layer <= layers);
  return `Query ${i} ${sees}. ${pair} After ${many(layers, "layer")} it has heard of ${ranges(heard)}.`;
}

function growth({ costs }) {
  const [before, after] = costs.slice(-2).map(([pairs]) => pairs);
  if (!before || !after) return "";
  const factor = after / before;
  const like = factor > 3.5 ? "with the square of the length" : factor < 2.3 && factor > 1.7 ? "in proportion to the length"
    : factor < 1.2 ? "not at all" : "in between";
  return `From 512 to 1024 tokens the allowed pairs grow ${factor.toFixed(1)}-fold: ${like}.`;
}

/** What the code can't say about the form that is chosen. */
function caution(form, lines, now) {
  const blind = now.blind.length ? " A row of nothing but blocked keys becomes NaN in a plain softmax." : "";
  const padded = lines.some(({ kind }) => kind.endsWith("padding"));
  if (form === "bool") return `True = may attend, for attnlib and scaled_dot_product_attention.${blind}`;
  if (form === "additive") return `To be added to the scores, for code that takes numbers.${blind}`;
  const alone = padded && lines.every(({ kind }) => kind.endsWith("padding"));
  const apart = padded && !alone ? " Padding differs from text to text: in a batch, pass it apart, as key_padding_mask, which is turned round, too." : "";
  return `nn.MultiheadAttention means the opposite: True = ${alone ? "ignore" : "blocked"}.${apart}${blind}`;
}

// ------------------------------------------------------------------------------------ pictures

const SIDE = 576; // of a picture, in dots; 8, 16, 32 and 64 divide it
const [DARK, BRIGHT] = [look(0).backgroundColor, look(1).backgroundColor];
const layerLook = (layer) => look(1 - layer / 9);

/** Paint n × n cells, lines between them, and the marks of a puzzle. */
function paintCells(canvas, n, colour, mark = () => "") {
  const pen = canvas.getContext("2d");
  const cell = canvas.width / n;
  for (let i = 0; i < n; i += 1) {
    for (let j = 0; j < n; j += 1) {
      const [x, y] = [j * cell, i * cell];
      pen.fillStyle = colour(i, j);
      pen.fillRect(x, y, cell, cell);
      const sign = mark(i, j);
      if (!sign) continue;
      pen.strokeStyle = sign === "×" ? "#000" : "#fff";
      pen.lineWidth = Math.max(2, cell / 12);
      pen.beginPath();
      if (sign === "×") {
        for (const up of [0.25, 0.75]) {
          pen.moveTo(x + cell / 4, y + up * cell);
          pen.lineTo(x + 0.75 * cell, y + (1 - up) * cell);
        }
      } else pen.arc(x + cell / 2, y + cell / 2, cell / 4, 0, 7);
      pen.stroke();
    }
  }
  if (canvas.width < SIDE) return;
  pen.fillStyle = "#7d7c78";
  for (let i = 1; i < n; i += 1) {
    pen.fillRect(i * cell - 0.5, 0, 1, SIDE);
    pen.fillRect(0, i * cell - 0.5, SIDE, 1);
  }
}

/** Hatch the rows that see nothing. */
function hatch(canvas, n, rows) {
  const pen = canvas.getContext("2d");
  const cell = SIDE / n;
  pen.save();
  pen.beginPath();
  rows.forEach((i) => pen.rect(0, i * cell, SIDE, cell));
  pen.clip();
  pen.strokeStyle = "#fff";
  pen.lineWidth = 2;
  pen.beginPath();
  for (let x = 0; x < 2 * SIDE; x += 16) {
    pen.moveTo(x, 0);
    pen.lineTo(x - SIDE, SIDE);
  }
  pen.stroke();
  pen.restore();
}

/** Frame a row and one cell of it, so that it shows on bright and on dark. */
function frame(canvas, n, i, j) {
  const pen = canvas.getContext("2d");
  const cell = SIDE / n;
  for (const [x, y, wide, high] of [[0, i * cell, SIDE, cell], [j * cell, i * cell, cell, cell]]) {
    for (const [colour, thick] of [["#000", 6], ["#fff", 3]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = thick;
      pen.strokeRect(x, y, wide, high);
    }
  }
}

/** A picture that mouse and arrow keys move a cursor on. `onMove(row, column)` hears of it. */
function picture(name, caption, onMove) {
  const canvas = make("canvas", { width: SIDE, height: SIDE });
  const how = {
    class: "lab-square", tabindex: 0, role: "application", "aria-roledescription": "mask",
    "aria-label": `${name}: queries down, keys across. The arrow keys move.`,
  };
  const square = make("div", how, canvas);
  const base = make("canvas", { width: SIDE, height: SIDE }); // without the cursor
  let [n, row, column, shown] = [1, 0, 0, ""];
  const go = (i, j) => {
    const inside = (x) => Math.min(Math.max(x, 0), n - 1);
    onMove(inside(i), inside(j));
  };
  const point = (event) => {
    const box = canvas.getBoundingClientRect();
    go(Math.floor((n * (event.clientY - box.top)) / box.height), Math.floor((n * (event.clientX - box.left)) / box.width));
  };
  square.addEventListener("pointermove", point);
  square.addEventListener("pointerdown", point);
  square.addEventListener("keydown", (event) => {
    const to = {
      ArrowUp: [row - 1, column], ArrowDown: [row + 1, column], ArrowLeft: [row, column - 1],
      ArrowRight: [row, column + 1], Home: [row, 0], End: [row, n - 1], PageUp: [0, column], PageDown: [n - 1, column],
    }[event.key];
    if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation(); // a notebook would move to the next cell
    go(...to);
  });
  /** `of` names what `paint` would paint on a canvas: only a new thing is painted. */
  const show = (of, length, at, paint) => {
    [n, row, column] = [length, ...at];
    if (of !== shown) paint(base);
    shown = of;
    canvas.getContext("2d").drawImage(base, 0, 0);
    frame(canvas, n, row, column);
  };
  return { node: make("div", {}, make("p", { class: "lab-how" }, make("strong", {}, name), " ", caption), square), show };
}

/** Bytes over the length on logarithmic axes, for all pairs and for the allowed ones. */
function chart({ layer: { lengths, n_heads } }, costs) {
  const bytes = [lengths.map((n) => 4 * n_heads * n * n), costs.map(([, , , size]) => size)];
  const [low, high] = [1e4, 1e8];
  const x = (k) => 66 + k * 92;
  const y = (size) => 14 + 176 * (1 - Math.log(Math.min(Math.max(size, low), high) / low) / Math.log(high / low));
  const grid = [["100 MB", 1e8], ["1 MB", 1e6], ["10 kB", 1e4]].map(([words, at]) => `<line class="lab-grid" x1="66" x2="434" y1="${y(at)}" y2="${y(at)}"/><text x="60" y="${y(at) + 4}" text-anchor="end">${words}</text>`);
  const ticks = lengths.map((n, k) => `<text x="${x(k)}" y="210" text-anchor="middle">${n}</text>`);
  const curves = bytes.map((sizes, s) => `<polyline class="${s ? "lab-on" : ""}" points="${sizes.map((size, k) => `${x(k)},${y(size)}`).join(" ")}"/>`);
  const ends = bytes.map((sizes) => y(sizes.at(-1)));
  ends[1] = Math.max(ends[1], ends[0] + 18);
  const names = ["all pairs", "allowed"].map((words, s) => `<text class="${s ? "lab-on" : ""}" x="440" y="${ends[s] + 4}">${words}</text>`);
  return [...grid, ...ticks, ...curves, ...names, '<text x="250" y="230" text-anchor="middle">length (tokens)</text>'].join("");
}

// ----------------------------------------------------------------------------------- the lines

/** One line: how it joins, whether it is turned round, which pattern, how large; and its gain. */
function lineEditor(l, tables, change) {
  const thumb = make("canvas", { width: 64, height: 64, class: "lab-thumb", "aria-hidden": "true" });
  const join = choice("Join", [["and", "and"], ["or", "or"]], (value) => change(l, { join: value }));
  const negated = tick("Flip", "not", (value) => change(l, { negated: value }));
  const kind = choice("Pattern", KINDS.map(([name, words]) => [name, words]),
    (value) => change(l, { kind: value, size: KIND[value].start }));
  const size = slider("Size", { min: 0, max: 1, step: 1 }, String, (value) => change(l, { size: value }));
  const label = size.node.querySelector("label").firstChild;
  const range = size.node.querySelector("input");
  const gain = make("span", { class: "lab-gain" });
  const up = make("button", { type: "button", class: "lab-reset", "aria-label": `Move line ${l + 1} up` }, "↑");
  const out = make("button", { type: "button", class: "lab-reset", "aria-label": `Remove line ${l + 1}` }, "×");
  up.addEventListener("click", () => change(l, "up"));
  out.addEventListener("click", () => change(l, "out"));
  const node = make("div", { class: "lab-line", role: "group", "aria-label": `Line ${l + 1}` },
    thumb, join.node, negated.node, kind.node, size.node, gain, make("span", { class: "lab-order" }, up, out));
  [[join, "join"], [negated, "not"], [kind, "pattern"]].forEach(([part, area]) => { part.node.style.gridArea = area; });
  const show = (line, n, own, words, count) => {
    join.set(line.join);
    join.node.style.visibility = l ? "" : "hidden";
    up.style.visibility = l ? "" : "hidden";
    out.style.visibility = count > 1 ? "" : "hidden";
    negated.set(line.negated);
    kind.set(line.kind);
    size.node.style.visibility = line.kind === "causal" ? "hidden" : "";
    label.data = KIND[line.kind].size;
    range.min = tables.patterns[line.kind][0];
    range.max = line.kind === "random" ? Math.min(tables.limits.blocks, n / tables.limits.block) : n;
    size.set(fitting(line, n, tables));
    write(gain, words);
    paintCells(thumb, n, (i, j) => (own[i * n + j] ? BRIGHT : DARK));
  };
  return { node, show, kind: kind.node.querySelector("select") };
}

/** What is left of the lines after one was changed, moved up or taken out. */
function changed(lines, l, change) {
  if (change === "out") return lines.filter((_, k) => k !== l);
  if (change === "up") return lines.map((line, k) => (k === l - 1 ? lines[l] : k === l ? lines[l - 1] : line));
  return lines.map((line, k) => (k === l ? { ...line, ...change } : line));
}

function gains(lines, { pairs }) {
  return lines.map(({ join }, l) => {
    if (!l) return `${many(pairs[0], "pair")}`;
    const more = pairs[l] - pairs[l - 1];
    if (!more) return join === "and" ? "takes nothing out" : "lets nothing in";
    return more > 0 ? `lets in ${plain(more)}` : `takes out ${plain(-more)}`;
  });
}

// -------------------------------------------------------------------------------------- page

const SWITCHES = ["recipe", "length", "query", "layers", "form", "puzzle"];

/** The puzzle's text, what it asks for, and whether that holds. */
function puzzleBox() {
  const text = make("p");
  const list = make("ul", { class: "lab-checks" });
  const verdict = make("p", { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" });
  const hint = make("p");
  const fold = make("details", {}, make("summary", {}, "Hint"), hint);
  const node = make("div", { class: "lab-puzzle" }, text, list, verdict, fold);
  let posed;
  const show = (puzzle, name, misses) => {
    node.hidden = !puzzle;
    if (!puzzle) return;
    if (posed !== name) fold.open = false;
    posed = name;
    write(text, puzzle.text);
    write(hint, puzzle.hint);
    list.replaceChildren(...puzzle.checks.map(([words], c) => make("li", { class: misses[c] ? "" : "lab-holds" },
      make("span", { "aria-hidden": "true" }, misses[c] ? "✗ " : "✓ "), `${words} ${misses[c] ? "Not yet." : "Holds."}`)));
    const left = misses.filter((miss) => miss > 0).length;
    write(verdict, left ? `${misses.length - left} of ${misses.length} hold.` : "Solved: all of it holds.");
  };
  return { node, show };
}

/** Which cells a puzzle's first failing check complains of: × is too much, ○ is missing. */
function marksOf(puzzle, { allowed, misses }, length, tables) {
  const fails = puzzle && puzzle.length === length
    && puzzle.checks.find(([, kind], c) => misses[c] && (kind === "only" || kind === "all"));
  if (!fails) return undefined;
  const asked = maskOf(fails[2], length, tables);
  return (i, j) => {
    const at = i * length + j;
    if (fails[1] === "only") return allowed[i][j] > asked[at] ? "×" : "";
    return allowed[i][j] < asked[at] ? "○" : "";
  };
}

/** The code, with a button that copies it. */
function codeBox() {
  const text = make("code");
  const box = make("pre", { tabindex: 0, role: "region", "aria-label": "Code of the mask" }, text);
  const done = make("span", { role: "status" });
  const button = make("button", { type: "button", class: "lab-reset" }, "Copy");
  button.addEventListener("click", async () => {
    getSelection().selectAllChildren(text);
    try {
      await navigator.clipboard.writeText(text.textContent);
      write(done, "Copied.");
    } catch {
      write(done, "It is marked: press Ctrl+C.");
    }
  });
  return { nodes: [box, button, done], show: (code) => { if (text.textContent !== code) write(done, ""); write(text, code); } };
}

function costTable({ layer: { lengths } }) {
  const table = new Matrix({
    title: "One layer", columns: lengths.map(String), cell: 3.4,
    rows: ["allowed pairs", "in blocks of 16", "bytes, all", "bytes, allowed", "FLOPs, all", "FLOPs, allowed"],
  });
  table.node.style.setProperty("--lab-name", "7rem");
  return table;
}

function costRows({ layer: { lengths, d_head, n_heads } }, { costs, tiled }) {
  const all = lengths.map((n) => n_heads * n * n);
  return [
    costs.map(([, share]) => percent(share)), tiled.map(percent),
    all.map((pairs) => large(4 * pairs, "B")), costs.map(([, , , bytes]) => large(bytes, "B")),
    all.map((pairs) => large(4 * d_head * pairs, "")), costs.map(([, , flops]) => large(flops, "")),
  ];
}

function legend() {
  const steps = [...Array(9).keys()].map((layer) => {
    const step = make("span", {}, String(layer));
    Object.assign(step.style, layerLook(layer));
    return step;
  });
  const never = make("span", { class: "lab-never" }, "not yet");
  return make("p", { class: "lab-legend", "aria-hidden": "true" }, "layers: ", ...steps, never);
}

function render({ model, el }) {
  const tables = model.get("tables");
  const read = () => Object.fromEntries(SWITCHES.map((name) => [name, model.get(name)]));
  const first = read();
  const { put, stop } = tie(model, draw);
  const edit = (lines, more = {}) => put({ recipe: recipeOf(lines), ...more });
  const lines = () => readRecipe(model.get("recipe"));

  const presets = choice("Start from", [["", "own recipe"], ...Object.keys(tables.presets).map((name) => [name, name])],
    (name) => name && put({ recipe: tables.presets[name], puzzle: "" }));
  const puzzles = choice("Puzzle", [["", "none"], ...Object.keys(tables.puzzles).map((name) => [name, name])],
    (name) => put({ puzzle: name, ...(name ? { recipe: tables.puzzles[name].start, length: tables.puzzles[name].length } : {}) }));
  const length = choice("Tokens", [8, 16, 32, 64].map((n) => [n, String(n)]), (n) => put({ length: n }));
  const layers = slider("Layers", { min: 0, max: 8, step: 1 }, String, (value) => put({ layers: value }));
  const form = choice("Form", [["bool", "bool, True = may attend"], ["additive", "additive, 0 and −inf"],
    ["blocked", "MultiheadAttention, True = blocked"]], (value) => put({ form: value }));
  const reset = make("button", { type: "button", class: "lab-reset" }, "Reset");
  reset.addEventListener("click", () => put(first));

  const editors = [...Array(tables.limits.lines).keys()].map((l) => lineEditor(l, tables, (at, change) => {
    edit(changed(lines(), at, change));
    if (change === "out") editors[Math.max(0, at - 1)].kind.focus(); // its own button may be gone
  }));
  const add = make("button", { type: "button", class: "lab-reset" }, "Add a line");
  add.addEventListener("click", () => {
    const now = lines();
    edit([...now, { join: "or", negated: false, kind: "window", size: KIND.window.start }]);
    editors[now.length].kind.focus();
  });

  let key = 0;
  const move = (i, j) => {
    if (i === at()[0] && j === key) return;
    key = j;
    if (i !== model.get("query")) put({ query: i });
    else draw();
  };
  const at = () => [model.get("query"), key].map((x) => Math.min(x, model.get("length") - 1));
  const seen = picture("Who may see whom", "bright: allowed", move);
  const heard = picture("Who has heard of whom", "bright: early", move);
  const told = make("span");
  const warning = make("strong");
  const box = puzzleBox();
  const table = costTable(tables);
  const curve = make("div");
  const grows = make("p");
  const code = codeBox();
  const total = make("strong");
  const note = make("p", { class: "lab-how" });

  let [made, now, own] = ["", null, null];
  function draw() {
    const state = { ...read(), tables };
    const list = readRecipe(state.recipe);
    const n = state.length;
    const posed = tables.puzzles[state.puzzle];
    const wanted = [state.recipe, n, state.puzzle].join("/");
    if (wanted !== made) {
      [made, now] = [wanted, compute(state)];
      own = list.map((line) => masksOf([line], n, tables)[0]);
      showRecipe(state, list, posed);
    }
    layers.set(state.layers);
    form.set(state.form);
    write(told, tell(state, now, list, own, at()));
    write(warning, now.blind.length ? `${many(now.blind.length, "query sees", "queries see")} nothing: a plain softmax makes NaN of that.` : "");
    seen.show(wanted, n, at(), (canvas) => {
      paintCells(canvas, n, (i, j) => (now.allowed[i][j] ? BRIGHT : DARK), marksOf(posed, now, n, tables));
      hatch(canvas, n, now.blind);
    });
    heard.show(`${wanted}/${state.layers}`, n, at(), (canvas) => paintCells(canvas, n, (i, j) => {
      const layer = now.heard[i][j];
      return layer >= 0 && layer <= state.layers ? layerLook(layer).backgroundColor : DARK;
    }));
    code.show(codeOf(state));
    write(note, caution(state.form, list, now));
  }

  /** Show all that a row of the cursor does not change. */
  function showRecipe(state, list, posed) {
    const n = state.length;
    const preset = Object.entries(tables.presets).find(([, recipe]) => recipe === state.recipe);
    presets.set(preset && !posed ? preset[0] : "");
    puzzles.set(state.puzzle);
    length.set(n);
    length.node.querySelector("select").disabled = Boolean(posed); // a puzzle has its own length
    box.show(posed, state.puzzle, now.misses);
    const words = gains(list, now);
    editors.forEach(({ node, show }, l) => {
      node.hidden = l >= list.length;
      if (l < list.length) show(list[l], n, own[l], words[l], list.length);
    });
    add.disabled = list.length >= editors.length;
    const pairs = now.pairs.at(-1);
    write(total, `${plain(pairs)} of ${plain(n * n)} pairs, ${percent(pairs / (n * n))}`);
    table.show(costRows(tables, now), { text: String });
    curve.innerHTML = `<svg class="lab-chart" viewBox="0 0 520 236" aria-hidden="true">${chart(tables, now.costs)}</svg>`;
    write(grows, growth(now));
  }

  draw();
  const root = { class: "lab-body", role: "group", "aria-label": "Pattern lab", "data-lm-suppress-shortcuts": "true" };
  const says = { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" };
  const fold = (words, ...parts) => make("details", {}, make("summary", {}, words), ...parts);
  el.append(make("div", root,
    make("fieldset", {}, make("legend", {}, "Start"), presets.node, puzzles.node, length.node, reset),
    box.node,
    make("p", { class: "lab-title" }, "The recipe, from top to bottom"),
    make("div", { class: "lab-recipe" }, ...editors.map(({ node }) => node)),
    make("p", {}, add, " ", total),
    make("p", says, told, " ", warning),
    make("div", { class: "lab-flow lab-pictures" }, seen.node, make("div", {}, heard.node, layers.node, legend())),
    fold("What it costs, if nothing but the allowed pairs is computed", grows, table.node, curve),
    fold("The mask as code", form.node, ...code.nodes, note)));
  return stop;
}

export default { render };
