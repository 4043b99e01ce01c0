"""Ways to attend to long sequences: time and bytes against length, each beside its peer.

Two peers are not among the requirements: ``pip install local-attention linformer``. What is missing
is left out, and the title of the table says so. Hugging Face's BigBird draws blocks for each head,
and none in ``eval()``, so its outputs can't be ours; all the other pairs are compared once they are
equal, or the table says why not.
"""

import importlib.util
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from measure import Effort, Table, check_equal, time_rounds
from torch import Tensor, nn

from attnlib.efficient.bigbird import bigbird_layout, block_sparse_attention
from attnlib.efficient.checkpointing import checkpoint_layers
from attnlib.efficient.linformer import LengthProjection, LinformerAttention
from attnlib.efficient.longformer import window_attention
from attnlib.efficient.tiled import tiled_attention
from attnlib.functional import attention
from attnlib.masks import window_mask
from attnlib.memory import saved_bytes
from attnlib.models.gpt import GPT, GPTConfig

HEADS, D_HEAD, RADIUS, BLOCK, RANK = 4, 64, 256, 64, 256
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
DENSE_UP_TO = 4096  # the weights of one pass take 1 GiB there, and backward three times as much
PASSES = ("forward", "forward + backward")
PACKAGES = ("local_attention", "linformer", "transformers")
DATA = Path(__file__).parents[2] / "attnlib" / "efficient" / "measured.json"


def run(effort: Effort, quick: bool) -> list[Table]:
    """Time and bytes against the length; the chapter draws them."""
    torch.manual_seed(0)
    lengths = (64, 128) if quick else LENGTHS
    effort = Effort(effort.rounds, min(effort.seconds, 3.0))  # there are many comparisons
    measured = _measure(lengths, effort)
    if not quick:
        DATA.write_text(json.dumps({"lengths": lengths, "measured": measured}, indent=1) + "\n")
    return [_growth(lengths, measured)]


def run_checkpointing(effort: Effort, quick: bool) -> list[Table]:
    """What checkpointing saves, and what it costs."""
    torch.manual_seed(0)
    return [_checkpointed(effort, quick)]


def run_peers(effort: Effort, quick: bool) -> list[Table]:
    """Against PyTorch's kernel, and packages that a reader may have installed."""
    torch.manual_seed(0)
    return [_against_peers(effort, quick), _compile_time(quick)]


# ---------------------------------------------------------------------- against the length

Measured = dict[str, dict[str, list[float]]]  # of a method, of what: one number for each length


def _measure(lengths: tuple[int, ...], effort: Effort) -> Measured:
    """All methods in turn at each length, so that they meet the same noise; the medians."""
    whats = [f"{which}, ms" for which in PASSES]
    found = {name: {what: [] for what in (*whats, "kept, MB")} for name in _methods()}
    for length in lengths:
        built = {name: build(length) for name, build in _methods().items()}
        if length > DENSE_UP_TO:
            del built["dense"]
        for what, grad in zip(whats, (False, True), strict=True):
            contenders = {
                name: partial(_pass, call, inputs, grad) for name, (inputs, call) in built.items()
            }
            rounds = time_rounds(contenders, effort)
            for name, seconds in rounds.seconds.items():
                found[name][what].append(_rounded(statistics.median(seconds) * 1e3))
        for name, (inputs, call) in built.items():
            known = [*inputs, *([call] if isinstance(call, nn.Module) else [])]
            kept = saved_bytes(partial(call, *inputs), leave_out=known)
            found[name]["kept, MB"].append(_rounded(kept / 2**20))
        for name in built:  # if the rest never comes
            latest = {what: values[-1] for what, values in found[name].items()}
            print(length, name, latest, file=sys.stderr, flush=True)
    return found


