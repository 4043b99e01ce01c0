"""The benchmark runs, measures something, and compares only what is equal."""

import json
import math
import re
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch

BENCH = Path(__file__).parent / "bench"
RUN = BENCH / "run.py"


@pytest.fixture(scope="module")
def quick():
    command = [sys.executable, RUN, "--quick"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.fixture
def measure(monkeypatch):
    monkeypatch.syspath_prepend(BENCH)
    import measure

    return measure


def test_every_topic_prints_tables_of_finite_positive_ratios(quick):
    topics = re.split(r"^## ", quick, flags=re.M)[1:]
    assert [topic.split()[0] for topic in topics] == [
        "fused_attention",
        "multi_head",
        "import_time",
        "gpt_training",
        "decoding",
        "encoder_decoder",
        "waiting",
        "loop_over_heads",
        "long_sequences",
        "checkpointing",
        "long_sequences_peers",
    ]
    for topic in topics:
        ratios = re.findall(r"(\S+) \((\S+) to (\S+)\)", topic)
        fewer = {"long_sequences": 0, "checkpointing": 1, "loop_over_heads": 2}
        assert len(ratios) >= fewer.get(topic.split()[0], 3)
        for median, low, high in ratios:
            assert 0 < float(median) < math.inf
            assert float(low) - 0.01 <= float(median) <= float(high) + 0.01  # rounded


def test_every_row_is_as_long_as_the_header(quick):
    lines = [line for line in quick.splitlines() if line.startswith("|")]
    header, n_rows = "", 0
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        header = line if following.startswith("| ---") else header
        assert line.count("|") == header.count("|")
        n_rows += line != header and not line.startswith("| ---")
    assert n_rows >= 20


def test_the_quick_run_leaves_the_results_alone(quick):
    results = BENCH / "results.md"
    assert "1 x 2" in quick
    assert not results.exists() or "| 1 x 2 |" not in results.read_text()


PICTURES = {  # topic: the picture, its contenders, the first of which the others are divided by
    "waiting": ("wall_time", ["attention", "RNN, a loop in Python", "nn.RNN, a loop in C++"]),
    "loop_over_heads": ("loop_over_heads", ["all heads at once", "a loop over the heads"]),
}


@pytest.mark.parametrize("topic", PICTURES)
def test_a_picture_of_the_book_shows_the_ratios_of_the_results(topic):
    """Its description holds what it draws; the results are from the same run."""
    from PIL import Image

    name, (base, *others) = PICTURES[topic]
    picture = Image.open(BENCH.parents[1] / "book" / "_static" / f"{name}.png")
    drawn = json.loads(picture.text["Description"])
    times = drawn["milliseconds"]
    assert times.keys() == {base, *others}
    section = re.search(
        rf"^## {topic}\n.*?(?=^## |\Z)", (BENCH / "results.md").read_text(), re.M | re.S
    )
    rows = [
        [cell.split(" (")[0] for cell in line.strip("| ").split(" | ")]
        for line in section[0].splitlines()
        if re.match(r"\| \d", line)
    ]
    assert [int(row[0]) for row in rows] == drawn["lengths"]
    n = len(others)
    for i, row in enumerate(rows):  # length, …, milliseconds of the base, ratios, rounds
        assert times[base][i] == pytest.approx(float(row[-n - 2]), rel=0.01)
        for other, ratio in zip(others, row[-n - 1 : -1], strict=True):
            # A median of ratios is not the ratio of medians, but near to it.
            assert times[other][i] / times[base][i] == pytest.approx(float(ratio), rel=0.25)
    assert max(a / b for a, b in zip(times[others[0]], times[base], strict=True)) > 2


def test_the_chapter_on_long_sequences_draws_the_numbers_of_the_results():
    found = json.loads((BENCH.parents[1] / "attnlib/efficient/measured.json").read_text())
    section = re.search(
        r"^## long_sequences\n.*?(?=^## |\Z)", (BENCH / "results.md").read_text(), re.M | re.S
    )
    rows = re.findall(r"^\| (\w+) \| ([a-z+, M]+[sB]) \| (.*) \| [\d.]+ \|$", section[0], re.M)
    assert len(rows) == 3 * len(found["measured"]) == 18
    for name, what, numbers in rows:
        assert [float(n) for n in numbers.split("|") if n.strip()] == found["measured"][name][what]
    header = re.search(r"^\| method \| what \| (.*) \| exponent \|$", section[0], re.M)
    assert [int(n) for n in header[1].split("|")] == found["lengths"]


def test_an_unknown_topic_is_refused_by_name():
    command = [sys.executable, RUN, "fused_atention"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 2
    assert "unknown topic fused_atention; choose from fused_attention, " in run.stderr


def test_contenders_that_differ_are_not_compared(measure):
    x = torch.arange(6.0)
    measure.check_equal({"a": lambda: [x], "b": lambda: [x + 1e-7]}, tolerance=1e-5)
    with pytest.raises(AssertionError, match="not close"):
        measure.check_equal({"a": lambda: [x], "b": lambda: [x + 1e-3]}, tolerance=1e-5)
    with pytest.raises(AssertionError):
        measure.check_equal({"a": lambda: [x], "b": lambda: [x, x]}, tolerance=1e-5)


def test_who_takes_longer_gets_a_ratio_above_one(measure):
    def work(seconds):
        measure.time.sleep(seconds)

    contenders = {"slow": partial(work, 0.03), "fast": partial(work, 0.003)}
    rounds = measure.time_rounds(contenders, measure.Effort(rounds=3, seconds=0.1))
    assert rounds.ratio("slow", "fast").median > 2
    assert rounds.ratio("fast", "slow").median < 0.5
    assert rounds.ratio("fast", "fast").median == 1


def test_peak_memory_sees_what_was_freed_again(measure):
    def needs(n_floats):  # in a fresh process: an old one may have that much left to use again
        return measure.peak_in_fresh_process(measure.peak_growth, partial(torch.ones, n_floats))

    assert needs(10_000_000) > 35  # 38 MB
    assert needs(10) < 2


def test_a_promise_says_whether_it_was_kept(measure):
    table = measure.Table("title", ["a"])
    table.promise("this", 1.02, 1.03)
    table.promise("that", 1.04, 1.03)
    assert table.promises == [
        "this: 1.020, at most 1.03 promised: kept",
        "that: 1.040, at most 1.03 promised: **missed**",
    ]
