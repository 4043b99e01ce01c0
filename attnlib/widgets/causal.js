// The causal lab. The arithmetic is in `compute`, which touches no page.

const FORMATS = { // bits behind the point, the smallest exponent, the lowest number
  float64: { lowest: -Number.MAX_VALUE },
  float32: { lowest: -3.4028234663852886e38 },
  bfloat16: { bits: 7, smallest: -126, lowest: -3.3895313892515355e38 },
  float16: { bits: 10, smallest: -14, lowest: -65504 },
};

/** The nearest number that a dtype has; of two, the one whose last bit is 0. */
function rounded(x, dtype) {
  if (dtype === "float64" || !Number.isFinite(x)) return x;
  const single = Math.fround(x);
  if (dtype === "float32" || single === 0) return single;
  const { bits, smallest, lowest } = FORMATS[dtype];
  const word = new DataView(new ArrayBuffer(4));
  word.setFloat32(0, single);
  const exponent = ((word.getUint32(0) >>> 23) & 255) - 127;
  const step = 2 ** (Math.max(exponent, smallest) - bits);
  const steps = single / step;
  const [low, rest] = [Math.floor(steps), steps - Math.floor(steps)];
  const nearest = low + (rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? 1 : 0);
  const result = nearest * step;
  return Math.abs(result) > -lowest ? Math.sign(x) * Infinity : result;
}

const product = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const sumOf = (row) => row.reduce((sum, x) => sum + x, 0);

/** Softmax as PyTorch does it: a row of nothing but −∞ becomes NaN. */
function softmaxOf(row) {
  const most = Math.max(...row);
  const powers = row.map((x) => Math.exp(x - most));
  const sum = sumOf(powers);
  return powers.map((power) => power / sum);
}

function isAllowed(kind, i, j) {
  if (kind === "none") return true;
  if (kind === "one too far") return j <= i + 1;
  return j <= i && (kind !== "padding" || j >= 2);
}

function isRefused({ place, mask_kind, fill, dtype }) {
  return place === "before" && mask_kind !== "none" && fill === "-1e9" && dtype === "float16";
}

/** Scores, weights and output of naive code, each rounded to the dtype. */
function attend(state, allowed, query, key, value) {
  const { place, dtype, fill } = state;
  const round = (row) => row.map((x) => rounded(x, dtype));
  const [root, refused] = [Math.sqrt(query[0].length), isRefused(state)];
  const number = fill === "finfo.min" ? FORMATS[dtype].lowest
    : fill === "-inf" ? -Infinity : rounded(-1e9, dtype);
  const scores = query.map((q, i) => round(key.map((k) => product(q, k) / root))
    .map((x, j) => (refused ? NaN : place === "before" && !allowed[i][j] ? number : x)));
  let weights = scores.map((row) => round(softmaxOf(row)));
  if (place !== "before") weights = weights.map((row, i) => row.map((w, j) => w * allowed[i][j]));
  if (place === "divided") {
    weights = weights.map((row) => { const sum = sumOf(row); return round(row.map((w) => w / sum)); });
  }
  const values = value.map(round);
  const output = weights.map((row) => round(value[0].map((_, c) => product(row, values.map((v) => v[c])))));
  return { scores, weights, output };
}

/** What the switches lead to. */
export function compute(state) {
  const allowed = state.tokens.map((_, i) => state.tokens.map((_, j) => isAllowed(state.mask_kind, i, j)));
  const turned = (rows) => rows.map((row, i) => (i === state.replaced ? row.map((x) => -x) : row));
  const given = [state.query, state.key, state.value];
  const { scores, weights, output } = attend(state, allowed, ...given);
  const other = attend(state, allowed, ...given.map(turned)).output;
  const moved = output.map((row, i) => Math.max(...row.map((x, c) => Math.abs(x - other[i][c]))));
  const leak = Math.max(0, ...moved.slice(0, state.replaced).filter((x) => !Number.isNaN(x)));
  return { allowed, scores, weights, row_sums: weights.map(sumOf), moved, leak, refused: isRefused(state) };
}

// ------------------------------------------------------------------------------------- words

