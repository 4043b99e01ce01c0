"""Train a model: one plain loop, a loss that ignores padding, the learning rate of the paper."""

import random
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from tqdm import tqdm

from attnlib.checks import check_floats, check_sizes, check_tensor, check_whole_numbers

Batch = TypeVar("Batch")


class History(NamedTuple):
    """What happened at each step of :func:`fit`: three lists of equal length.

    ``gradient_norms`` are those before clipping.

    Example:
        >>> history = History(losses=[2.5], learning_rates=[1e-3], gradient_norms=[0.7])
        >>> history.losses[-1]
        2.5
    """

    losses: list[float]
    learning_rates: list[float]
    gradient_norms: list[float]


def fit(
    model: nn.Module,
    loss: Callable[[Batch], Tensor],
    batches: Iterable[Batch],
    *,
    steps: int,
    learning_rate: float | Callable[[int], float] = 1e-3,
    max_norm: float = 1.0,
    accumulate: int = 1,
    progress: bool | None = None,
) -> History:
    """Train a model with AdamW.

    Args:
        model: Whose parameters are trained. It trains in training mode, and is handed back in the
            mode in which it came.
        loss: Runs the model on a batch and returns a single number to be made small.
        batches: Anything to loop over; it starts again at its end.
        steps: Number of updates.
        learning_rate: A number, or a function of the step (1, 2, 3, …) such as
            :func:`warmup_schedule`.
        max_norm: Gradients whose norm is larger are scaled down to it; ``torch.inf`` for never.
        accumulate: Batches whose gradients are averaged for one update. With equally many labels
            in each, that is one larger batch, in the memory of a small one.
        progress: Whether to show a progress bar, which goes away at the end; only in a terminal if
            left out.

    Returns:
        The losses (each the mean over its batches), learning rates and gradient norms.

    Raises:
        TypeError: If ``steps`` or ``accumulate`` is not a whole number.
        ValueError: If ``steps`` or ``accumulate`` is not positive, the batches run out, or a loss
            is not a finite number.

    Example:
        >>> layer = nn.Linear(1, 1)
        >>> x = torch.tensor([[1.0], [2.0]])
        >>> history = fit(layer, lambda x: (layer(x) - 3 * x).square().mean(), [x], steps=5)
        >>> len(history.losses), history.losses[-1] < history.losses[0]
        (5, True)
    """
    check_sizes(steps=steps, accumulate=accumulate)
    rate_at = learning_rate if callable(learning_rate) else lambda step: learning_rate
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate_at(1))
    optimizer.zero_grad()  # gradients from before do not count, and none are left behind
    stream = _again_and_again(batches)
    history = History([], [], [])
    was_training = model.training
    model.train()
    hide = None if progress is None else not progress  # None: tqdm shows itself in terminals only
    for step in (bar := tqdm(range(1, steps + 1), disable=hide, leave=False)):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step)
        mean_loss = sum(_backward(loss, next(stream), accumulate, step) for _ in range(accumulate))
        norm = nn.utils.clip_grad_norm_(model.parameters(), max_norm)
        optimizer.step()
        optimizer.zero_grad()
        for values, value in zip(history, (mean_loss, rate_at(step), norm.item()), strict=True):
            values.append(value)
        bar.set_postfix(loss=f"{mean_loss:.3f}", refresh=False)
    model.train(was_training)
    return history


def warmup_schedule(
    d_model: int, *, warmup: int = 4000, factor: float = 1.0
) -> Callable[[int], float]:
    r"""The paper's learning rate: up in a straight line, then down with the root of the step.

    .. math:: factor \cdot d_{model}^{-0.5} \cdot \min(step^{-0.5},\; step \cdot warmup^{-1.5})

    Args:
        d_model: Width of the model: a wider one learns more slowly.
        warmup: The step at which the rate is highest.
        factor: What all of it is multiplied by.

    Returns:
        A function of the step, which counts from 1.

    Raises:
        TypeError: If ``d_model`` or ``warmup`` is not a whole number.
        ValueError: If a number is not positive; from the function, if the step is not.

    Example:
        >>> rate = warmup_schedule(512)
        >>> [round(rate(step), 6) for step in (1, 2000, 4000, 16000)]
        [0.0, 0.000349, 0.000699, 0.000349]

    Source:
        Vaswani et al. 2017, arXiv:1706.03762, equation 3.
    """
    check_sizes(d_model=d_model, warmup=warmup)
    if factor <= 0:
        raise ValueError(f"factor must be above 0, got {factor}")

    def rate(step: int) -> float:
        if step < 1:
            raise ValueError(f"steps count from 1, got {step}")
        return factor * d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)

    return rate


