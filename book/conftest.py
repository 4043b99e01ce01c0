"""One thread for each notebook's kernel, unless the caller says otherwise.

The stored outputs were written with one thread. And kernels of two threads that share two cores
with other tests wait for each other most of the time: ten times slower, seen with two workers.
"""

import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
