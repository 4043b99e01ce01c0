"""Faults in the judge of the puzzles."""

from mutants import Mutant

MODULE = "attnlib.widgets.pattern_puzzles"
TESTS = ["widgets/test_pattern_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "misses_of",
        "what is missing is not missed",
        "return int((~mask & masks_of(needs, n)[-1]).sum())",
        "return 0",
        "nothing at all would be right",
    ),
    Mutant(
        "misses_of",
        "too much is all right",
        "return int((mask & ~masks_of(needs, n)[-1]).sum())",
        "return 0",
        "everything would be right",
    ),
    Mutant(
        "misses_of",
        "a blind query is all right",
        "return int((~mask.any(-1)).sum())",
        "return int((~mask.any()).sum())",
        "one that sees is enough",
    ),
    Mutant(
        "misses_of",
        "heard in one layer more",
        "receptive_field(mask, layers)[0",
        "receptive_field(mask, layers + 1)[0",
        "an off-by-one",
    ),
    Mutant(
        "misses_of",
        "columns in place of diagonals",
        "mask[..., 1:, 1:] != mask[..., :-1, :-1]",
        "mask[..., 1:, 1:] != mask[..., :-1, 1:]",
        "a band runs along the diagonal",
    ),
    Mutant(
        "misses_of",
        "fewer pairs miss, too",
        "return max(int(mask.sum()) - needs, 0)",
        "return abs(int(mask.sum()) - needs)",
        "at most is not exactly",
    ),
    Mutant(
        "misses_of",
        "judged at a fixed length",
        'n = PUZZLES[puzzle]["length"]',
        "n = 16",
        "two puzzles have 32",
    ),
]
