// The attention lab. The arithmetic is in `compute`, which touches no page.

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const total = (row) => row.reduce((sum, x) => sum + x, 0);
const turn = (rows) => rows[0].map((_, j) => rows.map((row) => row[j]));

/** Softmax; a row of nothing but −∞ becomes zeros. */
function softmax(row) {
  const top = Math.max(...row);
  if (top === -Infinity) return row.map(() => 0);
  const powers = row.map((x) => Math.exp(x - top));
  const sum = total(powers);
  return powers.map((x) => x / sum);
}

/** The boolean matrix as written: true or false for each query and key. */
function maskOf(state) {
  const rule = {
    none: () => true,
    causal: (i, j) => j <= i,
    padding: (i, j) => j < state.length,
    window: (i, j) => Math.abs(i - j) <= state.radius,
    drawn: (i, j) => state.drawn[i]?.[j] ?? true,
  }[state.mask_kind];
  return state.tokens.map((_, i) => state.tokens.map((_, j) => rule(i, j)));
}

/** Every step from the scores to the output, from the numbers and the switches alone. */
export function compute(state) {
  const keys = state.softmax_over === "keys";
  const [query, key] = [state.query, state.key].map((rows) => rows.map((row) => row.slice(0, state.d_k)));
  const scores = query.map((q) => key.map((k) => dot(q, k)));
  const divisor = (state.scaled ? Math.sqrt(state.d_k) : 1) * state.temperature;
  const scaled = scores.map((row) => row.map((x) => x / divisor));
  const mask = maskOf(state);
  const misread = state.polarity === "blocked" && state.mask_kind !== "none";
  const allowed = mask.map((row) => row.map((cell) => cell !== misread));
  const masked = scaled.map((row, i) => row.map((x, j) => (allowed[i][j] ? x : -Infinity)));
  const weights = keys ? masked.map(softmax) : turn(turn(masked).map(softmax));
  const columns = turn(state.value);
  const output = weights.map((row) => columns.map((column) => dot(row, column)));
  const row_sums = weights.map(total);
  const column_sums = turn(weights).map(total);
  // Weights that sum to 1 over the queries make no distribution over the keys: no entropy then.
  const entropy = weights.map((row) => (keys ? total(row.map((w) => (w > 0 ? -w * Math.log(w) : 0))) : NaN));
  return { scores, scaled, mask, allowed, masked, weights, output, row_sums, column_sums, entropy };
}

/** What became of the mask, if it was misread or leaves someone blind. */
function warn(state, { allowed }) {
  const blind = allowed.filter((row) => !row.includes(true)).length;
  const words = [];
  if (state.polarity === "blocked") {
    words.push({
      none: "There is no mask, so its polarity changes nothing.",
      causal: "True was read as “blocked”: every token now sees only the future.",
      padding: "True was read as “blocked”: every token now sees only the padding.",
      window: "True was read as “blocked”: every token now sees only what lies outside its window.",
      drawn: "True was read as “blocked”: every token now sees just what was to be hidden.",
    }[state.mask_kind]);
  }
  if (blind === allowed.length) words.push("No token sees anything: all weights and outputs are 0.");
  else if (blind) words.push(`${blind} of ${allowed.length} tokens see${blind === 1 ? "s" : ""} nothing: weights, output and entropy are 0.`);
  if (state.softmax_over === "queries") {
    words.push("The softmax ran over the queries: columns sum to 1, rows do not, and a row has no entropy.");
  }
  return words;
}

/** The result for the selected token in one sentence. */
function tell(state, now, names) {
  const i = state.selected;
  const row = now.weights[i];
  const seen = row.filter((_, j) => now.allowed[i][j]);
  if (!seen.length) return `“${names[i]}” sees nothing: its weights and its output are 0.`;
  const best = row.indexOf(Math.max(...row));
  const sum = `row sums to ${number(now.row_sums[i])}`;
  if (state.softmax_over === "queries") return `“${names[i]}” gives most, ${number(row[best])}, to “${names[best]}”; ${sum}.`;
  const even = seen.length > 1 && Math.max(...seen) - Math.min(...seen) < 5e-4;
  const looks = even ? `equally at ${seen.length} tokens` : `most at “${names[best]}” (${Math.round(100 * row[best])}\u00a0%)`;
  return `“${names[i]}” looks ${looks}; entropy ${number(now.entropy[i])} nats; ${sum}.`;
}

