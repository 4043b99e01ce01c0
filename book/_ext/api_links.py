"""Link the chapters to the entries of the package's names, and the entries back to the chapters.

In a chapter, the first use of a name in the text and the first ``from attnlib... import`` of it
are links to its entry. An entry says in which section of which chapter the name is used first.
"""

import ast
import importlib
import re
from collections.abc import Callable, Container, Iterator

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from glossary_cards import _is_chapter
from shown_things import _in_order

# Code that has the colour of plain text needs no element of its own: a tenth of a chapter's bytes.
PLAIN = re.compile(r'<span class="(?:n|p|w)">([^<]*)</span>')
IMPORT = re.compile(
    r'(<span class="kn">from</span> <span class="nn">(attnlib[\w.]*)</span> '
    r'<span class="kn">import</span> )(\([^)]*\)|[^\n<]*)'
)
IMPORTED = re.compile(r"(?<![\w<&.])[A-Za-z_]\w*(?=\s*(?:[,)\n]|$))")


def setup(app: Sphinx) -> dict[str, bool]:
    """Find the uses when all pages are read; write the links with the pages."""
    app.connect("autodoc-skip-member", _says_nothing)
    app.connect("env-updated", _find_uses)
    app.connect("doctree-resolved", _link_text)
    app.connect("doctree-resolved", _tell_entries)
    app.connect("html-page-context", _link_code, priority=600)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _says_nothing(
    app: Sphinx, kind: str, name: str, member: object, skip: bool, options
) -> bool | None:
    """Leave out the fields of a named tuple that have no words of their own, but a number."""
    if (getattr(member, "__doc__", None) or "").startswith("Alias for field number"):
        return True
    return None  # as autodoc thinks


# -------------------------------------------------------------------------------------- the names


def documented_as(known: Container[str], module: str, name: str) -> str:
    """Return the full name under which something that can be imported has its entry.

    >>> documented_as({"attnlib.data.pairs.pad_pairs"}, "attnlib.data", "pad_pairs")
    'attnlib.data.pairs.pad_pairs'
    """
    full_name = f"{module}.{name}"
    found = getattr(importlib.import_module(module), name, None)
    if full_name in known or not hasattr(found, "__qualname__"):
        return full_name
    return f"{found.__module__}.{found.__qualname__}"


