"""The attention lab: scores, scale, mask, softmax and output, with a switch for each of them."""

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import traitlets
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from torch import Tensor

from attnlib.functional import attention, masked_softmax
from attnlib.masks import causal_mask, padding_mask, window_mask
from attnlib.plot import heatmap
from attnlib.widgets.lab import Choice, Given, Lab, Range, front_end

MOST_TOKENS = 12
MOST_NUMBERS = 64
LARGEST = 1e6

MASKS = ("none", "causal", "padding", "window", "drawn")
POLARITIES = ("attend", "blocked")
AXES = ("keys", "queries")
_SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class Stages:
    """Every step from the scores to the output, in float64.

    Attributes:
        scores: One dot product for each query and key, in nats.
        scaled: The scores after the scale and the temperature.
        mask: The boolean matrix as written; all True if there is none.
        allowed: Where a query really sees a key: the mask as it is read.
        masked: The scaled scores, -inf where not allowed.
        weights: Their softmax.
        output: The mix of values for each query.
        row_sums: Sum of each query's weights.
        column_sums: Sum of the weights that each key gets.
        entropy: Of each query's weights, in nats; NaN if the softmax runs over the queries, as
            a row is no distribution then.
    """

    scores: Float[Tensor, "length length"]
    scaled: Float[Tensor, "length length"]
    mask: Bool[Tensor, "length length"]
    allowed: Bool[Tensor, "length length"]
    masked: Float[Tensor, "length length"]
    weights: Float[Tensor, "length length"]
    output: Float[Tensor, "length d_value"]
    row_sums: Float[Tensor, " length"]
    column_sums: Float[Tensor, " length"]
    entropy: Float[Tensor, " length"]


class Drawing(traitlets.TraitType):
    """A mask drawn by hand, kept as nested lists; empty as long as nothing was drawn."""

    def validate(self, lab: Lab, value: object) -> list[list[bool]]:
        """Accept a bool matrix, as a tensor or as nested lists."""
        length = len(lab.tokens)
        if isinstance(value, Tensor):
            if value.dtype != torch.bool:
                raise TypeError(f"drawn must be torch.bool, got {value.dtype}; try drawn.bool()")
            value = value.tolist()
        if value == [] or _is_square(value, length):
            return value
        raise ValueError(
            f"drawn must be a bool matrix of shape ({length}, {length}), a row for each query "
            "and a column for each key; of a 4-D mask pick mask[0, 0]"
        )


def _is_square(rows: object, length: int) -> bool:
    return (
        isinstance(rows, list)
        and len(rows) == length
        and all(isinstance(row, list) and len(row) == length for row in rows)
        and all(isinstance(cell, bool) for row in rows for cell in row)
    )


