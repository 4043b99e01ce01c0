"""Small data to learn from: toy tasks, English–Chinese sentences, digits, and a text.

Nothing is downloaded. All randomness comes from the seed that you pass: a whole number draws the
same data each time, a ``torch.Generator`` goes on drawing.
"""

import importlib.util
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, product
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

PAD, BOS, EOS = 0, 1, 2  # padding, beginning and end of a sequence: the first ids everywhere
N_SPECIAL = 3

# ----------------------------------------------------------------------------- batches of pairs


class Pairs(NamedTuple):
    """Pairs of sequences, padded: what an encoder reads and a decoder writes.

    Each target starts with ``BOS`` and ends with ``EOS``; ``target_lengths`` counts both.

    Example:
        >>> pairs = pad_pairs([[5, 6]], [[7, 8]])
        >>> pairs.decoder_input.tolist(), pairs.labels.tolist()
        ([[1, 7, 8]], [[7, 8, 2]])
    """

    source: Int[Tensor, "batch k_len"]
    source_lengths: Int[Tensor, " batch"]
    target: Int[Tensor, "batch length"]
    target_lengths: Int[Tensor, " batch"]

    @property
    def decoder_input(self) -> Int[Tensor, "batch q_len"]:
        """The targets without their last place: what the decoder is shown (teacher forcing)."""
        return self.target[:, :-1]

    @property
    def labels(self) -> Int[Tensor, "batch q_len"]:
        """The targets without their start: the token that is right after each one shown."""
        return self.target[:, 1:]


def pad_pairs(
    sources: Iterable[Sequence[int] | Tensor], targets: Iterable[Sequence[int] | Tensor]
) -> Pairs:
    """Put sequences of unequal length into one batch, and mark where each target begins and ends.

    Args:
        sources: Ids for each source.
        targets: Ids for each target, without marks.

    Raises:
        ValueError: If there are no pairs, or not as many targets as sources.

    Example:
        >>> pairs = pad_pairs([[5, 6], [7]], [[8], [9, 10]])
        >>> pairs.source.tolist(), pairs.source_lengths.tolist()
        ([[5, 6], [7, 0]], [2, 1])
        >>> pairs.target.tolist()
        [[1, 8, 2, 0], [1, 9, 10, 2]]
    """
    source, source_lengths = _pad([torch.as_tensor(ids) for ids in sources])
    begin, end = torch.tensor([BOS]), torch.tensor([EOS])
    marked = [torch.cat([begin, torch.as_tensor(ids), end]) for ids in targets]
    target, target_lengths = _pad(marked)
    if len(source) != len(target):
        raise ValueError(f"each source needs one target, got {len(source)} and {len(target)}")
    return Pairs(source, source_lengths, target, target_lengths)


def shuffled_batches(
    pairs: Pairs, batch_size: int, *, seed: int | torch.Generator
) -> Iterator[Pairs]:
    """Cut pairs into batches, in a new order each time round, without end.

    Args:
        pairs: The pairs to draw from.
        batch_size: Pairs in a batch; the last few of a round wait for the next one.
        seed: Source of the order.

    Raises:
        ValueError: If ``batch_size`` is not in 1 to the number of pairs.

    Example:
        >>> pairs = pad_pairs([[5], [6], [7]], [[5], [6], [7]])
        >>> next(shuffled_batches(pairs, 2, seed=0)).source.shape
        torch.Size([2, 1])
    """
    total = len(pairs.source)
    if not 1 <= batch_size <= total:
        raise ValueError(f"batch_size must lie in 1 to {total}, the pairs there are; {batch_size=}")
    return _endless(pairs, batch_size, _generator(seed))


def _endless(pairs: Pairs, batch_size: int, generator: torch.Generator) -> Iterator[Pairs]:
    total = len(pairs.source)
    while True:
        order = torch.randperm(total, generator=generator)
        for first in range(0, total - batch_size + 1, batch_size):
            yield Pairs(*(column[order[first : first + batch_size]] for column in pairs))


def _pad(sequences: list[Tensor]) -> tuple[Int[Tensor, "batch length"], Int[Tensor, " batch"]]:
    if not sequences:
        raise ValueError("there are no sequences to put into a batch")
    lengths = torch.tensor([len(ids) for ids in sequences])
    return torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=PAD), lengths


