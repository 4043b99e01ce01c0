"""Faults in Linformer and its projection."""

from mutants import Mutant

MODULE = "attnlib.efficient.linformer"
TESTS = ["test_linformer.py"]
MUTANTS = [
    Mutant(
        "LengthProjection",
        "the last weights for a shorter sequence",
        "        return self.weight[:, :length] @ x\n",
        "        return self.weight[:, max_len - length :] @ x\n",
        "aligned to the other end",
    ),
    Mutant(
        "LengthProjection",
        "summaries as large as the sequence is long",
        "torch.randn(rank, max_len) / max_len**0.5",
        "torch.randn(rank, max_len)",
        "the softmax starts saturated",
    ),
    Mutant(
        "LengthProjection",
        "an average for a sum",
        "        return self.weight[:, :length] @ x\n",
        "        return self.weight[:, :length] @ x / length\n",
        "the weights are learned as they are",
    ),
    Mutant(
        "LinformerAttention",
        "padding is mixed in",
        "            x = x.masked_fill(~mask[:, 0, 0, :, None], 0.0)\n",
        "",
        "the mask is checked, but not used",
    ),
    Mutant(
        "LinformerAttention",
        "the bias counts once",
        "            projected = projected + to_short(ones) * to_heads.bias\n",
        "            projected = projected + to_heads.bias\n",
        "it is mixed like everything else",
    ),
    Mutant(
        "LinformerAttention",
        "the bias of padding counts",
        "x.new_ones(1, x.shape[1], 1) if mask is None else mask[:, 0, 0, :, None].to(x)",
        "x.new_ones(1, x.shape[1], 1)",
        "padding has no vector, but a bias",
    ),
    Mutant(
        "LinformerAttention",
        "values mixed like keys",
        "        value_short = short if shared else self.value_to_short(x)\n",
        "        value_short = short\n",
        "the second projection learns nothing",
    ),
]