/** The arithmetic of the selected token's largest weight, and of its output. */
function spell(state, now, names) {
  const i = state.selected;
  const row = now.weights[i];
  if (!now.allowed[i].includes(true)) return `“${names[i]}”: every score is −∞, there is nothing to average, so the output is 0.`;
  const j = row.indexOf(Math.max(...row));
  const [q, k] = [state.query[i], state.key[j]].map((x) => x.slice(0, state.d_k));
  const terms = q.length > 4 ? "" : q.map((x, c) => `${number(x)}·${k[c] < 0 ? `(${number(k[c])})` : number(k[c])}`).join(" + ") + " = ";
  const divided = divisor(state);
  const scaled = divided ? ` ${divided} = ${number(now.scaled[i][j])}` : "";
  const line = state.softmax_over === "keys" ? now.masked[i] : now.masked.map((other) => other[j]);
  const sum = total(line.map(Math.exp));
  const over = state.softmax_over === "keys" ? "row" : "column";
  const power = sum < 1e4 ? ` e^${number(now.scaled[i][j])} ÷ ${number(sum)} (the ${over}’s sum of e^score) =` : "";
  const order = row.map((_, c) => c).sort((a, b) => row[b] - row[a]).filter((c) => row[c] >= 0.005);
  const mix = order.slice(0, 3).map((c) => `${number(row[c])}·v(${names[c]})`).join(" + ");
  const rest = order.length > 3 ? " + …" : "";
  return `“${names[i]}” → “${names[j]}”: q·k = ${terms}${number(now.scores[i][j])}${scaled}; `
    + `weight =${power} ${number(row[j])}; output = ${mix}${rest}`;
}

function divisor(state) {
  const root = state.scaled ? `÷ √${state.d_k}` : "";
  return `${root} ${state.temperature === 1 ? "" : `÷ ${number(state.temperature)}`}`.trim();
}

const SWITCHES = [
  "scaled", "temperature", "d_k", "mask_kind", "length", "radius", "drawn", "polarity", "softmax_over", "selected",
];

/** The control of each switch, by its name. */
function controls(state, names, put, pickMask) {
  const n = names.length;
  const width = state.query[0].length;
  const widths = [1, 2, 4, 8, 16, 32].filter((d) => d < width).concat(width);
  const tokens = (count) => `${count} of ${n}`;
  return {
    scaled: tick("Scale", "÷ √d_k", (scaled) => put({ scaled })),
    d_k: choice("d_k, columns used", widths.map((d) => [d, String(d)]), (d_k) => put({ d_k })),
    temperature: slider("Temperature", { min: -1, max: 1, step: 0.05 }, number,
      (position) => put({ temperature: Math.round(100 * 10 ** position) / 100 })),
    mask_kind: choice("Mask", [["none", "none"], ["causal", "causal"], ["padding", "padding"], ["window", "window"],
      ["drawn", "drawn"]], pickMask),
    length: slider("Real tokens", { min: 0, max: n, step: 1 }, tokens, (length) => put({ length })),
    radius: slider("Window reach", { min: 0, max: n - 1, step: 1 }, (r) => `±${r}`, (radius) => put({ radius })),
    polarity: choice("True means", [["attend", "may attend"], ["blocked", "blocked (wrong)"]], (polarity) => put({ polarity })),
    softmax_over: choice("Softmax over", [["keys", "keys"], ["queries", "queries (wrong)"]], (softmax_over) => put({ softmax_over })),
    selected: choice("Explain query", names.map((name, i) => [i, name]), (selected) => put({ selected })),
  };
}

/** The matrices, in the order in which one follows from the other. */
function matrices(state, names, select, toggle) {
  const square = { rows: names, columns: names, onRow: select };
  const wide = (rows) => ({ rows: names, columns: rows[0].map((_, c) => String(c + 1)), onRow: select });
  return {
    scores: new Matrix({ title: "1 Scores", ...square }),
    scaled: new Matrix({ title: "2 Scaled", ...square }),
    mask: new Matrix({ title: "3 Mask", ...square, onToggle: toggle }),
    masked: new Matrix({ title: "4 Masked", ...square }),
    weights: new Matrix({ title: "5 Weights", ...square, cell: 1.75, more: ["row sum", "entropy"], foot: "sum" }),
    output: new Matrix({ title: "6 Output", ...wide(state.value) }),
    query: new Matrix({ title: "Q", ...wide(state.query) }),
    key: new Matrix({ title: "K", ...wide(state.key) }),
    value: new Matrix({ title: "V", ...wide(state.value) }),
  };
}

