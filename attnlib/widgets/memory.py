"""The memory lab: bytes by length for each method, and where they meet the reader's own memory."""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass

import torch
import traitlets
from matplotlib.figure import Figure

from attnlib.memory import Kept, LayerStack, cache_bytes
from attnlib.plot import lines
from attnlib.widgets.lab import Choice, Given, Lab, Range, front_end

RADIUS, BLOCK, RANK = 256, 64, 256  # of the window, of BigBird's blocks, of Linformer
METHODS: dict[str, Callable[[LayerStack], Kept]] = {
    "equation": LayerStack.equation,
    "SDPA + dropout": LayerStack.fused_with_dropout,
    "fused": LayerStack.fused,
    "tiled": LayerStack.tiled,
    "window": LayerStack.sparse,
    "BigBird": LayerStack.sparse,
    "Linformer": lambda stack: stack.linformer(min(RANK, stack.length)),
}
CACHES = ("whole cache", "cache as set")
IN_THE_STILL = ("equation", "SDPA + dropout", "fused", "window", "Linformer", "cache as set")
WINDOWS = (0, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)  # 0: none, every token is kept
SHORTEST, LONGEST = 32, 2**40  # tokens; below, PyTorch's kernel takes other ways
GIB = 2**30


def _preset(length: int, n_layers: int, n_heads: int, d_head: int, **other: object) -> dict:
    sizes = {"length": length, "n_layers": n_layers, "n_heads": n_heads, "kv_heads": n_heads}
    return sizes | {"d_head": d_head, "batch": 1, "dtype": "float32", "window": 0} | other


PRESETS = {
    "BERT-base at 512": _preset(512, 12, 12, 64, batch=32),
    "GPT-2 at 1,024": _preset(1024, 12, 12, 64, batch=8),
    "Longformer-base at 4,096": _preset(4096, 12, 12, 64, method="window"),
    "LLaMA-7B at 16,384": _preset(16384, 32, 32, 128, dtype="bfloat16"),
    "Mistral-7B at 32,768": _preset(32768, 32, 32, 128, dtype="bfloat16", kv_heads=8, window=4096),
}
LOOK = """
.lab-body .lab-groups { display: grid; gap: 0.6rem; }
.lab-body .lab-groups .lab-two { display: grid; gap: 0.6rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); }
.lab-body .lab-two fieldset { grid-template-columns: repeat(auto-fill, minmax(min(100%, 8.2rem), 1fr)); }
.lab-body input[type="number"] { display: block; width: 100%; min-height: 2rem; margin: 0.15rem 0 0; padding: 0.15rem 0.4rem; font: inherit; font-size: 0.85rem; color: var(--lab-text); background: var(--lab-back); border: 1px solid var(--lab-quiet); border-radius: 0.25rem; }
.lab-body .lab-chart { display: block; width: 100%; max-width: 46rem; margin: 0.6rem 0; font-size: 14px; }
.lab-body .lab-chart text { fill: var(--lab-quiet); }
.lab-body .lab-chart text.lab-on { fill: var(--lab-accent); font-weight: 700; }
.lab-body .lab-chart polyline { fill: none; stroke: var(--lab-quiet); stroke-width: 1.5; }
.lab-body .lab-chart polyline.lab-on { stroke: var(--lab-accent); stroke-width: 3.5; }
.lab-body .lab-chart circle { fill: var(--lab-warn); }
.lab-body .lab-chart path { fill: none; stroke: var(--lab-line); }
.lab-body .lab-chart .lab-grid { stroke: var(--lab-line); }
.lab-body .lab-chart .lab-marker { stroke: var(--lab-accent); stroke-dasharray: 3 3; }
.lab-body .lab-chart .lab-memory { stroke: var(--lab-warn); stroke-width: 2; }
.lab-body .lab-chart text.lab-memory { fill: var(--lab-warn); stroke: none; font-weight: 700; }
.lab-body .lab-matrix.lab-bill { --lab-name: 7.2rem; max-width: 60rem; }
@media (max-width: 30rem) { .lab-body .lab-chart { font-size: 22px; } }
"""  # noqa: E501


