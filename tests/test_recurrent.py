"""RNN, LSTM and GRU equal torch's own, padding cannot matter, additive attention is Bahdanau's."""

import copy
from functools import partial

import pytest
import torch
from parity import assert_same, gradients, leaves
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.testing import assert_close

from attnlib.masks import causal_mask, padding_mask
from attnlib.record import record_attention
from attnlib.recurrent import (
    GRU,
    LSTM,
    RNN,
    AdditiveAttention,
    Bidirectional,
    GRUCell,
    LSTMCell,
    Recurrent,
    RNNCell,
    recurrent_state_from_torch,
)

TWINS = [(RNN, nn.RNN), (LSTM, nn.LSTM), (GRU, nn.GRU)]
OURS = [RNN, LSTM, GRU]
LENGTHS = torch.tensor([7, 2, 5])


def twins(ours, theirs, *, d_input=2, d_hidden=5, **options):
    """One network of each kind with the same random weights, in float64."""
    reference = theirs(d_input, d_hidden, batch_first=True, **options).double()
    network = ours(d_input, d_hidden).double()
    network.load_state_dict(recurrent_state_from_torch(reference.state_dict()))
    return network, reference


def assert_same_parameter_gradients(ours, theirs):
    expected = recurrent_state_from_torch(gradients(theirs))
    found = gradients(ours)
    assert found.keys() == expected.keys()
    for name, gradient in found.items():
        assert_close(gradient, expected[name], msg=name)


def torch_state(state):
    """Their final state, as ours: a tuple, without the axis of layers."""
    parts = state if isinstance(state, tuple) else (state,)
    return tuple(torch.cat(tuple(part), dim=-1) for part in parts)


# ----------------------------------------------------------------------------------- by hand


def set_all(cell, value):
    for parameter in cell.parameters():
        nn.init.constant_(parameter, value)


def test_an_rnn_step_by_hand():
    cell = RNNCell(1, 1)
    set_all(cell, 0.5)  # tanh(0.5 · 2 + 0.5 + 0.5 · 4 + 0.5)
    (hidden,) = cell(torch.tensor([[2.0]]), (torch.tensor([[4.0]]),))
    assert_close(hidden, torch.tensor([[4.0]]).tanh())


def test_a_gru_with_its_keep_gate_open_keeps_and_with_it_shut_forgets():
    cell = GRUCell(1, 1)
    set_all(cell, 0.0)
    old = torch.tensor([[0.3]])
    with torch.no_grad():
        cell.from_input.bias[1] = 50.0
    assert_close(cell(torch.zeros(1, 1), (old,))[0], old)
    with torch.no_grad():
        cell.from_input.bias[1] = -50.0
    assert_close(cell(torch.zeros(1, 1), (old,))[0], torch.zeros(1, 1))


def test_a_grus_reset_gate_hides_the_old_state_from_the_new_one():
    cell = GRUCell(1, 1)
    set_all(cell, 0.0)
    with torch.no_grad():
        cell.from_input.bias[:2] = torch.tensor([-50.0, -50.0])  # reset shut, keep shut
        cell.from_state.weight[2] = 3.0
    assert_close(cell(torch.zeros(1, 1), (torch.ones(1, 1),))[0], torch.zeros(1, 1))
    with torch.no_grad():
        cell.from_input.bias[0] = 50.0
    assert_close(cell(torch.zeros(1, 1), (torch.ones(1, 1),))[0], torch.full((1, 1), 3.0).tanh())


def test_an_lstm_hands_its_memory_on_through_an_open_forget_gate():
    cell = LSTMCell(1, 1)
    set_all(cell, 0.0)
    state = (torch.zeros(1, 1), torch.tensor([[0.7]]))
    with torch.no_grad():  # write, forget, new, show
        cell.from_input.bias.copy_(torch.tensor([-50.0, 50.0, 1.0, 50.0]))
    hidden, memory = cell(torch.zeros(1, 1), state)
    assert_close(memory, torch.tensor([[0.7]]))
    assert_close(hidden, torch.tensor([[0.7]]).tanh())
    with torch.no_grad():
        cell.from_input.bias.copy_(torch.tensor([50.0, -50.0, 1.0, -50.0]))
    hidden, memory = cell(torch.zeros(1, 1), state)
    assert_close(memory, torch.tensor([[1.0]]).tanh())
    assert_close(hidden, torch.zeros(1, 1))


