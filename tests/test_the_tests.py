"""A test that asserts nothing always passes, and an error nobody provoked may read as it likes.

So the tests are looked at as well, and the docstrings that promise something to the reader.
"""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "attnlib"
CHECKS = {"raises", "warns", "expect", "fail"}
INNER = {"widgets", "probes", "clues.py", "measure.py", "trace.py", "__main__.py"}
INNER |= {"patient.py", "making.py", "roles.py", "running.py", "stillness.py"}  # of the doctor
MAY_SKIP = {"skip", "skipif", "xfail", "importorskip"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def called(node: ast.Call) -> str:
    """The last part of the name of what is called."""
    return ast.unparse(node.func).split(".")[-1]


# ------------------------------------------------------------------ tests that assert nothing


def checks_something(test: Function) -> bool:
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            if not isinstance(node.test, ast.Constant | ast.Tuple):  # always true
                return True
        elif isinstance(node, ast.Call):
            name = called(node)
            if name in CHECKS or name.startswith(("assert_", "wait_for_")):  # a page that must come
                return True
    return False


def empty_tests(source: str) -> list[str]:
    return [
        node.name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, Function)
        and node.name.startswith("test")
        and not checks_something(node)
    ]


def skips_without_reason(source: str) -> list[str]:
    """Skips and expected failures, as mark or as call, that do not say why."""
    tree = ast.parse(source)
    found = []
    with_arguments = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node not in with_arguments:
            name = ast.unparse(node)
            if name.startswith("pytest.mark.") and node.attr in MAY_SKIP:
                found.append(name)
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("pytest."):
            by_place = node.args if called(node) == "skip" else []  # pytest.skip("why")
            why = [k.value for k in node.keywords if k.arg == "reason"] or by_place
            if called(node) in MAY_SKIP and (not why or not ast.unparse(why[0]).strip("\"' ")):
                found.append(ast.unparse(node.func))
    return found


ALL_TESTS = sorted(TESTS.rglob("test_*.py"))


@pytest.mark.parametrize("path", ALL_TESTS, ids=lambda path: path.name)
def test_every_test_asserts_something_and_every_skip_says_why(path):
    source = path.read_text()
    assert empty_tests(source) == []
    assert skips_without_reason(source) == []


@pytest.mark.parametrize(
    "body",
    [
        "attention(q, k, v)",
        "out.shape == (2, 3)",  # compared, and dropped
        "torch.equal(a, b)",
        "print('FAILED')",
        "return a == b",
        "assert True",
        "assert (a == b, 'a tuple is true')",
        "'assert a == b'",
    ],
)
def test_a_test_without_a_check_is_found(body):
    assert empty_tests(f"def test_x():\n    {body}") == ["test_x"]
    assert empty_tests(f"class TestX:\n    def test_x(self):\n        {body}")
    assert empty_tests(f"async def test_x():\n    {body}")


@pytest.mark.parametrize(
    "body",
    [
        "assert a == b",
        "with pytest.raises(ValueError):\n        f()",
        "assert_close(a, b)",
        "page.wait_for_url('**/index.html')",
        "torch.testing.assert_close(a, b)",
        "for x in y:\n        assert x",
    ],
)
def test_a_test_with_a_check_is_not_found(body):
    assert empty_tests(f"def test_x():\n    {body}") == []


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.skip\ndef test_x(): pass",
        "@pytest.mark.skip()\ndef test_x(): pass",
        "@pytest.mark.skip(reason='')\ndef test_x(): pass",
        "@pytest.mark.skipif(True)\ndef test_x(): pass",
        "@pytest.mark.xfail\ndef test_x(): pass",
        "pytest.skip()",
        "pytest.importorskip('einops')",
        "pytestmark = pytest.mark.skip",
    ],
)
def test_a_skip_without_a_reason_is_found(source):
    assert len(skips_without_reason(source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "@pytest.mark.skipif(True, reason='needs a GPU')\ndef test_x(): pass",
        "pytest.skip('needs a browser')",
        "pytest.skip(reason=HOW_TO_GET_ONE)",
        "pytest.importorskip('einops', reason='a reference')",
    ],
)
def test_a_skip_with_a_reason_is_not_found(source):
    assert skips_without_reason(source) == []


# ----------------------------------------------------------------- docstrings and their promises


