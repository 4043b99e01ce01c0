"""What the tests of the labs' pages share."""

import pytest
from lab_page import open_lab, without_keys


@pytest.fixture
def page(browser, lab):
    """A page with the ``lab`` of the test's own file; it must not complain, nor ask a host."""
    page = open_lab(browser, lab)
    yield page
    taken = without_keys(page)
    page.close()
    assert taken == []
    assert page.problems == []  # no error, no message, no request