def _growth(lengths: tuple[int, ...], measured: Measured) -> Table:
    table = Table(
        f"Time and bytes kept for backward against length (batch 1, {HEADS} heads of {D_HEAD})",
        ["method", "what", *map(str, lengths), "exponent"],
    )
    slopes = {}
    for name, columns in measured.items():
        for what, values in columns.items():
            slope = slopes[name, what] = _exponent(lengths[: len(values)], values)
            missing = [""] * (len(lengths) - len(values))
            table.add(name, what, *values, *missing, f"{slope:.2f}")
    table.promise("tiled, exponent of bytes kept", slopes["tiled", "kept, MB"], 1.05)
    tiled, fused = (measured[name]["kept, MB"][-1] for name in ("tiled", "fused"))
    table.promise(f"tiled, bytes kept over SDPA's at {lengths[-1]}", tiled / fused, 1.1)
    for name in ("window", "BigBird", "Linformer"):
        for which in PASSES:
            slope = slopes[name, f"{which}, ms"]
            table.promise(f"{name}, exponent of time, {which}", slope, 1.1)
    return table


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def _methods() -> dict[str, Callable[[int], tuple[list[Tensor], Callable[..., Tensor]]]]:
    def of_qkv(call: Callable[..., Tensor]) -> Callable[[int], tuple]:
        return lambda length: (_qkv(length), call)

    return {
        "dense": of_qkv(lambda *qkv: attention(*qkv)[0]),
        "fused": of_qkv(F.scaled_dot_product_attention),
        "tiled": of_qkv(tiled_attention),
        "window": of_qkv(partial(window_attention, radius=RADIUS)),
        "BigBird": lambda length: (_qkv(length), _bigbird(length)),
        "Linformer": _linformer,
    }


