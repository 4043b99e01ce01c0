"""Mend what Sphinx writes where a screen reader or a slow connection suffers from it.

* A picture without a text alternative is a warning, which fails the build.
* Every picture gets its width and height, so that the page does not jump when it arrives.
* The list of sources gets roles that exist in HTML.
"""

import re
import struct
from pathlib import Path
from urllib.parse import unquote

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)
PNG = b"\x89PNG\r\n\x1a\n"


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
    body = context.get("body")
    if not body:
        return
    body = body.replace('role="doc-biblioentry"', 'role="listitem"')
    pictures = {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}
    context["body"] = re.sub(r"<img [^>]+>", lambda tag: _with_size(tag.group(), pictures), body)


def _with_size(tag: str, pictures: dict[str, Path]) -> str:
    """Add width and height to an ``<img>`` whose file is a PNG of this book."""
    name = unquote(re.search(r'src="([^"]*)"', tag).group(1).rsplit("/", 1)[-1])
    size = png_size(pictures[name]) if name in pictures else None
    if size is None or "width" in tag:
        return tag
    return tag.replace("<img ", f'<img width="{size[0]}" height="{size[1]}" ', 1)


def png_size(path: Path) -> tuple[int, int] | None:
    """Return width and height of a PNG in pixels; None if the file is no PNG."""
    with path.open("rb") as file:
        head = file.read(24)
    return struct.unpack(">II", head[16:24]) if head.startswith(PNG) else None
