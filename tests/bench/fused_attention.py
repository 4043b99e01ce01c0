"""The fused twin against PyTorch's SDPA with the same arguments: time, and memory."""

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from measure import Effort, Table, check_equal, peak_growth, peak_in_fresh_process, time_rounds
from torch import Tensor

from attnlib.functional import fused_attention
from attnlib.masks import causal_mask, padding_mask

LENGTHS = (128, 256, 512, 1024, 2048, 4096)
SHAPES = ((1, 4), (1, 8), (2, 8))  # batch, heads
D_HEAD = 64
MOST = {"none": 1.03, "padding": 1.03, "causal": 1.1}  # causal: at the greatest length


def run(effort: Effort, quick: bool) -> list[Table]:
    lengths, shapes = ((32, 64), ((1, 2),)) if quick else (LENGTHS, SHAPES)
    peaks = _peaks(["causal"], [1024]) if quick else _peaks(list(MOST), LENGTHS)
    return [_times(effort, lengths, shapes), peaks]


def _times(effort: Effort, lengths: tuple[int, ...], shapes: tuple[tuple[int, int], ...]) -> Table:
    table = Table(
        "Time over that of SDPA (a causal mask: over SDPA with is_causal=True)",
        ["mask", "batch x heads", "length", "pass", "SDPA ms", "ours / SDPA", "rounds"],
    )
    for mask, most in MOST.items():
        for backward in (False, True):
            which = "forward + backward" if backward else "forward"
            found = {}
            for batch, heads in shapes:
                for length in lengths:
                    contenders = _contenders(mask, batch, heads, length, backward)
                    check_equal(contenders, tolerance=1e-5)
                    rounds = time_rounds(contenders, effort)
                    ratio = found[batch, heads, length] = rounds.ratio("ours", "SDPA")
                    table.add(
                        mask, f"{batch} x {heads}", length, which,
                        rounds.milliseconds("SDPA"), ratio, rounds.count(),
                    )  # fmt: skip
            _promise(table, f"mask {mask}, {which}", found, most, mask == "causal")
    return table


def _promise(table: Table, what: str, found: dict, most: float, only_longest: bool) -> None:
    longest = max(length for _, _, length in found)
    counts = {k: r.median for k, r in found.items() if not only_longest or k[2] == longest}
    batch, heads, length = worst = max(counts, key=counts.get)
    table.promise(f"{what}, worst at {batch} x {heads} x {length}", counts[worst], most)


def _peaks(masks: list[str], lengths: Sequence[int]) -> Table:
    table = Table(
        "Growth of peak memory in a fresh process, MB (batch 1, 8 heads)",
        ["mask", "length", "pass", "SDPA", "ours", "ours - SDPA"],
    )
    for mask in masks:
        for length in lengths:
            for backward in (False, True):
                ours, sdpa = (
                    peak_in_fresh_process(_peak, who, mask, length, backward)
                    for who in ("ours", "SDPA")
                )
                which = "forward + backward" if backward else "forward"
                more = f"{ours - sdpa:+.2f}"
                table.add(mask, length, which, f"{sdpa:.2f}", f"{ours:.2f}", more)
    return table


def _peak(who: str, mask: str, length: int, backward: bool) -> float:
    torch.set_num_threads(2)
    for warm_up in _contenders(mask, 1, 8, 64, backward).values():
        warm_up()  # loads the code of the kernels, which counts as memory
    return peak_growth(_contenders(mask, 1, 8, length, backward)[who])


def _contenders(
    mask: str, batch: int, heads: int, length: int, backward: bool
) -> dict[str, Callable[[], list[Tensor]]]:
    torch.manual_seed(0)
    qkv = [torch.randn(batch, heads, length, D_HEAD, requires_grad=backward) for _ in range(3)]
    grad = torch.randn(batch, heads, length, D_HEAD)
    ours, sdpa = _arguments(mask, batch, length)
    calls = {
        "ours": partial(fused_attention, *qkv, **ours),
        "SDPA": partial(F.scaled_dot_product_attention, *qkv, **sdpa),
    }
    if backward:
        return {who: partial(_forward_backward, call, qkv, grad) for who, call in calls.items()}
    return {who: partial(_forward, call) for who, call in calls.items()}


def _arguments(mask: str, batch: int, length: int) -> tuple[dict, dict]:
    if mask == "none":
        return {}, {}
    if mask == "causal":
        return {"mask": causal_mask(length)}, {"is_causal": True}
    padding = padding_mask(torch.linspace(length // 2, length, batch).int(), length)
    return {"mask": padding}, {"attn_mask": padding}


def _forward(call: Callable[[], Tensor]) -> list[Tensor]:
    with torch.no_grad():
        return [call()]


def _forward_backward(
    call: Callable[[], Tensor], inputs: list[Tensor], grad: Tensor
) -> list[Tensor]:
    output = call()
    return [output, *torch.autograd.grad(output, inputs, grad)]
