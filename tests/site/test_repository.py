"""What hangs on an address, of the repository or of the site: buttons, notebooks, cards, 404."""

import ast
import html
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
import yaml
from built_site import ROOT, Page, build, pages
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from PIL import Image
from test_links import broken_links
from test_machinery import small_book

sys.path.insert(0, str(ROOT / "book" / "_ext"))
from cards import draw
from repository import configured, guard, put_guard
from run_notebooks import main as run_notebooks
from verified import sentence

NOTEBOOKS = sorted((ROOT / "book").glob("*.ipynb"))
HOME = "https://github.com/somebody/a-book"
READ_AT = "https://somebody.github.io/a-book/"
ELSEWHERE = re.compile(r"https://(mybinder\.org|colab\.research\.google\.com|github\.com)/.*")


def guarded(url: str):
    """Return a notebook of one cell, which starts with the lines for this address."""
    tags = {"tags": ["remove-cell"]}
    notebook = new_notebook(
        cells=[
            new_markdown_cell(f"# Chapter\n\nIt is kept at {url}."),
            new_code_cell("1 + 1", metadata=tags),
        ],
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
    )
    put_guard(notebook, url, "main")
    return notebook


@pytest.fixture(scope="module")
def published(tmp_path_factory) -> tuple[Path, str]:
    """A small book with an address that one of its notebooks lacks; and what the build said."""
    folder = tmp_path_factory.mktemp("published")
    text = "# A small book\n\n{cite:p}`a1`\n\n```{bibliography}\n```"
    small_book(folder, text, guarded(HOME))
    nbformat.write(guarded("https://github.com/somebody/old"), folder / "book" / "late.ipynb")
    with (folder / "_toc.yml").open("a") as toc:
        toc.write("  - file: book/late\n")
    config = (folder / "_config.yml").read_text("utf-8")
    with_address, n = re.subn(r'(?<=^repository:\n  url: )".*"$', f'"{HOME}"', config, flags=re.M)
    assert n == 1
    with_address, n = re.subn(r'(?<=  baseurl: )""', READ_AT, with_address)
    assert n == 1
    (folder / "_config.yml").write_text(with_address, "utf-8")
    process = build(folder, strict=False)
    assert process.returncode == 0, process.stdout + process.stderr
    return folder, process.stderr


def buttons(page: Path) -> dict[str, str]:
    """Return the links of a page that lead to the repository or to who runs its notebooks."""
    links = re.findall(r'<a class="btn" href="([^"]+)"', page.read_text("utf-8"))
    found = [html.unescape(address) for address in links if ELSEWHERE.fullmatch(address)]
    parts = [urlsplit(address) for address in found]
    names = [p.path.split("/")[3:4] if p.netloc == "github.com" else [p.netloc] for p in parts]
    return {(name or ["home"])[0]: address for name, address in zip(names, found, strict=True)}


def downloaded(page: Path) -> bytes:
    """Return the notebook that the page offers for download."""
    links = [address for _, address in Page(page).links if "_sources/" in address]
    assert len(links) == 1
    return (page.parent / links[0]).read_bytes()


def test_with_an_address_each_button_leads_to_a_file_that_is_there(published):
    book, _ = published
    pages = book / "_build" / "html" / "book"
    text, chapter = buttons(pages / "index.html"), buttons(pages / "chapter.html")
    assert list(text) == ["home", "edit", "issues"]
    assert sorted({*chapter} - {*text}) == ["colab.research.google.com", "mybinder.org"]
    assert chapter["home"] == HOME
    assert chapter["issues"].startswith(f"{HOME}/issues/new?title=")
    binder = urlsplit(chapter["mybinder.org"])
    assert binder.path == "/v2/gh/somebody/a-book/main"
    [opened] = parse_qs(binder.query)["urlpath"]
    paths = {
        text["edit"].removeprefix(f"{HOME}/edit/main/"),
        chapter["edit"].removeprefix(f"{HOME}/edit/main/"),
        chapter["colab.research.google.com"].split("/github/somebody/a-book/blob/main/")[1],
        opened.removeprefix("lab/tree/"),
    }
    assert paths == {"book/index.md", "book/chapter.ipynb"}
    assert all((book / path).is_file() for path in paths)
    assert broken_links({pages / "chapter.html": Page(pages / "chapter.html")}) == []  # pictures


