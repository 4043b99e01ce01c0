// The heads lab. The arithmetic is in `compute`, which touches no page.

const sum = (row) => row.reduce((total, x) => total + x, 0);

/** Softmax of one row. */
function softmax(row) {
  const most = Math.max(...row);
  const powers = row.map((x) => Math.exp(x - most));
  return powers.map((x) => x / sum(powers));
}

/** Where the split puts which number: a row for each place, the heads side by side. */
function cellsOf(length, width, heads, reshape) {
  const each = width / heads;
  return Array.from({ length }, (_, place) => Array.from({ length: width }, (_, column) => {
    if (reshape === "right") return place * width + column;
    const head = Math.floor(column / each); // memory in order: a head is the next block of it
    return (head * length + place) * each + (column % each);
  }));
}

/** Cells, weights, output and errors, from the numbers and the switches alone. */
export function compute(state) {
  const layer = state.layers.find(({ n_heads }) => n_heads === state.n_heads);
  const [length, width] = [state.target.length, state.target[0].length];
  const each = width / state.n_heads;
  const cells = cellsOf(length, width, state.n_heads, state.reshape);
  const split = (rows) => cells.map((row) => row.map((c) => rows.flat()[c]));
  const [query, key, value] = [layer.query, layer.key, layer.value].map(split);

  const merged = new Array(length * width).fill(0);
  const weights = Array.from({ length: state.n_heads }, (_, head) => {
    const own = Array.from({ length: each }, (_, j) => head * each + j);
    const score = (q, k) => sum(own.map((c) => q[c] * k[c])) / Math.sqrt(each);
    const rows = query.map((q) => softmax(key.map((k) => score(q, k))));
    rows.forEach((row, place) => own.forEach((c) => {
      const mix = sum(row.map((w, other) => w * value[other][c]));
      merged[cells[place][c]] = head === state.cut ? 0 : mix;
    }));
    return rows;
  });

  const output = state.target.map((_, token) => layer.bias.map((b, column) => b + sum(
    layer.out.map((row, c) => merged[token * width + c] * row[column]))));
  const part = width / state.groups.length;
  const errors = state.groups.map((_, g) => sum(output.map((row, token) => sum(
    row.slice(g * part, (g + 1) * part)
      .map((x, j) => (x - state.target[token][g * part + j]) ** 2)))) / (length * part));
  return { cells, weights, output, errors };
}

const mean = (row) => sum(row) / row.length;

/** What the switches have done, in words. */
function tell(state, now) {
  const { n_heads: heads, groups } = state;
  const each = state.target[0].length / heads;
  const many = `${heads} ${heads === 1 ? "head" : "heads"} of width ${each}`;
  const row = now.weights.map((rows) => rows[state.selected]);
  const looks = row.map((w, head) => (head === state.cut ? -1 : Math.max(...w)));
  const sharpest = looks.indexOf(Math.max(...looks));
  const at = state.tokens[row[sharpest].indexOf(Math.max(...row[sharpest]))];
  const told = `${many}: error ${number(mean(now.errors))}.`;
  if (heads === 1 && state.cut === 0) return `${told} Nothing is left.`;
  const whom = state.reshape === "right" ? "" : "place ";
  const whole = compute({ ...state, cut: -1 }).errors;
  const lost = groups.filter((_, g) => now.errors[g] > whole[g] + 0.1);
  const price = lost.length ? `worse at ${lost.join(", ")}` : "nothing gets much worse";
  const cut = state.cut < 0 ? "" : ` Without head ${state.cut}: ${price}.`;
  return `${told}${cut} From ${whom}${state.tokens[state.selected]}, head ${sharpest} looks most `
    + `at ${whom}${at} (${number(looks[sharpest])}).`;
}

function warn(state) {
  if (state.reshape === "right") return "";
  if (state.n_heads === 1) return "With a single head the wrong reshape moves nothing.";
  return "Wrong reshape: a place holds pieces of one token, and a head holds only some tokens.";
}

