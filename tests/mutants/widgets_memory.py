"""Faults in the memory lab."""

from mutants import Mutant

MODULE = "attnlib.widgets.memory"
TESTS = ["widgets/test_memory_lab.py"]
NEEDS = ["anywidget", "matplotlib.backends.backend_agg"]
MUTANTS = [
    Mutant(
        "Bill",
        "the next token fits too",
        "return lengths[fitting - 1] if fitting else 0",
        "return lengths[fitting] if fitting else 0",
        "off by one",
    ),
    Mutant(
        "Bill",
        "what does not fit at all is the shortest text",
        "return lengths[fitting - 1] if fitting else 0",
        "return lengths[max(fitting - 1, 0)]",
        "a search that ends where it began",
    ),
    Mutant(
        "Bill",
        "a cache with an end that has none",
        "    if fitting == len(lengths):\n        return math.inf\n",
        "",
        "the last length that was tried",
    ),
    Mutant(
        "Bill",
        "a window that hangs over both ends",
        "2 * reach + 1 - reach * (reach + 1) / length",
        "2 * reach + 1",
        "as if the text went on",
    ),
    Mutant(
        "Bill",
        "a block that is seen twice",
        "3 + (i > 1) + (i < n - 2) + 3",
        "3 + 2 + 3",
        "the ends are neighbours of their neighbours",
    ),
    Mutant(
        "MemoryLab",
        "decimal gigabytes",
        "GIB = 2**30",
        "GIB = 10**9",
        "7 percent less memory than there is",
    ),
    Mutant(
        "MemoryLab",
        "all heads in the cache as set",
        "n_heads=self.kv_heads if as_set else self.n_heads",
        "n_heads=self.n_heads",
        "a switch that does nothing",
    ),
    Mutant(
        "MemoryLab",
        "a window in the whole cache",
        "window=(self.window or None) if as_set else None",
        "window=self.window or None",
        "the whole cache is not whole",
    ),
    Mutant(
        "MemoryLab",
        "the rank of a short text",
        "stack.linformer(min(RANK, stack.length))",
        "stack.linformer(RANK)",
        "more summaries than tokens are refused",
    ),
    Mutant(
        "MemoryLab",
        "heads that do not divide stay",
        "        if self.n_heads % self.kv_heads:\n",
        "        if self.kv_heads > self.n_heads:\n",
        "not more is not the same as divides",
    ),
    Mutant(
        "MemoryLab",
        "never checkpointed",
        "            checkpointed=self.checkpointed,\n",
        "",
        "a switch that does nothing",
    ),
    Mutant(
        "MemoryLab",
        "always float32",
        "            batch=self.batch,\n            dtype=getattr(torch, self.dtype),\n",
        "            batch=self.batch,\n",
        "a switch that does nothing",
    ),
    Mutant(
        "MemoryLab",
        "halves down",
        "math.floor(number * 10**digits + 0.5)",
        "math.floor(number * 10**digits)",
        "cut off is not rounded",
    ),
]
