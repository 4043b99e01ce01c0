"""Faults in dropout."""

from mutants import Mutant

MODULE = "attnlib.dropout"
TESTS = ["test_dropout.py"]
MUTANTS = [
    Mutant(
        "Dropout",
        "the first bit of a draw is always 0",
        "    draws.random_(-(2**63), None)  #",
        "    draws.random_()  #",
        "PyTorch draws whole numbers from 0 on: one entry in four is dropped half as often",
    ),
    Mutant(
        "Dropout",
        "not scaled",
        "return torch.where(keep, x, 0.0) * (_STEPS / (_STEPS - dropped))",
        "return torch.where(keep, x, 0.0)",
        "as in the first paper, which scales at test time",
    ),
    Mutant(
        "Dropout",
        "scaled by the wrong share",
        "(_STEPS / (_STEPS - dropped))",
        "(_STEPS / dropped)",
        "the same for p = 0.5",
    ),
    Mutant(
        "Dropout",
        "keeps what it should drop",
        ") >= dropped - _STEPS // 2",
        ") < dropped - _STEPS // 2",
        "the same for p = 0.5",
    ),
    Mutant(
        "Dropout",
        "16 bits are taken for whole numbers from 0 on",
        ") >= dropped - _STEPS // 2",
        ") >= dropped",
        "half of them are negative",
    ),
    Mutant(
        "Dropout",
        "drops in evaluation, too",
        "        if not self.training:\n            return x\n",
        "",
        "the classic",
    ),
    Mutant(
        "Dropout",
        "four neighbours share their fate",
        "    return draws.view(torch.int16)[: x.numel()].view(x.shape)\n",
        "    d = draws.view(torch.int16)[::4].repeat_interleave(4)\n"
        "    return d[: x.numel()].view(x.shape)\n",
        "the share is right, the noise is not",
    ),
    Mutant(
        "Dropout",
        "a draw too few",
        "(x.numel() + 3) // 4",
        "x.numel() // 4",
        "right where the size is a multiple of four",
    ),
    Mutant(
        "Dropout",
        "a share near 1 divides by 0",
        "if dropped in (0, _STEPS) or",
        "if self.p in (0, 1) or",
        "a share is rounded",
    ),
]
