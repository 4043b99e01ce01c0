"""The PDF of the book and the offline bundle, made from the built site; two pages stand for all."""

import hashlib
import html
import re
import sys
import tomllib
import unicodedata
import zipfile
from pathlib import Path

import pikepdf
import pypdf
import pytest
from built_site import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import take_away
import whole_book

PAGES = ["book/index", "book/capstone"]  # links, formulas, figures, a lab, Chinese
CHINESE = re.compile(r"[\u4e00-\u9fff]")


@pytest.fixture(scope="module")
def pdf(site, browser, tmp_path_factory) -> Path:
    """Two pages of the book, printed."""
    goal = tmp_path_factory.mktemp("pdf") / "book.pdf"
    assert whole_book.write_pdf(browser, site, goal, only=PAGES) == len(pypdf.PdfReader(goal).pages)
    return goal


@pytest.fixture(scope="module")
def texts(pdf) -> list[str]:
    """The text of each page, a ligature as its letters."""
    pages = pypdf.PdfReader(pdf).pages
    return [unicodedata.normalize("NFKC", page.extract_text()) for page in pages]


def headings(site: Path, page: str) -> list[str]:
    """Return the titles of a page of the site and of its sections."""
    source = (site / f"{page}.html").read_text("utf-8")
    source = re.sub(r'<a class="headerlink".*?</a>', "", source)
    found = re.findall(r"<h[12]>(.*?)</h[12]>", source, re.DOTALL)
    return [html.unescape(re.sub(r"<[^>]+>", "", title)) for title in found]


def test_the_outline_is_the_table_of_contents(site, pdf):
    entries = pypdf.PdfReader(pdf).outline
    chapters = zip(entries[::2], entries[1::2], strict=True)
    titles = [[first.title, *(entry.title for entry in inner)] for first, inner in chapters]
    assert titles == [headings(site, page) for page in PAGES]
    assert min(map(len, titles)) > 4


def test_the_printed_contents_name_the_page_of_each_heading(pdf, texts):
    reader = pypdf.PdfReader(pdf)
    flat = [e for each in reader.outline for e in (each if isinstance(each, list) else [each])]
    printed = " ".join(texts[1].split())
    for entry in flat:
        number = reader.get_destination_page_number(entry)
        assert re.search(rf"{re.escape(entry.title)} {number + 1}\b", printed), entry.title
        words = " ".join(texts[number].split())
        assert entry.title.split()[0] in words


def test_each_page_has_its_number_and_the_title_of_its_chapter(site, texts):
    assert re.sub(r"\s+", " ", texts[0]).startswith("The Three Attentions ")
    assert not re.search(r"\d", texts[0])
    for number, text in enumerate(texts[1:], start=2):
        assert str(number) in text.splitlines()[:2], number
    assert all(text.startswith(headings(site, PAGES[1])[0]) for text in texts[-8:])


def test_formulas_pictures_and_chinese_words_are_there(site, pdf, texts):
    source = (site / f"{PAGES[1]}.html").read_text("utf-8")
    body = whole_book.ARTICLE.search(source)[1]
    shown = set(CHINESE.findall(re.sub(r"<[^>]+>", "", body)))
    text = "".join(texts)
    assert len(shown) > 20
    assert shown <= set(text)
    assert "\ufffd" not in text
    reader = pypdf.PdfReader(pdf)
    fonts = {font["/BaseFont"] for font in resources(reader, "/Font")}
    assert any("KaTeX_Math" in name for name in fonts)
    assert any("AttentionHan" in name for name in fonts)
    pictures = len(re.findall(r"<img ", body))
    assert "lab-still" in body
    drawn = [o for o in resources(reader, "/XObject") if o["/Subtype"] == "/Image"]
    assert len(drawn) == pictures > 3


def resources(reader: pypdf.PdfReader, kind: str) -> list[dict]:
    """Return the fonts or pictures of all pages."""
    held = [page.get("/Resources", {}).get(kind, {}) for page in reader.pages]
    return [each.get_object() for all_of_page in held for each in all_of_page.values()]


def missing_glyphs(path: Path) -> int:
    """Count the characters that are drawn as an empty box: glyph 0 of a font is that box."""
    found = 0
    with pikepdf.open(path) as pdf:
        streams = list(pdf.pages)
        streams += [
            s for s in pdf.objects if isinstance(s, pikepdf.Stream) and s.get("/Subtype") == "/Form"
        ]
        for stream in streams:
            for operands, operator in pikepdf.parse_content_stream(stream, "Tj TJ"):
                for text in operands[0] if str(operator) == "TJ" else operands:
                    if isinstance(text, pikepdf.String):
                        data = bytes(text)
                        found += sum(data[i : i + 2] == b"\0\0" for i in range(0, len(data), 2))
    return found


