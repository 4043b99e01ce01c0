"""Faults in the variants lab."""

from mutants import Mutant

MODULE = "attnlib.widgets.variants"
TESTS = ["widgets/test_variants_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "Task",
        "another start token",
        'start: str = "<s>"',
        'start: str = "<pad>"',
        "T5's start for everyone",
    ),
    Mutant(
        "Task",
        "places by default",
        "places: list[int] = []",
        "places: list[int] = [0]",
        "a task that is written, answered in place",
    ),
    Mutant(
        "Task",
        "places unchecked",
        "if places and (len(places)",
        "if not places and (len(places)",
        "a check that never looks",
    ),
    Mutant(
        "Verdict",
        "the answer one place too late",
        'late = 1 if self.shift == "shifted" else 0',
        'late = 0 if self.shift == "shifted" else 1',
        "the off-by-one of the chapter",
    ),
    Mutant(
        "Verdict",
        "what one label misses is not the most",
        "missed=max(int((~allowed[row, :n_read]).sum())",
        "missed=max(int((~allowed[row]).sum())",
        "tokens not yet written are no source",
    ),
    Mutant(
        "Verdict",
        "the mask by its name",
        "mask = self._means(n_read, len(tokens))",
        "mask = self.mask",
        "a prefix mask may be another one in disguise",
    ),
    Mutant(
        "VariantsLab",
        "the decoder's prefix is the source's length",
        "self._square(n - n_read, 0)",
        "self._square(n - n_read, min(n_read, n - n_read))",
        "the future of the target is seen",
    ),
    Mutant(
        "VariantsLab",
        "the encoder sees the target",
        "reads = padding_mask(torch.tensor([n_read]), n)[0, 0].expand(n, n).clone()",
        "reads = torch.ones(n, n, dtype=torch.bool)",
        "no source row is cut off",
    ),
    Mutant(
        "VariantsLab",
        "not shifted",
        "[start, *said[:-1]]",
        "[*said]",
        "the decoder is shown its labels",
    ),
    Mutant(
        "VariantsLab",
        "two stacks answer in place",
        'bool(places) and self.stacks == "one"',
        "bool(places)",
        "a decoder that writes nothing",
    ),
]
