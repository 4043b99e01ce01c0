"""Faults in tiled attention and in the merging of averages."""

from mutants import Mutant

MODULE = "attnlib.efficient.tiled"
TESTS = ["test_tiled.py"]
MUTANTS = [
    Mutant(
        "tiled_attention",
        "the mask is lost backward",
        "            weights.masked_fill_(~allowed, 0.0)\n",
        "            pass\n",
        "the forward pass is right, so nothing shows but in training",
    ),
    Mutant(
        "tiled_attention",
        "delta without its sign",
        "    minus_delta = -(grad * output)",
        "    minus_delta = (grad * output)",
        "a gradient that points nearly right",
    ),
    Mutant(
        "tiled_attention",
        "the scale is lost in the gradient of the query",
        "grad_query[rows].addmm_(grad_scores, k, alpha=scale)",
        "grad_query[rows].addmm_(grad_scores, k)",
        "the scale is in the scores, but not in their gradient",
    ),
    Mutant(
        "tiled_attention",
        "an average of averages",
        "        output[rows], log_sum[rows] = merge_averages(\n"
        "            output[rows], log_sum[rows], *_average(scores, v)\n"
        "        )\n",
        "        mean, log_sum[rows] = _average(scores, v)\n"
        "        output[rows] += mean / math.ceil(len(key) / tile[1])\n",
        "each tile counts the same, whatever its scores",
    ),
    Mutant(
        "tiled_attention",
        "a tile with a hole is skipped",
        "                if not allowed.any():\n",
        "                if not allowed.all():\n",
        "all for any",
    ),
    Mutant(
        "tiled_attention",
        "a tile with a hole counts as open",
        "                allowed = None if allowed.all() else allowed\n",
        "                allowed = None if allowed.any() else allowed\n",
        "any for all",
    ),
    Mutant(
        "tiled_attention",
        "the bias is the first head's",
        "            part = _own(grad_bias, (rows, columns))\n",
        "            part = _own(grad_bias, (rows, slice(0, tile[1])))\n",
        "the gradient of every tile lands in the first",
    ),
    Mutant(
        "tiled_attention",
        "half types stay half",
        "    return torch.promote_types(dtype, torch.float32)\n",
        "    return dtype\n",
        "scores of 16 are off by a sixteenth",
    ),
    Mutant(
        "tiled_attention",
        "NaN where nothing is seen",
        "        weights.masked_fill_(sees_nothing, 0.0)\n",
        "",
        "the softmax of nothing",
    ),
    Mutant(
        "merge_averages",
        "plain exponentials",
        "    share_b = torch.sigmoid(log_sum_b - log_sum_a)\n",
        "    share_b = log_sum_b.exp() / (log_sum_a.exp() + log_sum_b.exp())\n",
        "right on small scores, overflows on great ones",
    ),
    Mutant(
        "merge_averages",
        "halves",
        "    share_b = torch.sigmoid(log_sum_b - log_sum_a)\n",
        "    share_b = torch.full_like(log_sum_b, 0.5)\n",
        "the average of two averages",
    ),
    Mutant(
        "merge_averages",
        "NaN where both see nothing",
        "    share_b = share_b.masked_fill(log_sum_b == -torch.inf, 0.0)"
        "  # also where both see nothing\n",
        "",
        "infinity less infinity",
    ),
    Mutant(
        "merge_averages",
        "the greater sum, not both",
        "    return output, torch.logaddexp(log_sum_a, log_sum_b)\n",
        "    return output, torch.maximum(log_sum_a, log_sum_b)\n",
        "the third part then weighs too much",
    ),
]