@dataclass(frozen=True)
class Bill:
    """What each method costs, and how long a text may be.

    Attributes:
        training: What is kept for the backward pass, by method, in bytes.
        caches: What generating keeps, for all heads and every token, and as it is set, in bytes.
        longest: The longest text that fits, by method and by cache, in tokens; 0 if not even 32
            tokens fit, and infinity if every length does.
        keys: How many keys a query meets on average, by method.
        parameters: Bytes of the layers' parameters.
    """

    training: dict[str, Kept]
    caches: dict[str, int]
    longest: dict[str, float]
    keys: dict[str, float]
    parameters: int


class MemoryLab(Lab):
    r"""Choose a model, a length and a method, and see which of the three costs fills the memory.

    Training keeps weights and activations, as :class:`~attnlib.memory.LayerStack` predicts them;
    generating keeps the cache, as :func:`~attnlib.memory.cache_bytes` does. The window has a radius
    of 256, BigBird blocks of 64, and Linformer a rank of 256, or of the length if that is less.

    Args:
        length: Number of tokens, 32 to 2^20.
        n_layers: Number of layers, 1 to 128.
        n_heads: Number of heads, 1 to 128. Set to another number, it takes ``kv_heads`` along if
            that would not divide it.
        kv_heads: Number of heads for keys and values; it divides ``n_heads``.
        d_head: Width of a head, 8 to 256.
        batch: Number of texts, 1 to 1024.
        dtype: ``"float32"`` or ``"bfloat16"``, which stands for both types of 16 bits.
        method: Whose sentence is told: ``"equation"``, ``"SDPA + dropout"``, ``"fused"``,
            ``"tiled"``, ``"window"``, ``"BigBird"`` or ``"Linformer"``.
        checkpointed: Whether each layer keeps its input alone, and runs again.
        window: How many tokens the cache keeps, of a few sizes; 0 keeps all.
        memory: The reader's own memory, 0.5 to 4096 GiB.
        lines: Whether the lines are the ``"methods"``, or the three ``"costs"`` of one.

    Raises:
        TypeError: If a switch is set to a number of another kind.
        ValueError: If it is set to what it does not have.

    Example:
        >>> lab = MemoryLab(length=1024, n_layers=12, n_heads=12, d_head=64, memory=8)
        >>> bill = lab.result()
        >>> bill.caches["whole cache"] / 2**20
        72.0
        >>> bill.longest["equation"] < bill.longest["fused"] < bill.longest["whole cache"]
        True

    Source:
        Every number is predicted by :mod:`attnlib.memory`, whose tests measure it. The arithmetic
        in the browser is checked against it.
    """

    _esm = front_end("memory.js")
    _css = Lab._css + LOOK

    presets = Given(None).tag(sync=True)
    patterns = Given(None).tag(sync=True)

    length = Range(lambda lab: (SHORTEST, 2**20), default=512).tag(sync=True)
    n_layers = Range(lambda lab: (1, 128), default=12).tag(sync=True)
    n_heads = Range(lambda lab: (1, 128), default=12).tag(sync=True)
    kv_heads = Choice(lambda lab: _divisors(lab.n_heads), default=12).tag(sync=True)
    d_head = Range(lambda lab: (8, 256), default=64).tag(sync=True)
    batch = Range(lambda lab: (1, 1024), default=1).tag(sync=True)
    dtype = Choice(lambda lab: ("float32", "bfloat16"), default="float32").tag(sync=True)
    method = Choice(lambda lab: tuple(METHODS), default="equation").tag(sync=True)
    checkpointed = Choice(lambda lab: (False, True), default=False).tag(sync=True)
    window = Choice(lambda lab: WINDOWS, default=0).tag(sync=True)
    memory = Range(lambda lab: (0.5, 4096.0), default=16.0).tag(sync=True)
    lines = Choice(lambda lab: ("methods", "costs"), default="methods").tag(sync=True)

    def __init__(self, *, kv_heads: int | None = None, **switches: object) -> None:
        n_heads = switches.pop("n_heads", 12)
        switches = {"n_heads": n_heads, "kv_heads": kv_heads or n_heads} | switches
        patterns = {"radius": RADIUS, "block": BLOCK, "rank": RANK}
        super().__init__(presets=PRESETS, patterns=patterns, **switches)

    @traitlets.observe("n_heads")
    def _keep_kv_heads_a_divisor(self, change: dict) -> None:
        if self.n_heads % self.kv_heads:
            self.kv_heads = self.n_heads

    def result(self) -> Bill:
        """Recompute with attnlib what the lab shows now."""
        stack = self._stack(self.length)
        totals = {name: self._total(name) for name in (*METHODS, *CACHES)}
        return Bill(
            training={name: kept(stack) for name, kept in METHODS.items()},
            caches={name: totals[name](self.length) for name in CACHES},
            longest={name: _longest(total, self.memory * GIB) for name, total in totals.items()},
            keys={name: _keys(name, self.length) for name in METHODS},
            parameters=stack.parameters(),
        )

    def sentence(self) -> str:
        """Say what the chosen method keeps, and at what length each method meets the line."""
        bill = self.result()
        kept = bill.training[self.method]
        again = ", checkpointed" if self.checkpointed else ""
        ends = ", ".join(f"{name} {_tokens(end)}" for name, end in bill.longest.items())
        return (
            f"Memory lab, {self.n_layers} layers of {self.n_heads} heads of {self.d_head}, batch "
            f"{self.batch}, {self.length:,} tokens, {self.dtype}{again}: {self.method} keeps "
            f"{_words(kept.weights)} of weights and {_words(kept.activations)} of activations in "
            f"training; generating keeps a cache of {_words(bill.caches['cache as set'])}. "
            f"The longest text within {self.memory:g} GiB: {ends}."
        )

    def still(self) -> Figure:
        """Draw the bytes by length on two logarithmic axes, and the line of the memory."""
        figure = Figure(figsize=(6.4, 4), layout="constrained")
        lengths = [2**k for k in range(7, 21)]
        ax = lines(
            torch.tensor(lengths),
            {
                name: torch.tensor([float(self._total(name)(n)) for n in lengths])
                for name in IN_THE_STILL
            },
            x_label="length (tokens)",
            y_label="bytes",
            title=f"{self.n_layers} layers, batch {self.batch}",
            ax=figure.subplots(),
        )
        ax.axhline(self.memory * GIB, color="black", linestyle=":")
        ax.set_xscale("log", base=2)
        ax.set_yscale("log", base=2)
        return figure

    def _stack(self, length: int) -> LayerStack:
        return LayerStack(
            length=length,
            n_layers=self.n_layers,
            n_heads=self.n_heads,
            d_head=self.d_head,
            batch=self.batch,
            dtype=getattr(torch, self.dtype),
            checkpointed=self.checkpointed,
        )

    def _total(self, name: str) -> Callable[[int], int]:
        """Bytes of a method or a cache as a function of the length."""
        if name in METHODS:
            return lambda length: sum(METHODS[name](self._stack(length)))
        as_set = name == "cache as set"
        return lambda length: cache_bytes(
            length,
            n_layers=self.n_layers,
            n_heads=self.kv_heads if as_set else self.n_heads,
            d_head=self.d_head,
            batch=self.batch,
            window=(self.window or None) if as_set else None,
            dtype=getattr(torch, self.dtype),
        )


