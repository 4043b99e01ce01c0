"""The doctor on the zoo: every fault is named, no healthy twin and no look-alike is blamed.

With ``ZOO_SEEDS=3`` in the environment, weights and inputs are drawn with three seeds.
"""

import os
import re

import pytest
from zoo.adapter import examine_case
from zoo.cases import files, load
from zoo.diagnoses import DIAGNOSES

SEEDS = range(int(os.environ.get("ZOO_SEEDS", "1")))
FAULTS, LOOKALIKES = files("faults"), files("lookalikes")


def stem(path):
    return getattr(path, "stem", None)


def examined(case, build, seed):
    return examine_case(build, case.example_inputs, case.META["intent"], seed)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("path", FAULTS, ids=stem)
def test_the_fault_is_named(path, seed):
    case = load(path, seed)
    report = examined(case, case.build, seed)
    assert report.causes & DIAGNOSES[path.stem], report
    assert not report.ok


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("path", FAULTS + LOOKALIKES, ids=stem)
def test_nothing_is_blamed_on_the_healthy(path, seed):
    case = load(path, seed)
    report = examined(case, case.build_fixed, seed)
    assert report.ok, report


@pytest.mark.parametrize("path", FAULTS + LOOKALIKES, ids=stem)
def test_the_patient_is_what_its_file_says(path):
    case = load(path)
    case.demo()
    assert {"source", "expected", "intent", "right"} <= set(case.META)
    assert all(re.match("https?://", source) for source in case.META["source"])


def test_each_fault_has_a_diagnosis():
    assert {path.stem for path in FAULTS} == set(DIAGNOSES)
    assert len(FAULTS) >= 44
    assert len(LOOKALIKES) >= 20


def test_the_adapter_knows_no_case_by_name():
    from pathlib import Path

    text = (Path(__file__).parent / "zoo" / "adapter.py").read_text()
    words = re.findall(r"[a-z_]{12,}", text)
    assert not {path.stem for path in FAULTS + LOOKALIKES} & set(words)