# ----------------------------------------------------------------------------------- toy tasks


class Task(NamedTuple):
    """Questions and answers of a toy task; ids start at ``N_SPECIAL``, and there is no padding.

    Example:
        >>> task = copy_task(2, 5, seed=0)
        >>> pad_pairs(*task).target.shape  # two marks more, for an encoder and a decoder
        torch.Size([2, 7])
    """

    source: Int[Tensor, "n length"]
    target: Int[Tensor, "n answer_length"]


def copy_task(n: int, length: int, *, n_symbols: int = 10, seed: int | torch.Generator) -> Task:
    """Write down what was read. Chance is one in ``n_symbols``.

    Args:
        n: Number of examples.
        length: Number of symbols in each.
        n_symbols: Number of different symbols.
        seed: Source of the symbols.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> task = copy_task(1, 4, seed=0)
        >>> torch.equal(task.source, task.target)
        True
    """
    source = _symbols(n, length, n_symbols, seed)
    return Task(source, source.clone())


def reverse_task(n: int, length: int, *, n_symbols: int = 10, seed: int | torch.Generator) -> Task:
    """Write down what was read, the last symbol first: impossible without knowing positions.

    Args:
        n: Number of examples.
        length: Number of symbols in each.
        n_symbols: Number of different symbols.
        seed: Source of the symbols.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> task = reverse_task(1, 4, seed=0)
        >>> torch.equal(task.source.flip(1), task.target)
        True
    """
    source = _symbols(n, length, n_symbols, seed)
    return Task(source, source.flip(1))


def sort_task(n: int, length: int, *, n_symbols: int = 10, seed: int | torch.Generator) -> Task:
    """Write the symbols in rising order: their positions in the source do not matter.

    Args:
        n: Number of examples.
        length: Number of symbols in each.
        n_symbols: Number of different symbols.
        seed: Source of the symbols.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> sort_task(1, 4, seed=0).target.diff().min() >= 0
        tensor(True)
    """
    source = _symbols(n, length, n_symbols, seed)
    return Task(source, source.sort(1).values)


def first_task(n: int, distance: int, *, n_symbols: int = 10, seed: int | torch.Generator) -> Task:
    """Say the first symbol after ``distance`` others that do not matter.

    Args:
        n: Number of examples.
        distance: Number of symbols behind the one to be kept in mind.
        n_symbols: Number of different symbols.
        seed: Source of the symbols.

    Raises:
        ValueError: If a number is not positive.

    Example:
        >>> task = first_task(1, 30, seed=0)
        >>> task.source.shape, bool(task.source[0, 0] == task.target[0, 0])
        (torch.Size([1, 31]), True)
    """
    _check_positive(distance=distance)
    source = _symbols(n, distance + 1, n_symbols, seed)
    return Task(source, source[:, :1].clone())


def recall_task(
    n: int, n_pairs: int, *, n_keys: int = 16, n_values: int = 10, seed: int | torch.Generator
) -> Task:
    """Read pairs of a key and a value, then a key again: say its value.

    A source is ``key value key value … key``, of length ``2 * n_pairs + 1``. The last key is the
    question; no other one comes twice. Chance is one in ``n_values``.

    Args:
        n: Number of examples.
        n_pairs: Number of pairs to keep in mind.
        n_keys: Number of different keys; their ids come first.
        n_values: Number of different values; their ids come behind those of the keys.
        seed: Source of keys, values and questions.

    Raises:
        ValueError: If a number is not positive, or there are fewer keys than pairs.

    Example:
        >>> task = recall_task(1, 3, seed=0)
        >>> task.source.tolist(), task.target.tolist()
        ([[15, 25, 5, 27, 6, 23, 15]], [[25]])

    Source:
        Graves et al. 2014, arXiv:1410.5401, section 4.3, with pairs of single symbols.
    """
    _check_positive(n=n, n_pairs=n_pairs, n_keys=n_keys, n_values=n_values)
    if n_keys < n_pairs:
        raise ValueError(f"{n_pairs} pairs need as many different keys, but n_keys={n_keys}")
    generator = _generator(seed)
    keys = torch.rand(n, n_keys, generator=generator).argsort(1)[:, :n_pairs] + N_SPECIAL
    values = torch.randint(n_values, (n, n_pairs), generator=generator) + N_SPECIAL + n_keys
    asked = torch.randint(n_pairs, (n, 1), generator=generator)
    listed = torch.stack([keys, values], dim=-1).flatten(1)  # (n, 2 · n_pairs)
    return Task(torch.cat([listed, keys.gather(1, asked)], dim=1), values.gather(1, asked))


