"""Faults in window attention and its global tokens."""

from mutants import Mutant

MODULE = "attnlib.efficient.longformer"
TESTS = ["test_longformer.py"]
MUTANTS = [
    Mutant(
        "window_attention",
        "global keys are seen twice",
        "        seen = seen & ~is_global",
        "        seen = seen",
        "those within the window count double, as in a published block-sparse model",
    ),
    Mutant(
        "window_attention",
        "the window is a key too wide",
        "square.tril(-1), square.triu(1)",
        "square.tril(-1), square.triu(2)",
        "one key of the future, in causal use",
    ),
    Mutant(
        "window_attention",
        "causal global tokens are seen from before",
        "(place[:, None, :] <= query_place if causal else query_place >= 0)",
        "(query_place >= 0)",
        "a leak through the tokens that all see",
    ),
    Mutant(
        "window_attention",
        "causal global queries see the future",
        "(place[:, None] if causal else len(position))",
        "len(position)",
        "a leak through the tokens that see all",
    ),
    Mutant(
        "window_attention",
        "the edge is a key",
        "        if not any(self.some[here]):\n",
        "        if True:\n",
        "the zeros in front and behind are attended to",
    ),
    Mutant(
        "window_attention",
        "the mask is lost backward",
        "        weights = _weights(q, k, hidden, blocks, room, reach)\n",
        "        weights = _softmax_(_product(q, k.mT, room[: len(blocks)], reach.scale))\n",
        "the forward pass is right, so nothing shows but in training",
    ),
    Mutant(
        "window_attention",
        "the gradient of global keys is that of the last blocks",
        "            self.extra.add_((",
        "            self.extra.zero_().add_((",
        "each chunk overwrites the one before",
    ),
    Mutant(
        "window_attention",
        "gaps only in front",
        "    return padded.unflatten(dim, (-1, n)).movedim(dim + 1, 1)\n",
        "    return padded.unflatten(dim, (n, -1)).movedim(dim, 1)\n",
        "cut into pieces, where they should be dealt out",
    ),
    Mutant(
        "window_attention",
        "the scale is lost on global queries",
        "mask=allowed, scale=scale",
        "mask=allowed",
        "an argument that is not passed on",
    ),
    Mutant(
        "window_attention",
        "the gradient of the keys is not scaled",
        "grad_key.add_(grad_scores, q, blocks, reach.scale)",
        "grad_key.add_(grad_scores, q, blocks, 1.0)",
        "the queries were scaled before, and so were in the gradient; now they are not",
    ),
    Mutant(
        "window_attention",
        "each block of windows overwrites the one before",
        "            rows.baddbmm_(",
        "            rows.zero_().baddbmm_(",
        "a key lies in the windows of several blocks",
    ),
]
