"""Faults in the biases of ALiBi and T5."""

from mutants import Mutant

MODULE = "attnlib.positions.biases"
TESTS = ["test_relative_positions.py"]
MUTANTS = [
    Mutant(
        "Alibi",
        "far keys matter more",
        "(slopes[:, None, None] * -position.abs())",
        "(slopes[:, None, None] * position.abs())",
        "a sign",
    ),
    Mutant(
        "Alibi",
        "the slopes start at 1",
        "2 ** (-8 * h / power) for h in range(1, power + 1)",
        "2 ** (-8 * h / power) for h in range(power)",
        "counted from 0",
    ),
    Mutant(
        "Alibi",
        "other head counts get a sequence of their own",
        "    power = 2 ** (int(n_heads).bit_length() - 1)  #",
        "    power = n_heads  #",
        "the paper's formula, not the authors' code",
    ),
    Mutant(
        "Alibi",
        "computed in half precision",
        "        dtype = torch.promote_types(query.dtype, torch.float32)\n",
        "        dtype = query.dtype\n",
        "distances above 256 are rounded in bfloat16",
    ),
    Mutant(
        "T5Bias",
        "later keys look like earlier ones",
        "first, distance = (position > 0) * n_buckets, position.abs()",
        "first, distance = 0, position.abs()",
        "half of the table is never used",
    ),
    Mutant(
        "T5Bias",
        "a decoder sees before as after",
        "first, distance = 0, (-position).clamp(min=0)",
        "first, distance = 0, position.clamp(min=0)",
        "everything is in bucket 0",
    ),
    Mutant(
        "T5Bias",
        "far buckets are as wide as near ones",
        "        far = (n_exact + beyond.long()).clamp(max=n_buckets - 1)\n",
        "        far = distance.clamp(max=n_buckets - 1)\n",
        "no logarithm: all is one from distance 16 on",
    ),
    Mutant(
        "T5Bias",
        "a table entry of the wrong distance",
        "return _pick(by_distance, position + k_len - 1)",
        "return _pick(by_distance, (position + k_len - 1).flip(0))",
        "the first query gets what the last one should",
    ),
]
