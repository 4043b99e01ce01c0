"""What is made of a sentence to pretrain on: by hand, by what must always hold, and in the mean."""

from collections import Counter
from itertools import pairwise

import pytest
import torch

from attnlib.data import (
    IGNORED,
    Example,
    cut_spans,
    infill,
    mask_tokens,
    next_token,
    poisson_spans,
    random_spans,
)

IDS = torch.arange(5, 16)  # eleven tokens
MASK = 3
WORDS = (50, 60)  # so that a word at random can be told from the sentence's own
SENTINELS = range(99, 69, -1)


def masked(ids=IDS, seed=0, **options):
    return mask_tokens(ids, mask_id=MASK, words=WORDS, seed=seed, **options)


# ------------------------------------------------------------------------------------- by hand


def test_the_papers_examples():
    """Thank you for inviting me to your party last week: figure 2 of T5, figure 1 of BART."""
    x, y, z, mask = 90, 91, 92, 93
    inputs, labels = cut_spans(torch.arange(10), [(2, 4), (8, 9)], sentinels=(x, y, z))
    assert inputs.tolist() == [0, 1, x, 4, 5, 6, 7, y, 9]
    assert labels.tolist() == [x, 2, 3, y, 8, z]
    a, b, c, d, e = range(5)
    example = infill(torch.tensor([a, b, c, d, e]), [(1, 1), (2, 4)], mask_id=mask)
    assert example.inputs.tolist() == [a, mask, b, mask, e]
    assert example.labels.tolist() == [a, b, c, d, e]


def test_the_next_token_is_one_place_further():
    example = next_token(torch.tensor([7, 5, 9, 5]))
    assert example.inputs.tolist() == [7, 5, 9]
    assert example.labels.tolist() == [5, 9, 5]


def test_spans_may_touch_the_ends_and_each_other_or_be_everything():
    everything = cut_spans(IDS, [(0, 4), (4, 11)], sentinels=SENTINELS)
    assert everything.inputs.tolist() == [99, 98]
    assert everything.labels.tolist() == [99, *range(5, 9), 98, *range(9, 16), 97]
    holes = infill(IDS[:3], [(0, 0), (0, 1), (1, 1), (3, 3)], mask_id=MASK)
    assert holes.inputs.tolist() == [MASK, MASK, MASK, 6, 7, MASK]


def test_nothing_cut_is_nothing_hidden():
    assert cut_spans(IDS, [], sentinels=[99]).inputs.equal(IDS)
    assert cut_spans(IDS, [], sentinels=[99]).labels.tolist() == [99]
    assert infill(IDS, [], mask_id=MASK).inputs.equal(IDS)


# ------------------------------------------------------------------------ what must always hold


@pytest.mark.parametrize("seed", range(20))
def test_the_sentence_can_be_put_together_again(seed):
    ids = IDS if seed % 2 else torch.arange(5, 42)
    inputs, labels = masked(ids, seed, share=0.4)
    assert torch.where(labels == IGNORED, inputs, labels).equal(ids)

    spans = random_spans(len(ids), share=0.4, mean_length=2, seed=seed)
    inputs, labels = cut_spans(ids, spans, sentinels=SENTINELS)
    text = inputs.tolist()
    for mark, (start, end) in zip(SENTINELS, spans, strict=False):
        place = text.index(mark)
        said = labels.tolist()
        said = said[said.index(mark) + 1 : said.index(mark - 1)]
        assert said == ids[start:end].tolist()
        text[place : place + 1] = said
    assert text == ids.tolist()

    spans = poisson_spans(len(ids), share=0.4, seed=seed)
    inputs, labels = infill(ids, spans, mask_id=MASK)
    assert labels.equal(ids)
    assert (inputs == MASK).sum() == len(spans)
    hidden = {token for start, end in spans for token in ids[start:end].tolist()}
    assert inputs[inputs != MASK].tolist() == [t for t in ids.tolist() if t not in hidden]


MAKERS = {
    "next_token": lambda ids, seed: next_token(ids),
    "mask_tokens": masked,
    "cut_spans": lambda ids, seed: cut_spans(
        ids, random_spans(len(ids), seed=seed), sentinels=SENTINELS
    ),
    "infill": lambda ids, seed: infill(ids, poisson_spans(len(ids), seed=seed), mask_id=MASK),
}
EACH_OBJECTIVE = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


