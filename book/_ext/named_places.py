"""A list of what has a name, for the search page: words, equations, sections, exercises, figures.

The search of Sphinx finds pages by their words, and functions by their names. It does not know
that an equation is called "scaled dot-product attention". An equation gets its names from the
entries of the glossary that lead to it, from its label, and from what stands in it.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

from glossary_cards import GLOSSARY
from shown_things import _exercises, _figures, _in_order, _labs

CHINESE = re.compile(r"[\u4e00-\u9fff-]*[\u4e00-\u9fff]+")
# What TeX writes with a word and a reader with another one, or with none.
SPOKEN = {"top": "T", "sqrt": "sqrt", "cdot": "", "sum": "sum", "log": "log", "partial": "d"}


def setup(app: Sphinx) -> dict[str, bool]:
    """Write the list once all pages are there."""
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _write(app: Sphinx, exception: Exception | None) -> None:
    if exception or app.builder.format != "html":
        return
    named = [[*place[:3], app.builder.get_target_uri(place[3]) + place[4]] for place in _all(app)]
    text = json.dumps(named, ensure_ascii=False, separators=(",", ":"))
    Path(app.outdir, "_static", "named_places.js").write_text(f"const NAMED = {text};\n", "utf-8")


def _all(app: Sphinx) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield kind, name, further words, page and anchor of each place."""
    if GLOSSARY not in app.env.found_docs:  # the small books of the tests have none
        return
    names = names_of_equations(app.env.get_doctree(GLOSSARY))
    for page in _in_order(app):
        document = app.env.get_doctree(page)
        title = app.env.titles[page].astext()
        for label, equation in _equations(document):
            words = [*names.get(label, []), label.removeprefix("eq-").replace("-", " ")]
            further = " ".join([*words[1:], title, spoken(equation)])
            yield "equation", words[0], further, page, f"#equation-{label}"
        if page == GLOSSARY:
            yield from _words(document)
        elif not any(document.findall(addnodes.desc)):
            for section in document.findall(_has_title):
                place = "" if section.parent is document else f"#{section['ids'][0]}"
                yield "section", section[0].astext(), title, page, place
        for number, name, place in _exercises(app, page, document):
            yield number.lower(), name, title, page, f"#{place}"
        for number, name, place in _figures(app, page, document):
            yield number.lower(), name, title, page, f"#{place}"
        for _, name, place in _labs(document):
            yield "lab", name, f"lab {title}", page, f"#{place}"


def _has_title(node: nodes.Node) -> bool:
    return type(node) is nodes.section and isinstance(node[0], nodes.title)


def _words(glossary: nodes.document) -> Iterator[tuple[str, str, str, str, str]]:
    for item in glossary.findall(nodes.definition_list_item):
        terms = list(item.findall(nodes.term))
        chinese = " ".join(CHINESE.findall(item.astext()))
        others = " ".join(term.astext() for term in terms[1:])
        place = f"#{terms[0]['ids'][0]}"
        yield "glossary", terms[0].astext(), f"{others} {chinese}".strip(), GLOSSARY, place


def names_of_equations(glossary: nodes.document) -> dict[str, list[str]]:
    """Return the words whose entries lead to each equation, the longest first."""
    names: dict[str, list[str]] = {}
    for item in glossary.findall(nodes.definition_list_item):
        for link in item.findall(addnodes.pending_xref):
            if link["reftype"] == "eq":
                terms = [term.astext() for term in item.findall(nodes.term)]
                names.setdefault(link["reftarget"], []).extend(terms)
    return {label: sorted(words, key=len, reverse=True) for label, words in names.items()}


def _equations(document: nodes.document) -> Iterator[tuple[str, str]]:
    for block in document.findall(nodes.math_block):
        if block.get("label"):
            yield block["label"], block.astext()


def spoken(latex: str) -> str:
    r"""Return a formula as somebody would type it.

    >>> spoken(r"\mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d_k}}\right) V")
    'softmax Q K^T sqrt d_k V'
    """
    latex = re.sub(r"\\(?:mathrm|text|operatorname)\s*\{([^{}]*)\}", r" \1 ", latex)
    latex = re.sub(r"\\([A-Za-z]+)", lambda m: SPOKEN.get(m[1], "") + " ", latex)
    latex = re.sub(r"([_^])\{([^{}]*)\}", r"\1\2", latex)
    return " ".join(re.sub(r"[^\w^]+", " ", latex).replace(" ^", "^").replace("^ ", "^").split())
