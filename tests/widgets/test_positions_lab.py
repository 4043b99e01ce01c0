"""The positions lab as Python sees it: its numbers, its switches and what it refuses."""

import math

import pytest
import torch
from torch.testing import assert_close

from attnlib.widgets.positions import PositionsLab


@pytest.fixture
def lab():
    torch.manual_seed(0)
    return PositionsLab(torch.randn(6), torch.randn(7, 6), length=5)


def test_without_positions_all_scores_are_the_tokens_with_itself(lab):
    lab.encoding = "none"
    token = torch.tensor(lab.token).double()
    assert_close(lab.result().scores, (token @ token / math.sqrt(6)).expand(5, 5))
    assert lab.result().spread == 0


def test_the_sinusoid_is_added_to_query_and_key(lab):
    lab.offset, lab.base = 3, 100
    speeds = [100 ** (-pair / 6) for pair in (0, 2, 4)]
    rows = [[f(s * t) for s in speeds for f in (math.sin, math.cos)] for t in range(3, 8)]
    x = torch.tensor(lab.token).double() + torch.tensor(rows).double()
    assert_close(lab.result().scores, x @ x.T / math.sqrt(6), atol=1e-6, rtol=0)
    assert lab.result().spread > 0.01  # the sum of token and position is not relative


def test_a_learned_table_ends(lab):
    lab.encoding, lab.offset = "learned", 4
    x = torch.tensor(lab.token).double() + torch.tensor(lab.table).double()[4:]
    scores = lab.result().scores
    assert_close(scores[:3, :3], x @ x.T / math.sqrt(6))
    assert scores[3:].isnan().all()
    assert scores[:, 3:].isnan().all()
    assert lab.result().spread > 0
    lab.offset = 50
    assert lab.result().scores.isnan().all()
    assert lab.result().spread == 0


def test_rope_turns_a_quarter():
    lab = PositionsLab(torch.tensor([1.0, 0.0]), torch.zeros(1, 2), encoding="rope", length=4)
    expected = torch.tensor([[math.cos(i - j) for j in range(4)] for i in range(4)]).double()
    assert_close(lab.result().scores, expected / math.sqrt(2), atol=1e-7, rtol=0)
    before = lab.result().scores
    lab.offset = 90
    assert_close(lab.result().scores, before)
    assert lab.result().spread < 1e-9


def test_the_base_slows_ropes_second_pair(lab):
    lab.encoding = "rope"
    before = lab.result().scores
    lab.base = 10
    assert not torch.allclose(lab.result().scores, before)


def test_alibi_takes_off_a_half_for_each_token(lab):
    lab.encoding = "none"
    plain = lab.result().scores
    lab.encoding = "alibi"
    far = torch.tensor([[abs(i - j) for j in range(5)] for i in range(5)])
    assert_close(lab.result().scores, plain - far / 2)


def test_spread_is_of_one_distance():
    """Two positions, one direction of length 1 in the table's first row: known on paper."""
    table = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    lab = PositionsLab(torch.zeros(2), table, encoding="learned", length=2)
    assert_close(lab.result().spread, 1 / math.sqrt(2))


def test_it_says_what_it_shows(lab):
    lab.offset = 2
    assert repr(lab).startswith("Positions lab, sinusoidal, base 10000, positions 2 to 6: scores")
    lab.encoding = "alibi"
    assert repr(lab) == (
        "Positions lab, ALiBi, positions 2 to 6: scores of the same distance differ by up to "
        "0.00 nats."
    )


def test_the_still_has_a_cell_for_each_pair(lab):
    lab.offset = 2
    ax = lab.still().axes[0]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == list("23456")
    assert_close(torch.tensor(ax.images[0].get_array().data), lab.result().scores)


@pytest.mark.parametrize(
    ("name", "value", "kind", "words"),
    [
        ("encoding", "shaw", ValueError, "encoding must be one of 'none', 'sinusoidal'"),
        ("base", 50, ValueError, "base must be one of 10, 100"),
        ("length", 13, ValueError, "length must be a whole number from 2 to 12"),
        ("offset", 0.5, TypeError, "offset must be a whole number"),
        ("token", [1.0, 2.0], AttributeError, "token of this PositionsLab is fixed"),
        ("table", [[1.0, 2.0]], AttributeError, "table of this PositionsLab is fixed"),
    ],
)
def test_a_wrong_switch_is_refused(lab, name, value, kind, words):
    with pytest.raises(kind, match=words):
        setattr(lab, name, value)


@pytest.mark.parametrize(
    ("token", "table", "kind", "words"),
    [
        ([1.0, 2.0], torch.zeros(1, 2), TypeError, "token must be a float tensor, got list"),
        (torch.zeros(2), torch.zeros(1, 2).int(), TypeError, "table must be a float tensor"),
        (torch.zeros(1, 2), torch.zeros(1, 2), ValueError, "token must be 1-D"),
        (torch.zeros(2), torch.zeros(2), ValueError, "table must be 2-D"),
        (torch.zeros(3), torch.zeros(1, 3), ValueError, "even width of 2 to 16"),
        (torch.zeros(18), torch.zeros(1, 18), ValueError, "even width of 2 to 16"),
        (torch.zeros(2), torch.zeros(1, 4), ValueError, "1 to 64 rows of width 2"),
        (torch.zeros(2), torch.zeros(65, 2), ValueError, "1 to 64 rows of width 2"),
        (torch.tensor([0.0, torch.nan]), torch.zeros(1, 2), ValueError, "token must be finite"),
    ],
)
def test_a_wrong_input_is_refused(token, table, kind, words):
    with pytest.raises(kind, match=words):
        PositionsLab(token, table)
