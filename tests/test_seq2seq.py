"""The recurrent encoder-decoder: its equations, what it may see, and how it writes."""

import copy
from functools import partial

import pytest
import torch
from parity import gradients
from torch.testing import assert_close

from attnlib.models.seq2seq import (
    AttentionContext,
    Decoder,
    Encoded,
    FixedContext,
    Seq2Seq,
    Seq2SeqConfig,
)
from attnlib.record import record_attention
from attnlib.recurrent import GRU, LSTM, RNN, Bidirectional

CONFIG = Seq2SeqConfig(11, 13, d_model=2, d_hidden=5, d_attention=7)
SOURCE = torch.tensor([[3, 4, 5, 6, 7, 8, 9], [10, 3, 0, 0, 0, 0, 0]])
LENGTHS = torch.tensor([7, 2])
TARGET = torch.tensor([[1, 12, 4, 9, 3], [1, 5, 6, 2, 0]])

CONTEXTS = [FixedContext, AttentionContext]
KINDS = {
    "rnn": {"recurrent": RNN},
    "lstm": {"recurrent": LSTM},
    "gru": {"recurrent": GRU},
    "both directions": {"recurrent": GRU, "reader": partial(Bidirectional, GRU)},
    "lstm in both directions": {"recurrent": LSTM, "reader": partial(Bidirectional, LSTM)},
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())
every_context = pytest.mark.parametrize("context", CONTEXTS)


# --------------------------------------------------------------------------------- equations


@every_kind
@every_context
def test_the_logits_are_the_equation(kind, context):
    model = Seq2Seq(CONFIG, context=context, **kind).double()
    memory, last = model.encoder.reader(model.encoder.tokens(SOURCE), lengths=LENGTHS)
    decoder = model.decoder
    mask = torch.tensor([[True] * 7, [True] * 2 + [False] * 5])[:, None, None]
    state = tuple(torch.tanh(layer(last[0])) for layer in decoder.to_first_state)
    expected = []
    for token in TARGET.T:
        if context is FixedContext:
            seen = last[0]
        else:
            seen = decoder.context.attention(state[0][:, None], memory, mask=mask)[:, 0]
        previous = decoder.tokens(token)
        state = decoder.writer.cell(torch.cat([previous, seen], dim=-1), state)
        expected.append(decoder.to_logits(torch.cat([state[0], previous, seen], dim=-1)))
    logits = model(SOURCE, LENGTHS, TARGET)
    assert logits.shape == (2, 5, 13)
    assert_close(logits, torch.stack(expected, dim=1))


def test_the_two_contexts_differ_in_where_the_context_comes_from():
    source = Encoded(torch.randn(2, 7, 3), torch.randn(2, 3), torch.ones(2, 1, 1, 7) > 0)
    one, other = torch.randn(2, 5), torch.randn(2, 5)
    fixed, attention = FixedContext(5, 3, 11), AttentionContext(5, 3, 11)
    assert torch.equal(fixed(source)(one), source.summary)
    assert torch.equal(fixed(source)(other), source.summary)
    assert not torch.isclose(attention(source)(one), attention(source)(other)).any()
    changed = source._replace(summary=source.summary + 1)
    assert torch.equal(attention(changed)(one), attention(source)(one))


def test_the_defaults_are_bahdanaus_sizes():
    with torch.device("meta"):
        model = Seq2Seq(
            Seq2SeqConfig(), reader=partial(Bidirectional, GRU), context=AttentionContext
        )
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    assert shapes["encoder.tokens.weight"] == (30000, 620)
    assert shapes["encoder.reader.right_to_left.cell.from_state.weight"] == (3000, 1000)
    assert shapes["decoder.context.attention.to_key.weight"] == (1000, 2000)
    assert shapes["decoder.writer.cell.from_input.weight"] == (3000, 620 + 2000)


# --------------------------------------------------------------------------- what it may see


@every_kind
@every_context
def test_the_future_of_the_target_cannot_matter_and_its_past_does(kind, context):
    model = Seq2Seq(CONFIG, context=context, **kind)
    logits = model(SOURCE, LENGTHS, TARGET)
    for position in range(5):
        changed = TARGET.clone()
        changed[:, position] = (changed[:, position] + 5) % 13
        after = model(SOURCE, LENGTHS, changed)
        assert torch.equal(after[:, :position], logits[:, :position])
        assert ((after - logits)[:, position:].abs().amax(-1) > 0).all()


@every_kind
@every_context
def test_padding_of_the_source_cannot_matter_and_its_tokens_do(kind, context):
    model = Seq2Seq(CONFIG, context=context, **kind)
    logits = model(SOURCE, LENGTHS, TARGET)
    padding, token = SOURCE.clone(), SOURCE.clone()
    padding[1, 2:] = 8
    token[1, 1] = 8
    assert torch.equal(model(padding, LENGTHS, TARGET), logits)
    assert ((model(token, LENGTHS, TARGET) - logits)[1].abs().amax(-1) > 0).all()
    assert_close(model(SOURCE[1:, :2], LENGTHS[1:], TARGET[1:]), logits[1:])


