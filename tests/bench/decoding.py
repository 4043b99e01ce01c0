"""Greedy text with a cache, against Hugging Face's; and late tokens against early ones."""

from collections.abc import Callable
from functools import partial

import torch
from gpt_pair import gpt_pair
from measure import Effort, Table, check_equal, time_rounds
from torch import Tensor, nn

from attnlib.cache import KVCache
from attnlib.generate import greedy
from attnlib.models.gpt import GPT, GPTConfig

CONFIG = GPTConfig(1024, d_model=256, n_heads=4, n_layers=4, d_ff=1024, max_len=1025)
PROMPT, NEW = 8, 256
EARLY, LATE = 32, 1024
BARS = {1: 0.60, 8: 0.67}  # over Hugging Face's time, for each batch size
BARS_LATE = {1: 1.5, 8: 1.9}


def run(effort: Effort, quick: bool) -> list[Table]:
    torch.manual_seed(0)
    config = GPTConfig(97, 16, 2, 2, 32, max_len=33) if quick else CONFIG
    ours, theirs = (model.eval() for model in gpt_pair(config))
    early, late = (4, 32) if quick else (EARLY, LATE)
    return [
        _against_gpt2(ours, theirs, 4 if quick else NEW, effort),
        _late_against_early(ours, early, late, effort),
    ]


def _against_gpt2(ours: GPT, theirs: nn.Module, new: int, effort: Effort) -> Table:
    table = Table(
        f"Time of {new} greedy tokens over that of GPT2LMHeadModel.generate (sdpa, its cache): "
        f"{ours.config.n_layers} layers, d {ours.config.d_model}, a prompt of {PROMPT}",
        ["batch", "GPT-2 ms", "ours / GPT-2", "rounds"],
    )
    for batch, bar in BARS.items():
        ids = torch.randint(ours.config.vocab_size, (batch, PROMPT))
        contenders = {
            "ours": partial(_write, ours, ids, new),
            "GPT-2": partial(_write_with_hugging_face, theirs, ids, new),
        }
        check_equal(contenders, 0.0)
        rounds = time_rounds(contenders, effort)
        ratio = rounds.ratio("ours", "GPT-2")
        table.add(batch, rounds.milliseconds("GPT-2"), ratio, rounds.count())
        table.promise(f"{new} tokens, batch {batch}", ratio.median, bar)
    return table


def _late_against_early(ours: GPT, early: int, late: int, effort: Effort) -> Table:
    table = Table(
        f"Time of token {late} over that of token {early}",
        ["batch", f"token {early}, ms", f"token {late} / token {early}", "rounds"],
    )
    for batch, bar in BARS_LATE.items():
        contenders = {
            "early": _one_token(ours, batch, early),
            "late": _one_token(ours, batch, late),
        }
        rounds = time_rounds(contenders, effort)
        ratio = rounds.ratio("late", "early")
        table.add(batch, rounds.milliseconds("early"), ratio, rounds.count())
        table.promise(f"token {late}, batch {batch}", ratio.median, bar)
    return table


def _write(model: GPT, ids: Tensor, new: int) -> list[Tensor]:
    cache = KVCache(model.config.n_layers, max_len=PROMPT + new)
    return [greedy(model, ids, max_new_tokens=new, cache=cache)]


def _write_with_hugging_face(model: nn.Module, ids: Tensor, new: int) -> list[Tensor]:
    text = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        do_sample=False,
        pad_token_id=0,
    )
    return [text[:, PROMPT:]]


def _one_token(model: GPT, batch: int, number: int) -> Callable[[], None]:
    """Read token ``number`` again and again, those before it being in the cache."""
    cache = KVCache(model.config.n_layers, max_len=number)
    ids = torch.randint(model.config.vocab_size, (batch, number))
    with torch.no_grad():
        model(ids[:, :-1], cache=cache)

    @torch.no_grad()
    def read() -> None:
        model(ids[:, -1:], cache=cache)
        cache.crop(number - 1)

    return read
