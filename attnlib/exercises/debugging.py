"""Exercises on debugging: the reader writes a test, and it is tried on modules sound and broken."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlib.exercises.exercise import Case, Exercise, Suspect
from attnlib.masks import causal_mask

_Run = Callable[[Tensor], Tensor]
_Padded = Callable[[Tensor, Tensor], Tensor]
_TOLERANCE = 1e-5  # above rounding, and far below the weakest leak that is tried


def _moved(after: Tensor, before: Tensor) -> float:
    """The largest change, compared with the size of what was there."""
    return float((after - before).abs().max() / before.abs().max().clamp(min=1e-6))


def _mixed(x: Tensor, seen: Tensor) -> Tensor:
    """Attention of the tokens of x to each other, each feature bent so that nothing cancels."""
    scores = torch.einsum("bqd,bkd->bqk", x, x) / 4
    lowest = torch.finfo(x.dtype).min  # in a row that sees nothing, all get equal shares
    return scores.masked_fill(~seen, lowest).softmax(-1) @ (x + 0.5 * x**2).tanh()


def _seeing(rule: Callable[[Tensor, Tensor, int], Tensor]) -> _Run:
    """Attention under a rule on (query, key, length)."""

    def run(x: Tensor) -> Tensor:
        at = torch.arange(x.shape[1])
        seen = rule(at[:, None], at[None], x.shape[1]) | (at <= at[:, None])
        return _mixed(x, seen)

    return run


def _sound(x: Tensor) -> Tensor:
    return _mixed(x, causal_mask(x.shape[1])[0])


# ------------------------------------------------------------------------------ leaks_future


def _running_sum(x: Tensor) -> Tensor:
    """A causal average by Fourier transform: sound, but each output has rounding of all inputs."""
    length = x.shape[1]
    kernel = torch.zeros(2 * length)
    kernel[:length] = 0.5 ** torch.arange(length)
    spectrum = torch.fft.rfft(x, 2 * length, dim=1) * torch.fft.rfft(kernel)[:, None]
    return torch.fft.irfft(spectrum, 2 * length, dim=1)[:, :length]


def _weak(x: Tensor) -> Tensor:
    return _sound(x) + 1e-3 * x.flip(1)


def _centred(x: Tensor) -> Tensor:
    """Leaks, but not a number that is added to all features of a token."""
    return x.roll(-1, 1) - x.roll(-1, 1).mean(-1, keepdim=True)


def _directions(x: Tensor) -> Tensor:
    """Leaks the direction of a token, and not its length."""
    return x.roll(-1, 1) / x.roll(-1, 1).norm(dim=-1, keepdim=True).clamp(min=1e-6)


def _last_sample_leaks(x: Tensor) -> Tensor:
    return torch.cat([_sound(x[:-1]), _mixed(x[-1:], torch.ones(1, 1, 1).bool())])


def _last_feature_leaks(x: Tensor) -> Tensor:
    return torch.cat([_sound(x)[..., :-1], x.mean(1, keepdim=True).expand_as(x)[..., -1:]], -1)


def _squares_leak(x: Tensor) -> Tensor:
    return _sound(x) + (x**2).mean(1, keepdim=True)


def _future_cases() -> Iterator[Case]:
    of = torch.Generator().manual_seed(1234)  # not the numbers that the reader's test will draw

    def case(words: str, run: _Run, key: str) -> Case:
        return Case(words, (run, torch.randn(2, 5, 3, generator=of)), key, gradient=False)

    yield case("attention without a mask", _seeing(lambda q, k, n: k >= 0), "no-mask")
    yield case("causal attention, which is sound", _sound, "sound")
    yield case("attention that sees one token ahead", _seeing(lambda q, k, n: k == q + 1), "next")
    yield case("tokens each by themselves, which is sound", torch.tanh, "alone")
    yield case("running sums, which are sound", lambda x: x.cumsum(1), "sums")
    yield case("a sound module that computes by Fourier transform, with its rounding",
               _running_sum, "rounding")  # fmt: skip
    yield case("a leak of one part in a thousand", _weak, "weak")
    yield case("a first half that sees all of the first half",
               _seeing(lambda q, k, n: k < n // 2), "prefix")  # fmt: skip
    yield case("a leak into output 3 alone", _seeing(lambda q, k, n: (q == 3) & (k == 4)), "one")
    yield case("a leak of tokens minus their mean", _centred, "centred")
    yield case("a leak of the directions of tokens", _directions, "directions")
    yield case("a leak in the last text of the batch alone", _last_sample_leaks, "last-sample")
    yield case("a leak in the last feature alone", _last_feature_leaks, "last-feature")
    yield case("a leak of squares, which have no sign", _squares_leak, "squares")


def _leaks(run: _Run, x: Tensor, *, cuts: range | None = None, other: Callable | None = None,
           look: Callable = lambda y, cut: y[:, :cut],
           tolerance: float = _TOLERANCE) -> bool:  # fmt: skip
    """Change all tokens from a cut on, and look at the outputs before it."""
    worst, before = 0.0, run(x.clone())
    for cut in range(1, x.shape[1]) if cuts is None else cuts:
        new = torch.randn_like(x) if other is None else other(x)
        later = torch.arange(x.shape[1])[:, None] >= cut
        after = run(torch.where(later, new, x))
        worst = max(worst, _moved(look(after, cut), look(before, cut)))
    return worst > tolerance


def _last_only(run: _Run, x: Tensor) -> bool:
    last = x.shape[1] - 1
    return _leaks(run, x, cuts=range(last, last + 1))


def _middle_only(run: _Run, x: Tensor) -> bool:
    middle = x.shape[1] // 2
    return _leaks(run, x, cuts=range(middle, middle + 1))


def _past_replaced(run: _Run, x: Tensor) -> bool:
    first = torch.arange(x.shape[1])[:, None] < x.shape[1] // 2
    after = run(torch.where(first, torch.randn_like(x), x))
    return _moved(after[:, x.shape[1] // 2 :], run(x)[:, x.shape[1] // 2 :]) > _TOLERANCE


def _mean_moved(run: _Run, x: Tensor) -> bool:
    cut = x.shape[1] // 2
    after = run(torch.cat([x[:, :cut], torch.randn_like(x[:, cut:])], 1))
    return abs(float(after.mean() - run(x).mean())) > _TOLERANCE


def _nan_filled(run: _Run, x: Tensor) -> bool:
    cuts = range(1, x.shape[1])
    later = torch.arange(x.shape[1])[:, None]
    found = [run(x.masked_fill(later >= cut, torch.nan))[:, :cut].isnan().any() for cut in cuts]
    return bool(torch.stack(found).any())


_LEAKS_FUTURE = Exercise(
    name="leaks_future",
    chapter="debugging",
    task="A test: True if an output of run(x), x (batch, length, width), depends on a later token.",
    takes=("run", "x"),
    difficulty="medium",
    minutes=20,
    hints=(
        "Replace tokens from some place on, and compare the outputs before it. Is one place "
        "enough? Is one output?",
        "Replace them by something new in every feature. And how large is a difference that is "
        "no rounding? Two sound programs differ in the seventh digit.",
    ),
    reference=_leaks,
    cases=_future_cases,
    suspects=(
        Suspect("never", "your test finds nothing at all: are the two inputs one and the same "
                "tensor?", lambda run, x: False),
        Suspect("always", "your test finds a leak in everything: are the outputs of the replaced "
                "tokens compared, too? They may change", lambda run, x: True),
        Suspect("opposite", "your test says True where there is no leak",
                lambda run, x: not _leaks(run, x)),
        Suspect("last-token-only", "only the last token is replaced: a leak between two earlier "
                "ones goes unseen", _last_only),
        Suspect("one-cut", "the tokens are replaced from one place on: a leak on one side of it "
                "goes unseen", _middle_only),
        Suspect("first-output-only", "only the first output is looked at",
                lambda run, x: _leaks(run, x, look=lambda y, cut: y[:, :1])),
        Suspect("past-replaced", "you replace the past and look at what comes later: that may "
                "change", _past_replaced),
        Suspect("exact", "equal to the last bit is too much to ask: rounding is no leak",
                lambda run, x: _leaks(run, x, tolerance=0.0)),
        Suspect("too-tolerant", "a difference of one in a hundred is allowed, and a weak leak is "
                "smaller", lambda run, x: _leaks(run, x, tolerance=1e-2)),
        Suspect("same-added", "the same number is added to all features of a token: where a mean "
                "is taken off, nobody sees that",
                lambda run, x: _leaks(run, x, other=lambda x: x + 1)),
        Suspect("scaled", "the tokens are only made longer: where they are normalised, nobody "
                "sees that",
                lambda run, x: _leaks(run, x, other=lambda x: 3 * x)),
        Suspect("sign-flipped", "the tokens only change their sign: a square does not see that",
                lambda run, x: _leaks(run, x, other=lambda x: -x)),
        Suspect("first-sample-only", "only the first text of the batch is looked at",
                lambda run, x: _leaks(run, x, look=lambda y, cut: y[:1, :cut])),
        Suspect("first-feature-only", "only the first feature is looked at",
                lambda run, x: _leaks(run, x, look=lambda y, cut: y[:, :cut, :1])),
        Suspect("mean-compared", "one mean over everything is compared", _mean_moved),
        Suspect("nan-filled", "NaN spreads through every sum, even times 0: a sound module seems "
                "to leak", _nan_filled),
    ),
)  # fmt: skip

# ----------------------------------------------------------------------------- reads_padding


def _masked(hide: Callable[[Tensor], Tensor]) -> _Padded:
    """Attention to the keys that a rule on ``real`` leaves over."""
    return lambda x, real: _mixed(x, hide(real)[:, None])


def _rounds_padding(x: Tensor, real: Tensor) -> Tensor:
    """Sound, but something of the padding's size comes and goes."""
    size = (x * ~real[..., None]).sum((1, 2), keepdim=True)
    return _masked(lambda real: real)(x, real) + size - size


