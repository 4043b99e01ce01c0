"""Write one stylesheet for the whole site that holds only the rules its pages use.

The theme, the extensions and this book bring a dozen stylesheets, 500 kB in all; the pages use a
tenth of it. When the pages are written, the stylesheets are joined, and a selector stays only if
every class and id in it occurs somewhere in the pages or scripts of the site.
"""

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from sphinx.application import Sphinx

NAME = "book.css"
FIRST = ["basic.css", "styles/pydata-sphinx-theme.css"]  # the theme links these by itself
LAST = ["icons.css", "site.css", "print.css"]  # ours have the last word
# Theme files that no page asks for once the templates of light_theme.py are in use.
UNUSED = ["vendor", "scripts", "styles", "locales", "webpack-macros.html", "sphinx-book-theme.css"]

HOLDS_RULES = ("@media", "@supports", "@container", "@layer")


class Rule(NamedTuple):
    """One rule: what stands before the brace and what stands inside; None for ``@import``."""

    prelude: str
    body: str | None


def setup(app: Sphinx) -> dict[str, bool]:
    """Name the stylesheet on each page; write it when all pages are there."""
    app.connect("html-page-context", _name_it, priority=900)
    app.connect("build-finished", _write_it, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _name_it(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    context["one_stylesheet"] = NAME


def _write_it(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    static = Path(app.outdir, "_static")
    if not (static / FIRST[0]).exists():
        return  # no page has changed, so Sphinx has copied nothing, and book.css is still right
    names = [*FIRST, *_linked(app, static), *LAST]
    css = "\n".join(_with_moved_urls(static, name) for name in dict.fromkeys(names))
    site = _words_of_the_site(Path(app.outdir))
    (static / NAME).write_text(lean(css, site), "utf-8")
    for name in [*UNUSED, *(n for n in names if n not in LAST and "/" not in n)]:
        path = static / name
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def _linked(app: Sphinx, static: Path) -> Iterator[str]:
    """Yield the stylesheets that Sphinx would link, in their order."""
    for sheet in sorted(app.builder.css_files, key=lambda sheet: sheet.priority):
        name = str(sheet.filename).removeprefix("_static/").split("?")[0]
        if (static / name).is_file():
            yield name


def _with_moved_urls(static: Path, name: str) -> str:
    """Read a stylesheet; make its relative addresses right for a file in ``_static``."""
    css = (static / name).read_text("utf-8")
    folder = Path(name).parent.as_posix()
    if folder == ".":
        return css
    return re.sub(r"url\((?!data:|[\"'])([^)]+)\)", rf"url({folder}/\1)", css)


def _words_of_the_site(outdir: Path) -> set[str]:
    """Return every word of the pages and of our scripts: a class that is used is one of them."""
    files = [*outdir.rglob("*.html"), *outdir.glob("_static/*.js"), *outdir.glob("_static/labs/*")]
    words: set[str] = set()
    for file in files:
        words.update(re.findall(r"[\w-]+", file.read_text("utf-8")))
    return words


# ------------------------------------------------------------------------------- the stylesheet


def lean(css: str, words: set[str]) -> str:
    """Return ``css`` without comments, unused selectors, unused variables and icon fonts.

    Args:
        css: a stylesheet.
        words: the names that may occur as class or id.

    Returns:
        The stylesheet with one rule a line.
    """
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    lines = list(_used(parse(css), words))
    while True:  # a variable may be used only by a variable that is not used itself
        text = "\n".join(lines)
        used = set(re.findall(r"var\(\s*(--[\w-]+)", text)) | {w for w in words if w[:2] == "--"}
        kept = [_without_variables(line, used) for line in lines]
        if kept == lines:
            return "\n".join(line for line in kept if not line.endswith("{}")) + "\n"
        lines = kept


def parse(css: str) -> list[Rule]:
    """Split a stylesheet without comments into its outer rules.

    >>> parse("a{b:c}@media print{i{j:k}}")
    [Rule(prelude='a', body='b:c'), Rule(prelude='@media print', body='i{j:k}')]
    """
    rules, start, depth, opened, quote = [], 0, 0, 0, ""
    for i, character in enumerate(css):
        if quote:
            if character == quote and css[i - 1] != "\\":
                quote = ""
        elif character in "\"'":
            quote = character
        elif character == "{":
            opened = i if depth == 0 else opened
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                rules.append(Rule(css[start:opened].strip(), css[opened + 1 : i].strip()))
                start = i + 1
        elif character == ";" and depth == 0 and css[start:i].lstrip().startswith("@"):
            rules.append(Rule(css[start:i].strip(), None))
            start = i + 1
    return rules


def _used(rules: Iterable[Rule], words: set[str]) -> Iterator[str]:
    for prelude, body in rules:
        if body is None:
            continue  # @charset and @import: all that is imported is in the list above
        elif prelude.startswith(HOLDS_RULES):
            inner = list(_used(parse(body), words))
            if inner:
                yield from (f"{prelude}{{{line}}}" for line in inner)
        elif prelude.startswith("@font-face"):
            if "Font Awesome" not in body.replace("\\", ""):
                swap = "" if "font-display" in body else "font-display:swap;"
                yield f"{prelude}{{{swap}{body}}}"  # text is read before its font is there
        elif prelude.startswith("@"):
            yield f"{prelude}{{{body}}}"
        else:
            selectors = [s for s in _split(prelude) if _names(s) <= words]
            if selectors:
                yield f"{','.join(selectors)}{{{_squeeze(body)}}}"


def _split(selectors: str) -> list[str]:
    """Split at the commas that are in no bracket."""
    parts = re.split(r",(?![^(\[]*[)\]])", selectors)
    return [" ".join(part.split()) for part in parts]


def _names(selector: str) -> set[str]:
    """Return the classes and ids that an element must have; ``:not(.a)`` asks for none."""
    plain = re.sub(r"\((?:[^()]|\([^()]*\))*\)|\[[^\]]*\]", "", selector)
    return {name.replace("\\", "") for name in re.findall(r"[.#]((?:\\.|[\w-])+)", plain)}


def _squeeze(body: str) -> str:
    return re.sub(r"\s*\n\s*", "", body).rstrip(";")


def _without_variables(line: str, used: set[str]) -> str:
    """Drop the declarations of variables that nobody reads."""
    return re.sub(
        r"(?<=[{;])(--[\w-]+):(?:[^;{}\"']|\"[^\"]*\"|'[^']*')*(?:;|(?=}))",
        lambda match: match.group() if match.group(1) in used else "",
        line,
    )
