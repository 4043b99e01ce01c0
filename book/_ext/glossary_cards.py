"""The first use of each word of the glossary in a chapter is a link to it, with a card.

The card shows the first paragraph of the entry. It is kept once on the page, hidden; the link is
described by it, so a screen reader says it, and ``cards.js`` shows it. Without scripts the link
leads to the glossary.
"""

import re
from html import escape
from typing import NamedTuple

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx_exercise.nodes import is_exercise_node

from folds import Fold

logger = logging.getLogger(__name__)
GLOSSARY = "book/glossary"
MOST = 25  # cards on a page
# These words have an everyday meaning in the chapters too, so a card could be the wrong one.
SEVERAL_MEANINGS = {"memory", "context", "shift", "doctor", "tile"}
EVERYDAY_ON = {
    "book/rnn_limits": {"value"},  # "the new value of"
    "book/qkv": {"key"},  # of a dictionary
    "book/causal": {"alignment"},  # of a mask
    "book/variants": {"head"},  # the last layer of a model
    "book/capstone": {"score"},  # of a test
}
# What a page with too many words does without, the commonest first.
EVERYWHERE = "token batch weight gradient attention key value query mask head score scale".split()
NOT_IN = (nodes.title, nodes.FixedTextElement, nodes.literal, nodes.reference, nodes.table)
NOT_IN += (nodes.math, nodes.Admonition, nodes.caption, nodes.legend, addnodes.pending_xref, Fold)


class Entry(NamedTuple):
    """A word of the glossary: its forms, its place there, and the text of its card."""

    words: tuple[str, ...]
    place: str
    text: str


class FirstUse(nodes.Inline, nodes.TextElement):
    """A word that links to the glossary."""


class Cards(nodes.General, nodes.Element):
    """The hidden texts of a page's cards."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Find the first uses once all pages are read; give their pages the script."""
    app.add_node(FirstUse, html=(_open_use, lambda writer, node: writer.body.append("</a>")))
    app.add_node(Cards, html=(_write_cards, lambda writer, node: None))
    app.connect("env-updated", _link_anew)
    app.connect("doctree-resolved", _mark_first_uses)
    app.connect("html-page-context", _add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _link_anew(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Read the glossary; return the chapters, to be written anew, if it has changed."""
    if GLOSSARY not in env.found_docs:  # the small books of the tests have none
        return []
    before = getattr(env, "words_of_glossary", None)
    env.words_of_glossary = entries(env.get_doctree(GLOSSARY))
    changed = env.words_of_glossary != before
    return [page for page in env.found_docs if _is_chapter(app, page)] if changed else []


def _is_chapter(app: Sphinx, page: str) -> bool:
    """Tell whether a page has first uses: a notebook, in a book that has a glossary."""
    return GLOSSARY in app.env.found_docs and app.env.doc2path(page).endswith(".ipynb")


# --------------------------------------------------------------------------------- the glossary


def entries(glossary: nodes.document) -> list[Entry]:
    """Read the words, places and first paragraphs of the glossary's entries."""
    return [_entry(item) for item in glossary.findall(nodes.definition_list_item)]


def _entry(item: nodes.definition_list_item) -> Entry:
    terms = list(item.findall(nodes.term))
    text = item.next_node(nodes.definition).next_node(nodes.paragraph)
    if any(text.findall(nodes.math)):
        logger.warning("a card holds no formula: say it in words", location=text)
    return Entry(tuple(t.astext() for t in terms), terms[0]["ids"][0], text.astext())


def pattern(word: str) -> str:
    """Return a regular expression for a word, its plural, and its spelling with hyphens.

    >>> bool(re.search(pattern("query"), "Queries ask"))
    True
    >>> bool(re.search(pattern("key"), "a key-value pair"))
    False
    """
    ending = re.escape(word[-1]) + "(?:es)?" if re.search("(s|x|sh|ch)$", word) else None
    ending = ending or ("(?:y|ies)" if re.search("[^aeiou]y$", word) else f"{word[-1]}s?")
    stem = r"[\s-]+".join(re.escape(part) for part in re.split(r"[\s-]", word[:-1]))
    case = "-i" if word != word.lower() else "i"  # LSTM, but head or Head
    return rf"(?<![\w-])(?{case}:{stem}{ending})(?![\w-])".replace("(?-i:", "(?:")


# ------------------------------------------------------------------------------------ the chapters


def first_uses(document: nodes.document, known: list[Entry], page: str = "") -> list[Entry]:
    """Turn the first use of each known word into a link; return the words, in order.

    Where there are more than 25, words that stand in every chapter get none.
    """
    by_word = {word: entry for entry in known for word in entry.words}
    words = sorted(by_word, key=len, reverse=True)  # "causal mask" before "mask"
    names = {f"w{i}": word for i, word in enumerate(words)}
    any_word = re.compile("|".join(f"(?P<{n}>{pattern(word)})" for n, word in names.items()))
    found: dict[Entry, tuple[nodes.Text, re.Match]] = {}
    for text in filter(_may_hold_a_link, document.findall(nodes.Text)):
        for match in any_word.finditer(str(text)):
            found.setdefault(by_word[names[match.lastgroup]], (text, match))
    skipped = SEVERAL_MEANINGS | EVERYDAY_ON.get(page, set())
    kept = [entry for entry in found if not skipped & set(entry.words)]
    for word in EVERYWHERE:
        if len(kept) > MOST:
            kept = [entry for entry in kept if word not in entry.words]
    kept = kept[:MOST]
    by_text: dict[nodes.Text, list] = {}
    for entry in kept:
        text, match = found[entry]
        by_text.setdefault(text, []).append((match, entry))
    for text, uses in by_text.items():
        text.parent.replace(text, _with_links(str(text), uses))
    return kept


def _may_hold_a_link(text: nodes.Text) -> bool:
    node, in_paragraph = text.parent, False
    while node is not None:
        if isinstance(node, NOT_IN) or is_exercise_node(node) or "cell" in node.get("classes", ()):
            return False
        in_paragraph = in_paragraph or isinstance(node, nodes.paragraph)
        node = node.parent
    return in_paragraph


def _with_links(text: str, uses: list[tuple[re.Match, Entry]]) -> list[nodes.Node]:
    parts, end = [], 0
    for match, entry in uses:
        parts += [nodes.Text(text[end : match.start()])] if match.start() > end else []
        parts.append(FirstUse("", match[0], place=entry.place))
        end = match.end()
    return [*parts, nodes.Text(text[end:])]


def _mark_first_uses(app: Sphinx, doctree: nodes.document, page: str) -> None:
    if app.builder.format != "html" or not _is_chapter(app, page):
        return
    used = first_uses(doctree, app.env.words_of_glossary, page)
    address = app.builder.get_relative_uri(page, GLOSSARY)
    for link in doctree.findall(FirstUse):
        link["address"] = f"{address}#{link['place']}"
    if used:
        doctree.append(Cards(texts=[(entry.place, entry.text) for entry in used]))


def _open_use(writer, node: FirstUse) -> None:
    card = node["place"].replace("term", "card", 1)
    writer.body.append(f'<a class="first-use" href="{node["address"]}" aria-describedby="{card}">')


def _write_cards(writer, node: Cards) -> None:
    texts = [
        f'<p id="{place.replace("term", "card", 1)}">{escape(text, quote=False)}</p>'
        for place, text in node["texts"]
    ]
    writer.body.append(f"<div hidden>{''.join(texts)}</div>\n")


def _add_script(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    if doctree and any(doctree.findall(Cards)):
        app.add_js_file("cards.js", loading_method="defer")