def test_no_glyph_is_missing(pdf, browser, tmp_path):
    assert missing_glyphs(pdf) == 0
    page = browser.new_page()
    page.set_content("<p>a\ue123b</p>")
    page.pdf(path=tmp_path / "box.pdf")
    page.close()
    assert missing_glyphs(tmp_path / "box.pdf") == 1


def test_links_within_the_book_stay_within_the_pdf(pdf):
    reader = pypdf.PdfReader(pdf)
    links = [a.get_object() for page in reader.pages for a in page.get("/Annots", [])]
    inner = [link["/Dest"] for link in links if "/Dest" in link]
    outer = [link["/A"]["/URI"] for link in links if "/A" in link]
    assert len(inner) > 20
    assert {name.removeprefix("/") for name in inner} <= {
        name.removeprefix("/") for name in reader.named_destinations
    }
    assert [address for address in outer if not address.startswith("https://")] == []


def test_two_prints_have_the_same_bytes(site, browser, tmp_path):
    for name in "ab":
        whole_book.write_pdf(browser, site, tmp_path / name, only=PAGES[:1])
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_without_a_built_site_it_says_what_to_do(browser, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no built site in .*run jupyter-book build"):
        whole_book.write_pdf(browser, tmp_path, tmp_path / "book.pdf")


# --------------------------------------------------------------------------------- the bundle


@pytest.fixture(scope="module")
def bundle(site, pdf, tmp_path_factory) -> Path:
    """The offline bundle, unpacked."""
    folder = tmp_path_factory.mktemp("bundle")
    take_away.bundle(site, pdf, folder / "book.zip")
    with zipfile.ZipFile(folder / "book.zip") as packed:
        packed.extractall(folder)
    return folder / "book"


def test_the_sums_are_those_of_all_files(bundle):
    lines = (bundle / "SHA256SUMS").read_text("utf-8").splitlines()
    sums = dict(reversed(line.split("  ", 1)) for line in lines)
    files = {f.relative_to(bundle).as_posix(): f for f in bundle.rglob("*") if f.is_file()}
    del files["SHA256SUMS"]
    assert sums == {n: hashlib.sha256(f.read_bytes()).hexdigest() for n, f in files.items()}
    assert {f"notebooks/{f.name}" for f in ROOT.glob("book/*.ipynb")} <= set(sums)
    assert {"README.txt", "book.pdf", "site/index.html"} <= set(sums)


def test_the_wheel_holds_the_whole_package(bundle):
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    wheel = bundle / f"attnlib-{version}-py3-none-any.whl"
    assert f'"./{wheel.name}[book]"' in (bundle / "README.txt").read_text("utf-8")
    files = {f for f in (ROOT / "attnlib").rglob("*") if f.is_file() and f.suffix != ".pyc"}
    with zipfile.ZipFile(wheel) as packed:
        held = {name: packed.read(name) for name in packed.namelist()}
    want = {f.relative_to(ROOT).as_posix(): f.read_bytes() for f in files}
    assert {name: held.get(name) for name in want} == want


def test_two_bundles_have_the_same_bytes(site, pdf, bundle, tmp_path):
    take_away.bundle(site, pdf, tmp_path / "book.zip")
    assert (tmp_path / "book.zip").read_bytes() == (bundle.parent / "book.zip").read_bytes()


def test_a_package_that_cannot_be_built_is_an_error(tmp_path):
    with pytest.raises(RuntimeError, match="attnlib could not be built"):
        take_away.build_wheel(tmp_path, tmp_path)


def test_the_bundle_opens_from_a_file_without_a_network(bundle, browser):
    asked = []

    def only_files(route):
        asked.append(route.request.url)
        route.continue_() if route.request.url.startswith("file:") else route.abort()

    context = browser.new_context(offline=True)
    context.route("**/*", only_files)
    page = context.new_page()
    page.goto((bundle / "site" / "index.html").as_uri(), wait_until="load")
    page.wait_for_url("**/book/index.html")
    page.locator("main a[href='qkv.html']").first.click()
    page.wait_for_function("document.documentElement.dataset.hydrated === '1'")
    lab = page.locator(".lab-live").first
    said = lab.locator("[aria-live]").first
    before = said.inner_text()
    lab.locator("input[type=checkbox]").first.click()
    assert said.inner_text() != before
    page.goto((bundle / "site" / "search.html").as_uri() + "?q=softmax", wait_until="load")
    page.locator("#search-results li").first.wait_for()
    assert [address for address in asked if not address.startswith("file:")] == []
    assert len(asked) > 10
    context.close()
