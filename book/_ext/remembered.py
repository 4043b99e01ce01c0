"""What a reader has done: a button at each exercise and question, and a page that lists them all.

The buttons do their work in ``remembers.js``, which keeps the answers in the reader's own browser
and nowhere else. What is kept is a list of anchors: the label of an exercise, and for a question
its name (``:name:``) or else its first words. So a number may change, and nothing is forgotten.
``{what-you-have-done}`` puts the list on a page, which ``progress.js`` fills.
"""

from collections.abc import Iterator

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective
from sphinx_exercise.nodes import is_exercise_node

from folds import Fold
from shown_things import _exercises, _in_order, _link

BUTTON = '<p class="js-only done-line"></p>'  # remembers.js puts it in
COUNT = '<p class="js-only done-count">&nbsp;</p>'
LIST = """
<noscript>
<p>Remembering needs scripts. Without them, this is a list of what there is to do.</p>
</noscript>
<div class="js-only" id="done-tools">
  <p id="done-all" role="status">&nbsp;</p>
  <p>
    <button type="button" class="done-button" id="done-export">Save to a file</button>
    <button type="button" class="done-button" id="done-import">Load from a file</button>
    <button type="button" class="done-button" id="done-clear">Forget everything</button>
  </p>
  <input type="file" id="done-file" accept=".json" aria-label="A file saved by this page" hidden>
  <dialog id="done-sure" aria-labelledby="done-sure-text">
    <p id="done-sure-text">
      Forget all that you have done? Only a file that you have saved could bring it back.
    </p>
    <form method="dialog">
      <button class="done-button" value="keep" autofocus>Keep it</button>
      <button class="done-button" value="forget">Forget it</button>
    </form>
  </dialog>
</div>
"""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the buttons, the names of the questions, the list and the scripts."""
    app.add_node(Done)
    app.add_directive("what-you-have-done", WhatYouHaveDone)
    app.add_post_transform(AddButtons)
    app.connect("doctree-read", _name_questions)
    app.connect("doctree-resolved", _fill)
    app.connect("html-page-context", _add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


class Done(nodes.General, nodes.Element):
    """The place of the list."""


class WhatYouHaveDone(SphinxDirective):
    """Put the list of all exercises and questions here."""

    def run(self) -> list[nodes.Node]:
        """Leave a place; the pages after this one are not read yet."""
        self.env.note_reread()  # it changes with the other pages
        return [Done()]


def _is_question(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Admonition | Fold) and "question" in node["classes"]


def _name_questions(app: Sphinx, doctree: nodes.document) -> None:
    page = app.env.docname.rpartition("/")[2]
    taken: set[str] = set()
    for question in doctree.findall(_is_question):
        if not question["ids"]:
            question["ids"] = [question_name(page, question[0].astext(), taken)]
        taken.update(question["ids"])


def question_name(page: str, title: str, taken: set[str]) -> str:
    """Return an anchor made of the first words of a question, without its number.

    >>> question_name("qkv", "3. A row of the weights is (0, 0, 0). What does that say?", set())
    'question-qkv-a-row-of-the-weights-is'
    """
    words = nodes.make_id(title.lstrip("0123456789. ")).split("-")[:6]
    name = "-".join(["question", nodes.make_id(page), *words])
    return next(n for n in (name, *(f"{name}-{i}" for i in range(2, 99))) if n not in taken)


class AddButtons(SphinxPostTransform):
    """Put the button at the end of each exercise and question, once these have their shape."""

    default_priority = 40  # after folds.py
    formats = ("html",)

    def run(self, **kwargs):
        """Walk the document once; Sphinx calls this."""
        for node in self.document.findall(lambda n: is_exercise_node(n) or _is_question(n)):
            node += nodes.raw("", BUTTON, format="html")


def _fill(app: Sphinx, doctree: nodes.document, page: str) -> None:
    for place in list(doctree.findall(Done)):
        tools = nodes.raw("", LIST, format="html")
        place.replace_self([tools, *_chapters(app, page)])


def _chapters(app: Sphinx, page: str) -> Iterator[nodes.section]:
    """A section for each page that holds something to do, with a list of links."""
    for other in _in_order(app):
        document = app.env.get_doctree(other)
        items = [*_exercises(app, other, document), *_questions(document)]
        if items:
            title = app.env.titles[other].astext()
            name = nodes.make_id(other.rpartition("/")[2])
            count = nodes.raw("", COUNT, format="html")
            links = nodes.bullet_list("", *(_link(app, page, other, *item) for item in items))
            links["classes"] = ["done-list"]
            yield nodes.section("", nodes.title("", title), count, links, ids=[f"done-in-{name}"])


def _questions(document: nodes.document) -> Iterator[tuple[str, str, str]]:
    for number, question in enumerate(document.findall(_is_question), 1):
        words = question[0].astext().lstrip("0123456789. ")
        yield f"Question {number}", words, question["ids"][0]


def _add_scripts(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    body = context.get("body", "")
    if "done-line" in body or "done-tools" in body:
        app.add_js_file("remembers.js", loading_method="defer")
    if 'id="done-tools"' in body:
        app.add_js_file("progress.js", loading_method="defer")
