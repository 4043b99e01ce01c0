"""Faults in the English and Chinese sentences."""

from mutants import Mutant

MODULE = "attnlib.data.sentences"
TESTS = ["test_data.py"]
NEEDS = ["sklearn.datasets"]
MUTANTS = [
    Mutant(
        "SentencePair",
        "Chinese before English",
        "    english: tuple[str, ...]\n    chinese: tuple[str, ...]\n",
        "    chinese: tuple[str, ...]\n    english: tuple[str, ...]\n",
        "fields in another order",
    ),
    Mutant(
        "SentencePair",
        "places of Chinese before those of English",
        "product(places, chinese_places[group])",
        "product(chinese_places[group], places)",
        "a transposed alignment: right on the diagonal",
    ),
    Mutant(
        "SentencePair",
        "the last link is missing",
        "tuple(sorted(links))",
        "tuple(sorted(links))[:-1]",
        "off by one",
    ),
    Mutant(
        "Translations",
        "training and test swapped",
        "    training: list[SentencePair]\n    held_back: list[SentencePair]\n",
        "    held_back: list[SentencePair]\n    training: list[SentencePair]\n",
        "a tuple without names",
    ),
    Mutant(
        "Translations",
        "nothing is held back",
        "goal = sentences.held_back if (v + o) % len(verbs) == 0 else sentences.training",
        "goal = sentences.training",
        "testing on what was learned",
    ),
    Mutant(
        "Translations",
        "what is held back is learned as well",
        "        for (subject, form)",
        "        goal = goal if goal is sentences.training else sentences.training\n"
        "        for (subject, form)",
        "a leak from test to training",
    ),
    Mutant(
        "translations",
        "place before time",
        "chinese = (subject, front, time, place, degree, verb[form], thing)",
        "chinese = (subject, front, place, time, degree, verb[form], thing)",
        "English order",
    ),
    Mutant(
        "translations",
        "the degree comes last",
        "chinese = (subject, front, time, place, degree, verb[form], thing)",
        "chinese = (subject, front, time, place, verb[form], thing, degree)",
        "English order",
    ),
    Mutant(
        "translations",
        "other combinations are held back",
        "(v + o) % len(verbs) == 0",
        "(v + o) % len(verbs) == 1",
        "the article's sentence is learned by heart",
    ),
    Mutant(
        "translations",
        "a whole verb is held back",
        "(v + o) % len(verbs) == 0",
        "v == 0",
        "its word is never seen in training",
    ),
    Mutant(
        "translations",
        "she love",
        "verb[form], thing, degree, place, time)",
        "verb[0], thing, degree, place, time)",
        "an ending that is forgotten",
    ),
    Mutant(
        "translations",
        "two words for one are linked to the first alone",
        "for link in product(places, chinese_places[group])",
        "for link in zip(places, chinese_places[group])",
        "zip stops at the shorter side",
    ),
]
