"""Run the notebooks of the book and store their outputs: two runs write the same bytes.

    python book/_ext/run_notebooks.py                    every notebook, and book/verified.json
    python book/_ext/run_notebooks.py book/qkv.ipynb     only this one

The site shows what is stored here, and nbval compares with it. By default JupyterLab saves a
notebook without the state of its widgets, so this script is the only thing that writes outputs. A
cell that raises stops it and shows the traceback, unless the cell has the tag ``raises-exception``.
So does a cell that takes too long, and one that ends the kernel. The file is then left as it was.
"""

import hashlib
import json
import os
import re
import shutil
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

import verified
from repository import configured, put_guard

BOOK = Path(__file__).resolve().parent.parent
STATE = "application/vnd.jupyter.widget-state+json"
CELL_TIMEOUT = 300  # seconds
# The order of the terms of a sum, and so its last bit, depends on the number of threads; the order
# of a set of strings depends on the seed of their hashes.
STEADY = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PYTHONHASHSEED": "0",
}
RANDOM_ID = re.compile(r"[0-9a-f]{8}((-[0-9a-f]{4}){3}-[0-9a-f]{12})?")


def source_sha256(nb: nbformat.NotebookNode) -> str:
    """Return the hash of all code of a notebook: it tells whether the outputs belong to it."""
    sources = [cell.source for cell in nb.cells if cell.cell_type == "code"]
    return hashlib.sha256(json.dumps(sources, ensure_ascii=False).encode()).hexdigest()


def run(path: Path) -> float:
    """Execute one notebook and write it back with its outputs, or not at all.

    Args:
        path: the notebook.

    Returns:
        How long its cells took, in seconds, with the start of the kernel.

    Raises:
        CellExecutionError: if a cell raises that is not tagged ``raises-exception``.
        CellTimeoutError: if a cell takes longer than ``CELL_TIMEOUT``.
        DeadKernelError: if a cell ends the kernel.
    """
    nb = nbformat.read(path, as_version=4)
    _forget_outputs(nb)
    put_guard(nb, *configured())
    start = time.perf_counter()
    NotebookClient(
        nb,
        timeout=CELL_TIMEOUT,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
    ).execute(env={**os.environ, **STEADY})
    seconds = time.perf_counter() - start
    nb = _with_steady_widget_ids(nb, path.stem)
    _name_cells(nb)
    _keep_only_needed_metadata(nb)
    nbformat.validate(nb)
    text = nbformat.writes(nb, indent=1, ensure_ascii=False) + "\n"
    _replace(path, text)
    return seconds


def _replace(path: Path, text: str) -> None:
    """Write a file in one step: whoever reads it meanwhile gets the old one or the new one."""
    new = path.with_name(f".{path.name}.new")
    try:
        new.write_text(text, encoding="utf-8", newline="\n")
        shutil.copymode(path, new)
        new.replace(path)  # a single act of the file system
    finally:
        new.unlink(missing_ok=True)


def _forget_outputs(nb: nbformat.NotebookNode) -> None:
    nb.metadata.pop("widgets", None)
    for cell in nb.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def _with_steady_widget_ids(nb: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """Rename widgets, whose ids are random, after the notebook and the order they came in."""
    if "widgets" not in nb.metadata:
        return nb
    state = nb.metadata["widgets"][STATE]["state"]
    if not state:
        del nb.metadata["widgets"]
        return nb
    new = {old: hashlib.md5(f"{name}:{i}".encode()).hexdigest() for i, old in enumerate(state)}
    pattern = "|".join(map(re.escape, new))
    text = re.sub(pattern, lambda match: new[match.group()], json.dumps(nb))
    return nbformat.from_dict(json.loads(text))


def _name_cells(nb: nbformat.NotebookNode) -> None:
    """Keep ids that a person chose; replace random, missing and repeated ones.

    A new id is made from the text of the cell, so that a cell put in between moves no other id.
    """
    kept: set[str] = set()
    unnamed = []
    for cell in nb.cells:
        name = cell.get("id", "")
        if not name or name in kept or RANDOM_ID.fullmatch(name):
            unnamed.append(cell)
        else:
            kept.add(name)
    for cell in unnamed:
        cell["id"] = _new_id(cell, kept)
        kept.add(cell["id"])


def _new_id(cell: nbformat.NotebookNode, taken: set[str]) -> str:
    words = re.findall(r"[A-Za-z][A-Za-z0-9]*", cell.source)[:4]
    base = "-".join([cell.cell_type, *words]).lower()[:40]
    return next(
        name
        for name in (base if i == 1 else f"{base}-{i}" for i in range(1, len(taken) + 2))
        if name not in taken
    )


def _keep_only_needed_metadata(nb: nbformat.NotebookNode) -> None:
    """Drop what an editor or a kernel left behind and differs from machine to machine."""
    kept = {k: v for k, v in nb.metadata.items() if k in ("widgets", "myst", "mystnb", "title")}
    nb.metadata = nbformat.from_dict(
        {
            **kept,
            "attnlib": {"source_sha256": source_sha256(nb)},
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    for cell in nb.cells:
        for key in ("collapsed", "scrolled", "jupyter", "vscode", "jp-MarkdownHeadingCollapsed"):
            cell.metadata.pop(key, None)


def main(arguments: list[str]) -> int:
    """Run the named notebooks, or all; print the seconds of each; return 1 if one failed."""
    paths = [Path(a) for a in arguments] or sorted(BOOK.glob("*.ipynb"))
    failed = False
    for path in paths:
        try:
            print(f"{path.name}: {run(path):.1f} s", flush=True)
        except CellExecutionError as error:
            failed = _say(f"{path.name}: FAILED, not written\n{error}")
        except CellTimeoutError as error:
            failed = _say(
                f"{path.name}: FAILED, not written: a cell took longer than {CELL_TIMEOUT} "
                f"seconds. Make it smaller, or raise CELL_TIMEOUT in {Path(__file__).name}\n{error}"
            )
        except DeadKernelError:
            failed = _say(
                f"{path.name}: FAILED, not written: a cell ended the kernel, by exit() or a crash, "
                "or there was not enough memory. Run the notebook in JupyterLab to find the cell"
            )
        except FileNotFoundError:
            failed = _say(f"{path}: no such notebook")
    if not arguments and not failed:
        verified.write(BOOK)
    return int(failed)


def _say(problem: str) -> bool:
    print(problem, file=sys.stderr, flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
