"""Pictures of tensors: tensors in, matplotlib Axes out.

The colours stay apart for colour-blind readers (cividis; lines also differ in dash and marker),
and the background is opaque white, so that a figure can be read on a dark page too. The Chinese
words of :mod:`attnlib.data.sentences` can be labels on any machine: a font with their characters
is part of the package, and is asked where the font in use has no glyph.
"""

import math
from collections.abc import Mapping, Sequence
from importlib.resources import files

import torch
from jaxtyping import Bool, Float, Shaped
from matplotlib import colormaps, font_manager
from matplotlib.axes import Axes
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.text import Text
from torch import Tensor

from attnlib.checks import check_tensor

COLOURS = "cividis"  # made to look the same with and without red-green blindness

# Okabe and Ito's colours, the ones with enough contrast on white; dash and marker repeat them.
_LINE_STYLES = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": "--", "marker": "s"},
    {"color": "#000000", "linestyle": "-.", "marker": "^"},
    {"color": "#AA3377", "linestyle": ":", "marker": "D"},
    {"color": "#007A5E", "linestyle": (0, (5, 1, 1, 1, 1, 1)), "marker": "v"},
    {"color": "#8A6D00", "linestyle": (0, (8, 2)), "marker": "P"},
)
_MOST_NUMBERS = 12  # in a row; more of them would not be legible

_HAN = "Attention Han"
font_manager.fontManager.addfont(str(files("attnlib") / "fonts" / "han.ttf"))