def _symbols(
    n: int, length: int, n_symbols: int, seed: int | torch.Generator
) -> Int[Tensor, "n length"]:
    _check_positive(n=n, length=length, n_symbols=n_symbols)
    return torch.randint(n_symbols, (n, length), generator=_generator(seed)) + N_SPECIAL


# --------------------------------------------------------------------------------- vocabularies


class Vocabulary:
    """Number the words: padding, beginning and end first, then each word as it is first met.

    Args:
        words: All words, in any number.

    Raises:
        ValueError: If a word is the name of one of the three special tokens.

    Example:
        >>> vocabulary = Vocabulary(["i", "love", "you", "i"])
        >>> len(vocabulary), vocabulary.encode(["you", "love"])
        (6, [5, 4])
        >>> vocabulary.decode([1, 5, 4, 2, 0])
        ['you', 'love']
    """

    SPECIAL = ("<pad>", "<bos>", "<eos>")

    def __init__(self, words: Iterable[str]) -> None:
        self.words = [*self.SPECIAL, *dict.fromkeys(words)]
        self._ids = {word: number for number, word in enumerate(self.words)}
        if len(self._ids) < len(self.words):
            raise ValueError(
                f"{self.SPECIAL} stand for padding, beginning and end; rename the word"
            )

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, words: Iterable[str]) -> list[int]:
        """Turn words into ids.

        Raises:
            ValueError: If a word is not in the vocabulary.
        """
        words = list(words)
        unknown = [word for word in words if word not in self._ids]
        if unknown:
            raise ValueError(
                f"{unknown} not in the vocabulary of {len(self)} words, such as "
                f"{self.words[N_SPECIAL : N_SPECIAL + 5]}"
            )
        return [self._ids[word] for word in words]

    def decode(self, ids: Iterable[int] | Tensor) -> list[str]:
        """Turn ids into words, up to the end; padding and beginning are left out."""
        words = []
        for number in ids.tolist() if isinstance(ids, Tensor) else ids:
            if number == EOS:
                break
            if number not in (PAD, BOS):
                words.append(self.words[number])
        return words


# ------------------------------------------------------------------------- English and Chinese


class SentencePair(NamedTuple):
    """A sentence in two languages, as words, and which word stands for which.

    ``alignment`` holds pairs (number of the English word, number of the Chinese word).

    Example:
        >>> pair = SentencePair(("every", "day"), ("每天",), ((0, 0), (1, 0)))
        >>> [(pair.english[i], pair.chinese[j]) for i, j in pair.alignment]
        [('every', '每天'), ('day', '每天')]
    """

    english: tuple[str, ...]
    chinese: tuple[str, ...]
    alignment: tuple[tuple[int, int], ...]


class Translations(NamedTuple):
    """Sentence pairs to learn from, and others to find out what was learned.

    Example:
        >>> data = translations()
        >>> len(data.training), len(data.held_back)
        (938, 238)
    """

    training: list[SentencePair]
    held_back: list[SentencePair]


# A phrase is a list of "english=chinese" in an order that both languages share; "_" joins words
# that stand for each other as a group. A subject also says which form of the verb it takes.
_SUBJECTS = {
    "i=我": 0,
    "you=你": 0,
    "we=我们": 0,
    "they=他们": 0,
    "my=我_的 friends=朋友": 0,
    "she=她": 1,
    "the_teacher=老师": 1,
}
_OBJECTS = (
    "machine=机器 learning=学习",
    "machine=机器 translation=翻译",
    "deep=深度 learning=学习",
    "mathematics=数学",
    "music=音乐",
    "classical=古典 music=音乐",
    "history=历史",
    "chinese=中国 history=历史",
)
_STATES = (("love=热爱", "loves=热爱"), ("like=喜欢", "likes=喜欢"))
_ACTIONS = (
    ("study=研究", "studies=研究"),
    ("discuss=讨论", "discusses=讨论"),
    ("teach=教", "teaches=教"),
)
# What may surround the verb: (in front of it, degree, place, time), as English orders them.
_AROUND_STATES = (("",) * 4, ("also=也", "", "", ""), ("", "very_much=非常", "", ""))
_AROUND_ACTIONS = (
    ("",) * 4,
    ("often=经常", "", "", ""),
    ("", "", "at=在 home=家", ""),
    ("", "", "", "every_day=每天"),
    ("", "", "at=在 school=学校", "every_day=每天"),
)


