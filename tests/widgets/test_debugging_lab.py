"""The debugging lab in Python: what it stores, says, draws and refuses."""

import pytest
import torch
from torch.testing import assert_close

from attnlib.doctor import Finding, Report
from attnlib.widgets.debugging import FAULTS, DebuggingLab, Trial

GIVEN = {"tokens": "ab|", "prompt": "ab|", "floor": 0.9, "steps": 10}


def run(faults, seed):
    """A made-up model: another loss, map, text and verdict for each combination."""
    place = sum(3**i for i, names in enumerate(FAULTS.values()) for n in names if n in faults)
    dice = torch.Generator().manual_seed(100 * seed + place)
    losses = 3 * torch.rand(4, generator=dice)
    weights = torch.rand(3, 3, generator=dice).softmax(-1)
    causes = {"no mask": "future-leak", "no scale": "scale-missing", "no offset": "cache-positions"}
    findings = [Finding(c, "fault", "seen") for fault, c in causes.items() if fault in faults]
    findings.append(Finding("observed", "note", "not to be shown"))
    return Trial(losses, weights, f"{seed}{len(faults)}", 0.25, Report("GPT", tuple(findings)))


@pytest.fixture
def lab():
    return DebuggingLab(run, **GIVEN)


def test_each_combination_is_run_once_and_stored():
    asked = []

    def listening(faults, seed):
        asked.append((faults, seed))
        return run(faults, seed)

    lab = DebuggingLab(listening, **GIVEN)
    assert len(asked) == len(set(asked)) == len(lab.outcomes) == 36
    assert {seed for _, seed in asked} == {0}
    assert ((), 0) in asked
    assert (("only itself", "no positions", "no scale", "no offset"), 0) in asked


def test_the_switches_name_the_faults_and_what_is_stored_for_them(lab):
    assert lab.faults == ()
    lab.mask, lab.writing = "no mask", "no offset"
    assert lab.faults == ("no mask", "no offset")
    ours, now = run(lab.faults, 0), lab.result()
    assert_close(torch.tensor(now["losses"]), ours.losses, atol=6e-4, rtol=0)
    assert_close(torch.tensor(now["weights"]), ours.weights, atol=6e-3, rtol=0)
    assert now["sample"] == "02"
    assert [severity for severity, _, _ in now["findings"]] == ["fault", "fault"]
    assert "offset" in now["findings"][1][1]
    assert now["findings"][1][2] == "positions = past length + arange(new)"


def test_retraining_changes_what_is_shown_and_nothing_else(lab):
    lab.scale = "no scale"
    before = dict(lab.outcomes)
    lab.retrain(seed=5)
    assert lab.result()["sample"] == "51"
    changed = [name for name in before if before[name] != lab.outcomes[name]]
    assert changed == ["no scale"]


def test_it_says_and_draws_what_it_shows(lab):
    lab.mask = "no mask"
    assert repr(lab) == (
        f"Debugging lab, no mask: the loss ends at {lab.result()['losses'][-1]:.2f} nats, 0.90 is "
        "possible. It writes ab| → 01, 25% right. The doctor: fault, the output at a position "
        "depends on later tokens."
    )
    loss, weights = lab.still().axes
    assert loss.lines[0].get_xdata().tolist() == [10, 20, 30, 40]
    assert loss.lines[0].get_ydata().tolist() == lab.result()["losses"]
    assert weights.images[0].get_array().tolist() == lab.result()["weights"]
    lab.mask = "causal"
    assert repr(lab).endswith("The doctor: healthy.")


def test_what_does_not_fit_is_refused(lab):
    with pytest.raises(ValueError, match="mask must be one of 'causal', 'no mask'"):
        lab.mask = "none"
    with pytest.raises(AttributeError, match="floor of this DebuggingLab is fixed"):
        lab.floor = 0.0
    with pytest.raises(ValueError, match=r"map of the healthy model must be 2 × 2.*got \(3, 3\)"):
        DebuggingLab(run, **GIVEN | {"tokens": "ab"})
    for losses in (torch.ones(1), torch.tensor([1.0, torch.nan]), torch.ones(2, 2)):
        bad = Trial(losses, torch.eye(3), "", 0.0, Report("GPT", ()))
        with pytest.raises(ValueError, match="loss of the healthy model must be a line"):
            DebuggingLab(lambda faults, seed, bad=bad: bad, **GIVEN)
