"""Toy tasks, sentences, digits and text: what is in them, and that a seed draws them again."""

import hashlib
from collections import defaultdict
from importlib.metadata import version
from itertools import islice

import pytest
import torch

from attnlib.data import (
    BOS,
    EOS,
    N_SPECIAL,
    PAD,
    Vocabulary,
    character_corpus,
    copy_task,
    digits,
    first_task,
    pad_pairs,
    prose,
    recall_task,
    reverse_task,
    shuffled_batches,
    sort_task,
    translations,
    windows,
    word_corpus,
)

# ----------------------------------------------------------------------------- batches of pairs


def test_pairs_are_padded_and_targets_are_marked():
    pairs = pad_pairs([[5, 6, 7], [8]], [torch.tensor([9]), [3, 4]])
    assert pairs.source.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert pairs.source_lengths.tolist() == [3, 1]
    assert pairs.target.tolist() == [[1, 9, 2, 0], [1, 3, 4, 2]]
    assert pairs.target_lengths.tolist() == [3, 4]
    assert pairs.decoder_input.tolist() == [[1, 9, 2], [1, 3, 4]]
    assert pairs.labels.tolist() == [[9, 2, 0], [3, 4, 2]]


def test_a_round_of_batches_holds_each_pair_once_and_the_next_has_another_order():
    ids = torch.arange(3, 10)[:, None]
    pairs = pad_pairs(ids, ids + 10)
    rounds = [list(islice(shuffled_batches(pairs, 1, seed=seed), 14)) for seed in (0, 0, 1)]
    orders = [[batch.source.item() for batch in batches] for batches in rounds]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0][:7]) == sorted(orders[0][7:]) == list(range(3, 10))
    assert orders[0][:7] != orders[0][7:]
    for batch in rounds[0]:  # each target is still that of its source
        assert batch.target.tolist() == [[BOS, batch.source.item() + 10, EOS]]


def test_batches_are_full_and_the_rest_of_a_round_waits():
    ids = torch.arange(3, 10)[:, None]
    batches = list(islice(shuffled_batches(pad_pairs(ids, ids), 3, seed=0), 6))
    assert all(len(batch.source) == 3 for batch in batches)
    first_round = torch.cat([batch.source for batch in batches[:2]])
    assert len(first_round.unique()) == 6


# ----------------------------------------------------------------------------------- toy tasks

TASKS = {
    "copy": lambda **o: copy_task(50, 7, **o),
    "reverse": lambda **o: reverse_task(50, 7, **o),
    "sort": lambda **o: sort_task(50, 7, **o),
    "first": lambda **o: first_task(50, 6, **o),
    "recall": lambda **o: recall_task(50, 5, **o),
}
every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())


@every_task
def test_a_seed_draws_the_same_again_and_a_generator_goes_on(task):
    def same(a, b):
        return torch.equal(a.source, b.source) and torch.equal(a.target, b.target)

    assert same(task(seed=3), task(seed=3))
    assert not same(task(seed=3), task(seed=4))
    generator = torch.Generator().manual_seed(3)
    assert same(task(seed=generator), task(seed=3))
    assert not same(task(seed=generator), task(seed=3))
    state = torch.get_rng_state()
    task(seed=3)
    assert torch.equal(torch.get_rng_state(), state)  # nobody else's random numbers are used


@pytest.mark.parametrize("name", ["copy", "reverse", "sort", "first"])
def test_symbols_start_behind_the_special_ids_and_all_of_them_come(name):
    task = TASKS[name](n_symbols=5, seed=0)
    assert set(task.source.flatten().tolist()) == set(range(N_SPECIAL, N_SPECIAL + 5))


def test_the_answers_of_the_toy_tasks():
    source, target = TASKS["copy"](seed=0)
    assert source.shape == (50, 7)
    assert source.tolist() == target.tolist()
    target[0, 0] = -1
    assert source[0, 0] != -1  # a copy, not the same memory
    source, target = TASKS["reverse"](seed=0)
    assert [row[::-1] for row in source.tolist()] == target.tolist()
    source, target = TASKS["sort"](seed=0)
    assert [sorted(row) for row in source.tolist()] == target.tolist()
    source, target = TASKS["first"](seed=0)
    assert source.shape == (50, 7)  # the first, and six that do not matter
    assert [row[:1] for row in source.tolist()] == target.tolist()


