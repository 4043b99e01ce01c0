"""Faults in rotary positions and their converters."""

from mutants import Mutant

MODULE = "attnlib.positions.rotary"
TESTS = ["test_rotary_positions.py"]
MUTANTS = [
    Mutant(
        "Rope",
        "turned backwards",
        "[first * cos - second * sin, second * cos + first * sin]",
        "[first * cos + second * sin, second * cos - first * sin]",
        "scores stay the same, but a cache or a model of others does not fit",
    ),
    Mutant(
        "Rope",
        "the offset is ignored",
        "torch.arange(offset, offset + length, dtype=torch.float64)",
        "torch.arange(length, dtype=torch.float64)",
        "every cached step is at position 0",
    ),
    Mutant(
        "Rope",
        "neighbours are pairs",
        "        first, second = x.to(dtype).chunk(2, dim=-1)  #",
        "        first, second = x.to(dtype)[..., ::2], x.to(dtype)[..., 1::2]  #",
        "the paper's layout with the halves' output",
    ),
    Mutant(
        "Rope",
        "angles in float32",
        "        return position[:, None] * torch.exp(",
        "        position, exponent = position.float(), exponent.float()\n"
        "        return position[:, None] * torch.exp(",
        "far positions run together",
    ),
    Mutant(
        "Rope",
        "the slowest pair does not turn",
        "torch.arange(0, self.d_head, 2, dtype=torch.float64) / self.d_head",
        "torch.arange(0, self.d_head, 2, dtype=torch.float64) / (self.d_head - 2 or 1)",
        "an exponent that runs to 1, as in linspace",
    ),
    Mutant(
        "interleaved_to_halves",
        "does the reverse",
        "weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)",
        "weight.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)",
        "the same for a width of four",
    ),
    Mutant(
        "interleaved_to_halves",
        "the heads are mixed",
        "weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)",
        "weight.unflatten(0, (-1, 2)).transpose(0, 1).flatten(0, 1)",
        "right for one head",
    ),
    Mutant(
        "interleaved_to_halves",
        "nothing moves",
        "weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)",
        "weight.clone()",
        "scores that look plausible",
    ),
    Mutant(
        "halves_to_interleaved",
        "does the reverse",
        "weight.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)",
        "weight.unflatten(0, (n_heads, -1, 2)).transpose(1, 2).flatten(0, 2)",
        "one line for both",
    ),
    Mutant(
        "halves_to_interleaved",
        "the heads are mixed",
        "weight.unflatten(0, (n_heads, 2, -1)).transpose(1, 2).flatten(0, 2)",
        "weight.unflatten(0, (2, -1)).transpose(0, 1).flatten(0, 1)",
        "right for one head",
    ),
    Mutant(
        "halves_to_interleaved",
        "odd widths of a head pass",
        "weight.shape[0] % (2 * n_heads)",
        "weight.shape[0] % n_heads",
        "PyTorch's words in place of ours",
    ),
]
