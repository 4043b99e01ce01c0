"""The heads lab: how many heads, the right reshape and the wrong one, and a head cut out."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import traitlets
from jaxtyping import Float, Int
from matplotlib.figure import Figure
from torch import Tensor

from attnlib.functional import attention, merge_heads, split_heads
from attnlib.layers import MultiHeadAttention
from attnlib.plot import heatmap
from attnlib.widgets.lab import Choice, Given, Lab, Range, front_end

MOST_TOKENS = 10
MOST_WIDTH = 16  # a row of cells must fit
DECIMALS = 4  # of the numbers that a page stores; enough to read, and a third of the bytes
RESHAPES = ("right", "wrong")


@dataclass(frozen=True)
class HeadsResult:
    """What the lab shows, in float64.

    Attributes:
        cells: Where the split puts which number: a row for each place, the heads side by side.
            Number ``c`` of token ``t`` is ``t * d_model + c``.
        weights: Of each head; a head that is cut has them too, but nobody uses them.
        output: One vector for each token.
        errors: Mean squared error of the output, for each group of columns.
    """

    cells: Int[Tensor, "length d_model"]
    weights: Float[Tensor, "heads length length"]
    output: Float[Tensor, "length d_model"]
    errors: Float[Tensor, " groups"]


class HeadsLab(Lab):
    r"""Compare trained layers with 1, 2, 4, … heads, misplace their cells, and cut a head out.

    .. math:: \mathrm{output} = \sum_{i \ne \mathrm{cut}} \mathrm{head}_i\, W_O^{(i)}

    Args:
        tokens: One short name for each token, 2 to 10.
        layers: Self-attention layers of the same width, at most 16, which differ in their number
            of heads. Numbers are kept with 4 decimals.
        inputs: What each of the layers gets, shape (length, d_model).
        target: What the output should be, shape (length, d_model).
        groups: Names for equal parts of the output's columns, which get an error each.
        n_heads: Which of the layers is shown; the first one if left out.
        reshape: ``"right"`` cuts each token's vector into heads; ``"wrong"`` is the mistake to view
            (length, d_model) as (heads, length, d_head), which has the same shape.
        cut: The head that is taken out, or -1 for none.
        selected: Position of the token whose weights are shown.

    Raises:
        TypeError: If a number is not a float tensor, or a switch is of another type.
        ValueError: If sizes do not fit together, or a switch is set to what it does not have.
        AttributeError: If what the lab was made with is changed later.

    Example:
        >>> layer, x = MultiHeadAttention(4, n_heads=2), torch.randn(3, 4)
        >>> lab = HeadsLab("ABC", [layer], [x], x, groups=["all"], reshape="wrong")
        >>> lab.result().cells[1]  # place 1 of head 0 holds the end of token 0
        tensor([2, 3, 8, 9])

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, section 3.2.2; weights come from
        :func:`attnlib.functional.attention`. The arithmetic in the browser is checked against it.
    """

    _esm = front_end("heads.js")

    tokens = Given(None).tag(sync=True)
    layers = Given(None).tag(sync=True)
    target = Given(None).tag(sync=True)
    groups = Given(None).tag(sync=True)

    n_heads = Choice(lambda lab: tuple(layer["n_heads"] for layer in lab.layers), default=1).tag(
        sync=True
    )
    reshape = Choice(lambda lab: RESHAPES, default="right").tag(sync=True)
    cut = Range(lambda lab: (-1, lab.n_heads - 1), default=-1).tag(sync=True)
    selected = Range(lambda lab: (0, len(lab.tokens) - 1), default=0).tag(sync=True)

    def __init__(
        self,
        tokens: Sequence[str],
        layers: Sequence[MultiHeadAttention],
        inputs: Sequence[Float[Tensor, "length d_model"]],
        target: Float[Tensor, "length d_model"],
        groups: Sequence[str],
        *,
        n_heads: int | None = None,
        reshape: str = "right",
        cut: int = -1,
        selected: int = 0,
    ) -> None:
        tokens, groups = list(tokens), list(groups)
        _check(tokens, layers, inputs, target, groups)
        super().__init__(  # in this order: the switches are checked against the numbers
            tokens=tokens,
            layers=[_stored(*pair) for pair in zip(layers, inputs, strict=True)],
            target=_rounded(target),
            groups=groups,
            n_heads=layers[0].n_heads if n_heads is None else n_heads,
            reshape=reshape,
            cut=cut,
            selected=selected,
        )

    def result(self) -> HeadsResult:
        """Recompute with attnlib what the lab shows now."""
        layer = next(layer for layer in self.layers if layer["n_heads"] == self.n_heads)
        query, key, value, out = (
            torch.tensor(layer[name], dtype=torch.float64)[None]
            for name in ("query", "key", "value", "out")
        )
        split, merge = (_wrong_split, _wrong_merge)
        if self.reshape == "right":
            split, merge = (split_heads, merge_heads)
        heads, weights = attention(*(split(x, self.n_heads) for x in (query, key, value)))
        if self.cut >= 0:
            heads = heads.index_fill(1, torch.tensor([self.cut]), 0.0)
        output = (merge(heads) @ out)[0] + torch.tensor(layer["bias"], dtype=torch.float64)
        wrong = (output - torch.tensor(self.target, dtype=torch.float64)).square()
        numbered = torch.arange(output.numel(), dtype=torch.float64).view(1, *output.shape)
        return HeadsResult(
            cells=split(numbered, self.n_heads)[0].transpose(0, 1).flatten(1).long(),
            weights=weights[0],
            output=output,
            errors=wrong.unflatten(1, (len(self.groups), -1)).mean((0, 2)),
        )

    def sentence(self) -> str:
        """Say which switches are on, and how large the error is."""
        return (
            f"Heads lab, {len(self.tokens)} tokens, {self._settings()}: error "
            f"{self.result().errors.mean():.2f}."
        )

    def still(self) -> Figure:
        """Draw where each head looks from the selected token."""
        now = self.result()
        size = (3.0 + 0.5 * len(self.tokens), 1.8 + 0.4 * self.n_heads)
        figure = Figure(figsize=size, layout="constrained")
        ax = heatmap(
            now.weights[:, self.selected],
            rows=[f"head {i}" for i in range(self.n_heads)],
            columns=self.tokens,
            limits=(0, 1),
            ax=figure.subplots(),
        )
        ax.set_xlabel("key")
        errors = ", ".join(f"{g} {e:.2f}" for g, e in zip(self.groups, now.errors, strict=True))
        words = f"{self._settings()}; error: {errors}"
        title = f"Where {self.tokens[self.selected]} looks"
        figure.suptitle(f"{title}\n{textwrap.fill(words, int(12 * size[0]))}", fontsize=9)
        return figure

    @traitlets.observe("n_heads")
    def _keep_cut_in_range(self, change: dict) -> None:
        if self.trait_has_value("cut") and self.cut >= self.n_heads:
            self.cut = -1

    def _settings(self) -> str:
        heads = f"{self.n_heads} head{'s' * (self.n_heads > 1)}"
        width = len(self.target[0]) // self.n_heads
        cut = "no head cut" if self.cut < 0 else f"head {self.cut} cut"
        return f"{heads} of width {width}, {self.reshape} reshape, {cut}"


def _wrong_split(x: Tensor, n_heads: int) -> Tensor:
    """Make the mistake: the right shape, read off in the order of memory."""
    batch, length, d_model = x.shape
    return x.reshape(batch, n_heads, length, d_model // n_heads)


def _wrong_merge(heads: Tensor) -> Tensor:
    batch, n_heads, length, d_head = heads.shape
    return heads.reshape(batch, length, n_heads * d_head)


def _stored(layer: MultiHeadAttention, x: Tensor) -> dict[str, object]:
    """Keep what a page needs of a layer: what it computes from its input, and its last map."""
    with torch.no_grad():
        numbers = {
            "query": layer.to_query(x),
            "key": layer.to_key(x),
            "value": layer.to_value(x),
            "out": layer.to_output.weight.T,
            "bias": torch.zeros(len(layer.to_output.weight)),
        }
        if layer.to_output.bias is not None:
            numbers["bias"] = layer.to_output.bias
    return {"n_heads": layer.n_heads} | {name: _rounded(t) for name, t in numbers.items()}


def _rounded(x: Tensor) -> list:
    return x.detach().double().round(decimals=DECIMALS).tolist()


def _check(
    tokens: list[str],
    layers: Sequence[MultiHeadAttention],
    inputs: Sequence[Tensor],
    target: Tensor,
    groups: list[str],
) -> None:
    if not 2 <= len(tokens) <= MOST_TOKENS:
        raise ValueError(f"a lab takes 2 to {MOST_TOKENS} tokens, got {len(tokens)}")
    if not layers or len(layers) != len(inputs):
        raise ValueError(f"give one input for each layer, got {len(layers)} and {len(inputs)}")
    if len({layer.n_heads for layer in layers}) < len(layers):
        raise ValueError(
            "the layers are told apart by their number of heads, but two have the same: "
            f"{[layer.n_heads for layer in layers]}"
        )
    for name, x in (("target", target), *(("inputs", x) for x in inputs)):
        if not isinstance(x, Tensor) or not x.is_floating_point():
            got = x.dtype if isinstance(x, Tensor) else type(x).__name__
            raise TypeError(f"{name} must be a float tensor, got {got}")
        if x.shape != target.shape or x.ndim != 2 or len(x) != len(tokens):
            raise ValueError(
                f"{name} must be (length, d_model) for {len(tokens)} tokens and the same width "
                f"everywhere, got {tuple(x.shape)} beside a target of {tuple(target.shape)}"
            )
        if not x.isfinite().all():
            raise ValueError(f"{name} must be finite, got {x[~x.isfinite()][0].item()}")
    _check_widths(layers, target.shape[1], groups)


def _check_widths(layers: Sequence[MultiHeadAttention], width: int, groups: list[str]) -> None:
    if not groups or width % len(groups) or width > MOST_WIDTH:
        raise ValueError(
            f"a width of {width} must be at most {MOST_WIDTH}, to fit a row of cells, and split "
            f"into the {len(groups)} groups"
        )
    for layer in layers:
        maps = (layer.to_query, layer.to_key, layer.to_value, layer.to_output)
        widths = [(m.in_features, m.out_features) for m in maps]
        if widths != [(width, width)] * 4 or layer.positions is not None:
            raise ValueError(
                f"each projection must lead from {width} to {width} numbers, with no positions "
                f"inside and no shared heads; a layer of {layer.n_heads} heads has {widths}"
            )
