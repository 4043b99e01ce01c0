"""The training loop against one written out, the losses against torch's."""

import random
import re
import time

import numpy
import pytest
import torch
import torch.nn.functional as F
from parity import assert_same, leaves
from torch import nn
from torch.testing import assert_close

from attnlib.train import accuracy, cross_entropy, fit, set_seed, warmup_schedule

# -------------------------------------------------------------------------------------- loss


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize("ignore_id", [0, -100])
def test_the_loss_is_torchs(smoothing, ignore_id):
    labels = torch.randint(1, 11, (3, 7))
    labels[0, 5:] = labels[2, 1:] = ignore_id
    logits = torch.randn(3, 7, 11, dtype=torch.float64)
    ours, theirs = leaves(logits), leaves(logits)
    assert_same(
        cross_entropy(*ours, labels, smoothing=smoothing, ignore_id=ignore_id),
        F.cross_entropy(theirs[0].mT, labels, label_smoothing=smoothing, ignore_index=ignore_id),
        ours,
        theirs,
    )


def test_the_loss_by_hand():
    logits = torch.tensor([[0.0, 0.0], [0.0, 2.0]]).log_softmax(-1)
    half, right, wrong = 0.6931472, 0.1269280, 2.1269280
    labels = torch.tensor([0, 1])
    assert cross_entropy(logits, labels, ignore_id=-1).item() == pytest.approx((half + right) / 2)
    assert cross_entropy(logits, labels).item() == pytest.approx(right)  # 0 is padding
    smooth = 0.8 * (half + right) / 2 + 0.2 * (half + (right + wrong) / 2) / 2
    assert cross_entropy(logits, labels, smoothing=0.2, ignore_id=-1).item() == pytest.approx(
        smooth
    )


def test_padding_cannot_change_the_loss_and_gets_no_gradient():
    logits = torch.randn(2, 5, 7, requires_grad=True)
    labels = torch.tensor([[3, 4, 5, 6, 1], [2, 1, 0, 0, 0]])
    cross_entropy(logits, labels, smoothing=0.1).backward()
    assert not logits.grad[1, 2:].any()
    assert logits.grad[1, :2].all()
    spoiled = logits.detach().clone()
    spoiled[1, 2:] = torch.nan
    assert_close(cross_entropy(spoiled, labels), cross_entropy(logits.detach(), labels))


def test_accuracy_counts_what_is_not_padding():
    labels = torch.tensor([[3, 4, 0], [5, 0, 0]])
    assert accuracy(labels, labels) == 1.0
    assert accuracy(torch.tensor([[3, 9, 9], [9, 9, 9]]), labels) == pytest.approx(1 / 3)
    assert accuracy(torch.zeros(2, 3).long(), labels) == 0.0
    assert accuracy(torch.zeros(2, 3).long(), labels, ignore_id=-1) == 0.5


# ---------------------------------------------------------------------------------- schedule


def test_the_learning_rate_rises_in_a_line_and_falls_with_the_root():
    rate = warmup_schedule(64, warmup=100)
    assert rate(100) == pytest.approx(64**-0.5 * 100**-0.5)
    assert rate(25) == pytest.approx(rate(100) / 4)
    assert rate(400) == pytest.approx(rate(100) / 2)
    assert max(range(1, 500), key=rate) == 100
    assert warmup_schedule(64, warmup=100, factor=3.0)(7) == pytest.approx(3 * rate(7))


def test_the_papers_learning_rate():
    assert warmup_schedule(512)(4000) == pytest.approx(6.9877e-4, rel=1e-4)


# -------------------------------------------------------------------------------------- loop


def regression(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Dropout(0.0), nn.Linear(5, 1))
    batches = [torch.randn(7, 3) for _ in range(4)]
    return model, batches, lambda x: (model(x)[:, 0] - x.sum(-1)).square().mean()


def test_the_loop_is_the_one_that_everybody_writes():
    model, batches, loss = regression()
    rate = warmup_schedule(4, warmup=3)
    history = fit(model, loss, batches, steps=6, learning_rate=rate, max_norm=0.5)
    trained = [p.detach().clone() for p in model.parameters()]

    model, batches, loss = regression()
    optimizer = torch.optim.AdamW(model.parameters())
    losses, norms = [], []
    for step in range(1, 7):
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        value = loss(batches[(step - 1) % 4])
        value.backward()
        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())
        optimizer.step()
        losses.append(value.item())
    assert history.losses == losses
    assert history.gradient_norms == norms
    assert history.learning_rates == [rate(step) for step in range(1, 7)]
    assert_close(trained, list(model.parameters()), rtol=0, atol=0)
    assert max(norms) > 0.5  # so that clipping was needed


def test_gradients_are_clipped_to_the_norm_that_is_asked_for(monkeypatch):
    model = nn.Linear(1, 1, bias=False)
    seen = []
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda _: seen.append(model.weight.grad.item()))
    for options in ({}, {"max_norm": 7.0}, {"max_norm": torch.inf}):
        history = fit(model, lambda x: 100 * model(x).sum(), [torch.ones(1, 1)], steps=1, **options)
        assert history.gradient_norms == [100.0]
    assert seen == pytest.approx([1.0, 7.0, 100.0], rel=1e-4)