def test_a_download_installs_from_the_address_and_the_page_hides_how(published):
    book, said = published
    source, pages = book / "book" / "chapter.ipynb", book / "_build" / "html" / "book"
    assert downloaded(pages / "chapter.html") == source.read_bytes()
    assert f"git+{HOME}@main" in source.read_text("utf-8")
    assert "git+" not in (pages / "chapter.html").read_text("utf-8")
    warnings = [line for line in said.splitlines() if "WARNING" in line]
    assert len(warnings) == 1  # and a warning fails a build with -W
    assert "late.ipynb: WARNING: opened on its own, this notebook would not" in warnings[0]


def test_the_site_has_these_buttons_only_with_an_address(site):
    for path in NOTEBOOKS:
        page = site / "book" / f"{path.stem}.html"
        assert bool(buttons(page)) == bool(configured()[0])
        assert downloaded(page) == path.read_bytes()


# ----------------------------------------------------------------------- a notebook on its own


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_starts_with_the_lines_that_see_to_attnlib(path):
    nb = nbformat.read(path, as_version=4)
    first = next(cell for cell in nb.cells if cell.cell_type == "code")
    assert first.source.startswith(guard(*configured())), "run book/_ext/run_notebooks.py"
    assert first.outputs == []
    assert "remove-cell" in first.metadata["tags"]


@pytest.fixture
def calls(monkeypatch) -> list[list[str]]:
    """The programs that a cell starts; here none of them runs."""
    started = []
    monkeypatch.setattr(subprocess, "run", lambda command, check: started.append(command))
    return started


@pytest.mark.parametrize("url", ["", HOME])
def test_where_attnlib_is_installed_nothing_happens(calls, capfd, url):
    exec(guard(url, "main"), {})
    assert calls == []
    assert capfd.readouterr() == ("", "")


