"""What a recorder gets is what the model used, and the model does not notice."""

import copy
import pickle

import pytest
import torch
from parity import assert_same, gradients, leaves
from torch import nn
from torch.testing import assert_close

from attnlib.layers import Attend, EncoderLayer, MultiHeadAttention
from attnlib.masks import causal_mask, padding_mask
from attnlib.models.bert import Bert, BertConfig
from attnlib.record import AttentionMap, record_attention
from attnlib.recurrent import AdditiveAttention

BATCH, HEADS, LENGTH, D_MODEL = 2, 3, 7, 33
PADDING = padding_mask(torch.tensor([7, 4]), LENGTH)
MASKS = {
    "no mask": None,
    "causal": causal_mask(LENGTH),
    "padding": PADDING,
    "causal & padding": causal_mask(LENGTH) & PADDING,
}
EACH_MASK = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS.keys())


def tokens(length=LENGTH):
    return torch.randn(BATCH, length, D_MODEL, dtype=torch.float64)


def bert():
    config = BertConfig(
        vocab_size=19, d_model=D_MODEL, n_heads=HEADS, n_layers=2, d_ff=17, max_len=50, dropout=0.0
    )
    return Bert(config).double()


def ids(length=LENGTH):
    return torch.randint(19, (BATCH, length))


@EACH_MASK
def test_the_weights_are_those_of_torchs_layer(mask):
    ours = MultiHeadAttention(D_MODEL, HEADS).double()
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, batch_first=True).double()
    theirs.in_proj_weight.data = torch.cat(
        [layer.weight for layer in (ours.to_query, ours.to_key, ours.to_value)]
    )
    theirs.in_proj_bias.data = torch.cat(
        [layer.bias for layer in (ours.to_query, ours.to_key, ours.to_value)]
    )
    x = tokens()
    blocked = None if mask is None else ~mask.expand(BATCH, HEADS, LENGTH, LENGTH).flatten(0, 1)
    _, expected = theirs(x, x, x, attn_mask=blocked, average_attn_weights=False)
    with record_attention(ours) as maps:
        ours(x, mask=mask)
    assert_close(maps[0].weights, expected)


@EACH_MASK
def test_the_weights_are_the_ones_that_made_the_output(mask):
    layer, x = MultiHeadAttention(D_MODEL, HEADS).double(), tokens()
    quiet = layer(x, mask=mask)
    with record_attention(layer) as maps:
        layer(x, mask=mask)
    heads = layer.to_value(x).unflatten(-1, (HEADS, -1))
    gathered = torch.einsum("bhqk,bkhd->bqhd", maps[0].weights, heads)
    assert_close(layer.to_output(gathered.flatten(2)), quiet)


@EACH_MASK
@pytest.mark.parametrize("length", [LENGTH, 37])
def test_recording_changes_neither_output_nor_gradients(mask, length):
    if mask is not None and length != LENGTH:
        mask = causal_mask(length)
    model, x = bert(), ids(length)
    probe = torch.randn(BATCH, length, D_MODEL, dtype=torch.float64)
    quiet = model(x, mask=mask)
    quiet.backward(probe)
    expected = {name: g.clone() for name, g in gradients(model).items()}
    model.zero_grad()
    with record_attention(model):
        recorded = model(x, mask=mask)
    recorded.backward(probe)
    assert_close(recorded, quiet)
    assert_close(gradients(model), expected)
    assert torch.equal(model(x, mask=mask), quiet)  # and nothing of it stays


def test_maps_come_in_the_order_of_the_calls_with_the_names_of_the_layers():
    model = bert()
    with record_attention(model) as maps:
        model(ids())
        model(ids(5))
    assert [m.layer for m in maps] == ["layers.0.attention", "layers.1.attention"] * 2
    assert [m.weights.shape[2:] for m in maps] == [(7, 7)] * 2 + [(5, 5)] * 2
    assert not torch.allclose(maps[0].weights, maps[1].weights)


