"""Checkpointing: the same outputs, gradients and names; far fewer bytes."""

import copy
import pickle

import pytest
import torch
from parity import gradients
from torch import nn
from torch.testing import assert_close

from attnlib.cache import KVCache
from attnlib.efficient.checkpointing import Checkpointed, checkpoint_layers
from attnlib.layers import EncoderLayer
from attnlib.memory import saved_bytes
from attnlib.models.bart import Bart, BartConfig
from attnlib.models.bert import Bert, BertConfig
from attnlib.models.encoder_decoder import EncoderDecoder
from attnlib.models.gpt import GPT, GPTConfig
from attnlib.models.t5 import T5, T5Config
from attnlib.models.transformer import Transformer, TransformerConfig
from attnlib.models.vit import Vit, VitConfig
from attnlib.record import record_attention

IDS = torch.randint(1, 11, (2, 7), generator=torch.Generator().manual_seed(0))
SIZES = {"d_model": 8, "n_heads": 2, "d_ff": 16, "dropout": 0.3}


def gpt(n_layers=3, **sizes):
    return GPT(GPTConfig(vocab_size=11, n_layers=n_layers, **SIZES | sizes)).train()


def bert():
    return Bert(BertConfig(vocab_size=11, n_layers=3, **SIZES)).train()


def transformer():
    sizes = {"source_vocab_size": 11, "target_vocab_size": 11, "n_layers": 2, **SIZES}
    return Transformer(TransformerConfig(**sizes)).train()


def bart():
    model = Bart(BartConfig(vocab_size=11, n_layers=2, **SIZES)).train()
    model.to_logits.bias.requires_grad_()  # it is not learned otherwise
    return model


def t5():
    return T5(T5Config(vocab_size=11, n_layers=2, d_head=4, **SIZES)).train()


def vit():
    sizes = {"image_size": (4, 6), "patch_size": 2, "n_classes": 11, "n_layers": 2}
    return Vit(VitConfig(**sizes, **SIZES)).train()


def loss(model):
    torch.manual_seed(1)  # for the dropout
    if isinstance(model, EncoderDecoder):
        output = model(IDS, IDS)
    elif isinstance(model, Vit):
        output = model(torch.rand(2, 3, 4, 6))
    else:
        output = model(IDS)
    output = output if isinstance(output, torch.Tensor) else output[0]
    return output.square().sum()


@pytest.mark.parametrize("build", [gpt, bert, transformer, bart, t5, vit])
def test_loss_gradients_and_names_stay(build):
    plain = build()
    model = checkpoint_layers(copy.deepcopy(plain))
    layers = [part for part in model.modules() if isinstance(part, Checkpointed)]
    stacks = 2 if isinstance(model, EncoderDecoder) else 1
    assert len(layers) == stacks * model.config.n_layers  # all of them
    losses = [loss(plain), loss(model)]
    for each in losses:
        each.backward()
    assert_close(losses[1], losses[0], rtol=0, atol=0)
    assert_close(gradients(model), gradients(plain))
    assert list(model.state_dict()) == list(plain.state_dict())
    model.load_state_dict(plain.state_dict())


def test_bytes_are_one_vector_for_each_token_and_layer():
    def kept(model):
        return saved_bytes(lambda: loss(model), leave_out=[model])

    plain, more = gpt(1), gpt(2)
    of_a_layer = kept(more) - kept(plain)
    of_an_input = kept(checkpoint_layers(more)) - kept(checkpoint_layers(plain))
    assert of_an_input == IDS.numel() * SIZES["d_model"] * 4
    assert of_a_layer > 8 * of_an_input


def test_twice_is_once_and_parts_can_be_reached():
    model = checkpoint_layers(checkpoint_layers(gpt(1)))
    layer = model.layers[0]
    assert type(layer.layer) is EncoderLayer
    assert layer.attention is layer.layer.attention
    assert layer.around_attention.norm.weight.shape == (8,)
    with pytest.raises(AttributeError, match="no_such_thing"):
        _ = layer.no_such_thing


def test_copies_and_conversions_reach_what_runs():
    model = checkpoint_layers(gpt(1)).eval()
    for copied in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            copied.layers[0].attention.to_output.bias += 1.0
        assert (copied(IDS) != model(IDS)).any()
    assert model.double()(IDS).dtype == torch.float64
    assert not model.layers[0].attention.training


def test_with_a_cache_and_without_gradients_it_runs_once():
    model = checkpoint_layers(gpt(2)).eval()
    calls = []
    model.layers[0].attention.register_forward_hook(lambda *_: calls.append(1))
    cache = KVCache(n_layers=2, max_len=16)
    with torch.no_grad():
        step = [model(IDS[:, i : i + 1], cache=cache) for i in range(IDS.shape[1])]
        assert_close(torch.cat(step, 1), model(IDS))
    assert len(calls) == IDS.shape[1] + 1
    model.train()
    loss(model).backward()
    assert len(calls) == IDS.shape[1] + 3  # once forward, once backward


def test_a_cache_does_not_grow_twice():
    model, cache = checkpoint_layers(gpt(1)), KVCache(n_layers=1, max_len=7)
    model(IDS, cache=cache).sum().backward()
    assert cache.length == 7


def test_weights_are_heard_under_the_names_of_before():
    model = checkpoint_layers(gpt(2))
    with record_attention(model) as maps:
        model(IDS)
    assert [m.layer for m in maps] == ["layers.0.attention", "layers.1.attention"]


@pytest.mark.messages
def test_refusals_say_what_came():
    with pytest.raises(ValueError, match=r"Linear has no nn.ModuleList.* wrap them yourself"):
        checkpoint_layers(nn.Linear(2, 2))
    with pytest.raises(TypeError, match=r"model must be a module, such as a GPT, got list"):
        checkpoint_layers([])
    with pytest.raises(TypeError, match=r"layer must be a module, such as an EncoderLayer"):
        Checkpointed(nn.Linear)
    with pytest.raises(AttributeError, match="layer"):
        Checkpointed.__new__(Checkpointed).layer  # noqa: B018 - as pickle does
