"""Try the mutants: ``python tests/mutants/run.py`` for all, or with the names of some files.

For each mutant a fork of this process runs the tests of its module, with the changed source in
place of the true one, and stops at the first failure. What is slow to import is imported once,
before the forks. A mutant is killed if a test fails; an error while the tests are collected does
not count. The tests that killed must pass on the module as it is.

``killers.json`` says which test killed each mutant last time: that one is tried first, which saves
half of the time. It decides nothing; ``--remember`` renews it.
"""

import argparse
import ast
import gc
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import signal
import sys
import tempfile
import traceback
from collections import Counter, deque
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
TESTS = HERE.parent
ROOT = TESTS.parent
KILLERS = HERE / "killers.json"
SECONDS = 100  # of computing; a mutant that takes more is stopped, and counts as alive
ALWAYS = ["pytest", "jaxtyping", "torch.distributed.tensor"]  # assert_close wants the last one
OPTIONS = ["-x", "-q", "--no-header", "--tb=line", "-o", "addopts="]
OPTIONS += ["-pno:cacheprovider", "-pno:unraisableexception", "-pno:threadexception"]  # slow

sys.path[0] = str(TESTS)  # in place of this folder, whose files are named after modules
sys.path.insert(0, str(ROOT))
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # none is needed, and each costs time
os.environ["OMP_NUM_THREADS"] = "1"

from mutants import Mutant  # noqa: E402


@dataclass(frozen=True)
class Trial:
    """A module with one fault, or with none; ``name`` is what the report calls it.

    ``tests`` are files, or single tests; ``first`` is the test that is tried before the others.
    """

    file: ModuleType
    mutant: Mutant | None
    tests: list[str]
    first: str = ""

    @property
    def name(self) -> str:
        """Module, public name and fault."""
        if self.mutant is None:
            return f"{self.file.MODULE}: as it is"
        return f"{self.file.MODULE}.{self.mutant.of}: {self.mutant.fault}"


# --------------------------------------------------------------------------- the list of mutants


def load(file: str | Path) -> ModuleType:
    """Import a file of mutants, by its name in this folder or by its path."""
    path = Path(file) if str(file).endswith(".py") else HERE / f"{file}.py"
    spec = importlib.util.spec_from_file_location(f"mutants.{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def names() -> list[str]:
    """The files in this folder that hold mutants."""
    return sorted(p.stem for p in HERE.glob("*.py") if p.stem not in ("__init__", "run"))


def source_of(module: str) -> Path:
    """Where the source of a module of attnlib lies, found without importing it."""
    return ROOT / f"{module.replace('.', '/')}.py"


def mutated(source: str, mutant: Mutant) -> str:
    """The source with the fault in it; it must be found once, and still be Python."""
    found = source.count(mutant.old)
    if found != 1:
        raise ValueError(f"{mutant.of}, {mutant.fault}: its old text was found {found} times")
    changed = source.replace(mutant.old, mutant.new)
    if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(source)):
        raise ValueError(f"{mutant.of}, {mutant.fault}: the new text is the same program")
    return changed


# ------------------------------------------------------------------------------------- one trial


class Imposter(importlib.abc.MetaPathFinder):
    """Serves one module from a given source, and leaves all others alone."""

    def __init__(self, module: str, path: Path, source: str) -> None:
        self.module, self.path, self.source = module, path, source

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """Answer for this one module."""
        if name != self.module:
            return None
        loader = importlib.machinery.SourceFileLoader(name, str(self.path))
        loader.get_code = lambda _: compile(self.source, str(self.path), "exec")
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


class Order:
    """A pytest plugin: the last killer and one case of each test first: most mutants die early."""

    def __init__(self, first: str) -> None:
        self.first = first

    def pytest_collection_modifyitems(self, items: list) -> None:
        """Sort first cases before refusals, and those before the rest."""
        seen: Counter[str] = Counter()
        rank = {}
        for item in items:
            function = item.nodeid.split("[")[0]
            is_refusal = item.get_closest_marker("messages") is not None
            rank[item] = 0 if not seen[function] else 1 if is_refusal else 1 + seen[function]
            seen[function] += 1
            if item.nodeid == self.first:
                rank[item] = -1
        items.sort(key=rank.__getitem__)


def run_tests(trial: Trial) -> int:
    """In a fork: put the changed source in place, and run the tests."""
    import pytest

    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    path = source_of(trial.file.MODULE)
    source = path.read_text()
    if trial.mutant is not None:
        source = mutated(source, trial.mutant)
    assert not any(name.startswith("attnlib") for name in sys.modules), "attnlib came before"
    sys.meta_path.insert(0, Imposter(trial.file.MODULE, path, source))
    tests = [str(ROOT / test) for test in trial.tests]
    return pytest.main([*OPTIONS, f"--rootdir={ROOT}", *tests], plugins=[Order(trial.first)])


