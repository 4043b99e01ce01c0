"""The distance lab: how much of the first token is still felt some steps later."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor, nn
from torch.autograd.functional import jvp

from attnlib.functional import attention
from attnlib.masks import causal_mask
from attnlib.plot import lines
from attnlib.recurrent import GRUCell, LSTMCell, Recurrent, RNNCell
from attnlib.widgets.lab import Choice, Given, Lab, Range, front_end

READERS = {"rnn": "RNN", "lstm": "LSTM", "gru": "GRU", "attention": "attention"}
MOST_TOKENS = 64
MOST_NUMBERS = 16  # in a vector
SHUT, OPEN = -1e9, 1e9  # into a sigmoid: 0 and 1 to the last digit
CHART = """
.lab-body .lab-chart { display: block; width: 100%; max-width: 46rem; font-size: 14px; }
.lab-body .lab-chart text { fill: var(--lab-quiet); }
.lab-body .lab-chart text.lab-on { fill: var(--lab-accent); font-weight: 700; }
.lab-body .lab-chart polyline { fill: none; stroke: var(--lab-quiet); stroke-width: 1.5; }
.lab-body .lab-chart polyline.lab-on { stroke: var(--lab-accent); stroke-width: 3; }
.lab-body .lab-chart .lab-grid { stroke: var(--lab-line); }
.lab-body .lab-chart .lab-marker { stroke: var(--lab-accent); stroke-dasharray: 3 3; }
@media (max-width: 30rem) { .lab-body .lab-chart { font-size: 22px; } }
"""


@dataclass(frozen=True)
class Signals:
    """What is felt of a small change of the first token, a row for each reader, in float64.

    Attributes:
        signals: Norm of the derivative of what the reader shows after each step.
        shares: The same, over what was felt at the first token itself.
    """

    signals: Float[Tensor, "4 length"]
    shares: Float[Tensor, "4 length"]


class DistanceLab(Lab):
    r"""Nudge the first token, and watch how far an RNN, an LSTM, a GRU and attention feel it.

    .. math:: s_t = \left\lVert \frac{\partial\, \mathrm{shown}_t}{\partial x_0}\, u \right\rVert,
        \qquad u = (1, \dots, 1) / \sqrt{d}

    The cells are as they come: fresh, or trained. Attention needs no weights here: the tokens are
    its queries, keys and values, under a causal mask.

    Args:
        x: The tokens, shape (length, width), 2 to 64 of them and at most 16 wide.
        rnn: The cell of an RNN for tokens of this width, at most 16 wide itself.
        lstm: The cell of an LSTM.
        gru: The cell of a GRU.
        reader: Whose signal the sentence speaks of: ``"rnn"``, ``"lstm"``, ``"gru"`` or
            ``"attention"``.
        gates: Whether the gates work. Without them an LSTM adds everything to its memory, and a
            GRU is a plain RNN.
        gate_bias: Added to the bias of the gate that keeps the old, -2 to 8 nats: above 0 it
            starts more open.
        gain: Multiplies the matrices that take the old state, 0.5 to 2.
        distance: Steps between the first token and the one that is asked.

    Raises:
        TypeError: If ``x`` is not a float tensor, a cell is of another kind, or a switch is.
        ValueError: If a size does not fit or a number is not finite, or a switch is set to what it
            does not have.
        AttributeError: If tokens or weights are changed later.

    Example:
        >>> cells = [kind(3, 5) for kind in (RNNCell, LSTMCell, GRUCell)]
        >>> lab = DistanceLab(torch.randn(8, 3), *cells)
        >>> lab.result().shares[:, 0]
        tensor([1., 1., 1., 1.], dtype=torch.float64)

    Source:
        The derivative is PyTorch's, through :mod:`attnlib.recurrent` and
        :func:`attnlib.functional.attention`. The arithmetic in the browser is checked against it.
    """

    _esm = front_end("distance.js")
    _css = Lab._css + CHART

    x = Given(None).tag(sync=True)
    weights = Given(None).tag(sync=True)

    reader = Choice(lambda lab: tuple(READERS), default="lstm").tag(sync=True)
    gates = Choice(lambda lab: (True, False), default=True).tag(sync=True)
    gate_bias = Range(lambda lab: (-2.0, 8.0), default=0.0).tag(sync=True)
    gain = Range(lambda lab: (0.5, 2.0), default=1.0).tag(sync=True)
    distance = Range(lambda lab: (0, len(lab.x) - 1), default=0).tag(sync=True)

    def __init__(
        self,
        x: Float[Tensor, "length width"],
        rnn: RNNCell,
        lstm: LSTMCell,
        gru: GRUCell,
        *,
        reader: str = "lstm",
        gates: bool = True,
        gate_bias: int | float = 0.0,
        gain: int | float = 1.0,
        distance: int | None = None,
    ) -> None:
        _check_tokens(x)
        cells = {"rnn": (rnn, RNNCell), "lstm": (lstm, LSTMCell), "gru": (gru, GRUCell)}
        for name, (cell, kind) in cells.items():
            _check_cell(name, cell, kind, x.shape[1])
        super().__init__(
            x=x.detach().double().tolist(),
            weights={name: _numbers(cell) for name, (cell, _) in cells.items()},
            reader=reader,
            gates=gates,
            gate_bias=gate_bias,
            gain=gain,
            distance=len(x) // 2 if distance is None else distance,
        )

    def result(self) -> Signals:
        """Recompute with attnlib what the lab shows now."""
        x = torch.tensor(self.x, dtype=torch.float64)
        nudge = torch.zeros_like(x)
        nudge[0] = x.shape[1] ** -0.5
        felt = [jvp(read, x, nudge)[1] for read in self._readers()]
        signals = torch.stack([change.norm(dim=-1) for change in felt])
        return Signals(signals=signals, shares=signals / signals[:, :1])

    def sentence(self) -> str:
        """Say which switches are on and how much of the signal is left."""
        share = self.result().shares[list(READERS).index(self.reader), self.distance].item()
        return (
            f"Distance lab, {len(self.x)} tokens, {self._settings()}: after {self.distance} steps "
            f"{share:.0e} of the first token's signal is left in {READERS[self.reader]}."
        )

    def still(self) -> Figure:
        """Draw the four lines."""
        shares = self.result().shares
        figure = Figure(figsize=(6, 3.6), layout="constrained")
        ax = lines(
            torch.arange(len(self.x)),
            dict(zip(READERS.values(), shares, strict=True)),
            x_label="distance (steps)",
            y_label="share of the signal left",
            title=self._settings(),
            ax=figure.subplots(),
        )
        ax.set_yscale("log")
        return figure

    def _settings(self) -> str:
        gates = f"gate bias {self.gate_bias:+g}" if self.gates else "no gates"
        return f"{gates}, recurrent weights × {self.gain:g}"

    def _readers(self) -> list:
        """The four as functions from tokens (length, width) to what they show after each."""
        loops = [Recurrent(self._cell(name)) for name in ("rnn", "lstm", "gru")]
        mask = causal_mask(len(self.x))
        return [
            *(lambda x, loop=loop: loop(x[None])[0][0] for loop in loops),
            lambda x: attention(x[None], x[None], x[None], mask=mask)[0][0],
        ]

    def _cell(self, name: str) -> nn.Module:
        """A cell with the switches built into its weights."""
        kind = {"rnn": RNNCell, "lstm": LSTMCell, "gru": GRUCell}[name]
        numbers = {
            key: torch.tensor(rows, dtype=torch.float64) for key, rows in self.weights[name].items()
        }
        cell = kind(len(self.x[0]), numbers["U"].shape[1]).double()
        # A GRU's reset and keep; an LSTM's write, forget and show. `new` stays as it is.
        gates = {"rnn": {}, "lstm": {0: OPEN, 1: OPEN, 3: OPEN}, "gru": {0: OPEN, 1: SHUT}}[name]
        d = cell.d_hidden
        for place, without in gates.items():
            rows = slice(place * d, (place + 1) * d)
            if not self.gates:
                numbers["b"][rows] = without
            elif place == 1:
                numbers["b"][rows] += self.gate_bias
        numbers["U"] *= self.gain
        names = {"W": "from_input.weight", "b": "from_input.bias"}
        names |= {"U": "from_state.weight", "c": "from_state.bias"}
        cell.load_state_dict({names[key]: value for key, value in numbers.items()})
        return cell.requires_grad_(False)


def _numbers(cell: nn.Module) -> dict[str, list]:
    parts = {"W": cell.from_input.weight, "b": cell.from_input.bias}
    parts |= {"U": cell.from_state.weight, "c": cell.from_state.bias}
    return {key: value.detach().double().tolist() for key, value in parts.items()}


def _check_tokens(x: Tensor) -> None:
    if not isinstance(x, Tensor) or not x.is_floating_point():
        got = x.dtype if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"x must be a float tensor, got {got}; try torch.randn(48, 4)")
    if x.ndim != 2 or not 2 <= len(x) <= MOST_TOKENS or not 1 <= x.shape[1] <= MOST_NUMBERS:
        raise ValueError(
            f"x must have a row for each of 2 to {MOST_TOKENS} tokens and 1 to {MOST_NUMBERS} "
            f"columns, as they are stored in the page; got shape {tuple(x.shape)}"
        )
    if not x.isfinite().all():
        raise ValueError(f"x must be finite, got {x[~x.isfinite()][0].item()}")


def _check_cell(name: str, cell: nn.Module, kind: type, width: int) -> None:
    if not isinstance(cell, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, got {type(cell).__name__}")
    if cell.d_input != width or cell.d_hidden > MOST_NUMBERS:
        raise ValueError(
            f"{name} must take tokens of width {width} and have a state of at most {MOST_NUMBERS} "
            f"numbers; got d_input={cell.d_input}, d_hidden={cell.d_hidden}"
        )
    if not all(p.isfinite().all() for p in cell.parameters()):
        raise ValueError(f"{name} has weights that are not finite")
