"""The index of all figures, labs and exercises: ``{index-of-figures}`` on a page of its own.

It is written when all pages have been read, from what they hold, in the order of the table of
contents. So nothing has to be entered anywhere.
"""

from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx_exercise.nodes import is_exercise_node

from labs import _is_widget


class ShownThings(nodes.General, nodes.Element):
    """The place of the index."""


class IndexOfFigures(SphinxDirective):
    """Put the index here."""

    def run(self) -> list[nodes.Node]:
        """Leave a place; the pages after this one are not read yet."""
        self.env.note_reread()  # it changes with the other pages
        return [ShownThings()]


def _fill(app: Sphinx, doctree: nodes.document, page: str) -> None:
    for place in list(doctree.findall(ShownThings)):
        place.replace_self(list(_sections(app, page)))


def _sections(app: Sphinx, page: str) -> Iterator[nodes.section]:
    """A section for each page that holds something, with a list of links."""
    for other in _in_order(app):
        document = app.env.get_doctree(other)
        items = [
            *_figures(app, other, document),
            *_labs(document),
            *_exercises(app, other, document),
        ]
        if items:
            title = app.env.titles[other].astext()
            name = other.rpartition("/")[2].replace("_", "-")
            links = nodes.bullet_list("", *(_link(app, page, other, *item) for item in items))
            yield nodes.section("", nodes.title("", title), links, ids=[f"shown-in-{name}"])


def _in_order(app: Sphinx) -> Iterator[str]:
    """All pages, as the table of contents has them."""

    def below(page: str) -> Iterator[str]:
        yield page
        for child in app.env.toctree_includes.get(page, []):
            yield from below(child)

    return below(app.config.root_doc)


def _figures(app: Sphinx, page: str, document: nodes.document) -> Iterator[tuple[str, str, str]]:
    for figure in document.findall(nodes.figure):
        captions = list(figure.findall(nodes.caption))
        if captions and figure["ids"]:
            number = _number(app, page, "figure", figure)
            yield "Figure " + number, captions[0].astext(), figure["ids"][0]


def _labs(document: nodes.document) -> Iterator[tuple[str, str, str]]:
    """A lab has no name: it is shown by the section that it stands in."""
    for lab in document.findall(_is_widget):
        section = lab.parent
        while not isinstance(section, nodes.section) or isinstance(section, nodes.document):
            section = section.parent
        yield "Lab", section.next_node(nodes.title).astext(), section["ids"][0]


def _exercises(app: Sphinx, page: str, document: nodes.document) -> Iterator[tuple[str, str, str]]:
    for exercise in document.findall(is_exercise_node):
        title = exercise.next_node(nodes.Titular).astext()
        title = title.replace("Exercise %s", "").replace("Exercise", "").strip(" ()")
        yield "Exercise " + _number(app, page, "exercise", exercise), title, exercise["ids"][0]


def _number(app: Sphinx, page: str, kind: str, node: nodes.Element) -> str:
    numbers = app.env.toc_fignumbers.get(page, {}).get(kind, {})
    return ".".join(map(str, numbers[node["ids"][0]]))


def _link(
    app: Sphinx, page: str, other: str, name: str, words: str, target: str
) -> nodes.list_item:
    address = f"{app.builder.get_relative_uri(page, other)}#{target}"
    link = nodes.reference("", name, refuri=address, internal=True)
    return nodes.list_item("", nodes.paragraph("", "", link, nodes.Text(f": {words}")))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the step that fills its place."""
    app.add_node(ShownThings)
    app.add_directive("index-of-figures", IndexOfFigures)
    app.connect("doctree-resolved", _fill)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
