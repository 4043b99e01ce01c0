"""Graders for the exercises of the book: hand in a function, and hear what is wrong with it.

``check("attend", my_attend)`` runs the solution on inputs of many sizes, compares it with a
reference and with the mistakes that people really make, and returns a ``Verdict``: whether it is
right, which mistake it looks like, and the next hint. It never tells the solution.
``exercises()`` lists them.
"""

from attnlib.exercises.exercise import Case, Complaint, Exercise, Suspect
from attnlib.exercises.grading import check, exercises
from attnlib.exercises.verdict import Verdict

__all__ = ["Case", "Complaint", "Exercise", "Suspect", "Verdict", "check", "exercises"]
