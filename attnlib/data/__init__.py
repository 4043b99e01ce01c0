"""Small data to learn from: toy tasks, English–Chinese sentences, digits, and a text.

And what a model is pretrained to do with a sentence: masked, with holes, or token by token.

Nothing is downloaded. All randomness comes from the seed that you pass: a whole number draws the
same data each time, a ``torch.Generator`` goes on drawing.
"""

from attnlib.data.images import Digits, digits
from attnlib.data.objectives import (
    IGNORED,
    Example,
    cut_spans,
    infill,
    mask_tokens,
    next_token,
    poisson_spans,
    random_spans,
)
from attnlib.data.pairs import (
    BOS,
    EOS,
    N_SPECIAL,
    PAD,
    Pairs,
    Vocabulary,
    pad_pairs,
    shuffled_batches,
)
from attnlib.data.sentences import SentencePair, Translations, translations
from attnlib.data.tasks import Task, copy_task, first_task, recall_task, reverse_task, sort_task
from attnlib.data.text import Corpus, character_corpus, prose, windows, word_corpus

__all__ = [  # noqa: RUF022 - in the order in which they are best read
    "PAD",
    "BOS",
    "EOS",
    "N_SPECIAL",
    "Pairs",
    "pad_pairs",
    "shuffled_batches",
    "Vocabulary",
    "Task",
    "copy_task",
    "reverse_task",
    "sort_task",
    "first_task",
    "recall_task",
    "SentencePair",
    "Translations",
    "translations",
    "Digits",
    "digits",
    "Corpus",
    "character_corpus",
    "word_corpus",
    "prose",
    "windows",
    "Example",
    "IGNORED",
    "next_token",
    "mask_tokens",
    "cut_spans",
    "random_spans",
    "infill",
    "poisson_spans",
]
