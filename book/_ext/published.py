"""All that depends on where the site is read: ``html: baseurl`` in ``_config.yml`` says it.

With an address each page names the one address it is meant to be found at, and brings a card for
those who pass a link on: title, sentence, picture. The site gets ``sitemap.xml`` for search
engines, and ``404.html``, which a host shows for whatever is not there. Without one there are none.
"""

import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from urllib.parse import unquote, urljoin

from PIL import Image
from sphinx.application import Sphinx

from cards import draw
from shown_things import _in_order

FOLDER = "_static/cards"
NOT_FOUND = "404"
RELATIVE = re.compile(r'(?<= )(href|src|action|data-content_root)="(?![a-z]+:|//)([^"]*)"')


def setup(app: Sphinx) -> dict[str, bool]:
    """Add to the pages, and write the two files at the end."""
    app.connect("html-collect-pages", _add_not_found)
    app.connect("html-page-context", _add_card, priority=650)  # after descriptions.py
    app.connect("build-finished", _finish)
    return {"parallel_read_safe": True, "parallel_write_safe": False}


def home(app: Sphinx) -> str:
    """Return the address of the site with a slash at its end, or nothing."""
    address = (app.config.html_baseurl or "").rstrip("/")
    return address and address + "/"


def _add_not_found(app: Sphinx) -> Iterator[tuple[str, dict, str]]:
    if home(app):
        yield NOT_FOUND, {}, "404.html"


def _add_card(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    if not home(app) or page == NOT_FOUND:
        context["pageurl"] = None
        return
    context["pageurl"] = f"{home(app)}{page}.html"
    title = re.sub(r"<[^>]*>", "", context.get("title", ""))
    book, sentence = app.config.project, context.get("description", "")
    picture = Path(app.outdir, FOLDER, page.rpartition("/")[2] + ".png")
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(title, sentence, book, _first_picture(app, context.get("body", ""))).save(picture)
    said = {
        "og:site_name": book,
        "og:type": "website" if page == app.config.root_doc else "article",
        "og:title": title,
        "og:description": sentence,
        "og:url": context["pageurl"],
        "og:image": f"{home(app)}{FOLDER}/{picture.name}",
        "og:image:alt": f"{title}. {sentence}",
    }
    tags = [f'<meta property="{k}" content="{escape(v)}">' for k, v in said.items()]
    tags.append('<meta name="twitter:card" content="summary_large_image">')
    context["metatags"] = "\n    ".join([context.get("metatags", ""), *tags])


def _first_picture(app: Sphinx, body: str) -> Image.Image | None:
    """Return the first picture on the page that a notebook drew."""
    sources = {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}
    for address in re.findall(r'<img [^>]*src="([^"]*)"', body):
        source = sources.get(unquote(address.rsplit("/", 1)[-1]))
        if source and source.suffix == ".png":
            with Image.open(source) as picture:
                return picture.convert("RGBA")
    return None


def _finish(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html" or not home(app):
        return
    pages = [f"{home(app)}{page}.html" for page in [*_in_order(app), "genindex"]]
    lines = [f"<url><loc>{escape(page)}</loc></url>" for page in pages]
    head = '<?xml version="1.0" encoding="utf-8"?>'
    schema = '<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">'
    text = "\n".join([head, schema, *lines, "</urlset>", ""])
    Path(app.outdir, "sitemap.xml").write_text(text, "utf-8")
    page = Path(app.outdir, f"{NOT_FOUND}.html")
    page.write_text(from_anywhere(page.read_text("utf-8"), home(app)), "utf-8")


def from_anywhere(page: str, address: str) -> str:
    """Make the links of a page whole: a host shows it in place of a page in any folder.

    >>> from_anywhere('<a href="book/a.html"><a href="#b"><a class="c" href="https://d">', "http://e/")
    '<a href="http://e/book/a.html"><a href="#b"><a class="c" href="https://d">'
    """

    def whole(match: re.Match) -> str:
        name, link = match.groups()
        return match[0] if link.startswith("#") else f'{name}="{urljoin(address, link)}"'

    return RELATIVE.sub(whole, page)
