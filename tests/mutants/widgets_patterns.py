"""Faults in the pattern lab as Python computes it; the page is held to these numbers."""

from mutants import Mutant

MODULE = "attnlib.widgets.patterns"
TESTS = ["widgets/test_pattern_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "PatternLab",
        "blocks of one",
        "block_size=TILE",
        "block_size=1",
        "a single pair costs a whole block",
    ),
    Mutant(
        "PatternLab",
        "one head",
        'LAYER = {"d_head": 64, "n_heads": 12}',
        'LAYER = {"d_head": 64, "n_heads": 1}',
        "all heads are computed",
    ),
    Mutant(
        "PatternLab",
        "blind keys",
        "(~mask[0, 0].any(-1))",
        "(~mask[0, 0].any(-2))",
        "a key that nobody sees makes no NaN",
    ),
    Mutant(
        "PatternLab",
        "a layer late",
        "after.int().argmax(0), -1)",
        "after.int().argmax(0) + 1, -1)",
        "of itself a token has heard before",
    ),
    Mutant(
        "PatternLab",
        "never is at once",
        "torch.where(after.any(0), after.int().argmax(0), -1)",
        "after.int().argmax(0)",
        "argmax of nothing is 0",
    ),
    Mutant(
        "PatternLab",
        "torch masks as ours",
        "attn_mask = ~mask.expand",
        "attn_mask = mask.expand",
        "the opposite polarity",
    ),
    Mutant(
        "PatternLab",
        "the joins of the code swapped",
        'SIGNS = {"and": "&", "or": "|"}',
        'SIGNS = {"and": "|", "or": "&"}',
        "code of another mask",
    ),
    Mutant(
        "PatternLab",
        "a puzzle keeps the length",
        'self.length, self.recipe = (PUZZLES[puzzle][part] for part in ("length", "start"))',
        'self.recipe = PUZZLES[puzzle]["start"]',
        "the picture is not what is judged",
    ),
    Mutant(
        "PatternLab",
        "all it ever hears of",
        "(row >= 0) & (row <= self.layers)",
        "(row >= 0)",
        "the switch for the layers would do nothing",
    ),
    Mutant(
        "PatternNumbers",
        "the pairs of the last line alone",
        "pairs=[int(m.sum()) for m in masks_of(self.recipe, self.length)]",
        "pairs=[int(mask.sum())]",
        "what each line does is the point",
    ),
    Mutant(
        "PatternNumbers",
        "costs of the small mask",
        "costs=[mask_cost(m, **LAYER) for m in large]",
        "costs=[mask_cost(mask, **LAYER) for m in large]",
        "one number for five lengths",
    ),
    Mutant(
        "PatternNumbers",
        "judged without a puzzle",
        "misses_of(self.puzzle, self.recipe) if self.puzzle else []",
        "[]",
        "no puzzle is ever missed",
    ),
    Mutant(
        "Recipe",
        "anything goes",
        "        read_recipe(value)\n",
        "",
        "the error comes later, from elsewhere",
    ),
    Mutant(
        "Recipe",
        "spaces stay",
        'return " ".join(value.split())',
        "return value",
        "the page reads word by word",
    ),
    Mutant(
        "Recipe",
        "a list passes",
        "        if not isinstance(value, str):",
        "        if False:",
        "its error speaks of split",
    ),
]
