"""What an import costs beside that of torch: each time in a fresh process."""

import subprocess
import sys
from functools import partial

from measure import Effort, Table, time_rounds

PEER = "import torch"
OURS = ("import attnlib", "from attnlib.layers import MultiHeadAttention")
BAR = 1.03


def run(effort: Effort, quick: bool) -> list[Table]:
    table = Table("Time over that of `import torch`", ["statement", "ms", "over torch", "rounds"])
    effort = effort if quick else Effort(effort.rounds, 10 * effort.seconds)  # 6 s a round
    rounds = time_rounds({s: partial(_import, s) for s in (PEER, *OURS)}, effort)
    for statement in (PEER, *OURS):
        ratio = rounds.ratio(statement, PEER)
        table.add(f"`{statement}`", rounds.milliseconds(statement), ratio, rounds.count())
    for statement in OURS:
        table.promise(f"`{statement}`", rounds.ratio(statement, PEER).median, BAR)
    return [table]


def _import(statement: str) -> None:
    subprocess.run([sys.executable, "-c", statement], check=True)
