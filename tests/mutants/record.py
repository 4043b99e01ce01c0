"""Faults in the recorder."""

from mutants import Mutant

MODULE = "attnlib.record"
TESTS = ["test_record.py"]
MUTANTS = [
    Mutant(
        "AttentionMap",
        "weights before the name",
        "    layer: str\n",
        "    weights_of: object\n    layer: str\n",
        "fields in another order: unpacking gives the wrong one",
    ),
    Mutant(
        "AttentionMap",
        "the name and the weights are swapped",
        "    maps.append(AttentionMap(layer, weights))\n",
        "    maps.append(AttentionMap(weights, layer))\n",
        "a tuple without names",
    ),
    Mutant(
        "AttentionMap",
        "the weights of one head",
        "    maps.append(AttentionMap(layer, weights))\n",
        "    maps.append(AttentionMap(layer, weights[:, :1]))\n",
        "maps averaged or cut, as nn.MultiheadAttention averages them unless told",
    ),
    Mutant(
        "AttentionMap",
        "weights without a gradient",
        "    maps.append(AttentionMap(layer, weights))\n",
        "    maps.append(AttentionMap(layer, weights.detach()))\n",
        "a loss on the weights would teach nothing",
    ),
    Mutant(
        "record_attention",
        "listens for ever",
        "            place.listeners.remove(listener)\n",
        "            pass\n",
        "a hook that nobody removes",
    ),
    Mutant(
        "record_attention",
        "a failure leaves it listening",
        "    finally:\n",
        "    except ZeroDivisionError:\n        pass\n    else:\n",
        "no finally",
    ),
    Mutant(
        "record_attention",
        "a failure at the start leaves it listening",
        "            listening.append((place, listener))\n        yield maps\n",
        "        listening = [(p, p.listeners[-1]) for p in places.values()]\n        yield maps\n",
        "what is to be undone is noted too late",
    ),
    Mutant(
        "record_attention",
        "stops whoever began last",
        "            place.listeners.remove(listener)\n",
        "            place.listeners.pop()\n",
        "recorders that end in another order than they began",
    ),
    Mutant(
        "record_attention",
        "ends the recording of others",
        "            place.listeners.remove(listener)\n",
        "            place.listeners.clear()\n",
        "all hooks are removed, not one's own",
    ),
    Mutant(
        "record_attention",
        "all maps have the last layer's name",
        "        listener = partial(_append, maps, layer)\n",
        "        listener = lambda weights: _append(maps, layer, weights)\n",
        "a lambda in a loop sees the last value",
    ),
    Mutant(
        "record_attention",
        "maps in the wrong order",
        "    maps.append(AttentionMap(layer, weights))\n",
        "    maps.insert(0, AttentionMap(layer, weights))\n",
        "the last layer first",
    ),
    Mutant(
        "record_attention",
        "a model without attention passes",
        "    if not places:\n",
        "    if False:\n",
        "an empty list, and a reader who wonders why",
    ),
    Mutant(
        "record_attention",
        "names lose a part of their own",
        'layer = re.sub(r"(^|\\.)attend$", "", name)',
        'layer = name.removesuffix("attend").removesuffix(".")',
        "a suffix taken off in letters, where names have parts",
    ),
]
