"""The mistakes that people make between scores and weights, for every exercise with a mask."""

from collections.abc import Callable

import torch
from torch import Tensor

from attnlib.exercises.exercise import Suspect
from attnlib.functional import masked_softmax

Weights = Callable[[Tensor, Tensor], Tensor]  # from scores and mask


def _inverted(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(mask, -torch.inf).softmax(-1)


def _renormalised(scores: Tensor, mask: Tensor) -> Tensor:
    weights = scores.softmax(-1) * mask
    return weights / weights.sum(-1, keepdim=True)


def _over_queries(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, -torch.inf).softmax(-2)


def _lowest(scores: Tensor, mask: Tensor) -> Tensor:
    return scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(-1)


def suspects(attention: Callable[[Weights], Callable]) -> tuple[Suspect, ...]:
    """The usual mistakes with a mask, as suspects of one exercise.

    A fixed part of the exercise's cases has to tell them apart: a key that is hidden although its
    score is huge, a query that may see nothing, and float16.

    Args:
        attention: Makes a twin from a function of scores and mask that returns weights.

    Returns:
        The suspects.

    Example:
        >>> [suspect.key for suspect in suspects(lambda weights: weights)][:2]
        ['mask-ignored', 'mask-inverted']
    """
    found = (
        ("mask-ignored", "hidden keys are seen as if there were no mask: is what it gives kept?",
         lambda s, m: s.softmax(-1)),
        ("mask-inverted", "you hide what may be seen, and show what is hidden: True means that a "
         "query may attend to a key", _inverted),
        ("mask-inverted", "you hide what may be seen, and show what is hidden; True means that a "
         "query may attend to a key", lambda s, m: masked_softmax(s, ~m)),
        ("mask-after-softmax", "the mask comes after the softmax: the rows no longer add up to 1",
         lambda s, m: s.softmax(-1) * m),
        ("renormalised", "you divide by a sum again after the softmax: where a hidden key had the "
         "largest score by far, nothing is left to divide", _renormalised),
        ("hidden-scores-zero", "hidden scores become 0, or nearly, and 0 is a score like others: "
         "its power is 1", lambda s, m: (s * m).softmax(-1)),
        ("fill-too-weak", "hidden scores are filled with -10, and a little is still seen",
         lambda s, m: s.masked_fill(~m, -10).softmax(-1)),
        ("mask-added", "the mask is added as a number: what may be seen gets 1 more, and nothing "
         "is hidden", lambda s, m: (s + m.to(s.dtype)).softmax(-1)),
        ("softmax-over-queries", "the shares add up to 1 over the queries, not over the keys",
         _over_queries),
        ("minus-1e9", "a large negative number is not minus infinity: a query that may see "
         "nothing sees all alike, and float16 cannot hold it",
         lambda s, m: s.masked_fill(~m, -1e9).softmax(-1)),
        ("blind-rows-average", "a query that may see nothing sees all keys alike; its output is "
         "to be 0", _lowest),
        ("blind-rows-nan", "a query that may see nothing gets NaN; its output should be 0",
         lambda s, m: s.masked_fill(~m, -torch.inf).softmax(-1)),
    )  # fmt: skip
    return tuple(Suspect(key, says, attention(twin)) for key, says, twin in found)
