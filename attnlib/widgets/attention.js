// The attention lab. The arithmetic is in `compute`, which touches no page.

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const total = (row) => row.reduce((sum, x) => sum + x, 0);
const turn = (rows) => rows[0].map((_, j) => rows.map((row) => row[j]));
const top = (row) => row.indexOf(Math.max(...row));

/** Softmax; a row of nothing but −∞ becomes zeros. */
function softmax(row) {
  const most = Math.max(...row);
  if (most === -Infinity) return row.map(() => 0);
  const powers = row.map((x) => Math.exp(x - most));
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
  const overKeys = state.softmax_over === "keys";
  const used = (rows) => rows.map((row) => row.slice(0, state.d_k));
  const scores = used(state.query).map((q) => used(state.key).map((k) => dot(q, k)));
  const divisor = (state.scaled ? Math.sqrt(state.d_k) : 1) * state.temperature;
  const scaled = scores.map((row) => row.map((x) => x / divisor));

  const mask = maskOf(state);
  const misread = state.polarity === "blocked" && state.mask_kind !== "none";
  const allowed = mask.map((row) => row.map((cell) => cell !== misread));
  const masked = scaled.map((row, i) => row.map((x, j) => (allowed[i][j] ? x : -Infinity)));

  const weights = overKeys ? masked.map(softmax) : turn(turn(masked).map(softmax));
  const output = weights.map((row) => turn(state.value).map((column) => dot(row, column)));
  const row_sums = weights.map(total);
  const column_sums = turn(weights).map(total);
  // Weights that sum to 1 over the queries are no distribution over the keys: no entropy then.
  const nats = (w) => (w > 0 ? -w * Math.log(w) : 0);
  const entropy = weights.map((row) => (overKeys ? total(row.map(nats)) : NaN));
  return {
    scores, scaled, mask, allowed, masked, weights, output, row_sums, column_sums, entropy,
  };
}

// ------------------------------------------------------------------------------------- words

const MISREAD = {
  none: "There is no mask, so its polarity changes nothing.",
  causal: "True was read as “blocked”: every token now sees only the future.",
  padding: "True was read as “blocked”: every token now sees only the padding.",
  window: "True was read as “blocked”: every token now sees only what lies outside its window.",
  drawn: "True was read as “blocked”: every token now sees just what was to be hidden.",
};

/** What is wrong: a mask misread, someone blind, the wrong axis. */
function warn(state, { allowed }) {
  const words = state.polarity === "blocked" ? [MISREAD[state.mask_kind]] : [];
  const blind = allowed.filter((row) => !row.includes(true)).length;
  if (blind === allowed.length) {
    words.push("No token sees anything: all weights and outputs are 0.");
  } else if (blind) {
    const see = blind === 1 ? "sees" : "see";
    words.push(`${blind} of ${allowed.length} tokens ${see} nothing: weights and output are 0.`);
  }
  if (state.softmax_over === "queries") {
    words.push("The softmax ran over the queries: columns sum to 1, rows do not, "
      + "and a row has no entropy.");
  }
  return words.join(" ");
}

/** The result for the selected token in one sentence. */
function tell(state, now, names) {
  const i = state.selected;
  const row = now.weights[i];
  const seen = row.filter((_, j) => now.allowed[i][j]);
  if (!seen.length) return `“${names[i]}” sees nothing: its weights and its output are 0.`;
  const best = names[top(row)];
  const sum = `row sums to ${number(now.row_sums[i])}`;
  if (state.softmax_over === "queries") {
    return `“${names[i]}” gives most, ${number(Math.max(...row))}, to “${best}”; ${sum}.`;
  }
  const even = seen.length > 1 && Math.max(...seen) - Math.min(...seen) < 5e-4;
  const percent = Math.round(100 * Math.max(...row));
  const looks = even ? `equally at ${seen.length} tokens` : `most at “${best}” (${percent}\u00a0%)`;
  return `“${names[i]}” looks ${looks}; entropy ${number(now.entropy[i])} nats; ${sum}.`;
}

/** What the scores are divided by, in signs. */
function divisors(state) {
  const root = state.scaled ? [`÷ √${state.d_k}`] : [];
  const heat = state.temperature === 1 ? [] : [`÷ ${number(state.temperature)}`];
  return [...root, ...heat].join(" ");
}