class AttentionLab(Lab):
    r"""Watch one head of self-attention step by step, and break it with a switch.

    .. math:: w_{ij} = \mathrm{softmax}_j\left(\frac{q_i \cdot k_j}{\sqrt{d_k}\,\tau}\right),
        \qquad o_i = \sum_j w_{ij} v_j

    Every switch is a trait: read it, or set it and the view follows. Two of them hold a mistake
    that real code makes (``polarity``, ``softmax_over``), so that its effect can be seen.

    Args:
        tokens: One word for each position, 1 to 12: more would fit neither a phone nor one frame.
        query: What each token looks for, shape (length, width). Width is at most 64.
        key: What each token offers, shape (length, width).
        value: What each token hands over, shape (length, d_value).
        scaled: Whether the scores are divided by the square root of ``d_k``.
        temperature: Divides the scores after that, 0.1 to 10; below 1 the weights get sharper.
        d_k: How many columns of query and key are used, the first ones: a power of two or the
            whole width, which it is if left out.
        mask_kind: ``"none"``; ``"causal"``, a token sees itself and what came before;
            ``"padding"``, it sees the first ``length`` tokens; ``"window"``, it sees ``radius``
            tokens on each side; ``"drawn"``, it sees what ``drawn`` says.
        length: Number of real tokens, 0 to all of them, for the padding mask. All but one if left
            out.
        radius: Reach of the window in tokens, 0 to all but one.
        drawn: The mask drawn by hand, a bool matrix (length, length). If left out, a drawing
            starts from the mask that is shown.
        polarity: How the very same boolean matrix is read: ``"attend"``, True = may attend, as
            everywhere in attnlib; ``"blocked"``, True = blocked, the classic mistake.
            Without a mask there is nothing to misread, and it changes nothing.
        softmax_over: ``"keys"``, so that each query's weights sum to 1; ``"queries"`` is the
            mistake of the wrong axis: the columns sum to 1.
        selected: Position of the query whose arithmetic is spelled out.

    Raises:
        TypeError: If query, key or value is not a float tensor, or a switch is of another type.
        ValueError: If the numbers do not fit together, are too many, too large or not finite, or
            a switch is set to what it does not have.
        AttributeError: If tokens or numbers are changed later.

    Example:
        >>> x = torch.eye(2)
        >>> lab = AttentionLab(["a", "b"], x, x, x, mask_kind="causal")
        >>> lab.result().weights[0]
        tensor([1., 0.], dtype=torch.float64)
        >>> lab.polarity = "blocked"
        >>> lab.result().weights[0]
        tensor([0., 1.], dtype=torch.float64)

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, equation 1; weights and output come from
        :func:`attnlib.functional.attention`. The arithmetic in the browser is checked against it.
    """

    _esm = front_end("attention.js")

    tokens = Given(None).tag(sync=True)
    query = Given(None).tag(sync=True)
    key = Given(None).tag(sync=True)
    value = Given(None).tag(sync=True)

    scaled = Choice(lambda lab: (True, False), default=True).tag(sync=True)
    temperature = Range(lambda lab: (0.1, 10.0), default=1.0).tag(sync=True)
    d_k = Choice(lambda lab: _powers_of_two(len(lab.query[0])), default=1).tag(sync=True)
    mask_kind = Choice(lambda lab: MASKS, default="none").tag(sync=True)
    length = Range(lambda lab: (0, len(lab.tokens)), default=0).tag(sync=True)
    radius = Range(lambda lab: (0, len(lab.tokens) - 1), default=0).tag(sync=True)
    drawn = Drawing([]).tag(sync=True)
    polarity = Choice(lambda lab: POLARITIES, default="attend").tag(sync=True)
    softmax_over = Choice(lambda lab: AXES, default="keys").tag(sync=True)
    selected = Range(lambda lab: (0, len(lab.tokens) - 1), default=0).tag(sync=True)

    def __init__(
        self,
        tokens: Sequence[str],
        query: Float[Tensor, "length width"],
        key: Float[Tensor, "length width"],
        value: Float[Tensor, "length d_value"],
        *,
        scaled: bool = True,
        temperature: int | float = 1.0,
        d_k: int | None = None,
        mask_kind: str = "none",
        length: int | None = None,
        radius: int | None = None,
        drawn: Bool[Tensor, "length length"] | None = None,
        polarity: str = "attend",
        softmax_over: str = "keys",
        selected: int = 0,
    ) -> None:
        tokens = list(tokens)
        _check_tokens(tokens)
        _check_numbers(len(tokens), query=query, key=key, value=value)
        super().__init__(  # in this order: the switches are checked against the numbers
            tokens=tokens,
            query=query.detach().double().tolist(),
            key=key.detach().double().tolist(),
            value=value.detach().double().tolist(),
            scaled=scaled,
            temperature=temperature,
            d_k=query.shape[1] if d_k is None else d_k,
            length=max(1, len(tokens) - 1) if length is None else length,
            radius=min(1, len(tokens) - 1) if radius is None else radius,
            drawn=[] if drawn is None else drawn,
            mask_kind=mask_kind,
            polarity=polarity,
            softmax_over=softmax_over,
            selected=selected,
        )

    def result(self) -> Stages:
        """Recompute with attnlib what the lab shows now."""
        query, key, value = (
            torch.tensor(rows, dtype=torch.float64) for rows in (self.query, self.key, self.value)
        )
        query, key = query[:, : self.d_k], key[:, : self.d_k]
        scale = 1 / (math.sqrt(self.d_k) if self.scaled else 1) / self.temperature
        mask = self._mask(self.mask_kind)
        # The mistake: with "blocked", the very same matrix is taken for its opposite.
        misread = self.polarity == "blocked" and self.mask_kind != "none"
        allowed = mask.logical_not() if misread else mask

        scores = query @ key.mT
        masked = (scores * scale).masked_fill(allowed.logical_not(), -math.inf)
        if self.softmax_over == "keys":
            output, weights = attention(query, key, value, mask=allowed[None, None], scale=scale)
            entropy = torch.special.entr(weights).sum(-1)
        else:  # the mistake: attnlib has no switch for it, so turn the matrix, and turn it back
            weights = masked_softmax((scores * scale).mT, allowed.mT).mT
            output = weights @ value
            entropy = torch.full((len(self.tokens),), math.nan, dtype=torch.float64)
        return Stages(
            scores=scores,
            scaled=scores * scale,
            mask=mask,
            allowed=allowed,
            masked=masked,
            weights=weights,
            output=output,
            row_sums=weights.sum(-1),
            column_sums=weights.sum(-2),
            entropy=entropy,
        )

    def sentence(self) -> str:
        """Say which switches are on and where the selected token looks."""
        now = self.result()
        names, weights = _names(self.tokens), now.weights[self.selected]
        looks = f"“{names[self.selected]}” sees nothing"
        if now.allowed[self.selected].any():
            best = int(weights.argmax())
            looks = f"“{names[self.selected]}” looks most at “{names[best]}” ({weights[best]:.2f})"
        return f"Attention lab, {len(self.tokens)} tokens, {self._settings()}: {looks}."

    def still(self) -> Figure:
        """Draw the weights as a heat map."""
        now = self.result()
        width, height = 3 + 0.5 * len(self.tokens), 2.4 + 0.5 * len(self.tokens)
        figure = Figure(figsize=(width, height), layout="constrained")
        ax = heatmap(
            now.weights,
            rows=_names(self.tokens),
            columns=_names(self.tokens),
            allowed=now.allowed,
            limits=(0, 1),
            ax=figure.subplots(),
        )
        ax.set_xlabel("key")
        ax.set_ylabel("query")
        settings = textwrap.fill(self._settings(), int(12 * width))  # 12 letters to an inch
        figure.suptitle(f"Attention weights\n{settings}", fontsize=9)
        return figure

    @traitlets.observe("mask_kind")
    def _start_drawing(self, change: dict) -> None:
        if change["new"] == "drawn" and not self.drawn:
            self.drawn = self._mask(change["old"] or "none")  # None while the lab is made

    def _mask(self, kind: str) -> Bool[Tensor, "length length"]:
        """Build the boolean matrix that a kind of mask stands for, before anyone misreads it."""
        n = len(self.tokens)
        if kind == "causal":
            return causal_mask(n)[0, 0]
        if kind == "padding":
            return padding_mask(torch.tensor([self.length]), n)[0, 0].expand(n, n)
        if kind == "window":
            return window_mask(n, radius=self.radius)[0, 0]
        if kind == "drawn" and self.drawn:
            return torch.tensor(self.drawn)
        return torch.ones(n, n, dtype=torch.bool)

    def _settings(self) -> str:
        scale = f"scores divided by √{self.d_k}" if self.scaled else f"d_k = {self.d_k}, no scale"
        mask = "no mask" if self.mask_kind == "none" else f"{self.mask_kind} mask"
        misread = ", True read as blocked" if self.polarity == "blocked" else ""
        axis = f"softmax over the {self.softmax_over}"
        return f"{scale}, temperature {self.temperature:g}, {mask}{misread}, {axis}"


