"""The distance lab as Python sees it: its numbers, its switches and what it refuses."""

import io
import json

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attnlib.functional import attention
from attnlib.recurrent import GRU, LSTM, RNN, GRUCell, LSTMCell, RNNCell
from attnlib.widgets.distance import DistanceLab


def tokens(length=7, width=3):
    return torch.randn(length, width, generator=torch.Generator().manual_seed(0)).double()


@pytest.fixture
def cells():
    torch.manual_seed(0)
    return [kind(3, 5).double() for kind in (RNNCell, LSTMCell, GRUCell)]


@pytest.fixture
def lab(cells):
    return DistanceLab(tokens(), *cells)


def felt(read, x):
    """Norm of the derivative along (1, 1, 1) / √3 of the first token, by a small difference."""
    step = torch.zeros_like(x)
    step[0] = 1e-6 / 3**0.5
    return ((read(x + step) - read(x - step)) / 2e-6).norm(dim=-1)


def test_as_it_comes_the_signals_are_those_of_the_networks_and_of_attention(lab, cells):
    x = tokens()
    layers = [RNN(3, 5), LSTM(3, 5), GRU(3, 5)]
    for layer, cell in zip(layers, cells, strict=True):
        layer.double().cell.load_state_dict(cell.state_dict())
    expected = [felt(lambda x, layer=layer: layer(x[None])[0][0], x) for layer in layers]

    def looks_back(x):
        outputs = [attention(x[t : t + 1], x[: t + 1], x[: t + 1])[0] for t in range(7)]
        return torch.cat(outputs)

    assert_close(
        lab.result().signals, torch.stack([*expected, felt(looks_back, x)]), atol=1e-8, rtol=1e-6
    )


def test_a_share_is_of_what_was_felt_at_the_first_token(lab):
    now = lab.result()
    assert now.shares[:, 0].tolist() == [1.0] * 4
    assert_close(now.shares * now.signals[:, :1], now.signals)


def test_a_whisper_halves_and_attention_shares():
    """Cells of one number whose signal is known on paper."""
    rnn, lstm, gru = RNNCell(1, 1), LSTMCell(1, 1), GRUCell(1, 1)
    with torch.no_grad():
        for cell in (rnn, lstm, gru):
            for p in cell.parameters():
                p.zero_()
            cell.from_input.weight[-1] = 1.0  # the RNN's only map, the GRU's new value
        lstm.from_input.weight[:, 0] = torch.tensor([0.0, 0.0, 1.0, 0.0])
        rnn.from_state.weight.fill_(0.5)
    now = DistanceLab(torch.zeros(4, 1), rnn, lstm, gru).result()
    halves = torch.tensor([1, 1 / 2, 1 / 4, 1 / 8]).double()
    assert_close(now.signals[0], halves)
    assert_close(now.signals[1], halves / 4)  # half is written, half of it shown
    assert_close(now.signals[2], halves / 2)
    assert_close(now.signals[3], 1 / torch.arange(1, 5).double())


def test_a_signal_that_grows_is_a_share_of_the_first_one_to_the_last_digit():
    _, lstm, gru = (kind(1, 1) for kind in (RNNCell, LSTMCell, GRUCell))
    rnn = RNNCell(1, 1).double()
    with torch.no_grad():
        for p in rnn.parameters():
            p.zero_()
        rnn.from_input.weight.fill_(1 / 2)
        rnn.from_state.weight.fill_(7 / 3)
    shares = DistanceLab(torch.zeros(4, 1), rnn, lstm, gru).result().shares
    grows = torch.tensor([1, 7 / 3, 49 / 9, 343 / 27], dtype=torch.float64)
    assert_close(shares[0], grows, rtol=1e-12, atol=0)


def test_without_gates_a_gru_is_an_rnn_and_an_lstm_only_adds(cells):
    _, lstm, gru = cells
    rnn = RNNCell(3, 5).double()
    with torch.no_grad():  # the GRU's new value
        rnn.from_input.weight.copy_(gru.from_input.weight[10:])
        rnn.from_input.bias.copy_(gru.from_input.bias[10:])
        rnn.from_state.weight.copy_(gru.from_state.weight[10:])
        rnn.from_state.bias.copy_(gru.from_state.bias[10:])
    signals = DistanceLab(tokens(), rnn, lstm, gru, gates=False, gate_bias=3.0).result().signals
    assert_close(signals[2], signals[0])

    def adds(x):
        hidden, memory, shown = torch.zeros(5).double(), torch.zeros(5).double(), []
        for token in x:
            memory = memory + torch.tanh((lstm.from_input(token) + lstm.from_state(hidden))[10:15])
            hidden = torch.tanh(memory)
            shown.append(hidden)
        return torch.stack(shown)

    with torch.no_grad():
        assert_close(signals[1], felt(adds, tokens()), atol=1e-8, rtol=1e-6)


def test_the_gate_bias_goes_to_the_gate_that_keeps(cells):
    rnn, lstm, gru = cells
    biased = DistanceLab(tokens(), rnn, lstm, gru, gate_bias=2.5).result().signals
    with torch.no_grad():
        for cell in (lstm, gru):
            cell.from_input.bias[5:10] += 2.5
    assert_close(biased, DistanceLab(tokens(), rnn, lstm, gru).result().signals)


def test_open_gates_keep_the_signal_and_an_rnn_has_none(cells):
    shut, wide = (
        DistanceLab(tokens(40), *cells, gate_bias=b).result().shares[:, -1] for b in (0.0, 8.0)
    )
    assert (wide[1:3] > 0.1).all()
    assert (shut[1:3] < 1e-3).all()
    assert shut[0] == wide[0] < 1e-3
    assert shut[3] == wide[3] > 1e-3


