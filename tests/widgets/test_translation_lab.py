"""The translation lab in Python: what it stores, says, draws and refuses."""

import io

import pytest
import torch
from torch.testing import assert_close

from attnlib.widgets.translation import TranslationLab

OPTIONS = [["i", "we"], ["love", "like"], ["music"]]


def translate(sentence):
    """A made-up model: words in capitals, and numbers that differ from sentence to sentence."""
    words = sentence.upper().split()
    generator = torch.Generator().manual_seed(len(sentence) + ord(sentence[0]))
    weights = torch.rand(4, 3, generator=generator, dtype=torch.float64).softmax(-1)
    return [*words, "end"], weights, torch.rand(4, generator=generator).tolist()


@pytest.fixture
def lab():
    return TranslationLab(OPTIONS, translate)


def test_every_sentence_has_what_the_model_gave(lab):
    sentences = ["i love music", "i like music", "we love music", "we like music"]
    assert list(lab.outcomes) == sentences
    for sentence in sentences:
        lab.source = sentence
        written, weights, probabilities = translate(sentence)
        assert lab.result().written == written
        assert_close(lab.result().weights, weights, atol=1e-6, rtol=0)
        expected = torch.tensor(probabilities, dtype=torch.float64)
        assert_close(lab.result().probabilities, expected, atol=1e-6, rtol=0)


def test_it_knows_which_words_moved(lab):
    assert lab.result().moved == []
    lab.source = "we love music"
    assert lab.result().moved == [0]
    lab.source = "we like music"
    assert lab.result().moved == [0, 1]


def test_it_says_what_it_shows(lab):
    lab.source, lab.step = "we love music", 1
    row = lab.result().weights[1]
    place = row.argmax().item()
    assert repr(lab) == (
        "Translation lab: we love music → WE LOVE MUSIC end. To write LOVE, it looks most at "
        f"{['we', 'love', 'music'][place]}, with a weight of {row[place]:.2f}."
    )


def test_a_step_behind_the_end_is_the_last_one():
    def uneven(sentence):
        n = len(sentence.split()[0])
        return ["a"] * (n - 1) + ["z"], torch.ones(n, 1) / 1, [1.0] * n

    lab = TranslationLab([["i", "they"]], uneven, step=3)
    assert "To write z" in repr(lab)


def test_the_still_shows_the_weights(lab):
    figure = lab.still()
    figure.savefig(io.BytesIO())
    assert_close(torch.tensor(figure.axes[0].images[0].get_array()), lab.result().weights)
    assert [t.get_text() for t in figure.axes[0].get_xticklabels()] == ["i", "love", "music"]
    assert [t.get_text() for t in figure.axes[0].get_yticklabels()] == lab.result().written


@pytest.mark.messages
@pytest.mark.parametrize(
    ("options", "model", "message"),
    [
        ([], translate, "options must make 1 to 64 sentences.*got 0"),
        ([["a"], []], translate, "got 0"),
        ([list(map(str, range(65)))], translate, "got 65"),
        ([["i"]], translate, r"weights of shape \(2, 1\) .*got \(4, 3\)"),
        ([["i"]], lambda s: (["I", "end"], torch.ones(1, 2), [1, 1]), r"\(2, 1\) .*got \(1, 2\)"),
        ([["i"]], lambda s: (["I"], torch.ones(1, 1), []), "got .* and 0 probabilities"),
        ([["i"]], lambda s: ([], torch.ones(0, 1), []), "one or more words"),
    ],
)
def test_what_does_not_fit_is_refused(options, model, message):
    with pytest.raises(ValueError, match=message):
        TranslationLab(options, model)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("source", "you love music", ValueError, "source must be one of 'i love music'"),
        ("step", 4, ValueError, "step must be a whole number from 0 to 3; got 4"),
        ("outcomes", {}, AttributeError, "outcomes of this TranslationLab is fixed"),
    ],
)
def test_a_switch_is_refused(lab, name, value, error, message):
    with pytest.raises(error, match=message):
        setattr(lab, name, value)