@EACH_OBJECTIVE
def test_the_sentence_itself_stays_as_it_is(make):
    ids = IDS.clone()
    for tensor in make(ids, 0):
        tensor.fill_(0)
    assert ids.equal(IDS)


@EACH_OBJECTIVE
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_ids_keep_their_type(make, dtype):
    example = make(IDS.to(dtype), 0)
    assert isinstance(example, Example)
    assert [tensor.dtype for tensor in example] == [dtype, dtype]


@pytest.mark.parametrize("draw", [masked, *(MAKERS[n] for n in ("cut_spans", "infill"))])
def test_a_seed_draws_the_same_again_and_a_generator_goes_on(draw):
    ids = torch.arange(5, 42)
    again = [draw(ids, 7).inputs.tolist() for _ in range(2)]
    assert again[0] == again[1] != draw(ids, 8).inputs.tolist()
    generator = torch.Generator().manual_seed(7)
    onward = [draw(ids, generator).inputs.tolist() for _ in range(2)]
    assert again[0] == onward[0] != onward[1]


@pytest.mark.parametrize(("length", "n_cut", "n_spans"), [(20, 6, 2), (11, 3, 1), (9, 3, 1)])
def test_as_many_tokens_are_cut_in_as_many_spans_as_said(length, n_cut, n_spans):
    for seed in range(10):
        spans = random_spans(length, share=0.3, seed=seed)
        assert len(spans) == n_spans
        assert sum(end - start for start, end in spans) == n_cut
        hidden = poisson_spans(length, share=0.3, seed=seed)
        assert sum(end - start for start, end in hidden) == n_cut
        assert (masked(torch.arange(length), seed, share=0.3).labels != IGNORED).sum() == n_cut


def test_the_usual_numbers_are_the_papers():
    ids = torch.arange(100, 300)
    assert (masked(ids).labels != IGNORED).sum() == 30  # 15 %
    spans = random_spans(200, seed=0)
    assert len(spans) == 10
    assert sum(end - start for start, end in spans) == 30
    assert sum(end - start for start, end in poisson_spans(200, seed=0)) == 60  # 30 %


def test_a_short_sentence_has_something_to_say_and_something_to_go_by():
    for seed in range(5):
        assert (masked(IDS[:1], seed).labels == IDS[:1]).all()
        assert random_spans(2, seed=seed) == [(1, 2)]
        assert random_spans(3, share=1.0, seed=seed) == [(1, 3)]
        assert random_spans(5, share=0.8, mean_length=1, seed=seed) == [(1, 5)]
        starts, ends = zip(*poisson_spans(1, seed=seed), strict=True)
        assert sum(ends) - sum(starts) == 1


def test_spans_do_not_touch_and_the_first_token_stays():
    for seed in range(30):
        spans = random_spans(15, share=0.5, mean_length=1.5, seed=seed)
        edges = [0, *(edge for span in spans for edge in span)]
        assert len(spans) == 5
        assert all(a < b for a, b in pairwise(edges))
        assert edges[-1] == 15  # stretches take turns, and the last is cut


# ------------------------------------------------------------------------------------ in the mean


def test_of_ten_chosen_tokens_eight_are_masked_one_is_another_word_and_one_stays():
    ids = torch.arange(1000, 41000)
    inputs, labels = masked(ids, share=0.5)
    chosen = labels != IGNORED
    shown = inputs[chosen]
    is_mask, is_word = shown == MASK, (shown >= WORDS[0]) & (shown < WORDS[1])
    stays = shown == ids[chosen]
    n = chosen.sum().item()
    for share, found in ((0.8, is_mask), (0.1, is_word), (0.1, stays)):
        sigma = (share * (1 - share) / n) ** 0.5
        assert abs(found.sum().item() / n - share) < 4 * sigma
    assert (is_mask | is_word | stays).all()
    assert set(shown[is_word].tolist()) == set(range(*WORDS))  # all words, and no other
    assert inputs[~chosen].equal(ids[~chosen])


def test_every_place_is_chosen_as_often():
    counts = Counter()
    generator = torch.Generator().manual_seed(1)
    for _ in range(600):
        counts.update(
            (masked(seed=generator, share=0.3).labels != IGNORED).nonzero()[:, 0].tolist()
        )
    expected = 600 * 3 / 11
    assert len(counts) == 11
    assert all(abs(n - expected) < 4 * expected**0.5 for n in counts.values())


