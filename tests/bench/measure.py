"""How the benchmark measures: contenders in turn, peak memory of a fresh process, tables."""

import math
import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

SAMPLE_S = 0.02  # a short call is repeated until a sample lasts this long
QUIET = 0.1  # a round is quiet if others used less than this many cores meanwhile
FEWEST = 3  # rounds that count, quiet or not


@dataclass(frozen=True)
class Effort:
    """Each comparison goes on for so many quiet rounds, or so many seconds."""

    rounds: int
    seconds: float


@dataclass(frozen=True)
class Ratio:
    """The median of the ratios within a round, and the middle half of them."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3f} ({self.low:.2f} to {self.high:.2f})"


@dataclass(frozen=True)
class Rounds:
    """Seconds for one call, for each contender and each round that counts."""

    seconds: dict[str, list[float]]
    n_quiet: int

    def ratio(self, ours: str, peer: str) -> Ratio:
        pairs = zip(self.seconds[ours], self.seconds[peer], strict=True)
        low, median, high = statistics.quantiles((a / b for a, b in pairs), n=4)
        return Ratio(median, low, high)

    def milliseconds(self, name: str) -> str:
        return f"{statistics.median(self.seconds[name]) * 1e3:.3g}"

    def count(self) -> str:
        """How many rounds count; too few quiet ones are pointed out."""
        return str(self.n_quiet) if self.n_quiet >= FEWEST else f"{self.n_quiet}, noisy"


@dataclass
class Table:
    """What one topic found, and whether the promises hold."""

    title: str
    header: list[str]
    rows: list[list[str]] = field(default_factory=list)
    promises: list[str] = field(default_factory=list)

    def add(self, *cells: object) -> None:
        self.rows.append([str(cell) for cell in cells])
        print(*self.rows[-1], sep=" | ", file=sys.stderr, flush=True)  # if the rest never comes

    def promise(self, what: str, found: float, most: float) -> None:
        verdict = "kept" if found <= most else "**missed**"
        self.promises.append(f"{what}: {found:.3f}, at most {most} promised: {verdict}")

    def __str__(self) -> str:
        lines = [self.header, ["---"] * len(self.header), *self.rows]
        table = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        promises = "\n".join(f"- {promise}" for promise in self.promises)
        return "\n\n".join(part for part in (f"### {self.title}", table, promises) if part)


def check_equal(contenders: dict[str, Callable[[], list[Tensor]]], tolerance: float) -> None:
    """Fail unless all contenders return the same tensors: only equal work may be compared."""
    (_, expected), *others = ((name, run()) for name, run in contenders.items())
    for _, got in others:
        torch.testing.assert_close(got, expected, rtol=tolerance, atol=tolerance)


def training_step(loss: Callable[[], Tensor], model: nn.Module) -> Callable[[], None]:
    """A whole step of training: forward, backward and AdamW."""
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, fused=True)

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def time_rounds(contenders: dict[str, Callable[[], object]], effort: Effort) -> Rounds:
    """Time the contenders in turn, round after round, so that all of them meet the same noise.

    Every second round goes backwards: nobody is always the one who finds a warm cache. Rounds in
    which other programs were busy are left out; if hardly any is quiet, the quietest count.
    """
    repeats = {name: _repeats_for_a_sample(run) for name, run in contenders.items()}
    rounds: list[tuple[float, dict[str, float]]] = []  # cores used by others, everyone's seconds
    order, end = list(contenders), time.perf_counter() + effort.seconds
    while len(rounds) < FEWEST or (
        time.perf_counter() < end and sum(busy < QUIET for busy, _ in rounds) < effort.rounds
    ):
        start, others = time.perf_counter(), _seconds_of_others()
        took = {name: _seconds_per_call(contenders[name], repeats[name]) for name in order}
        busy = (_seconds_of_others() - others) / (time.perf_counter() - start)
        rounds.append((busy, took))
        order.reverse()
        while busy >= QUIET and time.perf_counter() < end:  # wait for a quiet moment
            others = _seconds_of_others()
            time.sleep(0.2)
            busy = (_seconds_of_others() - others) / 0.2
    n_quiet = sum(busy < QUIET for busy, _ in rounds)
    kept = sorted(rounds, key=lambda entry: entry[0])[: max(n_quiet, FEWEST)]
    return Rounds({name: [took[name] for _, took in kept] for name in contenders}, n_quiet)


def peak_in_fresh_process(run: Callable[..., float], *args: object) -> float:
    """What ``run(*args)`` returns in a process of its own; it calls :func:`peak_growth` there."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(run, args)


def peak_growth(run: Callable[[], object]) -> float:
    """The MB of memory that ``run`` needs at its worst, beyond what is in use already."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    before = _status_kb("VmRSS")
    run()
    return (_status_kb("VmHWM") - before) / 1024


def _status_kb(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def _seconds_of_others() -> float:
    """Core seconds used since the machine started by all but this process and its children."""
    user, nice, system, _, _, irq, softirq, steal, *_ = (
        int(ticks) for ticks in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    everyone = (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
    children = os.times().children_user + os.times().children_system
    return everyone - time.process_time() - children


def _seconds_per_call(run: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        run()
    return (time.perf_counter() - start) / repeats


def _repeats_for_a_sample(run: Callable[[], object]) -> int:
    for _ in range(3):  # the first call loads kernels
        took = _seconds_per_call(run, 1)
        if took > 10 * SAMPLE_S:
            return 1
    return max(1, math.ceil(SAMPLE_S / took))
