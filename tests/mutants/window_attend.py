"""Faults in attention that sees a window."""

from mutants import Mutant

MODULE = "attnlib.efficient.window_attend"
TESTS = ["test_gpt_window.py"]
MUTANTS = [
    Mutant(
        "WindowAttend",
        "a window is a radius",
        "radius = query.shape[2], key.shape[2], self.window - 1",
        "radius = query.shape[2], key.shape[2], self.window",
        "a window counts the token itself",
    ),
    Mutant(
        "WindowAttend",
        "it looks ahead",
        "radius=radius, causal=True, mask=mask",
        "radius=radius, mask=mask",
        "a window has two sides unless one is forbidden",
    ),
    Mutant(
        "WindowAttend",
        "padding is seen",
        "causal=True, mask=mask, scale",
        "causal=True, scale",
        "texts of one length never show it",
    ),
    Mutant(
        "WindowAttend",
        "the bias is lost",
        "and bias is None and",
        "and",
        "positions that add to the scores would do nothing",
    ),
    Mutant(
        "WindowAttend",
        "nobody hears of the weights",
        " and not self.listeners:",
        ":",
        "there are none to hear of",
    ),
    Mutant(
        "WindowAttend",
        "always the matrix",
        "if q_len == k_len and hides_keys",
        "if q_len == k_len + 1 and hides_keys",
        "the same numbers, from memory that grows with the square",
    ),
    Mutant(
        "WindowAttend",
        "recorded weights of the future",
        "        near = near & causal_mask(q_len, k_len, device=query.device)\n",
        "",
        "the other way does it by an argument",
    ),
    Mutant(
        "WindowAttend",
        "the caller's mask is lost",
        "mask = near if mask is None else near & mask",
        "mask = near",
        "padding is seen while somebody listens",
    ),
    Mutant(
        "WindowAttend",
        "the scale stays behind",
        "        super().__init__(scale)\n",
        "        super().__init__()\n",
        "no model here has one of its own",
    ),
]
