"""Long names in tables: they break between their words, and nothing else changes."""

import re


def test_a_long_name_in_a_table_may_break_between_its_words(site):
    text = (site / "book" / "multi_head.html").read_text("utf-8")
    assert "scaled_<wbr>dot_<wbr>product_<wbr>attention" in text
    assert "Multihead<wbr>Attention" in text


def test_no_break_is_put_anywhere_else(site):
    text = (site / "book" / "multi_head.html").read_text("utf-8")
    outside = re.sub(r"<t([dh])\b.*?</t\1>", "", text, flags=re.DOTALL)
    assert "<wbr>" in text
    assert "<wbr>" not in outside
