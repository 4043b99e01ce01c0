"""English prose as characters or words."""

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from attnlib.checks import check_sizes, check_whole_numbers
from attnlib.data.pairs import N_SPECIAL, Vocabulary
from attnlib.data.seeds import _generator


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
    check_sizes(vocab_size=vocab_size)
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
    check_sizes(length=length, batch_size=batch_size)
    check_whole_numbers("ids", ids)
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