def fork(trial: Trial, log: Path) -> int:
    """Start a trial, with what it prints in ``log``; return the id of its process."""
    pid = os.fork()
    if pid:
        return pid
    code = 99
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT)
        os.dup2(output, 1)
        os.dup2(output, 2)
        code = run_tests(trial)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def verdict(status: int, log: str) -> str:
    """What came of a trial: ``killed by ...``, ``passed``, or what went wrong."""
    if os.WIFSIGNALED(status):
        return f"stopped after {SECONDS} seconds, or crashed (signal {os.WTERMSIG(status)})"
    code = os.WEXITSTATUS(status)
    if code == 1:
        failed = [line for line in log.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return f"killed by {failed[0].split(' ', 1)[1].split(' - ')[0] if failed else '?'}"
    return "passed" if code == 0 else f"no verdict (pytest ended with {code}):\n{log[-2000:]}"


# ------------------------------------------------------------------------------------ all trials


def is_ours(module: str) -> bool:
    """Whether a module is of attnlib or of the tests, and so may import what is to be changed."""
    return module.split(".")[0] == "attnlib" or (TESTS / f"{module}.py").exists()


def prepare(file: ModuleType) -> None:
    """Import once what the tests of a module need, but nothing of attnlib itself."""
    for name in (*ALWAYS, *getattr(file, "NEEDS", ())):
        importlib.import_module(name)
    for test in file.TESTS:
        for node in ast.parse((TESTS / test).read_text()).body:
            if isinstance(node, ast.ImportFrom) and not is_ours(node.module):
                importlib.import_module(node.module)
    gc.freeze()  # so that the forks share this memory


def first_of_each(mutants: list[Mutant], most: int | None) -> list[Mutant]:
    """At most so many mutants of each public name, in their order; all of them for ``None``."""
    seen: Counter[str] = Counter()
    chosen = []
    for mutant in mutants:
        seen[mutant.of] += 1
        if most is None or seen[mutant.of] <= most:
            chosen.append(mutant)
    return chosen


def trials_of(file: ModuleType, most: int | None, killers: dict[str, str]) -> list[Trial]:
    """The mutants of one file, each with all tests of its module."""
    tests = [f"tests/{name}" for name in file.TESTS]
    trials = [Trial(file, mutant, tests) for mutant in first_of_each(file.MUTANTS, most)]
    return [replace(trial, first=killers.get(trial.name, "")) for trial in trials]


def run(files: list[ModuleType], workers: int, most: int | None) -> dict[str, str]:
    """Try the mutants of these files, then the killers on the true modules; return the verdicts."""
    killers = remembered_killers()
    verdicts = try_all([t for file in files for t in trials_of(file, most, killers)], workers)
    truths = []
    for file in files:
        found = {name: v for name, v in verdicts.items() if name.startswith(f"{file.MODULE}.")}
        killed_by = sorted(set(killers_in(found).values()))
        truths.append(Trial(file, None, killed_by or [f"tests/{name}" for name in file.TESTS]))
    return verdicts | try_all(truths, workers)


def remembered_killers() -> dict[str, str]:
    """Which test killed each mutant last time."""
    return json.loads(KILLERS.read_text()) if KILLERS.exists() else {}


def killers_in(verdicts: dict[str, str]) -> dict[str, str]:
    """Which test killed, for each mutant that was killed."""
    words = "killed by "
    return {name: v.removeprefix(words) for name, v in verdicts.items() if v.startswith(words)}


def try_all(trials: list[Trial], workers: int) -> dict[str, str]:
    """Run the trials, a few at a time; print and return their verdicts by name."""
    waiting = deque(trials)
    running: dict[int, tuple[Trial, Path]] = {}
    verdicts = {}
    with tempfile.TemporaryDirectory() as folder:
        while waiting or running:
            if waiting and len(running) < workers:
                trial = waiting.popleft()
                prepare(trial.file)
                log = Path(folder) / f"{len(verdicts) + len(running)}-{len(waiting)}"
                running[fork(trial, log)] = trial, log
                continue
            pid, status, usage = os.wait3(0)
            trial, log = running.pop(pid)
            verdicts[trial.name] = verdict(status, log.read_text(errors="replace"))
            bad = not is_good(trial.name, verdicts[trial.name])
            seconds = usage.ru_utime + usage.ru_stime
            print("ALIVE" if bad else "ok   ", f"{seconds:5.1f} s ", trial.name, end=" - ")
            print(verdicts[trial.name], flush=True)
    return verdicts


def is_good(name: str, verdict: str) -> bool:
    """A mutant should be killed, and the true module should pass."""
    return verdict == "passed" if name.endswith(": as it is") else verdict.startswith("killed by")


def main() -> None:
    """Print the verdicts, and end with 1 if one of them is bad."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="which files of mutants; all if left out")
    parser.add_argument("--workers", type=int, default=2, help="how many run at a time")
    parser.add_argument("--first", type=int, help="only so many of each name; all if left out")
    parser.add_argument("--json", type=Path, help="where to write the verdicts, too")
    parser.add_argument("--remember", action="store_true", help="put the killers into killers.json")
    options = parser.parse_args()
    files = sorted(map(load, options.files or names()), key=lambda file: hasattr(file, "NEEDS"))
    verdicts = run(files, options.workers, options.first)
    bad = sum(not is_good(name, found) for name, found in verdicts.items())
    print(f"{len(verdicts) - len(files)} mutants of {len(files)} modules, {bad} bad")
    if options.json:
        options.json.write_text(json.dumps(verdicts))
    if options.remember:
        killers = remembered_killers() | killers_in(verdicts)
        KILLERS.write_text(json.dumps(killers, indent=0, sort_keys=True) + "\n")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
