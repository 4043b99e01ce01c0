"""The causal lab: where a mask goes, with which number, in which dtype; and a meter for leaks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from attnlib.masks import causal_mask, left_padding_mask
from attnlib.plot import heatmap
from attnlib.widgets.attention import _check_numbers, _check_tokens, _names
from attnlib.widgets.lab import Choice, Given, Lab, Range, front_end

MASKS = {
    "none": "no mask",
    "causal": "causal mask",
    "one too far": "mask one too far",
    "padding": "causal mask and two tokens of padding",
}
PLACES = {
    "before": "before the softmax",
    "after": "after the softmax",
    "divided": "after the softmax, rows divided by their sums",
}
FILLS = ("-inf", "-1e9", "finfo.min")
DTYPES = ("float64", "float32", "bfloat16", "float16")
N_PADDING = 2


@dataclass(frozen=True)
class Outcome:
    """What the switches lead to: numbers of the chosen dtype, kept in float64.

    Attributes:
        allowed: Where a query may see a key.
        scores: What goes into the softmax.
        weights: What the values are multiplied by; NaN where a row has no softmax.
        row_sums: Sum of each row of the weights.
        moved: How far each output moves when the chosen token is replaced.
        leak: The furthest move of an output before that token; rows of NaN do not count.
        refused: Whether PyTorch refuses to fill in a number that the dtype cannot hold. All numbers
            are NaN then.
    """

    allowed: Bool[Tensor, "length length"]
    scores: Float[Tensor, "length length"]
    weights: Float[Tensor, "length length"]
    row_sums: Float[Tensor, " length"]
    moved: Float[Tensor, " length"]
    leak: float
    refused: bool


class CausalLab(Lab):
    r"""Put a mask in the wrong place, or give it the wrong number, and watch the future leak.

    .. math:: leak = \max_{i < j} \left| y_i(x) - y_i(x') \right|

    where :math:`x'` is :math:`x` with token :math:`j` replaced: its query, key and value change
    their sign. This is the naive code of tutorials on purpose; attnlib itself has none of these
    switches. Each step is computed exactly and then rounded to the dtype once, so that the lab says
    the same on every machine; PyTorch's own result differs by a unit in the last place at most.

    Args:
        tokens: One word for each position, 3 to 12.
        query: What each token looks for, shape (length, width).
        key: What each token offers, shape (length, width).
        value: What each token hands over, shape (length, d_value).
        mask_kind: ``"none"``; ``"causal"``; ``"one too far"``, a token sees the next one too; or
            ``"padding"``, causal, and the first two tokens are padding that nobody may see.
        place: ``"before"`` the softmax, as it should be; ``"after"`` it, weights set to 0; or
            ``"divided"``, that and each row divided by its new sum.
        fill: What replaces a blocked score, if the place is before: ``"-inf"``, ``"-1e9"`` or
            ``"finfo.min"``, the lowest finite number of the dtype.
        dtype: ``"float64"``, ``"float32"``, ``"bfloat16"`` or ``"float16"``.
        replaced: Position of the token that the leak meter replaces; the last one if left out.

    Raises:
        TypeError: If query, key or value is not a float tensor, or a switch is of another type.
        ValueError: If shapes do not fit or a number is not finite, or a switch has a position that
            it does not have.
        AttributeError: If tokens, query, key or value are set later; make a new lab.

    Example:
        >>> x = torch.ones(3, 1)
        >>> CausalLab(["a", "b", "c"], x, x, x).result().leak
        0.0
        >>> CausalLab(["a", "b", "c"], x, x, x, place="after").result().leak > 0.01
        True
    """

    _esm = front_end("causal.js")

    tokens = Given([]).tag(sync=True)
    query = Given([]).tag(sync=True)
    key = Given([]).tag(sync=True)
    value = Given([]).tag(sync=True)
    mask_kind = Choice(lambda lab: tuple(MASKS), default="causal").tag(sync=True)
    place = Choice(lambda lab: tuple(PLACES), default="before").tag(sync=True)
    fill = Choice(lambda lab: FILLS, default="-inf").tag(sync=True)
    dtype = Choice(lambda lab: DTYPES, default="float32").tag(sync=True)
    replaced = Range(lambda lab: (0, len(lab.tokens) - 1), default=0).tag(sync=True)

    def __init__(
        self,
        tokens: Sequence[str],
        query: Float[Tensor, "length width"],
        key: Float[Tensor, "length width"],
        value: Float[Tensor, "length d_value"],
        *,
        mask_kind: str = "causal",
        place: str = "before",
        fill: str = "-inf",
        dtype: str = "float32",
        replaced: int | None = None,
    ) -> None:
        tokens = list(tokens)
        _check_tokens(tokens)
        if len(tokens) <= N_PADDING:
            raise ValueError(
                f"a causal lab takes 3 tokens or more, got {len(tokens)}; two can be padding, and "
                "one must be left"
            )
        _check_numbers(len(tokens), query=query, key=key, value=value)
        super().__init__(
            tokens=tokens,
            query=query.detach().double().tolist(),
            key=key.detach().double().tolist(),
            value=value.detach().double().tolist(),
            mask_kind=mask_kind,
            place=place,
            fill=fill,
            dtype=dtype,
            replaced=len(tokens) - 1 if replaced is None else replaced,
        )

    def result(self) -> Outcome:
        """Recompute in Python what the lab shows now."""
        q, k, v = (
            torch.tensor(rows, dtype=torch.float64) for rows in (self.query, self.key, self.value)
        )
        sign = torch.ones(len(q), 1, dtype=torch.float64)
        sign[self.replaced] = -1
        scores, weights, output = self._attend(q, k, v)
        other = self._attend(sign * q, sign * k, sign * v)[2]
        moved = (other - output).abs().amax(-1)
        before = moved[: self.replaced]
        return Outcome(
            allowed=self._allowed(),
            scores=scores,
            weights=weights,
            row_sums=weights.sum(-1),
            moved=moved,
            leak=max(before[~before.isnan()].tolist(), default=0.0),
            refused=self._is_refused(),
        )

    def sentence(self) -> str:
        """Say which switches are on and whether the past moves."""
        now = self.result()
        settings = f"Causal lab, {len(self.tokens)} tokens, {self._settings()}"
        if now.refused:
            return f"{settings}: PyTorch refuses, as the number does not fit into the dtype."
        name = _names(self.tokens)[self.replaced]
        moves = "moves nothing before"
        if now.leak:
            size = "less than 1e-6" if now.leak < 1e-6 else f"{now.leak:.2g}"
            moves = f"moves an earlier output by {size}"
        return f"{settings}: replacing “{name}” {moves}."

    def still(self) -> Figure:
        """Draw the weights as a heat map."""
        now = self.result()
        names = _names(self.tokens)
        side = 3 + 0.5 * len(names)
        figure = Figure(figsize=(side, side - 0.4), layout="constrained")
        shown = now.allowed | (now.weights != 0)  # a blocked key that has a share is no blank
        ax = figure.subplots()
        heatmap(now.weights, rows=names, columns=names, allowed=shown, limits=(0, 1), ax=ax)
        figure.suptitle(f"Weights, leak {now.leak:.2f}\n{self._settings()}", fontsize=8)
        return figure

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, weights and output of naive code, each rounded to the dtype."""
        allowed = self._allowed()
        scores = self._rounded(q @ k.mT / math.sqrt(q.shape[1]))
        if self.place == "before":
            scores = scores.masked_fill(allowed.logical_not(), self._number())
        if self._is_refused():
            scores = torch.full_like(scores, math.nan)
        weights = self._rounded(scores.softmax(-1))
        if self.place != "before":
            weights = weights * allowed
        if self.place == "divided":
            weights = self._rounded(weights / weights.sum(-1, keepdim=True))
        return scores, weights, self._rounded(weights @ self._rounded(v))

    def _allowed(self) -> Bool[Tensor, "length length"]:
        n = len(self.tokens)
        if self.mask_kind == "none":
            return torch.ones(n, n, dtype=torch.bool)
        if self.mask_kind == "one too far":
            return torch.ones(n, n, dtype=torch.bool).tril(1)
        allowed = causal_mask(n)
        if self.mask_kind == "padding":
            allowed = allowed & left_padding_mask(torch.tensor([n - N_PADDING]), n)
        return allowed[0, 0]

    def _number(self) -> float:
        if self.fill == "finfo.min":
            return torch.finfo(getattr(torch, self.dtype)).min
        return self._rounded(torch.tensor(float(self.fill), dtype=torch.float64)).item()

    def _is_refused(self) -> bool:
        is_filled = self.place == "before" and self.mask_kind != "none"
        return is_filled and self.fill == "-1e9" and self.dtype == "float16"

    def _rounded(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        return x.to(getattr(torch, self.dtype)).double()

    def _settings(self) -> str:
        if self.mask_kind == "none":
            return f"no mask, {self.dtype}"
        fill = f", blocked scores {self.fill}" if self.place == "before" else ""
        return f"{MASKS[self.mask_kind]} {PLACES[self.place]}{fill}, {self.dtype}"
