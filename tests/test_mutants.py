"""Each public name has three mutants or more, and the first is tried each time the tests run.

``python tests/mutants/run.py`` tries them all; that takes several minutes.
"""

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNNER = HERE / "mutants" / "run.py"
FILES = sorted(p.stem for p in RUNNER.parent.glob("*.py") if p.stem not in ("__init__", "run"))
CORE = {"masks", "functional", "positions", "layers", "record", "bert", "pretrained", "plot"}
CORE |= {"widgets_lab", "widgets_attention"}
ENOUGH = 3  # of each public name
TRIED = 1


def load(name):
    """A file of mutants: its module's name, that module's source, and the mutants."""
    namespace = {}
    exec((RUNNER.parent / f"{name}.py").read_text(), namespace)
    source = HERE.parent / f"{namespace['MODULE'].replace('.', '/')}.py"
    return namespace["MODULE"], source.read_text(), namespace["MUTANTS"]


def names(most=None):
    """The names of all mutants, or of so many of each public name."""
    listed, seen = [], Counter()
    for module, _, mutants in map(load, FILES):
        for mutant in mutants:
            of = f"{module}.{mutant.of}"
            seen[of] += 1
            if most is None or seen[of] <= most:
                listed.append(f"{of}: {mutant.fault}")
    return listed


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory):
    """What came of the first mutants of each name, from one run; ``mutants/run.py`` tries all."""
    report = tmp_path_factory.mktemp("mutants") / "verdicts.json"
    run = [sys.executable, str(RUNNER), "--first", str(TRIED), "--json", str(report)]
    result = subprocess.run(run, capture_output=True, text=True, check=False)
    assert report.exists(), result.stderr
    return json.loads(report.read_text())


@pytest.mark.parametrize("name", names(TRIED))
def test_the_mutant_is_killed(verdicts, name):
    assert verdicts[name].startswith("killed by ")


@pytest.mark.parametrize("file", FILES)
def test_the_module_itself_passes(verdicts, file):
    assert verdicts[f"{load(file)[0]}: as it is"] == "passed"


# ----------------------------------------------------------------------- the list of mutants


def test_the_core_has_mutants_and_no_two_have_one_name():
    assert set(FILES) >= CORE
    assert len(set(names())) == len(names())


@pytest.mark.parametrize("file", FILES)
def test_every_public_name_has_three_mutants(file):
    _, source, mutants = load(file)
    public = {
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }
    counts = {name: sum(m.of == name for m in mutants) for name in public}
    assert {name: n for name, n in counts.items() if n < ENOUGH} == {}
    assert {m.of for m in mutants} <= public


# --------------------------------------------------------------- the runner tells the truth

ENTRIES = """
from mutants import Mutant

MODULE = "attnlib.masks"
TESTS = ["test_masks.py"]
MUTANTS = [
    Mutant("causal_mask", "harmless", "k_len: int | None = None, *, device", "k_len: 'None' = None,"
           " *, device", "an annotation: no test can tell"),
    Mutant("causal_mask", "deadly", "device) <= 0\\n", "device) >= 0\\n", ""),
    Mutant("causal_mask", "broken", "import torch\\n", "import torch, no_such_module\\n", ""),
]
"""


@pytest.fixture
def report(tmp_path):
    """Run made-up mutants; return the end code and the verdicts."""

    def run(entries):
        (tmp_path / "made_up.py").write_text(entries)
        report = tmp_path / "report.json"
        command = [sys.executable, str(RUNNER), str(tmp_path / "made_up.py"), "--json", str(report)]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        return result, json.loads(report.read_text()) if report.exists() else None

    return run


def test_a_survivor_is_named_and_an_error_is_no_kill(report):
    result, verdicts = report(ENTRIES)
    assert result.returncode == 1
    assert re.search(r"ALIVE .* attnlib.masks.causal_mask: harmless - passed", result.stdout)
    assert "3 mutants of 1 modules, 2 bad" in result.stdout
    assert verdicts["attnlib.masks.causal_mask: harmless"] == "passed"
    assert verdicts["attnlib.masks.causal_mask: deadly"].startswith("killed by tests/test_masks.py")
    assert verdicts["attnlib.masks.causal_mask: broken"].startswith("no verdict (pytest ended with")
    assert verdicts["attnlib.masks: as it is"] == "passed"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("no such text", "x", "its old text was found 0 times"),
        ("q_len", "x", "its old text was found"),
        ("import torch\\n", "import torch  # why not\\n", "the new text is the same program"),
    ],
)
def test_a_mutant_that_is_none_is_refused(report, old, new, words):
    entries = ENTRIES.split("MUTANTS")[0]
    result, verdicts = report(
        f'{entries}MUTANTS = [Mutant("causal_mask", "?", "{old}", "{new}", "")]'
    )
    assert result.returncode == 1
    assert words in verdicts["attnlib.masks.causal_mask: ?"]
    assert verdicts["attnlib.masks: as it is"] == "passed"
