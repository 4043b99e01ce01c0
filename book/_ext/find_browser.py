"""Where a chromium is: the tests look at pages in it, and the book is printed with it."""

import os
import shutil

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",  # no request but ours, so that a test can count requests
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
HOW_TO_GET_ONE = (
    "no chromium found: install one (Debian, Ubuntu: apt-get install chromium) "
    "or set CHROMIUM to the path of a chromium or chrome"
)


def find_chromium() -> str | None:
    """Return the browser named by ``CHROMIUM``, else the first one on ``PATH``, else None."""
    named = os.environ.get("CHROMIUM")
    if named:
        return shutil.which(named)
    # The first one is the same engine without a window to draw: half the time for every page.
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)
