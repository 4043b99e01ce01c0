// The distance lab. The arithmetic is in `compute`, which touches no page. It carries each number
// as a pair, its value and how fast it moves when the first token is nudged: [value, rate].

const plus = (a, b) => [a[0] + b[0], a[1] + b[1]];
const times = (a, b) => [a[0] * b[0], a[1] * b[0] + a[0] * b[1]];
const minus1 = (a) => [1 - a[0], -a[1]];
function tanh([x, rate]) {
  const y = Math.tanh(x);
  return [y, (1 - y * y) * rate];
}
function sigmoid([x, rate]) {
  const y = 1 / (1 + Math.exp(-x));
  return [y, y * (1 - y) * rate];
}
const ONE = [1, 0];
const ZERO = [0, 0];
const norm = (pairs) => Math.hypot(...pairs.map(([, rate]) => rate));
const line = (rows, x, bias, factor = 1) => rows.map((row, i) =>
  row.reduce((sum, w, j) => plus(sum, times([factor * w, 0], x[j])), [bias[i], 0]));

/** Each cell's step from input part `x`, state part `h` and old states to new ones, for number i of
    d. Without gates they are 1, but for the GRU's keep, which is 0. */
const STEPS = {
  rnn: (x, h, i) => [tanh(plus(x[i], h[i]))],
  lstm(x, h, i, d, [, memory], { gates, gate_bias }) {
    const gate = (place, bias = 0) => (gates
      ? sigmoid(plus(plus(x[place * d + i], [bias, 0]), h[place * d + i])) : ONE);
    const fresh = tanh(plus(x[2 * d + i], h[2 * d + i]));
    const kept = plus(times(gate(1, gate_bias), memory[i]), times(gate(0), fresh));
    return [times(gate(3), tanh(kept)), kept];
  },
  gru(x, h, i, d, [hidden], { gates, gate_bias }) {
    const reset = gates ? sigmoid(plus(x[i], h[i])) : ONE;
    const keep = gates ? sigmoid(plus(plus(x[d + i], [gate_bias, 0]), h[d + i])) : ZERO;
    const fresh = tanh(plus(x[2 * d + i], times(reset, h[2 * d + i])));
    return [plus(times(minus1(keep), fresh), times(keep, hidden[i]))];
  },
};

/** What is felt after each step by a cell that reads the tokens one by one. */
function recurrent(kind, tokens, { W, b, U, c }, switches) {
  const d = U[0].length;
  const places = [...Array(d).keys()];
  let states = [places.map(() => ZERO), places.map(() => ZERO)];
  return tokens.map((token) => {
    const [x, h] = [line(W, token, b), line(U, states[0], c, switches.gain)];
    const next = places.map((i) => STEPS[kind](x, h, i, d, states, switches));
    states = next[0].map((_, s) => next.map((all) => all[s]));
    return norm(states[0]);
  });
}

/** The same for attention: each token looks at itself and at those before it. */
function attending(tokens) {
  const scale = [1 / Math.sqrt(tokens[0].length), 0];
  return tokens.map((query, t) => {
    const seen = tokens.slice(0, t + 1);
    const scores = seen.map((key) =>
      times(scale, key.reduce((sum, k, j) => plus(sum, times(k, query[j])), ZERO)));
    const most = Math.max(...scores.map(([s]) => s));
    const powers = scores.map(([s, rate]) => [Math.exp(s - most), Math.exp(s - most) * rate]);
    const [all, rate] = powers.reduce(plus);
    const over = [1 / all, -rate / (all * all)];
    return norm(query.map((_, j) =>
      seen.reduce((sum, value, i) => plus(sum, times(times(powers[i], over), value[j])), ZERO)));
  });
}

/** The signal of each reader at each distance, from the numbers and the switches alone. */
export function compute(state) {
  const nudge = 1 / Math.sqrt(state.x[0].length);
  const tokens = state.x.map((token, t) => token.map((value) => [value, t ? 0 : nudge]));
  const signals = ["rnn", "lstm", "gru"]
    .map((kind) => recurrent(kind, tokens, state.weights[kind], state)).concat([attending(tokens)]);
  return { signals, shares: signals.map((row) => row.map((signal) => signal / row[0])) };
}

// ------------------------------------------------------------------------------------- words

const READERS = [["rnn", "RNN"], ["lstm", "LSTM"], ["gru", "GRU"], ["attention", "attention"]];
const LEAST = 1e-12; // the bottom of the picture

/** A share as one reads it: 0.42, 3e−7. */
function share(x) {
  if (x >= 0.00995) return number(x);
  return x > 0 ? x.toExponential(0).replace("-", "−") : "0";
}

function tell(state, { shares }) {
  const at = READERS.findIndex(([kind]) => kind === state.reader);
  const row = shares[at];
  const gone = row.findIndex((left) => left < 1e-3);
  const end = gone < 0 ? `It stays above a thousandth over all ${row.length - 1} steps.`
    : `It falls below a thousandth at distance ${gone}.`;
  return `${READERS[at][1]}: ${share(row[state.distance])} of the first token’s signal is left after `
    + `${state.distance} steps. ${end}`;
}

function warn(state) {
  if (state.reader === "rnn") return "An RNN has no gates: their switches change nothing.";
  if (state.reader === "attention") {
    return "Attention has neither gates nor recurrent weights: the switches change nothing.";
  }
  if (state.gates) return "";
  return state.reader === "gru" ? "Without gates a GRU is a plain RNN."
    : "Without gates everything is added to the memory, and nothing is taken away.";
}