def test_accumulating_small_batches_is_one_large_batch():
    model, batches, loss = regression()
    small = fit(model, loss, batches, steps=3, accumulate=4)
    trained = [p.detach().clone() for p in model.parameters()]
    model, batches, loss = regression()
    large = fit(model, loss, [torch.cat(batches)], steps=3)
    assert_close(small.losses, large.losses)
    assert_close(small.gradient_norms, large.gradient_norms)
    assert_close(trained, [p.detach() for p in model.parameters()])


def test_the_model_trains_in_training_mode_and_comes_back_as_it_was():
    model, batches, _ = regression()
    modes = []

    def loss(x):
        modes.append(model.training)
        return model(x).square().mean()

    model.eval()
    fit(model, loss, batches, steps=1)
    assert not any(module.training for module in model.modules())
    model.train()
    fit(model, loss, batches, steps=1)
    assert model.training
    assert modes == [True, True]


def test_gradients_from_before_do_not_count_and_none_are_left():
    model, batches, loss = regression()
    clean = fit(model, loss, batches, steps=1).gradient_norms
    assert all(p.grad is None for p in model.parameters())
    model, batches, loss = regression()
    (1000 * loss(batches[1])).backward()
    assert fit(model, loss, batches, steps=1).gradient_norms == clean


def test_the_progress_bar_shows_when_asked_and_is_silent_otherwise(capfd):
    model, batches, loss = regression()
    fit(model, loss, batches, steps=2, progress=False)
    fit(model, loss, batches, steps=2)  # this is no terminal
    assert capfd.readouterr() == ("", "")
    fit(model, lambda x: (time.sleep(0.15), loss(x))[1], batches, steps=2, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "2/2" in err
    assert re.search(r"loss=\d", err)
    *_, wiped, after = err.split("\r")
    assert not wiped.strip()  # it leaves no trace
    assert after == ""


def test_a_generator_may_be_endless_and_is_not_drawn_further_than_needed():
    model, _, loss = regression()
    drawn = []

    def endless():
        while True:
            drawn.append(1)
            yield torch.randn(7, 3)

    fit(model, loss, endless(), steps=3, accumulate=2)
    assert len(drawn) == 6


# -------------------------------------------------------------------------------------- seed


def test_a_seed_starts_all_random_numbers():
    def draw():
        return random.random(), torch.rand(2).tolist(), numpy.random.rand()

    set_seed(3)
    first = draw()
    assert draw() != first
    set_seed(3)
    assert draw() == first
    set_seed(4)
    assert all(a != b for a, b in zip(draw(), first, strict=True))


# ---------------------------------------------------------------------------------- refusals


ONE = torch.ones(1, 1)


def fit_line(batches=(ONE,), factor=1.0, **options):
    model = nn.Linear(1, 1)
    return fit(model, lambda x: factor * model(x).sum(), batches, **{"steps": 1, **options})


@pytest.mark.messages
@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fit_line(steps=0), "steps must be 1 or more, got 0"),
        (lambda: fit_line(accumulate=0), "accumulate must be 1 or more, got 0"),
        (lambda: fit_line([]), "there are no batches left: the list is empty"),
        (lambda: fit_line(iter([ONE]), steps=2), "there are no batches left"),
        (lambda: fit_line(factor=torch.nan), "the loss is nan at step 1"),
        (lambda: fit_line(factor=torch.inf), "the loss is -?inf at step 1"),
        (lambda: warmup_schedule(0), "d_model must be 1 or more, got 0"),
        (lambda: warmup_schedule(8, warmup=0), "warmup must be 1 or more, got 0"),
        (lambda: warmup_schedule(8, factor=0.0), "factor must be above 0, got 0.0"),
        (lambda: warmup_schedule(8)(0), "steps count from 1, got 0"),
        (
            lambda: cross_entropy(torch.zeros(2, 3, 5), torch.ones(2, 4).long()),
            r"logits and labels must agree in \(batch, length\), got \(2, 3\) and \(2, 4\)",
        ),
        (
            lambda: cross_entropy(torch.zeros(2, 5), torch.tensor([4, 5])),
            "labels must lie in 0 to 4, as many as there are logits, or be ignore_id=0; got 4 to 5",
        ),
        (lambda: cross_entropy(torch.zeros(2, 5), torch.tensor([4, -1])), "got -1 to 4"),
        (
            lambda: cross_entropy(torch.zeros(1, 5), torch.tensor([1]), smoothing=1.5),
            "smoothing must lie in 0 to 1, got 1.5",
        ),
        (
            lambda: cross_entropy(torch.zeros(2, 5), torch.zeros(2).long()),
            "every label is ignore_id=0",
        ),
        (
            lambda: accuracy(torch.zeros(3).long(), torch.zeros(2).long()),
            r"predicted and labels must agree .* got \(3,\) and \(2,\)",
        ),
        (lambda: accuracy(torch.ones(2).long(), torch.zeros(2).long()), "every label is ignore_id"),
    ],
)
def test_refusals_say_what_came_and_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
