"""The translation lab as its reader sees it: in a real browser, without a kernel."""

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe
from lab_page import give_to_python, open_lab, set_switches
from test_translation_lab import OPTIONS, translate
from torch.testing import assert_close

from attnlib.widgets.translation import TranslationLab


@pytest.fixture
def lab():
    return TranslationLab(OPTIONS, translate)


def says(page):
    return page.locator("[aria-live=polite]").inner_text()


def test_every_sentence_has_pythons_numbers_and_shows_them(page, lab):
    for source in lab.outcomes:
        set_switches(page, source=source)
        lab.source = source
        ours = lab.result()
        now = page.evaluate(
            "(state) => lab.compute(state)",
            {
                "options": lab.options,
                "outcomes": dict(sorted(lab.outcomes.items())),  # as in a stored notebook
                "source": source,
            },
        )
        assert_close(torch.tensor(now["weights"], dtype=torch.float64), ours.weights)
        assert (now["written"], now["moved"]) == (ours.written, ours.moved)
        shown = page.locator("tbody tr").nth(1).locator("td").all_inner_texts()
        numbers = [*ours.weights[1].tolist(), ours.probabilities[1].item()]
        assert shown == [f"{x:.2f}" for x in numbers]


def test_the_controls_turn_the_switches_and_python_hears_of_it(page, lab):
    page.get_by_label("Word 2").select_option("like")
    give_to_python(page, lab)
    assert lab.source == "i like music"
    assert "New: LIKE." in says(page)
    page.get_by_label("Step").fill("2")
    give_to_python(page, lab)
    assert lab.step == 2
    assert "To write MUSIC" in says(page)
    page.get_by_role("rowheader", name="LIKE").click()
    assert "To write LIKE" in says(page)
    page.get_by_role("button", name="Reset").click()
    give_to_python(page, lab)
    assert (lab.source, lab.step) == ("i love music", 0)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing(browser, lab, theme):
    page = open_lab(browser, lab, theme=theme)
    report = Axe().run(page)
    assert [(v["id"], v["nodes"][0]["html"]) for v in report.response["violations"]] == []
    page.close()


def test_it_fits_a_phone(browser, lab):
    page = open_lab(browser, lab, width=320)
    assert page.evaluate("document.documentElement.scrollWidth") == 320
    page.close()
