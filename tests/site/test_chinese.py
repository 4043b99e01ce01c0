"""Chinese without empty boxes, on machines that have no font for it."""

import sys
from pathlib import Path

import pytest
from built_site import ROOT, pages
from fontTools.ttLib import TTFont

sys.path.insert(0, str(ROOT / "book" / "_ext"))
from subset_font import (
    CHINESE,
    HAN,
    HAN_GLOSSARY,
    NAME,
    characters,
    characters_of_the_glossary,
    cut,
)

HAS_LOADED = f"[...document.fonts].filter(f => f.family.includes('{NAME}')).map(f => f.status)"


def glyphs(path: Path) -> set[str]:
    """The characters for which a font has a shape, and not an empty one."""
    font = TTFont(path)
    return {
        chr(code)
        for code, name in font.getBestCmap().items()
        if font["glyf"][name].numberOfContours != 0
    }


def test_the_font_has_every_chinese_character_of_the_book():
    missing = set(characters()) - glyphs(HAN)
    missing |= set(characters_of_the_glossary()) - glyphs(HAN_GLOSSARY)
    assert not missing, "cut the fonts anew: book/_ext/subset_font.py says how"
    assert HAN.stat().st_size < 40_000
    assert "Open Font License" in HAN.with_name("OFL.txt").read_text("utf-8")


def test_the_font_is_cut_to_what_is_asked_for(tmp_path):
    cut(HAN, tmp_path / "small.ttf", "我们")
    assert glyphs(tmp_path / "small.ttf") == {"我", "们"}
    assert TTFont(tmp_path / "small.ttf")["name"].getDebugName(1) == NAME


def test_a_character_that_the_source_lacks_is_named(tmp_path):
    with pytest.raises(ValueError, match="no glyph for 龘; take another font"):
        cut(HAN, tmp_path / "small.ttf", "我龘")


def test_only_what_is_chinese_counts(tmp_path):
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "a.md").write_text("xuéxí 学习，学 ½ → π", "utf-8")
    (tmp_path / "book" / "glossary.md").write_text("学: 头", "utf-8")
    assert characters(tmp_path) == "习学，"
    assert characters_of_the_glossary(tmp_path) == "头"


def test_a_page_loads_the_font_if_it_has_chinese_and_only_then(browser, address, site):
    context = browser.new_context()
    opened = context.new_page()
    for page, needs in (("book/cross.html", True), ("book/qkv.html", False)):
        assert page in pages()
        assert bool(CHINESE.search((site / page).read_text("utf-8"))) == needs
        opened.goto(address + page, wait_until="load")
        opened.evaluate("document.fonts.ready.then(() => 0)")
        # the second font is the glossary's
        assert opened.evaluate(HAS_LOADED) == ["loaded" if needs else "unloaded", "unloaded"]
    context.close()
