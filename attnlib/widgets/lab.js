// Parts that all labs share. Python puts this file in front of a lab's own one (lab.py).

const OURS = "data-lm-suppress-shortcuts"; // JupyterLab leaves the keys to us

/** Make an element. Strings become text nodes: a token such as "<b>" can't turn into markup. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  // JupyterLab asks the element that has the focus first, and never gets up to the lab
  if (OURS in attributes) node.addEventListener("focusin", ({ target }) => target.setAttribute(OURS, "true"));
  return node;
}

/** Set an element's text if it is another one: a switch touches hundreds of cells in a frame. */
function write(node, text) {
  if (!node.firstChild) node.append(text);
  else if (node.firstChild.data !== text) node.firstChild.data = text;
}

/** Two decimals (fewer for large numbers), a real minus sign, no minus zero. */
function number(x) {
  if (Number.isNaN(x)) return "–";
  const size = Math.abs(x);
  const decimals = size < 9.995 ? 2 : size < 99.95 ? 1 : 0;
  const digits = size < 9999.5 ? size.toFixed(decimals) : size.toExponential(0).replace("e+", "e");
  const text = size === Infinity ? "∞" : digits;
  return x < 0 && text !== "0.00" ? "−" + text : text;
}

/** Number the tokens that occur more than once: "the", "the" become "the₁", "the₂". */
function named(tokens) {
  return tokens.map((token, i) => {
    if (tokens.indexOf(token) === tokens.lastIndexOf(token)) return token;
    const count = tokens.slice(0, i + 1).filter((other) => other === token).length;
    return token + [...String(count)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");
  });
}

// Nine stops of matplotlib's cividis, which looks the same with and without colour blindness.
const RAMP = [
  [0, 34, 78], [26, 56, 111], [67, 78, 108], [97, 101, 111], [125, 124, 120],
  [155, 148, 118], [188, 174, 108], [222, 201, 88], [254, 232, 56],
];

/** The look of a cell from 0 (dark) to 1 (bright): its colour, and black or white to read on it. */
function look(place) {
  const at = place * (RAMP.length - 1);
  const i = Math.min(Math.floor(at), RAMP.length - 2);
  const rgb = RAMP[i].map((from, c) => Math.round(from + (at - i) * (RAMP[i + 1][c] - from)));
  const light = rgb.map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  const luminance = 0.2126 * light[0] + 0.7152 * light[1] + 0.0722 * light[2];
  return { backgroundColor: `rgb(${rgb})`, color: luminance > 0.179 ? "#000" : "#fff" };
}
const PLAIN = { backgroundColor: "", color: "" };
const LOOKS = Array.from({ length: 101 }, (_, i) => look(i / 100));

/** A table of numbers that is built once; later only the cells that changed are written. */
class Matrix {
  /** `cell`: width that a number needs, in rem. `more` names columns of plain numbers behind the
      others, `foot` a last row of them. `onToggle(row, column)` turns the cells into buttons.
      `onRow(row)` hears of a click on a row. */
  constructor({ title, rows, columns, cell = 2.15, more = [], foot = "", onToggle, onRow }) {
    this.note = make("span");
    const head = make("tr", {}, make("td"), ...columns.map((name) => header("col", name)),
      ...more.map((name) => header("col", name)));
    this.body = make("tbody");
    this.lines = rows.map((name) => this.line(name, columns, more, onToggle));
    if (foot) {
      this.foot = this.line(foot, columns, more);
      this.foot.row.className = "lab-foot";
    }
    const caption = make("caption", {}, make("strong", {}, title), " ", this.note);
    const table = make("table", {}, caption, make("thead", {}, head), this.body);
    const longest = Math.max(...columns.map((name) => name.length));
    const count = columns.length + more.length;
    if (longest > 2) table.className = longest > 6 || count > 7 ? "lab-upright" : "lab-words";
    const style = `--lab-cells: ${count * cell}rem`;
    this.node = make("div", { class: "lab-matrix", style }, table);
    table.addEventListener("click", ({ target }) => {
      const row = this.lines.findIndex((line) => line.row.contains(target));
      if (row >= 0 && !target.closest("button")) onRow?.(row);
    });
    if (onToggle) this.rove(onToggle);
    this.watch(title);
  }

  line(name, columns, more, onToggle) {
    const row = make("tr", {}, header("row", name));
    const cells = [...columns, ...more].map((_, j) => {
      const button = onToggle && make("button", { type: "button", tabindex: -1 });
      const cell = make("td", j < columns.length ? {} : { class: "lab-more" }, button || "");
      row.append(cell);
      return { node: button || cell, look: PLAIN, hatched: false };
    });
    this.body.append(row);
    return { row, cells };
  }

  /** One tab stop for all the buttons; the arrow keys move within. */
  rove(onToggle) {
    const buttons = this.lines.map((line) => line.cells.map((cell) => cell.node));
    const [lastRow, lastColumn] = [buttons.length - 1, buttons[0].length - 1];
    let [row, column] = [0, 0];
    const go = (i, j) => {
      buttons[row][column].tabIndex = -1;
      [row, column] = [Math.min(Math.max(i, 0), lastRow), Math.min(Math.max(j, 0), lastColumn)];
      buttons[row][column].tabIndex = 0;
    };
    go(0, 0);
    buttons.forEach((line, i) => line.forEach((button, j) => {
      button.addEventListener("click", () => { go(i, j); onToggle(i, j); });
    }));
    this.body.addEventListener("keydown", (event) => {
      const to = {
        ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
        ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
        Home: [row, 0], End: [row, lastColumn],
      }[event.key];
      if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation(); // a notebook would move to the next cell
      go(...to);
      buttons[row][column].focus();
    });
  }

  /** A matrix that is too wide scrolls by itself, and then the keyboard must reach it. */
  watch(title) {
    const how = { tabindex: 0, role: "region", "aria-label": `${title}, scrolls sideways` };
    new ResizeObserver(() => {
      const wide = this.node.scrollWidth > this.node.clientWidth;
      for (const [name, value] of Object.entries(how)) {
        if (wide) this.node.setAttribute(name, value);
        else this.node.removeAttribute(name);
      }
    }).observe(this.node);
  }

  /** Write `values`. `text` makes a cell's words from its value, `place` its colour (0 to 1, NaN
      for none), `blocked(row, column)` says which are hatched, `label(row, column)` what a button
      is called. `more` and `foot` hold the plain numbers, `selected` is the row to mark. */
  show(values, {
    note = "", selected = -1, text = number, place = () => NaN, blocked = () => false,
    label, more = [], foot = [],
  }) {
    write(this.note, note);
    values.forEach((row, i) => {
      const { row: line, cells } = this.lines[i];
      line.classList.toggle("lab-on", i === selected);
      row.forEach((value, j) => {
        const hatched = blocked(i, j);
        paint(cells[j], text(value), hatched ? NaN : place(value), hatched);
        if (label) name(cells[j], label(i, j), value);
      });
      more.forEach((column, c) => paint(cells[row.length + c], number(column[i]), NaN, false));
    });
    foot.forEach((value, j) => paint(this.foot.cells[j], number(value), NaN, false));
  }
}

function header(scope, words) {
  return make("th", { scope, title: words }, make("span", {}, words));
}

/** Give a cell its words and its look, and touch only what changed. */
function paint(cell, text, place, hatched) {
  write(cell.node, text);
  const wanted = Number.isNaN(place) ? PLAIN : LOOKS[Math.round(100 * Math.min(Math.max(place, 0), 1))];
  for (const property of ["backgroundColor", "color"]) {
    if (wanted[property] !== cell.look[property]) cell.node.style[property] = wanted[property];
  }
  cell.look = wanted;
  if (hatched !== cell.hatched) cell.node.classList.toggle("lab-blocked", cell.hatched = hatched);
}

function name(cell, words, pressed) {
  if (words === cell.words) return;
  cell.words = words;
  cell.node.setAttribute("aria-label", words);
  cell.node.setAttribute("aria-pressed", pressed);
}

/** A labelled <select>. `options` are pairs of a value and the words for it. */
function choice(label, options, onPick) {
  const values = options.map(([value]) => value);
  const select = make("select", {}, ...options.map(([, words]) => make("option", {}, words)));
  select.addEventListener("change", () => onPick(values[select.selectedIndex]));
  const node = make("label", {}, label, select);
  return { node, set: (value) => { select.selectedIndex = values.indexOf(value); } };
}

/** A labelled checkbox. */
function tick(label, words, onTick) {
  const box = make("input", { type: "checkbox" });
  box.addEventListener("change", () => onTick(box.checked));
  const node = make("label", {}, label, make("span", { class: "lab-tick" }, box, words));
  return { node, set: (value) => { box.checked = value; } };
}

/** A labelled range with its value beside it. `words(value)` is shown and spoken. */
function slider(label, limits, words, onMove) {
  const range = make("input", { type: "range", ...limits });
  const shown = make("span", { class: "lab-value", "aria-hidden": "true" });
  range.addEventListener("input", () => onMove(Number(range.value)));
  const node = make("div", {}, make("label", {}, label, range), shown);
  return {
    node,
    set: (value, position = value) => {
      if (Number(range.value) !== position) range.value = position;
      range.setAttribute("aria-valuetext", words(value));
      write(shown, words(value));
    },
  };
}

/** Tie a view to its model: `put` changes several traits at once, and each change draws once. */
function tie(model, draw) {
  let busy = false;
  const onChange = () => { if (!busy) draw(); };
  model.on("change", onChange);
  return {
    put(changes) {
      busy = true;
      for (const [name, value] of Object.entries(changes)) model.set(name, value);
      model.save_changes();
      busy = false;
      draw();
    },
    stop: () => model.off("change", onChange),
  };
}
