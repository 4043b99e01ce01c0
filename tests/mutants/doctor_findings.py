"""Faults in what the doctor calls a finding and a cause."""

from mutants import Mutant

MODULE = "attnlib.doctor.findings"
TESTS = ["test_doctor.py"]
MUTANTS = [
    Mutant(
        "Finding",
        "any severity passes",
        "        if self.severity not in SEVERITIES:\n",
        "        if False:\n",
        "a forgotten check: a misspelt severity counts as healthy",
    ),
    Mutant(
        "Finding",
        "only the first cause is checked",
        "        for cause in (self.cause, *self.others):\n",
        "        for cause in (self.cause,):\n",
        "a later addition that the check does not know",
    ),
    Mutant(
        "Finding",
        "the fix is the title",
        "        return CAUSES[self.cause].fix\n",
        "        return CAUSES[self.cause].title\n",
        "a copied line",
    ),
    Mutant(
        "Finding",
        "the page is the chapter's name",
        "        return PAGES[self.chapter]\n",
        "        return self.chapter\n",
        "a name is no link",
    ),
    Mutant(
        "Cause",
        "can be changed by whoever reads it",
        "@dataclass(frozen=True)\nclass Cause:\n",
        "@dataclass\nclass Cause:\n",
        "frozen left out: one report could change the next",
    ),
    Mutant(
        "Cause",
        "fields in another order",
        "    title: str\n    fix: str\n",
        "    fix: str\n    title: str\n",
        "causes are written without names: every title becomes a fix",
    ),
    Mutant(
        "Cause",
        "a chapter may be left out",
        "    chapter: str\n\n\n",
        '    chapter: str = ""\n\n\n',
        "a default that hides what was forgotten",
    ),
]
