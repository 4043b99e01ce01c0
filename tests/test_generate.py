"""Generation: with and without a cache, against Hugging Face's, and against all texts there are."""

import itertools
from functools import partial

import pytest
import torch
from test_gpt import pair
from torch import nn
from torch.testing import assert_close

from attnlib.cache import KVCache
from attnlib.generate import beam_search, greedy, sample, token_probabilities
from attnlib.layers import DecoderLayer
from attnlib.masks import causal_mask, padding_mask
from attnlib.models.gpt import GPT, GPTConfig, gpt_state_from_hugging_face
from attnlib.positions import Alibi, LearnedEncoding, Rope

BATCH, LENGTH, NEW = 3, 7, 9
PADDING = torch.tensor([0, 3, 6])
PAD = 12  # Hugging Face's beam search takes 0 for none
CONFIG = GPTConfig(13, 12, 3, 2, 20, LENGTH + NEW, 0.0, tied=False)
SEEDS = pytest.mark.parametrize("seed", range(5))
PADDED = pytest.mark.parametrize("padding", [None, PADDING], ids=["full", "padded"])


def varied(model):
    """Make a model's texts vary: as it starts, it would say one token for ever."""
    for name, parameter in model.named_parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter, std=0.8)
        else:  # the weights of the norms stay near 1
            nn.init.normal_(parameter, mean=float(name.endswith("weight")), std=0.1)
    return model.double().eval()


def model_of(config=CONFIG, **options):
    return varied(GPT(config, **options))


def prompts(length=LENGTH, batch=BATCH):
    return torch.randint(CONFIG.vocab_size, (batch, length))


def cache_for(new=NEW, length=LENGTH):
    return KVCache(CONFIG.n_layers, max_len=length + new - 1)  # the last token is never read


def dice(seed=0):
    return torch.Generator().manual_seed(seed)


def sample_with_dice(*arguments, **options):
    return sample(*arguments, **options, generator=dice(), temperature=1.5, top_k=7, top_p=0.9)


WRITERS = {
    "greedy": greedy,
    "sample": sample_with_dice,
    "beam search": partial(beam_search, n_beams=3),
}
EACH_WRITER = pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS.keys())


def count(ids):
    """A model that knows one thing: after i comes i + 1, and 0 after 8."""
    return 9.0 * nn.functional.one_hot((ids + 1) % 9, num_classes=9)


class Watched:
    """A model that writes down the shape of the ids it is called with."""

    def __init__(self, model):
        self.model, self.shapes = model, []

    def __call__(self, ids, **options):
        self.shapes.append(tuple(ids.shape))
        return self.model(ids, **options)


# ---------------------------------------------------------------------- greedy, drawn by hand


def test_greedy_takes_the_likeliest_token_again_and_again():
    assert greedy(count, torch.tensor([[5, 6], [1, 2]]), max_new_tokens=4).tolist() == [
        [7, 8, 0, 1],
        [3, 4, 5, 6],
    ]


@EACH_WRITER
def test_a_text_ends_at_its_end_token_and_the_others_go_on(write):
    ids = torch.tensor([[3], [6], [7]])
    model = partial(_times, 99.0)  # so sure that drawing and beams say the same
    written = write(model, ids, max_new_tokens=6, eos_id=8, pad_id=5)
    assert written.tolist() == [[4, 5, 6, 7, 8], [7, 8, 5, 5, 5], [8, 5, 5, 5, 5]]
    cut = write(model, ids, max_new_tokens=3, eos_id=8)
    assert cut.tolist() == [[4, 5, 6], [7, 8, 0], [8, 0, 0]]


def _times(factor, ids):
    return factor * count(ids)


@EACH_WRITER
def test_padding_may_be_no_token_of_the_model(write):
    ids = torch.tensor([[6], [7]])
    for cache in (None, KVCache(1, 3)):
        model = partial(_times, 99.0) if cache is None else lambda ids, cache: 99.0 * count(ids)
        written = write(model, ids, max_new_tokens=3, eos_id=8, pad_id=-100, cache=cache)
        assert written.tolist() == [[7, 8], [8, -100]]