// -------------------------------------------------------------------------------------- page

const GIVEN = ["tokens", "layers", "target", "groups"];
const SWITCHES = ["n_heads", "reshape", "cut", "selected"];

/** The controls; those that name heads come once for each number of heads. */
function controls(state, counts, put) {
  const cut = (heads) => [[-1, "none"], ...Array.from({ length: heads }, (_, i) => [i, `head ${i}`])];
  const cuts = new Map(counts.map((heads) => [heads,
    choice("Cut out", cut(heads), (picked) => put({ cut: picked }))]));
  const pick = (n_heads) => put({ n_heads, cut: -1 });
  return {
    n_heads: choice("Heads", counts.map((n) => [n, String(n)]), pick),
    reshape: choice("Reshape", [["right", "right: cut, transpose"], ["wrong", "wrong: view only"]],
      (reshape) => put({ reshape })),
    cuts,
    selected: choice("Look from", state.tokens.map((name, i) => [i, name]),
      (selected) => put({ selected })),
  };
}

function render({ model, el }) {
  const read = (names) => Object.fromEntries(names.map((name) => [name, model.get(name)]));
  const given = read(GIVEN);
  const first = read(SWITCHES);
  const counts = given.layers.map(({ n_heads }) => n_heads);
  const width = given.target[0].length;
  const { put, stop } = tie(model, draw);
  const inputs = controls(given, counts, put);
  const onRow = (selected) => put({ selected });

  const cells = new Matrix({
    title: "1 Cells", rows: given.tokens, columns: given.target[0].map((_, c) => String(c)),
    cell: 1.7, onRow,
  });
  const looks = new Map(counts.map((heads) => [heads, new Matrix({
    title: "2 Weights", columns: given.tokens,
    rows: Array.from({ length: heads }, (_, i) => `head ${i}`),
  })]));
  const errors = new Matrix({ title: "3 Error", rows: ["error"], columns: given.groups, more: ["mean"] });
  const told = make("span");
  const warning = make("strong");
  const reset = make("button", { type: "button", class: "lab-reset" }, "Reset");
  reset.addEventListener("click", () => put(first));

  function draw() {
    const state = { ...given, ...read(SWITCHES) };
    const now = compute(state);
    const { n_heads: heads, selected } = state;
    for (const name of ["n_heads", "reshape", "selected"]) inputs[name].set(state[name]);
    for (const all of [inputs.cuts, looks]) {
      for (const [count, { node }] of all) node.hidden = count !== heads;
    }
    inputs.cuts.get(heads).set(state.cut);
    write(told, tell(state, now));
    write(warning, warn(state));
    cells.show(now.cells, {
      selected, note: `a colour is a token; a head has ${width / heads} of ${width} columns`,
      text: (c) => `${given.tokens[Math.floor(c / width)]}${c % width}`,
      place: (c) => Math.floor(c / width) / (given.tokens.length - 1),
      blocked: (_, column) => Math.floor(column / (width / heads)) === state.cut,
    });
    looks.get(heads).show(now.weights.map((rows) => rows[selected]), {
      note: `where ${given.tokens[selected]} looks, head by head`,
      place: (w) => w, blocked: (head) => head === state.cut,
    });
    errors.show([now.errors], { note: "1 is to know nothing", more: [[mean(now.errors)]] });
  }

  draw();
  const says = { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" };
  const root = {
    class: "lab-body", role: "group", "aria-label": "Heads lab",
    "data-lm-suppress-shortcuts": "true", // JupyterLab leaves the keys to us
  };
  const knobs = [inputs.n_heads, inputs.reshape, ...inputs.cuts.values(), inputs.selected];
  const parts = [cells, ...looks.values(), errors];
  el.append(make("div", root,
    make("fieldset", {}, make("legend", {}, "Switches"), ...knobs.map(({ node }) => node), reset),
    make("p", says, told, " ", warning),
    make("div", { class: "lab-flow" }, ...parts.map(({ node }) => node))));
  return stop;
}

export default { render };