@every_kind
@every_context
def test_sequences_of_a_batch_do_not_meet(kind, context):
    model = Seq2Seq(CONFIG, context=context, **kind)
    logits = model(SOURCE, LENGTHS, TARGET)
    source, target = SOURCE.clone(), TARGET.clone()
    source[1, :2], target[1] = 9, 9
    assert torch.equal(model(source, LENGTHS, target)[0], logits[0])


@every_kind
@every_context
def test_a_step_at_a_time_is_the_whole_at_once(kind, context):
    model = Seq2Seq(CONFIG, context=context, **kind).double()
    logits = model(SOURCE, LENGTHS, TARGET)
    start, look = model.decoder.start(model.encoder(SOURCE, LENGTHS))
    for cut in range(1, 5):
        first, state = model.decoder(TARGET[:, :cut], start, look)
        second, _ = model.decoder(TARGET[:, cut:], state, look)
        assert_close(torch.cat([first, second], dim=1), logits)


@every_kind
@every_context
def test_a_gradient_reaches_every_parameter(kind, context):
    model = Seq2Seq(CONFIG, context=context, **kind)
    model(SOURCE, LENGTHS, TARGET).square().sum().backward()
    found = gradients(model)
    assert all(gradient.isfinite().all() and gradient.any() for gradient in found.values())


@every_context
def test_without_dropout_training_and_evaluation_agree_and_with_it_they_differ(context):
    model = Seq2Seq(CONFIG, context=context)
    logits = model(SOURCE, LENGTHS, TARGET)
    assert torch.equal(model.eval()(SOURCE, LENGTHS, TARGET), logits)
    config = Seq2SeqConfig(11, 13, d_model=2, d_hidden=5, d_attention=7, dropout=0.5)
    dropping = Seq2Seq(config, context=context)
    dropping.load_state_dict(model.state_dict())
    assert not torch.isclose(dropping(SOURCE, LENGTHS, TARGET), logits).all()
    encoded = dropping.encoder(SOURCE, LENGTHS)
    assert not torch.isclose(encoded.memory, model.encoder(SOURCE, LENGTHS).memory).all()
    start = model.decoder.start(model.encoder(SOURCE, LENGTHS))
    assert not torch.isclose(dropping.decoder(TARGET, *start)[0], logits).all()
    assert torch.equal(dropping.eval()(SOURCE, LENGTHS, TARGET), logits)


def test_the_keys_of_the_source_are_computed_once():
    model = Seq2Seq(CONFIG, context=AttentionContext)
    calls = []
    model.decoder.context.attention.to_key.register_forward_hook(lambda *_: calls.append(1))
    model(SOURCE, LENGTHS, TARGET)
    assert len(calls) == 1
    model.greedy(SOURCE, LENGTHS, max_len=6)
    assert len(calls) == 2


def test_each_step_of_the_decoder_is_heard_by_a_recorder():
    model = Seq2Seq(CONFIG, context=AttentionContext)
    with record_attention(model) as maps:
        logits = model(SOURCE, LENGTHS, TARGET)
    assert torch.equal(logits, model(SOURCE, LENGTHS, TARGET))
    assert [name for name, _ in maps] == ["decoder.context.attention"] * 5
    weights = torch.cat([weights for _, weights in maps], dim=2)
    assert weights.shape == (2, 1, 5, 7)
    assert_close(weights.sum(-1), torch.ones(2, 1, 5))
    assert not weights[1, :, :, 2:].any()


# -------------------------------------------------------------------------------- generation


def greedy_by_hand(model, source, max_len):
    """The likeliest token after everything so far, by running the whole model again each time."""
    ids = [model.config.bos_id]
    while len(ids) <= max_len and ids[-1] != model.config.eos_id:
        logits = model(source[None], torch.tensor([len(source)]), torch.tensor([ids]))
        ids.append(logits[0, -1].argmax().item())
    return ids[1:]


@every_kind
@every_context
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_greedy_takes_the_likeliest_token_of_the_full_pass(kind, context, seed):
    torch.manual_seed(seed)
    model = Seq2Seq(CONFIG, context=context, **kind)
    written = model.greedy(SOURCE, LENGTHS, max_len=6)
    for row, source in zip(written, (SOURCE[0], SOURCE[1, :2]), strict=True):
        expected = greedy_by_hand(model, source, 6)
        assert row.tolist() == expected + [0] * (len(row) - len(expected))


def test_generation_keeps_nothing_for_a_backward_pass():
    model = Seq2Seq(CONFIG)
    graphs = []
    model.decoder.register_forward_hook(lambda *call: graphs.append(call[-1][0].requires_grad))
    model(SOURCE, LENGTHS, TARGET)
    model.greedy(SOURCE, LENGTHS, max_len=1)
    assert graphs == [True, False]