@EACH_WRITER
def test_a_padding_token_may_be_the_end_token_itself(write):
    written = write(
        partial(_times, 99.0), torch.tensor([[6], [7]]), max_new_tokens=3, eos_id=8, pad_id=8
    )
    assert written.tolist() == [[7, 8], [8, 8]]


@EACH_WRITER
def test_an_end_token_in_the_prompt_ends_nothing(write):
    written = write(partial(_times, 99.0), torch.tensor([[8, 3]]), max_new_tokens=2, eos_id=8)
    assert written.tolist() == [[4, 5]]


# ------------------------------------------------------------------------------ with a cache


@EACH_WRITER
def test_the_texts_compared_here_vary(write):
    ends, tokens = [], []
    for seed in range(20):
        torch.manual_seed(seed)
        model, ids = model_of(), prompts()
        tokens += [len(row.unique()) for row in write(model, ids, max_new_tokens=NEW)]
        ended = write(model, ids, max_new_tokens=NEW, eos_id=4, pad_id=-1)
        ends += (ended >= 0).sum(1).tolist()
    assert sum(tokens) / len(tokens) > 3
    assert len(set(ends)) > 3


@EACH_WRITER
@PADDED
@SEEDS
def test_a_cache_changes_no_token(write, padding, seed):
    torch.manual_seed(seed)
    model, ids = model_of(), prompts()
    options = {"max_new_tokens": NEW, "eos_id": 4, "padding": padding}
    plain = write(model, ids, **options)
    assert torch.equal(write(model, ids, cache=cache_for(), **options), plain)


@EACH_WRITER
@PADDED
@pytest.mark.parametrize("first", range(1, LENGTH))
def test_a_cache_changes_no_token_wherever_the_prompt_is_split(write, padding, first):
    model, ids, cache = model_of(), prompts(), cache_for()
    options = {"max_new_tokens": NEW, "eos_id": 4, "padding": padding}
    with torch.no_grad():
        model(ids[:, :first], padding=padding, cache=cache)
    written = write(model, ids[:, first:], cache=cache, **options)
    assert torch.equal(written, write(model, ids, **options))


@pytest.mark.parametrize("make", [lambda: Rope(4), lambda: Alibi(3)], ids=["rope", "alibi"])
@EACH_WRITER
def test_positions_inside_attention_need_no_more(write, make):
    model, ids = model_of(positions=make()), prompts()
    options = {"max_new_tokens": NEW, "padding": PADDING}
    assert torch.equal(
        write(model, ids, cache=cache_for(), **options), write(model, ids, **options)
    )


@pytest.mark.parametrize("first", range(1, NEW))
def test_a_text_can_be_written_in_two_goes_with_one_cache(first):
    model, ids, cache = model_of(), prompts(), cache_for()
    options = {"padding": PADDING, "cache": cache}
    start = greedy(model, ids, max_new_tokens=first, **options)
    assert cache.length == LENGTH + first - 1  # all but the last token
    rest = greedy(model, start[:, -1:], max_new_tokens=NEW - first, **options)
    whole = greedy(model, ids, max_new_tokens=NEW, padding=PADDING)
    assert torch.equal(torch.cat([start, rest], dim=1), whole)


@pytest.mark.parametrize(("write", "rows"), [(greedy, 3), (sample_with_dice, 3)])
def test_with_a_cache_each_token_is_read_once_and_the_last_one_never(write, rows):
    model = Watched(model_of())
    write(model, prompts(), max_new_tokens=NEW, cache=cache_for())
    assert model.shapes == [(rows, LENGTH)] + [(rows, 1)] * (NEW - 1)


def test_beams_read_the_prompt_once_too():
    model = Watched(model_of())
    beam_search(model, prompts(), max_new_tokens=NEW, n_beams=4, cache=cache_for())
    assert model.shapes == [(3, LENGTH)] + [(12, 1)] * (NEW - 1)


@EACH_WRITER
def test_without_a_cache_all_is_read_each_time(write):
    model = Watched(model_of())
    write(model, prompts(), max_new_tokens=4)
    assert [length for _, length in model.shapes] == [7, 8, 9, 10]


