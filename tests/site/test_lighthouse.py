"""Lighthouse on one heavy chapter: what does not depend on how busy the machine is.

It comes from npm. A CI machine installs it; elsewhere the test is skipped until report.py has.
"""

import os

import lighthouse
import pytest
from browser import find_chromium
from report import Quality, quality_table

SCORED = ["accessibility", "best-practices", "seo"]


@pytest.fixture(scope="module")
def installed():
    if os.environ.get("CI"):
        lighthouse.install()
    elif not lighthouse.is_installed():
        pytest.skip(
            "no Lighthouse: run python tests/site/report.py book/qkv.html, which installs it"
        )


def test_lighthouse_gives_a_heavy_chapter_full_marks(installed, browser, address):
    found = lighthouse.examine(address + "book/qkv.html", find_chromium(), SCORED)
    assert found.scores == dict.fromkeys(SCORED, 100), found.short


def _report(score, **audits):
    return {
        "categories": {
            "seo": {"score": score, "auditRefs": [{"id": name, "weight": 1} for name in audits]}
        },
        "audits": {
            name: {"score": points, "scoreDisplayMode": "binary", "numericValue": 0.25}
            for name, points in audits.items()
        },
    }


def test_what_costs_points_is_named():
    good = lighthouse.verdict(_report(1, title=1))
    bad = lighthouse.verdict(_report(0.5, title=1, description=0))
    assert (good.scores, good.short) == ({"seo": 100}, [])
    assert (bad.scores, bad.short) == ({"seo": 50}, ["description"])


def test_the_report_says_where_a_page_falls_short():
    scores = {"performance": 95, "accessibility": 100, "best-practices": 100, "seo": 100}
    times = {"LCP": 1500.0, "TBT": 20.0, "CLS": 0.01}
    good = Quality(lighthouse.Verdict(scores, [], times), axe=0, labs=120.0)
    worse = lighthouse.Verdict({**scores, "seo": 99}, ["description"], {**times, "CLS": 0.05})
    assert good.short() == []
    bad = Quality(worse, axe=2, labs=1001.0)
    assert bad.short() == ["seo 99", "jumps", "labs late", "axe", "description"]
    assert quality_table({"a.html": good}).splitlines()[2] == (
        "| a.html | 95 | 100 | 100 | 100 | 1.5 | 20 | 0.010 | 0 | 120 |"
    )
