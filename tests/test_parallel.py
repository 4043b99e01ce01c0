"""Two processes, each with half of the heads and hidden units, compute what one computes."""

import copy
import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.testing import assert_close
from torch.testing._internal.distributed.fake_pg import FakeStore

from attnlib.efficient.parallel import parallelize_layers
from attnlib.layers import EncoderLayer, FeedForward, GatedFeedForward, MultiHeadAttention
from attnlib.masks import causal_mask
from attnlib.models.gpt import GPT, GPTConfig
from attnlib.positions import Alibi, Rope

COUNT = 2
IDS = torch.randint(0, 11, (3, 5), generator=torch.Generator().manual_seed(0))


class Grouped(nn.Module):
    """Grouped-query attention with rotations, and a gated feed-forward network."""

    def __init__(self):
        super().__init__()
        options = {"d_head": 4, "d_value": 5, "n_kv_heads": 2, "positions": Rope(4)}
        self.embed = nn.Embedding(11, 12)
        self.attention = MultiHeadAttention(12, 4, **options)
        self.feed_forward = GatedFeedForward(12, 14)

    def forward(self, ids):
        x = self.embed(ids)
        return self.feed_forward(x + self.attention(x, mask=causal_mask(ids.shape[1])))


def gpt():
    return GPT(GPTConfig(vocab_size=11, d_model=12, n_heads=4, n_layers=2, d_ff=14, dropout=0.0))


def compare(rank, folder):
    """What each of the processes does; a failure is its exit code."""
    torch.set_num_threads(1)
    store = dist.FileStore(f"{folder}/store", COUNT)
    wait = timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=COUNT, timeout=wait)
    mesh = init_device_mesh("cpu", (COUNT,))
    for build in (gpt, Grouped):
        torch.manual_seed(0)
        whole = build().double()
        shared = parallelize_layers(copy.deepcopy(whole), mesh)
        outputs = [model(IDS) for model in (whole, shared)]
        assert_close(outputs[1], outputs[0])
        for output in outputs:
            output.square().sum().backward()
        n_cut = 0
        theirs = dict(shared.named_parameters())
        for name, parameter in whole.named_parameters():
            grad = theirs[name].grad
            if hasattr(grad, "full_tensor"):
                n_cut += grad.to_local().numel() * COUNT == parameter.numel()
                grad = grad.full_tensor()
            assert_close(grad, parameter.grad)
        assert n_cut >= 10
    dist.destroy_process_group()


def test_two_processes_are_one_forward_and_backward(tmp_path):
    children = []
    for rank in range(COUNT):
        child = os.fork()  # what is imported already need not be imported again
        if child == 0:
            status = 1
            try:
                compare(rank, tmp_path)
                status = 0
            finally:
                os._exit(status)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * COUNT


@pytest.fixture
def mesh():
    """Two processes of which only this one exists: shapes are right, sums are not."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=COUNT)
    yield init_device_mesh("cpu", (COUNT,))
    dist.destroy_process_group()


def test_each_process_holds_half_of_the_heads_and_of_the_hidden_units(mesh):
    layer = EncoderLayer(12, n_heads=4, d_ff=14)
    whole = {name: p.numel() for name, p in layer.named_parameters()}
    assert parallelize_layers(layer, mesh) is layer
    assert layer.attention.n_heads == 2
    for name, parameter in layer.named_parameters():
        here = getattr(parameter, "_local_tensor", parameter).numel()
        in_all = "norm" in name or name.endswith(("to_output.bias", "narrow.bias"))
        assert here == (whole[name] if in_all else whole[name] // COUNT), name


@pytest.mark.messages
def test_refusals_come_before_anything_is_changed(mesh):
    for layer, message in (
        (EncoderLayer(9, n_heads=3, d_ff=14), "2 processes must divide n_heads=3"),
        (MultiHeadAttention(8, 4, n_kv_heads=1), "2 processes must divide n_kv_heads=1"),
        (EncoderLayer(8, n_heads=2, d_ff=15), "2 processes must divide d_ff=15"),
        (MultiHeadAttention(8, 2, positions=Alibi(2)), "Alibi adds to the scores of each head"),
        (nn.Linear(8, 8), "Linear holds no MultiHeadAttention and no FeedForward"),
    ):
        with pytest.raises(ValueError, match=message):
            parallelize_layers(layer, mesh)
        assert not any(hasattr(p, "to_local") for p in layer.parameters())
    with pytest.raises(TypeError, match="model must be a module, such as a GPT, got the class"):
        parallelize_layers(FeedForward, mesh)