/** The arithmetic of the selected token's largest weight, and of its output. */
function spell(state, now, names) {
  const i = state.selected;
  const row = now.weights[i];
  if (!now.allowed[i].includes(true)) {
    return `“${names[i]}”: every score is −∞, there is nothing to average, so the output is 0.`;
  }
  const j = top(row);
  const factor = (x) => (x < 0 ? `(${number(x)})` : number(x));
  const terms = state.query[i].slice(0, state.d_k)
    .map((x, c) => `${number(x)}·${factor(state.key[j][c])}`);
  const product = terms.length > 4 ? "" : `${terms.join(" + ")} = `;
  const signs = divisors(state);
  const divided = signs ? ` ${signs} = ${number(now.scaled[i][j])}` : "";

  const [line, which] = state.softmax_over === "keys"
    ? [now.masked[i], "row"] : [turn(now.masked)[j], "column"];
  const sum = total(line.map(Math.exp));
  const power = sum < 1e4
    ? ` e^${number(now.scaled[i][j])} ÷ ${number(sum)} (the ${which}’s sum of e^score) =` : "";

  const order = row.map((_, c) => c).sort((a, b) => row[b] - row[a])
    .filter((c) => row[c] >= 0.005);
  const mix = order.slice(0, 3).map((c) => `${number(row[c])}·v(${names[c]})`).join(" + ");
  return `“${names[i]}” → “${names[j]}”: q·k = ${product}${number(now.scores[i][j])}${divided}; `
    + `weight =${power} ${number(row[j])}; output = ${mix}${order.length > 3 ? " + …" : ""}`;
}

// -------------------------------------------------------------------------------------- page

const NUMBERS = ["tokens", "query", "key", "value"];
const SWITCHES = [
  "scaled", "temperature", "d_k", "mask_kind", "length", "radius", "drawn", "polarity",
  "softmax_over", "selected",
];

/** The control of each switch, by its name. */
function controls(state, names, put, pickMask) {
  const n = names.length;
  const width = state.query[0].length;
  const widths = [1, 2, 4, 8, 16, 32].filter((d) => d < width).concat(width);
  const masks = ["none", "causal", "padding", "window", "drawn"];
  const heat = (position) => Math.round(100 * 10 ** position) / 100;
  return {
    scaled: tick("Scale", "÷ √d_k", (scaled) => put({ scaled })),
    d_k: choice("d_k, columns used", widths.map((d) => [d, String(d)]), (d_k) => put({ d_k })),
    temperature: slider("Temperature", { min: -1, max: 1, step: 0.05 }, number,
      (position) => put({ temperature: heat(position) })),
    mask_kind: choice("Mask", masks.map((kind) => [kind, kind]), pickMask),
    length: slider("Real tokens", { min: 0, max: n, step: 1 }, (count) => `${count} of ${n}`,
      (length) => put({ length })),
    radius: slider("Window reach", { min: 0, max: n - 1, step: 1 }, (reach) => `±${reach}`,
      (radius) => put({ radius })),
    polarity: choice("True means", [["attend", "may attend"], ["blocked", "blocked"]],
      (polarity) => put({ polarity })),
    softmax_over: choice("Softmax over", [["keys", "keys"], ["queries", "queries"]],
      (softmax_over) => put({ softmax_over })),
    selected: choice("Explain query", names.map((name, i) => [i, name]),
      (selected) => put({ selected })),
  };
}

/** The matrices, in the order in which one follows from the other, and the three given ones. */
function matrices(state, names, onRow, onToggle) {
  const square = { rows: names, columns: names, onRow };
  const given = (rows) => ({ rows: names, columns: rows[0].map((_, c) => String(c + 1)), onRow });
  return {
    scores: new Matrix({ title: "1 Scores", ...square }),
    scaled: new Matrix({ title: "2 Scaled", ...square }),
    mask: new Matrix({ title: "3 Mask", ...square, onToggle }),
    masked: new Matrix({ title: "4 Masked", ...square }),
    weights: new Matrix({
      title: "5 Weights", ...square, cell: 1.75, more: ["row sum", "entropy"], foot: "sum",
    }),
    output: new Matrix({ title: "6 Output", ...given(state.value) }),
    query: new Matrix({ title: "Q", ...given(state.query) }),
    key: new Matrix({ title: "K", ...given(state.key) }),
    value: new Matrix({ title: "V", ...given(state.value) }),
  };
}

/** A colour scale for numbers of both signs: 0 in the middle, and the square root of the size, so
    that one large number does not take the colour from all others. */
