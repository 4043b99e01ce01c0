"""The search page leads to words, equations, sections and functions by their names."""

import json
from urllib.parse import quote

import pytest
from built_site import ROOT, Page

# What a reader types, and the place that must be among the first three.
QUERIES = {
    "scaled dot-product attention": "book/qkv.html#equation-eq-attention",
    "Attention(Q, K, V)": "book/qkv.html#equation-eq-attention",
    "softmax(QK^T/sqrt(d_k))": "book/qkv.html#equation-eq-attention",
    "formula for multi-head attention": "book/multi_head.html#equation-eq-multi-head",
    "next-token loss": "book/causal.html#equation-eq-next-token",
    "additive attention": "book/rnn_limits.html#equation-eq-additive",
    "softmax": "book/glossary.html#term-softmax",
    "online softmax": "book/glossary.html#term-online-softmax",
    "rotary": "book/glossary.html#term-RoPE",
    "masked self-attention": "book/glossary.html#term-causal-attention",
    "自注意力": "book/glossary.html#term-self-attention",
    "the scale": "book/qkv.html#the-scale-first-the-illness-then-the-cure",
    "NaN in the first row": "book/debugging.html#nan-in-the-first-row-with-padding-after-one-step",
    "attention lab": "book/qkv.html#the-attention-lab",
    "GQA": "book/glossary.html#term-grouped-query-attention",
    "window that leaks": "book/long_sequences.html#ex-long-break",
}
FUNCTIONS = {
    "causal_mask": "attnlib.masks.causal_mask",
    "attnlib.masks.causal_mask": "attnlib.masks.causal_mask",
    "KVCache": "attnlib.cache.KVCache",
}
NAMES = (ROOT / "book" / "_static" / "search_names.js").read_text("utf-8")


@pytest.fixture
def search(browser, address):
    """A function that searches and returns the first places by name."""
    page = browser.new_page()
    page.route("**/searchindex.js", lambda route: route.abort())  # the names come without it

    def first(query: str, number: int = 3) -> list[str]:
        page.goto(f"{address}search.html?q={quote(query)}", wait_until="load")
        links = page.locator("#named-places a").evaluate_all("links => links.map((a) => a.href)")
        return [link.removeprefix(address) for link in links[:number]]

    first.page = page
    yield first
    page.close()


def test_what_has_a_name_is_found_by_it(search):
    missed = {q: found for q, goal in QUERIES.items() if goal not in (found := search(q))}
    assert missed == {}


def test_nonsense_and_words_without_meaning_find_nothing(search):
    assert [search(query) for query in ("xyzzy attention", "what is the", "", "()")] == [[]] * 4


def test_a_search_with_the_worst_first_is_found_out(search):
    """The twin of both tests above: the worst first, and what does not fit at all."""
    worse = NAMES.replace("=> q - p ||", "=> p - q ||").replace(".filter(([points]) => points)", "")
    assert len(NAMES) - len(worse) == len(".filter(([points]) => points)")
    search.page.route("**/search_names.js*", lambda route: route.fulfill(body=worse))
    assert QUERIES["softmax"] not in search("softmax")
    assert search("xyzzy attention") != []


def test_functions_come_first_by_short_and_by_full_name(search):
    search.page.unroute("**/searchindex.js")
    for query, name in FUNCTIONS.items():
        search(query)
        first = search.page.locator("#search-results li a").first
        first.wait_for()
        assert first.get_attribute("href").endswith(f"#{name}"), query


def test_every_named_place_is_there(site):
    text = (site / "_static" / "named_places.js").read_text("utf-8")
    named = json.loads(text.removeprefix("const NAMED = ").rstrip(";\n"))
    ids: dict[str, set[str]] = {}
    for _, _, _, address in named:
        page, _, place = address.partition("#")
        ids.setdefault(page, Page(site / page).ids if page not in ids else set())
        assert not place or place in ids[page], address
    kinds = {kind.split()[0] for kind, *_ in named}
    assert kinds == {"equation", "glossary", "section", "exercise", "figure", "lab"}


def test_the_index_holds_words_and_functions_and_is_in_the_menu(site):
    index = (site / "genindex.html").read_text("utf-8")
    for place in ("#term-softmax", "#attnlib.masks.causal_mask", "#attnlib.cache.KVCache"):
        assert place in index
    for page in ("book/qkv.html", "genindex.html"):
        text = (site / page).read_text("utf-8")
        assert "Index of words and names</a>" in text
