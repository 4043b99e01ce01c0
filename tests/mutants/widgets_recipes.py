"""Faults in the recipes of the pattern lab."""

from mutants import Mutant

MODULE = "attnlib.widgets.recipes"
TESTS = ["widgets/test_pattern_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "read_recipe",
        "a pattern that is not turned round",
        'negated = words[:1] == ["not"]',
        "negated = False",
        "then the word not is no pattern",
    ),
    Mutant(
        "read_recipe",
        "any word joins",
        'if join not in ("and", "or"):',
        "if False:",
        "a size behind causal would be a word that joins",
    ),
    Mutant(
        "read_recipe",
        "a seventh line",
        "if len(lines) > MOST_LINES:",
        "if len(lines) > MOST_LINES + 1:",
        "the page has six",
    ),
    Mutant(
        "read_recipe",
        "a document of no tokens",
        "not least <= int(size) <= most",
        "not 0 <= int(size) <= most",
        "a division by zero",
    ),
    Mutant(
        "Line",
        "the opposite of nothing",
        "return ~mask if self.negated else mask",
        "return mask",
        "the word is read, and forgotten",
    ),
    Mutant(
        "Line",
        "a size beyond the length",
        'return min(self.size, -(-n // BLOCK) if self.kind == "random" else n)',
        "return self.size",
        "padding longer than the text",
    ),
    Mutant(
        "Line",
        "the code forgets the opposite",
        '"~" * self.negated + ',
        "",
        "the mask and its code differ",
    ),
    Mutant(
        "masks_of",
        "the words swapped",
        'if line.join == "and" else',
        'if line.join == "or" else',
        "they sound alike",
    ),
    Mutant(
        "masks_of",
        "only the last line counts",
        "        if made:\n",
        "        if False:\n",
        "every mask is one pattern",
    ),
    Mutant(
        "masks_of",
        "all join the first line",
        "mask = made[-1] & mask",
        "mask = made[0] & mask",
        "with two lines it is the same",
    ),
]
