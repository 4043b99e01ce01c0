"""Cut each of KaTeX's two large fonts in two: the glyphs of this book's formulas, and the rest.

    python book/_ext/split_katex_fonts.py KATEX [SITE]

KATEX is the unpacked npm package, of the version that ``book/_static/katex/README.md`` names; SITE
is the built site, ``_build/html`` if left out. The stylesheet says which characters lie in which
part, so a browser loads what a page needs, and a formula with a glyph that is new to the book is
drawn right, too: its page loads the rest as well. Run it again then, and the page is light again.
To read and write a woff2, fontTools needs the package ``brotli``.
"""

import re
import string
import sys
from collections.abc import Iterable
from html import unescape
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "book" / "_static" / "katex"
SPLIT = ["KaTeX_Main-Regular", "KaTeX_Math-Italic"]  # on nearly every page
# Likely in the next formula; and a line is as high as the font with the space says.
ALWAYS = {*string.ascii_letters, *string.digits, *" ()[]{}|/<=>+,.:;!\u2212"}
PIECE = re.compile(r"<(/?)(?:span|svg)\b[^>]*>|<[^>]*>|[^<]+")


def drawn_characters(pages: Iterable[str]) -> set[str]:
    """The characters that KaTeX's HTML draws in these pages, without its MathML.

    >>> page = '<p>no<span class="katex-html"><span>x</span>+&lt;</span>no</p>'
    >>> sorted(drawn_characters([page]))
    ['+', '<', 'x']
    """
    found = set()
    for page in pages:
        for formula in re.finditer(r'<span class="katex-html"[^>]*>', page):
            depth = 1
            for piece in PIECE.finditer(page, formula.end()):
                if piece.group(1) is not None:
                    depth += -1 if piece.group(1) else 1
                elif not piece.group().startswith("<"):
                    found.update(unescape(piece.group()))
                if depth == 0:
                    break
    return found


def split(font: Path, used: set[str], folder: Path) -> tuple[str, str]:
    """Write two fonts, ``-Book`` and ``-Rest``; return their ranges as a stylesheet has them."""
    has = set(TTFont(font).getBestCmap())
    ranges = []
    for name, codes in {
        "Book": has & {ord(c) for c in used},
        "Rest": has - {ord(c) for c in used},
    }.items():
        cut = TTFont(font)
        options = subset.Options(layout_features=["*"], flavor="woff2", name_IDs=["*"])
        options.recalc_timestamp = False  # the same bytes each time
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=codes)
        cutter.subset(cut)
        cut.flavor = "woff2"
        cut.save(folder / f"{font.stem}-{name}.woff2")
        ranges.append(as_ranges(codes))
    return tuple(ranges)


def as_ranges(codes: Iterable[int]) -> str:
    """Write code points as the ``unicode-range`` of a stylesheet.

    >>> as_ranges([0x41, 0x42, 0x43, 0x3B1])
    'U+41-43,U+3B1'
    """
    runs: list[list[int]] = []
    for code in sorted(codes):
        if runs and code == runs[-1][1] + 1:
            runs[-1][1] = code
        else:
            runs.append([code, code])
    return ",".join(f"U+{a:X}" if a == b else f"U+{a:X}-{b:X}" for a, b in runs)


def main(katex: Path, site: Path) -> None:
    """Write the fonts into the book's copy of KaTeX, and their ranges into its stylesheet."""
    used = ALWAYS | drawn_characters(page.read_text("utf-8") for page in site.rglob("*.html"))
    css = KEPT / "katex.min.css"
    text = css.read_text("utf-8")
    for name in SPLIT:
        for old in (KEPT / "fonts").glob(f"{name}*.woff2"):
            old.unlink()
        ranges = split(katex / "dist" / "fonts" / f"{name}.woff2", used, KEPT / "fonts")
        rules = re.findall(rf"@font-face\{{[^}}]*{name}[.-][^}}]*\}}", text)
        whole = re.sub(rf"{name}(-Book|-Rest)?\.", f"{name}.", rules[0])
        whole = re.sub(r";unicode-range:[^}]*", "", whole)
        parts = "".join(
            whole.replace(f"{name}.", f"{name}-{part}.")[:-1] + f";unicode-range:{codes}}}"
            for part, codes in zip(("Book", "Rest"), ranges, strict=True)
        )
        text = text.replace("".join(rules), parts)
    css.write_text(text, "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]) if sys.argv[2:] else ROOT / "_build" / "html")
