// Render formulas: one JSON object a line comes in, {latex, display}; one goes out, {html} or {error}.
// usage: node render_maths.js path/to/katex.min.js
const katex = require(require("path").resolve(process.argv[2]));

require("readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const { latex, display } = JSON.parse(line);
  let answer;
  try {
    answer = { html: katex.renderToString(latex, { displayMode: display, strict: "ignore" }) };
  } catch (error) {
    answer = { error: error.message };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
