"""Faults in the comparison of results."""

from mutants import Mutant

MODULE = "attnlib.exercises.comparing"
TESTS = ["test_grading.py"]
MUTANTS = [
    Mutant(
        "difference",
        "asks a broadcast for the shape",
        "    if got.shape != due.shape:",
        "    if got.ndim != due.ndim:",
        "what broadcasts may be compared, and (1, 3) then equals (3, 3)",
    ),
    Mutant(
        "difference",
        "takes NaN for right",
        "nan_to_num(nan=1.0)",
        "nan_to_num(nan=0.0)",
        "NaN compares as false, whichever way round",
    ),
    Mutant(
        "difference",
        "one tolerance for all dtypes",
        "wrong = off > TOLERANCE[due.dtype]",
        "wrong = off > 2e-5",
        "float32's, in float64 and in float16",
    ),
    Mutant(
        "difference",
        "lists end with the shorter one",
        "or len(got) != len(due):",
        "or len(got) > len(due):",
        "zip stops at the end of the shorter one",
    ),
    Mutant(
        "difference",
        "looks at the first of many",
        "return next((part for part in parts if part is not None), None)",
        "return next(parts, None)",
        "the first comparison, not the first difference",
    ),
]
