"""Measure what attnlib promises: ``python tests/bench/run.py [topic ...] [--quick]``.

Prints a table for each topic, and writes it into ``tests/bench/results.md``, where the other
topics stay as they are. ``--quick`` tries everything on tiny sizes and writes nothing. Needs Linux.
"""

import argparse
import datetime
import importlib.metadata
import os
import platform
import re
from pathlib import Path

import decoding
import encoder_decoder
import fused_attention
import gpt_training
import import_time
import long_sequences
import loop_over_heads
import multi_head
import torch
import waiting
from measure import Effort

TOPICS = {
    "fused_attention": fused_attention.run,
    "multi_head": multi_head.run,
    "import_time": import_time.run,
    "gpt_training": gpt_training.run,
    "decoding": decoding.run,
    "encoder_decoder": encoder_decoder.run,
    "waiting": waiting.run,
    "loop_over_heads": loop_over_heads.run,
    "long_sequences": long_sequences.run,
    "checkpointing": long_sequences.run_checkpointing,
    "long_sequences_peers": long_sequences.run_peers,
}
RESULTS = Path(__file__).with_name("results.md")
HOW = """\
# What attnlib promises, measured

Written by `python tests/bench/run.py`. A number below 1 means that attnlib is faster. The
contenders get equal weights and inputs, and are compared only once their outputs (and gradients)
are equal. They run in turn, in an order that is reversed every round. Each entry is the median of
the ratios within a round; in brackets lies the middle half of them. Rounds in which other programs
were busy are left out.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("topics", nargs="*", metavar="topic", help=", ".join(TOPICS))
    parser.add_argument("--quick", action="store_true", help="tiny sizes, nothing written")
    parser.add_argument(
        "--patience", type=float, default=20, metavar="SECONDS",
        help="for each comparison, while it waits for rounds in which no one else is busy",
    )  # fmt: skip
    options = parser.parse_args()
    if unknown := set(options.topics) - set(TOPICS):
        parser.error(f"unknown topic {', '.join(sorted(unknown))}; choose from {', '.join(TOPICS)}")
    torch.set_num_threads(1 if options.quick else 2)
    effort = Effort(rounds=3, seconds=0.2) if options.quick else Effort(20, options.patience)
    for topic in options.topics or TOPICS:
        tables = TOPICS[topic](effort, options.quick)
        if options.quick:
            for table in tables:
                table.promises.clear()  # they speak of the real sizes
        section = "\n\n".join([f"## {topic}", _circumstances(), *map(str, tables)]) + "\n"
        print(section, flush=True)
        if not options.quick:
            _write(topic, section)


def _circumstances() -> str:
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}" for name in ("torch", "transformers")
    )
    return (
        f"{datetime.date.today()}: {cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores "
        f"of which {torch.get_num_threads()} are used, Python {platform.python_version()}, "
        f"{versions}. A minute before the end, {os.getloadavg()[0]:.1f} programs wanted a core."
    )


def _write(topic: str, section: str) -> None:
    """Put the section in the place of the one that an earlier run has written."""
    sections = {}
    if RESULTS.exists():
        for old in re.split(r"^(?=## )", RESULTS.read_text(), flags=re.M)[1:]:
            sections[old.split()[1]] = old.rstrip() + "\n"
    sections[topic] = section
    RESULTS.write_text("\n".join([HOW, *(sections[name] for name in TOPICS if name in sections)]))


if __name__ == "__main__":
    main()
