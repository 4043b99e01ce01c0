"""Prose and code say the same: each symbol is in the glossary, each number comes out of a cell.

The glossary is the first column of the tables in book/notation.md. A symbol may carry any index of
the table "Indices" there: a row for $w_i$, or for $w$, covers $w_{ij}$. A number counts if it has
decimals or two digits, and is found if a cell's output or code has one that rounds to it. Both ask
for little: that no name and no number is invented. What they mean is for readers to judge.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

BOOK = Path(__file__).resolve().parents[1] / "book"
NOTEBOOKS = sorted(BOOK.glob("*.ipynb"))
PAGES = [*NOTEBOOKS, *(p for p in sorted(BOOK.glob("*.md")) if p.stem not in ("notation", "api"))]

# Symbols that live in one place of one chapter, which says there what they are.
LOCAL: dict[str, dict[str, str]] = {
    "multi_head": {
        "A": "which head holds how much of which neighbour, a table that is inverted",
        "a": "the number in a name, in an argument of three lines",
        "u": "a vector in the same argument",
        "\\alpha": "a share in the same argument",
        "\\beta": "the other share",
    },
    "positions": {
        "s": "the sine of the only hand, in the example by hand",
        "c": "its cosine",
    },
    "rnn_limits": {
        "H": "the width of the state that makes two layers work equally hard",
        "L": "the unknown of an exercise, a number of layers",
        "a": "a scan's factor, and a cell's part, in exercises that name it",
        "b": "the other part of the same exercises",
        "d": "the unknown of an exercise, a distance; a width in the table of costs",
        "f": "a gate without its step",
        "r": "a round of the scan",
        "z": "PyTorch's name for a gate, told beside ours",
    },
}

CONSTANTS = {"e", "\\pi", "O"}  # O(n): the order of growth
OPERATORS = set(
    r"""\frac \sqrt \sum \prod \cdot \cdots \ldots \dots \times \top \left \right \big
    \Big \quad \qquad \ln \log \exp \max \min \arg \sin \cos \tanh \in \le \leq \ge \geq
    \ne \neq \approx \sim \infty \to \mapsto \rightarrow \leftarrow \partial \nabla \odot
    \propto \lVert \rVert \Vert \vert \mid \lfloor \rfloor \lceil \rceil \pm \ll \gg \bmod
    \begin \end \cases \aligned \mathbb \Rightarrow \displaystyle \textstyle \underbrace
    \overbrace \limits \oplus \colon \lim \det \dfrac \tfrac""".split()
)
WORDS = r"\\(?:mathrm|text|operatorname|textbf|textit|mathit)\s*\{([^{}]*)\}"
ACCENTS = r"\\(?:bar|hat|tilde|vec|dot|mathbf|mathcal|boldsymbol|overline)(?![A-Za-z])"
GROUP = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"  # braces within braces within braces
ARGUMENT = rf"\s*(?:{GROUP}|{WORDS}|\\[A-Za-z]+|\S)"
ATOM = re.compile(
    rf"(?P<word>{WORDS})|(?P<accent>{ACCENTS}\s*(?:\{{[^{{}}]*\}}|\\[A-Za-z]+|\S))"
    r"|(?P<environment>\\(?:begin|end)\{\w+\*?\})|(?P<command>\\[A-Za-z]+)|(?P<letter>[A-Za-z])"
    r"|\\.|\S"
)
SCRIPT = re.compile(rf"\s*(?P<kind>[_^])(?P<what>{ARGUMENT})")
FENCE = re.compile(r"\s*(?P<mark>`{3,}|:{3,})(?P<rest>(?:\{(?P<name>[\w-]+)\})?(?P<title>.*?))\s*$")


# -------------------------------------------------------------------------------------- the text


def texts(path: Path) -> list[str]:
    """The prose of a page: Markdown without code, alternative texts and captions."""
    if path.suffix == ".md":
        return [without_code(path.read_text("utf-8"))]
    found = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            found.append(without_code(cell.source))
        shown = cell.metadata.get("mystnb", {})
        found.append(shown.get("image", {}).get("alt", ""))
        found.append(shown.get("figure", {}).get("caption", ""))
    return [text for text in found if text]


def without_code(text: str) -> str:
    """Drop fences of code, code within a line, roles such as citations, labels and addresses."""
    kept, fences = [], []
    for line in text.splitlines():
        fence = FENCE.match(line)
        if fence and fences and fence["mark"] == fences[-1]["mark"] and not fence["rest"]:
            kept.append("$$" * (fences.pop()["name"] == "math"))
        elif fences and (fences[-1]["name"] or "code").startswith("code"):
            continue
        elif fence:
            fences.append(fence)
            kept.append("$$" if fence["name"] == "math" else fence["title"] or "")
        elif not re.match(r"\s*:[\w-]+:|\([\w-]+\)=$", line):
            kept.append(line)
    text = re.sub(r"(\{[\w:]+\})?(`+)[^`]+\2", " ", "\n".join(kept))
    return re.sub(r"\]\([^)]*\)|<https?:[^>]*>|https?://\S+|<!--.*?-->", " ", text)


def formulas(text: str) -> list[str]:
    """What stands between dollars, one or two of them."""
    text = text.replace("\\$", "")
    found = re.findall(r"\$\$(.+?)\$\$|\$([^$\n](?:[^$\n]|\n(?!\n))*)\$", text, flags=re.S)
    return [a or b for a, b in found]


# ----------------------------------------------------------------------------------- the symbols


def symbols(latex: str) -> Iterator[tuple[str, str]]:
    """Each symbol of a formula and its subscript, as ("w", "ij") for w_{ij}."""
    place = 0
    while atom := ATOM.search(latex, place):
        place = atom.end()
        base = name_of(atom)
        subscript = ""
        while script := SCRIPT.match(latex, place):
            place = script.end()
            what = script["what"].strip()
            if script["kind"] == "_" and base:
                subscript = re.sub(r"[{}\s]|\\[,;!]", "", re.sub(WORDS, r"\1", what))
            elif what != "T":  # the transpose
                yield from symbols(what)
        if base:
            yield base, subscript


def name_of(atom: re.Match) -> str:
    """What a symbol is called, or nothing if it is an operator, a word or a bracket."""
    if atom["accent"]:
        return re.sub(r"\{\s*(.*?)\s*\}", r" \1", re.sub(r"\s+", " ", atom["accent"]))
    if atom["word"]:
        word = re.match(WORDS, atom["word"])[1]
        return word if len(word) == 1 else ""
    name = atom["command"] or atom["letter"] or ""
    return "" if name in OPERATORS | CONSTANTS else name


@cache
def glossary() -> tuple[frozenset, frozenset]:
    """The symbols of book/notation.md, with their subscripts, and those that are indices."""
    return read_glossary((BOOK / "notation.md").read_text("utf-8"))


def read_glossary(text: str) -> tuple[frozenset, frozenset]:
    known, indices = set(), set()
    for part in re.split(r"^#+ ", text, flags=re.M):
        rows = re.findall(r"^\|((?:[^|]|\\\|)*)\|", part, flags=re.M)
        here = {s for row in rows for latex in formulas(row) for s in symbols(latex)}
        known |= here
        if part.startswith("Indices"):
            indices |= {base for base, _ in here}
    with_index = {(base, "#") for base, sub in known if not sub or is_index(sub, indices)}
    return frozenset(known | with_index), frozenset(indices)


def is_index(subscript: str, indices: set | frozenset) -> bool:
    """Whether a subscript is made of indices alone, as ij, t-1 or 4 are."""
    return bool(subscript) and set(re.findall(r"\\[A-Za-z]+|[A-Za-z]", subscript)) <= indices


def is_known(symbol: tuple[str, str], known: frozenset, indices: frozenset) -> bool:
    base, subscript = symbol
    return symbol in known or (is_index(subscript, indices) and (base, "#") in known)


def unknown_symbols(path: Path, book: tuple[frozenset, frozenset] | None = None) -> set[str]:
    """The symbols of a page that are neither in the glossary nor local to it."""
    local = frozenset((name, mark) for name in LOCAL.get(path.stem, {}) for mark in ("", "#"))
    known, indices = book or glossary()
    found = {s for text in texts(path) for latex in formulas(text) for s in symbols(latex)}
    return {
        f"{base}_{subscript}" if subscript else base
        for base, subscript in found
        if not is_known((base, subscript), known | local, indices)
    }


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_symbol_is_in_the_glossary(path):
    assert unknown_symbols(path) == set(), "give it a row in book/notation.md"


@pytest.mark.parametrize("chapter", LOCAL)
def test_each_local_symbol_is_used(chapter):
    path = BOOK / f"{chapter}.ipynb"
    used = {s for text in texts(path) for latex in formulas(text) for s in symbols(latex)}
    assert set(LOCAL[chapter]) <= {base for base, _ in used}


# ----------------------------------------------------------------------------------- the numbers

# Numbers that tell when, where or how long, and so come out of no cell.
NO_CLAIM = re.compile(
    r"\b(?:sections?|chapters?|equations?|figures?|tables?|appendix|pages?|exercises?|versions?|"
    r"releases?|PyTorch|Python|§)\s*\d[\d.]*(?:(?:, | and | to )\d[\d.]*)*"
    r"|\b\d+(?:\s+to\s+\d+)?\s+(?:minutes?|hours?)\b"
    r"|\b(?:since|in|of|from|until|by|before|after)\s+(?:19\d\d|20[0-3]\d)\b(?![.,]?\d)"
    r"(?: to (?:19\d\d|20[0-3]\d)\b)?|\((?:19\d\d|20[0-3]\d)\)"
    r"|\band \d+ for the exercises",
    re.I,
)
THIN = "\u2009\u202f\u00a0"
NUMBER = re.compile(
    rf"(?<![\w.])(?<!\w-)\d+(?:[,{THIN}]\d{{3}})*(?:\.\d+)?(?:e-?\d+)?(?![\w]*-?\w*\d)"
)
IN_CODE = re.compile(r"(?<![A-Za-z_\d.])\d[\d_]*(?:\.\d*)?(?:e[-+]?\d+)?|(?<![\w])\.\d+")


def claims(text: str) -> Iterator[tuple[str, bool]]:
    """The numbers of a text that a cell must compute, and whether a percent sign follows."""
    text = NO_CLAIM.sub(" ", text).replace("{,}", ",").replace("\\,", THIN[0])
    for found in NUMBER.finditer(text):
        number = re.sub(rf"[,{THIN}]", "", found[0])
        if len(number) >= 2:
            rest = text[found.end() : found.end() + 3]
            yield number, re.match(r"\s?\\?%", rest) is not None


def numbers_of_cells(path: Path) -> list[float]:
    """Every number in the code of a notebook, without comments, and in its outputs."""
    found = []
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type != "code":
            continue
        found.append(re.sub(r"(?m)(?:^|\s)#\s.*$", "", cell.source))
        for output in cell.outputs:
            data = output.get("data", {})
            found += [output.get("text", ""), output.get("evalue", "")]
            found += [data.get("text/plain", ""), data.get("text/markdown", "")]
    return [float(n.replace("_", "")) for text in found for n in IN_CODE.findall(text)]


def is_computed(number: str, percent: bool, values: list[float]) -> bool:
    """Whether one of the values rounds to the number, as written or as a share of 1."""
    decimals = len(number.partition(".")[2]) if "e" not in number else 0
    stated, half = float(number), 0.5 * 10**-decimals
    if "e" in number:
        half = 0
    scales = (1, 100) if percent else (1,)
    return any(abs(v * s - stated) <= half * (1 + 1e-9) for v in values for s in scales)


def numbers_from_nowhere(path: Path) -> set[str]:
    """The numbers in the prose of a notebook that none of its cells has."""
    values = numbers_of_cells(path)
    found = {claim for text in texts(path) for claim in claims(text)}
    return {n + "%" * percent for n, percent in found if not is_computed(n, percent, values)}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_every_number_is_computed(path):
    assert numbers_from_nowhere(path) == set(), "let a cell print it, or leave it out"


# ----------------------------------------------------------------------------------- the minutes

PROMISED = re.compile(r"\*\*Time\*\* about \d+ minutes to read, and (\d+) for the exercises")
ASKED = re.compile(r"\*(?:Predict|Build|Break), (\d+) minutes\.\*")
WITH_TIMES = [path for path in NOTEBOOKS if PROMISED.search(path.read_text(encoding="utf-8"))]


def minutes_of_exercises(path: Path) -> tuple[int, int]:
    """What a chapter says at its head that its exercises take, and what they say themselves."""
    text = "\n".join(cell.source for cell in nbformat.read(path, as_version=4).cells)
    return int(PROMISED.search(text)[1]), sum(map(int, ASKED.findall(text)))


def test_each_chapter_with_exercises_names_its_minutes():
    asking = [path for path in NOTEBOOKS if ASKED.search(path.read_text(encoding="utf-8"))]
    assert len(asking) >= 10
    assert asking == WITH_TIMES


@pytest.mark.parametrize("path", WITH_TIMES, ids=lambda path: path.name)
def test_the_minutes_at_the_head_are_those_of_the_exercises(path):
    promised, asked = minutes_of_exercises(path)
    assert promised == 5 * round(asked / 5), "the sum of the exercises, to the nearest five"


# ---------------------------------------------------------------------- the twins: made-up pages


def page(folder: Path, prose: str, *, code: str = "", prints: str = "", alt: str = "") -> Path:
    """A notebook of one text and one cell, which prints something."""
    cell = new_code_cell(code, outputs=[new_output("stream", text=prints)])
    cell.metadata["mystnb"] = {"image": {"alt": alt}, "figure": {"caption": alt}}
    path = folder / "made_up.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell(prose), cell]), path)
    return path


GOOD = r"""
Here $w_{ij} = \mathrm{softmax}_j(q_i \cdot k_j / \sqrt{d_k})$, so $W_Q^\top$, `$\phi$`, \$5 pass.

