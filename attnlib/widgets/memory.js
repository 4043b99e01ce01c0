// The memory lab. The arithmetic is in `compute`, which touches no page; attnlib.memory has the
// same formulas with their reasons, and its tests measure them.

const METHODS = ["equation", "SDPA + dropout", "fused", "tiled", "window", "BigBird", "Linformer"];
const CACHES = ["whole cache", "cache as set"];
const [SHORTEST, LONGEST] = [32, 2 ** 40]; // tokens
const GIB = 2 ** 30;

/** What training keeps at length n: [weights, activations], in bytes. */
function kept(state, method, n) {
  const { n_layers, n_heads, d_head, batch, dtype, checkpointed, patterns } = state;
  const [size, precise] = [dtype === "float32" ? 4 : 2, 4]; // scores have 32 bits
  const d = n_heads * d_head;
  const tokens = batch * n;
  const pairs = tokens * n_heads * n;
  const logSums = tokens * n_heads * precise;
  const rank = Math.min(patterns.rank, n);
  const mixed = tokens * d * (batch === 1 ? 1 : 2) + 3 * batch * rank * d + 2 * (n + rank);
  const sparse = [0, 4 * tokens * d * size + n];
  const [weights, inside] = {
    equation: [pairs * (precise + size), tokens * d * (2 * precise + size) + tokens * n_heads],
    "SDPA + dropout": [3 * pairs * precise, 3 * tokens * d * precise],
    fused: [0, 3 * tokens * d * size + logSums],
    tiled: [0, 4 * tokens * d * size + logSums],
    window: sparse,
    BigBird: sparse,
    Linformer: [0, mixed * size + logSums],
  }[method];
  const activations = inside + tokens * (5 * d + 2 * 4 * d + 4) * size;
  if (!checkpointed) return [n_layers * weights, n_layers * activations];
  return [weights, activations + (n_layers - 1) * tokens * d * size];
}

/** What generating keeps at length n, in bytes. */
function cached(state, cache, n) {
  const asSet = cache === "cache as set";
  const heads = asSet ? state.kv_heads : state.n_heads;
  const length = asSet && state.window ? Math.min(n, state.window) : n;
  const size = state.dtype === "float32" ? 4 : 2;
  return 2 * state.batch * state.n_layers * heads * length * state.d_head * size;
}

/** How many keys a query meets on average. */
function keys(method, n, { radius, block, rank }) {
  if (method === "window") {
    const reach = Math.min(radius, n - 1);
    return 2 * reach + 1 - (reach * (reach + 1)) / n;
  }
  if (method === "BigBird") {
    const count = Math.ceil(n / block);
    let blocks = Math.min(count, 2) * count; // the first and the last see all
    for (let i = 1; i < count - 1; i++) {
      blocks += Math.min(count, 6 + (i > 1) + (i < count - 2)); // neighbours, random, both ends
    }
    return Math.min(n, (blocks / count) * block);
  }
  return method === "Linformer" ? Math.min(rank, n) : n;
}

const total = (state, name, n) => (CACHES.includes(name) ? cached(state, name, n)
  : kept(state, name, n).reduce((sum, part) => sum + part));

/** The longest text that fits: 0 if not even the shortest does, infinity if all do. */
function longest(state, name) {
  const fits = (n) => total(state, name, n) <= state.memory * GIB;
  if (fits(LONGEST - 1)) return Infinity;
  let [low, high] = [SHORTEST - 1, LONGEST - 1];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (fits(middle)) low = middle;
    else high = middle;
  }
  return low < SHORTEST ? 0 : low;
}

