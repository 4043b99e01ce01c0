"""What every test may ask for, and what all of them start from.

attnlib is not imported here: the run with shape checking (``test_shapes.py``) has to hook its
import first.
"""

import pytest
import torch
from browser import browser

__all__ = ["browser"]

torch.set_num_threads(1)  # tests run side by side, a core each


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