@EACH_WRITER
def test_nothing_is_read_after_all_texts_have_ended(write):
    model = Watched(partial(_times, 99.0))
    write(model, torch.tensor([[6], [7]]), max_new_tokens=50, eos_id=8)
    assert len(model.shapes) == 2


@EACH_WRITER
def test_no_graph_is_kept_and_the_prompt_stays(write):
    model, ids, graphs = model_of(), prompts(), []
    before = ids.clone()

    def watched(ids):
        logits = model(ids)
        graphs.append(logits.requires_grad)
        return logits

    write(watched, ids, max_new_tokens=NEW)
    assert graphs == [False] * NEW
    assert torch.is_grad_enabled()
    assert torch.equal(ids, before)


@pytest.mark.parametrize("write", [greedy, beam_search])
def test_texts_of_a_batch_do_not_mix(write):
    model, ids = model_of(), prompts()
    options = {"max_new_tokens": NEW, "eos_id": 4}
    together = write(model, ids, padding=PADDING, **options)
    for row, n in enumerate(PADDING):
        alone = write(model, ids[row : row + 1, n:], **options)[0]
        assert torch.equal(together[row, : len(alone)], alone)
        assert not together[row, len(alone) :].any()  # padding


# ------------------------------------------------------------------ parity with Hugging Face


def continued(theirs, ids, keep, **options):
    """What Hugging Face's ``generate`` writes behind the prompts."""
    output = theirs.generate(
        ids, attention_mask=keep, max_new_tokens=NEW, do_sample=False, pad_token_id=PAD, **options
    )
    return output[:, ids.shape[1] :]


def varied_pair():
    ours, theirs = pair(CONFIG)
    ours.load_state_dict(gpt_state_from_hugging_face(varied(theirs).state_dict()))
    return ours.eval(), theirs


@SEEDS
@pytest.mark.parametrize("eos_id", [None, 4])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_greedy_equals_hugging_faces(seed, eos_id, padded):
    torch.manual_seed(seed)
    ours, theirs = varied_pair()
    ids, padding = prompts(), PADDING if padded else torch.zeros(3, dtype=torch.long)
    keep = (torch.arange(LENGTH) >= padding[:, None]).long()
    expected = continued(theirs, ids, keep, eos_token_id=eos_id)
    options = {"max_new_tokens": NEW, "eos_id": eos_id, "pad_id": PAD}
    options["padding"] = padding if padded else None
    assert torch.equal(greedy(ours, ids, cache=cache_for(), **options), expected)
    assert torch.equal(greedy(ours, ids, **options), expected)


@SEEDS
@pytest.mark.parametrize("n_beams", [2, 5])
@pytest.mark.parametrize("padded", [False, True], ids=["full", "padded"])
def test_beam_search_without_a_length_penalty_equals_hugging_faces(seed, n_beams, padded):
    torch.manual_seed(seed)
    ours, theirs = varied_pair()
    ids, padding = prompts(), PADDING if padded else torch.zeros(3, dtype=torch.long)
    keep = (torch.arange(LENGTH) >= padding[:, None]).long()
    expected = continued(theirs, ids, keep, eos_token_id=4, num_beams=n_beams, length_penalty=0.0)
    options = {"max_new_tokens": NEW, "n_beams": n_beams, "alpha": 0.0, "eos_id": 4, "pad_id": PAD}
    written = beam_search(ours, ids, padding=padding, cache=cache_for(), **options)
    assert torch.equal(written, expected)


# ------------------------------------------------------- beam search against all texts there are

TINY = GPTConfig(4, 12, 3, 1, 20, 8, 0.0, tied=False)
END, MOST = 3, 4


def all_texts():
    """Every text of 3 symbols that ends with END or is cut off after MOST tokens."""
    for length in range(1, MOST + 1):
        for start in itertools.product(range(END), repeat=length - 1):
            yield [*start, END]
    yield from (list(text) for text in itertools.product(range(END), repeat=MOST))


