"""The doctor on further patients: kinds of faults and designs that the zoo's files do not hold."""

import pytest
from zoo.adapter import examine_case
from zoo.further.base import seeded
from zoo.further.rows import FAULTS, LOOKALIKES


def examined(row, make):
    return examine_case(lambda: seeded(make), lambda: (row.inputs(), {}), row.intent)


@pytest.mark.parametrize("row", FAULTS, ids=lambda row: row.name)
def test_the_fault_is_named_and_its_twin_is_healthy(row):
    ill, healthy = examined(row, row.ill), examined(row, row.healthy)
    assert ill.causes & row.causes, ill
    assert healthy.ok, healthy


@pytest.mark.parametrize("row", LOOKALIKES, ids=lambda row: row.name)
def test_a_design_that_looks_odd_is_not_blamed(row):
    report = examined(row, row.healthy)
    assert report.ok, report


def test_there_are_enough_of_them_and_no_two_have_one_name():
    assert len(FAULTS) >= 20
    assert len(LOOKALIKES) >= 10
    names = [row.name for row in FAULTS + LOOKALIKES]
    assert len(set(names)) == len(names)
