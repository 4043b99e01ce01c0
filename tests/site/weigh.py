"""Weigh the first load of each page, compressed, over the wire: a table of what it is spent on.

    python tests/site/weigh.py         print it
    python tests/site/weigh.py --write also keep it in tests/bench/site_bytes.md

The sizes are those of gzip at level 6, as a web server sends them; fonts and pictures are sent as
they are. What a page loads is what a real browser asked for with an empty cache. A reader who
comes from another page of the book pays only for what is new: the last column.
"""

import gzip
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from built_site import ROOT, build, is_stale, pages, served

TABLE = ROOT / "tests" / "bench" / "site_bytes.md"
COMPRESSED = {".html", ".css", ".js", ".svg", ".json", ".txt"}


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
    names = {".html": "page", ".css": "stylesheet", ".js": "scripts", ".woff2": "fonts"}
    return names.get(file.suffix, "pictures")


def table(loads: dict[str, dict[Path, int]]) -> str:
    """Return the table, one line a page, in Markdown."""
    columns = ["page", "stylesheet", "scripts", "fonts", "pictures"]
    head = f"| address | {' | '.join(columns)} | **first load** | from the page before |\n"
    lines, seen = [head + "|---|" + "---:|" * (len(columns) + 2)], set()
    for address, files in loads.items():
        parts = [sum(n for f, n in files.items() if kind(f) == column) for column in columns]
        new = sum(n for file, n in files.items() if file not in seen)
        seen.update(files)
        cells = " | ".join(f"{n / 1000:.1f}" for n in parts)
        lines.append(f"| {address} | {cells} | **{sum(parts) / 1000:.1f}** | {new / 1000:.1f} |")
    return "\n".join(lines)


def main() -> int:
    """Build the site if it is stale, load every page, print the table."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import ARGUMENTS, HOW_TO_GET_ONE, find_chromium
    from look import settle, watch
    from playwright.sync_api import sync_playwright

    site = ROOT / "_build" / "html"
    if find_chromium() is None:
        print(HOW_TO_GET_ONE, file=sys.stderr)
        return 1
    if is_stale(site) and (process := build()).returncode:
        print(process.stdout, process.stderr, file=sys.stderr)
        return 1
    loads = {}
    with served(site) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        for name in pages():
            page = chromium.new_context().new_page()
            seen = watch(page, address)
            page.goto(address + name, wait_until="load")
            settle(page)
            loads[name] = files_of(seen.requests, address, site)
        chromium.close()
    text = f"# What a page costs\n\nIn kB (1000 bytes) over the wire.\n\n{table(loads)}\n"
    print(text)
    if "--write" in sys.argv:
        TABLE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