def test_recall_asks_for_the_value_of_one_of_its_keys():
    source, target = task = recall_task(200, 5, n_keys=7, n_values=3, seed=0)
    assert task.source.shape == (200, 11)
    assert task.target.shape == (200, 1)
    asked_places = set()
    for row, (answer,) in zip(source.tolist(), target.tolist(), strict=True):
        keys, values, question = row[:-1:2], row[1::2], row[-1]
        assert len(set(keys)) == 5
        assert set(keys) <= set(range(3, 10))
        assert set(values) <= set(range(10, 13))
        asked_places.add(keys.index(question))
        assert values[keys.index(question)] == answer
    assert asked_places == set(range(5))


# --------------------------------------------------------------------------------- vocabularies


def test_a_vocabulary_numbers_words_as_they_are_first_met():
    vocabulary = Vocabulary("b a b c".split())
    assert vocabulary.words == ["<pad>", "<bos>", "<eos>", "b", "a", "c"]
    assert len(vocabulary) == 6
    assert vocabulary.encode("c b".split()) == [5, 3]
    assert [vocabulary.words.index(f"<{name}>") for name in ("pad", "bos", "eos")] == [
        PAD,
        BOS,
        EOS,
    ]


def test_decoding_stops_at_the_end_and_leaves_out_what_is_no_word():
    vocabulary = Vocabulary("a b".split())
    assert vocabulary.decode(torch.tensor([BOS, 4, PAD, 3, EOS, 4])) == ["b", "a"]
    assert vocabulary.decode([3, 4]) == ["a", "b"]


# ------------------------------------------------------------------------- English and Chinese


def pair_of(english):
    training, held_back = translations()
    [pair] = [p for p in training + held_back if p.english == tuple(english.split())]
    return pair


@pytest.mark.parametrize(
    ("english", "chinese", "alignment"),
    [
        ("i love machine learning", "我 热爱 机器 学习", "00 11 22 33"),
        ("they like music very much", "他们 非常 喜欢 音乐", "00 12 23 31 41"),
        (
            "my friends discuss chinese history at school every day",
            "我 的 朋友 每天 在 学校 讨论 中国 历史",
            "00 01 12 26 37 48 54 65 73 83",
        ),
        ("the teacher also loves mathematics", "老师 也 热爱 数学", "00 10 21 32 43"),
        ("she often teaches deep learning", "她 经常 教 深度 学习", "00 11 22 33 44"),
        ("we study machine translation at home", "我们 在 家 研究 机器 翻译", "00 13 24 35 41 52"),
    ],
)
def test_sentences_drawn_by_hand(english, chinese, alignment):
    pair = pair_of(english)
    assert pair.chinese == tuple(chinese.split())
    assert pair.alignment == tuple((int(link[0]), int(link[1])) for link in alignment.split())


def test_there_are_hundreds_of_sentences_and_no_two_are_alike():
    training, held_back = translations()
    assert (len(training), len(held_back)) == (938, 238)
    assert len({pair.english for pair in training + held_back}) == 938 + 238
    assert translations() == (training, held_back)


def test_the_articles_sentence_is_held_back():
    training, held_back = translations()
    sentence = ("i", "love", "machine", "learning")
    assert sentence in {pair.english for pair in held_back}
    assert sentence not in {pair.english for pair in training}


VERBS = {"热爱", "喜欢", "研究", "讨论", "教"}


def verb_and_object(pair):
    verb = next(i for i, word in enumerate(pair.chinese) if word in VERBS)
    return pair.chinese[verb], pair.chinese[verb + 1 :]


def test_each_word_is_in_training_but_no_held_back_verb_meets_its_object_there():
    training, held_back = translations()
    for side in ("english", "chinese"):
        known = {word for pair in training for word in getattr(pair, side)}
        assert {word for pair in held_back for word in getattr(pair, side)} <= known
    seen, unseen = ({verb_and_object(p) for p in part} for part in (training, held_back))
    assert not seen & unseen
    assert ("热爱", ("机器", "学习")) in unseen
    assert {verb for verb, _ in unseen} == VERBS
    assert len({thing for _, thing in unseen}) == 8
    for verb, thing in unseen:  # each has been met, with others
        assert any(v == verb for v, _ in seen)
        assert any(t == thing for _, t in seen)