def test_greedy_pads_after_the_end_and_stops_with_the_longest():
    config = Seq2SeqConfig(11, 13, d_model=2, d_hidden=5, pad_id=12, bos_id=7, eos_id=9)
    model = Seq2Seq(config)
    script = torch.tensor([[5, 9, 9, 4], [5, 6, 9, 4]])  # what is likeliest at each step
    calls = []

    def decoder(ids, state, look):
        step = len(calls)
        calls.append(ids[:, 0].tolist())
        return torch.nn.functional.one_hot(script[:, step : step + 1], 13).float(), state

    model.decoder.forward = decoder
    written = model.greedy(SOURCE, LENGTHS, max_len=4)
    assert written.tolist() == [[5, 9, 12], [5, 6, 9]]
    assert calls == [[7, 7], [5, 5], [9, 6]]
    calls.clear()
    assert model.greedy(SOURCE, LENGTHS, max_len=2).tolist() == [[5, 9], [5, 6]]


# ------------------------------------------------------------------------- the rest of PyTorch


@every_kind
@every_context
def test_a_copy_and_a_saved_state_give_the_same(kind, context):
    model = Seq2Seq(CONFIG, context=context, **kind)
    logits = model(SOURCE, LENGTHS, TARGET)
    assert torch.equal(copy.deepcopy(model)(SOURCE, LENGTHS, TARGET), logits)
    other = Seq2Seq(CONFIG, context=context, **kind)
    assert not torch.isclose(other(SOURCE, LENGTHS, TARGET), logits).all()
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(SOURCE, LENGTHS, TARGET), logits)


@every_context
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_near(context, dtype):
    model = Seq2Seq(CONFIG, context=context)
    logits = model(SOURCE, LENGTHS, TARGET)
    halved = copy.deepcopy(model).to(dtype)(SOURCE, LENGTHS, TARGET)
    assert halved.dtype == dtype
    assert_close(halved.float(), logits, atol=0.03, rtol=0)


@every_context
def test_it_can_be_exported(context):
    model = Seq2Seq(CONFIG, context=context, recurrent=LSTM).eval()
    exported = torch.export.export(model, (SOURCE, LENGTHS, TARGET)).module()
    shorter = torch.tensor([5, 3])
    assert_close(exported(SOURCE, shorter, TARGET), model(SOURCE, shorter, TARGET))


@every_context
@pytest.mark.compiles
def test_it_compiles_into_one_graph_which_is_as_long_as_the_texts(context):
    torch.compiler.reset()
    reader = partial(Bidirectional, GRU)
    model = Seq2Seq(CONFIG, context=context, recurrent=LSTM, reader=reader).double()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    for target in (TARGET, TARGET[:, :2]):  # the loop is unrolled: a graph for each length
        expected = model(SOURCE, LENGTHS, target)
        logits = compiled(SOURCE, LENGTHS, target)
        assert_close(logits, expected)
        parameters = list(model.parameters())
        both = [torch.autograd.grad(x.square().sum(), parameters) for x in (logits, expected)]
        assert_close(*both)


# ---------------------------------------------------------------------------------- refusals


def run(source=SOURCE, lengths=LENGTHS, target=TARGET):
    return Seq2Seq(CONFIG)(source, lengths, target)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: Seq2SeqConfig(d_hidden=0), ValueError, "d_hidden must be 1 or more, got 0"),
        (lambda: Seq2SeqConfig(source_vocab_size=0), ValueError, "source_vocab_size must be 1"),
        (
            lambda: Seq2SeqConfig(pad_id=2),
            ValueError,
            "pad_id=2, bos_id=1 and eos_id=2 must be thr",
        ),
        (lambda: Seq2SeqConfig(5, 2), ValueError, "three different ids below target_vocab_size=2"),
        (lambda: run(source=SOURCE[0]), ValueError, r"source must be \(batch, length\)"),
        (lambda: run(source=SOURCE[:, :0]), ValueError, "with one token or more"),
        (lambda: run(target=TARGET[0]), ValueError, r"target must be \(batch, length\)"),
        (lambda: run(target=TARGET[:, :0]), ValueError, r"target .* got shape \(2, 0\)"),
        (lambda: run(target=TARGET[:1]), ValueError, "there are 2 sources, but 1 targets"),
        (lambda: run(lengths=torch.tensor([8, 1])), ValueError, "lengths must lie in 0..k_len=7"),
        (lambda: run(lengths=torch.tensor([7])), ValueError, "2 sequences, but 1 lengths"),
        (lambda: run(lengths=[7, 2]), TypeError, "lengths must be a tensor of whole numbers"),
        (
            lambda: Seq2Seq(CONFIG).greedy(SOURCE, LENGTHS, max_len=0),
            ValueError,
            "max_len must be 1 or more, got 0",
        ),
        (
            lambda: Decoder(11, GRU(4, 5), FixedContext(5, 4, 1), d_model=4),
            ValueError,
            "the writer reads embedding and context side by side, so its inputs must be wider than "
            "d_model=4, got 4",
        ),
    ],
)
def test_refusals_say_what_came_and_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call()
