"""Faults in the heads lab as Python computes it; the browser's numbers are held to these."""

from mutants import Mutant

MODULE = "attnlib.widgets.heads"
TESTS = ["widgets/test_heads_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "HeadsResult",
        "errors of the tokens, not of the groups",
        "errors=wrong.unflatten(1, (len(self.groups), -1)).mean((0, 2)),",
        "errors=wrong.unflatten(1, (len(self.groups), -1)).mean((1, 2)),",
        "the axis that is averaged over is the one that goes",
    ),
    Mutant(
        "HeadsResult",
        "errors without a square",
        "self.target, dtype=torch.float64)).square()",
        "self.target, dtype=torch.float64)).abs()",
        "another error than the one that is promised",
    ),
    Mutant(
        "HeadsResult",
        "cells of each head below one another",
        "cells=split(numbered, self.n_heads)[0].transpose(0, 1).flatten(1).long(),",
        "cells=split(numbered, self.n_heads)[0].view(numbered.shape[1:]).long(),",
        "cells that look right with the wrong reshape",
    ),
    Mutant(
        "HeadsLab",
        "the wrong reshape is the right one",
        '        if self.reshape == "right":\n',
        "        if True:\n",
        "a switch without a wire",
    ),
    Mutant(
        "HeadsLab",
        "only the split is wrong",
        "        split, merge = (_wrong_split, _wrong_merge)\n",
        "        split, merge = (_wrong_split, merge_heads)\n",
        "the mistake is made on one way only",
    ),
    Mutant(
        "HeadsLab",
        "a cut takes the next head",
        "torch.tensor([self.cut])",
        "torch.tensor([self.cut - 1])",
        "heads count from 0",
    ),
    Mutant(
        "HeadsLab",
        "a cut along the tokens",
        "heads.index_fill(1, ",
        "heads.index_fill(2, ",
        "the axis of the heads is 1",
    ),
    Mutant(
        "HeadsLab",
        "head 0 cannot be cut",
        "        if self.cut >= 0:\n",
        "        if self.cut > 0:\n",
        "0 taken for none",
    ),
    Mutant(
        "HeadsLab",
        "no bias",
        ' + torch.tensor(layer["bias"], dtype=torch.float64)\n',
        "\n",
        "a term is forgotten",
    ),
    Mutant(
        "HeadsLab",
        "the output projection is not turned",
        '"out": layer.to_output.weight.T,',
        '"out": layer.to_output.weight,',
        "nn.Linear keeps its weight transposed",
    ),
    Mutant(
        "HeadsLab",
        "always the first layer",
        '(layer for layer in self.layers if layer["n_heads"] == self.n_heads)',
        "(layer for layer in self.layers)",
        "the switch does not reach the numbers",
    ),
    Mutant(
        "HeadsLab",
        "a cut outlives its head",
        "self.cut >= self.n_heads:\n            self.cut = -1",
        "self.cut > self.n_heads:\n            self.cut = -1",
        "off by one",
    ),
    Mutant(
        "HeadsLab",
        "the picture shows the first token",
        "now.weights[:, self.selected],",
        "now.weights[:, 0],",
        "the switch does not reach the picture",
    ),
    Mutant(
        "HeadsLab",
        "shared heads are let in",
        "if widths != [(width, width)] * 4 or layer.positions is not None:",
        "if widths[0] != (width, width) or layer.positions is not None:",
        "only the queries are looked at",
    ),
]
