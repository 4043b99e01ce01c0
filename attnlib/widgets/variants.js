// The variants lab. Who sees whom follows from the masks: `compute` touches no page.

/** What the mask of a stack lets a row see, if `prefix` tokens of the source stand in that stack. */
function sees(mask, prefix, i, j) {
  return mask === "all" || j <= i || (mask === "prefix" && j < prefix);
}

/** A prefix mask with no prefix is causal; one with nothing behind it hides nothing. */
function meaning({ stacks, mask }, nRead, n) {
  if (mask !== "prefix") return mask;
  if (stacks === "two" || nRead === 0) return "past";
  return nRead === n ? "all" : "prefix";
}

/** The tokens, who sees whom, which rows answer, and what comes of it. */
export function compute(state) {
  const { tasks, known, stacks, mask, task, shift } = state;
  const { read, said, places, start } = tasks[task];
  const inPlace = places.length > 0 && stacks === "one";
  const shifted = shift === "shifted";
  const written = inPlace ? [] : shifted ? [start, ...said.slice(0, -1)] : said;
  const tokens = [...read, ...written];
  const first = read.length;
  const allowed = tokens.map((_, i) => tokens.map((_, j) => {
    if (stacks === "one") return sees(mask, first, i, j);
    return j < first || (i >= first && sees(mask, 0, i - first, j - first));
  }));
  const answers = inPlace ? places : said.map((_, i) => first + i);
  const late = shifted ? 1 : 0; // an answer is written so much later
  const copied = inPlace ? [] : answers.map((_, i) => i)
    .filter((i) => allowed[answers[i]][answers[i] + late]);
  const missed = Math.max(...answers.map((row) => allowed[row].slice(0, first)
    .filter((is) => !is).length));
  const key = [stacks, meaning(state, first, tokens.length), task].join(" · ");
  return { tokens, allowed, answers, copied, missed, late, inPlace, model: known[key] ?? "" };
}

// ------------------------------------------------------------------------------------- words

function verdict(state, now) {
  const count = now.answers.length;
  if (now.copied.length) {
    const who = now.copied.length === count ? "Every label sees its" : `${now.copied.length} of ${count} labels see their`;
    return ["", `${who} own answer: it learns to copy, and nothing else.`];
  }
  if (now.missed) {
    const all = state.tasks[state.task].read.length;
    return ["No label sees its answer.", `But one of them does not see ${now.missed} of the ${all} tokens that it should read.`];
  }
  if (now.model) return [`This is ${now.model}.`, ""];
  return ["No label sees its answer, so it can be trained. None of the models here was made so.", ""];
}

/** What the switches do that may not be expected. */
function remark(state, now) {
  const nRead = state.tasks[state.task].read.length;
  const means = meaning(state, nRead, now.tokens.length);
  if (state.mask !== "prefix" || means === "prefix") return "";
  if (means === "all") return "There is nothing but source, so everyone sees everyone.";
  return "No source stands in this stack, so only the past is left.";
}

// -------------------------------------------------------------------------------------- page

const LOOKS_OF = { self: ["•", 0.15], cross: ["×", 0.55], answer: ["!", 1] };

/** How a row sees a column: by self-attention, by cross-attention, or as its own answer. */
function how(state, now, i, j) {
  const label = now.answers.indexOf(i);
  if (now.copied.includes(label) && j === i + now.late) return "answer";
  const nRead = state.tasks[state.task].read.length;
  return state.stacks === "two" && i >= nRead && j < nRead ? "cross" : "self";
}

function inputsOf(tasks, put) {
  return {
    stacks: choice("Stacks", [["one", "one"], ["two", "two"]],
      (stacks) => put({ stacks })),
    mask: choice("Who answers sees", [["all", "everyone"], ["past", "the past"],
      ["prefix", "source + past"]], (mask) => put({ mask })),
    task: choice("Task", Object.keys(tasks).sort().map((name) => [name, name]),
      (task) => put({ task })),
    shift: choice("Labels, as written", [["shifted", "shifted by one"], ["as it is", "not shifted"]],
      (shift) => put({ shift })),
  };
}

const SWITCHES = ["stacks", "mask", "task", "shift"];

function render({ model, el }) {
  const read = (names) => Object.fromEntries(names.map((name) => [name, model.get(name)]));
  const given = read(["tasks", "known"]);
  const first = read(SWITCHES);
  const { put, stop } = tie(model, draw);
  const inputs = inputsOf(given.tasks, put);
  const [told, warning, more] = [make("span"), make("strong"), make("span")];
  const example = make("p", { class: "lab-how" });
  const picture = make("div", { class: "lab-flow" });
  const reset = make("button", { type: "button", class: "lab-reset" }, "Reset");
  reset.addEventListener("click", () => put(first));
  let table, drawn;

  function draw() {
    const state = { ...given, ...read(SWITCHES) };
    const now = compute(state);
    const { read: source, said } = given.tasks[state.task];
    for (const [name, input] of Object.entries(inputs)) input.set(state[name]);
    inputs.shift.node.hidden = now.inPlace;
    const [good, bad] = verdict(state, now);
    write(told, good);
    write(warning, bad);
    write(more, remark(state, now));
    write(example, `Read: ${source.join(" ") || "nothing"}. To be said: ${said.join(" ")}.`);
    if (now.tokens.join(" ") !== drawn) {
      drawn = now.tokens.join(" ");
      const names = named(now.tokens);
      table = new Matrix({ title: "Who sees whom", rows: names, columns: [...names, "must say"] });
      picture.replaceChildren(table.node);
    }
    const cells = now.allowed.map((row, i) => [
      ...row.map((is, j) => (is ? how(state, now, i, j) : "")), said[now.answers.indexOf(i)] ?? "",
    ]);
    const end = now.tokens.length;
    table.show(cells, {
      note: "• sees, × through cross-attention, ! its answer",
      text: (value) => LOOKS_OF[value]?.[0] ?? value,
      place: (value) => LOOKS_OF[value]?.[1] ?? NaN,
      blocked: (i, j) => j < end && !now.allowed[i][j],
    });
  }

  draw();
  const root = {
    class: "lab-body", role: "group", "aria-label": "Variants lab",
    "data-lm-suppress-shortcuts": "true",
  };
  const says = { class: "lab-says", "aria-live": "polite", "aria-atomic": "true" };
  el.append(make("div", root,
    make("fieldset", {}, make("legend", {}, "Switches"),
      ...Object.values(inputs).map(({ node }) => node), reset),
    make("p", says, told, " ", warning, " ", more), example, picture));
  return stop;
}

export default { render };
