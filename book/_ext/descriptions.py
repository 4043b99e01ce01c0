"""Give each page one plain sentence for search engines: ``<meta name="description">``.

A page says it itself. Markdown begins with::

    ---
    myst:
      html_meta:
        description: One sentence that says what a reader finds here.
    ---

A notebook has the same in its metadata. A page that says nothing is described by the first words of
its first paragraph, or by its title. Two that say the same are a warning, which fails the build.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

LONGEST = 160  # characters: what follows is not shown by a search engine
OF_NO_SOURCE = {  # pages that Sphinx makes
    "search": "Search the whole book: a word, a name of the package, a function.",
    "genindex": "Every name of the package and every term of the book, from A to Z.",
}
logger = logging.getLogger(__name__)


def setup(app: Sphinx) -> dict[str, bool]:
    """Find the description of each page, compare them, write them."""
    app.connect("doctree-read", _find, priority=600)  # after the page's other metadata
    app.connect("env-check-consistency", _demand_difference)
    app.connect("html-page-context", _write, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _find(app: Sphinx, doctree: nodes.document) -> None:
    own = [meta["content"] for meta in _metas(doctree) if meta.get("name") == "description"]
    page = app.env.metadata[app.env.docname]
    page["description"] = own[0] if own else first_words(doctree)
    page["described_by_itself"] = bool(own)


def _metas(doctree: nodes.document) -> Iterator[nodes.meta]:
    """Take the page's own meta tags out of it; the template writes them."""
    for node in list(doctree.findall(lambda n: isinstance(n, nodes.meta | nodes.pending))):
        found = node.details.get("nodes", []) if isinstance(node, nodes.pending) else [node]
        for meta in found:
            if isinstance(meta, nodes.meta) and meta.get("name") == "description":
                yield meta
                node.parent.remove(node)


def first_words(doctree: nodes.document) -> str:
    """Return the first sentences of the first paragraph that is plain text, cut at a word."""
    for paragraph in doctree.findall(nodes.paragraph):
        if isinstance(paragraph.parent, nodes.section | nodes.document):
            return shortened(" ".join(paragraph.astext().split()))
    title = doctree.next_node(nodes.title)
    return shortened(title.astext()) if title else ""


def shortened(text: str) -> str:
    """Return as many whole sentences as fit, or as many words.

    >>> shortened("One is short. " + "Another " * 30)
    'One is short.'
    """
    if len(text) <= LONGEST:
        return text
    ends = [match.end() for match in re.finditer(r"[.?!](?= )", text[: LONGEST + 1])]
    return text[: ends[-1]] if ends else text[: text.rindex(" ", 0, LONGEST)] + " …"


def _demand_difference(app: Sphinx, env) -> None:
    pages = {page: env.metadata[page] for page in env.found_docs}
    own = [(m["description"], page) for page, m in pages.items() if m.get("described_by_itself")]
    for (words, page), (again, other) in pairwise(sorted(own)):
        if words == again:
            logger.warning("it has the same description as %s", page, location=other)


def _write(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    known = app.env.metadata.get(page, {}).get("description")
    context["description"] = known or OF_NO_SOURCE.get(page, "")