def test_each_word_has_a_counterpart_and_always_the_same():
    training, held_back = translations()
    counterparts = defaultdict(set)
    for pair in training + held_back:
        assert {i for i, _ in pair.alignment} == set(range(len(pair.english)))
        assert {j for _, j in pair.alignment} == set(range(len(pair.chinese)))
        for j, word in enumerate(pair.chinese):
            linked = tuple(pair.english[i] for i, other in pair.alignment if other == j)
            counterparts[word].add(linked)
    for word, linked in counterparts.items():  # a verb has two English forms, 我 is I or my
        assert len(linked) == (2 if word in VERBS | {"我"} else 1), (word, linked)


def test_the_order_of_the_languages_differs_in_many_sentences():
    training, held_back = translations()
    crossing = [
        any(i < k and j > m for i, j in pair.alignment for k, m in pair.alignment)
        for pair in training + held_back
    ]
    assert 0.4 < sum(crossing) / len(crossing) < 0.7


# --------------------------------------------------------------------------------------- digits


def test_digits_are_split_and_normalised():
    data = digits()
    assert data.train_images.shape == (1438, 1, 8, 8)
    assert data.test_images.shape == (359, 1, 8, 8)
    assert data.train_images.mean().abs() < 1e-5
    assert (data.train_images.std() - 1).abs() < 1e-5
    assert set(data.train_labels.tolist()) == set(data.test_labels.tolist()) == set(range(10))


def test_digits_are_those_of_scikit_learn_each_with_its_label():
    from sklearn.datasets import load_digits

    found = load_digits()
    data = digits()
    images = torch.cat([data.train_images, data.test_images])[:, 0]
    images = ((images - images.min()) / (images.max() - images.min()) * 16).round()

    def listed(images, labels):
        rows = images.flatten(1).tolist()
        return sorted((*row, label) for row, label in zip(rows, labels, strict=True))

    labels = torch.cat([data.train_labels, data.test_labels]).tolist()
    assert listed(images, labels) == listed(torch.tensor(found.images), found.target.tolist())


def test_the_seed_decides_which_digits_are_kept_for_testing():
    assert torch.equal(digits().test_images, digits(seed=0).test_images)
    assert not torch.equal(digits(seed=1).test_labels, digits(seed=0).test_labels)


# ----------------------------------------------------------------------------------------- text


def test_the_text_is_plain_prose_and_its_parts_share_no_paragraph():
    training, validation = prose()
    assert not set(training) & set(validation)
    for part in (training, validation):
        assert len(set(part)) == len(part)
        for paragraph in part:
            assert paragraph[0].isupper()
            assert paragraph.endswith(".")
            assert paragraph.isascii()
            assert not set(paragraph) & set("\n`=<>_|")
    characters = [sum(map(len, part)) for part in (training, validation)]
    assert characters[0] > 300_000
    assert 0.05 < characters[1] / characters[0] < 0.2


def test_the_text_of_a_release_is_always_the_same():
    text = "\n".join([*prose()[0], "", *prose()[1]])
    found = hashlib.sha256(text.encode()).hexdigest()[:16]
    known = {"1.9.1": "a9b27f84f6a7604b"}
    assert found == known.get(version("scikit-learn"), found)


def test_characters_give_the_text_back():
    corpus = character_corpus()
    text = "".join(corpus.vocabulary.decode(corpus.validation))
    assert text == "\n".join(prose()[1])
    assert len(corpus.training) == len("\n".join(prose()[0]))
    assert 60 < len(corpus.vocabulary) < 100


