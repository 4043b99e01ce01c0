"""Faults in the cache of a window."""

from mutants import Mutant

MODULE = "attnlib.efficient.window_cache"
TESTS = ["test_window_cache.py", "test_gpt_window.py"]
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
    Mutant(
        "WindowKVCache",
        "it is full when the window is",
        "        return sys.maxsize\n",
        "        return self.window\n",
        "no text could be longer than the window",
    ),
    Mutant(
        "WindowKVCache",
        "one cache for all layers",
        "[WindowCache(window) for _ in range(n_layers)]",
        "[WindowCache(window)] * n_layers",
        "a list of one object many times",
    ),
    Mutant(
        "WindowKVCache",
        "layers that do not forget",
        "[WindowCache(window) for _ in range(n_layers)]",
        "[LayerCache(10 * window) for _ in range(n_layers)]",
        "the window is in the mask alone",
    ),
]
