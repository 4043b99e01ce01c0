"""The scales that test_pages.py puts each page on."""

from weigh import files_of, table, wire_bytes


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
