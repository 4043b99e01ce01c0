"""A pytest plugin: note which lines of attnlib the tests have run, in the file LINES_RUN."""

import os
import sys
from pathlib import Path
from types import FrameType

PACKAGE = str(Path(__file__).parents[1] / "attnlib")
lines = set()


def _watch(frame: FrameType, event: str, argument: object) -> object:
    if not frame.f_code.co_filename.startswith(PACKAGE):
        return None  # nothing of ours: do not slow it down
    if event == "line":
        lines.add(f"{frame.f_code.co_filename}:{frame.f_lineno}")
    return _watch


def pytest_runtest_call() -> None:
    """Watch the test itself, not its imports."""
    sys.settrace(_watch)


def pytest_runtest_teardown() -> None:
    """Stop watching."""
    sys.settrace(None)


def pytest_sessionfinish() -> None:
    """Write down what was seen."""
    Path(os.environ["LINES_RUN"]).write_text("\n".join(sorted(lines)))
