"""Our BERT against Hugging Face's, with the same weights, and by what it must do."""

import copy
import dataclasses
import pickle

import pytest
import torch
from parity import gradients
from torch import nn
from torch.testing import assert_close

from attnlib.layers import PostNorm
from attnlib.masks import causal_mask, from_attention_mask, left_padding_mask, padding_mask
from attnlib.models.bert import Bert, BertConfig, bert_state_from_hugging_face
from attnlib.record import record_attention

BATCH, LENGTH = 3, 7
CONFIGS = {
    "one layer, one head": BertConfig(11, 5, 1, 1, 13, 17, 2, 0.0),
    "two layers, three heads": BertConfig(19, 33, 3, 2, 7, 23, 2, 0.0),
    "three layers, five heads": BertConfig(31, 35, 5, 3, 41, 13, 3, 0.0, eps=1e-3),
}
SMALL = CONFIGS["two layers, three heads"]
EACH_CONFIG = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())


def model_of(config):
    """A BERT whose parameters are all random, biases and norms too."""
    model = Bert(config).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.3)
    return model


def ids_for(config, length=LENGTH):
    return torch.randint(config.vocab_size, (BATCH, length))


# --------------------------------------------------------------------- parity with Hugging Face


def pair(config):
    """Our model and Hugging Face's, with the same weights."""
    from transformers import BertConfig as TheirConfig
    from transformers import BertModel

    theirs = BertModel(
        TheirConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.d_model,
            num_attention_heads=config.n_heads,
            num_hidden_layers=config.n_layers,
            intermediate_size=config.d_ff,
            max_position_embeddings=config.max_len,
            type_vocab_size=config.n_token_types,
            hidden_dropout_prob=config.dropout,
            attention_probs_dropout_prob=0.0,
            layer_norm_eps=config.eps,
            hidden_act="gelu",
            attn_implementation="eager",
            pad_token_id=None,  # else id 0 would get no gradient there
        ),
        add_pooling_layer=False,
    ).double()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, mean=0.1, std=0.3)
    ours = Bert(config).double()
    ours.load_state_dict(bert_state_from_hugging_face(theirs.state_dict()))
    return ours, theirs


def padding(kind):
    """What is real in each of three sequences, in Hugging Face's words: 1 = keep."""
    right = torch.tensor([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])
    return {"none": None, "right": right, "left": right.flip(-1)}[kind]


@EACH_CONFIG
@pytest.mark.parametrize("kind", ["none", "right", "left"])
@pytest.mark.parametrize("typed", [False, True], ids=["one type", "token types"])
def test_equals_hugging_face_forward_and_backward(config, kind, typed):
    ours, theirs = pair(config)
    ids, keep = ids_for(config), padding(kind)
    types = torch.randint(config.n_token_types, ids.shape) if typed else None
    mask = None if keep is None else from_attention_mask(keep)
    output = ours(ids, token_types=types, mask=mask)
    expected = theirs(ids, attention_mask=keep, token_type_ids=types).last_hidden_state
    assert_close(output, expected)
    probe = torch.randn_like(output)
    output.backward(probe)
    expected.backward(probe)
    assert_close(gradients(ours), bert_state_from_hugging_face(gradients(theirs)))


def test_the_recorded_weights_equal_hugging_faces():
    ours, theirs = pair(SMALL)
    ids, keep = ids_for(SMALL), padding("right")
    with record_attention(ours) as maps:
        ours(ids, mask=from_attention_mask(keep))
    expected = theirs(ids, attention_mask=keep, output_attentions=True).attentions
    assert_close([m.weights for m in maps], list(expected))


def test_no_parameter_goes_missing():
    ours, theirs = pair(SMALL)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    assert bert_state_from_hugging_face(theirs.state_dict()).keys() == ours.state_dict().keys()


def test_the_pooler_and_the_list_of_positions_are_left_out():
    theirs = {
        "pooler.dense.weight": torch.zeros(3, 3),
        "pooler.dense.bias": torch.zeros(3),
        "embeddings.position_ids": torch.arange(5),
        "embeddings.position_embeddings.weight": torch.ones(5, 3),
    }
    ours = bert_state_from_hugging_face(theirs)
    assert list(ours) == ["positions.encoding"]
    assert ours["positions.encoding"] is theirs["embeddings.position_embeddings.weight"]