def score(model, prompt, text, alpha):
    """log P of a text, one token after the other, over GNMT's length penalty."""
    ids = torch.cat([prompt, torch.tensor(text)])
    log_p = model(ids[None]).log_softmax(-1)[0, len(prompt) - 1 : -1]
    total = sum(step[token].item() for step, token in zip(log_p, text, strict=True))
    return total / ((5 + len(text)) / 6) ** alpha


@SEEDS
@pytest.mark.parametrize("alpha", [0.0, 0.6, 3.0])
@torch.no_grad()
def test_a_beam_that_is_wide_enough_finds_the_best_of_all_texts(seed, alpha):
    torch.manual_seed(seed)
    model, ids = model_of(TINY), torch.randint(4, (5, 3))
    options = {"max_new_tokens": MOST, "alpha": alpha, "eos_id": END, "pad_id": 0}
    written = beam_search(model, ids, n_beams=128, cache=KVCache(1, 6), **options)
    for prompt, row in zip(ids, written.tolist(), strict=True):
        best = max(all_texts(), key=lambda text: score(model, prompt, text, alpha))
        assert row == (best + [0] * MOST)[: written.shape[1]]


def test_a_length_penalty_never_shortens_the_best_text_and_may_lengthen_it():
    lengths = []
    for alpha in (0.0, 0.6, 3.0):
        options = {"alpha": alpha, "eos_id": END, "pad_id": -1}
        torch.manual_seed(0)
        texts = [
            beam_search(
                model_of(TINY), torch.randint(4, (11, 3)), max_new_tokens=4, n_beams=128, **options
            )
            for _ in range(5)
        ]
        lengths.append(torch.cat([(text >= 0).sum(1) for text in texts]))
    assert (lengths[0] <= lengths[1]).all()
    assert (lengths[1] <= lengths[2]).all()
    assert (lengths[0] < lengths[2]).sum() > 3


@SEEDS
def test_one_beam_without_a_length_penalty_is_greedy(seed):
    torch.manual_seed(seed)
    model, ids = model_of(), prompts()
    options = {"max_new_tokens": NEW, "eos_id": 4, "padding": PADDING}
    narrow = beam_search(model, ids, n_beams=1, alpha=0.0, **options)
    assert torch.equal(narrow, greedy(model, ids, **options))


def test_beams_get_out_of_the_trap_that_greedy_walks_into():
    p = torch.tensor([[0.0, 0.6, 0.4], [0.4, 0.3, 0.3], [0.0, 0.0, 1.0]])  # row i: after token i

    def model(ids):
        return p[ids].log()

    start = torch.tensor([[0]])
    assert greedy(model, start, max_new_tokens=2).tolist() == [[1, 0]]  # 0.6 * 0.4
    assert beam_search(model, start, max_new_tokens=2, n_beams=1).tolist() == [[1, 0]]
    assert beam_search(model, start, max_new_tokens=2, n_beams=2).tolist() == [[2, 2]]  # 0.4 * 1


