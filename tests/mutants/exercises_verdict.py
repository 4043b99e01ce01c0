"""Faults in what a grader shows."""

from mutants import Mutant

MODULE = "attnlib.exercises.verdict"
TESTS = ["test_grading.py"]
MUTANTS = [
    Mutant(
        "Verdict",
        "shows what was handed in as markup",
        "<td>{html.escape(text)}</td></tr>",
        "<td>{text}</td></tr>",
        "the text of an error may hold a <",
    ),
    Mutant(
        "Verdict",
        "no caption",
        "<table><caption>{caption}</caption>",
        "<table>",
        "a table that a screen reader cannot announce",
    ),
    Mutant(
        "Verdict",
        "does not name the mistake",
        'not yet ({self.diagnosis})"]',
        'not yet"]',
        "the sentence is there, and the name to look up is not",
    ),
    Mutant(
        "Verdict",
        "lines as long as they come",
        "                    text, _WIDTH, initial",
        "                    text, 9999, initial",
        "the evidence is a long sentence",
    ),
]