def test_every_way_to_cut_is_as_likely():
    generator = torch.Generator().manual_seed(1)
    draws = [random_spans(7, share=0.43, mean_length=1.5, seed=generator) for _ in range(900)]
    counts = Counter(tuple(spans) for spans in draws)
    # 3 tokens in 2 stretches: (1, 2) or (2, 1); 4 that stay: (1, 3), (2, 2) or (3, 1)
    assert len(counts) == 6
    assert all(abs(n - 150) < 4 * 150**0.5 for n in counts.values())


def test_lengths_come_from_a_poisson_distribution():
    spans = poisson_spans(60_000, share=0.5, mean_length=2.5, seed=0)
    lengths = torch.tensor([end - start for start, end in spans], dtype=torch.float64)
    sigma = (2.5 / len(lengths)) ** 0.5
    assert abs(lengths.mean() - 2.5) < 4 * sigma
    assert lengths.var().item() == pytest.approx(2.5, rel=0.05)  # of Poisson, equal to the mean
    assert (lengths == 0).double().mean().item() == pytest.approx(torch.e**-2.5, rel=0.1)


def test_holes_are_everywhere():
    generator = torch.Generator().manual_seed(1)
    starts, ends = Counter(), Counter()
    for _ in range(400):
        spans = poisson_spans(6, share=0.3, seed=generator)
        starts.update(start for start, _ in spans)
        ends.update(end for _, end in spans)
    assert set(starts) == set(ends) == set(range(7))


# ------------------------------------------------------------------------------------ refusals

NONE = IDS[:0]
REFUSED = {
    "a batch": (lambda: masked(IDS[None]), r"one sentence, \(length,\), .* got shape \(1, 11\)"),
    "nothing to mask": (lambda: masked(NONE), "with 1 or more tokens"),
    "no next token": (lambda: next_token(IDS[:1]), r"with 2 or more tokens, got shape \(1,\)"),
    "nothing to cut": (lambda: cut_spans(NONE, [], sentinels=[1]), "with 1 or more tokens"),
    "nothing to hide": (lambda: infill(NONE, [], mask_id=1), "with 1 or more tokens"),
    "percent": (lambda: masked(share=15), "share must lie above 0 and up to 1, got 15; 0.15 is"),
    "no share": (lambda: random_spans(9, share=0, seed=0), "share must lie above 0 .* got 0"),
    "share below": (lambda: poisson_spans(9, share=-0.1, seed=0), "share must lie above 0"),
    "no words": (
        lambda: mask_tokens(IDS, mask_id=1, words=(7, 7), seed=0), r"words=\(7, 7\) holds no id"
    ),
    "one token to cut from": (lambda: random_spans(1, seed=0), "two tokens or more, got length=1"),
    "no token to hide": (lambda: poisson_spans(0, seed=0), "length must be 1 or more, got 0"),
    "short spans": (lambda: random_spans(9, mean_length=0.5, seed=0), "mean_length must be 1 tok"),
    "short holes": (lambda: poisson_spans(9, mean_length=0, seed=0), "mean_length .* got 0"),
    "few sentinels": (
        lambda: cut_spans(IDS, [(1, 2), (4, 5)], sentinels=(9, 8)), "2 spans need 3 sentinels, one"
    ),
    "empty span": (
        lambda: cut_spans(IDS, [(2, 2)], sentinels=SENTINELS), r"1 or more tokens, got \[\(2, 2\)\]"
    ),
    "backward span": (lambda: infill(IDS, [(3, 2)], mask_id=1), "each with 0 or more tokens"),
    "overlap": (lambda: infill(IDS, [(1, 4), (3, 5)], mask_id=1), "one after the other"),
    "beyond the end": (lambda: infill(IDS, [(9, 12)], mask_id=1), "sentence of 11 tokens"),
    "before the start": (lambda: infill(IDS, [(-2, 1)], mask_id=1), "sentence of 11 tokens"),
}  # fmt: skip


@pytest.mark.messages
@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_a_seed_that_is_none_is_refused():
    with pytest.raises(TypeError, match=r"seed must be a whole number or a torch\.Generator"):
        masked(seed=None)
