"""The patients: every file beside this one with a fault and its healthy twin, or a look-alike.

A fault file has ``build()``, ``build_fixed()``, ``example_inputs()`` and ``META``; a look-alike is
right, and looks suspicious. ``META["source"]`` names the public reports, ``META["expected"]`` what
a doctor should say, ``META["intent"]`` what the author meant.
"""

import importlib.util
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent


def files(kind: str) -> list[Path]:
    """The files of one kind: ``faults`` or ``lookalikes``."""
    return sorted((HERE / kind).glob("*.py"))


def load(path: Path, seed: int = 0) -> ModuleType:
    """A case whose weights and inputs are drawn with another seed."""
    spec = importlib.util.spec_from_file_location(f"zoo_{path.stem}", path)
    case = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(case)
    if hasattr(case, "seeded"):
        case.seeded.__defaults__ = (seed,)
    if hasattr(case, "rand"):
        case.rand.__kwdefaults__["seed"] += 10 * seed
    return case