def test_where_attnlib_is_missing_it_is_installed_from_the_repository(calls, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    exec(guard(HOME, "trunk"), {})
    package = f"attnlib[book] @ git+{HOME}@trunk"
    assert calls == [[sys.executable, "-m", "pip", "install", "-q", package]]


def test_where_attnlib_is_missing_and_there_is_no_address_the_notebook_says_what_to_do(
    calls, monkeypatch
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=re.escape("pip install '.[book]', or from")):
        exec(guard("", "main"), {})
    assert calls == []


def test_the_lines_are_replaced_when_the_address_changes():
    nb = new_notebook(cells=[new_markdown_cell("# A"), new_code_cell("import torch\n\nx = 1")])
    for url, branch in [("", "main"), (HOME, "main"), (HOME, "trunk"), ("", "main")]:
        put_guard(nb, url, branch)
        assert nb.cells[1].source == guard(url, branch) + "\nimport torch\n\nx = 1"


def paths_into_the_repository(code: str) -> list[str]:
    """Return the strings of a cell that name a file by where the notebook happens to be."""
    path = re.compile(
        r"\.{1,2}/.*|(book|attnlib|tests|_static|_build)/.*|[\w/-]+\.\w*(py|json|csv|npz|pt|png|txt|ipynb)"
    )
    tree = ast.walk(ast.parse(code))
    strings = [n.value for n in tree if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return [text for text in strings if path.fullmatch(text)]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_names_no_file_of_the_repository(path):
    cells = nbformat.read(path, as_version=4).cells
    found = [paths_into_the_repository(c.source) for c in cells if c.cell_type == "code"]
    assert [text for texts in found for text in texts if text not in OWN_FILES] == []


OWN_FILES = {
    "translator.pt",  # the capstone writes it to a temporary folder
    "measured.json",  # lies in the package, which finds it wherever the notebook is
}


def test_a_path_into_the_repository_is_found():
    code = "open('../data.bin')\nPath('book') / 'words.txt'\nprint('and/or. a.b')\nload('tests/x')"
    assert paths_into_the_repository(code) == ["../data.bin", "words.txt", "tests/x"]


def test_a_notebook_runs_far_from_the_repository(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    copy = shutil.copy(ROOT / "book" / "long_sequences.ipynb", tmp_path)
    assert run_notebooks([copy]) == 0, capsys.readouterr().err
    assert os.listdir(tmp_path) == ["long_sequences.ipynb"]


# ----------------------------------------------------------------------------- Binder's files


def test_binder_gets_the_pins_of_the_book():
    folder = ROOT / ".binder"
    wanted = yaml.safe_load((folder / "environment.yml").read_text("utf-8"))["dependencies"]
    pins = (ROOT / "requirements.txt").read_text("utf-8")
    [torch] = [entry.removeprefix("pytorch-cpu=") for entry in wanted if "torch" in entry]
    assert f"\ntorch=={torch}\n" in pins
    assert os.access(folder / "postBuild", os.X_OK)
    last = (folder / "postBuild").read_text("utf-8").splitlines()[-1]
    assert last.endswith("pip install --no-cache-dir -r requirements.txt")


# ----------------------------------------------------------------------------- where it is read


def heads(page: Path) -> dict[str, str]:
    """Return what a page says about itself to search engines and to those who pass it on."""
    text = page.read_text("utf-8")
    tags = re.findall(r'<meta (?:property|name)="(?:og:)?([\w:]+)" content="([^"]*)"', text)
    canonical = re.findall(r'<link rel="canonical" href="([^"]*)"', text)
    return {name: html.unescape(value) for name, value in tags} | {"canonical": canonical}


def test_with_an_address_a_page_has_one_place_and_a_card(published):
    site = published[0] / "_build" / "html"
    found = heads(site / "book" / "chapter.html")
    assert found["canonical"] == [found["url"]] == [f"{READ_AT}book/chapter.html"]
    assert (found["title"], found["site_name"]) == ("Chapter", "The Three Attentions")
    assert found["twitter:card"] == "summary_large_image"
    card = site / found["image"].removeprefix(READ_AT)
    with Image.open(card) as picture:
        assert picture.size == (1200, 630)
    assert card.stat().st_size < 60_000
    listed = re.findall("<loc>(.*?)</loc>", (site / "sitemap.xml").read_text("utf-8"))
    assert listed == [
        f"{READ_AT}{page}.html" for page in ("book/index", "book/chapter", "book/late", "genindex")
    ]
    assert [url for url in listed if not (site / url.removeprefix(READ_AT)).is_file()] == []


def test_the_page_for_what_is_not_there_works_in_any_folder(published):
    site = published[0] / "_build" / "html"
    links = [a for tag, a in Page(site / "404.html").links if not a.startswith(("#", "data:"))]
    assert len(links) > 8
    assert [a for a in links if not a.startswith((READ_AT, HOME))] == []
    ours = [urlsplit(a).path.removeprefix("/a-book/") for a in links if a.startswith(READ_AT)]
    assert [path for path in ours if not (site / path).is_file()] == []
    assert heads(site / "404.html")["canonical"] == []


def test_the_same_card_is_drawn_twice():
    picture = Image.new("RGBA", (300, 200), "#ff000080")
    for words in ("A title", "A title " * 20):
        one, two = (draw(words, "A sentence. " * 12, "Book", picture) for _ in range(2))
        assert one.tobytes() == two.tobytes()
        assert len(one.getcolors()) > 10


def test_the_site_says_where_it_is_only_if_it_knows(site):
    address = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))["html"]["baseurl"]
    for page in pages():
        found = heads(site / page)
        assert bool(found["canonical"]) == ("card" in str(found)) == bool(address)
    for name in ("sitemap.xml", "404.html", "_static/cards"):
        assert (site / name).exists() == bool(address)


def test_each_page_describes_itself_in_words_of_its_own(site):
    said = [heads(site / page)["description"] for page in pages()]
    assert len(set(said)) == len(said)
    assert [words for words in said if not 40 <= len(words) <= 165] == []


# --------------------------------------------------------------------------------- one version


def test_the_version_is_the_same_wherever_it_is_written():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    citation = yaml.safe_load((ROOT / ".github" / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == version
    assert f"Version {version}}}" in (ROOT / "book" / "licences.md").read_text("utf-8")
    assert version in (ROOT / "book" / "changelog.md").read_text("utf-8")


def test_the_foot_of_a_page_names_the_versions_of_the_last_run(site):
    file, foot = ROOT / "book" / "verified.json", (site / "book" / "qkv.html").read_text("utf-8")
    said = sentence(json.loads(file.read_text("utf-8")))
    assert said in html.unescape(foot)
    assert "licences.html" in foot.split(said[-9:])[-1]