def _weak_padding(x: Tensor, real: Tensor) -> Tensor:
    padding = (x * ~real[..., None]).mean(1, keepdim=True)
    return _masked(lambda real: real)(x, real) + 1e-3 * padding


def _first_padding_seen(real: Tensor) -> Tensor:
    return real | (torch.arange(real.shape[1]) == real.sum(1, keepdim=True))


def _last_text_unmasked(real: Tensor) -> Tensor:
    return real | (torch.arange(len(real)) == len(real) - 1)[:, None]


def _leaks_into_last_real(x: Tensor, real: Tensor) -> Tensor:
    last = torch.arange(x.shape[1]) == real.sum(1, keepdim=True) - 1
    padding = (x * ~real[..., None]).sum(1, keepdim=True)
    return _masked(lambda real: real)(x, real) + padding * last[..., None]


def _normalised_over_all(x: Tensor, real: Tensor) -> Tensor:
    return (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)


def _direction_of_padding(x: Tensor, real: Tensor) -> Tensor:
    unit = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6)
    return _masked(torch.ones_like)(unit, real)


def _padding_cases() -> Iterator[Case]:
    of = torch.Generator().manual_seed(1234)

    def case(words: str, run: _Padded, key: str, pad: float | None = None) -> Case:
        x = torch.randn(3, 6, 4, generator=of)
        real = torch.arange(6) < torch.tensor([3, 6, 4])[:, None]
        x = x if pad is None else x.masked_fill(~real[..., None], pad)
        return Case(words, (run, x, real), key, gradient=False)

    every = _masked(torch.ones_like)
    yield case("attention without a mask", every, "no-mask")
    yield case("attention that hides padding, which is sound", _masked(lambda real: real), "sound")
    yield case("attention without a mask, the padding all zeros", every, "zeros", pad=0.0)
    yield case("tokens each by themselves, which is sound", lambda x, real: x.tanh(), "alone")
    yield case("a sound module with rounding", _rounds_padding, "rounding")
    yield case("padding that counts one part in a thousand", _weak_padding, "weak")
    yield case("a mask that lets the first padding through", _masked(_first_padding_seen), "first")
    yield case("a last text without a mask", _masked(_last_text_unmasked), "last-text")
    yield case("padding that leaks into the last real token", _leaks_into_last_real, "last-real")
    yield case("a mask the wrong way round", _masked(lambda real: ~real), "inverted")
    yield case("a mean over real tokens and padding", _normalised_over_all, "mean")
    yield case("padding of which only the direction counts", _direction_of_padding, "direction")


