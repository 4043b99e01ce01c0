"""The extensions under ``book/_ext`` and ``hydrate.js``, on a small book made for the purpose."""

import base64
import json
import os
import re
import shutil
import struct
import zlib
from pathlib import Path

import nbformat
import pytest
from built_site import ROOT, build, served
from look import settle, watch
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from PIL import Image

COUNTER = """
export default () => ({
  initialize({ model }) { model.set("started", model.get("started") + 1); },
  render({ model, el }) {
    const button = document.createElement("button");
    button.textContent = "add";
    const out = document.createElement("output");
    const show = () => {
      const second = new Float32Array(model.get("numbers").buffer)[1];
      const parts = [model.get("word"), model.get("count"), second, model.get("started")];
      out.textContent = parts.join(" ");
    };
    button.addEventListener("click", () => {
      model.set({ count: model.get("count") + 1 });
      model.save_changes();
      if (model.get("count") === 9) model.off("change:count", show);
    });
    model.on("change:count", show);
    show();
    el.append(button, out);
  },
});
"""
FAILING = 'export default { render() { throw new Error("broken on purpose"); } };'
WORD = "</script><b>apple</b>"


def png(width: int, height: int) -> str:
    """Return a grey PNG in base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\x80" * width) * height)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def view(model: str, text: str = "A counter that stands at 3", still: bool = True):
    """Return a cell that shows a widget."""
    data = {"application/vnd.jupyter.widget-view+json": {"model_id": model}, "text/plain": text}
    if still:
        data["image/png"] = png(300, 100)
    output = new_output("execute_result", data=data, execution_count=1)
    return new_code_cell("lab", execution_count=1, outputs=[output])


def figure(words: dict):
    """Return a cell that shows a figure."""
    data = {"image/png": png(200, 80), "text/plain": "<Figure size 200x80 with 1 Axes>"}
    output = new_output("display_data", data=data)
    return new_code_cell("plot", execution_count=1, outputs=[output], metadata={"mystnb": words})


def stored(code: str, count: int) -> dict:
    """Return the stored state of one widget."""
    numbers = base64.b64encode(struct.pack("<ff", 1, 2)).decode()
    return {
        "model_module": "anywidget",
        "state": {
            "_esm": code,
            "count": count,
            "word": WORD,
            "started": 0,
            "layout": "IPY_MODEL_x",
        },
        "buffers": [{"data": numbers, "path": ["numbers"], "encoding": "base64"}],
    }


def small_book(folder: Path, index: str, notebook) -> Path:
    """Write a book of two pages that uses the machinery of this one."""
    for name in ("_ext", "_static"):
        shutil.copytree(ROOT / "book" / name, folder / "book" / name)
    shutil.copytree(ROOT / "attnlib" / "fonts", folder / "attnlib" / "fonts")
    shutil.copy(ROOT / "_config.yml", folder)
    (folder / "book" / "references.bib").write_text("@misc{a1, title={A}, author={B}, year={2017}}")
    (folder / "_toc.yml").write_text(
        "format: jb-book\nroot: book/index\nchapters:\n  - file: book/chapter\n"
    )
    (folder / "book" / "index.md").write_text(index, "utf-8")
    nbformat.write(notebook, folder / "book" / "chapter.ipynb")
    return folder


INDEX = r"""# A small book

See {numref}`fig-grey`, {eq}`eq-mean` and {ref}`ex-one`, solved in {ref}`sol-one`, and {cite:p}`a1`.

\begin{align}
a &= b \\
c &= d
\end{align}

```{exercise} Add
:label: ex-one
Add them.

:::{admonition} Hint
:class: dropdown tip
hint-text
:::
```

```{solution} ex-one
:label: sol-one
solution-text $x^2$
```

