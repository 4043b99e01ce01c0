"""Faults in the examination."""

from mutants import Mutant

MODULE = "attnlib.doctor.examination"
TESTS = ["test_doctor.py"]
MUTANTS = [
    Mutant(
        "examine",
        "the patient may keep what was done to it",
        "held_still(module), warnings.catch_warnings(), torch.random.fork_rng(",
        "warnings.catch_warnings(), torch.random.fork_rng(",
        "a copy protects a module, and not one that a function holds",
    ),
    Mutant(
        "examine",
        "rolls the caller's dice",
        ", torch.random.fork_rng(devices=[]):\n",
        ":\n",
        "what is trained after the examination is not what it was",
    ),
    Mutant(
        "examine",
        "a design is blamed all the same",
        "        if finding.cause in promises.by_design:\n",
        "        if False:\n",
        "a promise that nobody reads",
    ),
    Mutant(
        "examine",
        "notes come first",
        "    order = sorted(kept.values(), key=lambda f: SEVERITIES.index(f.severity))\n",
        "    order = sorted(kept.values(), key=lambda f: -SEVERITIES.index(f.severity))\n",
        "the first line is what people read",
    ),
    Mutant(
        "look",
        "keeps what other probes found",
        "    findings = tuple(f for f in found if f.probe in wanted",
        "    findings = tuple(f for f in found if f.probe",
        "a check of one matter fails for another",
    ),
    Mutant(
        "look",
        "does not see that nothing ran",
        '    wanted = {"alarms.not_finite", "examination.raises", *names}\n',
        "    wanted = {*names}\n",
        "a module that raises passes every check",
    ),
    Mutant(
        "look",
        "runs nothing",
        "    probes = tuple(p for p in PROBES if p in PREPARE or name_of(p) in names)\n",
        "    probes = PREPARE\n",
        "names that never match",
    ),
    Mutant(
        "name_of",
        "the function alone",
        """    return f"{probe.__module__.split('.')[-1]}.{probe.__name__}"\n""",
        "    return probe.__name__\n",
        "two files have a probe called ignored",
    ),
    Mutant(
        "name_of",
        "the whole path",
        """    return f"{probe.__module__.split('.')[-1]}.{probe.__name__}"\n""",
        """    return f"{probe.__module__}.{probe.__name__}"\n""",
        "names that nobody wants to type",
    ),
    Mutant(
        "name_of",
        "the package",
        """    return f"{probe.__module__.split('.')[-1]}.{probe.__name__}"\n""",
        """    return f"{probe.__module__.split('.')[0]}.{probe.__name__}"\n""",
        "the other end of the path",
    ),
]