@pytest.mark.parametrize("n_beams", [1, 2])
def test_when_all_beams_end_others_take_their_places(n_beams):
    p = torch.tensor([[0.0, 0.45, 0.55], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    options = {"max_new_tokens": 4, "n_beams": n_beams, "alpha": 3.0, "eos_id": 2}
    written = beam_search(lambda ids: p[ids].log(), torch.tensor([[0]]), **options)
    assert written.tolist() == [[1, 1, 1, 1]]  # ln 0.45 / 1.5 ** 3 = -0.24, and ln 0.55 = -0.60


@pytest.mark.parametrize(
    ("alpha", "best"),
    [(0.0, [[2]]), (0.43, [[2]]), (0.45, [[1, 2]]), (0.6, [[1, 2]])],
)
def test_the_penalty_is_gnmts(alpha, best):
    """End at once with P = 0.35, or after one more token with P = 0.65 · 0.5 = 0.325.

    The longer text wins if (7 / 6) ** alpha > ln 0.325 / ln 0.35 = 1.0706, so for alpha > 0.4424.
    """
    p = torch.tensor([[0.0, 0.65, 0.35], [0.2, 0.3, 0.5], [0.0, 0.0, 1.0]])
    written = beam_search(
        lambda ids: p[ids].log(), torch.tensor([[0]]), max_new_tokens=2, alpha=alpha, eos_id=2
    )
    assert written.tolist() == best


# ----------------------------------------------------------------------------------- sampling

LOGITS = torch.tensor([1.0, 0.2, -0.5, 2.0, -3.0])
N_DRAWS = 4000


def drawn(n=N_DRAWS, seed=0, **options):
    """How often each token is drawn from LOGITS, in as many texts of one token."""
    model = LOGITS.expand(n, 1, -1)
    tokens = sample(lambda ids: model, torch.zeros(n, 1).long(), max_new_tokens=1,
                    generator=dice(seed), **options)  # fmt: skip
    return tokens.flatten().bincount(minlength=5)


def chi_square(counts, probabilities):
    expected = counts.sum() * probabilities
    kept = expected > 0
    return ((counts - expected)[kept] ** 2 / expected[kept]).sum().item()


MOST_CHI_SQUARE = 23.5  # right probabilities exceed it once in 10,000 times: 4 degrees of freedom


@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_are_drawn_as_often_as_they_should_be(temperature):
    counts = drawn(temperature=temperature)
    assert chi_square(counts, (LOGITS / temperature).softmax(-1)) < MOST_CHI_SQUARE


@pytest.mark.parametrize("temperature", [0.8, 1.25])
def test_draws_at_another_temperature_are_told_apart(temperature):
    """The twin: chi-square is 128 or 148 on average, and never below 41 in 200,000 trials."""
    assert chi_square(drawn(temperature=temperature), LOGITS.softmax(-1)) > MOST_CHI_SQUARE


def test_draws_of_one_batch_are_independent():
    model = torch.zeros(2, 1, 2)
    tokens = [
        sample(lambda ids: model, torch.zeros(2, 1).long(), max_new_tokens=1, generator=generator)
        for generator in [dice()]
        for _ in range(1000)
    ]
    first, second = torch.cat(tokens, dim=1)
    counts = (2 * first + second).bincount(minlength=4)  # the four ways two coins can fall
    assert chi_square(counts, torch.full((4,), 0.25)) < 21.1  # 1 in 10,000: 3 degrees of freedom


def test_the_same_seed_draws_the_same_text_and_another_one_another():
    model, ids = model_of(), prompts()
    texts = [sample(model, ids, max_new_tokens=NEW, generator=dice(s)) for s in (1, 1, 2)]
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])


def test_without_a_generator_torchs_own_seed_decides():
    model, ids = model_of(), prompts()
    texts = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        texts.append(sample(model, ids, max_new_tokens=NEW))
    assert torch.equal(texts[0], texts[1])
    assert not torch.equal(texts[0], texts[2])


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-30}])
def test_with_a_single_token_left_sampling_is_greedy(options):
    model, ids = model_of(), prompts()
    written = sample(model, ids, max_new_tokens=NEW, eos_id=4, **options)
    assert torch.equal(written, greedy(model, ids, max_new_tokens=NEW, eos_id=4))


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, {0, 3}),
        ({"top_k": 4}, {0, 1, 2, 3}),
        ({"top_k": 9}, {0, 1, 2, 3, 4}),
        ({"top_p": 0.6}, {3}),  # it alone has 0.617
        ({"top_p": 0.65}, {0, 3}),  # together they have 0.843
        ({"top_p": 0.85}, {0, 1, 3}),
        ({"top_k": 3, "top_p": 0.85}, {0, 3}),  # of what top_k left, they have 0.892
    ],
)
def test_only_the_tokens_that_are_kept_are_drawn_and_all_of_them(options, kept):
    counts = drawn(**options)
    assert set(counts.nonzero().flatten().tolist()) == kept
    expected = torch.zeros(5)
    expected[list(kept)] = LOGITS[list(kept)].softmax(-1)
    assert chi_square(counts, expected) < MOST_CHI_SQUARE


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [0.5, 0.25, 0.125, 0.125]),
        ({"temperature": 0.5}, [16 / 22, 4 / 22, 1 / 22, 1 / 22]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_k": 3}, [0.5, 0.25, 0.125, 0.125]),  # two tie for the third place
        ({"top_p": 0.5}, [1, 0, 0, 0]),
        ({"top_p": 0.501}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_p": 0.75}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_p": 0.8}, [4 / 7, 2 / 7, 1 / 7, 0]),  # of two that tie, the first is kept
        ({"top_p": 1.0}, [0.5, 0.25, 0.125, 0.125]),
        ({"top_k": 2, "top_p": 0.6}, [1, 0, 0, 0]),  # 2/3 of what top_k left
        ({"temperature": 0.5, "top_p": 0.7}, [1, 0, 0, 0]),  # after the temperature
    ],
)
def test_probabilities_worked_out_by_hand(options, expected):
    logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log() + 3
    expected = torch.tensor(expected, dtype=torch.float32)
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):  # the order of the vocabulary does not matter
        found = token_probabilities(logits[order], **options)
        assert_close(found, expected[order])
        assert torch.equal(found > 0, expected[order] > 0)


