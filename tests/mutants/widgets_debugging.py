"""Faults in the debugging lab."""

from mutants import Mutant

MODULE = "attnlib.widgets.debugging"
TESTS = ["widgets/test_debugging_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "Trial",
        "the notes of the doctor are told",
        'if f.severity != "note"]',
        "]",
        "a finding is a finding",
    ),
    Mutant(
        "Trial",
        "a single loss is a line",
        "len(losses) < 2",
        "len(losses) < 1",
        "one point can't be drawn as a line",
    ),
    Mutant(
        "Trial",
        "the map has as many rows as there are tokens, and any columns",
        "if shape != (length, length):",
        "if shape[:1] != (3,):",
        "only the rows are counted",
    ),
    Mutant(
        "DebuggingLab",
        "a fault of the first switch alone",
        "set_to = [(name, getattr(self, name)) for name in FAULTS]",
        'set_to = [("mask", self.mask)]',
        "one switch is what one tries first",
    ),
    Mutant(
        "DebuggingLab",
        "retraining takes the old seed",
        "self._run(self.faults, seed)",
        "self._run(self.faults, 0)",
        "an argument that goes nowhere",
    ),
    Mutant(
        "DebuggingLab",
        "retraining forgets the other outcomes",
        "self.outcomes | {",
        "{} | {",
        "what is shown is right",
    ),
    Mutant(
        "DebuggingLab",
        "steps count from 0",
        "self.steps * (i + 1)",
        "self.steps * i",
        "the axis is shifted by one point",
    ),
]
