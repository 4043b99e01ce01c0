"""One thread for each notebook's kernel, unless the caller says otherwise.

The stored outputs were written with one thread. And where two cores are shared
with other tests, the two threads of a kernel mostly wait for each other.
"""

import os

for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
