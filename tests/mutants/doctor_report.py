"""Faults in the report."""

from mutants import Mutant

MODULE = "attnlib.doctor.report"
TESTS = ["test_doctor.py"]
MUTANTS = [
    Mutant(
        "UnhealthyError",
        "is no AssertionError",
        "class UnhealthyError(AssertionError):\n",
        "class UnhealthyError(RuntimeError):\n",
        "a test suite would call it an error, not a failure",
    ),
    Mutant(
        "UnhealthyError",
        "any exception",
        "class UnhealthyError(AssertionError):\n",
        "class UnhealthyError(Exception):\n",
        "the first base class that comes to mind",
    ),
    Mutant(
        "UnhealthyError",
        "says the summary only",
        "            raise UnhealthyError(str(self))\n",
        "            raise UnhealthyError(self.summary)\n",
        "the evidence stays behind",
    ),
    Mutant(
        "Report",
        "a warning is fine",
        "        return not any(f.severity in (FAULT, WARNING) for f in self.findings)\n",
        "        return not any(f.severity in (FAULT,) for f in self.findings)\n",
        "what counts as healthy was settled twice",
    ),
    Mutant(
        "Report",
        "a note is not",
        "        return not any(f.severity in (FAULT, WARNING) for f in self.findings)\n",
        "        return not any(f.severity in (FAULT, WARNING, NOTE) for f in self.findings)\n",
        "every design that looks odd would be blamed",
    ),
    Mutant(
        "Report",
        "raises for the healthy",
        "        if not self.ok:\n",
        "        if self.ok:\n",
        "a lost not",
    ),
    Mutant(
        "Report",
        "writes what it is given into the page",
        "{html.escape(text)}</td>",
        "{text}</td>",
        "evidence quotes error messages, and those hold angle brackets",
    ),
]
