"""Faults in the positions lab."""

from mutants import Mutant

MODULE = "attnlib.widgets.positions"
TESTS = ["widgets/test_positions_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "PositionScores",
        "the spread over all distances",
        "max(((line.max() - line.min()).item() for line in lines if len(line)), default=0.0)",
        "(scores.max() - scores.min()).item()",
        "another question: how much scores differ at all",
    ),
    Mutant(
        "PositionScores",
        "a missing row counts",
        "lines = [line[~line.isnan()] for line in lines]",
        "pass",
        "a comparison with NaN is never true",
    ),
    Mutant(
        "PositionScores",
        "the longest diagonal is left out",
        "for k in range(1 - n, n)]",
        "for k in range(1, n)]",
        "the upper half looks like all of it",
    ),
    Mutant(
        "PositionsLab",
        "the sinusoid starts at 0",
        "offset=self.offset, base",
        "offset=0, base",
        "an offset forgotten, the fault of the chapter",
    ),
    Mutant(
        "PositionsLab",
        "the table starts at 0",
        "[self.offset :][: self.length]",
        "[: self.length]",
        "the same for learned rows",
    ),
    Mutant(
        "PositionsLab",
        "no scale",
        "x @ x.T / math.sqrt(d)",
        "x @ x.T",
        "a forgotten scale",
    ),
    Mutant(
        "PositionsLab",
        "ALiBi of the last head",
        "Alibi(8).bias(q, q)[0, 0]",
        "Alibi(8).bias(q, q)[0, 7]",
        "another head of the same bias",
    ),
    Mutant(
        "PositionsLab",
        "RoPE always with the usual base",
        "Rope(d, base=self.base)",
        "Rope(d)",
        "a switch that does nothing",
    ),
]