/** All numbers of the lab from the switches alone; methods and caches in their order above. */
export function compute(state) {
  const { length, n_layers, n_heads, d_head, dtype, patterns } = state;
  const d = n_heads * d_head;
  return {
    training: METHODS.map((method) => kept(state, method, length)),
    caches: CACHES.map((cache) => cached(state, cache, length)),
    longest: [...METHODS, ...CACHES].map((name) => longest(state, name)),
    keys: METHODS.map((method) => keys(method, length, patterns)),
    parameters: n_layers * (12 * d * d + 13 * d) * (dtype === "float32" ? 4 : 2),
  };
}

// ------------------------------------------------------------------------------------- words

/** Bytes as one reads them: 9.00 GiB. */
function bytes(size) {
  if (size < 1024) return size ? `${size} bytes` : "none";
  const power = Math.min(Math.floor(Math.log2(size) / 10), 6);
  const amount = size / 1024 ** power;
  return `${amount.toFixed(amount < 9.995 ? 2 : amount < 99.95 ? 1 : 0)} ${"KMGTPE"[power - 1]}iB`;
}

function tokens(length) {
  if (length === Infinity) return "no end";
  if (!length) return `not even ${SHORTEST}`;
  if (length >= 1e7) return `${(length / 1e6).toPrecision(3)} million`.replace(/(\d)e\+.*/, "$1");
  return length.toLocaleString("en-US");
}

const METHOD_WORDS = { equation: "the equation", fused: "the fused kernel", window: "a window",
  "SDPA + dropout": "SDPA with dropout on the weights", tiled: "tiles" };

const ends = (length, what) => (length === Infinity ? `${what} meets the line at no length.`
  : length ? `${what} meets the line at ${tokens(length)} tokens.`
    : `${what} is above the line with ${SHORTEST} tokens already.`);

function tell(state, now) {
  const at = METHODS.indexOf(state.method);
  const [weights, activations] = now.training[at];
  const sum = weights + activations;
  const fits = sum <= state.memory * GIB;
  const how = state.checkpointed ? ", the inputs of all layers and one layer that runs again" : "";
  const apart = weights ? `${bytes(weights)} of weights and ${bytes(activations)} of activations`
    : "activations alone";
  return {
    training: `Training with ${METHOD_WORDS[state.method] ?? state.method} keeps ${bytes(sum)}, `
      + `${apart}${how}. ${fits ? `It fits into ${state.memory} GiB.` : ""}`,
    warning: fits ? "" : `It does not fit into ${state.memory} GiB. `,
    rest: `${ends(now.longest[at], "It")} `
      + `Generating keeps a cache of ${bytes(now.caches[1])}; ${ends(now.longest.at(-1), "it")}`,
  };
}

/** At what length each method meets the line. */
function tellAll(state, now) {
  const parts = [...METHODS, ...CACHES].map((name, i) => `${name} ${tokens(now.longest[i])}`);
  return `The longest text within ${state.memory} GiB, in tokens: ${parts.join(", ")}.`;
}

function tellLeftOut(state, now) {
  const { radius, block, rank } = state.patterns;
  return `Left out: the parameters of these layers with gradients and AdamW’s two averages `
    + `(${bytes(4 * now.parameters)} in this type), embeddings and logits, masks of dropout on `
    + `activations, what a kernel needs while it runs, and all else on your machine. The `
    + `feed-forward network is four times as wide as a token, with GELU. Of the window the radius is `
    + `${radius}, a block of BigBird has ${block} tokens, and Linformer’s rank is ${rank} or the length, `
    + `whichever is less. Linformer has no causal form.`;
}

// -------------------------------------------------------------------------------------- page

const SWITCHES = ["length", "n_layers", "n_heads", "kv_heads", "d_head", "batch", "dtype",
  "method", "checkpointed", "window", "memory", "lines"];
const DASHES = ["", "8 4", "", "7 3", "2 3", "9 3 2 3", "5 5", "12 3", "1 4"];
const [WIDE, HIGH, LEFT, RIGHT, TOP, FOOT] = [680, 380, 76, 466, 8, 52];
const [SHORT, LONG, LEAST, MOST] = [7, 20, 20, 50]; // ends of both axes, as powers of two
const WINDOWS = [0, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768];
const divisors = (n) => [...Array(n).keys()].map((i) => i + 1).filter((d) => n % d === 0);