def _bigbird(length: int) -> Callable[..., Tensor]:
    layout = bigbird_layout(length // BLOCK, generator=torch.Generator().manual_seed(0))
    return partial(block_sparse_attention, layout=layout, block_size=BLOCK)


def _linformer(length: int) -> tuple[list[Tensor], Callable[..., Tensor]]:
    width = HEADS * D_HEAD
    layer = LinformerAttention(width, HEADS, to_short=LengthProjection(length, min(RANK, length)))
    x = torch.randn(1, length, width, requires_grad=True)
    return [x], layer


def _exponent(lengths: tuple[int, ...], values: list[float]) -> float:
    """The slope of log value over log length, fitted to the three longest."""
    xs, ys = ([math.log(n) for n in numbers[-3:]] for numbers in (lengths, values))
    return statistics.linear_regression(xs, ys).slope


# ------------------------------------------------------------------------ against the peers


def _against_peers(effort: Effort, quick: bool) -> Table:
    missing = [name for name in PACKAGES if not importlib.util.find_spec(name)]
    without = f"; not installed: {', '.join(missing)}" if missing else ""
    table = Table(
        f"Time over that of a peer (batch 1, {HEADS} heads of {D_HEAD}){without}",
        ["method", "peer", "length", "pass", "peer ms", "ours / peer", "rounds"],
    )
    for method, peer, length, build, equal, bars in _comparisons(quick):
        if peer.split()[0] in missing:
            table.add(method, peer, length, "not installed", "", "", "")
            continue
        inputs, ours, theirs = build(length)
        for grad, which, bar in zip((False, True), PASSES, bars, strict=False):
            calls = {"ours": ours, peer: theirs}
            contenders = {k: partial(_pass, call, inputs, grad) for k, call in calls.items()}
            if equal:
                check_equal(contenders, tolerance=1e-4)
            rounds = time_rounds(contenders, effort)
            ratio = rounds.ratio("ours", peer)
            table.add(method, peer, length, which, rounds.milliseconds(peer), ratio, rounds.count())
            table.promise(f"{method} over {peer} at {length}, {which}", ratio.median, bar)
    return table


def _comparisons(quick: bool) -> list[tuple]:
    """Method, peer, length, what builds them, whether they compute the same, the two bars."""
    n4, n8, n16 = (128, 192, 256) if quick else (4096, 8192, 16384)
    return [
        ("tiled", "SDPA", n4, _tiled_pair, True, (1.25, 1.35)),
        ("window", "SDPA with its mask", n8, _window_pair, True, (0.075, 0.11)),
        ("window", "SDPA without a mask", n16, _window_full_pair, False, (0.045, 0.045)),
        ("window", "compiled FlexAttention", n16, partial(_flex_pair, quick), True, (1.0,)),
        ("window", "local_attention", n16, _local_pair, True, (0.5, 0.85)),
        ("window", "transformers Longformer", n16, _longformer_pair, True, (0.3, 0.3)),
        ("BigBird", "transformers BigBird", n8, _bigbird_pair, False, (0.15, 0.33)),
        ("Linformer", "linformer", n4, _linformer_pair, True, (0.55, 0.65)),
    ]


def _tiled_pair(length: int) -> tuple:
    return _qkv(length), tiled_attention, F.scaled_dot_product_attention


def _radius(length: int) -> int:
    return min(RADIUS, length // 4)


def _window_pair(length: int) -> tuple:
    radius = _radius(length)
    dense = partial(F.scaled_dot_product_attention, attn_mask=window_mask(length, radius=radius))
    return _qkv(length), partial(window_attention, radius=radius), dense


def _window_full_pair(length: int) -> tuple:
    ours = partial(window_attention, radius=_radius(length))
    return _qkv(length), ours, F.scaled_dot_product_attention


def _flex_pair(quick: bool, length: int) -> tuple:
    """Forward alone: on a CPU its backward pass does not exist."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    radius = _radius(length)
    near = create_block_mask(
        lambda b, h, q, k: (q - k).abs() <= radius, None, None, length, length, device="cpu"
    )
    compiled = flex_attention if quick else torch.compile(flex_attention)
    inputs = [x.detach() for x in _qkv(length)]
    return inputs, partial(window_attention, radius=radius), partial(compiled, block_mask=near)


def _compile_time(quick: bool) -> Table:
    """Seconds until the first answer, in a process that has compiled nothing of this kind yet."""
    length = 256 if quick else 2 * LENGTHS[0]
    table = Table("The first call, s; the kernel of FlexAttention is compiled there", ["length"])
    table.header += ["ours", "FlexAttention"]
    torch.compiler.reset()
    with torch._inductor.config.patch(force_disable_caches=True):
        inputs, *calls = _flex_pair(quick, length)
        took = []
        for call in calls:
            start = time.perf_counter()
            _pass(call, inputs, backward=False)
            took.append(f"{time.perf_counter() - start:.3g}")
    table.add(length, *took)
    return table


def _local_pair(length: int) -> tuple:
    from local_attention import LocalAttention

    radius = _radius(length)
    peer = LocalAttention(
        radius, causal=False, look_backward=1, look_forward=1, exact_windowsize=True,
        use_rotary_pos_emb=False, autopad=True,
    )  # fmt: skip
    return _qkv(length), partial(window_attention, radius=radius), peer


class _AttentionOfTokens(nn.Module):
    """Our function between the projections that the modules of Hugging Face have."""

    def __init__(self, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.project = nn.Linear(HEADS * D_HEAD, 3 * HEADS * D_HEAD)
        self.call = call

    def load(self, module: nn.Module) -> None:
        layers = (module.query, module.key, module.value)
        with torch.no_grad():
            self.project.weight.copy_(torch.cat([layer.weight for layer in layers]))
            self.project.bias.copy_(torch.cat([layer.bias for layer in layers]))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.project(x).unflatten(-1, (3, HEADS, D_HEAD)).permute(2, 0, 3, 1, 4)
        return self.call(q, k, v).transpose(1, 2).flatten(2)


def _longformer_pair(length: int) -> tuple:
    from transformers import LongformerConfig
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    radius = _radius(length)
    config = LongformerConfig(
        hidden_size=HEADS * D_HEAD, num_attention_heads=HEADS, attention_window=[2 * radius],
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    module = LongformerSelfAttention(config, layer_id=0)
    mask = torch.zeros(1, length)

    def peer(x: Tensor) -> Tensor:
        hidden = mask < 0
        return module(
            x, attention_mask=mask, is_index_masked=hidden, is_index_global_attn=hidden,
            is_global_attn=False,
        )[0]  # fmt: skip

    ours = _AttentionOfTokens(partial(window_attention, radius=radius))
    ours.load(module)
    return [_tokens(length)], ours, peer


def _bigbird_pair(length: int) -> tuple:
    from transformers import BigBirdConfig
    from transformers.models.big_bird.modeling_big_bird import (
        BigBirdBlockSparseAttention,
        BigBirdModel,
    )

    block = min(BLOCK, length // 12)
    config = BigBirdConfig(
        hidden_size=HEADS * D_HEAD, num_attention_heads=HEADS, block_size=block,
        max_position_embeddings=max(4096, length), use_bias=True,
    )  # fmt: skip
    module = BigBirdBlockSparseAttention(config, seed=0)
    masks = BigBirdModel.create_masks_for_block_sparse_attn(torch.ones(1, length), block)
    blocked, band, from_mask, to_mask = masks

    def peer(x: Tensor) -> Tensor:
        module.train(torch.is_grad_enabled())  # forward as for an answer: it draws no blocks
        return module(x, band, from_mask, to_mask, blocked, blocked)[0]

    layout = bigbird_layout(length // block, generator=torch.Generator().manual_seed(0))
    ours = _AttentionOfTokens(partial(block_sparse_attention, layout=layout, block_size=block))
    return [_tokens(length)], ours, peer


def _linformer_pair(length: int) -> tuple:
    from linformer import LinformerSelfAttention

    width, rank = HEADS * D_HEAD, min(RANK, length // 4)
    peer = LinformerSelfAttention(width, length, k=rank, heads=HEADS)
    ours = LinformerAttention(
        width, HEADS, to_short=LengthProjection(length, rank),
        value_to_short=LengthProjection(length, rank), bias=False,
    )  # fmt: skip
    with torch.no_grad():  # theirs has a bias at the end alone
        peer.to_out.bias.zero_()
        for name in ("query", "key", "value"):
            getattr(ours, f"to_{name}").weight.copy_(getattr(peer, f"to_{name[0]}").weight)
        ours.to_output.weight.copy_(peer.to_out.weight)
        ours.to_short.weight.copy_(peer.proj_k.T)
        ours.value_to_short.weight.copy_(peer.proj_v.T)
    return [_tokens(length)], ours, peer


# ---------------------------------------------------------------------------- checkpointing


def _checkpointed(effort: Effort, quick: bool) -> Table:
    n_layers, batch, length = (2, 2, 16) if quick else (8, 4, 256)
    config = GPTConfig(512, 256, 4, n_layers, 1024, max_len=length, dropout=0.0)
    plain, checkpointed = GPT(config), checkpoint_layers(GPT(config))
    checkpointed.load_state_dict(plain.state_dict())
    ids = torch.randint(config.vocab_size, (batch, length))
    models = {"ours": checkpointed, "plain": plain}
    contenders = {name: partial(_step, model, ids) for name, model in models.items()}
    check_equal(contenders, tolerance=1e-4)
    kept = {
        name: saved_bytes(partial(model, ids), leave_out=[model]) for name, model in models.items()
    }
    rounds = time_rounds(contenders, effort)
    ratio = rounds.ratio("ours", "plain")
    table = Table(
        f"A GPT of {n_layers} layers, {batch} x {length} tokens: each layer checkpointed over none",
        ["plain ms", "time", "plain MB kept", "MB kept", "times fewer", "rounds"],
    )
    fewer = kept["plain"] / kept["ours"]
    megabytes = (f"{kept[name] / 2**20:.3g}" for name in ("plain", "ours"))
    table.add(rounds.milliseconds("plain"), ratio, *megabytes, f"{fewer:.1f}", rounds.count())
    table.promise("time of a pass forward and backward", ratio.median, 1.33)
    table.promise("bytes kept, as a share", 1 / fewer, 1 / 8)
    return table


def _step(model: GPT, ids: Tensor) -> list[Tensor]:
    loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))]


# -------------------------------------------------------------------------------- the inputs


def _qkv(length: int) -> list[Tensor]:
    return [torch.randn(1, HEADS, length, D_HEAD, requires_grad=True) for _ in range(3)]


def _tokens(length: int) -> Tensor:
    return torch.randn(1, length, HEADS * D_HEAD, requires_grad=True)


def _pass(call: Callable[..., Tensor], inputs: list[Tensor], backward: bool) -> list[Tensor]:
    if not backward:
        with torch.no_grad():
            return [call(*inputs)]
    output = call(*inputs)
    return [output, *torch.autograd.grad(output, inputs, torch.ones_like(output))]
