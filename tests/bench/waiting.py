"""An RNN against attention at equal work: what its steps cost because they wait for one another.

Not a promise of attnlib's: the chapter on the limits of recurrence shows the picture that is drawn
here. The numbers behind it are in results.md, and in the picture's own description.
"""

import json
import statistics
from functools import partial
from pathlib import Path

import torch
from measure import Effort, Rounds, Table, time_rounds
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from attnlib.layers import MultiHeadAttention
from attnlib.record import record_attention
from attnlib.recurrent import RNN

LENGTHS = (16, 32, 64, 128, 256, 512, 1024)
D_MODEL = 64
PICTURE = Path(__file__).parents[2] / "book" / "_static" / "wall_time.png"
NAMES = {"RNN": "RNN, a loop in Python", "nn.RNN": "nn.RNN, a loop in C++", "ours": "attention"}


def run(effort: Effort, quick: bool) -> list[Table]:
    table = Table(
        "Time of an RNN over that of attention, one sequence, forward; the RNN's state is so wide "
        "that both do equally many floating-point operations",
        ["length", "MFLOP", "d_hidden", "attention ms", "RNN / attention", "nn.RNN / attention",
         "rounds"],
    )  # fmt: skip
    drawn: dict[str, list[float]] = {name: [] for name in NAMES}
    lengths = (4, 8) if quick else LENGTHS
    for length in lengths:
        x, layers = contenders(length)
        work = flops(layers["ours"], x)
        for name in ("RNN", "nn.RNN"):
            assert abs(flops(layers[name], x) / work - 1) < 0.03, "unequal work is not compared"
        calls = {name: partial(_forward, layer, x) for name, layer in layers.items()}
        rounds = time_rounds(calls, effort)
        ratios = [rounds.ratio(name, "ours") for name in ("RNN", "nn.RNN")]
        table.add(
            length, f"{work / 1e6:.3g}", layers["RNN"].cell.d_hidden,
            rounds.milliseconds("ours"), *ratios, rounds.count(),
        )  # fmt: skip
        medians(drawn, rounds)
    if not quick:
        draw(lengths, {NAMES[name]: times for name, times in drawn.items()}, PICTURE)
    return [table]


def contenders(length: int, d: int = D_MODEL) -> tuple[Tensor, dict[str, nn.Module]]:
    """One sequence, an attention layer, and RNNs whose width makes their work equal to it."""
    torch.manual_seed(0)
    d_hidden = round((-d + (d**2 + 4 * (4 * d**2 + 2 * length * d)) ** 0.5) / 2)
    layers = {
        "ours": MultiHeadAttention(d, 1),
        "RNN": RNN(d, d_hidden),
        "nn.RNN": nn.RNN(d, d_hidden, batch_first=True),
    }
    return torch.randn(1, length, d), layers


def flops(layer: nn.Module, x: Tensor) -> int:
    """Count the operations of matrix products; a fused kernel would not be seen."""
    if isinstance(layer, nn.RNN):  # one kernel: 2 operations for each weight and step
        weights = layer.weight_ih_l0.numel() + layer.weight_hh_l0.numel()
        return 2 * weights * x.shape[1]
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        if isinstance(layer, MultiHeadAttention):
            with record_attention(layer):
                layer(x)
        else:
            layer(x)
    return counter.get_total_flops()


def draw(lengths: tuple[int, ...], milliseconds: dict[str, list[float]], picture: Path) -> None:
    """Draw the times against the length, and put them into the picture's description."""
    from matplotlib import pyplot, ticker

    from attnlib.plot import lines

    series = {name: torch.tensor(times) for name, times in milliseconds.items()}
    ax = lines(torch.tensor(lengths), series, x_label="tokens", y_label="milliseconds")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.xaxis.set_major_formatter(ticker.ScalarFormatter())
    ax.set_xticks(lengths)
    words = json.dumps({"lengths": lengths, "milliseconds": milliseconds})
    ax.figure.savefig(picture, dpi=100, metadata={"Software": None, "Description": words})
    pyplot.close(ax.figure)


def medians(drawn: dict[str, list[float]], rounds: Rounds) -> None:
    """Add the median of each contender, in milliseconds, to what will be drawn."""
    for name, times in drawn.items():
        times.append(round(statistics.median(rounds.seconds[name]) * 1e3, 4))


def _forward(layer: nn.Module, x: Tensor) -> object:
    with torch.no_grad():
        return layer(x)
