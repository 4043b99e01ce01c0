"""The built site, a server for it, and one look at each page that all tests share."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from built_site import ROOT, build, is_stale, served
from filelock import FileLock
from look import Look, look_at


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The built site; built anew where a source is younger, and always on a CI machine."""
    folder = ROOT / "_build" / "html"
    shared = tmp_path_factory.getbasetemp().parent
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")  # several workers of one run share one build
    with FileLock(shared / "site.lock"):
        built_by_this_run = run is not None and (shared / f"site-{run}").exists()
        if is_stale(folder) or (os.environ.get("CI") and not built_by_this_run):
            process = build()
            assert process.returncode == 0, process.stdout + process.stderr
        if run:
            (shared / f"site-{run}").touch()
    return folder


@pytest.fixture(scope="session")
def address(site) -> Iterator[str]:
    """The address of the served site."""
    with served(site) as address:
        yield address


@pytest.fixture(scope="session")
def look(browser, address) -> Callable[[str], Look]:
    """A function that opens a page once and tells what was seen, again and again."""
    seen: dict[str, Look] = {}

    def remember(page: str) -> Look:
        if page not in seen:
            seen[page] = look_at(browser, address, page)
        return seen[page]

    return remember