function shape(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const across = (n) => LEFT + ((Math.log2(n) - SHORT) / (LONG - SHORT)) * (RIGHT - LEFT);
const up = (size) =>
  TOP + ((MOST - Math.log2(size)) / (MOST - LEAST)) * (HIGH - FOOT - TOP);

/** The lines to draw: a name, its bytes at any length, whether it is the chosen one, where it ends. */
function curvesOf(state, now) {
  if (state.lines === "costs") {
    const of = (part) => (n) => kept(state, state.method, n)[part];
    return [["weights", of(0)], ["activations", of(1)],
      ["cache as set", (n) => cached(state, "cache as set", n)]]
      .map(([name, at]) => ({ name, at, on: true, end: NaN }));
  }
  return [...METHODS, ...CACHES].map((name, i) => ({
    name, at: (n) => total(state, name, n), on: name === state.method, end: now.longest[i],
  }));
}

/** Bytes over the length, both logarithmic; hidden from readers of the table. */
function chart() {
  const steps = [...Array(2 * (LONG - SHORT) + 1).keys()].map((i) => Math.round(2 ** (SHORT + i / 2)));
  const grid = [20, 30, 40, 50].flatMap((power, i) => [
    shape("line", { class: "lab-grid", x1: LEFT, x2: RIGHT, y1: up(2 ** power), y2: up(2 ** power) }),
    shape("text", { x: LEFT - 6, y: up(2 ** power) + 5, "text-anchor": "end" }, `1 ${"MGTP"[i]}iB`)]);
  const ticks = [[7, "128"], [10, "1k"], [13, "8k"], [16, "64k"], [19, "512k"]].map(([k, words]) =>
    shape("text", { x: across(2 ** k), y: HIGH - FOOT + 22, "text-anchor": "middle" }, words));
  const title = shape("text", { x: (LEFT + RIGHT) / 2, y: HIGH - 5, "text-anchor": "middle" },
    "length (tokens; k = 1024)");
  const marker = shape("line", { class: "lab-marker", y1: TOP, y2: HIGH - FOOT });
  const limit = shape("line", { class: "lab-memory", x1: LEFT, x2: RIGHT });
  const limitWords = shape("text", { class: "lab-memory", x: LEFT + 6 });
  const curves = DASHES.map((dash) => shape("polyline", { "stroke-dasharray": dash }));
  const dots = DASHES.map(() => shape("circle", { r: 4 }));
  const labels = DASHES.map(() => shape("text", { x: RIGHT + 30 }));
  const leaders = DASHES.map(() => shape("path", {}));
  const inner = { x: LEFT, y: TOP, width: RIGHT - LEFT, height: HIGH - FOOT - TOP };
  inner.viewBox = `${inner.x} ${inner.y} ${inner.width} ${inner.height}`; // cuts what sticks out
  const svg = shape("svg", { class: "lab-chart", viewBox: `0 0 ${WIDE} ${HIGH}`, "aria-hidden": "true" },
    ...grid, ...ticks, title, shape("svg", inner, marker, limit, ...curves, ...dots), limitWords,
    ...leaders, ...labels);
  const show = (state, now) => {
    const shown = curvesOf(state, now);
    const line = up(state.memory * GIB);
    const x = across(state.length);
    for (const end of ["x1", "x2"]) marker.setAttribute(end, x);
    for (const end of ["y1", "y2"]) limit.setAttribute(end, line);
    limitWords.setAttribute("y", line - 6);
    write(limitWords, `${state.memory} GiB`);
    DASHES.forEach((_, i) => {
      const curve = shown[i];
      const points = curve ? steps.filter((n) => curve.at(n) > 0) : [];
      curves[i].setAttribute("points", points.map((n) => `${across(n)},${up(curve.at(n))}`).join(" "));
      const met = curve && curve.end > 0 && curve.end < Infinity;
      dots[i].setAttribute("cx", met ? across(curve.end) : -99);
      dots[i].setAttribute("cy", line);
      write(labels[i], curve ? curve.name + (points.length ? "" : ": none") : "");
      for (const node of [curves[i], labels[i]]) node.classList.toggle("lab-on", Boolean(curve?.on));
    });
    DASHES.forEach((_, i) => leaders[i].removeAttribute("d"));
    place(shown.map(({ at }) => up(Math.max(at(2 ** LONG), 1))), labels, leaders);
  };
  return { node: svg, show };
}

/** Write the names behind the ends of their lines, apart from one another and inside the picture. */
function place(heights, labels, leaders) {
  const [gap, first, last] = [26, TOP + 12, HIGH - FOOT];
  const order = heights.map((end, i) => ({ i, end })).sort((a, b) => a.end - b.end);
  order.forEach((name, k) => {
    const least = k ? order[k - 1].at + gap : first;
    name.at = Math.min(Math.max(name.end + 5, least), last - gap * (order.length - 1 - k));
    labels[name.i].setAttribute("y", name.at);
    const inside = Math.min(Math.max(name.end, TOP), last);
    leaders[name.i].setAttribute("d", `M${RIGHT + 2} ${inside}L${RIGHT + 26} ${name.at - 5}`);
  });
}

/** A labelled field for a number; what is no number within the limits changes nothing. */
function field(label, { min, max }, onType) {
  const input = make("input", { type: "number", min, max, step: "any", inputmode: "decimal" });
  input.addEventListener("input", () => {
    const value = input.valueAsNumber;
    if (value >= min && value <= max) onType(value);
  });
  let now;
  input.addEventListener("change", () => { input.value = now; });
  const set = (value) => {
    now = value;
    if (input.valueAsNumber !== value) input.value = value;
  };
  return { node: make("label", {}, label, input), set };
}

function power(label, min, max, words, onMove) {
  const made = slider(label, { min, max, step: 1 }, words, (k) => onMove(2 ** k));
  return { node: made.node, set: (value) => made.set(value, Math.round(Math.log2(value))) };
}

function controls(put, read, presets) {
  const names = Object.keys(presets);
  const kvHeads = slider("Key heads", { min: 0, step: 1 }, (g) => `${g} of ${read("n_heads")}`,
    (i) => put({ kv_heads: divisors(read("n_heads"))[i] }));
  const withHeads = (n_heads) => ({ n_heads,
    kv_heads: n_heads % read("kv_heads") ? n_heads : read("kv_heads") }); // in this order
  const plain = (label, min, max, name, step = 1) =>
    slider(label, { min, max, step }, String, (value) => put({ [name]: value }));
  return {
    preset: choice("Start from", [["", "(my own sizes)"], ...names.map((name) => [name, name])],
      (name) => put(presets[name] ?? {})),
    length: power("Length", SHORT, LONG, (n) => `${tokens(n)}`, (length) => put({ length })),
    batch: power("Batch", 0, 10, String, (batch) => put({ batch })),
    n_layers: plain("Layers", 1, 128, "n_layers"),
    n_heads: slider("Heads", { min: 1, max: 128, step: 1 }, String, (n) => put(withHeads(n))),
    d_head: plain("Width of a head", 8, 256, "d_head", 8),
    dtype: choice("Numbers", [["float32", "float32"], ["bfloat16", "16 bits"]],
      (dtype) => put({ dtype })),
    method: choice("Method", METHODS.map((name) => [name, name]), (method) => put({ method })),
    checkpointed: tick("Layers run again", "checkpointing", (checkpointed) => put({ checkpointed })),
    kv_heads: { node: kvHeads.node, set(value) {
      const all = divisors(read("n_heads"));
      kvHeads.node.querySelector("input").max = all.length - 1;
      kvHeads.set(value, Math.max(all.indexOf(value), 0));
    } },
    window: choice("Window of the cache", WINDOWS.map((w) => [w, w ? `${tokens(w)} tokens` : "none"]),
      (window) => put({ window })),
    memory: field("Your memory (GiB)", { min: 0.5, max: 4096 }, (memory) => put({ memory })),
    slide: power("… or slide it", 0, 12, (memory) => `${memory} GiB`, (memory) => put({ memory })),
    lines: choice("Lines", [["methods", "the methods"], ["costs", "the three costs"]],
      (lines) => put({ lines })),
  };
}

function group(title, inputs, names, ...more) {
  return make("fieldset", {}, make("legend", {}, title), ...names.map((name) => inputs[name].node),
    ...more);
}

function render({ model, el }) {
  const read = (names) => Object.fromEntries(names.map((name) => [name, model.get(name)]));
  const given = read(["patterns", "presets"]);
  const first = read(SWITCHES);
  const { put, stop } = tie(model, draw);
  const inputs = controls(put, (name) => model.get(name), given.presets);
  const table = new Matrix({
    title: "What each one keeps", rows: [...METHODS, ...CACHES], cell: 5,
    columns: ["weights", "activations", "cache", "longest text", "keys a query"],
    onRow: (row) => METHODS[row] && put({ method: METHODS[row] }),
  });
  table.node.classList.add("lab-bill");
  table.node.firstChild.className = ""; // these heads are short enough to lie flat
  const picture = chart();
  const told = { training: make("span"), warning: make("strong"), rest: make("span") };
  const [all, leftOut] = [make("p", { class: "lab-how" }), make("p", { class: "lab-how" })];
  const reset = make("button", { type: "button", class: "lab-reset" }, "Reset");
  reset.addEventListener("click", () => put(first));

  function draw() {
    const state = { ...given, ...read(SWITCHES) };
    const now = compute(state);
    for (const name of SWITCHES) inputs[name].set(state[name]);
    inputs.slide.set(state.memory);
    inputs.preset.set(Object.keys(given.presets).find((name) =>
      Object.entries(given.presets[name]).every(([key, value]) => state[key] === value)) ?? "");
    for (const [part, words] of Object.entries(tell(state, now))) write(told[part], words);
    write(all, tellAll(state, now));
    write(leftOut, tellLeftOut(state, now));
    picture.show(state, now);
    table.show([
      ...METHODS.map((_, i) => [...now.training[i].map(bytes), "", tokens(now.longest[i]),
        Math.round(now.keys[i]).toLocaleString("en-US")]),
      ...CACHES.map((_, i) => ["", "", bytes(now.caches[i]),
        tokens(now.longest[METHODS.length + i]), ""]),
    ], { note: `at ${tokens(state.length)} tokens of ${state.n_heads * state.d_head} numbers`,
      selected: METHODS.indexOf(state.method), text: String });
  }

  draw();
  const root = {
    class: "lab-body", role: "group", "aria-label": "Memory lab",
    "data-lm-suppress-shortcuts": "true", // JupyterLab leaves the keys to us
  };
  const says = { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" };
  el.append(make("div", root, make("div", { class: "lab-groups" },
    group("Model and text", inputs,
      ["preset", "length", "batch", "n_layers", "n_heads", "d_head", "dtype"]),
    make("div", { class: "lab-two" },
      group("Training", inputs, ["method", "checkpointed"]),
      group("Generating", inputs, ["kv_heads", "window"]),
      group("Your machine", inputs, ["memory", "slide"]),
      group("Picture", inputs, ["lines"], reset))),
  make("p", says, told.training, " ", told.warning, told.rest), picture.node, all,
  make("div", { class: "lab-flow" }, table.node), leftOut));
  return stop;
}

export default { render };
