// The debugging lab: stored outcomes of a small model, one for each combination of faults.

const POSITIONS = {
  mask: ["causal", "no mask", "only itself"],
  positions: ["learned", "no positions"],
  scale: ["1/sqrt(d_head)", "no scale"],
  writing: ["right", "stale mask", "no offset"],
};
const LABELS = { mask: "Mask", positions: "Positions", scale: "Scale", writing: "While it writes" };
const SWITCHES = Object.keys(POSITIONS);

/** The names of the faults that are on, and what became of the model. */
export function compute(state) {
  const faults = SWITCHES.map((name) => state[name])
    .filter((position, i) => position !== POSITIONS[SWITCHES[i]][0]);
  return { faults, ...state.outcomes[faults.join(" + ")] };
}

function tell({ floor, prompt }, { faults, losses, sample, right }) {
  const last = losses.at(-1);
  const judged = last < floor - 0.05 ? "lower than is possible"
    : last > floor + 0.15 ? "too high" : "as low as an honest model can get";
  return `${faults.join(", ") || "Healthy"}: the loss ends at ${number(last)} nats, ${judged}. `
    + `It writes ${prompt} → ${sample}, ${Math.round(100 * right)} % right.`;
}

// -------------------------------------------------------------------------------------- page

const [WIDE, HIGH, LEFT, FOOT, TOP] = [600, 220, 40, 40, 3]; // TOP: the highest loss drawn, in nats

function shape(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** The loss over the steps, with the lowest honest loss as a dotted line. */
function chart({ floor, steps }, points) {
  const x = (i) => LEFT + (i / (points - 1)) * (WIDE - LEFT - 20);
  const y = (loss) => 8 + (1 - Math.min(loss, TOP) / TOP) * (HIGH - FOOT - 8);
  const text = { fill: "currentColor", "font-size": 13 };
  const grid = [0, 1, 2, 3].map((loss) => shape("text",
    { ...text, x: LEFT - 8, y: y(loss) + 4, "text-anchor": "end" }, String(loss)));
  const ticks = [0, Math.floor(points / 2), points - 1].map((i) => shape("text",
    { ...text, x: x(i), y: HIGH - FOOT + 18, "text-anchor": "middle" }, String(steps * (i + 1))));
  const line = { stroke: "currentColor", fill: "none" };
  const axis = shape("path", { ...line, d: `M${LEFT} 8V${y(0)}H${WIDE - 20}`, opacity: 0.5 });
  const lowest = shape("line", { ...line, "stroke-dasharray": "2 4",
    x1: LEFT, x2: WIDE - 20, y1: y(floor), y2: y(floor) });
  const title = shape("text", { ...text, x: (LEFT + WIDE) / 2, y: HIGH - 5,
    "text-anchor": "middle" }, "loss (nats) over the steps; dotted: the lowest that is possible");
  const curve = shape("polyline", { ...line, "stroke-width": 2.5 });
  const svg = shape("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, "aria-hidden": "true",
    style: "display:block;width:100%;max-width:38rem" }, axis, lowest, curve, ...grid, ...ticks, title);
  const show = (losses) =>
    curve.setAttribute("points", losses.map((loss, i) => `${x(i)},${y(loss)}`).join(" "));
  return { node: svg, show };
}

function render({ model, el }) {
  const read = (names) => Object.fromEntries(names.map((name) => [name, model.get(name)]));
  const given = read(["tokens", "prompt", "floor", "steps"]);
  const first = read(SWITCHES);
  const { put, stop } = tie(model, draw);
  const inputs = Object.fromEntries(SWITCHES.map((name) => [name, choice(LABELS[name],
    POSITIONS[name].map((position) => [position, position]), (to) => put({ [name]: to }))]));
  const reset = make("button", { type: "button", class: "lab-reset" }, "Reset");
  reset.addEventListener("click", () => put(first));
  const told = make("span");
  const doctor = make("ul");
  const picture = chart(given, model.get("outcomes")[""].losses.length);
  const names = named(given.tokens);
  const table = new Matrix({ title: "Weights", rows: names, columns: names, cell: 1.9 });

  function draw() {
    const now = compute({ ...read(SWITCHES), outcomes: model.get("outcomes") });
    for (const name of SWITCHES) inputs[name].set(model.get(name));
    write(told, tell(given, now));
    picture.show(now.losses);
    table.show(now.weights, { note: "in one text it never saw", place: (weight) => weight,
      text: (weight) => (weight < 0.005 ? "" : number(weight)) });
    const items = now.findings.map(([severity, title, fix]) => make("li", {},
      make("strong", {}, `${severity}: `), `${title}. `, make("em", {}, `Fix: ${fix}`)));
    doctor.replaceChildren(...(items.length ? items : [make("li", {}, "healthy")]));
  }

  draw();
  const root = { class: "lab-body", role: "group", "aria-label": "Debugging lab",
    "data-lm-suppress-shortcuts": "true" };
  el.append(make("div", root,
    make("fieldset", {}, make("legend", {}, "Faults"),
      ...Object.values(inputs).map(({ node }) => node), reset),
    make("div", { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" },
      make("p", {}, told), make("p", {}, "The doctor says:"), doctor),
    picture.node, make("div", { class: "lab-flow" }, table.node)));
  return stop;
}

export default { render };
