"""What each page of the built site costs its reader, and what Lighthouse and axe say of it.

    python tests/site/report.py               all pages; prints the tables
    python tests/site/report.py PAGE ...      some pages, such as book/qkv.html
    python tests/site/report.py --write       also keep the tables in tests/bench/site.md

It needs chromium and, the first time, the network: Lighthouse comes from npm. The times depend on
what else this machine does; the rest does not.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import lighthouse
from built_site import ROOT, build, is_stale, pages, served
from look import Look, look_at
from weigh import files_of, table

TABLES = ROOT / "tests" / "bench" / "site.md"
SLOWER = 4  # times, the processor for the labs, as Lighthouse takes it for a phone
LEAST = {"performance": 95, "accessibility": 100, "best-practices": 100, "seo": 100}
TEXT = """\
# What a page costs, and whom it serves

Written by `python tests/site/report.py --write`.

## Bytes

In kB (1000 bytes) over the wire, compressed. The first load is that of a reader who comes from
elsewhere; the last column that of one who has read the pages above it, to the end.

{bytes}

## Lighthouse, axe and the labs

Lighthouse {version} in its mobile profile: a slow line, and a processor {slower} times slower.
LCP is when the largest thing has been painted, TBT how long the page did not listen, CLS how far
things jumped. axe looks at each page with all that opens open, in light, in dark and on a phone:
the number is that of its complaints. The last column is the time from the load of the page until
its labs can be used, on a processor {slower} times slower.

{quality}
"""

# When the page is parsed, its scripts have not yet run.
WAIT_FOR_LABS = """window.ready = new Promise((done) => {
  document.addEventListener("readystatechange", () => {
    const root = document.documentElement;
    new MutationObserver(() => root.dataset.hydrated && done(performance.now()))
      .observe(root, { attributeFilter: ["data-hydrated"] });
  }, { once: true });
});"""
TIME_OF_LABS = """async () => {
  if (!document.getElementById("labs")) return null;
  const ready = await window.ready;
  return ready - performance.getEntriesByType("navigation")[0].loadEventEnd;
}"""


@dataclass
class Quality:
    """What was found on one page."""

    verdict: lighthouse.Verdict
    axe: int
    labs: float | None  # ms after the load; None without labs

    def short(self) -> list[str]:
        """Say where the page falls short."""
        scores = self.verdict.scores
        low = [f"{name} {scores[name]}" for name, least in LEAST.items() if scores[name] < least]
        late = ["labs late"] if self.labs is not None and self.labs > 1000 else []
        jumps = ["jumps"] if self.verdict.times["CLS"] >= 0.05 else []
        return [*low, *jumps, *late, *(["axe"] if self.axe else []), *self.verdict.short]


def time_of_labs(browser, url: str) -> float | None:
    """Return how many ms after its load a page's labs are up, on a slow processor."""
    page = browser.new_page()
    try:
        devtools = page.context.new_cdp_session(page)
        devtools.send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
        page.add_init_script(WAIT_FOR_LABS)
        page.goto(url, wait_until="load")
        time = page.evaluate(TIME_OF_LABS)
        return None if time is None else max(0.0, time)
    finally:
        page.close()


def quality_table(found: dict[str, Quality]) -> str:
    """Return the table in Markdown."""
    names = [*lighthouse.CATEGORIES, "LCP s", "TBT ms", "CLS", "axe", "labs ms"]
    lines = [f"| address | {' | '.join(names)} |", "|---|" + "---:|" * len(names)]
    for address, quality in found.items():
        times = quality.verdict.times
        cells = [
            *(str(quality.verdict.scores[name]) for name in lighthouse.CATEGORIES),
            f"{times['LCP'] / 1000:.1f}",
            f"{times['TBT']:.0f}",
            f"{times['CLS']:.3f}",
            str(quality.axe),
            "" if quality.labs is None else f"{quality.labs:.0f}",
        ]
        lines.append(f"| {address} | {' | '.join(cells)} |")
    return "\n".join(lines)


def report(browser, program: str, site: Path, names: list[str]) -> tuple[str, dict[str, Quality]]:
    """Look at pages; return the text of the tables, and what was found."""
    loads, found = {}, {}
    with served(site) as address:
        for name in names:
            look: Look = look_at(browser, address, name)
            files = [files_of(asked, address, site) for asked in (look.first_load, look.requests)]
            loads[name] = tuple(files)
            found[name] = Quality(
                verdict=lighthouse.examine(address + name, program),
                axe=sum(map(len, look.axe.values())),
                labs=time_of_labs(browser, address + name),
            )
            print(name, found[name].verdict.scores, found[name].short(), file=sys.stderr)
    tables = {"bytes": table(loads), "quality": quality_table(found)}
    return TEXT.format(version=lighthouse.VERSION, slower=SLOWER, **tables), found


def main() -> int:
    """Build the site if it is stale, look at every page, print the tables."""
    sys.path.insert(0, str(ROOT / "tests"))
    from browser import HOW_TO_GET_ONE, chromium, find_chromium

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", default=pages())
    parser.add_argument("--write", action="store_true", help=f"keep the tables in {TABLES.name}")
    options = parser.parse_args()
    site, program = ROOT / "_build" / "html", find_chromium()
    if program is None:
        print(HOW_TO_GET_ONE, file=sys.stderr)
        return 1
    if is_stale(site) and (process := build()).returncode:
        print(process.stdout, process.stderr, file=sys.stderr)
        return 1
    lighthouse.install()
    with chromium(program) as browser:
        text, found = report(browser, program, site, options.pages)
    print(text)
    if options.write:
        TABLES.write_text(text, "utf-8")
    return int(any(quality.short() for quality in found.values()))


if __name__ == "__main__":
    sys.exit(main())
