"""Pairs of sequences in batches, and words as numbers."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from attnlib.checks import check_sizes
from attnlib.data.seeds import _generator

PAD, BOS, EOS = 0, 1, 2  # padding, beginning and end of a sequence: the first ids everywhere
N_SPECIAL = 3


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
        """What the decoder is shown (teacher forcing), the targets without their last place."""
        return self.target[:, :-1]

    @property
    def labels(self) -> Int[Tensor, "batch q_len"]:
        """The token that is right after each one shown, the targets without their start."""
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
    check_sizes(batch_size=batch_size)
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
