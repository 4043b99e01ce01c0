"""Faults in the cache of a window."""

from mutants import Mutant

MODULE = "attnlib.efficient.window_cache"
TESTS = ["test_window_cache.py"]
MUTANTS = [
    Mutant(
        "WindowCache",
        "one token too few",
        "        start = max(0, key.shape[2] - self.max_len)\n",
        "        start = max(0, key.shape[2] - self.max_len + 2)\n",
        "the far end of the window is lost",
    ),
    Mutant(
        "WindowCache",
        "positions count from the window on",
        "        self.length += new\n",
        "        self.length = self._keys.shape[2]\n",
        "rotations stop turning when the window is full",
    ),
    Mutant(
        "WindowCache",
        "the window is a key too wide",
        "radius=self.max_len - 1)",
        "radius=self.max_len)",
        "what is seen depends on how the text was cut into pieces",
    ),
    Mutant(
        "WindowCache",
        "a prompt is kept",
        "        self._keys = key[:, :, start:].detach().clone()",
        "        self._keys = key[:, :, start:].detach()",
        "a view holds on to all of it",
    ),
    Mutant(
        "WindowCache",
        "values stay in their rows",
        "        self._values = self._values.index_select(0, rows)\n",
        "        self._values = self._values[: len(rows)]\n",
        "keys of one text, values of another",
    ),
]
