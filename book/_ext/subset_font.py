"""Cut from a Chinese font the characters that this book draws, and no others.

    python book/_ext/subset_font.py FONT

FONT is any font under the SIL Open Font License with the characters. The one that is kept was cut
from ``noto-sans-sc-chinese-simplified-400-normal.woff2`` of the npm package
``@fontsource/noto-sans-sc`` 5.3.0 (to read a woff2, fontTools needs the package ``brotli``). It
has a name of its own, so that nobody takes it for the whole font. Figures use it through
``attnlib.plot``, pages through ``site.css``; a test says when a character is missing.
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from fontTools import subset
from fontTools.ttLib import TTFont

ROOT = Path(__file__).resolve().parents[2]
HAN = ROOT / "attnlib" / "fonts" / "han.ttf"
HAN_GLOSSARY = ROOT / "book" / "_static" / "han_glossary.ttf"
NAME = "Attention Han"
CHINESE = re.compile(r"[\u2e80-\u9fff\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef]")
KEPT_NAMES = [0, 1, 2, 3, 4, 6, 13, 14]  # copyright, the names themselves, licence


def characters(root: Path = ROOT) -> str:
    """The Chinese characters of the package and of all pages but the glossary, each once."""
    files = [*root.glob("book/*.ipynb"), *root.glob("book/*.md"), *root.glob("attnlib/**/*.py")]
    return _in_files(f for f in files if f.name != "glossary.md")


def characters_of_the_glossary(root: Path = ROOT) -> str:
    """The Chinese characters that only the glossary has, each once."""
    others = characters(root)
    return "".join(c for c in _in_files([root / "book" / "glossary.md"]) if c not in others)


def _in_files(files: Iterable[Path]) -> str:
    return "".join(sorted({c for f in files for c in CHINESE.findall(f.read_text("utf-8"))}))


def cut(source: Path, goal: Path, text: Iterable[str], name: str = NAME) -> None:
    """Write those characters of a font to a new font, which gets a name of its own.

    Raises:
        ValueError: If the font lacks one of them.
    """
    font = TTFont(source)
    missing = "".join(c for c in text if ord(c) not in font.getBestCmap())
    if missing:
        raise ValueError(f"{source.name} has no glyph for {missing}; take another font")
    options = subset.Options(layout_features=[], hinting=False, name_IDs=KEPT_NAMES)
    options.drop_tables += ["BASE", "STAT", "vhea", "vmtx"]  # for upright lines and other weights
    options.recalc_timestamp = False  # the same bytes each time
    cutter = subset.Subsetter(options)
    cutter.populate(text="".join(text))
    cutter.subset(font)
    for number, words in {
        1: name,
        2: "Regular",
        3: name,
        4: name,
        6: name.replace(" ", ""),
    }.items():
        font["name"].setName(words, number, 3, 1, 0x409)  # Windows, Unicode, English
    licence = "SIL Open Font License, Version 1.1, in OFL.txt beside this file"
    font["name"].setName(licence, 13, 3, 1, 0x409)
    font.flavor = None
    font.save(goal)


if __name__ == "__main__":
    cut(Path(sys.argv[1]), HAN, characters())
    cut(Path(sys.argv[1]), HAN_GLOSSARY, characters_of_the_glossary(), f"{NAME} Glossary")
    for path in (HAN, HAN_GLOSSARY):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes")