def test_the_gain_multiplies_all_matrices_of_the_old_state(cells):
    louder = DistanceLab(tokens(), *cells, gain=1.5).result().signals
    with torch.no_grad():
        for cell in cells:
            cell.from_state.weight *= 1.5
    assert_close(louder, DistanceLab(tokens(), *cells).result().signals)


def test_python_reads_and_sets_every_switch(lab):
    settings = {"reader": "gru", "gates": False, "gate_bias": 2.0, "gain": 0.5, "distance": 6}
    before = lab.result().signals
    for name, value in settings.items():
        setattr(lab, name, value)
    assert {name: getattr(lab, name) for name in settings} == settings
    assert not torch.allclose(lab.result().signals, before)


def test_the_state_is_json_and_keeps_every_digit(cells):
    lab = DistanceLab(torch.full((2, 3), 1 / 3, dtype=torch.float64), *cells)
    state = {name: value for name, value in lab.get_state().items() if name != "layout"}
    kept = json.loads(json.dumps(state))
    assert kept["x"][1][2] == 1 / 3
    assert kept["weights"]["gru"]["U"] == cells[2].from_state.weight.tolist()


def test_float32_cells_are_taken_as_they_are_and_left_alone():
    cells = [kind(3, 5) for kind in (RNNCell, LSTMCell, GRUCell)]
    before = cells[1].from_input.bias.tolist()
    lab = DistanceLab(tokens().float(), *cells, gates=False)
    lab.result()
    assert cells[1].from_input.bias.tolist() == before
    assert cells[1].from_input.weight.requires_grad
    assert lab.weights["lstm"]["b"] == before


def test_it_says_what_it_shows(lab):
    lab.reader, lab.distance, lab.gate_bias = "rnn", 5, 1.5
    share = lab.result().shares[0, 5].item()
    assert repr(lab) == (
        "Distance lab, 7 tokens, gate bias +1.5, recurrent weights × 1: after 5 steps "
        f"{share:.0e} of the first token's signal is left in RNN."
    )
    lab.gates, lab.reader = False, "attention"
    assert "no gates, recurrent weights × 1" in repr(lab)
    assert repr(lab).endswith("left in attention.")


def test_the_still_shows_the_four_lines(lab):
    figure = lab.still()
    figure.savefig(io.BytesIO())
    drawn = {line.get_label(): line.get_ydata().tolist() for line in figure.axes[0].get_lines()}
    names = ["RNN", "LSTM", "GRU", "attention"]
    assert drawn == dict(zip(names, lab.result().shares.tolist(), strict=True))
    assert figure.axes[0].get_yscale() == "log"


X, CELLS = torch.zeros(4, 3), (RNNCell(3, 5), LSTMCell(3, 5), GRUCell(3, 5))


@pytest.mark.messages
@pytest.mark.parametrize(
    ("x", "changed", "error", "message"),
    [
        (X.long(), {}, TypeError, "x must be a float tensor, got torch.int64"),
        (X.tolist(), {}, TypeError, "x must be a float tensor, got list"),
        (X[:1], {}, ValueError, r"2 to 64 tokens .*got shape \(1, 3\)"),
        (torch.zeros(65, 3), {}, ValueError, r"got shape \(65, 3\)"),
        (torch.zeros(4, 17), {}, ValueError, r"1 to 16 columns.*got shape \(4, 17\)"),
        (X[0], {}, ValueError, r"got shape \(3,\)"),
        (X / 0, {}, ValueError, "x must be finite, got nan"),
        (X, {0: GRUCell(3, 5)}, TypeError, "rnn must be a RNNCell, got GRUCell"),
        (X, {2: nn.GRUCell(3, 5)}, TypeError, "gru must be a GRUCell, got GRUCell"),
        (X, {1: LSTMCell(4, 5)}, ValueError, "lstm must take tokens of width 3 .*d_input=4"),
        (X, {1: LSTMCell(3, 17)}, ValueError, "at most 16 numbers; got .*d_hidden=17"),
    ],
)
def test_what_does_not_fit_is_refused(x, changed, error, message):
    cells = [changed.get(i, cell) for i, cell in enumerate(CELLS)]
    with pytest.raises(error, match=message):
        DistanceLab(x, *cells)


@pytest.mark.messages
def test_weights_that_are_not_finite_are_refused():
    cell = GRUCell(3, 5)
    with torch.no_grad():
        cell.from_state.bias[2] = torch.inf
    with pytest.raises(ValueError, match="gru has weights that are not finite"):
        DistanceLab(X, *CELLS[:2], cell)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("reader", "GRU", ValueError, "reader must be one of 'rnn', 'lstm', 'gru', 'attention'"),
        ("gates", 1, ValueError, "gates must be one of True, False; got 1"),
        ("gate_bias", 8.5, ValueError, "gate_bias must be a number from -2.0 to 8.0; got 8.5"),
        ("gain", 0.4, ValueError, "gain must be a number from 0.5 to 2.0; got 0.4"),
        ("distance", 4, ValueError, "distance must be a whole number from 0 to 3; got 4"),
        ("x", [[1.0]], AttributeError, "x of this DistanceLab is fixed; make a new DistanceLab"),
        ("weights", {}, AttributeError, "weights of this DistanceLab is fixed"),
    ],
)
def test_a_switch_is_refused(name, value, error, message):
    lab = DistanceLab(X, *CELLS)
    with pytest.raises(error, match=message):
        setattr(lab, name, value)