# ------------------------------------------------------------------------------------ parity


@pytest.mark.parametrize(("ours", "theirs"), TWINS)
@pytest.mark.parametrize(
    ("batch", "length", "d_input", "d_hidden"), [(3, 7, 2, 5), (1, 1, 5, 3), (2, 11, 1, 1)]
)
def test_equal_to_torch(ours, theirs, batch, length, d_input, d_hidden):
    network, reference = twins(ours, theirs, d_input=d_input, d_hidden=d_hidden)
    x = torch.randn(batch, length, d_input, dtype=torch.float64)
    (our_x,), (their_x,) = leaves(x), leaves(x)
    outputs, state = network(our_x)
    their_outputs, their_state = reference(their_x)
    assert_same(outputs, their_outputs, [our_x], [their_x])
    assert_close(state, torch_state(their_state))
    probe = torch.randn_like(their_outputs)
    (outputs * probe).sum().backward()
    (their_outputs * probe).sum().backward()
    assert_same_parameter_gradients(network, reference)


@pytest.mark.parametrize(("ours", "theirs"), TWINS)
def test_equal_to_torch_with_lengths(ours, theirs):
    network, reference = twins(ours, theirs)
    x = torch.randn(3, 7, 2, dtype=torch.float64)
    outputs, state = network(x, lengths=LENGTHS)
    packed = pack_padded_sequence(x, LENGTHS, batch_first=True, enforce_sorted=False)
    their_outputs, their_state = reference(packed)
    their_outputs, _ = pad_packed_sequence(their_outputs, batch_first=True)
    their_state = torch_state(their_state)
    assert_close(outputs, their_outputs)
    assert_close(state, their_state)
    (outputs.square().sum() + sum(part.sum() for part in state)).backward()
    (their_outputs.square().sum() + sum(part.sum() for part in their_state)).backward()
    assert_same_parameter_gradients(network, reference)


@pytest.mark.parametrize(("ours", "theirs"), TWINS)
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_equal_to_torch_in_both_directions(ours, theirs, lengths):
    network, reference = twins(partial(Bidirectional, ours), theirs, bidirectional=True)
    x = torch.randn(3, 7, 2, dtype=torch.float64)
    outputs, state = network(x, lengths=lengths)
    end = LENGTHS * 0 + 7 if lengths is None else lengths
    packed = pack_padded_sequence(x, end, batch_first=True, enforce_sorted=False)
    their_outputs, their_state = reference(packed)
    their_outputs, _ = pad_packed_sequence(their_outputs, batch_first=True)
    assert_close(outputs, their_outputs)
    assert_close(state, torch_state(their_state))
    outputs.square().sum().backward()
    their_outputs.square().sum().backward()
    assert_same_parameter_gradients(network, reference)


@pytest.mark.parametrize(("ours", "theirs"), TWINS)
def test_it_goes_on_from_a_state_as_torch_does(ours, theirs):
    network, reference = twins(ours, theirs)
    x = torch.randn(3, 7, 2, dtype=torch.float64)
    state = tuple(torch.randn(3, 5, dtype=torch.float64) for _ in range(network.cell.n_states))
    theirs_state = tuple(part[None] for part in state)
    expected, _ = reference(x, theirs_state if len(state) == 2 else theirs_state[0])
    assert_close(network(x, state)[0], expected)


@pytest.mark.parametrize("make", OURS)
def test_it_starts_with_weights_of_the_size_that_torch_draws(make):
    for parameter in make(3, 16).parameters():
        assert 0.2 < parameter.abs().max() <= 0.25  # 1 / √16


@pytest.mark.parametrize("network", OURS)
def test_reading_in_two_pieces_is_reading_at_once(network):
    network = network(3, 5).double()
    x = torch.randn(2, 7, 3, dtype=torch.float64)
    outputs, state = network(x)
    for cut in range(1, 7):
        first, between = network(x[:, :cut])
        second, last = network(x[:, cut:], between)
        assert_close(torch.cat([first, second], dim=1), outputs)
        assert_close(last, state)


# ----------------------------------------------------------------------------------- padding