function show(parts, state, now, names) {
  const biggest = (rows) => Math.max(...rows.flat().map(Math.abs)) || 1;
  const around = (size) => (x) => 0.5 + (0.5 * x) / size; // 0 is in the middle of the ramp
  const [score, output] = [around(biggest(now.scores)), around(biggest(state.value))];
  const { selected } = state;
  const blocked = (i, j) => !now.allowed[i][j];
  const means = state.polarity === "attend" ? "may attend" : "blocked";
  parts.scores.show(now.scores, { note: "q·k", selected, place: score });
  parts.scaled.show(now.scaled, { note: divisor(state) || "unchanged", selected, place: score });
  parts.mask.show(now.mask, {
    note: state.mask_kind === "none" ? "none; press a cell to draw one" : `True = ${means}`,
    selected,
    text: (cell) => (cell ? "T" : "F"),
    blocked,
    label: (i, j) => `${names[i]} to ${names[j]}: ${now.mask[i][j] ? "True" : "False"}, ${now.allowed[i][j] ? "may attend" : "blocked"}`,
  });
  parts.masked.show(now.masked, { note: "blocked = −∞", selected, place: score, blocked });
  parts.weights.show(now.weights, {
    note: `softmax over ${state.softmax_over}; entropy in nats`, selected, place: (w) => w, blocked,
    more: [now.row_sums, now.entropy], foot: now.column_sums,
  });
  parts.output.show(now.output, { note: "weights × V", selected, place: output });
  for (const name of ["query", "key"]) {
    parts[name].show(state[name], { selected, place: around(biggest(state[name])), blocked: (i, c) => c >= state.d_k });
  }
  parts.value.show(state.value, { selected, place: output });
}

function render({ model, el }) {
  const read = () => Object.fromEntries([...SWITCHES, "tokens", "query", "key", "value"].map((name) => [name, model.get(name)]));
  const first = read();
  const names = named(first.tokens);
  const { put, stop } = tie(model, draw);
  const select = (selected) => put({ selected });
  const pickMask = (mask_kind) => {
    const state = read();
    const start = mask_kind === "drawn" && !state.drawn.length ? { drawn: maskOf(state) } : {};
    put({ ...start, mask_kind });
  };
  const toggle = (i, j) => {
    const drawn = maskOf(read());
    drawn[i][j] = !drawn[i][j];
    put({ drawn, mask_kind: "drawn", selected: i });
  };
  const inputs = controls(first, names, put, pickMask);
  const parts = matrices(first, names, select, toggle);
  const says = make("p", { class: "lab-says", "aria-live": "polite" });
  const warning = make("strong");
  const told = make("span");
  says.append(told, " ", warning);
  const how = make("p", { class: "lab-how" });
  const reset = make("button", { type: "button", class: "lab-reset" }, "Reset");
  reset.addEventListener("click", () => put(Object.fromEntries(SWITCHES.map((name) => [name, first[name]]))));

  function draw() {
    const state = read();
    const now = compute(state);
    for (const [name, input] of Object.entries(inputs)) input.set(state[name]);
    inputs.temperature.set(state.temperature, Math.round(20 * Math.log10(state.temperature)) / 20);
    inputs.length.node.hidden = state.mask_kind !== "padding";
    inputs.radius.node.hidden = state.mask_kind !== "window";
    write(told, tell(state, now, names));
    write(warning, warn(state, now).join(" "));
    write(how, spell(state, now, names));
    show(parts, state, now, names);
  }

  const { query, key, value, ...steps } = parts;
  const nodes = (matrices) => Object.values(matrices).map(({ node }) => node);
  const given = make("details", {}, make("summary", {}, "Q, K and V, the numbers that came in"),
    make("div", { class: "lab-flow" }, ...nodes({ query, key, value })));
  draw();
  const root = make("div", { class: "lab-body", role: "group", "aria-label": "Attention lab" },
    make("fieldset", {}, make("legend", {}, "Switches"), ...nodes(inputs), reset),
    says, how, make("div", { class: "lab-flow" }, ...nodes(steps)), given);
  el.append(root);
  return stop;
}

export default { render };