function around(rows) {
  const most = Math.max(...rows.flat().map(Math.abs)) || 1;
  return (x) => 0.5 + 0.5 * Math.sign(x) * Math.sqrt(Math.abs(x) / most);
}

function show(parts, state, now, names) {
  const { selected } = state;
  const place = around(now.scores); // one for three matrices: the scale is seen to pale them
  const blocked = (i, j) => !now.allowed[i][j];
  const may = (i, j) => (now.allowed[i][j] ? "may attend" : "blocked");
  const word = (cell) => (cell ? "True" : "False");
  const means = state.polarity === "attend" ? "may attend" : "blocked";

  parts.scores.show(now.scores, { selected, place, note: "q·k" });
  parts.scaled.show(now.scaled, { selected, place, note: divisors(state) || "unchanged" });
  parts.mask.show(now.mask, {
    selected, blocked,
    note: state.mask_kind === "none" ? "none; press a cell to draw one" : `True = ${means}`,
    text: (cell) => word(cell)[0],
    label: (i, j) => `${names[i]} to ${names[j]}: ${word(now.mask[i][j])}, ${may(i, j)}`,
  });
  parts.masked.show(now.masked, { selected, place, blocked, note: "blocked = −∞" });
  parts.weights.show(now.weights, {
    selected, blocked, place: (w) => w, note: `softmax over ${state.softmax_over}; entropy in nats`,
    more: [now.row_sums, now.entropy], foot: now.column_sums,
  });
  const likeValues = around(state.value);
  parts.output.show(now.output, { selected, place: likeValues, note: "weights × V" });
  const unused = (_, column) => column >= state.d_k;
  parts.query.show(state.query, {
    selected, place: around(state.query), blocked: unused, note: "what each token looks for",
  });
  parts.key.show(state.key, {
    place: around(state.key), blocked: unused, note: "what each token offers",
  });
  parts.value.show(state.value, { place: likeValues, note: "what each token hands over" });
}

function render({ model, el }) {
  const read = (names) => Object.fromEntries(names.map((name) => [name, model.get(name)]));
  const given = read(NUMBERS);
  const first = read(SWITCHES);
  const state = () => ({ ...given, ...read(SWITCHES) });
  const names = named(given.tokens);
  const { put, stop } = tie(model, draw);

  const pickMask = (mask_kind) => {
    const start = mask_kind === "drawn" && !model.get("drawn").length;
    put({ ...(start && { drawn: maskOf(state()) }), mask_kind });
  };
  const toggle = (i, j) => {
    const drawn = maskOf(state());
    drawn[i][j] = !drawn[i][j];
    put({ drawn, mask_kind: "drawn", selected: i });
  };
  const inputs = controls(given, names, put, pickMask);
  const parts = matrices(given, names, (selected) => put({ selected }), toggle);
  const told = make("span");
  const warning = make("strong");
  const how = make("p", { class: "lab-how" });
  const reset = make("button", { type: "button", class: "lab-reset" }, "Reset");
  reset.addEventListener("click", () => put(first));

  function draw() {
    const switches = state();
    const now = compute(switches);
    for (const [name, input] of Object.entries(inputs)) input.set(switches[name]);
    const position = Math.round(20 * Math.log10(switches.temperature)) / 20;
    inputs.temperature.set(switches.temperature, position);
    inputs.length.node.hidden = switches.mask_kind !== "padding";
    inputs.radius.node.hidden = switches.mask_kind !== "window";
    write(told, tell(switches, now, names));
    write(warning, warn(switches, now));
    write(how, spell(switches, now, names));
    show(parts, switches, now, names);
  }

  draw();
  const nodes = (things) => Object.values(things).map(({ node }) => node);
  const { query, key, value, ...steps } = parts;
  const says = { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" };
  const root = {
    class: "lab-body", role: "group", "aria-label": "Attention lab",
    "data-lm-suppress-shortcuts": "true", // JupyterLab leaves the keys to us
  };
  el.append(make("div", root,
    make("fieldset", {}, make("legend", {}, "Switches"), ...nodes(inputs), reset),
    make("p", says, told, " ", warning),
    how,
    make("div", { class: "lab-flow" }, ...nodes(steps)),
    make("details", {}, make("summary", {}, "Q, K and V, the numbers that came in"),
      make("div", { class: "lab-flow" }, ...nodes({ query, key, value })))));
  return stop;
}

export default { render };
