"""What a model is pretrained to do with one sentence: each objective as a pair of ids.

What is shown to the model and what it should say are made from the sentence alone. GPT says the
next token (:func:`next_token`), BERT the tokens that were hidden (:func:`mask_tokens`), T5 the
stretches that were cut out (:func:`cut_spans`), BART the whole sentence, from one with holes
(:func:`infill`).
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from attnlib.checks import check_sizes
from attnlib.data.seeds import _generator

IGNORED = -100
"""The label of a place that does not count; ``cross_entropy`` leaves it out."""

Spans = Sequence[tuple[int, int]]


class Example(NamedTuple):
    """What a model is shown, and what it should say.

    Example:
        >>> Example(torch.tensor([5, 6]), torch.tensor([6, 7])).labels.tolist()
        [6, 7]
    """

    inputs: Int[Tensor, " n"]
    labels: Int[Tensor, " m"]


def next_token(ids: Int[Tensor, " length"]) -> Example:
    """After each token, say the next one, as GPT does.

    Args:
        ids: The sentence.

    Returns:
        All tokens but the last, and all but the first.

    Raises:
        ValueError: If there are not two tokens.

    Example:
        >>> next_token(torch.tensor([5, 6, 7]))
        Example(inputs=tensor([5, 6]), labels=tensor([6, 7]))

    Source:
        Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training",
        section 3.1.
    """
    _check_sentence(ids, at_least=2)
    return Example(ids[:-1].clone(), ids[1:].clone())


def mask_tokens(
    ids: Int[Tensor, " length"],
    *,
    mask_id: int,
    words: tuple[int, int],
    share: float = 0.15,
    seed: int | torch.Generator,
) -> Example:
    """Say the tokens that were hidden, as BERT does.

    Of the tokens that are chosen, 8 in 10 become the mask, 1 in 10 becomes a word at random, and 1
    in 10 stays: so the model can't rely on what it sees, and no mask has to come in real text.

    Args:
        ids: The sentence.
        mask_id: The token that hides another one.
        words: Words at random come from these ids: from the first number up to below the second.
        share: The share of the tokens that is chosen, rounded, but one at least.
        seed: Source of the choice.

    Returns:
        As many inputs and labels as ids. A label is :data:`IGNORED` where nothing was chosen.

    Raises:
        ValueError: If ``ids`` is no sentence, ``share`` is not in 0 to 1, or there are no words.

    Example:
        >>> inputs, labels = mask_tokens(torch.arange(5, 25), mask_id=3, words=(5, 30), seed=0)
        >>> (labels != IGNORED).sum()  # 15 % of 20
        tensor(3)

    Source:
        Devlin et al. 2019, arXiv:1810.04805, section 3.1. There each token is chosen or not on its
        own; here their number is fixed, as in the authors' code.
    """
    _check_sentence(ids)
    _check_share(share)
    if words[0] >= words[1]:
        raise ValueError(f"words={words} holds no id: the first must be below the second")
    generator = _generator(seed)
    n_chosen = max(1, round(share * len(ids)))
    chosen = torch.randperm(len(ids), generator=generator)[:n_chosen]
    fate = torch.rand(n_chosen, generator=generator)
    word = torch.randint(*words, (n_chosen,), generator=generator, dtype=ids.dtype)
    inputs, labels = ids.clone(), torch.full_like(ids, IGNORED)
    labels[chosen] = ids[chosen]
    inputs[chosen[fate < 0.8]] = mask_id
    inputs[chosen[fate >= 0.9]] = word[fate >= 0.9]
    return Example(inputs, labels)


def cut_spans(ids: Int[Tensor, " length"], spans: Spans, *, sentinels: Sequence[int]) -> Example:
    """Say the stretches that were cut out of a sentence, as T5 does.

    In the input, a sentinel stands in place of each stretch, each time another one. The labels are
    the stretches, each behind its sentinel, and one sentinel more at the end.

    Args:
        ids: The sentence.
        spans: Where each stretch starts and ends (without the end), in order; from
            :func:`random_spans`, or chosen by hand.
        sentinels: The ids that mark the places, one more than there are spans, or more.

    Returns:
        Inputs and labels; put a mark for the end behind each if the model wants one.

    Raises:
        ValueError: If ``ids`` is no sentence, the spans do not lie in it, overlap or are empty, or
            there are too few sentinels.

    Example:
        >>> cut_spans(torch.tensor([5, 6, 7, 8, 9]), [(1, 3), (4, 5)], sentinels=(99, 98, 97))
        Example(inputs=tensor([ 5, 99,  8, 98]), labels=tensor([99,  6,  7, 98,  9, 97]))

    Source:
        Raffel et al. 2020, arXiv:1910.10683, section 3.1.4 and figure 2.
    """
    _check_sentence(ids)
    _check_spans(spans, len(ids), shortest=1)
    if len(sentinels) <= len(spans):
        raise ValueError(
            f"{len(spans)} spans need {len(spans) + 1} sentinels, one more for the end, got "
            f"{len(sentinels)}"
        )
    marks = ids.new_tensor(sentinels)
    inputs = _filled(ids, spans, marks.split(1))
    cut = [part for i, (a, b) in enumerate(spans) for part in (marks[i : i + 1], ids[a:b])]
    return Example(inputs, torch.cat([*cut, marks[len(spans) : len(spans) + 1]]))


def random_spans(
    length: int, *, share: float = 0.15, mean_length: float = 3.0, seed: int | torch.Generator
) -> list[tuple[int, int]]:
    """Choose the stretches that T5 cuts out of a sentence.

    How many tokens are cut, and in how many stretches, is fixed; how long each is, and what stays
    between them, is random. A sentence starts with what stays, and no stretch touches another.

    Args:
        length: Number of tokens in the sentence.
        share: The share of the tokens that is cut out, rounded; one at least is, and one stays.
        mean_length: How long a stretch is, in the mean.
        seed: Source of the choice.

    Returns:
        Where each starts and ends (without the end), in order.

    Raises:
        ValueError: If the sentence has less than two tokens, ``share`` is not in 0 to 1, or
            ``mean_length`` is below 1.

    Example:
        >>> spans = random_spans(20, seed=0)
        >>> sum(end - start for start, end in spans)  # 15 % of 20
        3

    Source:
        Raffel et al. 2020, arXiv:1910.10683, section 3.3.4, and ``random_spans_noise_mask`` in the
        authors' code.
    """
    if length < 2:
        raise ValueError(f"a sentence to cut from needs two tokens or more, got length={length}")
    _check_share(share)
    _check_mean_length(mean_length)
    generator = _generator(seed)
    n_cut = min(max(round(share * length), 1), length - 1)
    n_spans = min(max(round(n_cut / mean_length), 1), length - n_cut)  # something stays between
    cut, kept = (_composition(n, n_spans, generator) for n in (n_cut, length - n_cut))
    ends = (cut + kept).cumsum(0)
    return list(zip((ends - cut).tolist(), ends.tolist(), strict=True))


def infill(ids: Int[Tensor, " length"], spans: Spans, *, mask_id: int) -> Example:
    """Say the whole sentence, from one with holes, as BART does.

    One mask stands in place of each stretch, however long it is; where a stretch is empty, there is
    a mask and nothing was there.

    Args:
        ids: The sentence.
        spans: Where each stretch starts and ends (without the end), in order; from
            :func:`poisson_spans`, or chosen by hand.
        mask_id: The token that hides a stretch.

    Raises:
        ValueError: If ``ids`` is no sentence, or the spans do not lie in it, or overlap.

    Example:
        >>> infill(torch.tensor([5, 6, 7, 8, 9]), [(1, 3), (4, 4)], mask_id=3)
        Example(inputs=tensor([5, 3, 8, 3, 9]), labels=tensor([5, 6, 7, 8, 9]))

    Source:
        Lewis et al. 2020, arXiv:1910.13461, section 2.2, "text infilling".
    """
    _check_sentence(ids)
    _check_spans(spans, len(ids), shortest=0)
    mask = ids.new_tensor([mask_id])
    return Example(_filled(ids, spans, [mask] * len(spans)), ids.clone())


def poisson_spans(
    length: int, *, share: float = 0.3, mean_length: float = 3.0, seed: int | torch.Generator
) -> list[tuple[int, int]]:
    """Choose the stretches that BART hides: their lengths are drawn from a Poisson distribution.

    Lengths are drawn until enough tokens are hidden; the last is cut short if they are too many.

    Args:
        length: Number of tokens in the sentence.
        share: The share of the tokens that is hidden, rounded, but one at least.
        mean_length: The mean of the distribution. Some stretches are empty.
        seed: Source of the choice.

    Returns:
        Where each starts and ends (without the end), in order. One may follow right after another.

    Raises:
        ValueError: If a number is not positive, or ``share`` is above 1.

    Example:
        >>> spans = poisson_spans(20, seed=0)
        >>> sum(end - start for start, end in spans)  # 30 % of 20
        6

    Source:
        Lewis et al. 2020, arXiv:1910.13461, section 2.2; the share: section 5.1.
    """
    check_sizes(length=length)
    _check_share(share)
    _check_mean_length(mean_length)
    generator = _generator(seed)
    left = max(1, round(share * length))
    lengths, rate = [], torch.tensor(float(mean_length))
    kept = length - left
    while left > 0:
        drawn = min(left, int(torch.poisson(rate, generator=generator)))
        lengths.append(drawn)
        left -= drawn
    before = torch.randint(kept + 1, (len(lengths),), generator=generator).sort().values
    order = torch.randperm(len(lengths), generator=generator)  # the last one drawn is never empty
    hidden = torch.tensor(lengths)[order]
    ends = before + hidden.cumsum(0)  # so many kept tokens, and all that is hidden so far
    return list(zip((ends - hidden).tolist(), ends.tolist(), strict=True))


def _composition(total: int, n_parts: int, generator: torch.Generator) -> Int[Tensor, " n_parts"]:
    """Cut ``total`` into parts of 1 or more; every way to do so is as likely."""
    cuts = 1 + torch.randperm(total - 1, generator=generator)[: n_parts - 1].sort().values
    return torch.tensor([0, *cuts.tolist(), total]).diff()


def _filled(ids: Tensor, spans: Spans, marks: Iterable[Tensor]) -> Int[Tensor, " n"]:
    """Put a mark in place of each span."""
    parts, last = [], 0
    for (start, end), mark in zip(spans, marks, strict=False):
        parts += [ids[last:start], mark]
        last = end
    return torch.cat([*parts, ids[last:]])


def _check_sentence(ids: Tensor, at_least: int = 1) -> None:
    if ids.ndim != 1 or len(ids) < at_least:
        raise ValueError(
            f"ids must be one sentence, (length,), with {at_least} or more tokens, got shape "
            f"{tuple(ids.shape)}"
        )


def _check_share(share: float) -> None:
    if not 0 < share <= 1:
        raise ValueError(f"share must lie above 0 and up to 1, got {share}; 0.15 is 15 %")


def _check_mean_length(mean_length: float) -> None:
    if not mean_length >= 1:
        raise ValueError(f"mean_length must be 1 token or more, got {mean_length}")


def _check_spans(spans: Spans, length: int, *, shortest: int) -> None:
    last = 0
    for start, end in spans:
        if start < last or end - start < shortest or end > length:
            raise ValueError(
                f"spans must lie in a sentence of {length} tokens one after the other, each with "
                f"{shortest} or more tokens, got {list(spans)}"
            )
        last = end
