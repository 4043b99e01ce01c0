"""Print all pages of the built site as one PDF, with contents, page numbers and inner links.

The pages become chapters of one HTML file, so that a link from one to the other is a link within
the PDF. Chromium prints it, with the site's own rules for paper, and twice: the first time tells on
which page each heading lies, the second time the contents say so.
"""

import html
import json
import os
import re
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import pikepdf
import yaml
from playwright.sync_api import Browser

ROOT = Path(__file__).resolve().parents[2]
STYLE = Path(__file__).with_name("whole_book.css")
ABOUT = re.compile(r'<meta name="description" content="([^"]*)"')
ARTICLE = re.compile(r'<article class="bd-article">(.*?)</article>', re.DOTALL)
HEADER_LINK = re.compile(r'<a class="headerlink".*?</a>', re.DOTALL)
TAG = re.compile(r"<[a-zA-Z][^>]*>")
ADDRESS = re.compile(r'\s(id|href|src|aria-labelledby)="([^"]*)"')
CELL = re.compile(rb"\(node\d{8}\)")
HEADING = re.compile(
    r'<section[^>]* id="([^"]+)"[^>]*>\s*(?:<span[^>]*></span>\s*)*<h([12])>(.*?)</h\2>', re.DOTALL
)
FRAME = """<!DOCTYPE html>
<html lang="en" data-theme="light" data-mode="light">
<head><meta charset="utf-8"><title>{title}</title>
<link rel="stylesheet" href="{site}/_static/book.css"><style>{style}</style></head>
<body><main class="bd-main"><div class="bd-content"><div class="bd-article-container">
<article class="bd-article">
<div class="cover"><p class="title">{title}</p><p class="subtitle">{about}</p></div>
<div class="contents"><h1>Contents</h1>{contents}</div>
{chapters}
</article></div></div></main></body></html>
"""


class Heading(NamedTuple):
    """A heading: its name in the document, 1 for a chapter or 2 for a section, and its words."""

    name: str
    level: int
    title: str


class Chapter(NamedTuple):
    """One page of the site, made ready to stand in the one document."""

    part: str
    name: str
    body: str
    headings: list[Heading]


class Place(NamedTuple):
    """Where a heading lies: its page, counted from 0, and how high on it, in points."""

    page: int
    top: float


# ------------------------------------------------------------------------------ from site to HTML


