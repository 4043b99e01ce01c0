"""A real browser for the tests that look at pages: chromium, driven by playwright.

A test that needs it asks for the fixture ``browser``. Where there is no browser, the test is
skipped with a line that says how to get one; on a CI machine (``CI`` is set) it fails instead,
so that nothing is left out unseen.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "book" / "_ext"))
from find_browser import ARGUMENTS, HOW_TO_GET_ONE, find_chromium


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