```{bibliography}
```
"""


def chapter():
    """Return the notebook of the small book, with its stored widgets."""
    state = {"a": stored(COUNTER, 3), "b": stored(COUNTER, 7), "bad": stored(FAILING, 0)}
    state["unseen"] = stored("never shown", 0)
    head = new_markdown_cell(
        "# Chapter\n\nWhat a mean is.\n\n$$\\bar x = \\sum x_i / n$$ (eq-mean)"
    )
    plot = figure(
        {"image": {"alt": "All grey"}, "figure": {"caption": "Grey.", "name": "fig-grey"}}
    )
    cells = [head, plot, view("a"), view("b"), view("a"), view("bad")]
    start = "```{solution-start} ex-one\n:label: sol-two\n```"
    cells += [new_markdown_cell(start), figure({"image": {"alt": "Grey again"}})]
    cells += [new_markdown_cell("```{solution-end}\n```")]
    wrapped = {"application/vnd.jupyter.widget-state+json": {"state": state, "version_major": 2}}
    python = {"name": "python"}
    return new_notebook(cells=cells, metadata={"widgets": wrapped, "language_info": python})


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    folder = small_book(tmp_path_factory.mktemp("small-book"), INDEX, chapter())
    process = build(folder)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder / "_build" / "html"


@pytest.fixture(scope="module")
def small_address(small):
    with served(small) as address:
        yield address


@pytest.fixture(params=["over http", "from a file"])
def chapter_page(request, browser, small, small_address):
    home = small_address if request.param == "over http" else small.as_uri() + "/"
    context = browser.new_context()
    page = context.new_page()
    page.seen = watch(page, home)
    page.goto(home + "book/chapter.html", wait_until="load")
    settle(page)
    yield page
    context.close()


@pytest.mark.parametrize("touched", [[], ["chapter.ipynb"]], ids=["nothing", "one page"])
def test_a_site_that_is_built_again_stays_the_same(small, touched):
    book = small.parent.parent / "book"
    files = [small / "_static" / "book.css", *small.rglob("*.html")]
    before = [file.read_bytes() for file in files]
    for name in touched:
        os.utime(book / name)
    process = build(small.parent.parent, afresh=False)
    assert process.returncode == 0, process.stdout + process.stderr
    assert [file.read_bytes() for file in files] == before


def test_a_lab_takes_the_place_of_its_still(chapter_page):
    lab = chapter_page.locator(".lab").first
    assert lab.locator("img").get_attribute("alt") == "A counter that stands at 3"
    assert not lab.locator("img").is_visible()
    assert lab.locator("output").inner_text() == f"{WORD} 3 2 1"
    assert chapter_page.seen.foreign == []


def test_views_of_one_model_move_together_and_others_stay(chapter_page):
    outputs = chapter_page.locator(".lab output")
    chapter_page.locator(".lab button").first.click()
    assert [text.split()[-3] for text in outputs.all_inner_texts()] == ["4", "7", "4"]
    assert [text.split()[-1] for text in outputs.all_inner_texts()] == ["1", "1", "1"]


def test_a_listener_that_was_taken_off_hears_no_more(chapter_page):
    button = chapter_page.locator(".lab").nth(1).locator("button")
    for _ in range(4):
        button.click()
    assert chapter_page.locator(".lab").nth(1).locator("output").inner_text().split()[-3] == "9"


def test_a_lab_that_fails_leaves_its_still_and_says_so(chapter_page):
    lab = chapter_page.locator(".lab").nth(3)
    assert lab.locator("img").is_visible()
    assert lab.locator(".lab-live").count() == 0
    assert len(chapter_page.seen.complaints) == 1
    assert "broken on purpose" in chapter_page.seen.complaints[0]


def test_the_code_of_a_lab_is_on_the_site_once(small):
    html = (small / "book" / "chapter.html").read_text("utf-8")
    files = list((small / "_static" / "labs").glob("*.js"))
    assert len(files) == 2
    assert "export default" not in html
    assert "never shown" not in html
    assert sum("initialize" in file.read_text("utf-8") for file in files) == 1


def test_a_page_without_labs_loads_nothing_for_them(small):
    html = (small / "book" / "index.html").read_text("utf-8")
    assert "hydrate.js" not in html
    scripts = re.findall(r'<script[^>]*?(?:src="../_static/(\w+\.js)[^"]*")?>', html)
    assert scripts == ["", "site.js", "remembers.js"]  # colours first; there is an exercise


def test_folds_are_closed_and_hold_their_text(small):
    index = (small / "book" / "index.html").read_text("utf-8")
    hint = index[index.rindex("<details", 0, index.index("hint-text")) :]
    assert hint.index("tip") < hint.index("Hint</summary>") < hint.index("</details>")
    solution = index[index.index('<details class="admonition fold solution"') :]
    assert "Solution to Exercise 1 (Add)</summary>" in " ".join(solution.split())
    assert solution.index("solution-text") < solution.index("</details>")
    gated = (small / "book" / "chapter.html").read_text("utf-8")
    gated = gated[gated.index('id="sol-two"') :]
    assert gated.index("Grey again") < gated.index("</details>")


def test_references_are_numbered(small):
    text = " ".join((small / "book" / "index.html").read_text("utf-8").split())
    assert ">Fig. 1</span>" in text
    assert 'href="chapter.html#equation-eq-mean">(2)</a>' in text
    assert ">Exercise 1</span>" in text
    assert text.count('class="tag"') == 0  # Sphinx numbers the equation, KaTeX does not


def test_a_picture_keeps_its_pixels_and_waits_until_it_is_near(small):
    html = (small / "book" / "chapter.html").read_text("utf-8")
    [tag] = set(re.findall(r'<img [^>]*alt="All grey"[^>]*>', html))
    assert 'loading="lazy" width="200" height="80"' in tag
    webp = small / "book" / re.search(r'src="([^"]+)"', tag).group(1)
    [source] = (small.parent / "jupyter_execute").rglob(f"{webp.stem}.png")
    with Image.open(webp) as sent, Image.open(source) as drawn:
        assert sent.convert("RGBA").tobytes() == drawn.convert("RGBA").tobytes()
    assert list((small / "_images").glob("*.png")) == []


def test_a_link_into_a_closed_fold_opens_it(browser, small_address):
    page = browser.new_context().new_page()
    page.goto(small_address + "book/index.html#sol-one", wait_until="load")
    assert page.locator("details#sol-one").get_attribute("open") is not None
    assert page.locator("details.tip").get_attribute("open") is None
    page.context.close()


def test_paper_has_no_folds(browser, small_address):
    page = browser.new_context().new_page()
    page.goto(small_address + "book/index.html", wait_until="load")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details.fold:not([open])").count() == 0
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    assert page.locator("details.fold[open]").count() == 0
    page.context.close()


def test_code_can_be_copied_and_output_not(browser, small_address):
    context = browser.new_context(permissions=["clipboard-read", "clipboard-write"])
    page = context.new_page()
    page.goto(small_address + "book/chapter.html", wait_until="load")
    page.locator(".copy-button").first.click()
    assert page.evaluate("navigator.clipboard.readText()") == "plot"
    assert page.locator(".cell_output .copy-button").count() == 0
    context.close()


def test_what_a_reader_would_miss_fails_the_build(tmp_path):
    notebook = chapter()
    notebook.cells[1].metadata = {}  # a figure without words
    notebook.cells += [view("lost"), view("b", still=False)]
    index = "# Book\n\n$\\nonsense{x}$\n\n[nowhere](gone.md)\n\nSee {numref}`fig-none`.\n"
    process = build(small_book(tmp_path, index, notebook))
    said = process.stdout + process.stderr
    assert process.returncode != 0
    assert "this picture has no text alternative" in said
    assert "widget lost has no stored state" in said
    assert "a widget is shown without a still" in said
    assert r"KaTeX cannot read \nonsense{x}" in said
    assert "gone.md" in said
    assert "fig-none" in said


def test_the_stored_state_is_json_whatever_it_holds(small):
    html = (small / "book" / "chapter.html").read_text("utf-8")
    text = html[html.index('id="labs">') + len('id="labs">') :]
    labs = json.loads(text[: text.index("</script>")])
    assert labs["a"]["state"] == {"count": 3, "word": WORD, "started": 0}
    assert set(labs) == {"a", "b", "bad"}
