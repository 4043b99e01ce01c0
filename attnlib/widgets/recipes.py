"""Masks written as recipes: ``"window 2 or global 1 and causal"``, from left to right."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool
from torch import Tensor

from attnlib import masks

LONGEST = 64  # a size may be as large
BLOCK = 4  # tokens in a block of the random pattern
MOST_BLOCKS = 3
MOST_LINES = 6


class _Pattern(NamedTuple):
    """One pattern: its mask for a length and a size, the same as code, and the smallest size."""

    build: Callable[[int, int], Tensor]
    code: str
    least: int = 0


def _first(n: int, size: int) -> Bool[Tensor, "1 n"]:
    return torch.arange(n)[None] < size


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


PATTERNS = {
    "causal": _Pattern(lambda n, _: masks.causal_mask(n), "causal_mask(n)"),
    "padding": _Pattern(
        lambda n, size: masks.padding_mask(torch.tensor([n - size]), n),
        "padding_mask(torch.tensor([n - {size}]), n)",
    ),
    "left_padding": _Pattern(
        lambda n, size: masks.left_padding_mask(torch.tensor([n - size]), n),
        "left_padding_mask(torch.tensor([n - {size}]), n)",
    ),
    "window": _Pattern(
        lambda n, size: masks.window_mask(n, radius=size), "window_mask(n, radius={size})"
    ),
    "global": _Pattern(
        lambda n, size: masks.global_mask(_first(n, size)),
        "global_mask(torch.arange(n)[None] < {size})",
    ),
    "random": _Pattern(
        lambda n, size: masks.random_block_mask(
            n, block_size=BLOCK, n_blocks=size, generator=_seeded()
        ),
        "random_block_mask(\n    n, block_size=4, n_blocks={size}, "
        "generator=torch.Generator().manual_seed(0)\n)",
        least=1,
    ),
    "prefix": _Pattern(
        lambda n, size: masks.prefix_mask(torch.tensor([size]), n),
        "prefix_mask(torch.tensor([{size}]), n)",
    ),
    "document": _Pattern(
        lambda n, size: masks.document_mask(torch.arange(n)[None] // size),
        "document_mask(torch.arange(n)[None] // {size})",
        least=1,
    ),
}


class Line(NamedTuple):
    """One line of a recipe: how it joins the mask so far, and with which pattern."""

    join: str
    negated: bool
    kind: str
    size: int

    def fitting(self, n: int) -> int:
        """The size, no larger than a length of ``n`` has room for."""
        return min(self.size, -(-n // BLOCK) if self.kind == "random" else n)

    def mask(self, n: int) -> Bool[Tensor, "1 1 n n"]:
        """The mask of this line alone."""
        mask = PATTERNS[self.kind].build(n, self.fitting(n)).expand(1, 1, n, n)
        return ~mask if self.negated else mask

    def code(self, n: int) -> str:
        """The mask of this line alone, as code in which ``n`` is the length."""
        return "~" * self.negated + PATTERNS[self.kind].code.format(size=self.fitting(n))


def read_recipe(recipe: str) -> list[Line]:
    """Read "window 2 or global 1 and not causal", line by line.

    Raises:
        ValueError: If a word is not the one that must come, or there are too many lines.
    """
    words, lines, join = recipe.split(), [], "and"
    while True:
        line, words = _read_line(recipe, join, words)
        lines.append(line)
        if not words:
            break
        join, *words = words
        if join not in ("and", "or"):
            raise ValueError(f'{recipe!r}: patterns are joined by "and" or "or", got {join!r}')
    if len(lines) > MOST_LINES:
        raise ValueError(f"{recipe!r} has {len(lines)} lines, and {MOST_LINES} are the most")
    return lines


def _read_line(recipe: str, join: str, words: list[str]) -> tuple[Line, list[str]]:
    """Read one line, and return the words behind it, too."""
    negated = words[:1] == ["not"]
    kind, *words = words[negated:] or [""]
    if kind not in PATTERNS:
        known = ", ".join(PATTERNS)
        raise ValueError(f"{recipe!r}: the patterns are {known}; got {kind!r}")
    if kind == "causal":
        return Line(join, negated, kind, 0), words
    size, *words = words or [""]
    least, most = PATTERNS[kind].least, MOST_BLOCKS if kind == "random" else LONGEST
    if not size.isdecimal() or not least <= int(size) <= most:
        raise ValueError(
            f"{recipe!r}: {kind} needs a whole number from {least} to {most}, as in "
            f"'{kind} {max(least, 1)}'; got {size!r}"
        )
    return Line(join, negated, kind, int(size)), words


def masks_of(recipe: str, n: int) -> list[Bool[Tensor, "1 1 n n"]]:
    """Make the mask of a recipe, and return what it is after each line."""
    made = []
    for line in read_recipe(recipe):
        mask = line.mask(n)
        if made:
            mask = made[-1] & mask if line.join == "and" else made[-1] | mask
        made.append(mask)
    return made