def test_the_defaults_are_bert_base():
    with torch.device("meta"):  # sizes without memory
        model = Bert(BertConfig())
    pooler = 768 * 768 + 768
    assert sum(p.numel() for p in model.parameters()) + pooler == 109_482_240  # as published
    from transformers import BertConfig as TheirConfig

    theirs = TheirConfig()
    assert dataclasses.astuple(BertConfig()) == (
        theirs.vocab_size,
        theirs.hidden_size,
        theirs.num_attention_heads,
        theirs.num_hidden_layers,
        theirs.intermediate_size,
        theirs.max_position_embeddings,
        theirs.type_vocab_size,
        theirs.hidden_dropout_prob,
        theirs.layer_norm_eps,
        theirs.tie_word_embeddings,
    )


def test_a_config_cannot_be_changed_behind_the_model():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SMALL.d_model = 7


def test_a_model_remembers_its_config():
    assert Bert(SMALL).config is SMALL


# ------------------------------------------------------------ properties, each with its twin


def test_order_matters_through_the_positions_alone():
    model, ids = model_of(SMALL), ids_for(SMALL)
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    assert not torch.allclose(model(ids[:, order]), model(ids)[:, order])
    nn.init.zeros_(model.positions.encoding)
    assert_close(model(ids[:, order]), model(ids)[:, order])


@pytest.mark.parametrize("left", [False, True], ids=["behind", "in front"])
def test_padding_changes_nothing_if_masked_and_something_if_not(left):
    model, ids = model_of(SMALL), ids_for(SMALL)
    junk = ids_for(SMALL, 4)
    lengths = torch.tensor([LENGTH] * BATCH)
    padded = torch.cat([junk, ids] if left else [ids, junk], dim=1)
    mask = (left_padding_mask if left else padding_mask)(lengths, LENGTH + 4)
    real = slice(4, None) if left else slice(0, LENGTH)
    if left:  # tokens behind padding have later positions: let the model know none
        nn.init.zeros_(model.positions.encoding)
    assert_close(model(padded, mask=mask)[:, real], model(ids))
    assert not torch.allclose(model(padded)[:, real], model(ids))


def test_every_token_sees_both_sides():
    model, ids = model_of(SMALL), ids_for(SMALL)
    before = model(ids)
    ids[:, 3] = (ids[:, 3] + 1) % SMALL.vocab_size
    assert (model(ids) != before).any(-1).all()


@pytest.mark.parametrize("length", [LENGTH, 23])
def test_under_a_causal_mask_no_layer_leaks_the_future(length):
    model, ids = model_of(SMALL), ids_for(SMALL, length)
    before = model(ids, mask=causal_mask(length))
    ids[:, 3] = (ids[:, 3] + 1) % SMALL.vocab_size
    after = model(ids, mask=causal_mask(length))
    assert torch.equal(after[:, :3], before[:, :3])
    assert (after[:, 3:] != before[:, 3:]).any(-1).all()


def test_sequences_of_a_batch_do_not_mix():
    model, ids = model_of(SMALL), ids_for(SMALL)
    before = model(ids)
    ids[1] = (ids[1] + 1) % SMALL.vocab_size
    after = model(ids)
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert (after[1] != before[1]).any(-1).all()


def test_token_types_are_0_if_left_out_and_matter_if_given():
    model, ids = model_of(SMALL), ids_for(SMALL)
    assert torch.equal(model(ids), model(ids, token_types=torch.zeros_like(ids)))
    assert not torch.allclose(model(ids), model(ids, token_types=torch.ones_like(ids)))


def test_dropout_is_everywhere_where_bert_has_it_and_off_in_evaluation():
    config = dataclasses.replace(SMALL, dropout=0.3)
    model, ids = Bert(config).double(), ids_for(SMALL)
    rates = [m.p for m in model.modules() if isinstance(m, nn.Dropout)]
    assert rates == [0.3] * (1 + 2 * SMALL.n_layers)  # embeddings, and two in each layer
    assert not torch.equal(model(ids), model(ids))
    without = Bert(SMALL).double()
    without.load_state_dict(model.state_dict())
    assert torch.equal(model.eval()(ids), without(ids))


def test_the_embeddings_are_dropped_too():
    config = dataclasses.replace(SMALL, n_layers=0, dropout=1.0)
    assert not Bert(config)(ids_for(SMALL)).any()