def heatmap(
    values: Shaped[Tensor, "rows columns"],
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    limits: tuple[float | int, float | int] | None = None,
    allowed: Bool[Tensor, "rows columns"] | None = None,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Show a matrix as coloured cells, with its numbers where they fit.

    Args:
        values: Any matrix: attention weights, scores, a mask. A cell of -inf counts as blocked; a
            NaN is written out, so that it cannot be overlooked.
        rows: Labels of the rows (the queries of attention weights).
        columns: Labels of the columns (the keys).
        limits: The values that get the darkest and the brightest colour; the smallest and the
            largest of ``values`` if left out. Attention weights want ``(0, 1)``.
        allowed: ``False`` where a cell is blocked; it is hatched then, whatever its value.
        title: Written above.
        ax: Where to draw; a new figure if left out.

    Returns:
        The Axes that was drawn on.

    Raises:
        TypeError: If ``values`` or ``allowed`` is not a tensor, or a label is not a string.
        ValueError: If it is not 2-D or is empty, if labels or ``allowed`` do not fit it, or if the
            two limits are not in order.

    Example:
        >>> ax = heatmap(torch.eye(2), rows=["a", "b"], columns=["a", "b"], limits=(0, 1))
        >>> [label.get_text() for label in ax.get_xticklabels()]
        ['a', 'b']
    """
    values = _matrix(values)
    _check_labels("rows", rows, values.shape[0])
    _check_labels("columns", columns, values.shape[1])
    blocked = _blocked(values, allowed)
    low, high = _limits(values, blocked, limits)
    side = 0.5 if values.shape[1] <= _MOST_NUMBERS else 0.25  # of a cell, in inches
    ax = _white(ax, size=(1.8 + side * values.shape[1], 1.2 + side * values.shape[0]))

    shown = values.masked_fill(blocked, math.nan).numpy()
    image = ax.imshow(shown, cmap=COLOURS, vmin=low, vmax=high, aspect="auto")
    ax.figure.colorbar(image, ax=ax)
    _label_ticks(ax, rows, columns, values.shape)
    _hatch(ax, blocked)
    _write_numbers(ax, values, blocked, (low, high))
    ax.set_title(title, parse_math=False)
    _let_chinese_be_read(ax)
    return ax


def pattern(mask: Bool[Tensor, "q_len k_len"], *, title: str = "", ax: Axes | None = None) -> Axes:
    """Show who may attend to whom, of any length, and count the pairs below.

    A row that sees nothing is hatched: a softmax over nothing is NaN.

    Args:
        mask: ``True`` (bright) where a query, a row, may attend to a key, a column.
        title: Written above.
        ax: Where to draw; a new figure if left out.

    Returns:
        The Axes that was drawn on.

    Raises:
        TypeError: If ``mask`` is not a tensor.
        ValueError: If it is not boolean, not 2-D, or empty.

    Example:
        >>> ax = pattern(torch.ones(4, 4, dtype=torch.bool).tril(-1))
        >>> ax.get_xlabel()
        '6 of 16 pairs, 38 %; 1 query sees nothing'
    """
    check_tensor("mask", mask)
    if mask.dtype != torch.bool or mask.ndim != 2 or mask.numel() == 0:
        raise ValueError(
            f"mask must be torch.bool (q_len, k_len) and not empty, got {mask.dtype} "
            f"{tuple(mask.shape)}; of a 4-D mask pick one sequence and one head: mask[0, 0]"
        )
    mask = mask.detach().cpu()
    ax = _white(ax, size=(3.6, 3.9))
    ax.imshow(mask.numpy(), cmap=COLOURS, vmin=0, vmax=1)
    blind = ~mask.any(-1)
    _hatch(ax, blind[:, None].expand_as(mask))
    words = f"{mask.sum()} of {mask.numel()} pairs, {mask.double().mean():.0%}".replace("%", " %")
    if blind.any():
        words += f"; {blind.sum()} quer{'y sees' if blind.sum() == 1 else 'ies see'} nothing"
    ax.set_xlabel(words)
    ax.set_title(title)
    ax.set(xticks=[], yticks=[])
    _let_chinese_be_read(ax)
    return ax


def lines(
    x: Shaped[Tensor, " points"],
    series: Mapping[str, Float[Tensor, " points"]],
    *,
    x_label: str,
    y_label: str,
    title: str = "",
    ax: Axes | None = None,
) -> Axes:
    """Draw one or more lines over the same x, told apart by colour, dash and marker.

    For logarithmic axes, call ``ax.set_xscale("log", base=2)`` on what comes back.

    Args:
        x: Where the points are.
        series: The name of each line and its values, as many as ``x`` has points.
        x_label: What ``x`` is, with its unit.
        y_label: What the values are, with their unit.
        title: Written above.
        ax: Where to draw; a new figure if left out.

    Returns:
        The Axes that was drawn on.

    Raises:
        TypeError: If ``x`` or a line is not a tensor, or ``series`` does not name its lines.
        ValueError: If there is no line or more than six, or a line's length differs from ``x``.

    Example:
        >>> x = torch.tensor([1.0, 2.0])
        >>> ax = lines(x, {"twice": 2 * x}, x_label="x", y_label="2x")
        >>> ax.get_lines()[0].get_label()
        'twice'
    """
    if not isinstance(series, Mapping):
        raise TypeError(f'series must be {{"name": values}}, got {type(series).__name__}')
    if not 1 <= len(series) <= len(_LINE_STYLES):
        raise ValueError(
            f"series must hold 1 to {len(_LINE_STYLES)} lines, got {len(series)}; "
            "more can't be told apart in one picture"
        )
    check_tensor("x", x)
    for name, y in series.items():
        check_tensor(f"the line {name!r}", y)
        if x.ndim != 1 or y.shape != x.shape:
            raise ValueError(
                f"x and each line must be 1-D and equally long, got x {tuple(x.shape)} and "
                f"{name!r} {tuple(y.shape)}"
            )
    ax = _white(ax, size=(6.0, 3.6))
    for (name, y), style in zip(series.items(), _LINE_STYLES, strict=False):
        ax.plot(x.detach().cpu(), y.detach().double().cpu(), label=name, markersize=4, **style)
    ax.set_xlabel(x_label)
    ax.set_ylabel(y_label)
    ax.set_title(title)
    ax.grid(visible=True, color="#dddddd", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    if len(series) > 1:
        ax.legend(frameon=False)
    _let_chinese_be_read(ax)
    return ax


def _white(ax: Axes | None, size: tuple[float, float]) -> Axes:
    if ax is None:
        from matplotlib import pyplot  # only here: it picks a backend, which may open windows

        _, ax = pyplot.subplots(figsize=size, layout="constrained")
    ax.figure.set_facecolor("white")
    ax.set_facecolor("white")
    return ax


def _matrix(values: Tensor) -> Float[Tensor, "rows columns"]:
    check_tensor("values", values)
    if values.ndim != 2 or values.numel() == 0:
        raise ValueError(
            f"values must be 2-D (rows, columns) and not empty, got shape {tuple(values.shape)}; "
            "of 4-D attention weights pick one sequence and one head: weights[0, 0]"
        )
    return values.detach().cpu().double()


def _check_labels(name: str, labels: Sequence[str] | None, count: int) -> None:
    if labels is None:
        return
    for label in labels:
        if not isinstance(label, str):
            got = type(label).__name__
            raise TypeError(f"{name} must be strings, got {got} {label!r}; write list(map(str, …))")
    if len(labels) != count:
        raise ValueError(f"{name} has {len(labels)} labels, but values has {count} {name}")


def _blocked(values: Tensor, allowed: Tensor | None) -> Bool[Tensor, "rows columns"]:
    if allowed is None:
        return values == -math.inf
    check_tensor("allowed", allowed)
    if allowed.dtype != torch.bool or allowed.shape != values.shape:
        raise ValueError(
            f"allowed must be torch.bool of shape {tuple(values.shape)}, got {allowed.dtype} "
            f"{tuple(allowed.shape)}; of a 4-D mask pick one sequence and one head: mask[0, 0]"
        )
    return ~allowed.cpu() | (values == -math.inf)


def _limits(
    values: Tensor, blocked: Tensor, limits: tuple[float | int, float | int] | None
) -> tuple[float, float]:
    if limits is None:
        seen = values[~blocked & values.isfinite()]
        return (seen.min().item(), seen.max().item()) if seen.numel() else (0.0, 1.0)
    low, high = limits
    if not low < high:
        raise ValueError(f"limits must be (low, high) with low < high, got ({low}, {high})")
    return float(low), float(high)


def _label_ticks(
    ax: Axes, rows: Sequence[str] | None, columns: Sequence[str] | None, shape: tuple[int, int]
) -> None:
    for axis, labels, count in ((ax.yaxis, rows, shape[0]), (ax.xaxis, columns, shape[1])):
        if labels is not None:
            axis.set_ticks(range(count), labels)
            for text in axis.get_ticklabels():
                text.set_parse_math(False)  # a token may be "$": it is text, not a formula
    if columns is not None and max(map(len, columns)) > 3:
        look = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"}
        if shape[1] > _MOST_NUMBERS:  # the labels are close, and at 45 degrees they would cross
            look = {"rotation": 90}
        for text in ax.get_xticklabels():
            text.set(**look)
    ax.tick_params(length=0)


def _let_chinese_be_read(ax: Axes) -> None:
    """Let every text ask for a Chinese glyph where its own font has none."""
    for text in ax.findobj(Text):
        text.set_fontfamily(list(dict.fromkeys([*text.get_fontfamily(), _HAN])))


def _hatch(ax: Axes, blocked: Bool[Tensor, "rows columns"]) -> None:
    """Hatch all blocked cells as one shape: as thousands of shapes they would take seconds."""
    if not blocked.any():
        return
    row, column = blocked.nonzero().unbind(1)  # (N,) each
    corners = torch.tensor([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])  # x, y
    cells = torch.stack([column, row], dim=-1)[:, None] + corners  # (N, 4, 2)
    shape = Path.make_compound_path_from_polys(cells.numpy())
    look = {"facecolor": "white", "edgecolor": "#999999", "hatch": "///", "linewidth": 0}
    ax.add_artist(PathPatch(shape, **look))


def _write_numbers(ax: Axes, values: Tensor, blocked: Tensor, limits: tuple[float, float]) -> None:
    low, high = limits
    fits = values.shape[1] <= _MOST_NUMBERS
    for i, row in enumerate(values.tolist()):
        for j, value in enumerate(row):
            if math.isnan(value):
                ax.text(j, i, "NaN", ha="center", va="center", color="#B00020", weight="bold")
            elif fits and not blocked[i, j]:
                place = (value - low) / (high - low) if high > low else 0.5
                text = f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")
                ink = _ink(colormaps[COLOURS](min(max(place, 0.0), 1.0)))
                ax.text(j, i, text, ha="center", va="center", color=ink, fontsize=8)


def _ink(rgba: tuple[float, ...]) -> str:
    """Black or white, whichever has the higher contrast on a colour (WCAG 2.1, 1.4.3)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgba[:3]]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (luminance + 0.05) ** 2 > 0.05 * 1.05 else "white"
