"""Mend what Sphinx writes where a screen reader suffers from it.

* A picture without a text alternative is a warning, which fails the build.
* The list of sources gets roles that exist in HTML; an empty corner of a table is no heading.
* A long name in a table breaks between its words, and not within one.
* A link that reads as its own address is marked, so that paper does not repeat the address.
"""

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
CELL = re.compile(r"<t([dh])\b.*?</t\1>", re.DOTALL)
CODE = re.compile(r'(?<=<span class="pre">)[^<]+')
BARE_LINK = re.compile(r'(<a class="reference external)(" href="([^"]+)">\3</a>)')
END_OF_A_WORD = re.compile(r"(?<=[_.(=/,])(?=\w)|(?<=[a-z])(?=[A-Z])")


def setup(app: Sphinx) -> dict[str, bool]:
    """Check the pictures of each document; mend the HTML of each page."""
    app.connect("doctree-resolved", _demand_alternatives)
    app.connect("html-page-context", _mend, priority=700)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _demand_alternatives(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for image in doctree.findall(nodes.image):
        if not image.get("alt", "").strip():
            logger.warning(
                "this picture has no text alternative. In a notebook write it in the metadata of "
                'the cell, {"mystnb": {"image": {"alt": "…"}}}; in Markdown, ![here](picture.png)',
                location=image,
            )


def _mend(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    if body := context.get("body"):
        body = body.replace('role="doc-biblioentry"', 'role="listitem"')
        body = re.sub(r"<th\b[^>]*>\s*(<p>\s*</p>)?\s*</th>", "<td></td>", body)
        body = BARE_LINK.sub(r"\1 bare\2", body)
        context["body"] = CELL.sub(_let_code_break, body)


def _let_code_break(cell: re.Match) -> str:
    return CODE.sub(lambda code: END_OF_A_WORD.sub("<wbr>", code[0]), cell[0])
