"""The positions lab: what an encoding does to the scores of one and the same token."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from attnlib.plot import heatmap
from attnlib.positions import Alibi, Rope, sinusoidal_encoding
from attnlib.widgets.lab import Choice, Given, Lab, Range, front_end

WAYS = {
    "none": "none",
    "sinusoidal": "sinusoidal",
    "learned": "learned",
    "rope": "RoPE",
    "alibi": "ALiBi",
}
BASES = (10, 100, 1000, 10_000, 100_000)
MOST_POSITIONS = 12  # in the picture
MOST_ROWS = 64  # in a learned table
MOST_NUMBERS = 16  # in a vector


@dataclass(frozen=True)
class PositionScores:
    """What the lab shows, in float64.

    Attributes:
        scores: Score of each query (row) for each key (column), in nats; NaN where a learned table
            has no row.
        spread: The largest difference between two scores of the same distance, in nats.
    """

    scores: Float[Tensor, "length length"]
    spread: float


class PositionsLab(Lab):
    r"""Put the same token at each place: whatever differs between scores comes from positions.

    .. math:: scores_{ij} = q_i \cdot k_j / \sqrt{d}

    Query and key are the token itself, plus its encoding (sinusoidal, learned) or turned by its
    position (RoPE); ALiBi's bias is that of the first of 8 heads.

    Args:
        token: The vector of the token, of even width, at most 16.
        table: Rows of a learned encoding, at most 64 of them, as wide as the token.
        encoding: ``"none"``, ``"sinusoidal"``, ``"learned"``, ``"rope"`` or ``"alibi"``.
        base: How much slower the slowest wave is: 10, 100, 1000, 10000 or 100000.
        length: Number of positions, 2 to 12.
        offset: The first position, 0 to 100.

    Raises:
        TypeError: If ``token`` or ``table`` is not a float tensor, or a switch is of another kind.
        ValueError: If a size does not fit or a number is not finite, or a switch is set to what it
            does not have.
        AttributeError: If the token or the table is changed later.

    Example:
        >>> lab = PositionsLab(torch.randn(8), torch.randn(16, 8), encoding="rope", length=4)
        >>> round(lab.result().spread, 6)  # the same at each distance
        0.0

    Source:
        :mod:`attnlib.positions`. The arithmetic in the browser is checked against it.
    """

    _esm = front_end("positions.js")

    token = Given(None).tag(sync=True)
    table = Given(None).tag(sync=True)

    encoding = Choice(lambda lab: tuple(WAYS), default="sinusoidal").tag(sync=True)
    base = Choice(lambda lab: BASES, default=10_000).tag(sync=True)
    length = Range(lambda lab: (2, MOST_POSITIONS), default=8).tag(sync=True)
    offset = Range(lambda lab: (0, 100), default=0).tag(sync=True)

    def __init__(
        self,
        token: Float[Tensor, " width"],
        table: Float[Tensor, "rows width"],
        *,
        encoding: str = "sinusoidal",
        base: int = 10_000,
        length: int = 8,
        offset: int = 0,
    ) -> None:
        _check("token", token, 1)
        _check("table", table, 2)
        width = len(token)
        if width % 2 or not 2 <= width <= MOST_NUMBERS:
            raise ValueError(
                f"token must have an even width of 2 to {MOST_NUMBERS}, as RoPE turns pairs, got "
                f"{width}"
            )
        if table.shape[1] != width or not 1 <= len(table) <= MOST_ROWS:
            raise ValueError(
                f"table must have 1 to {MOST_ROWS} rows of width {width}, as the token has, got "
                f"shape {tuple(table.shape)}"
            )
        super().__init__(
            token=token.detach().double().tolist(),
            table=table.detach().double().tolist(),
            encoding=encoding,
            base=base,
            length=length,
            offset=offset,
        )

    def result(self) -> PositionScores:
        """Recompute with attnlib what the lab shows now."""
        token = torch.tensor(self.token, dtype=torch.float64)
        d = len(token)
        x = token.expand(self.length, -1)
        if self.encoding == "sinusoidal":
            x = x + sinusoidal_encoding(self.length, d, offset=self.offset, base=self.base)
        elif self.encoding == "learned":
            rows = torch.full((self.length, d), math.nan, dtype=torch.float64)
            known = torch.tensor(self.table, dtype=torch.float64)[self.offset :][: self.length]
            rows[: len(known)] = known
            x = x + rows
        elif self.encoding == "rope":
            x = Rope(d, base=self.base).rotate(x[None, None], self.offset)[0, 0]
        scores = x @ x.T / math.sqrt(d)
        if self.encoding == "alibi":
            q = x.expand(1, 8, -1, -1)
            scores = scores + Alibi(8).bias(q, q)[0, 0]
        return PositionScores(scores, _spread(scores))

    def sentence(self) -> str:
        """Say which switches are on, and whether the distance alone counts."""
        return (
            f"Positions lab, {self._settings()}: scores of the same distance differ by up to "
            f"{self.result().spread:.2f} nats."
        )

    def still(self) -> Figure:
        """Draw the scores."""
        figure = Figure(figsize=(6, 4.6), layout="constrained")
        places = [str(self.offset + i) for i in range(self.length)]
        heatmap(
            self.result().scores,
            rows=places,
            columns=places,
            title=self._settings(),
            ax=figure.subplots(),
        )
        return figure

    def _settings(self) -> str:
        waves = f", base {self.base}" if self.encoding in ("sinusoidal", "rope") else ""
        last = self.offset + self.length - 1
        return f"{WAYS[self.encoding]}{waves}, positions {self.offset} to {last}"


def _spread(scores: Float[Tensor, "length length"]) -> float:
    """The largest difference along a diagonal; NaN does not count."""
    n = len(scores)
    lines = [scores.diagonal(k) for k in range(1 - n, n)]
    lines = [line[~line.isnan()] for line in lines]
    return max(((line.max() - line.min()).item() for line in lines if len(line)), default=0.0)


def _check(name: str, x: Tensor, dimensions: int) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"{name} must be a float tensor, got {got}; try torch.randn")
    if x.ndim != dimensions:
        raise ValueError(f"{name} must be {dimensions}-D, got shape {tuple(x.shape)}")
    if not x.isfinite().all():
        raise ValueError(f"{name} must be finite, got {x[~x.isfinite()][0].item()}")
