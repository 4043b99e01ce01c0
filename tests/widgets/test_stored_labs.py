"""The labs stored in the notebooks hold the code of today; nbval does not look at it."""

import json
from importlib import import_module
from pathlib import Path

import pytest

BOOK = Path(__file__).resolve().parents[2] / "book"
STATE = "application/vnd.jupyter.widget-state+json"
OURS = "attnlib.widgets."


def stored_labs(path):
    """The states of the labs in a notebook, without the parts that ipywidgets adds."""
    widgets = json.loads(path.read_text("utf-8"))["metadata"].get("widgets", {})
    states = [entry["state"] for entry in widgets.get(STATE, {}).get("state", {}).values()]
    return [state for state in states if state.get("_anywidget_id", "").startswith(OURS)]


NOTEBOOKS = [path for path in sorted(BOOK.glob("*.ipynb")) if stored_labs(path)]


def test_the_book_stores_labs():
    assert NOTEBOOKS


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_stored_lab_is_the_lab_of_today(path):
    for state in stored_labs(path):
        module, name = state["_anywidget_id"].rsplit(".", 1)
        lab = getattr(import_module(module), name)
        for part in ("_esm", "_css"):
            same = state[part] == getattr(lab, part)
            assert same, f"{part} is of another day: run book/_ext/run_notebooks.py {path}"
