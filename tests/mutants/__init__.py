"""Mutants: faults made by hand, which the tests must notice one at a time.

A file here holds the mutants of one module of attnlib. To add one for, say, ``attnlib.plot``, write
``tests/mutants/plot.py``::

    from mutants import Mutant

    MODULE = "attnlib.plot"
    TESTS = ["test_plot.py"]  # in tests/; one of them must fail for each mutant
    NEEDS = ["matplotlib"]  # what these tests import within functions, and slowly; may be left out
    MUTANTS = [
        Mutant(
            "heatmap",  # the public function or class, three mutants or more for each
            "rows and columns swapped",  # what is wrong, as it is named when nobody notices
            "ax.imshow(values)",  # this text, found exactly once in the module,
            "ax.imshow(values.T)",  # is replaced by this one
            "why somebody would really make this mistake",
        ),
    ]

``python tests/mutants/run.py plot`` tries them, and ``tests/test_mutants.py`` tries them all.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One fault. A line that is repeated in the module is made unique by its neighbours."""

    of: str
    fault: str
    old: str
    new: str
    why: str