def _divisors(n: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, n + 1) if n % d == 0)


def _longest(total: Callable[[int], int], memory: float) -> float:
    """The longest text whose total, which grows with the length, is not above the memory."""
    lengths = range(SHORTEST, LONGEST)
    fitting = bisect_right(lengths, memory, key=total)
    if fitting == len(lengths):
        return math.inf
    return lengths[fitting - 1] if fitting else 0


def _keys(method: str, length: int) -> float:
    """How many keys a query meets on average."""
    if method == "window":
        reach = min(RADIUS, length - 1)
        return 2 * reach + 1 - reach * (reach + 1) / length  # less what hangs over both ends
    if method == "BigBird":
        n = -(-length // BLOCK)
        inner = [3 + (i > 1) + (i < n - 2) + 3 for i in range(1, n - 1)]  # window, ends, random
        blocks = sum(min(n, seen) for seen in inner) + min(n, 2) * n  # the ends see all
        return min(length, blocks / n * BLOCK)
    return min(RANK, length) if method == "Linformer" else length


def _words(size: float) -> str:
    """Bytes as one reads them: 9.00 GiB."""
    if size < 1024:
        return f"{size} bytes" if size else "none"
    power = min(int(math.log2(size) // 10), 6)
    number = size / 1024**power
    digits = 2 if number < 9.995 else 1 if number < 99.95 else 0
    rounded = math.floor(number * 10**digits + 0.5) / 10**digits  # halves up, as in the browser
    return f"{rounded:.{digits}f} {'KMGTPE'[power - 1]}iB"


def _tokens(length: float) -> str:
    if length == math.inf:
        return "no end"
    return f"{length:,}" if length else f"not even {SHORTEST}"
