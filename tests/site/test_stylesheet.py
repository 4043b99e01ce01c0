"""The stylesheet that is joined and thinned out when the site is built."""

import doctest
import importlib
import re
import sys

import pytest
from built_site import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
from one_stylesheet import Rule, lean, parse

WORDS = {"seen", "open", "box", "--from-script"}
EXTENSIONS = (ROOT / "book" / "_ext").glob("*.py")
WITH_EXAMPLES = sorted(f.stem for f in EXTENSIONS if ">>> " in f.read_text("utf-8"))


def test_rules_are_split_at_outer_braces_only():
    css = 'a{b:c}@media print{i{j:"}"}k{l:m}}@import "x.css";n{o:p}'
    assert parse(css) == [
        Rule("a", "b:c"),
        Rule("@media print", 'i{j:"}"}k{l:m}'),
        Rule('@import "x.css"', None),
        Rule("n", "o:p"),
    ]


def test_a_selector_stays_if_all_its_names_occur():
    assert lean(".seen .box{a:b}", WORDS) == ".seen .box{a:b}\n"
    assert lean(".seen .gone{a:b}", WORDS) == "\n"
    assert lean(".gone,.seen,p#box{a:b}", WORDS) == ".seen,p#box{a:b}\n"
    assert lean("p,:not(.gone){a:b}", WORDS) == "p,:not(.gone){a:b}\n"
    assert lean(":is(.gone,.seen) i{a:b}", WORDS) == ":is(.gone,.seen) i{a:b}\n"
    assert lean("[class*=fa-] i{a:b}", WORDS) == "[class*=fa-] i{a:b}\n"


def test_a_media_query_stays_with_what_is_used_in_it():
    assert lean("@media print{.seen{a:b}.gone{c:d}}", WORDS) == "@media print{.seen{a:b}}\n"
    assert lean("@media print{.gone{c:d}}", WORDS) == "\n"


def test_a_variable_stays_if_it_is_read():
    css = "html{--used:1;--unused:2;--by-unused:var(--unused);--from-script:3;a:b}p{c:var(--used)}"
    assert lean(css, WORDS) == "html{--used:1;--from-script:3;a:b}\np{c:var(--used)}\n"


def test_a_variable_that_holds_a_picture_is_dropped_whole():
    css = 'html{--unused:url("data:image/svg+xml;utf8,<svg>;</svg>");a:b}'
    assert lean(css, WORDS) == "html{a:b}\n"


def test_icon_fonts_imports_and_comments_go():
    css = '@import "x";/* a{b:c} */@font-face{font-family:Font Awesome\\ 6 Free;src:url(a)}'
    assert lean(css + "@font-face{font-family:KaTeX_Main}", WORDS) == (
        "@font-face{font-display:swap;font-family:KaTeX_Main}\n"
    )
    own = "@font-face{font-display:block;font-family:Own}\n"
    assert lean(own, WORDS) == own


def test_the_built_stylesheet_finds_all_its_fonts(site):
    css = (site / "_static" / "book.css").read_text("utf-8")
    fonts = re.findall(r"url\(([^)\"']+)\)", css)
    assert len(fonts) >= 15
    assert [font for font in fonts if not (site / "_static" / font).is_file()] == []


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_examples_of_an_extension_are_right(name):
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert (failed, tried > 0) == (0, True)
