"""What nbval does not see in a notebook; and a broken notebook for each check, which must fail.

nbval runs every cell and compares its output with the stored one. It passes a notebook whose
outputs were stripped, and it never looks at pictures, so the rest is checked here.
"""

import re
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from nbval.plugin import IPyNbFile

BOOK = Path(__file__).resolve().parents[1] / "book"
sys.path.insert(0, str(BOOK / "_ext"))
import run_notebooks  # noqa: E402
from repository import configured, guard  # noqa: E402
from run_notebooks import STATE, main, source_sha256  # noqa: E402

VIEW = "application/vnd.jupyter.widget-view+json"
MOST_LINES = 25
MOST_BYTES = 700_000
MACHINE = re.compile(
    r"0x[0-9a-fA-F]{6,}|(?<![\w.])/(home|root|tmp|Users|usr)/|[A-Z]:\\\\?Users|site-packages"
)
FILE_NAME = re.compile(r"\S+\.(png|svg|jpe?g)")


def problems(path: Path) -> list[str]:
    """Return what is wrong with a notebook; an empty list if nothing is."""
    nb = nbformat.read(path, as_version=4)
    found = []
    if path.stat().st_size > MOST_BYTES:
        found.append(f"the file has {path.stat().st_size} bytes, more than {MOST_BYTES}")
    if nb.metadata.get("attnlib", {}).get("source_sha256") != source_sha256(nb):
        found.append("the outputs do not belong to the sources: run book/_ext/run_notebooks.py")
    state = nb.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    for cell in nb.cells:
        if cell.cell_type == "code" and cell.source.strip():
            found += [f"cell {cell.id}: {problem}" for problem in problems_of_cell(cell, state)]
    return found


def problems_of_cell(cell, state: dict) -> Iterator[str]:
    """Yield what is wrong with one code cell."""
    tags = cell.metadata.get("tags", [])
    if not isinstance(cell.execution_count, int):
        yield "was never executed"
    if cell.source.rstrip().endswith(";"):
        yield "ends in a semicolon, which nbval cannot run; use plt.show() or _ = …"
    lines = len(cell.source.strip().splitlines())
    if lines > MOST_LINES:
        yield f"has {lines} lines, more than {MOST_LINES}"
    if "nbval-ignore-output" in tags or "NBVAL" in cell.source:
        yield "is kept from nbval"
    if "nbval-skip" in tags and "remove-cell" not in tags:
        yield "is kept from nbval and shown to the reader"
    for output in cell.outputs:
        if output.output_type == "error" and "raises-exception" not in tags:
            yield f"holds an error: {output.ename}"
        yield from problems_of_data(output.get("data", {}), cell, state)
        text = str(output.get("text", "")) + str(output.get("data", {}).get("text/plain", ""))
        text += "".join(output.get("traceback", []))
        if match := MACHINE.search(text):
            yield f"holds a trace of one machine: {match.group()}"


def problems_of_data(data: dict, cell, state: dict) -> Iterator[str]:
    """Yield what is wrong with one output that is shown."""
    if VIEW in data:
        if data[VIEW]["model_id"] not in state:
            yield "shows a widget without its stored state"
        if "image/png" not in data or " " not in data.get("text/plain", ""):
            yield "shows a widget without a still picture and its words"
    elif any(kind.startswith("image/") for kind in data):
        words = cell.metadata.get("mystnb", {}).get("image", {}).get("alt", "").strip()
        if not words or FILE_NAME.fullmatch(words):
            yield "shows a figure without words for it (metadata: mystnb.image.alt)"


@pytest.mark.parametrize("path", sorted(BOOK.glob("*.ipynb")), ids=lambda path: path.name)
def test_a_notebook_is_whole(path):
    assert problems(path) == []


def test_nbval_notices_any_other_word_in_a_table_of_conventions(request):
    """The page says that an upgrade which changes an entry fails: here each table is changed."""
    page = IPyNbFile.from_parent(request.session, path=BOOK / "conventions.ipynb")
    tables = [cell for cell in page.collect() if "table(" in cell.cell.source.splitlines()[-1]]
    assert len(tables) > 10
    for cell in tables:
        changed = deepcopy(stored := cell.cell.outputs)
        data = changed[-1].data
        data["text/markdown"] = re.sub(r"\w(?=\W*$)", "?", data["text/markdown"])  # its last letter
        assert cell.compare_outputs(stored, stored)
        assert not cell.compare_outputs(changed, stored)


# ------------------------------------------------------------------------ tests of the checks


