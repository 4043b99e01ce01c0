"""Faults in the distance lab."""

from mutants import Mutant

MODULE = "attnlib.widgets.distance"
TESTS = ["widgets/test_distance_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "Signals",
        "shares of the largest signal",
        "signals / signals[:, :1]",
        "signals / signals.amax(1, keepdim=True)",
        "the same as long as the signal only falls",
    ),
    Mutant(
        "Signals",
        "the size of the outputs",
        "jvp(read, x, nudge)[1]",
        "jvp(read, x, nudge)[0]",
        "jvp gives the value first",
    ),
    Mutant(
        "Signals",
        "the largest number in place of the norm",
        "change.norm(dim=-1)",
        "change.abs().amax(-1)",
        "another size of a vector",
    ),
    Mutant(
        "DistanceLab",
        "nudges the last token",
        "nudge[0] =",
        "nudge[-1] =",
        "the distance counted from the wrong end",
    ),
    Mutant(
        "DistanceLab",
        "a nudge that grows with the width",
        "x.shape[1] ** -0.5",
        "1.0",
        "a direction that is not of length 1",
    ),
    Mutant(
        "DistanceLab",
        "the bias for the wrong gate",
        "elif place == 1:",
        "elif place == 0:",
        "write and forget mistaken for one another",
    ),
    Mutant(
        "DistanceLab",
        "without gates the GRU keeps everything",
        '"gru": {0: OPEN, 1: SHUT}',
        '"gru": {0: OPEN, 1: OPEN}',
        "all gates open, as for the LSTM",
    ),
    Mutant(
        "DistanceLab",
        "without gates they stand where they start",
        'numbers["b"][rows] = without',
        'numbers["b"][rows] = 0.0',
        "half open is not open",
    ),
    Mutant(
        "DistanceLab",
        "the gain on the inputs",
        'numbers["U"] *= self.gain',
        'numbers["W"] *= self.gain',
        "the wrong matrix",
    ),
    Mutant(
        "DistanceLab",
        "attention sees the future",
        "attention(x[None], x[None], x[None], mask=mask)",
        "attention(x[None], x[None], x[None])",
        "the mask forgotten",
    ),
    Mutant(
        "DistanceLab",
        "the last loop for all",
        "lambda x, loop=loop: loop(x[None])",
        "lambda x, loop=loops[-1]: loop(x[None])",
        "a lambda in a loop that binds late",
    ),
    Mutant(
        "DistanceLab",
        "weights through float32",
        "torch.tensor(rows, dtype=torch.float64) for key",
        "torch.tensor(rows).double() for key",
        "seven digits of sixteen",
    ),
    Mutant(
        "DistanceLab",
        "speaks of another reader",
        "shares[list(READERS).index(self.reader), self.distance]",
        "shares[1, self.distance]",
        "the default taken for the choice",
    ),
    Mutant(
        "DistanceLab",
        "takes a NaN",
        "if not x.isfinite().all():",
        "if x.isinf().any():",
        "not finite is more than infinite",
    ),
]