def translations() -> Translations:
    """Make English sentences and their Chinese translations from a small grammar.

    English says *they discuss music at school every day*, Chinese 他们 每天 在 学校 讨论 音乐: time
    and place go before the verb, time first, and so does the degree (*very much*, 非常). Some words
    stand for two (*my*, 我 的), some two for one (*every day*, 每天).

    Each verb goes with each object, but one in five of these combinations is held back with all its
    sentences: their words are all in the training sentences, the verb with the object never is.
    *I love machine learning* is among those held back.

    Returns:
        Pairs of lower-case English words and Chinese words, always in the same order.

    Example:
        >>> pair = translations().held_back[2]
        >>> print(*pair.english, "→", *pair.chinese)
        i love machine learning very much → 我 非常 热爱 机器 学习
        >>> pair.alignment
        ((0, 0), (1, 2), (2, 3), (3, 4), (4, 1), (5, 1))
    """
    sentences = Translations([], [])
    verbs = [(verb, _AROUND_STATES) for verb in _STATES]
    verbs += [(verb, _AROUND_ACTIONS) for verb in _ACTIONS]
    for (v, (verb, settings)), (o, thing) in product(enumerate(verbs), enumerate(_OBJECTS)):
        goal = sentences.held_back if (v + o) % len(verbs) == 0 else sentences.training
        for (subject, form), (front, degree, place, time) in product(_SUBJECTS.items(), settings):
            english = (subject, front, verb[form], thing, degree, place, time)
            chinese = (subject, front, time, place, degree, verb[form], thing)
            goal.append(_sentence_pair(english, chinese))
    return sentences


def _sentence_pair(english: tuple[str, ...], chinese: tuple[str, ...]) -> SentencePair:
    """Join phrases, given in the order of each language, and note which words belong together."""
    english_words, english_places = _lay_out(english, side=0)
    chinese_words, chinese_places = _lay_out(chinese, side=1)
    links = [
        link
        for group, places in english_places.items()
        for link in product(places, chinese_places[group])
    ]
    return SentencePair(english_words, chinese_words, tuple(sorted(links)))


def _lay_out(
    phrases: tuple[str, ...], side: int
) -> tuple[tuple[str, ...], dict[tuple[str, int], range]]:
    """The words of one language, and the places that each group of words takes."""
    words: list[str] = []
    places = {}
    for phrase in phrases:
        for number, group in enumerate(phrase.split()):
            new = group.split("=")[side].split("_")
            places[phrase, number] = range(len(words), len(words) + len(new))
            words += new
    return tuple(words), places


# --------------------------------------------------------------------------------------- digits


class Digits(NamedTuple):
    """Handwritten digits: images of 8 by 8 grey values, and which digit each one shows.

    Over the training images, the grey values have mean 0 and standard deviation 1.

    Example:
        >>> data = digits()
        >>> len(data.train_images), len(data.test_images)
        (1438, 359)
    """

    train_images: Float[Tensor, "n 1 8 8"]
    train_labels: Int[Tensor, " n"]
    test_images: Float[Tensor, "m 1 8 8"]
    test_labels: Int[Tensor, " m"]