def test_names_are_those_of_the_owners():
    attention = MultiHeadAttention(D_MODEL, HEADS).double()
    with record_attention(attention) as maps:
        attention(tokens())
    with record_attention(attention.attend) as inner:
        attention(tokens())
    assert (maps[0].layer, inner[0].layer) == ("", "")
    odd = nn.ModuleDict({"preattend": Attend()})
    with record_attention(odd) as maps:
        odd["preattend"](*[torch.randn(1, 1, 3, 4)] * 3)
    assert maps[0].layer == "preattend"


def test_a_layer_that_is_used_twice_is_recorded_twice():
    shared = EncoderLayer(D_MODEL, HEADS, 17).double()
    model = nn.Sequential(shared, shared)
    with record_attention(model) as maps:
        model(tokens())
    assert [m.layer for m in maps] == ["0.attention"] * 2


def test_a_recorder_listens_to_its_own_part_of_the_model_only():
    model = bert()
    with record_attention(model.layers[1]) as maps:
        model(ids())
    assert [m.layer for m in maps] == ["attention"]


def test_recorders_do_not_disturb_each_other():
    model = bert()
    with record_attention(model) as outer:
        model(ids())
        with record_attention(model) as inner:
            model(ids())
        model(ids())
    assert (len(outer), len(inner)) == (6, 2)
    assert torch.equal(inner[0].weights, outer[2].weights)


def test_nothing_is_recorded_before_or_after():
    model = bert()
    model(ids())
    with record_attention(model) as maps:
        assert maps == []
    model(ids())
    assert maps == []
    assert not any(m.listeners for m in model.modules() if isinstance(m, Attend))


def test_a_failure_inside_ends_the_recording():
    model = bert()
    kept = []

    def fail():
        with record_attention(model) as maps:
            kept.append(maps)
            model(ids())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    model(ids())
    assert len(kept[0]) == 2


def test_a_recorder_that_could_not_start_leaves_nobody_listening():
    model = nn.ModuleDict({"good": Attend(), "bad": nn.Identity()})
    model["bad"].listeners = ()  # some other module's idea of listeners
    with pytest.raises(AttributeError), record_attention(model):
        pass
    assert model["good"].listeners == []


def test_a_recorder_may_end_before_one_that_began_earlier():
    model = bert()
    earlier, later = record_attention(model), record_attention(model)
    maps = [earlier.__enter__(), later.__enter__()]
    earlier.__exit__(None, None, None)
    model(ids())
    assert [len(m) for m in maps] == [0, 2]
    later.__exit__(None, None, None)
    model(ids())
    assert [len(m) for m in maps] == [0, 2]


def test_gradients_flow_through_the_recorded_weights():
    layer = MultiHeadAttention(D_MODEL, HEADS).double()
    x = tokens()
    our_x, their_x = leaves(x), leaves(x)
    with record_attention(layer) as maps:
        layer(*our_x)
    query, key = (
        projection(*their_x).unflatten(-1, (HEADS, 11)).transpose(1, 2)
        for projection in (layer.to_query, layer.to_key)
    )
    assert_same(maps[0].weights, (query @ key.mT / 11**0.5).softmax(-1), our_x, their_x)


def test_a_map_is_a_pair_of_name_and_weights():
    layer, weights = AttentionMap("layers.0", torch.ones(1, 1, 1, 1))
    assert layer == "layers.0"
    assert weights.shape == (1, 1, 1, 1)


def test_a_model_can_be_copied_while_it_is_recorded():
    model = nn.ModuleList([bert(), AdditiveAttention(3, 4, 5)])
    with record_attention(model) as maps:
        twins = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        for attends, adds in twins:
            attends(ids())
            adds(torch.randn(1, 1, 3), torch.randn(1, 2, 4))
    assert maps == []  # the copies are not recorded
    places = [m for t in twins for m in t.modules() if hasattr(m, "listeners")]
    assert len(places) == 2 * 3
    assert not any(m.listeners for m in places)


@pytest.mark.messages
def test_a_model_without_our_attention_is_refused():
    foreign = nn.TransformerEncoderLayer(8, 2)
    with (
        pytest.raises(ValueError, match="TransformerEncoderLayer holds no attnlib att"),
        record_attention(foreign),
    ):
        pass
