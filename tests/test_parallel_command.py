"""The command that the book gives for tensor parallelism, as a reader runs it."""

import os
import re
import subprocess
import sys
from pathlib import Path


def test_the_command_shows_equal_outcomes_and_the_bytes_of_each_process():
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc-per-node", "2", "-m", "attnlib.efficient.parallel"]
    root = str(Path(__file__).parents[1])
    run = subprocess.run(
        command,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": root},
        capture_output=True,
        text=True,
        check=True,
    )
    apart = re.match(r"2 processes; output and gradients differ from one by (\S+)\n", run.stdout)
    assert float(apart[1]) < 1e-10
    rows = re.findall(r"parameters +([\d,]+) bytes, kept for backward +([\d,]+)", run.stdout)
    alone, *each = [[int(n.replace(",", "")) for n in row] for row in rows]
    assert len(each) == 2
    for parameters, kept in each:
        assert alone[0] / 2 < parameters < 0.51 * alone[0]
        assert kept < 0.7 * alone[1]
