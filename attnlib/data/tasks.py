"""Toy tasks that a model can or cannot learn: copy, reverse, sort, recall."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor

from attnlib.checks import check_sizes
from attnlib.data.pairs import N_SPECIAL
from attnlib.data.seeds import _generator


class Task(NamedTuple):
    """Questions and answers of a toy task; ids start at ``N_SPECIAL``, and there is no padding.

    Example:
        >>> from attnlib.data import pad_pairs
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
    check_sizes(distance=distance)
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
    check_sizes(n=n, n_pairs=n_pairs, n_keys=n_keys, n_values=n_values)
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
    check_sizes(n=n, length=length, n_symbols=n_symbols)
    return torch.randint(n_symbols, (n, length), generator=_generator(seed)) + N_SPECIAL
