"""The page that the labs are tested on: it must notice what the fixture ``page`` forbids."""

import pytest
from lab_page import open_lab, without_keys
from test_lab import Dice

from attnlib.widgets.lab import front_end


class Chatty(Dice):
    _esm = """export default { render({ el }) {
      console.log("thrown");
      const picture = document.createElement("img");
      picture.src = "http://127.0.0.1:49151/die.png";
      el.append(picture);
      setTimeout(() => { throw new Error("it fell off the table"); });
    } };"""


def test_it_hears_of_messages_requests_and_errors(browser):
    page = open_lab(browser, Chatty(sides=6))
    page.wait_for_function("document.querySelector('img').complete")
    page.evaluate("new Promise((done) => setTimeout(done))")
    said = "\n".join(page.problems)
    for problem in ("thrown", "http://127.0.0.1:49151/die.png", "it fell off the table"):
        assert problem in said
    page.close()


def test_it_is_content_with_a_quiet_lab(browser):
    page = open_lab(browser, Dice(sides=6))
    assert page.problems == []
    page.close()


@pytest.mark.parametrize("attribute", ["data-lm-suppress-shortcuts", "data-other"])
def test_it_sees_whose_keys_a_notebook_takes(browser, attribute):
    class Pressed(Dice):
        _esm = f"""{front_end()}
        export default {{ render({{ el }}) {{
          const body = {{ class: "lab-body", "{attribute}": "true" }};
          el.append(make("div", body, make("button", {{}}, "throw")));
        }} }};"""

    page = open_lab(browser, Pressed(sides=6))
    assert len(without_keys(page)) == (attribute == "data-other")
    page.close()
