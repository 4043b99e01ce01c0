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

__all__ = [
    "Alibi",
    "LearnedEncoding",
    "LearnedGridEncoding",
    "Positions",
    "Rope",
    "SegmentMemory",
    "ShawRelative",
    "SinusoidalEncoding",
    "SinusoidalGridEncoding",
    "T5Bias",
    "TransformerXL",
    "halves_to_interleaved",
    "interleaved_to_halves",
    "relative_position",
    "sinusoidal_encoding",
    "sinusoidal_grid_encoding",
]