def imported_names(known: Container[str], code: str) -> dict[str, str]:
    """Return what a cell imports from the package: the name in the cell, and the full one."""
    names = {}
    for node in ast.walk(_parsed(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "attnlib":
            for each in node.names:
                names[each.asname or each.name] = documented_as(known, node.module, each.name)
    return names


def used_names(code: str, names: dict[str, str]) -> Iterator[str]:
    """Yield the full names of what a cell uses, as ``attention`` or ``plot.heatmap``."""
    for node in ast.walk(_parsed(code)):
        if isinstance(node, ast.Name) and node.id in names:
            yield names[node.id]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in names:
                yield f"{names[node.value.id]}.{node.attr}"


def _parsed(code: str) -> ast.Module:
    try:
        return ast.parse(re.sub(r"(?m)^\s*[%!].*$", "", code))
    except SyntaxError:  # a cell that shows an error
        return ast.Module([], [])


def _own_names(code: str) -> set[str]:
    defined = (ast.FunctionDef, ast.ClassDef)
    return {node.name for node in ast.walk(_parsed(code)) if isinstance(node, defined)}


def _cells(document: nodes.document) -> Iterator[nodes.literal_block]:
    for block in document.findall(nodes.literal_block):
        if "cell_input" in block.parent.get("classes", ()):
            yield block


def _place(app: Sphinx, page: str, full_name: str) -> str | None:
    """Return the address of a name's entry, as seen from a page."""
    domain = app.env.domaindata["py"]
    entry = domain["objects"].get(full_name) or domain["modules"].get(full_name)
    if entry:
        return f"{app.builder.get_relative_uri(page, entry.docname)}#{entry.node_id}"
    return None


# -------------------------------------------------------------------------- from chapter to entry


def _link_text(app: Sphinx, doctree: nodes.document, page: str) -> None:
    if app.builder.format != "html" or not _is_chapter(app, page):
        return
    known = app.env.domaindata["py"]["objects"]
    cells = [cell.astext() for cell in _cells(doctree)]
    names = {n: full for cell in cells for n, full in imported_names(known, cell).items()}
    for name in {n for cell in cells for n in _own_names(cell)}:
        names.pop(name, None)  # the chapter has one of its own
    linked = {link.get("refuri") for link in doctree.findall(nodes.reference)}
    for literal in list(doctree.findall(nodes.literal)):
        first, dot, rest = literal.astext().removesuffix("()").partition(".")
        address = _place(app, page, names.get(first, first) + dot + rest)
        if address and address not in linked and _may_be_a_link(literal):
            linked.add(address)
            literal.replace_self(_link(literal.deepcopy(), address))


def _may_be_a_link(literal: nodes.literal) -> bool:
    node = literal.parent
    while node is not None:
        if isinstance(node, nodes.reference | nodes.title):
            return False
        node = node.parent
    return True


def _link_code(app: Sphinx, page: str, template: str, context: dict, doctree) -> None:
    if not (body := context.get("body")):
        return
    body = PLAIN.sub(r"\1", body)
    known = app.env.domaindata["py"]["objects"]
    if page in app.env.found_docs and page not in {entry.docname for entry in known.values()}:
        body = link_imports(
            body, lambda module, name: _place(app, page, documented_as(known, module, name))
        )
    context["body"] = body


def link_imports(html: str, place: Callable[[str, str], str | None]) -> str:
    """Make the names in the import lines of highlighted code links, each name once.

    Args:
        html: a page with highlighted code, plain code without elements.
        place: a function from a module and a name in it to the address of its entry, or to None.

    Returns:
        The page with links.
    """
    linked: set[str] = set()

    def link(module: str, name: str) -> str:
        address = place(module, name)
        if address is None or address in linked:
            return name
        linked.add(address)
        return f'<a class="api-link" href="{address}">{name}</a>'

    def line(match: re.Match) -> str:
        return match[1] + IMPORTED.sub(lambda name: link(match[2], name[0]), match[3])

    return IMPORT.sub(line, html)


# -------------------------------------------------------------------------- from entry to chapter


def _find_uses(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Note for each name the first section of each chapter that uses it.

    Returns:
        The pages of the entries, to be written anew, if anything has changed.
    """
    known = env.domaindata["py"]["objects"]
    before, env.uses_of_names = getattr(env, "uses_of_names", None), {}
    for page in _in_order(app):
        if not _is_chapter(app, page):
            continue
        names: dict[str, str] = {}
        for node in env.get_doctree(page).findall(_is_use):
            used = [node.get("reftarget")]
            if isinstance(node, nodes.literal_block):
                names |= imported_names(known, node.astext())
                used = list(used_names(node.astext(), names))
            for name in used:
                env.uses_of_names.setdefault(name, {}).setdefault(page, _section(node))
    changed = env.uses_of_names != before
    return sorted({entry.docname for entry in known.values()}) if changed else []


def _is_use(node: nodes.Node) -> bool:
    if isinstance(node, addnodes.pending_xref):
        return node.get("refdomain") == "py"
    return isinstance(node, nodes.literal_block) and "cell_input" in node.parent.get("classes", ())


def _section(node: nodes.Node) -> tuple[str, str]:
    """Return the id and the title of the section that a node stands in."""
    while type(node) is not nodes.section or not isinstance(node[0], nodes.title):
        node = node.parent
    return node["ids"][0], node[0].astext()


def _tell_entries(app: Sphinx, doctree: nodes.document, page: str) -> None:
    if app.builder.format != "html":
        return
    for entry in doctree.findall(addnodes.desc):
        signature, content = entry[0], entry[-1]
        uses = app.env.uses_of_names.get((signature.get("ids") or [""])[0])
        if entry.get("domain") == "py" and uses:
            members = [i for i, child in enumerate(content) if isinstance(child, addnodes.desc)]
            content.insert(min(members, default=len(content)), _used_in(app, page, uses))


def _used_in(app: Sphinx, page: str, uses: dict[str, tuple[str, str]]) -> nodes.paragraph:
    line = nodes.paragraph("", "Used in: ", classes=["used-in"])
    for i, (chapter, (place, section)) in enumerate(uses.items()):
        words = app.env.titles[chapter].astext().partition(":")[0]
        if len(uses) <= 4 and section.partition(":")[0] != words:
            words += f" ({section})"  # with more chapters, their names are enough
        address = f"{app.builder.get_relative_uri(page, chapter)}#{place}"
        line += [nodes.Text("; " if i else ""), _link(nodes.Text(words), address)]
    return line


def _link(words: nodes.Node, address: str) -> nodes.reference:
    return nodes.reference("", "", words, refuri=address, internal=True)
