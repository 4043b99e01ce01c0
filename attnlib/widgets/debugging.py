"""The debugging lab: one small model with a switch for each fault, and what each one does."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import traitlets
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from attnlib.doctor import Report
from attnlib.plot import COLOURS
from attnlib.widgets.lab import Choice, Given, Lab, front_end

HEALTHY = {"mask": "causal", "positions": "learned", "scale": "1/sqrt(d_head)", "writing": "right"}
FAULTS = {
    "mask": ("no mask", "only itself"),
    "positions": ("no positions",),
    "scale": ("no scale",),
    "writing": ("stale mask", "no offset"),
}


@dataclass(frozen=True)
class Trial:
    """What became of a model with some faults.

    Attributes:
        losses: The loss along the training, in nats.
        weights: Who looked where, in one text.
        sample: What the model wrote.
        right: The share of what it wrote that is right, from 0 to 1.
        report: What the doctor says.
    """

    losses: Float[Tensor, " points"]
    weights: Float[Tensor, "length length"]
    sample: str
    right: float
    report: Report


Run = Callable[[tuple[str, ...], int], Trial]


def _switch(name: str) -> Choice:
    positions = (HEALTHY[name], *FAULTS[name])
    return Choice(lambda lab: positions, default=HEALTHY[name]).tag(sync=True)


class DebuggingLab(Lab):
    """Switch faults on and off, and see the loss, the map, a sample and the doctor's verdict.

    Each of the 36 combinations runs once, when the lab is made, and the page shows what is stored.
    In a live notebook :meth:`retrain` runs the one that is shown anew, from another seed.

    Args:
        run: Trains, tries and examines a model; takes the names of its faults and a seed.
        tokens: The text of the map, a name for each row and column.
        prompt: What the model was given before it wrote.
        floor: The lowest loss that an honest model can have, in nats.
        steps: How many steps of training lie between two points of the loss.
        mask: ``"causal"``, ``"no mask"`` or ``"only itself"``.
        positions: ``"learned"`` or ``"no positions"``.
        scale: ``"1/sqrt(d_head)"`` or ``"no scale"``.
        writing: ``"right"``, ``"stale mask"`` or ``"no offset"``.

    Raises:
        ValueError: If an outcome's map has not a row and a column for each token, its loss is not a
            line of two or more finite numbers, or a switch is set to what it does not have.
        AttributeError: If what the lab was made with is changed later.

    Example:
        >>> import torch
        >>> def run(faults, seed):
        ...     losses = torch.tensor([2.0, 0.1 if "no mask" in faults else 1.0])
        ...     return Trial(losses, torch.eye(2), "a", 1.0, Report("GPT", ()))
        >>> lab = DebuggingLab(run, tokens="a|", prompt="a|", floor=0.9, steps=10, mask="no mask")
        >>> lab.faults, lab.result()["losses"]
        (('no mask',), [2.0, 0.1])
    """

    _esm = front_end("debugging.js")

    tokens = Given(None).tag(sync=True)
    prompt = Given(None).tag(sync=True)
    floor = Given(None).tag(sync=True)
    steps = Given(None).tag(sync=True)
    outcomes = traitlets.Dict().tag(sync=True)

    mask = _switch("mask")
    positions = _switch("positions")
    scale = _switch("scale")
    writing = _switch("writing")

    def __init__(
        self,
        run: Run,
        *,
        tokens: str,
        prompt: str,
        floor: float,
        steps: int,
        **switches: str,
    ) -> None:
        self._run = run
        each = [(None, *names) for names in FAULTS.values()]
        combinations = [tuple(filter(None, faults)) for faults in product(*each)]
        outcomes = {
            " + ".join(faults): _stored(faults, run(faults, 0), len(tokens))
            for faults in combinations
        }
        given = {"tokens": list(tokens), "prompt": prompt, "floor": float(floor), "steps": steps}
        super().__init__(outcomes=outcomes, **given, **switches)

    @property
    def faults(self) -> tuple[str, ...]:
        """The faults that are switched on."""
        set_to = [(name, getattr(self, name)) for name in FAULTS]
        return tuple(position for name, position in set_to if position != HEALTHY[name])

    def result(self) -> dict:
        """Return what is stored for the switches as they are."""
        return self.outcomes[" + ".join(self.faults)]

    def retrain(self, seed: int) -> None:
        """Run the combination that is shown from another seed, and show what became of it."""
        new = _stored(self.faults, self._run(self.faults, seed), len(self.tokens))
        self.outcomes = self.outcomes | {" + ".join(self.faults): new}

    def sentence(self) -> str:
        """Say which faults are on, how the training ended, what was written, and the verdict."""
        now = self.result()
        told = "; ".join(f"{severity}, {title}" for severity, title, _ in now["findings"])
        return (
            f"Debugging lab, {', '.join(self.faults) or 'healthy'}: the loss ends at "
            f"{now['losses'][-1]:.2f} nats, {self.floor:.2f} is possible. It writes "
            f"{self.prompt} → {now['sample']}, {now['right']:.0%} right. The doctor: "
            f"{told or 'healthy'}."
        )

    def still(self) -> Figure:
        """Draw the loss and the map."""
        now = self.result()
        figure = Figure(figsize=(7, 3.2), layout="constrained")
        loss, weights = figure.subplots(1, 2)
        loss.plot([self.steps * (i + 1) for i in range(len(now["losses"]))], now["losses"])
        loss.axhline(self.floor, linestyle=":", color="black")
        loss.set(xlabel="step", ylabel="loss (nats)", ylim=(0, None))
        weights.imshow(now["weights"], vmin=0, vmax=1, cmap=COLOURS)
        weights.set_xticks(range(len(self.tokens)), self.tokens)
        weights.set_yticks(range(len(self.tokens)), self.tokens)
        return figure


def _stored(faults: tuple[str, ...], outcome: Trial, length: int) -> dict:
    name = ", ".join(faults) or "the healthy model"
    shape = tuple(outcome.weights.shape)
    if shape != (length, length):
        raise ValueError(f"the map of {name} must be {length} × {length}, as the text; got {shape}")
    losses = outcome.losses
    if losses.ndim != 1 or len(losses) < 2 or not losses.isfinite().all():
        raise ValueError(f"the loss of {name} must be a line of two or more finite numbers")
    serious = [f for f in outcome.report.findings if f.severity != "note"]
    return {
        "losses": losses.double().round(decimals=3).tolist(),
        "weights": outcome.weights.double().round(decimals=2).tolist(),
        "sample": outcome.sample,
        "right": round(float(outcome.right), 4),
        "findings": [[f.severity, f.title, f.fix] for f in serious],
    }
