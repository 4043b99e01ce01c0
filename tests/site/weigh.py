"""Weigh the first load of each page, compressed, over the wire: a table of what it is spent on.

    python tests/site/weigh.py         print it
    python tests/site/weigh.py --write also keep it in tests/bench/site_bytes.md

The sizes are those of gzip at level 6, as a web server sends them; fonts and pictures are sent as
they are. What a page loads is what a real browser asked for with an empty cache. Pictures further
down are loaded when the reader comes near them: "read to the end" counts them too. A reader who
comes from another page of the book pays only for what is new: the last column.
"""

import gzip
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote, urlsplit

from built_site import ROOT, build, is_stale, pages, served
from look import settle, watch

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


def load(chromium, address: str, name: str, site: Path) -> tuple[dict[Path, int], dict[Path, int]]:
    """Return what a page loads at first, and what it has loaded when it was read to the end."""
    page = chromium.new_context(viewport={"width": 1280, "height": 900}).new_page()
    seen = watch(page, address)
    page.goto(address + name, wait_until="networkidle")
    settle(page)
    first = files_of(seen.requests, address, site)
    page.evaluate(READ_TO_THE_END)
    whole = files_of(seen.requests, address, site)
    page.context.close()
    return first, whole


# A picture that is not shown, such as the still of a lab that is up, is not waited for.
READ_TO_THE_END = """async () => {
  for (let y = 0; y < document.body.scrollHeight; y += 500) {
    scrollTo(0, y);
    await new Promise((done) => requestAnimationFrame(done));
  }
  const shown = [...document.images].filter((image) => image.checkVisibility());
  await Promise.all(shown.map((image) => image.decode()));
}"""


def main() -> int:
    """Build the site if it is stale, load every page, print the table."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import ARGUMENTS, HOW_TO_GET_ONE, find_chromium
    from playwright.sync_api import sync_playwright

    site = ROOT / "_build" / "html"
    if find_chromium() is None:
        print(HOW_TO_GET_ONE, file=sys.stderr)
        return 1
    if is_stale(site) and (process := build()).returncode:
        print(process.stdout, process.stderr, file=sys.stderr)
        return 1
    with served(site) as address, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        loads = {name: load(chromium, address, name, site) for name in pages()}
        chromium.close()
    text = f"# What a page costs\n\nIn kB (1000 bytes) over the wire.\n\n{table(loads)}\n"
    print(text)
    if "--write" in sys.argv:
        TABLE.write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
