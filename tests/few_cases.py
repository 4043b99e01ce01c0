"""A pytest plugin: the first cases of each test, where more of them would show nothing new."""

from collections import Counter

MOST = 4


def pytest_collection_modifyitems(config, items):
    """Keep at most so many cases of each test function."""
    seen, kept, left_out = Counter(), [], []
    for item in items:
        function = item.nodeid.split("[")[0]
        seen[function] += 1
        (kept if seen[function] <= MOST else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
