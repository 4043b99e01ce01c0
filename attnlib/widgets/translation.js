// The translation lab: stored outcomes of a model, one for each sentence.

/** The sentence that all others are compared with. A page may store the outcomes in another order. */
const firstOf = (options) => options.map((words) => words[0]).join(" ");

/** What the sentence shown has become, and which words differ from the first sentence's. */
export function compute({ options, outcomes, source }) {
  const first = outcomes[firstOf(options)];
  const { written, weights, probabilities } = outcomes[source];
  const moved = written.map((_, i) => i).filter((i) => written[i] !== first.written[i]);
  return { written, weights, probabilities, moved };
}

function tell(state, { written, weights, probabilities, moved }) {
  const step = Math.min(state.step, written.length - 1);
  const words = state.source.split(" ");
  const place = weights[step].indexOf(Math.max(...weights[step]));
  const same = state.source === firstOf(state.options);
  const change = moved.length ? `New: ${moved.map((i) => written[i]).join(", ")}.`
    : "No word of the translation has moved.";
  return `${state.source} → ${written.join(" ")}. To write ${written[step]} (probability `
    + `${number(probabilities[step])}), it looks most at ${words[place]}, with a weight of `
    + `${number(weights[step][place])}. ${same ? "" : change}`;
}

function render({ model, el }) {
  const given = { options: model.get("options"), outcomes: model.get("outcomes") };
  const read = () => ({ ...given, source: model.get("source"), step: model.get("step") });
  const first = read();
  const { put, stop } = tie(model, draw);
  const longest = Math.max(...Object.values(given.outcomes).map((one) => one.written.length));
  const places = given.options.map((words, place) =>
    choice(`Word ${place + 1}`, words.map((word) => [word, word]), (word) => {
      const sentence = model.get("source").split(" ");
      sentence[place] = word;
      put({ source: sentence.join(" ") });
    }));
  const step = slider("Step", { min: 0, max: longest - 1, step: 1 }, (t) => `${t + 1}`,
    (t) => put({ step: t }));
  const told = make("span");
  const flow = make("div", { class: "lab-flow" });
  const reset = make("button", { type: "button", class: "lab-reset" }, "Reset");
  reset.addEventListener("click", () => put({ source: first.source, step: first.step }));
  let table, drawn;

  function draw() {
    const state = read();
    const now = compute(state);
    const words = state.source.split(" ");
    places.forEach((input, place) => input.set(words[place]));
    step.set(state.step);
    write(told, tell(state, now));
    if (drawn !== state.source) { // other words: other names of rows and columns
      table = new Matrix({
        title: "Weights", rows: named(now.written), columns: named(words), cell: 3.2,
        more: ["sure"], onRow: (row) => put({ step: row }),
      });
      flow.replaceChildren(table.node);
      drawn = state.source;
    }
    table.show(now.weights, {
      note: "of each step that writes a word", place: (weight) => weight,
      selected: Math.min(state.step, now.written.length - 1), more: [now.probabilities],
    });
  }

  draw();
  const root = {
    class: "lab-body", role: "group", "aria-label": "Translation lab",
    "data-lm-suppress-shortcuts": "true",
  };
  const says = { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" };
  el.append(make("div", root,
    make("fieldset", {}, make("legend", {}, "Source"),
      ...places.map(({ node }) => node), step.node, reset),
    make("p", says, told), flow));
  return stop;
}

export default { render };
