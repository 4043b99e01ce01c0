"""What PyTorch's compiler and exporter make of the layers computes the same."""

import pytest
import torch
from torch.testing import assert_close

from attnlib.layers import MultiHeadAttention
from attnlib.masks import causal_mask, padding_mask
from attnlib.models.bert import Bert, BertConfig

pytestmark = pytest.mark.compiles

LENGTHS = [7, 41]  # below and above the length from which a causal mask has a fast path


def attention():
    layer = MultiHeadAttention(33, 3).double()
    return layer, lambda length: torch.randn(2, length, 33, dtype=torch.float64)


def bert():
    model = Bert(BertConfig(19, 33, 3, 1, 17, 50, 2, dropout=0.0)).double()
    return model, lambda length: torch.randint(19, (2, length))


MODELS = pytest.mark.parametrize("make", [attention, bert])


@pytest.fixture(autouse=True)
def _forget():
    torch.compiler.reset()


def masks(length):
    """No mask, a causal one, and one with a query that may see nothing."""
    return [None, causal_mask(length), padding_mask(torch.tensor([length - 2, 0]), length)]


@MODELS
def test_compiled_without_a_break_it_gives_the_same_outputs_and_gradients(make):
    model, inputs = make()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    parameters = list(model.parameters())
    for length in LENGTHS:
        for mask in masks(length):
            x = inputs(length)
            outputs = [run(x, mask=mask) for run in (model, compiled)]
            found = [
                (output, torch.autograd.grad(output.square().sum(), parameters))
                for output in outputs
            ]
            assert_close(*found)


@MODELS
def test_a_compiled_model_does_not_hide_a_nan(make):
    model, inputs = make()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    next(model.parameters()).data[0, 0] = torch.nan
    for length in (1, 7, 41):
        x = inputs(length)
        assert torch.equal(compiled(x).isnan(), model(x).isnan())


@MODELS
@pytest.mark.parametrize("length", LENGTHS)
def test_an_exported_model_gives_the_same(make, length):
    model, inputs = make()
    for mask in masks(length):
        exported = torch.export.export(model, (inputs(length),), {"mask": mask}).module()
        x = inputs(length)  # others than those that it was exported with
        assert_close(exported(x, mask=mask), model(x, mask=mask))
        if mask is not None:
            other = mask.clone()
            other[..., 0] ^= True  # the mask is an input, and not baked in
            assert_close(exported(x, mask=other), model(x, mask=other))


@MODELS
def test_one_export_serves_all_lengths(make):
    model, inputs = make()
    length = torch.export.Dim("length", min=2, max=50)
    exported = torch.export.export(model, (inputs(7),), dynamic_shapes=({1: length},)).module()
    for n in (2, 13, 41):
        x = inputs(n)
        assert_close(exported(x), model(x))