def pages_in_order() -> list[tuple[str, str]]:
    """Return the pages of the table of contents, each after the caption of its part."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))
    parts = toc.get("parts", [{"chapters": toc.get("chapters", [])}])
    pages = [(part.get("caption", ""), page) for part in parts for page in _files(part["chapters"])]
    return [("", toc["root"]), *pages]


def _files(entries: list[dict]) -> Iterator[str]:
    for entry in entries:
        yield entry["file"]
        yield from _files(entry.get("sections", []))


def chapter(site: Path, part: str, page: str, names: dict[str, str]) -> Chapter:
    """Take the text out of a page of the site; make its names unique and its links inner ones.

    Args:
        site: the folder of the built site.
        part: the caption that the page stands under.
        page: the page, without ``.html``.
        names: for each page of the document what the names in it start with.

    Returns:
        The chapter, for a file that lies beside the folder of the site.
    """
    source = (site / f"{page}.html").read_text("utf-8")

    def rewrite(tag: re.Match) -> str:
        text = tag[0].replace(' loading="lazy"', "")
        return ADDRESS.sub(lambda match: _moved(*match.groups(), site, page, names), text)

    body = TAG.sub(rewrite, HEADER_LINK.sub("", ARTICLE.search(source)[1]))
    headings = [
        Heading(name, int(level), html.unescape(re.sub(r"<[^>]+>", "", title)).strip())
        for name, level, title in HEADING.findall(body)
    ]
    name = names[page]
    body = f'<div class="chapter" id="{name}" style="page: {name}">{body}</div>'
    return Chapter(part, name, body, headings)


def _moved(kind: str, value: str, site: Path, page: str, names: dict[str, str]) -> str:
    """Return an attribute as it has to be in the one document."""
    if kind in ("id", "aria-labelledby"):
        value = " ".join(f"{names[page]}--{name}" for name in value.split())
    elif not re.match(r"[a-z]+:|//", value):
        path, _, name = value.partition("#")
        folder = (site / page).parent
        target = os.path.normpath(folder / html.unescape(path)) if path else f"{site / page}.html"
        target = os.path.relpath(target, site)
        if kind == "src":
            value = f"{site.name}/{target}"
        elif prefix := names.get(target.removesuffix(".html")):
            value = f"#{prefix}--{name}" if name else f"#{prefix}"
        else:
            return ""  # the search, the index, a download: none of it is on paper
    return f' {kind}="{value}"'


def contents(chapters: list[Chapter], places: dict[str, Place]) -> str:
    """Return the printed contents; a heading without a place gets room for its number."""
    lists, part = [[]], ""
    for each in chapters:
        if each.part != part:
            part = each.part
            lists.append([f'<li class="part">{html.escape(part)}</li>'])
        for heading in each.headings:
            number = places[heading.name].page + 1 if heading.name in places else ""
            lists[-1].append(
                f'<li class="level-{heading.level}"><a href="#{heading.name}">'
                f'{html.escape(heading.title)}</a><span class="dots"></span>'
                f'<span class="number">{number}</span></li>'
            )
    return "".join(f"<ul>{''.join(lines)}</ul>" for lines in lists)


def _style(chapters: list[Chapter]) -> str:
    """Return the rules for this document: each chapter has its title at the head of its pages."""
    rules = [STYLE.read_text("utf-8")]
    for each in chapters:
        title = json.dumps(each.headings[0].title, ensure_ascii=False)  # a string in CSS too
        rules.append(f"@page {each.name} {{ @top-right {{ content: {title}; }} }}")
    return "\n".join(rules)


# ------------------------------------------------------------------------------- from HTML to PDF


def write_pdf(
    browser: Browser, site: Path, goal: Path, *, only: Collection[str] | None = None
) -> int:
    """Print the book.

    Args:
        browser: a chromium.
        site: the folder of the built site.
        goal: the PDF to write.
        only: the pages of the table of contents to print; all of them if None.

    Returns:
        How many pages the PDF has.

    Raises:
        FileNotFoundError: If there is no built site.
    """
    pages = [(part, page) for part, page in pages_in_order() if only is None or page in only]
    if not (site / f"{pages[0][1]}.html").is_file():
        raise FileNotFoundError(f"no built site in {site}: run jupyter-book build . first")
    names = {page: page.replace("/", "-") for _, page in pages}
    chapters = [chapter(site, part, page, names) for part, page in pages]
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    about = ABOUT.search((site / f"{pages[0][1]}.html").read_text("utf-8"))
    words = {
        "title": html.escape(config["title"]),
        "about": about[1] if about else "",
        "site": site.name,
        "style": _style(chapters),
        "chapters": "".join(each.body for each in chapters),
    }
    source, places = site.parent / "whole_book.html", {}
    page = browser.new_page(java_script_enabled=False, offline=True)
    for last in (False, True):
        source.write_text(FRAME.format(contents=contents(chapters, places), **words), "utf-8")
        page.goto(source.as_uri(), wait_until="load")
        page.pdf(path=goal, prefer_css_page_size=True, print_background=True, tagged=last)
        places = find_places(goal)
    page.close()
    source.unlink()
    return _finish(goal, chapters, places, config["title"])


def find_places(path: Path) -> dict[str, Place]:
    """Return where in a PDF each name lies that a link leads to."""
    with pikepdf.open(path) as pdf:
        number = {page.objgen: i for i, page in enumerate(pdf.pages)}
        named = pdf.Root.get("/Dests", pikepdf.Dictionary())
        return {
            str(name).removeprefix("/"): Place(number[place[0].objgen], float(place[3]))
            for name, place in named.items()
        }


def _finish(goal: Path, chapters: list[Chapter], places: dict[str, Place], title: str) -> int:
    """Add the outline, which a reader shows beside the page; take out what differs each time."""
    _number_cells_afresh(goal)
    with pikepdf.open(goal, allow_overwriting_input=True) as pdf:
        with pdf.open_outline() as outline:
            for each in chapters:
                first, *others = (_entry(h, places[h.name]) for h in each.headings)
                first.children.extend(others)
                first.is_closed = True
                outline.root.append(first)
        pdf.trailer.Info = pdf.make_indirect(pikepdf.Dictionary(Title=title))
        pdf.Root.PageMode = pikepdf.Name.UseOutlines
        pdf.save(
            goal,
            object_stream_mode=pikepdf.ObjectStreamMode.generate,  # a third of the bytes
            recompress_flate=True,
            deterministic_id=True,
        )
        return len(pdf.pages)


def _number_cells_afresh(path: Path) -> None:
    """Give the cells of tables numbers from 0: chromium counts on from a start of its own."""
    source = path.read_bytes()
    names = sorted(set(CELL.findall(source)))
    new = {name: b"(node%08d)" % i for i, name in enumerate(names)}  # as long as the old one
    path.write_bytes(CELL.sub(lambda name: new[name[0]], source))


def _entry(heading: Heading, place: Place) -> pikepdf.OutlineItem:
    return pikepdf.OutlineItem(heading.title, place.page, "XYZ", left=0, top=place.top)
