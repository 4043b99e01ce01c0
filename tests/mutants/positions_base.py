"""Faults in what positions inside attention have in common."""

from mutants import Mutant

MODULE = "attnlib.positions.base"
TESTS = ["test_rotary_positions.py", "test_relative_positions.py"]
MUTANTS = [
    Mutant(
        "Positions",
        "the base copies",
        '            ``x``, turned.\n        """\n        return x\n',
        '            ``x``, turned.\n        """\n        return x + 0\n',
        "memory traffic for nothing",
    ),
    Mutant(
        "Positions",
        "the base adds the scores once more",
        '        """\n        return None\n',
        '        """\n        return query @ key.mT\n',
        "what a bias is, someone thought",
    ),
    Mutant(
        "Positions",
        "the base adds zeros",
        '        """\n        return None\n',
        '        """\n        return query.new_zeros(1, 1, 1, 1)\n',
        "the same scores, but causal masks are no longer recognised",
    ),
    Mutant(
        "relative_position",
        "query minus key",
        "    return torch.arange(k_len, device=device) - query[:, None]\n",
        "    return query[:, None] - torch.arange(k_len, device=device)\n",
        "the other convention, which Hugging Face's XLNet has",
    ),
    Mutant(
        "relative_position",
        "the queries are the first ones",
        "torch.arange(k_len - q_len, k_len, device=device)",
        "torch.arange(q_len, device=device)",
        "right until a cache comes in",
    ),
    Mutant(
        "relative_position",
        "more queries than keys pass",
        "    if k_len < q_len:\n",
        "    if False:\n",
        "cross-attention with positions of another sequence",
    ),
]
