"""What is refused everywhere in the same words: what came, and what to do."""

import numpy
import pytest
import torch
from torch import nn

from attnlib.checks import (
    can_be_read,
    check_floats,
    check_module,
    check_sizes,
    check_tensor,
    check_whole_numbers,
)
from attnlib.data import translations
from attnlib.functional import masked_softmax, merge_heads, split_heads
from attnlib.generate import greedy, sample
from attnlib.layers import DecoderLayer, EncoderLayer, FeedForward, MultiHeadAttention
from attnlib.masks import causal_mask
from attnlib.memory import cache_bytes
from attnlib.models.bart import Bart, BartConfig
from attnlib.models.bert import Bert, BertConfig
from attnlib.models.gpt import GPT, GPTConfig
from attnlib.models.seq2seq import Seq2Seq, Seq2SeqConfig
from attnlib.models.t5 import T5, T5Config
from attnlib.models.transformer import Transformer, TransformerConfig
from attnlib.models.vit import Vit, VitConfig, split_patches
from attnlib.positions import Rope, SinusoidalEncoding, sinusoidal_encoding
from attnlib.record import record_attention
from attnlib.train import accuracy, cross_entropy

X = torch.zeros(1, 3, 4)
IDS = torch.tensor([[1, 2]])
LENGTH = torch.tensor([2])


def test_good_input_passes():
    check_sizes(a=1, b=7, c=numpy.int64(3))
    check_sizes(at_least=0, a=0)
    check_tensor("x", IDS)
    check_module("m", nn.GELU(), "nn.ReLU()")
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.float16):
        check_floats("x", X.to(dtype))
    for dtype in (torch.int64, torch.int32, torch.uint8):
        check_whole_numbers("ids", IDS.to(dtype))
    assert translations().training  # what has no arguments refuses nothing


@pytest.mark.compiles
def test_the_compilers_own_whole_numbers_are_sizes():
    torch.compiler.reset()

    def positions(x):
        check_sizes(length=x.shape[1])
        return x + sinusoidal_encoding(x.shape[1], 4)

    compiled = torch.compile(positions, fullgraph=True, backend="eager", dynamic=True)
    for length in (3, 5):
        x = torch.zeros(1, length, 4)
        assert torch.equal(compiled(x), positions(x))


@pytest.mark.compiles
def test_what_a_graph_or_vmap_stands_for_cannot_be_read():
    torch.compiler.reset()
    assert can_be_read(X)
    assert not can_be_read(X.to("meta"))
    seen = []
    torch.vmap(lambda x: seen.append(can_be_read(x)) or x)(X)
    assert seen == [False]

    def as_numbers(x):
        return x + 1 if can_be_read(x) else x

    assert torch.equal(torch.compile(as_numbers, fullgraph=True, backend="eager")(X), X)


def small(kind):
    """A model of two ids and up."""
    sizes = {"d_model": 4, "n_heads": 2, "n_layers": 1, "d_ff": 5, "max_len": 6}
    if kind == "bert":
        return Bert(BertConfig(vocab_size=7, **sizes))
    return GPT(GPTConfig(vocab_size=7, **sizes))


def seq2seq(source=IDS, target=IDS):
    Seq2Seq(Seq2SeqConfig(7, 7, d_model=3, d_hidden=4, d_attention=5))(source, LENGTH, target)


def from_to(kind):
    """Two calls of a model with an encoder and a decoder: wrong source, wrong target."""
    sizes = {"d_model": 4, "n_heads": 2, "n_layers": 1, "d_ff": 5}
    if kind == "t5":
        model = T5(T5Config(7, d_head=2, **sizes))
    elif kind == "bart":
        model = Bart(BartConfig(7, max_len=6, **sizes))
    else:
        model = Transformer(TransformerConfig(7, 7, max_len=6, **sizes))
    return lambda ids: model(ids, IDS), lambda ids: model(IDS, ids)


def vit(positions):
    Vit(VitConfig((4, 4), 2, 1, 2, 4, 2, 1, 5), positions=positions)


WRONG_IDS = {
    "floats": (IDS.float(), TypeError, r"tensor of whole numbers, got torch.float32; write"),
    "booleans": (IDS > 0, TypeError, "tensor of whole numbers, got torch.bool"),
    "a list": ([[1, 2]], TypeError, r"whole numbers, got list \[\[1, 2\]\]; write torch.tensor"),
    "small integers": (IDS.to(torch.uint8), TypeError, r"got torch.uint8; convert with .long\(\)"),
    "none": (IDS[:, :0], ValueError, r"one token or more, got shape \(1, 0\)"),
    "no texts": (IDS[:0], ValueError, r"one token or more, got shape \(0, 2\)"),
    "one text": (IDS[0], ValueError, r"\(batch, length\) .* got shape \(2,\)"),
    "an unknown one": (IDS + 5, ValueError, "lie in 0 to 6, as vocab_size=7, got ids from 6 to 7"),
    "one below 0": (IDS - 2, ValueError, "lie in 0 to 6, as vocab_size=7, got ids from -1 to 0"),
}


