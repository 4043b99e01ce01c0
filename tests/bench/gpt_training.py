"""A training step of GPT against Hugging Face's GPT-2: forward, backward and AdamW."""

import copy
import dataclasses
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from gpt_pair import NanoGPT, gpt_pair
from gpt_peers import MAKERS, peer_of, version_of
from measure import Effort, Table, check_equal, time_rounds, training_step
from torch import Tensor, nn

from attnlib.memory import saved_bytes
from attnlib.models.gpt import GPT, GPTConfig, gpt_state_from_hugging_face

CONFIG = GPTConfig(1024, d_model=256, n_heads=4, n_layers=4, d_ff=1024, max_len=256)
BATCH = 16
BARS = {0.0: 0.93, 0.1: 0.80}  # for each dropout
BAR_BF16 = 0.68

Loss = Callable[[], Tensor]


def run(effort: Effort, quick: bool) -> list[Table]:
    torch.manual_seed(0)
    config = GPTConfig(97, 16, 2, 2, 32, max_len=8) if quick else CONFIG
    text = torch.randint(config.vocab_size, (2 if quick else BATCH, config.max_len + 1))
    sizes = f"{config.n_layers} layers, d {config.d_model}, {len(text)} x {config.max_len} tokens"
    return [
        _against_peers(config, text, effort, sizes),
        _against_libraries(config, text, effort, sizes),
        _bf16(config, text, effort, sizes),
    ]


def _against_peers(config: GPTConfig, text: Tensor, effort: Effort, sizes: str) -> Table:
    table = Table(
        "Time of a training step over that of GPT2LMHeadModel (sdpa), and of nanoGPT's layout; "
        f"MB kept for the backward pass: {sizes}",
        ["dropout", "GPT-2 ms", "ours / GPT-2", "nanoGPT ms", "ours / nanoGPT", "MB: GPT-2",
         "nanoGPT", "ours", "rounds"],
    )  # fmt: skip
    for dropout, bar in BARS.items():
        ours, theirs = gpt_pair(dataclasses.replace(config, dropout=dropout))
        models = {"ours": ours, "GPT-2": theirs, "nanoGPT": NanoGPT(copy.deepcopy(ours))}
        losses = {name: partial(_loss, model, text) for name, model in models.items()}
        if dropout == 0:
            _check_equal_gradients(losses, models)
        kept = {
            name: saved_bytes(losses[name], leave_out=[model, text]) / 1e6
            for name, model in models.items()
        }
        steps = {name: training_step(losses[name], model) for name, model in models.items()}
        rounds = time_rounds(steps, effort)
        ratios = [rounds.ratio("ours", peer) for peer in ("GPT-2", "nanoGPT")]
        table.add(
            dropout, rounds.milliseconds("GPT-2"), ratios[0], rounds.milliseconds("nanoGPT"),
            ratios[1], *(f"{kept[name]:.4g}" for name in ("GPT-2", "nanoGPT", "ours")),
            rounds.count(),
        )  # fmt: skip
        table.promise(f"a step with dropout {dropout} over GPT-2", ratios[0].median, bar)
        table.promise(
            f"MB kept, dropout {dropout}, over nanoGPT", kept["ours"] / kept["nanoGPT"], 1
        )
    return table


def _against_libraries(config: GPTConfig, text: Tensor, effort: Effort, sizes: str) -> Table:
    table = Table(
        "Time of a training step over that of other libraries' GPTs, which have equal sizes but "
        f"not equal outputs: {sizes}",
        [
            "library",
            "version",
            "dropout",
            "its parameters / ours",
            "its ms",
            "ours / its",
            "rounds",
        ],
    )
    for library in MAKERS:
        for dropout in BARS:
            sized = dataclasses.replace(config, dropout=dropout)
            peer = peer_of(library, sized)
            if peer is None:
                why = "it has none" if dropout and version_of(library) != "not installed" else "-"
                table.add(library, version_of(library), dropout, why, "-", "-", "-")
                continue
            same_bend = GPT(sized, activation=nn.GELU())  # theirs is exact as well, not by tanh
            models = {"ours": same_bend, library: peer}
            ours, its = (sum(p.numel() for p in m.parameters()) for m in models.values())
            steps = {n: training_step(partial(_loss, m, text), m) for n, m in models.items()}
            rounds = time_rounds(steps, effort)
            ratio = rounds.ratio("ours", library)
            table.add(
                library, version_of(library), dropout, f"{its / ours:.3f}",
                rounds.milliseconds(library), ratio, rounds.count(),
            )  # fmt: skip
            table.promise(f"a step with dropout {dropout} over {library}", ratio.median, 1)
    return table


def _bf16(config: GPTConfig, text: Tensor, effort: Effort, sizes: str) -> Table:
    table = Table(
        f"Time of our training step under autocast over that in float32: {sizes}",
        ["float32 ms", "bfloat16 / float32", "rounds"],
    )
    config = dataclasses.replace(config, dropout=0.0)
    exact, rough = (gpt_pair(config)[0] for _ in range(2))
    steps = {
        "float32": training_step(partial(_loss, exact, text), exact),
        "bfloat16": training_step(partial(_loss_in_bfloat16, rough, text), rough),
    }
    rounds = time_rounds(steps, effort)
    ratio = rounds.ratio("bfloat16", "float32")
    table.add(rounds.milliseconds("float32"), ratio, rounds.count())
    table.promise("a step under autocast", ratio.median, BAR_BF16)
    return table


def _loss(model: nn.Module, text: Tensor) -> Tensor:
    output = model(text[:, :-1])
    logits = output if isinstance(output, Tensor) else output.logits
    return F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def _loss_in_bfloat16(model: nn.Module, text: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return _loss(model, text)


def _check_equal_gradients(losses: dict[str, Loss], models: dict[str, nn.Module]) -> None:
    """The losses, and the gradients by the names that all three have, or can be given."""

    def gradients(name: str) -> list[Tensor]:
        value = losses[name]()
        parameters = dict(models[name].named_parameters())
        found = torch.autograd.grad(value, parameters.values(), allow_unused=True)
        by_name = dict(zip(parameters, found, strict=True))
        if name == "GPT-2":
            by_name = gpt_state_from_hugging_face(by_name)
        return [value, *(by_name[key] for key in ("tokens.weight", "norm.weight"))]

    check_equal({name: partial(gradients, name) for name in losses}, 1e-4)
