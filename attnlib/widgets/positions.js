// The positions lab. The arithmetic is in `compute`, which touches no page.

const SLOPE = 0.5; // ALiBi's, of the first of 8 heads

/** The token at a position, as a query and as a key. */
function placed({ token, table, encoding, base }, position) {
  const d = token.length;
  if (encoding === "sinusoidal") {
    return token.map((value, n) => {
      const angle = position * base ** (-(n - (n % 2)) / d);
      return value + (n % 2 ? Math.cos(angle) : Math.sin(angle));
    });
  }
  if (encoding === "learned") return token.map((value, n) => value + (table[position]?.[n] ?? NaN));
  if (encoding !== "rope") return token;
  const half = d / 2;
  return token.map((value, n) => { // number i is paired with number i + d / 2
    const angle = position * base ** (-(2 * (n % half)) / d);
    const other = n < half ? -token[n + half] : token[n - half];
    return value * Math.cos(angle) + other * Math.sin(angle);
  });
}

/** The score of each query for each key, and how much scores of one distance differ. */
export function compute(state) {
  const places = [...Array(state.length).keys()];
  const x = places.map((i) => placed(state, state.offset + i));
  const slope = state.encoding === "alibi" ? SLOPE : 0;
  const scores = x.map((q, i) => x.map((k, j) =>
    q.reduce((sum, value, n) => sum + value * k[n], 0) / Math.sqrt(q.length)
    - slope * Math.abs(i - j)));
  const spreads = places.flatMap((far) => [1, -1].map((side) => {
    const line = places.filter((i) => scores[i][i + side * far] !== undefined)
      .map((i) => scores[i][i + side * far]).filter((score) => !Number.isNaN(score));
    return line.length ? Math.max(...line) - Math.min(...line) : 0;
  }));
  return { scores, spread: Math.max(...spreads) };
}

// ------------------------------------------------------------------------------------- words

const WAYS = [["none", "none"], ["sinusoidal", "sinusoidal"], ["learned", "learned"],
  ["rope", "RoPE"], ["alibi", "ALiBi"]];
const BASES = [10, 100, 1000, 10000, 100000].map((base) => [base, base.toLocaleString("en")]);

function tell({ scores, spread }) {
  const shown = scores.flat().filter((score) => !Number.isNaN(score));
  if (!shown.length) return "No score: the learned table has no row for these positions.";
  if (Math.max(...shown) - Math.min(...shown) < 1e-9) {
    return "All scores are the same: nothing tells the places apart.";
  }
  return spread < 1e-6 ? "Each diagonal holds one number: only the distance counts."
    : `Scores of the same distance differ by up to ${number(spread)} nats.`;
}

function warn({ encoding, table, offset, length }) {
  if (encoding === "learned" && offset + length > table.length) {
    return `The table ends at position ${table.length - 1}.`;
  }
  return encoding === "sinusoidal" || encoding === "rope" ? "" : "The base changes nothing here.";
}

// -------------------------------------------------------------------------------------- page

const SWITCHES = ["encoding", "base", "length", "offset"];

function render({ model, el }) {
  const read = (names) => Object.fromEntries(names.map((name) => [name, model.get(name)]));
  const given = read(["token", "table"]);
  const first = read(SWITCHES);
  const { put, stop } = tie(model, draw);
  const inputs = {
    encoding: choice("Encoding", WAYS, (encoding) => put({ encoding })),
    base: choice("Base", BASES, (base) => put({ base })),
    length: slider("Length", { min: 2, max: 12, step: 1 }, (n) => `${n} positions`,
      (length) => put({ length })),
    offset: slider("Offset", { min: 0, max: 100, step: 1 }, (n) => `from ${n}`,
      (offset) => put({ offset })),
  };
  const told = make("span");
  const warning = make("strong");
  const picture = make("div", { class: "lab-flow" });
  const reset = make("button", { type: "button", class: "lab-reset" }, "Reset");
  reset.addEventListener("click", () => put(first));
  let table; // made anew when the places change
  let places = "";

  function draw() {
    const state = { ...given, ...read(SWITCHES) };
    const now = compute(state);
    for (const [name, input] of Object.entries(inputs)) input.set(state[name]);
    const names = now.scores.map((_, i) => String(state.offset + i));
    if (names.join() !== places) {
      places = names.join();
      table = new Matrix({ title: "Scores", rows: names, columns: names });
      picture.replaceChildren(table.node);
    }
    const shown = now.scores.flat().filter((score) => !Number.isNaN(score));
    const [low, high] = [Math.min(...shown), Math.max(...shown)];
    table.show(now.scores, {
      note: "of the same token at each position, in nats",
      place: (score) => (high > low ? (score - low) / (high - low) : NaN),
    });
    write(told, tell(now));
    write(warning, warn(state));
  }

  draw();
  const root = {
    class: "lab-body", role: "group", "aria-label": "Positions lab",
    "data-lm-suppress-shortcuts": "true", // JupyterLab leaves the keys to us
  };
  const says = { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" };
  el.append(make("div", root,
    make("fieldset", {}, make("legend", {}, "Switches"),
      ...Object.values(inputs).map(({ node }) => node), reset),
    make("p", says, told, " ", warning),
    picture));
  return stop;
}

export default { render };
