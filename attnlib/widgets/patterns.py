"""The pattern lab: a mask made line by line, what it costs, and how far it carries."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from itertools import pairwise

import torch
import traitlets
from jaxtyping import Bool, Int
from matplotlib.figure import Figure
from torch import Tensor

from attnlib import plot
from attnlib.masks import receptive_field
from attnlib.memory import MaskCost, mask_cost
from attnlib.widgets.lab import Choice, Given, Lab, Range, front_end
from attnlib.widgets.pattern_puzzles import PUZZLES, misses_of
from attnlib.widgets.recipes import (
    BLOCK,
    LONGEST,
    MOST_BLOCKS,
    MOST_LINES,
    PATTERNS,
    Line,
    masks_of,
    read_recipe,
)

LENGTHS = (8, 16, 32, LONGEST)
COST_LENGTHS = (64, 128, 256, 512, 1024)
LAYER = {"d_head": 64, "n_heads": 12}  # whose cost is counted
TILE = 16  # side of the blocks of which a processor computes all or nothing
MOST_LAYERS = 8
FORMS = ("bool", "additive", "blocked")
SIGNS = {"and": "&", "or": "|"}
PRESETS = {
    "GPT": "causal",
    "GPT, padding in front": "causal and left_padding 5",
    "BERT, padding behind": "padding 4",
    "Prefix language model": "prefix 6",
    "Longformer": "window 2 or global 1",
    "BigBird": "window 4 or global 4 or random 1",
    "Texts packed for a GPT": "document 4 and causal",
}


class Recipe(traitlets.TraitType):
    """Patterns, joined by words: ``"window 2 or global 1 and causal"``."""

    def validate(self, lab: Lab, value: object) -> str:
        """Refuse what is no recipe."""
        if not isinstance(value, str):
            raise TypeError(f"{self.name} must be a string such as 'causal and window 3'")
        read_recipe(value)
        return " ".join(value.split())


@dataclass(frozen=True)
class PatternNumbers:
    """What a pattern leads to.

    Attributes:
        allowed: Which query (row) may see which key (column).
        pairs: How many pairs are allowed after each line.
        blind: The queries that may see nothing.
        heard: After how many layers each query has heard of each token: 0 of itself, -1 if it has
            not after eight.
        costs: The cost of one layer at the lengths 64, 128, 256, 512, 1024, if only allowed pairs
            are computed.
        tiled: The share of all pairs at those lengths, if blocks of 16 are computed whole.
        misses: How far each check of the puzzle is from holding; 0 if it holds.
    """

    allowed: Bool[Tensor, "length length"]
    pairs: list[int]
    blind: list[int]
    heard: Int[Tensor, "length length"]
    costs: list[MaskCost]
    tiled: list[float]
    misses: list[int]


class PatternLab(Lab):
    """Make a mask line by line; see whom it lets see whom, what it costs, how far it carries.

    A recipe is read from left to right, as its lines are from top to bottom: ``or`` lets more
    pairs through, ``and`` keeps only some, ``not`` turns a pattern round. So in ``"window 2 or
    global 1 and causal"`` nothing of the future is left.

    Args:
        recipe: Patterns with their sizes, joined by ``and`` and ``or``: ``causal``, ``padding 4``
            (tokens behind), ``left_padding 4`` (in front), ``window 2`` (radius), ``global 1``
            (tokens at the front), ``random 1`` (blocks of 4), ``prefix 6`` (tokens), ``document 4``
            (tokens each). A size beyond the length counts as the length.
        length: Number of tokens: 8, 16, 32 or 64.
        query: The query that is looked at.
        layers: How many layers it has listened through, 0 to 8.
        form: How the mask is exported: ``"bool"``, ``"additive"`` or ``"blocked"``.

    Raises:
        TypeError: If the recipe is no string, or a number is not whole.
        ValueError: If the recipe can't be read, or a switch is set to what it does not have.

    Example:
        >>> lab = PatternLab("window 1 or global 1 and causal", length=8)
        >>> lab.result().allowed.int()[3].tolist()
        [1, 0, 1, 1, 0, 0, 0, 0]
        >>> lab.result().pairs  # after each line
        [22, 34, 21]
    """

    _esm = front_end("patterns.js")
    _css = Lab._css + (files(__package__) / "patterns.css").read_text(encoding="utf-8")

    tables = Given(None).tag(sync=True)

    recipe = Recipe("causal").tag(sync=True)
    length = Choice(lambda lab: LENGTHS, default=16).tag(sync=True)
    query = Range(lambda lab: (0, LONGEST - 1), default=0).tag(sync=True)
    layers = Range(lambda lab: (0, MOST_LAYERS), default=2).tag(sync=True)
    form = Choice(lambda lab: FORMS, default="bool").tag(sync=True)
    puzzle = Choice(lambda lab: ("", *PUZZLES), default="").tag(sync=True)

    def __init__(self, recipe: str = "causal", **switches: int | str) -> None:
        super().__init__(
            tables=_tables(),
            recipe=recipe,
            **switches,
        )

    def pose(self, puzzle: str) -> None:
        """Set the lab to where a puzzle starts.

        Raises:
            ValueError: If there is no such puzzle.
        """
        self.puzzle = puzzle
        self.length, self.recipe = (PUZZLES[puzzle][part] for part in ("length", "start"))

    def mask(self) -> Bool[Tensor, "1 1 length length"]:
        """Make the mask with :mod:`attnlib.masks`."""
        return masks_of(self.recipe, self.length)[-1]

    def result(self) -> PatternNumbers:
        """Work out with attnlib what the page shows."""
        mask = self.mask()
        large = [masks_of(self.recipe, n)[-1] for n in COST_LENGTHS]
        return PatternNumbers(
            allowed=mask[0, 0],
            pairs=[int(m.sum()) for m in masks_of(self.recipe, self.length)],
            blind=(~mask[0, 0].any(-1)).nonzero().flatten().tolist(),
            heard=_heard(mask),
            costs=[mask_cost(m, **LAYER) for m in large],
            tiled=[mask_cost(m, **LAYER, block_size=TILE).share for m in large],
            misses=misses_of(self.puzzle, self.recipe) if self.puzzle else [],
        )

    def code(self) -> str:
        """Write the mask as code, in the form that is chosen; the page shows the same."""
        lines = read_recipe(self.recipe)
        body = ["mask = " + lines[0].code(self.length)]
        body += [f"mask = mask {SIGNS[x.join]} {x.code(self.length)}" for x in lines[1:]]
        end, more = _code_end(self.form, {line.kind for line in lines})
        names = {PATTERNS[line.kind].code.split("(")[0] for line in lines}
        imports = f"from attnlib.masks import {', '.join(sorted(names | more))}"
        return "\n".join(["import torch", imports, "", f"n = {self.length}", *body, *end])

    def sentence(self) -> str:
        """Say the recipe, how much it lets through, and how far it carries."""
        now = self.result()
        n, pairs = self.length, now.pairs[-1]
        blind = f" {len(now.blind)} queries see nothing." if now.blind else ""
        query = min(self.query, n - 1)
        row = now.heard[query]
        count = int(((row >= 0) & (row <= self.layers)).sum())
        layers = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        return (
            f"Pattern lab, {n} tokens, {self.recipe}: {pairs} of {n * n} pairs "
            f"({pairs / n**2:.0%}).{blind} After {layers} query {query} has heard of {count} of "
            f"{n} tokens."
        )

    def still(self) -> Figure:
        """Draw who may see whom, and after how many layers who has heard of whom."""
        now = self.result()
        figure = Figure(figsize=(7.8, 4.4), layout="compressed")
        left, right = figure.subplots(1, 2)
        plot.pattern(now.allowed, title="who may see whom", ax=left)
        shown = now.heard.float().masked_fill(now.heard < 0, float("nan")).numpy()
        image = right.imshow(shown, cmap=plot.COLOURS + "_r", vmin=0, vmax=MOST_LAYERS)
        right.set(
            title="heard of after so many layers",
            xlabel="blank: not after eight",
            xticks=[],
            yticks=[],
        )
        figure.colorbar(image, ax=right, shrink=0.7)
        figure.suptitle(self.recipe)
        return figure


@cache
def _tables() -> dict:
    """What the page needs to know beside the switches."""
    return {
        "patterns": {kind: [pattern.least, pattern.code] for kind, pattern in PATTERNS.items()},
        "draws": {str(n): _draws(n) for n in sorted({*LENGTHS, *COST_LENGTHS})},
        "presets": PRESETS,
        "puzzles": PUZZLES,
        "limits": {"block": BLOCK, "blocks": MOST_BLOCKS, "lines": MOST_LINES},
        "layer": LAYER | {"lengths": list(COST_LENGTHS), "tile": TILE},
    }


def _draws(n: int) -> str:
    """The blocks that each block of queries draws, in their order, two hexadecimal digits each."""
    most = Line("and", False, "random", MOST_BLOCKS).fitting(n)
    draws = [Line("and", False, "random", k + 1).mask(n) for k in range(most)]
    drawn = [mask[0, 0, ::BLOCK, ::BLOCK] for mask in draws]
    new = [drawn[0]] + [after & ~before for before, after in pairwise(drawn)]
    return bytes(
        torch.stack([one.int().argmax(-1) for one in new], dim=-1).flatten().tolist()
    ).hex()


def _heard(mask: Bool[Tensor, "1 1 n n"]) -> Int[Tensor, "n n"]:
    after = torch.stack([receptive_field(mask, k)[0, 0] for k in range(MOST_LAYERS + 1)])
    return torch.where(after.any(0), after.int().argmax(0), -1)


def _code_end(form: str, kinds: set[str]) -> tuple[list[str], set[str]]:
    """The last line of the code, if there is one, and what it imports."""
    if form == "bool":
        return [], set()
    if form == "additive":
        return ["bias = to_additive(mask, torch.float32)  # 0 and -inf"], {"to_additive"}
    if kinds <= {"padding", "left_padding"}:
        call = "key_padding_mask = to_key_padding_mask(mask)  # True = ignore"
        return [call], {"to_key_padding_mask"}
    return ["attn_mask = ~mask.expand(1, 1, n, n)[0, 0]  # True = blocked"], set()
