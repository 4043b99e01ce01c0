"""Imports point down: a module imports only from floors below its own.

A package is one module here, and its files may import each other. A new module needs a floor.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

FLOORS = [
    {"checks"},
    {"masks"},
    {"functional", "positions", "cache", "dropout", "memory"},
    {"layers", "recurrent"},
    {"efficient"},  # some of it stands in for layers, and some deals them out to processes
    {"models", "generate"},
    {"data", "train", "record", "pretrained", "doctor"},
    {"exercises", "plot"},  # exercises are graded by the doctor's probes
    {"widgets"},  # they draw their still pictures with plot
]
DRAWING = {"matplotlib", "ipywidgets", "anywidget", "traitlets"}
MAY_DRAW = {"plot", "widgets"}
PACKAGE = Path(__file__).parents[1] / "attnlib"


def imported(path: Path) -> Iterator[str]:
    """The full names of what a file imports, wherever in the file it does so."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level:
            yield f"attnlib.{'.' * node.level}{node.module or ''}"  # relative: hard to follow
        elif isinstance(node, ast.ImportFrom):
            yield node.module
            if node.module == "attnlib":  # from attnlib import masks
                yield from (f"attnlib.{alias.name}" for alias in node.names)


def faults(package: Path) -> list[str]:
    """What is wrong with the imports of a package, in words."""
    floor = {name: number for number, names in enumerate(FLOORS) for name in names}
    found = []
    for path in sorted(package.rglob("*.py")):
        file = path.relative_to(package)
        module = file.with_suffix("").parts[0]
        if module == "__init__":
            found += [f"{file} imports {name}" for name in imported(path)]
            continue
        if module not in floor:
            found.append(f"{file} has no floor: give {module} one in {Path(__file__).name}")
            continue
        for name in imported(path):
            other = name.split(".")[1] if name.startswith("attnlib.") else None
            if name.split(".")[0] in DRAWING and module not in MAY_DRAW:
                found.append(f"{file} imports {name}, which only {sorted(MAY_DRAW)} may")
            if other is None or other == module:
                continue
            if floor.get(other, len(FLOORS)) >= floor[module]:
                found.append(f"{file} imports {name}, which is not on a floor below")
    return found


def test_imports_point_down():
    assert not faults(PACKAGE)


def test_the_files_were_found():
    assert {"masks.py", "functional.py", "bert.py"} <= {p.name for p in PACKAGE.rglob("*.py")}


@pytest.mark.parametrize(
    ("file", "line", "fault"),
    [
        ("masks.py", "from attnlib.functional import attention", "not on a floor below"),
        ("masks.py", "import attnlib.layers", "not on a floor below"),
        ("masks.py", "from attnlib import functional", "not on a floor below"),
        ("functional.py", "from attnlib.positions import Rope", "not on a floor below"),
        ("layers.py", "def f():\n    from attnlib.models.bert import Bert", "not on a floor below"),
        ("models/bert.py", "from attnlib.record import record_attention", "not on a floor below"),
        ("doctor/probes.py", "import attnlib.train", "not on a floor below"),
        ("plot.py", "from attnlib.widgets.lab import Lab", "not on a floor below"),
        ("layers.py", "from . import masks", "not on a floor below"),
        ("train.py", "import matplotlib.pyplot as plt", "imports matplotlib.pyplot, which only"),
        ("record.py", "from ipywidgets import Button", "imports ipywidgets, which only"),
        ("generate.py", "from anywidget import AnyWidget", "imports anywidget, which only"),
        ("layers.py", "import attnlib.surprise", "not on a floor below"),
        ("surprise.py", "", "has no floor: give surprise one"),
        ("surprise/inner.py", "", "has no floor: give surprise one"),
        ("__init__.py", "import torch", "__init__.py imports torch"),
    ],
)
def test_a_wrong_import_is_found(tmp_path, file, line, fault):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    found = faults(tmp_path)
    assert len(found) == 1
    assert fault in found[0]
    assert file in found[0]


def test_right_imports_are_not_found(tmp_path):
    (tmp_path / "models").mkdir()
    (tmp_path / "__init__.py").write_text('__version__ = "0"')
    (tmp_path / "models/bert.py").write_text(
        "import torch\nfrom attnlib.layers import EncoderLayer\nfrom attnlib.models.parts import x"
    )
    (tmp_path / "plot.py").write_text("from matplotlib import colors\nimport attnlib.masks")
    assert faults(tmp_path) == []


# ------------------------------------------------------------- what an import really loads


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh Python has loaded after one statement."""
    code = f"{statement}\nimport sys; print(*sys.modules)"
    python = [sys.executable, "-c", code]
    result = subprocess.run(python, cwd=PACKAGE.parent, capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_the_bare_package_loads_nothing():
    loaded = loaded_by("import attnlib")
    assert "attnlib" in loaded
    assert not {name for name in loaded if name.startswith("attnlib.")}
    assert not loaded & {"torch", "numpy", "jaxtyping"}


def test_attention_costs_torch_and_jaxtyping_alone():
    before = loaded_by("import torch, jaxtyping")
    loaded = loaded_by("import attnlib.functional") - before
    assert {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) == {"attnlib"}
    assert "attnlib.masks" in loaded


def test_no_reference_library_is_loaded_by_a_model():
    loaded = loaded_by("import attnlib.models.bert, attnlib.record")
    assert "attnlib.layers" in loaded
    assert not loaded & {*DRAWING, "transformers", "tokenizers", "safetensors", "einops", "pytest"}
