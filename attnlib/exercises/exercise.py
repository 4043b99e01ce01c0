"""What an exercise is made of: a task, inputs to try, and the mistakes to expect."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

DIFFICULTIES = ("easy", "medium", "hard")


@dataclass(frozen=True)
class Case:
    """One call of the solution.

    Args:
        words: The inputs in words, to complete "wrong first for ...".
        arguments: What the solution is called with; each call gets its own copy.
        key: A short name for what only this case tries, such as ``"batch-of-one"``. A solution
            that fails here first, and like no suspect, is diagnosed ``fails-at-batch-of-one``.
        gradient: Whether gradients are compared, too.

    Example:
        >>> Case("a batch of one", (3, 4), key="batch-of-one").arguments
        (3, 4)
    """

    words: str
    arguments: tuple
    key: str = "other-inputs"
    gradient: bool = True


@dataclass(frozen=True)
class Complaint:
    """What a probe has to say about a solution whose outputs are all right.

    Args:
        key: The diagnosis, a short stable name.
        says: The sentence with the evidence.

    Example:
        >>> Complaint("loops", "twice the length took twice the operations").key
        'loops'
    """

    key: str
    says: str


@dataclass(frozen=True)
class Suspect:
    """A mistake that people make, as a function that makes it.

    Args:
        key: The diagnosis, a short stable name.
        says: The sentence for the reader; a ``{}`` in it is filled by ``measure``.
        twin: Called like a solution. Who behaves like it in every case has made its mistake.
        measure: Called with the reader's solution; returns the evidence in words.

    Example:
        >>> Suspect("sum-forgotten", "you added nothing", lambda a, b: a).twin(1, 2)
        1
    """

    key: str
    says: str
    twin: Callable
    measure: Callable[[Callable], str] | None = None


@dataclass(frozen=True)
class Exercise:
    """One exercise and all that its grader needs.

    Args:
        name: What ``check`` is asked for.
        chapter: The page of the book, as in ``book/<chapter>.ipynb``.
        task: The task in one line.
        takes: The names of the arguments, in the order in which they are handed over.
        difficulty: ``"easy"``, ``"medium"`` or ``"hard"``.
        minutes: About how long it takes.
        hints: From a nudge to nearly there; none of them is the solution.
        reference: A right solution.
        cases: Makes the inputs to try, the plainest one first. It runs with a fixed seed.
        suspects: The mistakes to expect. Where several fit, the first one is named.
        probes: Called with a solution that is right in all cases; each returns a complaint or
            nothing.
        call: How a case is run, given the solution and the arguments; a plain call if left out.
        patient: What the doctor is shown if no suspect explains a solution: makes a module, its
            inputs and its promises, as ``attnlib.doctor.examine`` takes them.

    Raises:
        ValueError: If the difficulty is none of the three, or there is no hint.

    Example:
        >>> add = Exercise(
        ...     "add", "qkv", "Add two numbers.", ("a", "b"), "easy", 1, ("Use a plus.",),
        ...     lambda a, b: a + b, lambda: [Case("2 and 3", (2, 3))],
        ... )
        >>> add.usage
        'add(a, b)'
    """

    name: str
    chapter: str
    task: str
    takes: tuple[str, ...]
    difficulty: str
    minutes: int
    hints: tuple[str, ...]
    reference: Callable
    cases: Callable[[], Iterable[Case]]
    suspects: tuple[Suspect, ...] = ()
    probes: tuple[Callable[[Callable], Complaint | None], ...] = ()
    call: Callable[..., Any] | None = None
    patient: Callable[[Callable], tuple[Callable, tuple, dict[str, Any]]] | None = None

    def __post_init__(self) -> None:
        if self.difficulty not in DIFFICULTIES:
            raise ValueError(f"difficulty must be one of {DIFFICULTIES}, got {self.difficulty!r}")
        if not self.hints:
            raise ValueError(f"the exercise {self.name} has no hint; give it one at least")

    @property
    def usage(self) -> str:
        """How a solution is called, as in ``attend(q, k, v)``."""
        return f"{self.name}({', '.join(self.takes)})"

    def run(self, solution: Callable, arguments: tuple) -> Any:
        """Run a solution on the arguments of one case."""
        return solution(*arguments) if self.call is None else self.call(solution, *arguments)
