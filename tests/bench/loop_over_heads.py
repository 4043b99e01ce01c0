"""A loop over the heads against all heads at once, both as the chapter on several heads has them.

Not a promise of attnlib's: that chapter shows the picture that is drawn here.
"""

import json
from functools import partial
from pathlib import Path
from types import FunctionType

import torch
from measure import Effort, Table, check_equal, time_rounds
from waiting import draw, medians

from attnlib.layers import MultiHeadAttention

BOOK = Path(__file__).parents[2] / "book"
LENGTHS = (8, 16, 32, 64, 128, 256, 512)
D_MODEL, N_HEADS = 256, 8
NAMES = {"loop": "a loop over the heads", "at once": "all heads at once"}


def run(effort: Effort, quick: bool) -> list[Table]:
    table = Table(
        f"Time of a loop over {N_HEADS} heads over that of all heads at once: one sequence, "
        f"d_model {D_MODEL}, forward",
        ["length", "at once, ms", "loop / at once", "rounds"],
    )
    drawn: dict[str, list[float]] = {name: [] for name in NAMES}
    lengths = (4, 8) if quick else LENGTHS
    for length in lengths:
        contenders = both_ways(length)
        check_equal(contenders, 1e-4)
        rounds = time_rounds(contenders, effort)
        ratio = rounds.ratio("loop", "at once")
        table.add(length, rounds.milliseconds("at once"), ratio, rounds.count())
        medians(drawn, rounds)
    if not quick:
        picture = BOOK / "_static" / "loop_over_heads.png"
        draw(lengths, {NAMES[name]: times for name, times in drawn.items()}, picture)
    return [table]


def both_ways(length: int) -> dict[str, partial]:
    """The two functions of the chapter, on a sequence of this length."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(D_MODEL, N_HEADS)
    scope = {"torch": torch, "x": torch.randn(1, length, D_MODEL)}
    for cell in json.loads((BOOK / "multi_head.ipynb").read_text("utf-8"))["cells"]:
        if cell["id"] in ("loop-over-heads", "fused-heads"):
            exec("".join(cell["source"]), scope)
    loop, at_once = scope["head_by_head"], scope["all_at_once"]
    return {"loop": partial(_forward, loop, layer), "at once": partial(_forward, at_once, layer)}


def _forward(function: FunctionType, layer: MultiHeadAttention) -> list[torch.Tensor]:
    with torch.no_grad():
        return [function(layer)]
