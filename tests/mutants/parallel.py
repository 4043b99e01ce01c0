"""Faults in dealing layers out to processes."""

from mutants import Mutant

MODULE = "attnlib.efficient.parallel"
TESTS = ["test_parallel.py"]
MUTANTS = [
    Mutant(
        "parallelize_layers",
        "the output is not summed up",
        '        "to_output": RowwiseParallel(),\n',
        "",
        "each process has half of the heads, and no one adds them",
    ),
    Mutant(
        "parallelize_layers",
        "half a head for each",
        "            layer.n_heads //= mesh.size()  # from now on it sees its own heads alone\n",
        "",
        "as many heads as before, each of half the width",
    ),
    Mutant(
        "parallelize_layers",
        "half a shared head for each",
        "            layer.n_kv_heads //= mesh.size()\n",
        "",
        "right without grouped queries",
    ),
    Mutant(
        "parallelize_layers",
        "a layer is cut before another is refused",
        "    for layer, _ in layers:  # before anything is changed\n"
        "        _check_divides(layer, mesh.size())\n"
        "    for layer, plan in layers:\n",
        "    for layer, plan in layers:\n        _check_divides(layer, mesh.size())\n",
        "the error leaves half a model",
    ),
    Mutant(
        "parallelize_layers",
        "no feed-forward network",
        '    FeedForward: {"widen": ColwiseParallel(), "narrow": RowwiseParallel()},\n',
        "",
        "two thirds of the weights stay in every process",
    ),
]
