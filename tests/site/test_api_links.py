"""The links from the chapters to the entries of the package's names, and back."""

import ast
import re
import sys
from html import unescape
from pathlib import Path

import nbformat
import pytest
from built_site import ROOT, pages

sys.path.insert(0, str(ROOT / "book" / "_ext"))
from api_links import PLAIN, link_imports, used_names

CHAPTERS = [p for p in pages() if (ROOT / p).with_suffix(".ipynb").exists()]
ENTRIES = ("api", "api_models", "api_efficient", "api_tools")
IMPORTS = (
    '<span class="kn">from</span> <span class="nn">attnlib.masks</span> '
    '<span class="kn">import</span> {}\ncausal_mask(3)\n'
)


def cells_of(page: str) -> list:
    return nbformat.read((ROOT / page).with_suffix(".ipynb"), as_version=4).cells


def imported(page: str) -> set[str]:
    """The names that the cells of a chapter import from the package, modules left out."""
    names = set()
    for cell in cells_of(page):
        lines = "" if cell.cell_type != "code" else re.sub(r"(?m)^\s*[%!].*", "", cell.source)
        for node in ast.walk(ast.parse(lines) if "attnlib" in lines else ast.Module([], [])):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("attnlib."):
                names |= {alias.name for alias in node.names}
    return names


def not_linked(page: str, html: str, documented: set[str]) -> set[str]:
    """The names that a chapter imports and that have an entry, and yet no link to it."""
    linked = re.findall(r'<a class="api-link" href="api\w*\.html#[\w.-]+">(\w+)</a>', html)
    assert len(linked) == len(set(linked))  # the first use, and no other
    return (imported(page) & documented) - set(linked)


@pytest.fixture(scope="module")
def entries(site) -> dict[str, str]:
    """The HTML of each entry of the package, by full name."""
    found = {}
    for name in ENTRIES:
        text = (site / "book" / f"{name}.html").read_text("utf-8")
        for part in re.split(r'(?=<dt class="sig sig-object py" id=")', text)[1:]:
            found[re.search(r'id="([^"]+)"', part)[1]] = part
    return found


def test_each_name_that_a_chapter_imports_is_linked_once(site, entries):
    documented = {name.rpartition(".")[2] for name in entries}
    for page in CHAPTERS:
        html = (site / page).read_text("utf-8")
        assert not_linked(page, html, documented) == set(), page
    without = html.replace('<a class="api-link"', "<a", 1)
    assert len(not_linked(page, without, documented)) == 1  # the twin


def wrong_uses(entries: dict[str, str], site: Path) -> list[str]:
    """The links "Used in" whose section does not hold the name."""
    wrong = []
    for full_name, html in entries.items():
        name = full_name.rpartition(".")[2]
        line = re.search(r'<p class="used-in">(.*?)</p>', html, re.DOTALL)
        for page, place in re.findall(r'href="(\w+\.html)#([^"]+)"', line[1] if line else ""):
            text = (site / "book" / page).read_text("utf-8")
            section = re.split(r"<h[1-4]\b", text.partition(f'id="{place}"')[2])[1]
            if name not in unescape(re.sub(r"<[^>]*>", "", section)):
                wrong.append(f"{full_name}: {page}#{place}")
    return wrong


def test_an_entry_leads_to_sections_that_hold_its_name(site, entries):
    used = [name for name, html in entries.items() if 'class="used-in"' in html]
    assert len(used) > 80
    assert wrong_uses(entries, site) == []
    swapped = {"attnlib.x.no_such_name": entries["attnlib.masks.causal_mask"]}
    assert len(wrong_uses(swapped, site)) > 5  # the twin


def test_a_name_that_no_chapter_has_leads_nowhere(entries):
    cells = [cell.source for page in CHAPTERS for cell in cells_of(page)]
    words = set(re.findall(r"\w+", "\n".join(cells)))
    unused = {name for name in entries if name.rpartition(".")[2] not in words}
    assert len(unused) > 20
    assert [name for name in unused if 'class="used-in"' in entries[name]] == []


@pytest.mark.parametrize(
    ("names", "linked"),
    [
        ("causal_mask, padding_mask", ["causal_mask", "padding_mask"]),
        ("causal_mask, nothing_known", ["causal_mask"]),
        ("(\n    causal_mask,\n    padding_mask,\n)", ["causal_mask", "padding_mask"]),
        ('causal_mask <span class="k">as</span> padding_mask', ["causal_mask"]),
        ('causal_mask  <span class="c1"># and padding_mask</span>', ["causal_mask"]),
    ],
)
def test_import_lines_are_read_in_all_their_forms(names, linked):
    known = {"causal_mask": "a.html#causal_mask", "padding_mask": "a.html#padding_mask"}
    html = link_imports(2 * IMPORTS.format(names), lambda module, name: known.get(name))
    assert re.findall(r"<a [^>]*>(\w+)</a>", html) == linked


def test_plain_code_loses_its_elements_and_no_letter():
    code = '<span class="n">a</span><span class="p">(</span><span class="s1">&lt;</span>'
    assert PLAIN.sub(r"\1", code) == 'a(<span class="s1">&lt;</span>'


def test_uses_are_found_through_names_and_modules():
    names = {"attention": "attnlib.functional.attention", "plot": "attnlib.plot"}
    code = "%time x\nplot.heatmap(attention(q))\nother.attention"
    assert set(used_names(code, names)) == {
        "attnlib.functional.attention",
        "attnlib.plot",
        "attnlib.plot.heatmap",
    }
    assert list(used_names("this is no Python", names)) == []


def test_no_entry_is_a_number_alone(site):
    html = {page: (site / f"book/{page}.html").read_text("utf-8") for page in ENTRIES}
    assert "MaskCost" in html["api_tools"]  # a named tuple, whose fields are numbers to Python
    assert [page for page, text in html.items() if "Alias for field number" in text] == []
