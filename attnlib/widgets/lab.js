// Parts that all labs share. Python puts this file in front of a lab's own one (lab.py).

/** Make an element. Strings become text nodes: a token such as "<b>" can't turn into markup. */
function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
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
  const digits = size < 9999.5 ? size.toFixed(decimals) : size.toExponential(0);
  const text = size === Infinity ? "∞" : digits.replace("e+", "e");
  return x < 0 && text !== "0.00" ? "−" + text : text;
}

/** Number the tokens that occur more than once: "the", "the" become "the₁", "the₂". */
function named(tokens) {
  const seen = {};
  return tokens.map((token) => {
    const count = (seen["$" + token] = (seen["$" + token] ?? 0) + 1);
    if (tokens.filter((other) => other === token).length < 2) return token;
    return token + [...String(count)].map((digit) => "₀₁₂₃₄₅₆₇₈₉"[digit]).join("");
  });
}

// Nine stops of matplotlib's cividis, which looks the same with and without colour blindness.
const RAMP = [
  [0, 34, 78], [26, 56, 111], [67, 78, 108], [97, 101, 111], [125, 124, 120],
  [155, 148, 118], [188, 174, 108], [222, 201, 88], [254, 232, 56],
];

/** The colour at 0 (dark) to 1 (bright), and black or white, whichever can be read on it. */
function colour(place) {
  const at = Math.min(Math.max(place, 0), 1) * (RAMP.length - 1);
  const i = Math.min(Math.floor(at), RAMP.length - 2);
  const rgb = RAMP[i].map((from, c) => Math.round(from + (at - i) * (RAMP[i + 1][c] - from)));
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 3294.6 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  const bright = 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179;
  return [`rgb(${rgb})`, bright ? "#000" : "#fff"];
}

/** A table of numbers that is built once; later only the cells that changed are written. */
class Matrix {
  /** `cell`: width that a number needs, in rem. `more` names columns of plain numbers behind the
      others. `onToggle(row, column)` turns the cells into buttons. `onRow(row)` hears of a click. */
  constructor({ title, rows, columns, cell = 2.15, more = [], foot = "", onToggle, onRow }) {
    this.note = make("span");
    this.cells = [];
    const head = make("tr", {}, make("td"));
    columns.forEach((name) => head.append(make("th", { scope: "col", title: name }, make("span", {}, name))));
    more.forEach((name) => head.append(make("th", { scope: "col", class: "lab-more" }, make("span", {}, name))));
    const body = make("tbody");
    this.rows = rows.map((name) => this.line(body, name, columns, more, onToggle));
    if (foot) {
      this.foot = this.line(body, foot, columns, []);
      this.feet = this.cells.pop();
      this.foot.className = "lab-foot";
      more.forEach(() => this.foot.append(make("td")));
    }
    const caption = make("caption", {}, make("strong", {}, title), " ", this.note);
    const table = make("table", {}, caption, make("thead", {}, head), body);
    const longest = Math.max(...columns.map((name) => name.length));
    const count = columns.length + more.length;
    if (longest > 2) table.className = longest > 7 || count > 7 ? "lab-upright" : "lab-words";
    this.node = make("div", { class: "lab-matrix", style: `--lab-cells: ${count * cell}rem` }, table);
    if (onRow) {
      table.classList.add("lab-picks");
      table.addEventListener("click", (event) => {
        const row = this.rows.indexOf(event.target.closest("tr"));
        if (row >= 0 && !event.target.closest("button")) onRow(row);
      });
    }
    if (onToggle) this.rove(onToggle);
    this.watch(title);
  }

  line(body, name, columns, more, onToggle) {
    const row = make("tr", {}, make("th", { scope: "row", title: name }, make("span", {}, name)));
    this.cells.push(
      [...columns, ...more].map((_, j) => {
        const button = onToggle && make("button", { type: "button", tabindex: -1 });
        const cell = make("td", j < columns.length ? {} : { class: "lab-more" }, button || "");
        row.append(cell);
        return { node: button || cell };
      }),
    );
    body.append(row);
    return row;
  }

  /** One tab stop for all the buttons; the arrow keys move within. */
  rove(onToggle) {
    const [rows, columns] = [this.cells.length, this.cells[0].length];
    let [row, column] = [0, 0];
    const go = (i, j, focus) => {
      this.cells[row][column].node.tabIndex = -1;
      [row, column] = [Math.min(Math.max(i, 0), rows - 1), Math.min(Math.max(j, 0), columns - 1)];
      this.cells[row][column].node.tabIndex = 0;
      if (focus) this.cells[row][column].node.focus();
    };
    go(0, 0);
    this.cells.forEach((line, i) => line.forEach(({ node }, j) => {
      node.addEventListener("click", () => { go(i, j); onToggle(i, j); });
    }));
    this.node.addEventListener("keydown", (event) => {
      const to = {
        ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
        ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
        Home: [row, 0], End: [row, columns - 1],
      }[event.key];
      if (!to || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      event.stopPropagation(); // a notebook would move to the next cell
      go(...to, true);
    });
  }

  /** A matrix that is too wide scrolls by itself, and then the keyboard must reach it. */
  watch(title) {
    new ResizeObserver(() => {
      const wide = this.node.scrollWidth > this.node.clientWidth;
      const wanted = wide ? { tabindex: 0, role: "region", "aria-label": title + ", scrolls sideways" } : {};
      for (const name of ["tabindex", "role", "aria-label"]) {
        if (wide) this.node.setAttribute(name, wanted[name]);
        else this.node.removeAttribute(name);
      }
    }).observe(this.node);
  }

  /** `text` and `place` (0 to 1: its colour, else none) of each cell; `blocked` ones are hatched. */
  show(values, { note = "", selected = -1, text = number, place = () => NaN, blocked = () => false, more = [], foot = [], label } = {}) {
    write(this.note, note);
    this.rows.forEach((row, i) => row.classList.toggle("lab-on", i === selected));
    this.cells.forEach((line, i) => line.forEach((cell, j) => {
      const plain = j >= values[i].length;
      const value = plain ? more[j - values[i].length][i] : values[i][j];
      const hatched = !plain && blocked(i, j);
      this.paint(cell, plain ? number(value) : text(value), plain || hatched ? NaN : place(value), hatched);
      const words = label?.(i, j);
      if (words !== cell.words) {
        cell.words = words;
        cell.node.setAttribute("aria-pressed", value);
        cell.node.setAttribute("aria-label", words);
      }
    }));
    foot.forEach((value, j) => this.paint(this.feet[j], number(value), NaN, false));
  }

  paint(cell, text, place, hatched) {
    const look = `${text} ${place} ${hatched}`;
    if (look === cell.look) return;
    cell.look = look;
    write(cell.node, text);
    const [background, ink] = Number.isNaN(place) ? ["", ""] : colour(place);
    cell.node.style.backgroundColor = background;
    cell.node.style.color = ink;
    cell.node.classList.toggle("lab-blocked", hatched);
  }
}

/** A labelled <select>. `options` are pairs of a value and the words for it. */
function choice(label, options, onPick) {
  const select = make("select", {}, ...options.map(([, words]) => make("option", {}, words)));
  const values = options.map(([value]) => value);
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
function slider(label, { min, max, step }, words, onMove) {
  const range = make("input", { type: "range", min, max, step });
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