@SEEDS
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("top_k", [None, 1, 5])
@pytest.mark.parametrize("top_p", [None, 0.3, 0.9])
def test_probabilities_equal_hugging_faces(seed, temperature, top_k, top_p):
    from transformers.generation.logits_process import (
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    torch.manual_seed(seed)
    logits = torch.randn(7, 23, dtype=torch.float64) * 2
    expected = TemperatureLogitsWarper(temperature)(None, logits)
    if top_k is not None:
        expected = TopKLogitsWarper(top_k)(None, expected)
    if top_p is not None:
        expected = TopPLogitsWarper(top_p)(None, expected)
    ours = token_probabilities(logits, temperature=temperature, top_k=top_k, top_p=top_p)
    assert_close(ours, expected.softmax(-1))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_probabilities_are_exact_in_any_dtype(dtype):
    logits = (torch.randn(5, 211, dtype=torch.float64) * 5).to(dtype)
    found = token_probabilities(logits, top_k=97, top_p=0.97)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    expected = token_probabilities(logits.double(), top_k=97, top_p=0.97)
    assert_close(found.double(), expected, atol=1e-6, rtol=1e-5)
    assert_close(found.sum(-1), torch.ones_like(found.sum(-1)))


def test_huge_logits_and_tokens_that_are_ruled_out_do_no_harm():
    logits = torch.tensor([3e38, 3e38, 0.0, -torch.inf])
    assert token_probabilities(logits, temperature=1e-3).tolist() == [0.5, 0.5, 0, 0]
    assert token_probabilities(logits, top_k=3, top_p=0.9).tolist() == [0.5, 0.5, 0, 0]


# ------------------------------------------------------------------- a model with an encoder


class Translator(nn.Module):
    """The smallest model with a memory that keeps to the protocol: start, and decode."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(11, 12)
        self.positions = LearnedEncoding(12, 20)
        self.layers = nn.ModuleList(DecoderLayer(12, 3, 17) for _ in range(2))
        self.to_logits = nn.Linear(12, 11)

    def start(self, source, lengths, max_len):
        memory = self.positions(self.tokens(source))
        pairs = [layer.cross_attention.keys_and_values(memory) for layer in self.layers]
        mask = padding_mask(lengths, source.shape[1])
        return KVCache(len(self.layers), max_len, memory=pairs, memory_mask=mask)

    def decode(self, ids, *, cache):
        q_len, k_len = ids.shape[1], cache.length + ids.shape[1]
        x = self.positions(self.tokens(ids), offset=cache.length)
        for layer, seen, memory in zip(self.layers, cache.layers, cache.memory, strict=True):
            x = layer(
                x,
                memory,
                mask=causal_mask(q_len, k_len),
                memory_mask=cache.memory_mask,
                cache=seen,
            )
        return self.to_logits(x)

    def read_all(self, source, lengths, ids):
        """Without a cache: all of it again, for each beam its own source."""
        n_beams = len(ids) // len(source)
        source, lengths = (t.repeat_interleave(n_beams, dim=0) for t in (source, lengths))
        return self.decode(ids, cache=self.start(source, lengths, ids.shape[1]))


@EACH_WRITER
@SEEDS
def test_a_model_with_an_encoder_writes_the_same_with_and_without_a_cache(write, seed):
    torch.manual_seed(seed)
    model = varied(Translator())
    source, lengths = torch.randint(11, (3, 5)), torch.tensor([5, 1, 3])
    begin = torch.ones(3, 1, dtype=torch.long)
    options = {"max_new_tokens": NEW, "eos_id": 2}
    with torch.no_grad():
        cache = model.start(source, lengths, NEW)
        each = [model.start(source[i : i + 1], lengths[i : i + 1], NEW) for i in range(3)]
    written = write(model.decode, begin, cache=cache, **options)
    plain = partial(model.read_all, source, lengths)
    assert torch.equal(written, write(plain, begin, **options))
    if write is not sample_with_dice:  # dice fall otherwise for one text than for three
        for row, cache in zip(written, each, strict=True):
            alone = write(model.decode, begin[:1], cache=cache, **options)[0]
            assert torch.equal(row[: len(alone)], alone)


# ------------------------------------------------------------------------------------- refusals

IDS = torch.tensor([[1, 2]])
REFUSED = {
    "1-D ids": (lambda w: w(count, IDS[0], max_new_tokens=2), r"ids must be \(batch, length\) wit"),
    "no ids": (lambda w: w(count, IDS[:, :0], max_new_tokens=2), r"got shape \(1, 0\)"),
    "no texts": (lambda w: w(count, IDS[:0], max_new_tokens=2), r"got shape \(0, 2\)"),
    "nothing to write": (
        lambda w: w(count, IDS, max_new_tokens=0), "max_new_tokens must be 1 or more, got 0"
    ),
    "a small cache": (
        lambda w: w(count, IDS, max_new_tokens=4, cache=KVCache(1, 4)),
        "room for 4 tokens, but 5 will be needed; make it with a larger max_len, or lower max_new",
    ),
    "a cache that is filled": (
        lambda w: _after_five(w, KVCache(1, 9)), "room for 9 tokens, but 10 will be needed"
    ),
}  # fmt: skip


def _after_five(write, cache):
    """5 tokens are in it, 2 more are read, and of 4 that are written the last one is not."""
    row = torch.zeros(1, 1, 5, 3)
    cache.layers[0].append(row, row)
    return write(count, IDS, max_new_tokens=4, cache=cache)


@pytest.mark.messages
@EACH_WRITER
@pytest.mark.parametrize(("call", "words"), REFUSED.values(), ids=REFUSED.keys())
def test_bad_input_is_refused_with_advice(call, words, write):
    with pytest.raises(ValueError, match=words):
        call(write)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": 0.0}, r"temperature must be above 0, got 0.0; towards 0 .* greedy\(\)"),
        ({"temperature": -1.0}, "temperature must be above 0, got -1.0"),
        ({"temperature": float("nan")}, "temperature must be above 0, got nan"),
        ({"top_k": 0}, "top_k must be 1 or more, got 0"),
        ({"top_p": 0.0}, "top_p must lie above 0 and up to 1, or be None for all, got 0.0"),
        ({"top_p": 1.1}, "top_p must lie .*got 1.1"),
    ],
)
def test_a_choice_that_leaves_nothing_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        sample(count, IDS, max_new_tokens=2, **options)
    with pytest.raises(ValueError, match=words):
        token_probabilities(torch.zeros(3), **options)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"n_beams": 0}, "n_beams must be 1 or more, got 0"),
        ({"alpha": -0.1}, "alpha must be 0 or more, got -0.1"),
    ],
)
def test_no_beams_and_a_penalty_on_length_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        beam_search(count, IDS, max_new_tokens=2, **options)


def test_a_cache_with_just_enough_room_will_do():
    model, ids = model_of(), prompts()
    assert greedy(model, ids, max_new_tokens=NEW, cache=cache_for()).shape == (BATCH, NEW)