def public(body: list[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    for node in body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node


def raises(node: ast.AST, functions: dict[str, Function], seen: frozenset = frozenset()) -> bool:
    """Whether a function raises by itself, or through a private function of the same file."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Raise):
            return True
        if isinstance(inner, ast.Call):
            name = called(inner)
            if name.startswith("_") and name in functions and name not in seen:
                if raises(functions[name], functions, seen | {name}):
                    return True
    return False


def poor_docstrings(source: str) -> list[str]:
    """Public names that lack a docstring, an example or a word on what they raise."""
    tree = ast.parse(source)
    functions = {node.name: node for node in tree.body if isinstance(node, Function)}
    found = []

    def look(node: Function, name: str, around: str) -> None:
        text = ast.get_docstring(node) or ""
        if not text:
            found.append(f"{name} has no docstring")
        if "Example:" not in text + around:
            found.append(f"{name} has no Example")
        if raises(node, functions) and "Raises:" not in text + around:
            found.append(f"{name} does not say what it Raises")

    for node in public(tree.body):
        if isinstance(node, Function):
            look(node, node.name, "")
            continue
        text = ast.get_docstring(node) or ""
        methods = [m for m in node.body if isinstance(m, Function)]
        documented = text + "".join(ast.get_docstring(m) or "" for m in methods)
        if not text:
            found.append(f"{node.name} has no docstring")
        if "Example:" not in documented:
            found.append(f"{node.name} has no Example")
        for method in methods:
            if method.name in ("__init__", "__post_init__"):
                if raises(method, functions) and "Raises:" not in text:
                    found.append(f"{node.name} does not say what it Raises")
            elif not method.name.startswith("_"):
                look(method, f"{node.name}.{method.name}", "Example:" + text)
    return found


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_public_name_has_a_docstring_with_an_example_and_says_what_it_raises(path):
    found = poor_docstrings(path.read_text())
    if (
        path.parent.name in INNER or path.name in INNER
    ):  # no reader calls these: a docstring will do
        found = [fault for fault in found if fault.endswith("has no docstring")]
    assert found == []


@pytest.mark.parametrize(
    ("source", "fault"),
    [
        ("def f(): pass", "f has no docstring"),
        ("def f():\n    '''Do.'''", "f has no Example"),
        (
            "def f():\n    '''Do.\n\n    Example:\n    '''\n    raise ValueError",
            "f does not say what it Raises",
        ),
        (
            "def f():\n    '''Do.\n\n    Example:\n    '''\n    _g()\n"
            "def _g():\n    _h()\ndef _h():\n    _g()\n    raise ValueError",
            "f does not say what it Raises",
        ),
        ("class A:\n    '''Be.'''", "A has no Example"),
        (
            "class A:\n    '''Be.\n\n    Example:\n    '''\n    def f(self): pass",
            "A.f has no docstring",
        ),
        (
            "class A:\n    '''Be.\n\n    Example:\n    '''\n"
            "    def __init__(self):\n        raise ValueError",
            "A does not say what it Raises",
        ),
    ],
)
def test_a_poor_docstring_is_found(source, fault):
    assert fault in poor_docstrings(source)


def test_a_good_docstring_is_not_found():
    source = "def f():\n    '''Do.\n\n    Raises:\n    Example:\n    '''\n    raise ValueError"
    assert poor_docstrings(source) == []
    assert poor_docstrings("def _f(): raise ValueError") == []


# ---------------------------------------------------------------------- errors nobody provoked


def is_tested_here(path: Path) -> bool:
    """Whether a module has a test file of its own; those of plot and the labs lack the mark."""
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    unmarked = "plot" in parts or "widgets" in parts
    return not unmarked and any((TESTS / f"test_{part}.py").exists() for part in parts)


RAISING = list(filter(is_tested_here, MODULES))


def lines_that_raise(path: Path) -> set[str]:
    nodes = ast.walk(ast.parse(path.read_text()))
    return {f"{path}:{node.lineno}" for node in nodes if isinstance(node, ast.Raise)}


def test_every_raise_is_provoked_by_a_test_of_its_message(tmp_path):
    report = tmp_path / "lines"
    files = [str(path) for path in sorted(TESTS.glob("test_*.py")) if path != Path(__file__)]
    options = ["-q", "-m", "messages", "-o", "addopts=", "-p", "lines_run"]
    subprocess.run(
        [sys.executable, "-m", "pytest", *options, *files],
        env=os.environ | {"LINES_RUN": str(report), "PYTHONPATH": str(TESTS)},
        cwd=TESTS.parent,
        check=True,
        capture_output=True,
    )
    expected = set().union(*(lines_that_raise(path) for path in RAISING))
    assert len(expected) > 40
    assert expected - set(report.read_text().split("\n")) == set()