def test_the_layers_are_different_ones_with_the_norm_last():
    model = Bert(SMALL)
    first, second = model.layers
    assert first.attention.to_query.weight is not second.attention.to_query.weight
    assert not torch.equal(first.attention.to_query.weight, second.attention.to_query.weight)
    assert isinstance(first.around_attention, PostNorm)


# ------------------------------------------------------------------- copies, states, precision


def test_copies_and_saved_states_say_the_same(tmp_path):
    model, ids = model_of(SMALL), ids_for(SMALL)
    expected = model(ids)
    assert torch.equal(copy.deepcopy(model)(ids), expected)
    assert torch.equal(pickle.loads(pickle.dumps(model))(ids), expected)
    torch.save(model.state_dict(), tmp_path / "state.pt")
    other = model_of(SMALL)
    assert not torch.equal(other(ids), expected)
    other.load_state_dict(torch.load(tmp_path / "state.pt"))
    assert torch.equal(other(ids), expected)


@pytest.mark.parametrize(
    ("dtype", "atol"),
    [(torch.bfloat16, 0.1), (torch.float16, 0.012)],  # worst of 200 seeds: 0.051 and 0.0058
)
def test_half_precision_runs_and_stays_near(dtype, atol):
    model, ids = Bert(SMALL).double(), ids_for(SMALL)
    mask = padding_mask(torch.tensor([7, 4, 0]), LENGTH)
    exact = model(ids, mask=mask)
    rough = model.to(dtype)(ids, mask=mask)
    assert rough.dtype == dtype
    assert_close(rough.double(), exact, atol=atol, rtol=0)


def test_autocast_runs_and_stays_near():
    model, ids = Bert(SMALL), ids_for(SMALL)
    mask = padding_mask(torch.tensor([7, 4, 0]), LENGTH)
    exact = model(ids, mask=mask)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(ids, mask=mask)
    assert_close(rough.float(), exact, atol=0.03, rtol=0)  # worst of 200 seeds: 0.010
    rough.sum().backward()
    assert all(g.isfinite().all() for g in gradients(model).values())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_an_empty_sequence_in_a_batch_harms_nobody(dtype):
    model, ids = model_of(SMALL).to(dtype), ids_for(SMALL)
    lengths = torch.tensor([7, 0, 4])
    output = model(ids, mask=padding_mask(lengths, LENGTH))
    output.float().square().sum().backward()
    assert output.isfinite().all()
    assert all(g.isfinite().all() for g in gradients(model).values())
    alone = model(ids[2:, :4])
    if dtype == torch.float64:
        assert_close(output[2:, :4], alone)


# ------------------------------------------------------------------------------------ refusals

REFUSED = {
    "1-D ids": (lambda m: m(torch.tensor([1, 2])), r"ids must be \(batch, length\) .*\(2,\)"),
    "too long": (lambda m: m(torch.zeros(1, 24).long()), "positions 0 to 23 .*0 to 22 only; raise"),
    "no tokens": (lambda m: m(torch.zeros(1, 0).long()), "with one token or more"),
    "types of another shape": (
        lambda m: m(torch.zeros(2, 3).long(), token_types=torch.zeros(3).long()),
        r"one type for each id, in shape \(2, 3\), got shape \(3,\)",
    ),
    "mask of another length": (
        lambda m: m(torch.zeros(2, 3).long(), mask=causal_mask(4)), r"= \(2, 3, 3, 3\)"
    ),
    "heads that do not divide": (
        lambda m: Bert(dataclasses.replace(SMALL, n_heads=2)), "d_model=33 must be a multiple"
    ),
    "a head's parameter": (
        lambda m: bert_state_from_hugging_face({"cls.predictions.bias": torch.zeros(2)}),
        "cls.predictions.bias is no parameter of a BertModel.* take the state of its .bert",
    ),
    "a prefix": (
        lambda m: bert_state_from_hugging_face({"bert.embeddings.LayerNorm.bias": torch.zeros(2)}),
        "bert.embeddings.LayerNorm.bias is no",
    ),
    "cross-attention": (
        lambda m: bert_state_from_hugging_face(
            {"encoder.layer.0.crossattention.self.query.weight": torch.zeros(2)}
        ),
        "crossattention.self.query.weight is no",
    ),
    "relative positions": (
        lambda m: bert_state_from_hugging_face(
            {"encoder.layer.0.attention.self.distance_embedding.weight": torch.zeros(2)}
        ),
        "distance_embedding.weight is no",
    ),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, words):
    with pytest.raises(ValueError, match=words):
        call(Bert(SMALL))
