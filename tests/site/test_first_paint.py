"""Nothing holds up the first paint: before the text, one stylesheet and no script to wait for."""

import re

import pytest
from built_site import pages

INLINE = 1000  # bytes of script in the page that may run before it is painted: the colours


def holds_up(page: str) -> list[str]:
    """Return the tags that a browser waits for before it paints the text of a page."""
    head = page.split("<main")[0]
    waits = [tag for tag in re.findall(r"<script[^>]*\ssrc=[^>]*>", head) if not _waits_not(tag)]
    sheets = re.findall(r"<link[^>]*stylesheet[^>]*>", head)
    waits += [tag for tag in sheets if not re.search(r'href="[./]*_static/book\.css', tag)]
    inline = re.findall(r"<script>(.*?)</script>", head, re.DOTALL)
    return waits + sheets[1:] + [code for code in inline if len(code) > INLINE]


def _waits_not(tag: str) -> bool:
    return bool(re.search(r'\s(defer|async|type="(module|application/[^"]*json)")', tag))


@pytest.mark.parametrize("name", pages())
def test_the_first_paint_waits_for_one_stylesheet_alone(site, name):
    assert holds_up((site / name).read_text("utf-8")) == []


def test_what_holds_up_the_first_paint_is_found():
    bad = [
        '<script src="a.js">',
        '<link rel="stylesheet" href="https://fonts.example/a.css">',
        "<script>" + "x;" * 600 + "</script>",
    ]
    good = '<link rel="stylesheet" href="../_static/book.css"><script defer src="b.js"></script>'
    found = holds_up(good + "".join(bad) + '<main><script src="late.js">')
    assert len(found) == 4  # the foreign stylesheet is also the second one
    assert holds_up(good + "<main>") == []


def test_text_is_read_before_its_font_is_there(site):
    faces = re.findall(r"@font-face\{[^}]*\}", (site / "_static" / "book.css").read_text("utf-8"))
    assert len(faces) > 10
    assert [face for face in faces if "font-display:swap" not in face.replace(" ", "")] == []
