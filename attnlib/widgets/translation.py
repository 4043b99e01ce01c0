"""The translation lab: change a source word, and see which words and weights move."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Float
from matplotlib.figure import Figure
from torch import Tensor

from attnlib.plot import heatmap
from attnlib.widgets.lab import Choice, Given, Lab, Range, front_end

Translate = Callable[[str], tuple[Sequence[str], Float[Tensor, "q_len k_len"], Sequence[float]]]
MOST_SENTENCES = 64


@dataclass(frozen=True)
class Translated:
    """What the model did with the sentence that is picked.

    Attributes:
        written: The words of the target, the end included.
        weights: Where each step looked.
        probabilities: How sure it was of each word.
        moved: Places of the target whose word differs from the first sentence's.
    """

    written: list[str]
    weights: Float[Tensor, "q_len k_len"]
    probabilities: Float[Tensor, " q_len"]
    moved: list[int]


class TranslationLab(Lab):
    """Step through a translation, change a word of the source, and see what moves.

    The model runs once for each sentence, when the lab is made; the switches show what is stored.

    Args:
        options: For each place of the source the words that may stand there, the first sentence's
            first. At most 64 sentences in all.
        translate: Takes a sentence and returns the words written (the end included), the weights
            of cross-attention with a row for each, and the probability of each.
        source: The sentence shown; the first one if left out.
        step: Which word is being written, from 0; the last one if the translation is shorter.

    Raises:
        ValueError: If there are no options or too many sentences, the weights have not a row for
            each word and a column for each place, or a switch is set to what it does not have.
        AttributeError: If the outcomes are changed later.

    Example:
        >>> def shout(sentence):
        ...     words = sentence.upper().split()
        ...     return words, torch.eye(len(words)), [1.0] * len(words)
        >>> lab = TranslationLab([["go", "run"], ["home"]], shout, source="run home")
        >>> lab.result().written, lab.result().moved
        (['RUN', 'HOME'], [0])
    """

    _esm = front_end("translation.js")

    options = Given(None).tag(sync=True)
    outcomes = Given(None).tag(sync=True)

    source = Choice(lambda lab: tuple(lab.outcomes), default="").tag(sync=True)
    step = Range(lambda lab: (0, _longest(lab.outcomes) - 1), default=0).tag(sync=True)

    def __init__(
        self,
        options: Sequence[Sequence[str]],
        translate: Translate,
        *,
        source: str | None = None,
        step: int = 0,
    ) -> None:
        options = [list(words) for words in options]
        sentences = [" ".join(words) for words in product(*options)]
        if not options or not 1 <= len(sentences) <= MOST_SENTENCES:
            raise ValueError(
                f"options must make 1 to {MOST_SENTENCES} sentences, as each is stored in the "
                f"page; got {len(sentences) if options else 0}"
            )
        outcomes = {sentence: _stored(sentence, *translate(sentence)) for sentence in sentences}
        first = sentences[0] if source is None else source
        super().__init__(options=options, outcomes=outcomes, source=first, step=step)

    def result(self) -> Translated:
        """Return what the lab shows now."""
        now, first = self.outcomes[self.source], " ".join(words[0] for words in self.options)
        before = self.outcomes[first]["written"]
        return Translated(
            written=now["written"],
            weights=torch.tensor(now["weights"], dtype=torch.float64),
            probabilities=torch.tensor(now["probabilities"], dtype=torch.float64),
            moved=[i for i, word in enumerate(now["written"]) if before[i : i + 1] != [word]],
        )

    def sentence(self) -> str:
        """Say what is translated, which word is being written, and where the model looks."""
        now = self.result()
        step = min(self.step, len(now.written) - 1)
        place = now.weights[step].argmax().item()
        return (
            f"Translation lab: {self.source} → {' '.join(now.written)}. To write "
            f"{now.written[step]}, it looks most at {self.source.split()[place]}, with a weight of "
            f"{now.weights[step, place]:.2f}."
        )

    def still(self) -> Figure:
        """Draw the weights, with a row for each word that is written."""
        now = self.result()
        figure = Figure(figsize=(4.2, 3.6), layout="constrained")
        labels = {"rows": now.written, "columns": self.source.split()}
        heatmap(now.weights, **labels, limits=(0, 1), ax=figure.subplots())
        return figure


def _stored(
    sentence: str, written: Sequence[str], weights: Tensor, probabilities: Sequence[float]
) -> dict[str, list]:
    expected = (len(written), len(sentence.split()))
    if tuple(weights.shape) != expected or len(probabilities) != len(written) or not written:
        raise ValueError(
            f"translate({sentence!r}) must return one or more words, with weights of shape "
            f"{expected} and a probability for each; got {tuple(weights.shape)} and "
            f"{len(probabilities)} probabilities"
        )
    return {
        "written": list(written),
        "weights": weights.detach().double().round(decimals=7).tolist(),
        "probabilities": [round(float(p), 7) for p in probabilities],
    }


def _longest(outcomes: dict[str, dict]) -> int:
    return max(len(outcome["written"]) for outcome in outcomes.values())
