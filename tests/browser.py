"""A real browser for the tests that look at pages: chromium, driven by playwright.

A test that needs it asks for the fixture ``browser``. Where there is no browser, the test is
skipped with a line that says how to get one; on a CI machine (``CI`` is set) it fails instead,
so that nothing is left out unseen.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

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


@contextmanager
def chromium(path: str) -> Iterator["playwright.sync_api.Browser"]:  # noqa: F821
    """Run the chromium at ``path`` for as long as the block lasts."""
    from playwright.sync_api import sync_playwright  # slow to import, so only when used

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def browser() -> Iterator["playwright.sync_api.Browser"]:  # noqa: F821
    """One chromium for all tests; each test opens its own page in it."""
    path = find_chromium()
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(HOW_TO_GET_ONE)
    with chromium(path) as running:
        yield running