@pytest.mark.parametrize("make", [*OURS, partial(Bidirectional, GRU), partial(Bidirectional, LSTM)])
@pytest.mark.parametrize("padding", [0.0, 1e30, torch.nan, torch.inf])
def test_padding_cannot_matter(make, padding):
    network = make(3, 5)
    x = torch.randn(3, 7, 3)
    inside = padding_mask(LENGTHS, 7)[:, 0, 0, :, None]
    outputs, state = network(torch.where(inside, x, padding), lengths=LENGTHS)
    assert not outputs.masked_select(~inside).any()
    outputs.square().sum().backward()
    assert all(g.isfinite().all() for g in gradients(network).values())
    for row, length in enumerate(LENGTHS):
        alone, alone_state = network(x[row : row + 1, :length])
        assert_close(outputs[row : row + 1, :length], alone)
        for part, alone_part in zip(state, alone_state, strict=True):
            assert_close(part[row : row + 1], alone_part)


@pytest.mark.parametrize("make", [*OURS, partial(Bidirectional, GRU)])
def test_the_last_real_step_does_matter(make):
    network = make(3, 5)
    x = torch.randn(3, 7, 3)
    changed = x.clone()
    changed[torch.arange(3), LENGTHS - 1] += 1.0
    (_, state), (_, other) = network(x, lengths=LENGTHS), network(changed, lengths=LENGTHS)
    assert ((state[0] - other[0]).abs().amax(-1) > 1e-3).all()


def test_a_sequence_of_length_0_keeps_the_state_it_started_with():
    state = (torch.randn(1, 5),)
    outputs, last = GRU(3, 5)(torch.randn(1, 7, 3), state, lengths=torch.tensor([0]))
    assert_close(last, state)
    assert not outputs.any()


@pytest.mark.parametrize("make", OURS)
def test_the_future_cannot_matter(make):
    network = make(3, 5)
    x = torch.randn(2, 7, 3)
    changed = x.clone()
    changed[:, 4:] += 1.0
    before, after = network(x)[0], network(changed)[0]
    assert torch.equal(before[:, :4], after[:, :4])
    assert ((before[:, 4:] - after[:, 4:]).abs().amax(-1) > 1e-4).all()


def test_in_both_directions_the_future_does_matter():
    network = Bidirectional(GRU, 3, 5)
    x = torch.randn(2, 7, 3)
    changed = x.clone()
    changed[:, 6] += 1.0
    assert ((network(x)[0][:, 0] - network(changed)[0][:, 0]).abs() > 0).any()


@pytest.mark.parametrize("make", OURS)
def test_sequences_of_a_batch_do_not_meet(make):
    network = make(3, 5)
    x = torch.randn(3, 7, 3)
    x[1] = torch.nan
    outputs, _ = network(x)
    assert outputs[[0, 2]].isfinite().all()
    assert outputs[1].isnan().all()


def test_any_cell_can_be_run():
    class Sum(nn.Module):
        d_input, d_hidden, n_states = 2, 2, 1

        def __init__(self):
            super().__init__()
            self.factor = nn.Parameter(torch.ones(()))

        def forward(self, x, state):
            return (state[0] + self.factor * x,)

    x = torch.randn(3, 7, 2)
    assert_close(Recurrent(Sum())(x)[0], x.cumsum(1))