/** Whether the past moved, in one sentence. */
function verdict(state, now, names) {
  if (now.refused) return "PyTorch refuses: −1e9 does not fit into float16.";
  const name = `“${names[state.replaced]}”`;
  if (state.replaced === 0) return `${name} is the first token: nothing comes before it.`;
  const count = now.moved.slice(0, state.replaced).filter((x) => x > 0).length;
  if (!count) return `No leak: replacing ${name} moves no output before it.`;
  if (now.leak < 1e-6) return `Only rounding is left: replacing ${name} moves the past by less than 10⁻⁶.`;
  const outputs = count === 1 ? "1 output" : `${count} outputs`;
  return `Leak: replacing ${name} moves ${outputs} before it, by up to ${number(now.leak)}.`;
}

/** What else is wrong: NaN, shares for a row that sees nothing, rows that do not sum to 1. */
function warnings(now) {
  if (now.refused) return "";
  const words = [];
  const rows = (count) => (count === 1 ? "1 row" : `${count} rows`);
  const isNaN = now.row_sums.filter(Number.isNaN).length;
  const isBlind = now.allowed.filter((row, i) => !row.includes(true) && now.row_sums[i] > 0.5).length;
  const isShort = now.row_sums.filter((sum) => Math.abs(sum - 1) > 0.05).length;
  if (isNaN) words.push(`${rows(isNaN)} of NaN.`);
  if (isBlind) words.push(`${rows(isBlind)} may see nothing, and got equal shares of everything.`);
  if (isShort) words.push(`${rows(isShort)} of weights without a sum of 1.`);
  return words.join(" ");
}

// -------------------------------------------------------------------------------------- page

const SWITCHES = ["mask_kind", "place", "fill", "dtype", "replaced"];

function inputsOf(names, put) {
  const same = (words) => words.map((word) => [word, word]);
  return {
    mask_kind: choice("Mask", [...same(["none", "causal", "one too far"]),
      ["padding", "causal + padding"]], (mask_kind) => put({ mask_kind })),
    place: choice("Place", [["before", "before softmax"], ["after", "after softmax"],
      ["divided", "after, divided"]], (place) => put({ place })),
    fill: choice("Blocked scores become", [["-inf", "−∞"], ["-1e9", "−1e9"], ["finfo.min", "finfo.min"]],
      (fill) => put({ fill })),
    dtype: choice("Dtype", same(Object.keys(FORMATS)), (dtype) => put({ dtype })),
    replaced: choice("Replace token", names.map((name, i) => [i, name]), (replaced) => put({ replaced })),
  };
}

function render({ model, el }) {
  const names = named(model.get("tokens"));
  const read = () => Object.fromEntries(
    ["tokens", "query", "key", "value", ...SWITCHES].map((name) => [name, model.get(name)]));
  const { put, stop } = tie(model, draw);
  const inputs = inputsOf(names, put);
  const square = { rows: names, columns: names, onRow: (replaced) => put({ replaced }) };
  const scores = new Matrix({ title: "Scores", ...square });
  const weights = new Matrix({ title: "Weights", ...square, more: ["sum", "move"] });
  const [told, warning] = [make("span"), make("strong")];
  const most = Math.max(...model.get("value").flat().map(Math.abs));
  const meter = make("meter", { min: 0, max: most, low: most / 1e9, optimum: 0, "aria-label": "Leak" });
  const amount = make("output");

  function draw() {
    const state = read();
    const now = compute(state);
    for (const [name, input] of Object.entries(inputs)) input.set(state[name]);
    inputs.fill.node.hidden = state.place !== "before" || state.mask_kind === "none";
    write(told, verdict(state, now, names));
    write(warning, warnings(now));
    meter.value = now.leak;
    write(amount, number(now.leak));
    const selected = state.replaced;
    const blocked = (i, j) => !now.allowed[i][j] && !(now.weights[i][j] > 0);
    scores.show(now.scores, { selected, blocked, note: "that go into the softmax" });
    weights.show(now.weights, {
      selected, blocked, place: (w) => w, note: "hatched: blocked", more: [now.row_sums, now.moved],
    });
  }

  draw();
  const root = {
    class: "lab-body", role: "group", "aria-label": "Causal lab", "data-lm-suppress-shortcuts": "true",
  };
  const says = { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" };
  el.append(make("div", root,
    make("fieldset", {}, make("legend", {}, "Switches"), ...Object.values(inputs).map(({ node }) => node)),
    make("p", says, told, " ", warning),
    make("p", {}, "Leak ", meter, " ", amount),
    make("div", { class: "lab-flow" }, weights.node, scores.node)));
  return stop;
}

export default { render };
