"""How good is the doctor? ``python tests/zoo/run.py [--seeds 3]`` prints a table of all
patients."""

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

from zoo.adapter import examine_case  # noqa: E402
from zoo.cases import files, load  # noqa: E402
from zoo.diagnoses import DIAGNOSES  # noqa: E402


def main() -> None:
    """Examine all, with each seed, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    torch.set_num_threads(1)
    slowest = 0.0
    for seed in range(parser.parse_args().seeds):
        right, noticed, alarms, healthy = 0, 0, [], 0
        for path in files("faults"):
            case = load(path, seed)
            start = time.perf_counter()
            causes = examine_case(case.build, case.example_inputs, case.META["intent"], seed).causes
            slowest = max(slowest, time.perf_counter() - start)
            noticed += bool(causes)
            right += bool(causes & DIAGNOSES[path.stem])
            if not causes & DIAGNOSES[path.stem]:
                print(f"  {path.stem}: {sorted(causes)}, expected {sorted(DIAGNOSES[path.stem])}")
        for path in files("faults") + files("lookalikes"):
            case = load(path, seed)
            build = case.build_fixed
            causes = examine_case(build, case.example_inputs, case.META["intent"], seed).causes
            healthy += 1
            if causes:
                alarms.append(path.stem)
                print(f"  false alarm: {path.stem}: {sorted(causes)}")
        print(
            f"seed {seed}: {noticed} of {len(files('faults'))} faults noticed, {right} with the "
            f"right cause; {len(alarms)} false alarms in {healthy} healthy ones"
        )
    print(f"the slowest examination took {slowest:.1f} s")


if __name__ == "__main__":
    main()
