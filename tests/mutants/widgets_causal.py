"""Faults in the causal lab as Python computes it; the browser's numbers are held to these."""

from mutants import Mutant

MODULE = "attnlib.widgets.causal"
TESTS = ["widgets/test_causal_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "CausalLab",
        "no scale",
        "q @ k.mT / math.sqrt(q.shape[1])",
        "q @ k.mT",
        "the lab's weights are then not those of the equation",
    ),
    Mutant(
        "CausalLab",
        "the mask after the softmax is set before it",
        'if self.place == "before":\n            scores',
        'if self.place != "divided":\n            scores',
        "the fault that the lab is there to show would not show",
    ),
    Mutant(
        "CausalLab",
        "rows are never divided",
        'if self.place == "divided":',
        'if self.place == "divide":',
        "two places of the switch would be one",
    ),
    Mutant(
        "CausalLab",
        "weights are not rounded",
        "weights = self._rounded(scores.softmax(-1))",
        "weights = scores.softmax(-1)",
        "the dtype then matters for the scores alone",
    ),
    Mutant(
        "CausalLab",
        "too far by two",
        ".tril(1)",
        ".tril(2)",
        "an index that is off by one",
    ),
    Mutant(
        "CausalLab",
        "padding behind",
        "left_padding_mask(torch.tensor([n - N_PADDING]), n)",
        "left_padding_mask(torch.tensor([n - N_PADDING]), n).flip(-1)",
        "in causal attention that is hidden from nobody who matters",
    ),
    Mutant(
        "CausalLab",
        "refused wherever the number stands",
        'is_filled = self.place == "before" and self.mask_kind != "none"',
        "is_filled = True",
        "with the mask after the softmax nothing is filled in",
    ),
    Mutant(
        "CausalLab",
        "only the value of the token is replaced",
        "self._attend(sign * q, sign * k, sign * v)",
        "self._attend(q, k, sign * v)",
        "a leak through the normaliser goes by the key",
    ),
    Mutant(
        "CausalLab",
        "a NaN counts as a leak",
        "before[~before.isnan()].tolist()",
        "before.nan_to_num(9.0).tolist()",
        "a row of NaN hides the future, and everything else",
    ),
    Mutant(
        "CausalLab",
        "the replaced token counts as its own past",
        "moved[: self.replaced]",
        "moved[: self.replaced + 1]",
        "a token may move its own output",
    ),
    Mutant(
        "CausalLab",
        "the last token is not the one replaced",
        "replaced=len(tokens) - 1 if replaced is None else replaced",
        "replaced=0 if replaced is None else replaced",
        "nothing comes before the first, so the meter would always show 0",
    ),
    Mutant(
        "CausalLab",
        "two tokens are enough",
        "if len(tokens) <= N_PADDING:",
        "if len(tokens) < N_PADDING:",
        "with padding nobody is left",
    ),
    Mutant(
        "CausalLab",
        "shares of a blind row are hatched away",
        "shown = now.allowed | (now.weights != 0)",
        "shown = now.allowed",
        "the picture then hides the fault",
    ),
    Mutant(
        "Outcome",
        "sums of columns",
        "row_sums=weights.sum(-1),",
        "row_sums=weights.sum(-2),",
        "the axis that is summed over is the one that goes",
    ),
    Mutant(
        "Outcome",
        "the mean move",
        "moved = (other - output).abs().amax(-1)",
        "moved = (other - output).abs().mean(-1)",
        "a leak is as large as its largest number",
    ),
    Mutant(
        "Outcome",
        "the scores before the mask",
        "            scores=scores,\n",
        "            scores=scores.masked_fill(scores.isinf(), 0.0),\n",
        "the reader is to see what goes into the softmax",
    ),
]