$$ \frac{\partial w_i}{\partial q} = w_i (k_i - \bar{k}), \; d_{\mathrm{ff}}, e^{x_{i-1}} $$ (eq-a)

```{exercise} Build: 99 things
:label: ex-77
Take $n = 12$.
```

```python
phi = 98.7
```
"""


GLOSSARY = read_glossary(
    "| $w_i$, $q$ | weight |\n| $d_k$, $d_{ff}$, $W_Q$ | widths |\n| $x$, $k$, $\\bar k$ | |\n"
    "### Indices\n| $i$, $j$ | rows |\n| $n$ | the last |\n"
)


def test_a_good_page_has_no_unknown_symbol(tmp_path):
    assert unknown_symbols(page(tmp_path, GOOD, alt="over $d_k$"), GLOSSARY) == set()


@pytest.mark.parametrize(
    ("prose", "found"),
    [
        (r"the map $\phi(x)$", {r"\phi"}),
        ("$$ y = x $$ (eq-y)", {"y"}),
        ("```{exercise} Build\n:label: ex\nLet $g = 1$.\n```", {"g"}),
        ("```{math}\n:label: eq\ny\n```", {"y"}),
        ("| a table |\n|---|\n| $Z$ |", {"Z"}),
        ("bold $\\mathbf{q}$", {r"\mathbf q"}),
        ("a width $d_z$ and $W_Z$", {"d_z", "W_Z"}),
        ("no width alone: $d$", {"d"}),
        ("an index $w_{iz}$, a power $x^{y}$", {"w_iz", "y"}),
        ("a word without braces $d_model$", {"d_m", "o", "d", "l"}),
    ],
)
def test_an_unknown_symbol_is_found_wherever_it_stands(tmp_path, prose, found):
    assert unknown_symbols(page(tmp_path, GOOD + prose), GLOSSARY) == found


def test_an_unknown_symbol_in_a_caption_is_found(tmp_path):
    assert unknown_symbols(page(tmp_path, GOOD, alt=r"over $\phi$"), GLOSSARY) == {r"\phi"}


def test_the_glossary_is_the_first_column_of_its_tables():
    text = "| $a$ | $b$ |\n\ntext $c$\n\n### Indices\n\n| $i$, $j$ | rows |\n"
    known, indices = read_glossary(text)
    assert indices == {"i", "j"}
    assert {base for base, _ in known} == {"a", "i", "j"}


CODE = "steps = 250  # not 77\nscale = 1 / 8 ** 0.5\nlimit = 65_504"
PRINTS = "loss 0.4123, best 1964 of 2000\n0.368 0.0057 12800.0\n"
SAID = """In 2017 it took about 45 minutes (section 3.2.1), after 250 steps of GPT-2 in float16
{cite}`vaswani2017`: 0.41, 36.8 %, 37 %, 0.006, 65,504 and $12\\,800$. `0.99`"""


def test_a_page_that_computes_its_numbers_passes(tmp_path):
    assert numbers_from_nowhere(page(tmp_path, SAID, code=CODE, prints=PRINTS)) == set()


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("0.41,", "0.42,", "0.42"),
        ("250", "251", "251"),
        ("36.8 %", "36.9 %", "36.9%"),
        ("37 %", "36 %", "36%"),
        ("0.006", "0.0058", "0.0058"),
        ("65,504", "65,505", "65505"),
        ("12\\,800", "12\\,801", "12801"),
        ("GPT-2", "GPT of 77 layers", "77"),
        ("`0.99`", "0.99", "0.99"),
        ("In 2017", "With 2017 words", "2017"),
    ],
)
def test_a_number_from_nowhere_is_found(tmp_path, old, new, found):
    assert old in SAID
    said = SAID.replace(old, new)
    assert numbers_from_nowhere(page(tmp_path, said, code=CODE, prints=PRINTS)) == {found}


def test_a_number_in_a_caption_must_be_computed_too(tmp_path):
    path = page(tmp_path, SAID, code=CODE, prints=PRINTS, alt="a line that falls to 0.17")
    assert numbers_from_nowhere(path) == {"0.17"}


def test_minutes_that_have_moved_are_found(tmp_path):
    head = "**Time** about 40 minutes to read, and 25 for the exercises.\n\n"
    said = head + "*Predict, 5 minutes.* Why? *Build, 12 minutes.* How?"
    assert minutes_of_exercises(page(tmp_path, said)) == (25, 17)
