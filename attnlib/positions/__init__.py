"""Telling attention where its tokens are.

What is added to the embeddings, once, in front of the first layer, is absolute: ``absolute``.
What acts inside attention, on queries, keys and scores, is a :class:`Positions`: ``rotary`` turns
queries and keys, ``biases`` and ``relative`` add to the scores.
"""

from attnlib.positions.absolute import (
    LearnedEncoding,
    LearnedGridEncoding,
    SinusoidalEncoding,
    SinusoidalGridEncoding,
    sinusoidal_encoding,
    sinusoidal_grid_encoding,
)
from attnlib.positions.base import Positions, relative_position
from attnlib.positions.biases import Alibi, T5Bias
from attnlib.positions.relative import SegmentMemory, ShawRelative, TransformerXL
from attnlib.positions.rotary import Rope, halves_to_interleaved, interleaved_to_halves

__all__ = [  # noqa: RUF022 - in the order in which they are best read
    "sinusoidal_encoding",
    "SinusoidalEncoding",
    "LearnedEncoding",
    "sinusoidal_grid_encoding",
    "SinusoidalGridEncoding",
    "LearnedGridEncoding",
    "Positions",
    "relative_position",
    "Rope",
    "interleaved_to_halves",
    "halves_to_interleaved",
    "Alibi",
    "T5Bias",
    "ShawRelative",
    "TransformerXL",
    "SegmentMemory",
]
