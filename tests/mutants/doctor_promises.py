"""Faults in the promises."""

from mutants import Mutant

MODULE = "attnlib.doctor.promises"
TESTS = ["test_doctor.py"]
MUTANTS = [
    Mutant(
        "Promises",
        "any meaning passes",
        "        if self.padding_means not in (None, *MEANINGS):\n",
        "        if False:\n",
        "a forgotten check: a misspelt meaning is read as hide",
    ),
    Mutant(
        "Promises",
        "any side passes",
        '        if self.left_padding not in (False, True, "only"):\n',
        "        if False:\n",
        "left_padding='right' would be taken for yes",
    ),
    Mutant(
        "Promises",
        "any design passes",
        "        if unknown:\n            raise ValueError(",
        "        if False:\n            raise ValueError(",
        "a misspelt cause would excuse nothing, in silence",
    ),
    Mutant(
        "Promises",
        "an unknown promise is dropped",
        "        if unknown:\n            raise TypeError(",
        "        if False:\n            raise TypeError(",
        "casual=True in place of causal=True",
    ),
]