def _powers_of_two(width: int) -> tuple[int, ...]:
    """Return 1, 2, 4, ... below the width, and the width."""
    return (*(2**i for i in range((width - 1).bit_length())), width)


def _names(tokens: list[str]) -> list[str]:
    """Number the tokens that occur more than once: "the", "the" become "the₁", "the₂"."""
    names = []
    for i, token in enumerate(tokens):
        count = str(tokens[: i + 1].count(token)).translate(_SUBSCRIPTS)
        names.append(token + count if tokens.count(token) > 1 else token)
    return names


def _check_tokens(tokens: list[str]) -> None:
    if not 1 <= len(tokens) <= MOST_TOKENS:
        raise ValueError(
            f"a lab takes 1 to {MOST_TOKENS} tokens, got {len(tokens)}; more would fit neither a "
            "phone nor one frame of 16 ms: pick the part of the sentence that matters"
        )
    for token in tokens:
        if not isinstance(token, str):
            raise TypeError(f"tokens must be strings, got {token!r}")
        if not token.strip():
            raise ValueError(f"token {token!r} would be invisible; write it with a sign such as ␣")


def _check_numbers(length: int, **numbers: Tensor) -> None:
    for name, x in numbers.items():
        if not isinstance(x, Tensor) or not x.is_floating_point():
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"{name} must be a float tensor, got {got}; try torch.tensor([[1.0]])")
        if x.ndim != 2 or x.shape[0] != length or not 1 <= x.shape[1] <= MOST_NUMBERS:
            raise ValueError(
                f"{name} must have a row for each of the {length} tokens and 1 to {MOST_NUMBERS} "
                f"columns, as they are stored in the page; got shape {tuple(x.shape)}"
            )
        if not (x.abs() <= LARGEST).all():  # a NaN is not <= anything
            raise ValueError(
                f"{name} must be finite and at most {LARGEST:g} in size, "
                f"got {x[~(x.abs() <= LARGEST)][0].item()}"
            )
    query, key = numbers["query"], numbers["key"]
    if query.shape != key.shape:
        raise ValueError(
            f"query and key must be equally wide, as they are multiplied; got widths "
            f"{query.shape[1]} and {key.shape[1]}"
        )
