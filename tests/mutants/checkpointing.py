"""Faults in checkpointing."""

from mutants import Mutant

MODULE = "attnlib.efficient.checkpointing"
TESTS = ["test_checkpointing.py"]
MUTANTS = [
    Mutant(
        "Checkpointed",
        "nothing is checkpointed",
        "        return checkpoint(self.layer, *args, use_reentrant=False, **kwargs)\n",
        "        return self.layer(*args, **kwargs)\n",
        "the right numbers, and all the memory",
    ),
    Mutant(
        "Checkpointed",
        "dropout draws anew",
        "use_reentrant=False, **kwargs",
        "use_reentrant=False, preserve_rng_state=False, **kwargs",
        "the gradient is that of another network",
    ),
    Mutant(
        "Checkpointed",
        "names change",
        '        object.__setattr__(self, "layer", layer)',
        "        self.layer = layer",
        "no stored state fits any more",
    ),
    Mutant(
        "Checkpointed",
        "a cache grows twice",
        ' or kwargs.get("cache") is not None',
        "",
        "the layer runs again in the backward pass",
    ),
    Mutant(
        "checkpoint_layers",
        "the first list alone",
        "    for stack in stacks:\n",
        "    for stack in stacks[:0]:\n",
        "no layer is wrapped",
    ),
    Mutant(
        "checkpoint_layers",
        "twice is twice",
        "            if not isinstance(layer, Checkpointed):\n",
        "            if True:\n",
        "each call makes the backward pass slower",
    ),
    Mutant(
        "checkpoint_layers",
        "every second layer",
        "            if not isinstance(layer, Checkpointed):\n",
        "            if i % 2 == 0 and not isinstance(layer, Checkpointed):\n",
        "half of the memory stays",
    ),
]
