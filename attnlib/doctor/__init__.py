"""Find what is wrong with anybody's attention, by how it behaves.

``examine(module, *inputs, causal=True, ...)`` runs every probe and returns a ``Report``. The
single checks, ``assert_causal`` and its like, fit into a test suite.
"""

from attnlib.doctor.checks import (
    assert_batch_independent,
    assert_cache_consistent,
    assert_causal,
    assert_healthy,
    assert_padding_invariant,
)
from attnlib.doctor.examination import examine
from attnlib.doctor.findings import CAUSES, Cause, Finding
from attnlib.doctor.promises import Promises
from attnlib.doctor.report import Report, UnhealthyError

__all__ = [
    "CAUSES",
    "Cause",
    "Finding",
    "Promises",
    "Report",
    "UnhealthyError",
    "assert_batch_independent",
    "assert_cache_consistent",
    "assert_causal",
    "assert_healthy",
    "assert_padding_invariant",
    "examine",
]
