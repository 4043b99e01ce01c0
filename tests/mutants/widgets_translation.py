"""Faults in the translation lab."""

from mutants import Mutant

MODULE = "attnlib.widgets.translation"
TESTS = ["widgets/test_translation_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "TranslationLab",
        "the still numbers the words",
        '"rows": now.written',
        '"rows": [f"word {i}" for i in range(len(now.written))]',
        "as it was before the package had a font",
    ),
    Mutant(
        "Translated",
        "every word has moved",
        "if before[i : i + 1] != [word]",
        "if before[i : i + 1] != word",
        "a list is never a word",
    ),
    Mutant(
        "Translated",
        "compared with itself",
        'before = self.outcomes[first]["written"]',
        'before = now["written"]',
        "nothing ever moves",
    ),
    Mutant(
        "Translated",
        "weights through two decimals",
        "round(decimals=7)",
        "round(decimals=2)",
        "what is shown is not what is stored",
    ),
    Mutant(
        "TranslationLab",
        "the step of another sentence",
        "step = min(self.step, len(now.written) - 1)",
        "step = self.step",
        "a shorter translation has no such step",
    ),
    Mutant(
        "TranslationLab",
        "speaks of the first row",
        "now.weights[step].argmax()",
        "now.weights[0].argmax()",
        "the default taken for the step",
    ),
    Mutant(
        "TranslationLab",
        "takes weights the wrong way round",
        "tuple(weights.shape) != expected",
        "sorted(weights.shape) != sorted(expected)",
        "a rectangle on its side",
    ),
    Mutant(
        "TranslationLab",
        "takes 65 sentences",
        "1 <= len(sentences) <= MOST_SENTENCES",
        "1 <= len(sentences) <= MOST_SENTENCES + 1",
        "one off",
    ),
]
