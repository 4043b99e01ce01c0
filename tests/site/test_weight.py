"""How much a page may weigh over the wire, compressed; weigh.py prints what it is spent on."""

import pytest
from built_site import pages
from weigh import files_of, load, table, wire_bytes

# What is reached today and a tenth more; tests/bench/site_bytes.md has the table.
FIRST_LOAD = 140_000  # bytes
READ_TO_THE_END = 215_000


@pytest.mark.parametrize("page", pages())
def test_a_page_stays_within_its_budget(browser, address, site, page):
    first, whole = load(browser, address, page, site)
    assert site / page in first
    assert site / "_static" / "book.css" in first
    assert sum(first.values()) <= FIRST_LOAD
    assert sum(whole.values()) <= READ_TO_THE_END


def test_text_is_weighed_compressed_and_each_file_once(tmp_path):
    (tmp_path / "page.html").write_bytes(b"a" * 10_000)
    (tmp_path / "font.woff2").write_bytes(b"a" * 10_000)
    asked = ["http://here/page.html?q=1", "http://here/font.woff2", "http://here/font.woff2"]
    files = files_of([*asked, "http://there/page.html", "data:x"], "http://here/", tmp_path)
    assert files[tmp_path / "font.woff2"] == 10_000
    assert files[tmp_path / "page.html"] == wire_bytes(tmp_path / "page.html") < 100
    assert len(files) == 2


def test_the_table_counts_a_shared_file_once_for_the_second_page(tmp_path):
    css, one, two = (tmp_path / name for name in ("book.css", "one.html", "two.html"))
    loads = {
        "one.html": ({css: 3000, one: 1000}, {css: 3000, one: 1000}),
        "two.html": ({css: 3000, two: 2000}, {css: 3000, two: 2000}),
    }
    assert table(loads).splitlines()[2:] == [
        "| one.html | 1.0 | 3.0 | 0.0 | 0.0 | 0.0 | 4.0 | 4.0 | 4.0 |",
        "| two.html | 2.0 | 3.0 | 0.0 | 0.0 | 0.0 | 5.0 | 5.0 | 2.0 |",
    ]
