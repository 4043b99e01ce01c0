"""What every test may ask for, and what all of them start from.

attnlib is not imported here: the run with shape checking (``test_shapes.py``) has to hook its
import first.
"""

import os

import pytest
import torch
from browser import browser

__all__ = ["browser"]

torch.set_num_threads(1)  # tests run side by side, a core each
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # so do the kernels of the notebooks: two threads would wait


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(0)
