"""Tensor parallelism: the heads and the hidden units of a layer, dealt out to several processes.

Everything is PyTorch's own: ``parallelize_module`` cuts the weights, and its linear layers talk to
each other. See it work, in two processes on this machine::

    torchrun --nproc-per-node 2 -m attnlib.efficient.parallel

The same command, with ``--nnodes`` and an address, starts the processes of many machines.
"""

import copy

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)

from attnlib.checks import check_module
from attnlib.layers import EncoderLayer, FeedForward, GatedFeedForward, MultiHeadAttention
from attnlib.memory import saved_bytes
from attnlib.positions import Rope

# The first maps give each process some columns of the result, its own heads or hidden units; the
# last one takes the rows that belong to them, and the sums of all processes are added up.
_PLANS = {
    MultiHeadAttention: {
        "to_query": ColwiseParallel(),
        "to_key": ColwiseParallel(),
        "to_value": ColwiseParallel(),
        "to_output": RowwiseParallel(),
    },
    FeedForward: {"widen": ColwiseParallel(), "narrow": RowwiseParallel()},
    GatedFeedForward: {
        "gate": ColwiseParallel(),
        "widen": ColwiseParallel(),
        "narrow": RowwiseParallel(),
    },
}


def parallelize_layers(model: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """Deal the attention and feed-forward layers of a model out to the processes of a mesh.

    Each process keeps some of the heads and of the hidden units, and the weights that belong to
    them; the rest of the model (embeddings, normalisations) is in all of them. All must start from
    the same model and get the same inputs. Each gets the whole output, and for its part of a
    weight that part of the gradient.

    Args:
        model: A model, or a layer. It is changed in place.
        mesh: The processes, in one dimension: ``init_device_mesh("cpu", (2,))``.

    Returns:
        The model itself.

    Raises:
        TypeError: If it is not a module.
        ValueError: If it holds no such layer, the processes don't divide the heads or the hidden
            units, or positions add to the scores of single heads.

    Example:
        >>> from torch.testing._internal.distributed.fake_pg import FakeStore
        >>> dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
        >>> layer = parallelize_layers(FeedForward(8, 32), init_device_mesh("cpu", (2,)))
        >>> layer.widen.weight.shape, layer.widen.weight.to_local().shape
        (torch.Size([32, 8]), torch.Size([16, 8]))
        >>> dist.destroy_process_group()

    Source:
        Shoeybi et al. 2019 (Megatron-LM), arXiv:1909.08053, section 3;
        ``torch.distributed.tensor.parallel``. Checked against one process, forward and gradient.
    """
    check_module("model", model, "a GPT")
    layers = [(layer, plan) for layer in model.modules() if (plan := _PLANS.get(type(layer)))]
    if not layers:
        raise ValueError(
            f"{type(model).__name__} holds no MultiHeadAttention and no FeedForward of attnlib"
        )
    for layer, _ in layers:  # before anything is changed
        _check_divides(layer, mesh.size())
    for layer, plan in layers:
        parallelize_module(layer, mesh, plan)
        if isinstance(layer, MultiHeadAttention):
            layer.n_heads //= mesh.size()  # from now on it sees its own heads alone
            layer.n_kv_heads //= mesh.size()
    return model


def _check_divides(layer: nn.Module, n_processes: int) -> None:
    if not isinstance(layer, MultiHeadAttention):
        sizes = {"d_ff": layer.widen.out_features}
    else:
        sizes = {"n_heads": layer.n_heads, "n_kv_heads": layer.n_kv_heads}
        if layer.positions is not None and not isinstance(layer.positions, Rope):
            raise ValueError(
                f"{type(layer.positions).__name__} adds to the scores of each head, but a process "
                "sees only some heads; use Rope, or positions in front of the first layer"
            )
    for name, size in sizes.items():
        if size % n_processes:
            raise ValueError(f"{n_processes} processes must divide {name}={size}")


def _compare() -> None:
    """What the command does: one layer alone, then dealt out; the outcome and the bytes of both."""
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(0)  # the same weights and inputs in every process
    whole = EncoderLayer(d_model=256, n_heads=8, d_ff=1024).double()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    shared = parallelize_layers(copy.deepcopy(whole), mesh)
    x = torch.randn(2, 128, 256, dtype=torch.float64, requires_grad=True)
    probe = torch.randn_like(x)
    found = [[], []]
    kept = []
    for layer, tensors in zip((whole, shared), found, strict=True):
        kept.append(saved_bytes(lambda layer=layer: layer(x), leave_out=[x, layer]))
        output = layer(x)
        grads = torch.autograd.grad(output, [x, *layer.parameters()], probe)
        tensors += [output, *(g.full_tensor() if isinstance(g, DTensor) else g for g in grads)]
    apart = max((a - b).abs().max().item() for a, b in zip(*found, strict=True))
    mine = torch.tensor([_bytes_here(whole), _bytes_here(shared), *kept])
    everyone = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everyone, mine)
    if dist.get_rank() == 0:
        _report(apart, everyone)
    dist.destroy_process_group()


def _bytes_here(layer: nn.Module) -> int:
    """Bytes of the parameters that this process holds."""
    parts = (p.to_local() if isinstance(p, DTensor) else p for p in layer.parameters())
    return sum(p.nbytes for p in parts)


def _report(apart: float, everyone: list[Tensor]) -> None:
    print(f"{len(everyone)} processes; output and gradients differ from one by {apart:.0e}")
    parameters, _, kept, _ = everyone[0].tolist()
    print(f"alone:     parameters {parameters:>9,} bytes, kept for backward {kept:>9,}")
    for rank, (_, parameters, _, kept) in enumerate(x.tolist() for x in everyone):
        print(f"process {rank}: parameters {parameters:>9,} bytes, kept for backward {kept:>9,}")


if __name__ == "__main__":
    _compare()