def _reads(run: _Padded, x: Tensor, real: Tensor, *, other: Callable = torch.randn_like,
           where: Callable = lambda real: ~real, look: Callable = lambda y, real: y[real],
           tolerance: float = _TOLERANCE) -> bool:  # fmt: skip
    """Change what stands in the padding, and look at the outputs of real tokens."""
    changed = torch.where(where(real)[..., None], other(x), x)
    before, after = run(x.clone(), real), run(changed, real)
    return _moved(look(after, real), look(before, real)) > tolerance


def _last_place(real: Tensor) -> Tensor:
    return ~real & (torch.arange(real.shape[1]) == real.shape[1] - 1)


def _mask_dropped(run: _Padded, x: Tensor, real: Tensor) -> bool:
    return _moved(run(x, torch.ones_like(real))[real], run(x, real)[real]) > _TOLERANCE


def _padding_is_nan(run: _Padded, x: Tensor, real: Tensor) -> bool:
    return bool(run(x.masked_fill(~real[..., None], torch.nan), real)[real].isnan().any())


_READS_PADDING = Exercise(
    name="reads_padding",
    chapter="debugging",
    task="A test: True if what stands in the padding of x changes a real output of run(x, real).",
    takes=("run", "x", "real"),
    difficulty="medium",
    minutes=15,
    hints=(
        "Only the outputs of real tokens matter; what a model says at padding, nobody reads.",
        "What do you put into the padding? It must differ from what was there, at each place of "
        "it, and in every text.",
    ),
    reference=_reads,
    cases=_padding_cases,
    suspects=(
        Suspect("never", "your test finds nothing at all: are the two inputs one and the same "
                "tensor?", lambda run, x, real: False),
        Suspect("always", "your test finds fault with everything: were real tokens replaced, or "
                "outputs at the padding compared? Those may change", lambda run, x, real: True),
        Suspect("opposite", "your test says True where the padding is not read",
                lambda run, x, real: not _reads(run, x, real)),
        Suspect("zeroed", "zeros are put into the padding, and often they are there already",
                lambda run, x, real: _reads(run, x, real, other=torch.zeros_like)),
        Suspect("scaled", "the padding is only multiplied: 0 stays 0, and a direction stays, too",
                lambda run, x, real: _reads(run, x, real, other=lambda x: 3 * x)),
        Suspect("last-place-only", "only the last place is replaced: padding before it goes unseen",
                lambda run, x, real: _reads(run, x, real, where=_last_place)),
        Suspect("first-text-only", "only the first text of the batch is looked at",
                lambda run, x, real: _reads(run, x, real, look=lambda y, real: y[:1][real[:1]])),
        Suspect("first-token-only", "only the first token of each text is looked at",
                lambda run, x, real: _reads(run, x, real, look=lambda y, real: y[:, 0])),
        Suspect("exact", "equal to the last bit is too much to ask: rounding is no fault",
                lambda run, x, real: _reads(run, x, real, tolerance=0.0)),
        Suspect("too-tolerant", "a difference of one in a hundred is allowed, and padding that "
                "counts little makes a smaller one",
                lambda run, x, real: _reads(run, x, real, tolerance=1e-2)),
        Suspect("mask-dropped", "with another mask the outputs may change: keep the mask, and "
                "change what stands in the padding", _mask_dropped),
        Suspect("nan-filled", "NaN spreads through every sum, even times 0: a sound module seems "
                "to read it", _padding_is_nan),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------- mixes_batch


def _batch_normalised(x: Tensor) -> Tensor:
    return (x - x.mean((0, 1))) / (1 + x.var((0, 1)))


def _rounds_batch(x: Tensor) -> Tensor:
    total = x.sum()
    return _sound(x) + total - total


def _later_read_earlier(x: Tensor) -> Tensor:
    return _sound(x) + x.cumsum(0)


def _earlier_read_later(x: Tensor) -> Tensor:
    return _sound(x) + x.flip(0).cumsum(0).flip(0)


def _batch_as_length(x: Tensor) -> Tensor:
    return _sound(x.transpose(0, 1)).transpose(0, 1)


def _batch_cases() -> Iterator[Case]:
    of = torch.Generator().manual_seed(1234)

    def case(words: str, run: _Run, key: str) -> Case:
        return Case(words, (run, torch.randn(3, 4, 2, generator=of)), key, gradient=False)

    yield case("attention along the batch, as with a forgotten batch_first", _batch_as_length,
               "batch-first")  # fmt: skip
    yield case("causal attention, which is sound", _sound, "sound")
    yield case("a mean and a variance over the batch", _batch_normalised, "normalised")
    yield case("a sound module with rounding", _rounds_batch, "rounding")
    yield case("texts that read the texts before them", _later_read_earlier, "earlier")
    yield case("texts that read the texts behind them", _earlier_read_later, "later")
    yield case("a leak of one part in a thousand", lambda x: _sound(x) + 1e-3 * x.mean(0), "weak")
    yield case("tokens each by themselves, which is sound", torch.tanh, "alone")
    yield case("a leak in the last token alone",
               lambda x: torch.cat([_sound(x)[:, :-1], _batch_as_length(x)[:, -1:]], 1),
               "last-token")  # fmt: skip


def _mixes(run: _Run, x: Tensor, *, texts: Callable = range, look: Callable = lambda y: y,
           tolerance: float = _TOLERANCE) -> bool:  # fmt: skip
    """Run each text alone, and compare it with what it was in the batch."""
    together = run(x.clone())
    gaps = [_moved(look(run(x[b : b + 1])), look(together[b : b + 1])) for b in texts(len(x))]
    return max(gaps) > tolerance


def _shuffled(run: _Run, x: Tensor) -> bool:
    return _moved(run(x.flip(0)).flip(0), run(x)) > _TOLERANCE


_MIXES_BATCH = Exercise(
    name="mixes_batch",
    chapter="debugging",
    task="A test: True if an output of run(x), x (batch, length, width), depends on another text "
    "of the batch.",
    takes=("run", "x"),
    difficulty="easy",
    minutes=10,
    hints=(
        "What should the output for a text be if it is alone? Slice so that the batch keeps its "
        "axis.",
        "A leak may run in one direction only: look at every text, and at every token of it.",
    ),
    reference=_mixes,
    cases=_batch_cases,
    suspects=(
        Suspect("never", "your test finds nothing at all", lambda run, x: False),
        Suspect("always", "your test finds fault with everything: are the outputs of texts that "
                "you replaced compared, too? They may change", lambda run, x: True),
        Suspect("opposite", "your test says True where no text reads another",
                lambda run, x: not _mixes(run, x)),
        Suspect("first-text-only", "only the first text is looked at: what later ones take from "
                "it goes unseen", lambda run, x: _mixes(run, x, texts=lambda n: range(1))),
        Suspect("last-text-only", "only the last text is looked at: what earlier ones take from it "
                "goes unseen", lambda run, x: _mixes(run, x, texts=lambda n: range(n - 1, n))),
        Suspect("shuffled", "a batch in another order: a mean over the batch does not notice",
                _shuffled),
        Suspect("first-token-only", "only the first token of each text is looked at",
                lambda run, x: _mixes(run, x, look=lambda y: y[:, :1])),
        Suspect("exact", "equal to the last bit is too much to ask: rounding is no fault",
                lambda run, x: _mixes(run, x, tolerance=0.0)),
        Suspect("too-tolerant", "a difference of one in a hundred is allowed, and a weak leak is "
                "smaller", lambda run, x: _mixes(run, x, tolerance=1e-2)),
    ),
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (_LEAKS_FUTURE, _READS_PADDING, _MIXES_BATCH)