def cross_entropy(
    logits: Float[Tensor, "*shape vocab_size"],
    labels: Int[Tensor, "*shape"],
    *,
    smoothing: float = 0.0,
    ignore_id: int = 0,
) -> Float[Tensor, ""]:
    r"""How surprised a model is by the right tokens, in nats per token; padding does not count.

    .. math::
        -(1 - \varepsilon) \log p_y \;-\; \frac{\varepsilon}{V} \sum_{v=1}^{V} \log p_v

    averaged over the labels that count. With :math:`\varepsilon > 0` (label smoothing) the model is
    asked to leave a little probability to every other token; the loss then cannot reach 0.

    Args:
        logits: A score for each token of the vocabulary, in nats, at each position.
        labels: The right tokens.
        smoothing: The share :math:`\varepsilon` of the probability that is spread over the whole
            vocabulary; 0.1 in the paper.
        ignore_id: Positions with this label do not count: padding, 0 in :mod:`attnlib.data`, or
            -100 where others prepare the labels.

    Raises:
        TypeError: If ``logits`` is not a float tensor, or ``labels`` none of whole numbers.
        ValueError: If shapes do not fit, ``smoothing`` is not in 0 to 1, no label counts, or a
            label is not in the vocabulary.

    Example:
        >>> logits = torch.tensor([[0.0, 0.0, 0.0, 0.0], [9.0, 0.0, 0.0, 0.0]])
        >>> cross_entropy(logits, torch.tensor([2, 0])).exp()  # 0 is padding; one guess of four
        tensor(4.)

    Source:
        Szegedy et al. 2016, arXiv:1512.00567, section 7. Checked against
        ``torch.nn.functional.cross_entropy``, forward and gradient.
    """
    check_floats("logits", logits)
    counts = _counted("logits", logits.shape[:-1], labels, ignore_id)
    if not 0 <= smoothing <= 1:
        raise ValueError(f"smoothing must lie in 0 to 1, got {smoothing}")
    log_p = logits[counts].log_softmax(-1)  # (N, V): only the positions that count
    right = labels[counts]
    if (right < 0).any() or (right >= log_p.shape[-1]).any():
        raise ValueError(
            f"labels must lie in 0 to {log_p.shape[-1] - 1}, as many as there are logits, or be "
            f"ignore_id={ignore_id}; got {right.min()} to {right.max()}"
        )
    surprise = -log_p.gather(-1, right[:, None]).mean()
    return (1 - smoothing) * surprise - smoothing * log_p.mean()


def accuracy(
    predicted: Int[Tensor, "*shape"], labels: Int[Tensor, "*shape"], *, ignore_id: int = 0
) -> float:
    """The share of tokens that are right, from 0 to 1; padding does not count.

    Args:
        predicted: The tokens that the model prefers: ``logits.argmax(-1)``.
        labels: The right tokens.
        ignore_id: Positions with this label do not count.

    Raises:
        TypeError: If ``predicted`` is not a tensor, or ``labels`` none of whole numbers.
        ValueError: If shapes differ, or no label counts.

    Example:
        >>> accuracy(torch.tensor([5, 6, 7, 7]), torch.tensor([5, 6, 8, 0]))
        0.6666666666666666
    """
    check_tensor("predicted", predicted)
    counts = _counted("predicted", predicted.shape, labels, ignore_id)
    return (predicted == labels)[counts].double().mean().item()


def set_seed(seed: int) -> None:
    """Start all random numbers from one seed: Python's, PyTorch's, and NumPy's if it is in use.

    Example:
        >>> set_seed(0)
        >>> first = torch.rand(1)
        >>> set_seed(0)
        >>> torch.equal(torch.rand(1), first)
        True
    """
    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


def _again_and_again(batches: Iterable[Batch]) -> Iterator[Batch]:
    while True:
        empty = True
        for batch in batches:
            empty = False
            yield batch
        if empty:
            raise ValueError(
                "there are no batches left: the list is empty, or a generator has come to its end "
                "before the last step; give a list, a DataLoader or an endless generator"
            )


def _backward(loss: Callable[[Batch], Tensor], batch: Batch, accumulate: int, step: int) -> float:
    """Add a batch's share to the gradients, and return its share of the loss."""
    share = loss(batch) / accumulate
    if not share.isfinite():
        raise ValueError(
            f"the loss is {share.item()} at step {step}; look for a row that may see nothing, a "
            "division by 0, or a learning rate that is too high"
        )
    share.backward()
    return share.item()


def _counted(
    name: str, shape: torch.Size, labels: Tensor, ignore_id: int
) -> Bool[Tensor, "*shape"]:
    """Which labels count."""
    check_whole_numbers("labels", labels)
    if shape != labels.shape:
        raise ValueError(
            f"{name} and labels must agree in (batch, length), got {tuple(shape)} and "
            f"{tuple(labels.shape)}"
        )
    counts = labels != ignore_id
    if not counts.any():
        raise ValueError(f"every label is ignore_id={ignore_id}, so there is nothing to measure")
    return counts
