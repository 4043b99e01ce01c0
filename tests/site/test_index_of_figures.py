"""The index of figures, labs and exercises, against what the sources of the book hold."""

import re

import nbformat
import pytest
from built_site import ROOT, Page, pages

VIEW = "application/vnd.jupyter.widget-view+json"
LABEL = re.compile(r"\{exercise(?:-start)?\}.*\n:label: (\S+)")


@pytest.fixture(scope="module")
def entries(site) -> list[tuple[str, str]]:
    """The links of the page's text, as (page, anchor)."""
    index = Page(site / "book" / "index_of_figures.html")
    addresses = [address for _, address in index.links if ".html#" in address]
    return [tuple(address.split("#")) for address in addresses]


def sources():
    """Each page of the book: its name, its text, its cells."""
    for page in pages():
        notebook = (ROOT / page).with_suffix(".ipynb")
        if notebook.exists():
            cells = nbformat.read(notebook, as_version=4).cells
            words = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
            yield notebook.stem, words, cells
        elif (text := (ROOT / page).with_suffix(".md")).exists():
            yield text.stem, text.read_text("utf-8"), []


def test_every_figure_with_a_name_is_in_it(entries):
    wanted = []
    for page, words, cells in sources():
        named = [c.metadata.get("mystnb", {}).get("figure", {}).get("name") for c in cells]
        wanted += [(f"{page}.html", name) for name in named if name]
        wanted += [(f"{page}.html", name) for name in re.findall(r":name: (fig-\S+)", words)]
    assert len(wanted) > 15
    assert set(wanted) - set(entries) == set()


def test_every_exercise_is_in_it(entries):
    wanted = [(f"{page}.html", x) for page, words, _ in sources() for x in LABEL.findall(words)]
    assert len(wanted) > 30
    assert set(wanted) - set(entries) == set()


def test_every_lab_is_in_it(site, entries):
    text = (site / "book" / "index_of_figures.html").read_text("utf-8")
    for page, _, cells in sources():
        labs = [c for c in cells if any(VIEW in o.get("data", {}) for o in c.get("outputs", []))]
        links = re.findall(rf'<a [^>]*href="{page}\.html#[^"]*"[^>]*>Lab</a>', text)
        assert len(links) == len(labs), page
    assert len(re.findall(r">Lab</a>", text)) >= 6


def test_every_entry_leads_to_its_place(site, entries):
    known = {page: Page(site / "book" / page).ids for page in {page for page, _ in entries}}
    assert [entry for entry in entries if entry[1] not in known[entry[0]]] == []