@pytest.mark.parametrize("make", [*OURS, partial(Bidirectional, GRU)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(make, dtype):
    network = make(3, 5)
    x = torch.randn(2, 7, 3)
    expected, _ = network(x)
    outputs, _ = copy.deepcopy(network).to(dtype)(x.to(dtype), lengths=torch.tensor([7, 7]))
    assert outputs.dtype == dtype
    assert_close(outputs.float(), expected, atol=0.02, rtol=0)  # 7 steps; worst 5e-3


@pytest.mark.parametrize("make", OURS)
def test_autocast_stays_near(make):
    network = make(3, 5)
    x = torch.randn(2, 7, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        outputs, _ = network(x, lengths=torch.tensor([7, 7]))
    assert_close(outputs.float(), network(x)[0], atol=0.02, rtol=0)


# ------------------------------------------------------------------------- additive attention


def by_loops(layer, query, memory, allowed):
    """Bahdanau's equations for one sequence, a number at a time."""
    w, u, v = layer.to_query.weight, layer.to_key.weight, layer.to_score.weight[0]
    rows = []
    for q, row in zip(query, allowed, strict=True):
        scores = [v @ torch.tanh(w @ q + u @ k) for k in memory]
        powers = [s.exp() if ok else s * 0 for s, ok in zip(scores, row, strict=True)]
        rows.append(sum(p * k for p, k in zip(powers, memory, strict=True)) / sum(powers))
    return torch.stack(rows)


@pytest.mark.parametrize(
    ("mask", "q_len"),
    [(None, 5), (padding_mask(torch.tensor([7, 4]), 7), 5), (causal_mask(3, 7), 3)],
    ids=["none", "padding", "causal"],
)
def test_additive_attention_is_the_equation(mask, q_len):
    layer = AdditiveAttention(2, 3, 11).double()
    query = torch.randn(2, q_len, 2, dtype=torch.float64)
    memory = torch.randn(2, 7, 3, dtype=torch.float64)
    allowed = torch.ones(2, q_len, 7) > 0 if mask is None else mask[:, 0].expand(2, q_len, 7)
    ours, theirs = leaves(query, memory), leaves(query, memory)
    expected = [by_loops(layer, *each) for each in zip(*theirs, allowed, strict=True)]
    parameters = list(layer.parameters())
    assert_same(
        layer(*ours, mask=mask), torch.stack(expected), ours + parameters, theirs + parameters
    )


def test_keys_may_be_at_hand():
    layer = AdditiveAttention(2, 3, 11)
    query, memory = torch.randn(2, 5, 2), torch.randn(2, 7, 3)
    keys = layer.to_key(memory)
    assert_close(layer(query, memory, keys=keys), layer(query, memory))
    assert not torch.isclose(layer(query, memory, keys=2 * keys), layer(query, memory)).any()


def test_a_hidden_token_cannot_change_the_output_and_a_seen_one_does():
    layer = AdditiveAttention(2, 3, 11)
    query, memory, mask = torch.randn(2, 1, 2), torch.randn(2, 7, 3), padding_mask(LENGTHS[:2], 7)
    output = layer(query, memory, mask=mask)
    memory[1, 2:] += 1.0
    assert torch.equal(layer(query, memory, mask=mask), output)
    memory[1, 1] += 1.0
    assert not torch.isclose(layer(query, memory, mask=mask)[1], output[1]).any()


def test_a_query_that_sees_nothing_gets_0_forward_and_backward():
    layer = AdditiveAttention(2, 3, 11)
    memory = torch.randn(2, 7, 3, requires_grad=True)
    output = layer(torch.randn(2, 1, 2), memory, mask=padding_mask(torch.tensor([7, 0]), 7))
    output.sum().backward()
    assert not output[1].any()
    assert not memory.grad[1].any()
    assert all(g.isfinite().all() for g in gradients(layer).values())


def test_a_copy_of_additive_attention_is_heard_by_nobody():
    layer, heard = AdditiveAttention(3, 4, 5), []
    layer.listeners.append(heard.append)
    copy.deepcopy(layer)(torch.randn(1, 1, 3), torch.randn(1, 2, 4))
    assert heard == copy.deepcopy(layer).listeners == []
    layer(torch.randn(1, 1, 3), torch.randn(1, 2, 4))
    assert len(heard) == 1


def test_a_recorder_hears_additive_attention_and_changes_nothing():
    model = nn.Sequential()
    model.attention = AdditiveAttention(2, 3, 11)
    query, memory, mask = torch.randn(2, 5, 2), torch.randn(2, 7, 3), padding_mask(LENGTHS[:2], 7)
    unheard = model.attention(query, memory, mask=mask)
    with record_attention(model) as maps:
        output = model.attention(query, memory, mask=mask)
    assert torch.equal(output, unheard)
    [(name, weights)] = maps
    assert name == "attention"
    assert weights.shape == (2, 1, 5, 7)
    assert_close(weights.sum(-1), torch.ones(2, 1, 5))
    assert not weights[1, :, :, 2:].any()
    assert_close(weights[:, 0] @ memory, output)
    model.attention(query, memory)
    assert len(maps) == 1  # nobody listens any more


# ---------------------------------------------------------------------------------- refusals


@pytest.mark.messages
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: GRU(3, 0), ValueError, "d_hidden must be 1 or more, got 0"),
        (lambda: LSTM(3.0, 5), TypeError, "d_input must be a whole number, got float 3.0"),
        (lambda: AdditiveAttention(2, 3, -1), ValueError, "d_attention must be 1 or more, got -1"),
        (lambda: GRU(3, 5)(torch.zeros(7, 3)), ValueError, r"must be \(batch, length, 3\), got"),
        (lambda: GRU(3, 5)(torch.zeros(2, 7, 4)), ValueError, r"shape \(2, 7, 4\)"),
        (lambda: GRU(3, 5)(torch.zeros(2, 0, 3)), ValueError, "a sequence of no steps"),
        (lambda: GRU(3, 5)([[[0.0]]]), TypeError, "x must be a float tensor, got list"),
        (
            lambda: GRU(3, 5)(torch.zeros(2, 7, 3).double()),
            TypeError,
            r"x is torch.float64, but the layer is torch.float32; convert with .to\(\)",
        ),
        (
            lambda: GRU(3, 5)(torch.zeros(2, 7, 3, device="meta")),
            ValueError,
            "x is on meta, but the layer is on cpu",
        ),
        (
            lambda: GRU(3, 5)(torch.zeros(2, 7, 3), lengths=LENGTHS),
            ValueError,
            "there are 2 sequences, but 3 lengths",
        ),
        (
            lambda: GRU(3, 5)(torch.zeros(3, 6, 3), lengths=LENGTHS),
            ValueError,
            r"lengths must lie in 0..k_len=6, got \[7, 2, 5\]",
        ),
        (
            lambda: GRU(3, 5)(torch.zeros(1, 6, 3), lengths=[6]),
            TypeError,
            "lengths must be a tensor of whole numbers",
        ),
        (
            lambda: LSTM(3, 5)(torch.zeros(2, 7, 3), (torch.zeros(2, 5),)),
            ValueError,
            r"state must be a tuple of tensors of shapes \[\(2, 5\), \(2, 5\)\], got \[\(2, 5\)\]",
        ),
        (
            lambda: AdditiveAttention(2, 3, 5)(torch.zeros(2, 1, 2), torch.zeros(3, 7, 3)),
            ValueError,
            "query and memory must agree in batch, got 2 and 3",
        ),
        (
            lambda: AdditiveAttention(2, 3, 5)(
                torch.zeros(2, 1, 2), torch.zeros(2, 7, 3), keys=torch.zeros(2, 7, 3)
            ),
            ValueError,
            r"keys must be to_key\(memory\), of shape \(2, 7, 5\), got \(2, 7, 3\)",
        ),
        (
            lambda: AdditiveAttention(2, 3, 5)(torch.zeros(2, 2), torch.zeros(2, 7, 3)),
            ValueError,
            r"query must be \(batch, length, 2\)",
        ),
        (
            lambda: AdditiveAttention(2, 3, 5)(torch.zeros(2, 1, 2), torch.zeros(2, 7, 2)),
            ValueError,
            r"memory must be \(batch, length, 3\)",
        ),
        (
            lambda: AdditiveAttention(2, 3, 5)(
                torch.zeros(2, 1, 2), torch.zeros(2, 7, 3), mask=torch.ones(2, 1, 1, 7)
            ),
            TypeError,
            "mask must be torch.bool",
        ),
        (
            lambda: AdditiveAttention(2, 3, 5)(
                torch.zeros(2, 1, 2), torch.zeros(2, 7, 3), mask=torch.ones(2, 7) > 0
            ),
            ValueError,
            "mask must be 4-D",
        ),
        (
            lambda: AdditiveAttention(2, 3, 5)(
                torch.zeros(2, 1, 2), torch.zeros(2, 7, 3), mask=torch.ones(2, 4, 1, 7) > 0
            ),
            ValueError,
            r"one head, so mask must be \(batch, 1, q_len, k_len\), got shape \(2, 4, 1, 7\)",
        ),
        (
            lambda: AdditiveAttention(2, 3, 5)(
                torch.zeros(2, 1, 2), torch.zeros(2, 7, 3), mask=torch.ones(2, 1, 1, 6) > 0
            ),
            ValueError,
            "does not broadcast",
        ),
        (
            lambda: recurrent_state_from_torch(nn.GRU(3, 5, num_layers=2).state_dict()),
            ValueError,
            "weight_ih_l1 is no parameter of a single layer",
        ),
        (
            lambda: recurrent_state_from_torch(nn.LSTM(3, 5, proj_size=2).state_dict()),
            ValueError,
            "weight_hr_l0 .* there is no proj_size",
        ),
    ],
)
def test_refusals_say_what_came_and_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call()