def written(folder: Path, cells: list, *, state: dict | None = None, sha: str = "") -> Path:
    """Write a notebook as the runner would."""
    nb = new_notebook(cells=cells)
    nb.metadata["attnlib"] = {"source_sha256": sha or source_sha256(nb)}
    if state:
        nb.metadata["widgets"] = {STATE: {"state": state}}
    path = folder / "chapter.ipynb"
    nbformat.write(nb, path)
    return path


def ran(source: str = "1 + 1", *outputs, tags: tuple = (), alt: str = "", count: int | None = 1):
    """Return a code cell that was executed."""
    metadata = {"tags": list(tags)} if tags else {}
    if alt:
        metadata["mystnb"] = {"image": {"alt": alt}}
    return new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=metadata)


def shows(**data):
    """Return an output; ``text_plain`` stands for ``text/plain``."""
    kinds = {"view": VIEW, "png": "image/png", "text": "text/plain"}
    return new_output("display_data", data={kinds[kind]: value for kind, value in data.items()})


PLOT = shows(png="iVBORw0KGgo=", text="<Figure size 400x300 with 1 Axes>")
LAB = shows(view={"model_id": "m"}, png="iVBORw0KGgo=", text="A lab with two switches")
ERROR = new_output("error", ename="ValueError", evalue="no", traceback=["ValueError: no"])


def test_a_good_notebook_has_no_problem(tmp_path):
    cells = [
        new_markdown_cell("# Title;"),
        ran("plot()", PLOT, alt="A line that falls"),
        ran("lab", LAB),
        ran("fail()", ERROR, tags=("raises-exception",)),
        ran("\n".join(["x = 1"] * MOST_LINES)),
        ran("import sys", tags=("remove-cell", "nbval-skip")),
        ran("", count=None),
        ran("print('a/tmp/b')", new_output("stream", text="ratio a/tmp/b, 0x10\n")),
    ]
    assert problems(written(tmp_path, cells, state={"m": {}})) == []


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        (ran(count=None), "was never executed"),
        (ran("fail()", ERROR), "holds an error: ValueError"),
        (ran("plt.plot(x);"), "ends in a semicolon"),
        (ran("plt.plot(x) ; \n"), "ends in a semicolon"),
        (ran("lab", LAB), "shows a widget without its stored state"),
        (ran("\n".join(["x = 1"] * (MOST_LINES + 1))), "has 26 lines"),
        (ran("plot()", PLOT), "shows a figure without words"),
        (ran("plot()", PLOT, alt="a_figure.png"), "shows a figure without words"),
        (ran("print(f)", new_output("stream", text="<f at 0x7fb00b1b6520>")), "one machine: 0x7f"),
        (ran("__file__", shows(text="'/home/me/book/x.py'")), "one machine: /home/"),
        (ran("p", shows(text="PosixPath('/tmp/x')")), "one machine: /tmp/"),
        (ran("f()", new_output("error", ename="E", evalue="", traceback=["File /usr/lib/x.py"]),
             tags=("raises-exception",)), "one machine: /usr/"),
        (ran("1", tags=("nbval-ignore-output",)), "is kept from nbval"),
        (ran("# NBVAL_SKIP\n1"), "is kept from nbval"),
        (ran("1", tags=("nbval-skip",)), "kept from nbval and shown"),
    ],
)  # fmt: skip
def test_each_problem_of_a_cell_is_found(tmp_path, cell, problem):
    found = problems(written(tmp_path, [ran(), cell]))
    assert len(found) == 1, found
    assert problem in found[0]


def test_a_lab_without_a_still_or_words_is_found(tmp_path):
    without_still = ran("lab", shows(view={"model_id": "m"}, text="A lab with two switches"))
    without_words = ran("lab", shows(view={"model_id": "m"}, png="iVBORw0KGgo=", text="Lab()"))
    found = problems(written(tmp_path, [without_still, without_words], state={"m": {}}))
    assert [problem.split(": ")[1] for problem in found] == [
        "shows a widget without a still picture and its words"
    ] * 2


def test_outputs_of_other_sources_are_found(tmp_path):
    path = written(tmp_path, [ran("1 + 1")], sha=source_sha256(new_notebook(cells=[ran("1 + 2")])))
    assert ["do not belong" in problem for problem in problems(path)] == [True]
    nb = nbformat.read(path, as_version=4)
    del nb.metadata["attnlib"]
    nbformat.write(nb, path)
    assert ["do not belong" in problem for problem in problems(path)] == [True]


def test_text_may_change_without_a_new_run():
    before = new_notebook(cells=[new_markdown_cell("one"), ran("1")])
    after = new_notebook(cells=[new_markdown_cell("two"), ran("1")])
    assert source_sha256(before) == source_sha256(after)


