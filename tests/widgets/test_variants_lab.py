"""The variants lab as Python sees it: who sees whom, which model that is, and what it refuses."""

import pytest
import torch
from pictures import drawn

from attnlib.models.t5 import T5, T5Config
from attnlib.record import record_attention
from attnlib.widgets.variants import Task, VariantsLab

TASKS = {
    "hidden": Task(["a", "?", "c"], ["b"], [1]),
    "next": Task([], ["b", "c", "d"], start="a"),
    "spans": Task(["a", "<0>", "d"], ["<0>", "b"], start="<pad>"),
}
KNOWN = {
    ("one", "all", "hidden"): "BERT",
    ("one", "past", "next"): "GPT",
    ("one", "prefix", "spans"): "a prefix language model",
    ("two", "past", "spans"): "T5",
}


@pytest.fixture
def lab():
    return VariantsLab(TASKS, KNOWN)


def turn(lab, stacks, mask, task, shift="shifted"):
    lab.stacks, lab.mask, lab.task, lab.shift = stacks, mask, task, shift
    return lab.result()


@pytest.mark.parametrize(
    ("stacks", "mask", "task", "tokens", "picture"),
    [
        ("one", "all", "hidden", "a ? c", "xxx xxx xxx"),
        ("one", "past", "next", "a b c", "x.. xx. xxx"),
        ("one", "past", "spans", "a <0> d <pad> <0>", "x.... xx... xxx.. xxxx. xxxxx"),
        ("one", "prefix", "spans", "a <0> d <pad> <0>", "xxx.. xxx.. xxx.. xxxx. xxxxx"),
        ("two", "past", "spans", "a <0> d <pad> <0>", "xxx.. xxx.. xxx.. xxxx. xxxxx"),
        ("two", "prefix", "spans", "a <0> d <pad> <0>", "xxx.. xxx.. xxx.. xxxx. xxxxx"),
        ("two", "all", "spans", "a <0> d <pad> <0>", "xxx.. xxx.. xxx.. xxxxx xxxxx"),
        ("two", "past", "next", "a b c", "x.. xx. xxx"),
        ("two", "past", "hidden", "a ? c <s>", "xxx. xxx. xxx. xxxx"),
    ],
)
def test_who_sees_whom(lab, stacks, mask, task, tokens, picture):
    now = turn(lab, stacks, mask, task)
    assert now.tokens == tokens.split()
    assert torch.equal(now.allowed, drawn(picture))


def test_two_stacks_are_what_a_t5_looks_at(lab):
    """The recorder's weights of a real forward: encoder, cross and decoder side by side."""
    now = turn(lab, "two", "past", "spans")
    model = T5(T5Config(9, d_model=4, n_heads=2, d_head=2, d_ff=4, n_layers=1)).eval()
    with torch.no_grad(), record_attention(model) as maps:
        model(torch.tensor([[5, 6, 7]]), torch.tensor([[0, 6]]))
    encoder, decoder, cross = (weights[0, 0] > 0 for _, weights in maps)
    assert torch.equal(now.allowed[:3, :3], encoder)
    assert torch.equal(now.allowed[3:, 3:], decoder)
    assert torch.equal(now.allowed[3:, :3], cross)


@pytest.mark.parametrize(
    ("stacks", "mask", "task", "model"),
    [
        ("one", "all", "hidden", "BERT"),
        ("one", "prefix", "hidden", "BERT"),  # all of it is source
        ("one", "past", "hidden", ""),
        ("one", "past", "next", "GPT"),
        ("one", "prefix", "next", "GPT"),  # none of it is
        ("one", "prefix", "spans", "a prefix language model"),
        ("one", "past", "spans", ""),
        ("two", "past", "spans", "T5"),
        ("two", "prefix", "spans", "T5"),  # the decoder's own stack holds no source
        ("two", "all", "spans", ""),
    ],
)
def test_which_model_it_is(lab, stacks, mask, task, model):
    assert turn(lab, stacks, mask, task).model == model


def test_which_labels_see_their_answer(lab):
    assert turn(lab, "one", "past", "next").copied == []
    assert turn(lab, "one", "all", "next").copied == [0, 1]  # the last label is not written
    assert turn(lab, "one", "past", "next", "as it is").copied == [0, 1, 2]
    assert turn(lab, "two", "past", "spans", "as it is").copied == [0, 1]
    assert turn(lab, "one", "all", "hidden", "as it is").copied == []  # nothing is written
    assert turn(lab, "two", "all", "hidden").copied == []  # one label: it is not written either


def test_which_rows_answer_and_what_they_miss(lab):
    assert turn(lab, "one", "past", "hidden").answers == [1]
    assert lab.result().missed == 1  # "c" comes after the hole
    assert turn(lab, "one", "all", "hidden").missed == 0
    assert turn(lab, "two", "past", "hidden").answers == [3]
    assert turn(lab, "one", "past", "spans").answers == [3, 4]
    assert lab.result().missed == 0


def test_it_says_what_it_shows(lab):
    assert repr(lab) == "Variants lab, one stack, everyone, hidden: BERT."
    turn(lab, "one", "past", "hidden")
    assert repr(lab).endswith("hidden: no leak, but a label misses 1 tokens of the source.")
    turn(lab, "two", "all", "spans", "as it is")
    assert repr(lab).endswith("spans, labels not shifted: 2 of 2 labels see their answer.")
    turn(lab, "two", "past", "hidden")
    assert repr(lab).endswith("hidden: none of the known models.")


def test_the_still_has_a_row_for_each_token(lab):
    turn(lab, "two", "past", "spans")
    ax = lab.still().axes[0]
    assert [tick.get_text() for tick in ax.get_yticklabels()] == "a <0> d <pad> <0>".split()
    shown = torch.from_numpy(ax.images[0].get_array().filled(0)) > 0
    assert torch.equal(shown, lab.result().allowed)


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ({}, "needs a task or more, got none"),
        ({"t": Task(["a"], [])}, "task 't' must have a label or more.* got 0 labels and 1 tokens"),
        ({"t": Task(["a"] * 16, ["b"])}, "16 tokens at most; got 1 labels and 17 tokens"),
        (
            {"t": Task(["a"], ["b"], [1])},
            r"one place in 0 to 0 for each of its 1 labels.*got \[1\]",
        ),
        ({"t": Task(["a"], ["b", "c"], [0])}, r"each of its 2 labels, or no places; got \[0\]"),
    ],
)
def test_a_wrong_task_is_refused(tasks, words):
    with pytest.raises(ValueError, match=words):
        VariantsLab(tasks, {})


@pytest.mark.parametrize(
    ("name", "value", "kind", "words"),
    [
        ("stacks", "three", ValueError, "stacks must be one of 'one', 'two'"),
        ("mask", "none", ValueError, "mask must be one of 'all', 'past', 'prefix'"),
        ("task", "other", ValueError, "task must be one of 'hidden', 'next', 'spans'"),
        ("shift", True, ValueError, "shift must be one of 'shifted', 'as it is'"),
        ("known", {}, AttributeError, "known of this VariantsLab is fixed"),
        ("tasks", {}, AttributeError, "tasks of this VariantsLab is fixed"),
    ],
)
def test_a_wrong_switch_is_refused(lab, name, value, kind, words):
    with pytest.raises(kind, match=words):
        setattr(lab, name, value)
