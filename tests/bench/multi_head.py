"""MultiHeadAttention against PyTorch's layer and Hugging Face's BERT attention, on itself."""

import statistics
from collections.abc import Callable
from functools import partial

import torch
from measure import Effort, Table, check_equal, time_rounds
from torch import Tensor, nn

from attnlib.layers import MultiHeadAttention

SIZES = ((16, 64), (8, 256), (2, 1024))  # batch, length
WIDTHS = (256, 512)
N_HEADS = 8
NO_GRAD, GRAD, TRAIN = "forward, no_grad", "forward, grad on", "forward + backward"


def run(effort: Effort, quick: bool) -> list[Table]:
    sizes, widths = (((2, 8), (1, 16)), (32,)) if quick else (SIZES, WIDTHS)
    table = Table(
        "Time over that of nn.MultiheadAttention(need_weights=False), and of BertSelfAttention "
        "(sdpa) with an output projection",
        ["pass", "d_model", "batch x length", "nn.MHA ms", "ours / nn.MHA", "BERT ms",
         "ours / BERT", "rounds"],
    )  # fmt: skip
    for mode in (NO_GRAD, GRAD, TRAIN):
        over_torch, over_bert = {}, []
        for d_model in widths:
            for batch, length in sizes:
                contenders = _contenders(mode, d_model, batch, length)
                check_equal({k: partial(_stacked, v) for k, v in contenders.items()}, 1e-4)
                rounds = time_rounds(contenders, effort)
                ratios = [rounds.ratio("ours", peer) for peer in ("nn.MHA", "BERT")]
                table.add(
                    mode, d_model, f"{batch} x {length}",
                    rounds.milliseconds("nn.MHA"), ratios[0],
                    rounds.milliseconds("BERT"), ratios[1], rounds.count(),
                )  # fmt: skip
                over_torch[d_model, batch, length] = ratios[0].median
                over_bert.append(ratios[1].median)
        _promise(table, mode, over_torch, over_bert)
    return [table]


def _promise(
    table: Table, mode: str, over_torch: dict[tuple[int, int, int], float], over_bert: list[float]
) -> None:
    if mode == TRAIN:
        median = statistics.median(over_torch.values())
        table.promise(f"{mode} over nn.MHA, median of sizes", median, 0.95)
        table.promise(f"{mode} over nn.MHA, worst size", max(over_torch.values()), 1.0)
    if mode == NO_GRAD:
        longest = max(length for _, _, length in over_torch)
        long = [ratio for size, ratio in over_torch.items() if size[2] == longest]
        short = [ratio for size, ratio in over_torch.items() if size[2] != longest]
        table.promise(f"{mode} over nn.MHA, length {longest}, worst size", max(long), 0.7)
        table.promise(f"{mode} over nn.MHA, shorter, worst size", max(short), 1.02)
    table.promise(f"{mode} over BERT, median of sizes", statistics.median(over_bert), 1.0)


def _contenders(
    mode: str, d_model: int, batch: int, length: int
) -> dict[str, Callable[[], list[Tensor]]]:
    torch.manual_seed(0)
    x = torch.randn(batch, length, d_model, requires_grad=mode == TRAIN)
    grad = torch.randn_like(x)
    ours = MultiHeadAttention(d_model, N_HEADS)
    layers = {"ours": ours, "nn.MHA": _torch_twin(ours, d_model), "BERT": _bert_twin(ours, d_model)}
    calls = {}
    for name, layer in layers.items():
        layer.train(mode == TRAIN)  # in eval mode nn.MHA takes a path of its own
        if mode == TRAIN:
            calls[name] = partial(_forward_backward, layer, x, grad)
        else:
            calls[name] = partial(_forward, layer, x, mode == GRAD)
    return calls


class _TorchTwin(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(d_model, N_HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x, x, x, need_weights=False)[0]


class _BertTwin(nn.Module):
    """Hugging Face keep the output projection in another class, with dropout and a norm."""

    def __init__(self, d_model: int) -> None:
        from transformers import BertConfig
        from transformers.models.bert.modeling_bert import BertSelfAttention

        super().__init__()
        config = BertConfig(
            hidden_size=d_model, num_attention_heads=N_HEADS, attention_probs_dropout_prob=0.0
        )
        config._attn_implementation = "sdpa"
        self.layer = BertSelfAttention(config)
        self.to_output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.to_output(self.layer(x)[0])


def _torch_twin(ours: MultiHeadAttention, d_model: int) -> nn.Module:
    twin = _TorchTwin(d_model)
    projections = (ours.to_query, ours.to_key, ours.to_value)
    with torch.no_grad():
        twin.layer.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        twin.layer.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
    twin.layer.out_proj.load_state_dict(ours.to_output.state_dict())
    return twin


def _bert_twin(ours: MultiHeadAttention, d_model: int) -> nn.Module:
    twin = _BertTwin(d_model)
    twin.layer.query.load_state_dict(ours.to_query.state_dict())
    twin.layer.key.load_state_dict(ours.to_key.state_dict())
    twin.layer.value.load_state_dict(ours.to_value.state_dict())
    twin.to_output.load_state_dict(ours.to_output.state_dict())
    return twin


def _forward(layer: nn.Module, x: Tensor, grad_on: bool) -> list[Tensor]:
    with torch.set_grad_enabled(grad_on):
        return [layer(x)]


def _forward_backward(layer: nn.Module, x: Tensor, grad: Tensor) -> list[Tensor]:
    output = layer(x)
    return [output, *torch.autograd.grad(output, [x, *layer.parameters()], grad)]


def _stacked(call: Callable[[], list[Tensor]]) -> list[Tensor]:
    """Stack the gradients of weights, and those of biases: one layer holds Q, K and V as one."""
    results = call()
    tokens, weights, biases = ([x for x in results if x.ndim == n] for n in (3, 2, 1))
    return [*tokens, *(torch.cat(part) for part in (weights, biases) if part)]