def test_a_heavy_notebook_is_found(tmp_path):
    heavy = ran("plot()", shows(png="A" * MOST_BYTES, text="a figure"), alt="A heavy picture")
    found = problems(written(tmp_path, [heavy]))
    assert len(found) == 1
    assert "bytes, more than" in found[0]


# ---------------------------------------------------------------------------- the runner itself

WIDGET = """
import anywidget
class Lab(anywidget.AnyWidget):
    _esm = "export default {}"
    def __repr__(self):
        return "A lab with no switch"
Lab()
"""


@pytest.fixture
def notebook(tmp_path) -> Path:
    cells = [
        new_code_cell(WIDGET.strip()),
        new_code_cell("1 / 0", metadata={"tags": ["raises-exception"]}),
        new_code_cell("import os; os.environ['OMP_NUM_THREADS']", id="threads"),
        new_code_cell("1 + 1", id="4360b638"),
        new_markdown_cell("Some text", id="text"),
    ]
    path = tmp_path / "chapter.ipynb"
    nbformat.write(new_notebook(cells=cells, metadata={"vscode": {"x": 1}}), path)
    return path


def test_two_runs_write_the_same_bytes_and_keep_what_they_should(notebook, capsys):
    assert main([str(notebook)]) == 0
    first = notebook.read_bytes()
    assert re.fullmatch(r"chapter.ipynb: \d+\.\d s\n", capsys.readouterr().out)
    nb = nbformat.read(notebook, as_version=4)
    [model] = [o.data[VIEW]["model_id"] for c in nb.cells[:1] for o in c.outputs]
    assert model in nb.metadata.widgets[STATE].state
    assert nb.cells[1].outputs[0].ename == "ZeroDivisionError"
    assert nb.cells[2].outputs[0].data["text/plain"] == "'1'"
    assert [cell.id for cell in nb.cells[2:]] == ["threads", "code-2", "text"]
    assert nb.cells[0].source == guard(*configured()) + "\n" + WIDGET.strip()
    assert nb.cells[0].id == "code-from-importlib-util-import"
    assert "vscode" not in nb.metadata
    assert nb.metadata.attnlib.source_sha256 == source_sha256(nb)
    assert main([str(notebook)]) == 0
    assert notebook.read_bytes() == first
    # a cell put in between moves no id
    before = [cell.id for cell in nb.cells]
    nb.cells.insert(1, new_code_cell("2 + 2"))
    nbformat.write(nb, notebook)
    assert main([str(notebook)]) == 0
    after = [cell.id for cell in nbformat.read(notebook, as_version=4).cells]
    assert after == [before[0], "code-3", *before[1:]]


def test_a_cell_that_raises_stops_the_run_and_nothing_is_written(notebook, capsys):
    nb = nbformat.read(notebook, as_version=4)
    nb.cells[1].metadata = {}
    nbformat.write(nb, notebook)
    before = notebook.read_bytes()
    assert main([str(notebook)]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert notebook.read_bytes() == before


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("import time\ntime.sleep(60)", "a cell took longer than 1 seconds. Make it smaller"),
        ("import os\nos._exit(1)", "a cell ended the kernel"),
    ],
    ids=["a cell without an end", "a dead kernel"],
)
def test_a_run_that_does_not_come_to_its_end_says_why_and_writes_nothing(
    tmp_path, capsys, monkeypatch, source, words
):
    monkeypatch.setattr(run_notebooks, "CELL_TIMEOUT", 1)
    stuck = written(tmp_path, [new_code_cell("1 + 1"), new_code_cell(source)])
    before = stuck.read_bytes()
    assert main([str(stuck)]) == 1
    said = capsys.readouterr().err
    assert f"{stuck.name}: FAILED, not written: {words}" in said
    assert "sleep" not in words or "time.sleep(60)" in said
    assert stuck.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [stuck.name]


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "chapter.ipynb"
    path.write_text("old")
    path.chmod(0o640)
    run_notebooks._replace(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        run_notebooks._replace(path, "newer")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_set_of_words_has_one_order_in_every_run(tmp_path):
    path = written(tmp_path, [new_code_cell("list({'query', 'key', 'value', 'mask', 'bias'})")])
    assert main([str(path)]) == 0
    first = path.read_bytes()
    assert main([str(path)]) == 0
    assert path.read_bytes() == first


def test_a_notebook_that_is_not_there_is_named(tmp_path, capsys):
    assert main([str(tmp_path / "gone.ipynb")]) == 1
    assert "gone.ipynb: no such notebook" in capsys.readouterr().err
