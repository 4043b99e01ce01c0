"""The variants lab: pick stacks, mask and task, and find out which model it is."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool
from matplotlib.figure import Figure
from torch import Tensor

from attnlib.masks import causal_mask, padding_mask, prefix_mask
from attnlib.plot import heatmap
from attnlib.widgets.lab import Choice, Given, Lab, front_end

STACKS = {"one": "one stack", "two": "two stacks"}
MASKS = {"all": "everyone", "past": "the past", "prefix": "the source and the past"}
SHIFTS = {"shifted": "shifted by one", "as it is": "not shifted"}
MOST_TOKENS = 16


class Task(NamedTuple):
    """What is read, and what is to be said.

    ``places`` says where in the source one stack gives its answers, one place for each label; it is
    empty if the answers are written behind the source. ``start`` is the token that stands in front
    of what is written.

    Example:
        >>> Task("the [MASK] sat".split(), ["cat"], [1]).start
        '<s>'
    """

    read: list[str]
    said: list[str]
    places: list[int] = []  # noqa: RUF012  # a tuple's default, which nobody changes
    start: str = "<s>"


@dataclass(frozen=True)
class Verdict:
    """What comes of it.

    Attributes:
        tokens: What goes in, the source first.
        allowed: Which token (row) sees which one (column).
        answers: The row that gives each label.
        copied: Labels that see their own answer among what was written.
        missed: The most tokens of the source that a label does not see.
        model: The model that was made so; empty if it is none of those known.
    """

    tokens: list[str]
    allowed: Bool[Tensor, "length length"]
    answers: list[int]
    copied: list[int]
    missed: int
    model: str


class VariantsLab(Lab):
    """Pick the stacks, the mask of the stack that answers, and the task: which model is it?

    One stack has source and target in one sequence. With two stacks, the encoder reads the source,
    all of it, and the decoder sees all of that through cross-attention. No weights are needed: who
    sees whom follows from the masks alone.

    Args:
        tasks: The tasks by name.
        known: Names of models, each under ``(stacks, mask, name of the task)``.
        stacks: ``"one"`` or ``"two"``.
        mask: ``"all"``, ``"past"`` or ``"prefix"``. A prefix mask shows everyone the source, if it
            is in the same stack, and is causal behind it.
        task: One of the tasks; the first one if left out.
        shift: Whether the written tokens are the labels ``"shifted"`` or ``"as it is"``.

    Raises:
        ValueError: If there is no task, one of them has no label, more than 16 tokens, or not one
            place in the source for each label, or a switch is set to what it does not have.
        AttributeError: If the tasks or the names are changed later.

    Example:
        >>> tasks = {"next word": Task([], ["cat", "sat"], start="the")}
        >>> lab = VariantsLab(tasks, {("one", "past", "next word"): "GPT"}, mask="past")
        >>> lab.result().model
        'GPT'
        >>> lab.mask = "all"
        >>> lab.result().copied  # "cat" is among what its row sees
        [0]
    """

    _esm = front_end("variants.js")

    tasks = Given(None).tag(sync=True)
    known = Given(None).tag(sync=True)

    stacks = Choice(lambda lab: tuple(STACKS), default="one").tag(sync=True)
    mask = Choice(lambda lab: tuple(MASKS), default="all").tag(sync=True)
    task = Choice(lambda lab: tuple(lab.tasks), default="").tag(sync=True)
    shift = Choice(lambda lab: tuple(SHIFTS), default="shifted").tag(sync=True)

    def __init__(
        self,
        tasks: Mapping[str, Task],
        known: Mapping[tuple[str, str, str], str],
        *,
        stacks: str = "one",
        mask: str = "all",
        task: str | None = None,
        shift: str = "shifted",
    ) -> None:
        if not tasks:
            raise ValueError("a variants lab needs a task or more, got none")
        for name, one in tasks.items():
            _check(name, one)
        super().__init__(
            tasks={
                name: {**one._asdict(), "places": list(one.places)} for name, one in tasks.items()
            },
            known={" · ".join(key): name for key, name in known.items()},
            stacks=stacks,
            mask=mask,
            task=next(iter(tasks)) if task is None else task,
            shift=shift,
        )

    def result(self) -> Verdict:
        """Work out with attnlib's masks who sees whom, and what that means."""
        read, said, places, start = self.tasks[self.task].values()
        in_place = bool(places) and self.stacks == "one"
        written = [] if in_place else [start, *said[:-1]] if self.shift == "shifted" else said
        tokens, n_read = [*read, *written], len(read)
        answers = places if in_place else [n_read + i for i in range(len(said))]
        allowed = self._allowed(len(tokens), n_read)
        late = 1 if self.shift == "shifted" else 0  # an answer is written so much later
        seen = [[] if in_place else allowed[row, row + late :][:1].tolist() for row in answers]
        mask = self._means(n_read, len(tokens))
        return Verdict(
            tokens=tokens,
            allowed=allowed,
            answers=answers,
            copied=[i for i, is_seen in enumerate(seen) if is_seen == [True]],
            missed=max(int((~allowed[row, :n_read]).sum()) for row in answers),
            model=self.known.get(f"{self.stacks} · {mask} · {self.task}", ""),
        )

    def sentence(self) -> str:
        """Say which switches are on, and which model that is."""
        now = self.result()
        if now.copied:
            means = f"{len(now.copied)} of {len(now.answers)} labels see their answer"
        elif now.missed:
            means = f"no leak, but a label misses {now.missed} tokens of the source"
        else:
            means = now.model or "none of the known models"
        return f"Variants lab, {self._settings()}: {means}."

    def still(self) -> Figure:
        """Draw who sees whom."""
        now = self.result()
        side = 2.4 + 0.4 * len(now.tokens)
        figure = Figure(figsize=(side, side), layout="constrained")
        share = now.allowed / now.allowed.sum(-1, keepdim=True)
        heatmap(
            share,
            rows=now.tokens,
            columns=now.tokens,
            allowed=now.allowed,
            limits=(0, 1),
            ax=figure.subplots(),
        )
        figure.suptitle(self._settings(), fontsize=9)
        return figure

    def _allowed(self, n: int, n_read: int) -> Bool[Tensor, "length length"]:
        """The whole square: source rows first, then the rows that write."""
        if self.stacks == "one":
            return self._square(n, n_read)
        reads = padding_mask(torch.tensor([n_read]), n)[0, 0].expand(n, n).clone()
        reads[n_read:, n_read:] = self._square(n - n_read, 0)  # its own stack holds no source
        return reads

    def _square(self, n: int, n_read: int) -> Bool[Tensor, "length length"]:
        if self.mask == "all":
            return torch.ones(n, n, dtype=torch.bool)
        if self.mask == "past":
            return causal_mask(n)[0, 0]
        return prefix_mask(torch.tensor([n_read]), n)[0, 0]

    def _means(self, n_read: int, n: int) -> str:
        """A prefix mask with no prefix is causal; one with nothing behind it hides nothing."""
        if self.mask != "prefix":
            return self.mask
        if self.stacks == "two" or n_read == 0:
            return "past"
        return "all" if n_read == n else "prefix"

    def _settings(self) -> str:
        shift = "" if self.shift == "shifted" else ", labels not shifted"
        return f"{STACKS[self.stacks]}, {MASKS[self.mask]}, {self.task}{shift}"


def _check(name: str, task: Task) -> None:
    n = len(task.read) + len(task.said)
    if not task.said or n > MOST_TOKENS:
        raise ValueError(
            f"task {name!r} must have a label or more, and {MOST_TOKENS} tokens at most; got "
            f"{len(task.said)} labels and {n} tokens"
        )
    places = list(task.places)
    if places and (len(places) != len(task.said) or not set(places) <= set(range(len(task.read)))):
        raise ValueError(
            f"task {name!r} must have one place in 0 to {len(task.read) - 1} for each of its "
            f"{len(task.said)} labels, or no places; got {places}"
        )
