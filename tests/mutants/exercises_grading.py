"""Faults in the grader: each would let a wrong solution pass, or name the wrong mistake."""

from mutants import Mutant

MODULE = "attnlib.exercises.grading"
TESTS = ["test_grading.py"]
MUTANTS = [
    Mutant(
        "check",
        "one case is enough",
        "cases = list(exercise.cases())\n",
        "cases = list(exercise.cases())[:1]\n",
        "right for the sizes of the example alone",
    ),
    Mutant(
        "check",
        "no gradients",
        "        or _wrong_gradient(exercise, solution, cases)\n",
        "",
        "only what comes out is compared",
    ),
    Mutant(
        "check",
        "leaves the random state moved",
        "        torch.set_rng_state(state)\n",
        "        pass\n",
        "a seed is set, and the caller's draws repeat",
    ),
    Mutant(
        "check",
        "hands over the true arguments",
        "        return value.detach().clone()\n",
        "        return value\n",
        "what one call changes, the next one gets",
    ),
    Mutant(
        "check",
        "any error is a match",
        "        if self.error is not None and due.error is not None:",
        "        if self.error is not None or due.error is not None:",
        "who crashes equals everybody",
    ),
    Mutant(
        "check",
        "a suspect that fits in part is taken for all",
        "            if all(fits):\n                return suspect, True\n",
        "            return suspect, True\n",
        "the first that fits once is named",
    ),
    Mutant(
        "check",
        "the first hint again and again",
        "exercise.hints[min(hints, len(exercise.hints)) - 1]",
        "exercise.hints[0]",
        "the number of the hint is not used",
    ),
    Mutant(
        "exercises",
        "all chapters, whichever was asked for",
        "if chapter in (None, e.chapter)",
        "if chapter in (None, chapter)",
        "a condition that is always true",
    ),
    Mutant(
        "exercises",
        "an unknown chapter has none",
        "    if not chosen:",
        "    if chosen is None:",
        "an empty list is not None",
    ),
    Mutant(
        "exercises",
        "a plain tuple",
        "chosen = Contents(e for",
        "chosen = tuple(e for",
        "it can be gone through, and prints as code",
    ),
    Mutant(
        "Contents",
        "no headed rows",
        '<th scope="row"><code>',
        "<td><code>",
        "a table for the eye alone",
    ),
    Mutant(
        "Contents",
        "names, not calls",
        "html.escape(e.usage)",
        "html.escape(e.name)",
        "the reader has to guess the arguments",
    ),
    Mutant(
        "Contents",
        "in one line",
        '        return "\\n".join(\n            f"{e.name:18}',
        '        return " ".join(\n            f"{e.name:18}',
        "the lines run into each other",
    ),
]