def test_words_are_ranked_by_how_often_they_come_and_rare_ones_are_unknown():
    corpus = word_corpus(vocab_size=300)
    assert len(corpus.vocabulary) == 300
    assert corpus.vocabulary.words[3:5] == ["<unk>", "<eop>"]
    counts = corpus.training.bincount(minlength=300)
    assert (counts[5:].diff() <= 0).all()
    assert counts[5] > 1000  # "." and "the" come in nearly every paragraph
    assert {"the", "."} <= set(corpus.vocabulary.words[5:10])
    assert counts[4] == len(prose()[0])  # a mark behind each paragraph
    larger = word_corpus(vocab_size=1000)
    assert larger.vocabulary.words[:300] == corpus.vocabulary.words
    assert (larger.training == 3).sum() < counts[3]
    beginning = " ".join(larger.vocabulary.decode(larger.training[:200]))
    first = prose()[0][0].lower()
    assert [w for w in beginning.split()[:5] if w.isalpha() and w not in first] == []


def test_windows_are_stretches_of_the_text_from_anywhere():
    text = torch.arange(100, 120)
    drawn = torch.cat(list(islice(windows(text, 7, batch_size=11, seed=0), 20)))
    assert drawn.shape == (220, 7)
    assert (drawn.diff() == 1).all()
    assert set(drawn[:, 0].tolist()) == set(range(100, 114))
    again = next(windows(text, 7, batch_size=11, seed=0))
    assert torch.equal(drawn[:11], again)
    assert not torch.equal(drawn[:11], drawn[11:22])


def test_a_window_may_be_the_whole_text():
    assert next(windows(torch.arange(5), 5, batch_size=1, seed=0)).tolist() == [[0, 1, 2, 3, 4]]


# ---------------------------------------------------------------------------------- refusals

PAIRS = pad_pairs([[3], [4]], [[5], [6]])


@pytest.mark.messages
@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: pad_pairs([], []), ValueError, "there are no sequences"),
        (lambda: pad_pairs([[3], [4]], [[5]]), ValueError, "each source needs one target, got 2"),
        (lambda: shuffled_batches(PAIRS, 3, seed=0), ValueError, "batch_size must lie in 1 to 2"),
        (
            lambda: shuffled_batches(PAIRS, 0, seed=0),
            ValueError,
            "batch_size must be 1 or more, got 0",
        ),
        (lambda: copy_task(0, 5, seed=0), ValueError, "n must be 1 or more, got 0"),
        (lambda: sort_task(5, 0, seed=0), ValueError, "length must be 1 or more"),
        (lambda: reverse_task(5, 5, n_symbols=0, seed=0), ValueError, "n_symbols must be 1"),
        (lambda: first_task(5, 0, seed=0), ValueError, "distance must be 1 or more"),
        (lambda: recall_task(5, 0, seed=0), ValueError, "n_pairs must be 1 or more"),
        (lambda: recall_task(5, 4, n_keys=3, seed=0), ValueError, "4 pairs need as many different"),
        (lambda: recall_task(5, 4, n_values=0, seed=0), ValueError, "n_values must be 1 or more"),
        (lambda: copy_task(5, 5, seed=0.5), TypeError, "a whole number or a torch.Generator"),
        (lambda: copy_task(5, 5, seed=None), TypeError, "got None"),
        (lambda: Vocabulary(["<eos>"]), ValueError, "stand for padding, beginning and end"),
        (
            lambda: Vocabulary(["a", "b"]).encode(["a", "q"]),
            ValueError,
            r"\['q'\] not in the vocabulary of 5 words, such as \['a', 'b'\]",
        ),
        (lambda: word_corpus(vocab_size=5), ValueError, "vocab_size=5 leaves no room for words"),
        (
            lambda: windows(torch.arange(5), 6, batch_size=1, seed=0),
            ValueError,
            "the text has 5 tokens, too few for windows of 6",
        ),
        (lambda: windows(torch.arange(5), 0, batch_size=1, seed=0), ValueError, "length must be 1"),
        (lambda: windows(torch.arange(5), 2, batch_size=0, seed=0), ValueError, "batch_size must"),
    ],
)
def test_refusals_say_what_came_and_what_to_do(call, error, message):
    with pytest.raises(error, match=message):
        call()


@pytest.mark.messages
@pytest.mark.parametrize("load", [digits, prose])
def test_without_scikit_learn_they_say_how_to_get_it(load, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    if load is prose:
        prose.cache_clear()
    with pytest.raises(ModuleNotFoundError, match="pip install scikit-learn"):
        load()