// -------------------------------------------------------------------------------------- page

const SWITCHES = ["reader", "gates", "gate_bias", "gain", "distance"];
const DASHES = ["", "7 4", "2 3", "9 3 2 3"];
const [WIDE, HIGH, LEFT, RIGHT, FOOT] = [640, 270, 82, 532, 50];

function shape(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Four lines over the distance, on a logarithmic axis; hidden from readers of the table. */
function chart(length) {
  const x = (t) => LEFT + (t / (length - 1)) * (RIGHT - LEFT);
  const y = (left) => {
    const power = Math.log10(Math.min(Math.max(left, LEAST), 10));
    return 8 + ((1 - power) / 13) * (HIGH - FOOT - 8);
  };
  const grid = [0, -3, -6, -9, -12].flatMap((power) => [
    shape("line", { class: "lab-grid", x1: LEFT, x2: RIGHT, y1: y(10 ** power), y2: y(10 ** power) }),
    shape("text", { x: LEFT - 6, y: y(10 ** power) + 4, "text-anchor": "end" },
      power ? `1e−${-power}` : "1")]);
  const ticks = [...Array(5).keys()].map((i) => Math.round((i * (length - 1)) / 4)).map((t) =>
    shape("text", { x: x(t), y: HIGH - FOOT + 20, "text-anchor": "middle" }, String(t)));
  const title = shape("text", { x: (LEFT + RIGHT) / 2, y: HIGH - 5, "text-anchor": "middle" },
    "distance (steps)");
  const marker = shape("line", { class: "lab-marker", y1: 8, y2: HIGH - FOOT });
  const curves = DASHES.map((dash) => shape("polyline", { "stroke-dasharray": dash }));
  const labels = READERS.map(([, name]) => shape("text", {}, name));
  const svg = shape("svg", { class: "lab-chart", viewBox: `0 0 ${WIDE} ${HIGH}`, "aria-hidden": "true" },
    ...grid, ...ticks, title, marker, ...curves, ...labels);
  const show = (state, { shares }) => {
    marker.setAttribute("x1", x(state.distance));
    marker.setAttribute("x2", x(state.distance));
    shares.forEach((row, i) => {
      const on = READERS[i][0] === state.reader;
      curves[i].setAttribute("points", row.map((left, t) => `${x(t)},${y(left)}`).join(" "));
      for (const node of [curves[i], labels[i]]) node.classList.toggle("lab-on", on);
    });
    const ends = shares.map((row, i) => ({ i, at: y(row.at(-1)) })).sort((a, b) => a.at - b.at);
    ends.forEach((end, k) => { // keep the names apart, and inside
      if (k) end.at = Math.max(end.at, ends[k - 1].at + 20);
      end.at = Math.min(end.at, HIGH - FOOT - 20 * (ends.length - 1 - k));
      labels[end.i].setAttribute("x", RIGHT + 6);
      labels[end.i].setAttribute("y", end.at + 4);
    });
  };
  return { node: svg, show };
}

function render({ model, el }) {
  const read = (names) => Object.fromEntries(names.map((name) => [name, model.get(name)]));
  const given = read(["x", "weights"]);
  const first = read(SWITCHES);
  const length = given.x.length;
  const { put, stop } = tie(model, draw);
  const signed = (x) => (x > 0 ? "+" : "") + number(x);
  const inputs = {
    reader: choice("Reader", READERS, (reader) => put({ reader })),
    gates: tick("Gates", "work", (gates) => put({ gates })),
    gate_bias: slider("Gate bias", { min: -2, max: 8, step: 0.5 }, signed,
      (gate_bias) => put({ gate_bias })),
    gain: slider("Recurrent ×", { min: 0.5, max: 2, step: 0.05 }, number,
      (gain) => put({ gain })),
    distance: slider("Distance", { min: 0, max: length - 1, step: 1 }, (t) => `${t} steps`,
      (distance) => put({ distance })),
  };
  const columns = [1, 2, 4, 8, 16, 32, 63].filter((t) => t < length);
  const names = READERS.map(([, name]) => name);
  const table = new Matrix({
    title: "Share left", rows: names, columns: columns.map(String), cell: 2.6,
    onRow: (row) => put({ reader: READERS[row][0] }),
  });
  const picture = chart(length);
  const told = make("span");
  const warning = make("strong");
  const reset = make("button", { type: "button", class: "lab-reset" }, "Reset");
  reset.addEventListener("click", () => put(first));

  function draw() {
    const state = { ...given, ...read(SWITCHES) };
    const now = compute(state);
    for (const [name, input] of Object.entries(inputs)) input.set(state[name]);
    write(told, tell(state, now));
    write(warning, warn(state));
    picture.show(state, now);
    table.show(now.shares.map((row) => columns.map((t) => row[t])), {
      note: "of the first token’s signal, after so many steps", text: share,
      selected: READERS.findIndex(([kind]) => kind === state.reader),
      place: (left) => 1 + Math.log10(Math.max(left, LEAST)) / 12,
    });
  }

  draw();
  const root = {
    class: "lab-body", role: "group", "aria-label": "Distance lab",
    "data-lm-suppress-shortcuts": "true", // JupyterLab leaves the keys to us
  };
  const says = { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" };
  el.append(make("div", root,
    make("fieldset", {}, make("legend", {}, "Switches"),
      ...Object.values(inputs).map(({ node }) => node), reset),
    make("p", says, told, " ", warning),
    picture.node,
    make("div", { class: "lab-flow" }, table.node)));
  return stop;
}

export default { render };
