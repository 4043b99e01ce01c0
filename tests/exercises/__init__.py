"""Collects the right and the wrong solutions of a chapter's exercises."""

from collections import defaultdict
from collections.abc import Callable


class Solutions:
    """Two decorators, and the lists they fill: ``right[name]`` and ``wrong[name]``."""

    def __init__(self) -> None:
        self.right: dict[str, list[Callable]] = defaultdict(list)
        self.wrong: dict[str, list[tuple[Callable, str]]] = defaultdict(list)

    def is_right(self, exercise: str) -> Callable:
        """Mark a solution that must be accepted."""

        def keep(solution: Callable) -> Callable:
            self.right[exercise].append(solution)
            return solution

        return keep

    def is_wrong(self, exercise: str, diagnosis: str) -> Callable:
        """Mark a solution that must be rejected, for this reason."""

        def keep(solution: Callable) -> Callable:
            self.wrong[exercise].append((solution, diagnosis))
            return solution

        return keep