def digits(*, seed: int | torch.Generator = 0) -> Digits:
    """Load scikit-learn's 1797 handwritten digits, a fifth of them kept for testing.

    Args:
        seed: Decides which ones are kept.

    Raises:
        ModuleNotFoundError: If scikit-learn is not installed.

    Example:
        >>> data = digits()
        >>> data.train_images.shape, data.test_images.shape
        (torch.Size([1438, 1, 8, 8]), torch.Size([359, 1, 8, 8]))

    Source:
        ``sklearn.datasets.load_digits``; Alpaydin and Kaynak 1998, doi:10.24432/C50P49.
    """
    _find_scikit_learn()
    from sklearn.datasets import load_digits  # a second to import, and only needed here

    found = load_digits()
    images = torch.from_numpy(found.images).float()[:, None]  # (N, 1, 8, 8)
    labels = torch.from_numpy(found.target).long()
    order = torch.randperm(len(images), generator=_generator(seed))
    test, train = order.split([len(order) // 5, len(order) - len(order) // 5])
    mean, std = images[train].mean(), images[train].std()
    images = (images - mean) / std
    return Digits(images[train], labels[train], images[test], labels[test])


def patches(
    images: Float[Tensor, "batch channels height width"], size: int
) -> Float[Tensor, "batch n_patches d_patch"]:
    """Cut images into square patches, row by row: the tokens of a vision Transformer.

    Args:
        images: The images.
        size: Height and width of a patch, in pixels.

    Returns:
        One row of ``channels * size * size`` numbers for each patch.

    Raises:
        ValueError: If ``images`` is not 4-D, or ``size`` does not divide its height and width.

    Example:
        >>> image = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> patches(image, 2)[0]
        tensor([[ 0.,  1.,  4.,  5.],
                [ 2.,  3.,  6.,  7.],
                [ 8.,  9., 12., 13.],
                [10., 11., 14., 15.]])

    Source:
        Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.1.
    """
    if images.ndim != 4:
        raise ValueError(
            f"images must be (batch, channels, height, width), got shape {tuple(images.shape)}"
        )
    height, width = images.shape[-2:]
    if size < 1 or height % size or width % size:
        raise ValueError(f"patches of {size} by {size} do not fill an image of {height} by {width}")
    rows = images.unflatten(-2, (-1, size)).unflatten(-1, (-1, size))  # (B, C, H/s, s, W/s, s)
    return rows.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


# ----------------------------------------------------------------------------------------- text


class Corpus(NamedTuple):
    """A text as ids, in two parts, and the vocabulary that turns them into words or characters.

    Example:
        >>> corpus = Corpus(torch.tensor([3, 4]), torch.tensor([4]), Vocabulary("ab"))
        >>> "".join(corpus.vocabulary.decode(corpus.training))
        'ab'
    """

    training: Int[Tensor, " n"]
    validation: Int[Tensor, " m"]
    vocabulary: Vocabulary


def character_corpus() -> Corpus:
    """The text of :func:`prose`, character by character.

    Raises:
        ModuleNotFoundError: If scikit-learn is not installed.

    Example:
        >>> corpus = character_corpus()
        >>> text = "".join(corpus.vocabulary.decode(corpus.training))
        >>> text.count("classifier") > 100
        True
    """
    training, validation = ("\n".join(paragraphs) for paragraphs in prose())
    vocabulary = Vocabulary(sorted(set(training + validation)))
    return Corpus(*(torch.tensor(vocabulary.encode(x)) for x in (training, validation)), vocabulary)


def word_corpus(*, vocab_size: int = 2000) -> Corpus:
    """The text of :func:`prose` in lower case, word by word; marks are words too.

    Args:
        vocab_size: Size of the vocabulary. The words that come most often are in it; all others are
            read as ``<unk>``. A paragraph ends with ``<eop>``.

    Raises:
        ModuleNotFoundError: If scikit-learn is not installed.
        ValueError: If there is no room for a word.

    Example:
        >>> word_corpus(vocab_size=500).vocabulary.words[:7]
        ['<pad>', '<bos>', '<eos>', '<unk>', '<eop>', '.', 'the']
    """
    extra = ["<unk>", "<eop>"]
    n_words = vocab_size - N_SPECIAL - len(extra)
    if n_words < 1:
        raise ValueError(f"vocab_size={vocab_size} leaves no room for words; try 2000")
    parts = [[w for p in part for w in (*_WORD.findall(p.lower()), "<eop>")] for part in prose()]
    counts = Counter(word for word in parts[0] if word != "<eop>")
    ranked = sorted(counts, key=lambda word: (-counts[word], word))  # ties: by the alphabet
    vocabulary = Vocabulary(extra + ranked[:n_words])
    known = set(vocabulary.words)
    ids = [vocabulary.encode(w if w in known else "<unk>" for w in part) for part in parts]
    return Corpus(*(torch.tensor(part) for part in ids), vocabulary)


@cache
def prose() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Read English prose about machine learning: the documentation inside of scikit-learn.

    The paragraphs of its docstrings that are plain sentences (no code, no formulas, no tables) are
    kept, each once, in the order of its files. The text depends on the release of scikit-learn, not
    on the release of Python.

    Returns:
        ``(training, validation)``, paragraphs of each; every tenth file is for validation.

    Raises:
        ModuleNotFoundError: If scikit-learn is not installed.

    Example:
        >>> training, validation = prose()
        >>> len(training) > 5 * len(validation) > 500
        True

    Source:
        The scikit-learn developers, BSD licence, https://scikit-learn.org.
    """
    root = _find_scikit_learn()
    files = sorted(path.relative_to(root).as_posix() for path in root.rglob("*.py"))
    files = [name for name in files if not {"tests", "externals"} & set(name.split("/"))]
    parts: tuple[dict[str, None], dict[str, None]] = {}, {}  # dictionaries, as sets with an order
    for number, name in enumerate(files):
        for paragraph in _paragraphs((root / name).read_text(encoding="utf-8")):
            if paragraph not in parts[0]:
                parts[number % 10 == 9].setdefault(paragraph)
    return tuple(parts[0]), tuple(paragraph for paragraph in parts[1] if paragraph not in parts[0])


def windows(
    ids: Int[Tensor, " n"], length: int, *, batch_size: int, seed: int | torch.Generator
) -> Iterator[Int[Tensor, "batch length"]]:
    """Draw stretches of a text from random places, without end.

    For a language model that reads ``length - 1`` tokens, the input is ``window[:, :-1]`` and the
    labels are ``window[:, 1:]``.

    Args:
        ids: The text.
        length: Number of tokens in a stretch.
        batch_size: Number of stretches in a batch.
        seed: Source of the places.

    Raises:
        ValueError: If a number is not positive, or the text is shorter than ``length``.

    Example:
        >>> next(windows(torch.arange(100), 3, batch_size=2, seed=0)).diff()
        tensor([[1, 1],
                [1, 1]])
    """
    _check_positive(length=length, batch_size=batch_size)
    if len(ids) < length:
        raise ValueError(f"the text has {len(ids)} tokens, too few for windows of {length}")
    return _endless_windows(ids.unfold(0, length, 1), batch_size, _generator(seed))


def _endless_windows(
    stretches: Tensor, batch_size: int, generator: torch.Generator
) -> Iterator[Tensor]:
    while True:
        yield stretches[torch.randint(len(stretches), (batch_size,), generator=generator)]


def _paragraphs(code: str) -> Iterator[str]:
    """The paragraphs of plain sentences in a module's docstrings."""
    for docstring in _DOCSTRING.findall(code):
        for block in _HEADING.sub("", docstring).split("\n\n"):
            for _, lines in groupby(block.splitlines(), key=_indentation):
                paragraph = " ".join(" ".join(lines).replace("`", "").split())
                if _PLAIN.fullmatch(paragraph):
                    yield paragraph


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


_DOCSTRING = re.compile(r'"""(.*?)"""', re.DOTALL)
_HEADING = re.compile(r"^.*\n *-+$", re.MULTILINE)  # a line, and dashes under it
_PLAIN = re.compile(r"[A-Z](?:[A-Za-z0-9,.;:'\"()/%\-]| (?!:)){40,}\.")
_WORD = re.compile(r"[a-z]+|[0-9]|[^a-z0-9 ]")


def _find_scikit_learn() -> Path:
    found = importlib.util.find_spec("sklearn")
    if found is None:
        raise ModuleNotFoundError(
            "the digits and the text come with scikit-learn, which is not installed; "
            "pip install scikit-learn"
        )
    return Path(found.origin).parent


def _generator(seed: int | torch.Generator) -> torch.Generator:
    if isinstance(seed, torch.Generator):
        return seed
    if isinstance(seed, Tensor) or not hasattr(seed, "__index__"):
        raise TypeError(f"seed must be a whole number or a torch.Generator, got {seed!r}")
    return torch.Generator().manual_seed(seed)


def _check_positive(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{name} must be 1 or more, got {size}")
