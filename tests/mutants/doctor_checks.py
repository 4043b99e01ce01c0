"""Faults in the single checks."""

from mutants import Mutant

MODULE = "attnlib.doctor.checks"
TESTS = ["test_doctor.py"]
CAUSAL = '    _assert_none_from(("seeing.future",), module, inputs, promises | {"causal": True})\n'
PADDING = '    probes = ("padding.replaced_padding", "padding.no_effect", "padding.cropped")\n'
BATCH = '    probes = ("batch.other_samples", "batch.index", "alarms.other_sizes")\n'
CACHE = '    _assert_none_from(("caching.cache",), module, inputs, promises | {"cache": cache})\n'
NAN = "    report.raise_for_faults()\n    if not set"
MUTANTS = [
    Mutant(
        "assert_healthy",
        "looks and does not judge",
        "    report.raise_for_faults()\n    return report\n",
        "    return report\n",
        "an assert that never fails",
    ),
    Mutant(
        "assert_healthy",
        "returns nothing",
        "    report.raise_for_faults()\n    return report\n",
        "    report.raise_for_faults()\n",
        "the notes are lost",
    ),
    Mutant(
        "assert_healthy",
        "forgets the promises",
        "    report = examine(module, *inputs, **promises)\n",
        "    report = examine(module, *inputs)\n",
        "a call that passes half of what it got",
    ),
    Mutant("assert_causal", "does nothing", CAUSAL, "    pass\n", "an assert that never fails"),
    Mutant(
        "assert_causal",
        "promises nothing",
        CAUSAL,
        CAUSAL.replace("True", "None"),
        "the probe has nothing to judge by, and is silent",
    ),
    Mutant(
        "assert_causal",
        "asks another probe",
        CAUSAL,
        CAUSAL.replace("seeing.future", "seeing.mixing"),
        "the wrong neighbour in a list of names",
    ),
    Mutant(
        "assert_padding_invariant",
        "passes without a mask",
        "    if not has_padding(",
        "    if False and not has_padding(",
        "nothing to look at is taken for nothing to find",
    ),
    Mutant(
        "assert_padding_invariant",
        "crops only",
        PADDING,
        '    probes = ("padding.empty_samples",)\n',
        "a probe that writes notes only",
    ),
    Mutant(
        "assert_padding_invariant",
        "forgets the promises",
        PADDING + "    _assert_none_from(probes, module, inputs, promises)\n",
        PADDING + "    _assert_none_from(probes, module, inputs, {})\n",
        "the mask is guessed in place of what was said",
    ),
    Mutant(
        "assert_batch_independent",
        "asks about sizes only",
        BATCH,
        '    probes = ("alarms.other_sizes",)\n',
        "one name of three",
    ),
    Mutant(
        "assert_batch_independent",
        "does nothing",
        BATCH,
        "    probes = ()\n",
        "an empty list of probes finds nothing",
    ),
    Mutant(
        "assert_batch_independent",
        "asks about order",
        BATCH,
        '    probes = ("order.order",)\n',
        "the wrong neighbour in a list of names",
    ),
    Mutant("assert_cache_consistent", "does nothing", CACHE, "    pass\n", "it never fails"),
    Mutant(
        "assert_cache_consistent",
        "forgets the cache",
        CACHE,
        CACHE.replace('promises | {"cache": cache}', "promises"),
        "without a cache there is nothing to compare",
    ),
    Mutant(
        "assert_cache_consistent",
        "asks another probe",
        CACHE,
        CACHE.replace("caching.cache", "modes.left_over"),
        "state left over is another matter",
    ),
]
