"""Every link, anchor and picture of the built site, without a browser."""

import os
import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from built_site import Page, is_stale

FILE_NAME = re.compile(r"\S+\.(png|jpe?g|svg|gif|webp)$")


@pytest.fixture(scope="module")
def parsed(site) -> dict[Path, Page]:
    files = [f for f in site.rglob("*.html") if "_static" not in f.parts]
    return {file: Page(file) for file in files}


def broken_links(parsed: dict[Path, Page]) -> list[str]:
    """Return the local addresses that lead nowhere."""
    broken = []
    for file, page in parsed.items():
        for _, address in page.links:
            url = urlsplit(address)
            if url.scheme or url.netloc:
                continue
            target = (file.parent / unquote(url.path)).resolve() if url.path else file
            if not target.exists():
                broken.append(f"{file.name}: no file {address}")
            elif target in parsed and url.fragment:
                if unquote(url.fragment) not in parsed[target].ids:
                    broken.append(f"{file.name}: no anchor {address}")
    return broken


def images_without_words(parsed: dict[Path, Page]) -> list[str]:
    """Return the pictures whose text alternative is missing or is a file name."""
    return [
        f"{file.name}: {image['src']} {image.get('alt')!r}"
        for file, page in parsed.items()
        for image in page.images
        if not image.get("alt", "").strip() or FILE_NAME.match(image["alt"])
        if "icon-picture" not in image.get("class", "")  # the button beside it has the words
    ]


def test_every_local_link_leads_somewhere(parsed):
    assert sum(len(page.links) for page in parsed.values()) > 20
    assert broken_links(parsed) == []


def test_every_picture_has_words(parsed):
    assert images_without_words(parsed) == []


def test_every_picture_reserves_its_place(parsed):
    images = [image for page in parsed.values() for image in page.images]
    assert len(images) >= 1
    assert [i["src"] for i in images if "_images/" in i["src"] and not i.get("width")] == []


def test_no_page_loads_anything_from_another_host(parsed):
    loads = [
        address
        for page in parsed.values()
        for tag, address in page.links
        if tag in ("script", "link", "img", "iframe", "source") and "//" in address[:8]
    ]
    assert loads == []


def test_a_site_is_stale_once_a_source_is_younger(tmp_path):
    site, source = tmp_path / "_build" / "html", tmp_path / "book" / "page.md"
    for folder in (site, source.parent):
        folder.mkdir(parents=True)
    source.touch()
    assert is_stale(site, tmp_path)  # not built yet
    (site / "index.html").touch()
    os.utime(source, (0, 0))
    assert not is_stale(site, tmp_path)
    os.utime(source, (2**31, 2**31))
    assert is_stale(site, tmp_path)


def test_a_broken_link_and_a_wordless_picture_are_found(tmp_path):
    file = tmp_path / "page.html"
    file.write_text(
        '<a href="gone.html"><a href="#nowhere"><p id="here"><a href="#here">'
        '<img src="a.png" alt="../_images/a.png"><img src="b.png">',
        "utf-8",
    )
    parsed = {file: Page(file)}
    (tmp_path / "a.png").touch()
    (tmp_path / "b.png").touch()
    assert broken_links(parsed) == ["page.html: no file gone.html", "page.html: no anchor #nowhere"]
    assert len(images_without_words(parsed)) == 2
