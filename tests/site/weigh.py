"""Weigh the first load of each page, compressed, over the wire: a table of what it is spent on.

The sizes are those of gzip at level 6, as a web server sends them; fonts and pictures are sent as
they are. What a page loads is what a real browser asked for with an empty cache. Pictures further
down are loaded when the reader comes near them: "read to the end" counts them too. A reader who
comes from another page of the book pays only for what is new: the last column.
"""

import functools
import gzip
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from built_site import COMPRESSED


@functools.cache  # the stylesheet is asked for by every page
def wire_bytes(file: Path) -> int:
    """Return what a file costs over the wire."""
    data = file.read_bytes()
    return len(gzip.compress(data, 6)) if file.suffix in COMPRESSED else len(data)


def files_of(requests: Iterable[str], address: str, site: Path) -> dict[Path, int]:
    """Return the files that a page asked for and what each costs."""
    names = [unquote(urlsplit(url).path).lstrip("/") for url in requests if url.startswith(address)]
    return {site / name: wire_bytes(site / name) for name in names if (site / name).is_file()}


def kind(file: Path) -> str:
    """Return the column of the table that a file belongs to."""
    names = {
        ".html": "page",
        ".css": "stylesheet",
        ".js": "scripts",
        ".woff2": "fonts",
        ".ttf": "fonts",
    }
    return names.get(file.suffix, "pictures")


def table(loads: dict[str, tuple[dict[Path, int], dict[Path, int]]]) -> str:
    """Return the table in Markdown; each page brings its first load and what it loads in all."""
    columns = ["page", "stylesheet", "scripts", "fonts", "pictures"]
    totals = ["**first load**", "read to the end", "of it new after the page before"]
    lines = [f"| address | {' | '.join(columns + totals)} |"]
    lines.append("|---|" + "---:|" * (len(columns) + len(totals)))
    seen: set[Path] = set()
    for address, (first, whole) in loads.items():
        parts = [sum(n for f, n in first.items() if kind(f) == column) for column in columns]
        new = sum(n for file, n in whole.items() if file not in seen)
        seen.update(whole)
        sizes = [*parts, sum(parts), sum(whole.values()), new]
        lines.append(f"| {address} | " + " | ".join(f"{n / 1000:.1f}" for n in sizes) + " |")
    return "\n".join(lines)
