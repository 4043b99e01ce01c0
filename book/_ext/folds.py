"""Turn solutions and ``dropdown`` admonitions into ``<details>``, which open without a script.

``{solution}`` blocks of sphinx-exercise are always folded. Any admonition with the class
``dropdown`` is folded too, which is how a hint is written::

    :::{admonition} Hint
    :class: dropdown tip
    Look at one row at a time.
    :::
"""

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx_exercise.nodes import is_exercise_node, solution_node


class Fold(nodes.General, nodes.Element):
    """A block whose first child, the title, is always in view."""


class FoldTitle(nodes.General, nodes.TextElement):
    """The line to click on."""


class FoldSolutionsAndDropdowns(SphinxPostTransform):
    """Replace what should be closed at first by a Fold.

    It runs once sphinx-exercise has written its titles (priority 20 to 22).
    """

    default_priority = 30
    formats = ("html",)

    def run(self, **kwargs):
        """Walk the document once; Sphinx calls this."""
        for node in list(self.document.findall(_starts_folded)):
            node.replace_self(_fold(node))
        for node in self.document.findall(is_exercise_node):
            _drop_repeated_ids(node)


def _starts_folded(node: nodes.Node) -> bool:
    return isinstance(node, solution_node) or (
        isinstance(node, nodes.Admonition) and "dropdown" in node["classes"]
    )


def _fold(node: nodes.Element) -> Fold:
    _drop_repeated_ids(node)
    classes = [name for name in node["classes"] if name not in ("dropdown", "toggle")]
    title, *body = node.children
    fold = Fold(ids=node["ids"], classes=["admonition", "fold", *classes])
    for link in list(title.findall(nodes.reference)):  # a click on the title opens the fold
        link.replace_self(link.children)
    fold += FoldTitle("", "", *title.children, classes=["admonition-title"])
    fold += body
    return fold


def _drop_repeated_ids(node: nodes.Element) -> None:
    """sphinx-exercise gives every body the same id; an id must be unique on a page."""
    for section in node.findall(nodes.section):
        section["ids"] = [i for i in section["ids"] if not i.endswith("-content")]


def _open(tag: str):
    return lambda writer, node: writer.body.append(writer.starttag(node, tag))


def _close(tag: str):
    return lambda writer, node: writer.body.append(f"</{tag}>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the two nodes and the step that makes them."""
    app.add_node(Fold, html=(_open("details"), _close("details")))
    app.add_node(FoldTitle, html=(_open("summary"), _close("summary")))
    app.add_post_transform(FoldSolutionsAndDropdowns)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