@pytest.mark.messages
@pytest.mark.parametrize(("ids", "error", "words"), WRONG_IDS.values(), ids=WRONG_IDS.keys())
def test_every_model_refuses_what_are_no_ids(ids, error, words):
    calls = small("bert"), small("gpt"), seq2seq, lambda ids: seq2seq(target=ids)
    for call in (*calls, *from_to("transformer"), *from_to("bart"), *from_to("t5")):
        with pytest.raises(error, match=words):
            call(ids)


WRONG_SIZES = {
    "a bool": (True, "got bool True$"),
    "a float": (2.0, "got float 2.0; divide with //"),
    "a string": ("2", "got str '2'"),
    "a tensor": (torch.tensor(2), r"got Tensor; take the number out with .item\(\)"),
    "nothing": (None, "got NoneType None"),
}
TAKES_A_SIZE = {
    "n_heads": (
        lambda n: MultiHeadAttention(16, n),
        lambda n: MultiHeadAttention(16, 2, d_head=8).__class__(16, n, d_head=8),
        lambda n: split_heads(X, n),
        lambda n: BertConfig(n_heads=n),
        lambda n: GPTConfig(n_heads=n),
        lambda n: VitConfig(n_heads=n),
        lambda n: TransformerConfig(n_heads=n),
        lambda n: BartConfig(n_heads=n),
        lambda n: T5Config(n_heads=n),
        lambda n: cache_bytes(3, n_layers=1, n_heads=n, d_head=1),
    ),
    "length": (lambda n: sinusoidal_encoding(n, 4),),
    "q_len": (lambda n: causal_mask(n),),
    "d_head": (lambda n: Rope(n),),
    "d_ff": (lambda n: FeedForward(4, n),),
    "max_new_tokens": (lambda n: greedy(None, IDS, max_new_tokens=n),),
}


@pytest.mark.messages
@pytest.mark.parametrize(("size", "words"), WRONG_SIZES.values(), ids=WRONG_SIZES.keys())
def test_every_size_is_a_whole_number(size, words):
    for name, calls in TAKES_A_SIZE.items():
        for call in calls:
            with pytest.raises(TypeError, match=f"{name} must be a whole number, {words}"):
                call(size)


REFUSED = {
    "softmax of a list": (lambda: masked_softmax([[0.0]]), r"scores .*, got list \[\["),
    "softmax of ints": (lambda: masked_softmax(IDS), "scores .* got torch.int64; convert with .fl"),
    "heads of a list": (lambda: split_heads([1.0], 1), "x must be a float tensor, got list"),
    "merged list": (lambda: merge_heads([1.0]), "x must be a float tensor, got list"),
    "positions by name": (
        lambda: MultiHeadAttention(16, 2, positions="rope"),
        r"positions must be a module, such as Rope\(d_head\), got str 'rope'",
    ),
    "positions in a layer": (lambda: EncoderLayer(16, 2, 4, positions="rope"), "got str 'rope'"),
    "positions as a class": (lambda: MultiHeadAttention(8, 2, positions=Rope), "class Rope itself"),
    "positions from outside": (
        lambda: MultiHeadAttention(16, 2, positions=SinusoidalEncoding(16)),
        "as Rope does, got SinusoidalEncoding; .* in front of the first layer",
    ),
    "gpt by name": (lambda: GPT(GPTConfig(7, 4, 2, 1, 5), positions="rope"), "got str 'rope'"),
    "vit by name": (lambda: vit("rope"), "got str 'rope'"),
    "a bend by name": (lambda: FeedForward(4, 5, activation="gelu"), "activation .* 'gelu'"),
    "a class as bend": (lambda: FeedForward(4, 5, activation=nn.GELU), "the class GELU itself"),
    "residual by name": (lambda: EncoderLayer(4, 2, 5, residual="pre"), "PreNorm, got 'pre'"),
    "residual of a decoder": (lambda: DecoderLayer(4, 2, 5, residual="pre"), "PreNorm, got 'pre'"),
    "recorded by name": (lambda: record_attention("bert").__enter__(), "model must be a module"),
    "a list of pixels": (lambda: split_patches([[0.0]], 1), "images must be a tensor, got list"),
    "a list of labels": (lambda: cross_entropy(X, [[0]]), "labels must be a tensor of whole num"),
    "a list of logits": (lambda: cross_entropy([[0.0]], IDS), "logits must be a float tensor"),
    "a list of guesses": (lambda: accuracy([1], IDS), "predicted must be a tensor, got list"),
    "a list as prompt": (lambda: sample(None, [[1]], max_new_tokens=1), "ids must be a tens"),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_what_is_of_another_type_is_refused_with_advice(call, words):
    with pytest.raises(TypeError, match=words):
        call()


@pytest.mark.messages
def test_sizes_below_the_least_are_refused():
    with pytest.raises(ValueError, match="b must be 1 or more, got 0"):
        check_sizes(a=1, b=0)
    with pytest.raises(ValueError, match="b must be 0 or more, got -1"):
        check_sizes(at_least=0, b=-1)


@pytest.mark.messages
def test_what_is_long_is_named_and_not_written_out():
    with pytest.raises(TypeError, match=r"got list; write"):
        check_tensor("x", [0.5] * 100)
