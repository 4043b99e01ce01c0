"""Labels and losses: which output is graded on which token, and what does padding count?"""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlib.doctor.findings import FAULT, WARNING, Finding
from attnlib.doctor.measure import different, gap
from attnlib.doctor.patient import Patient
from attnlib.doctor.roles import Inputs
from attnlib.doctor.trace import tensors_in

IGNORED = -100


def loss_of(patient: Patient, inputs: Inputs) -> Tensor:
    """The first scalar among the outputs."""
    outs = list(tensors_in(patient.call(inputs, grad=True)))
    return next((t for t in outs if t.numel() == 1), outs[0])


def is_loss(patient: Patient) -> bool:
    """Whether it takes labels and returns one number."""
    if "labels" not in patient.roles or patient.main is None:
        return False
    return loss_of(patient, patient.base).numel() == 1


def shift(patient: Patient) -> Iterator[Finding]:
    """Change one label: the gradient of which row of logits changes?

    Row t of the logits predicts token t + 1. A loss that pairs row t with label t on unshifted
    labels is best served by a copy of the input; one that shifts twice predicts the token after
    the next. Whether labels come shifted is for the author to say (``label_offset``); two or more
    is wrong either way.
    """
    if not is_loss(patient):
        return
    offset = _offset(patient) if patient.main.is_floating_point() else _offset_heard(patient)
    wanted = patient.promises.label_offset
    given = patient.given[patient.roles["labels"][0]]
    if wanted is None and given.shape == patient.main.shape and torch.equal(given, patient.main):
        wanted = 1  # the labels are the very tokens
    if offset is None:
        return
    if wanted is not None and offset != wanted:
        cause = "labels-not-shifted" if offset < wanted else "labels-shifted-twice"
        yield Finding(
            cause, FAULT, f"row t is graded on label t + {offset}; it should be t + {wanted}"
        )
    elif offset not in (0, 1):
        yield Finding("labels-shifted-twice", WARNING, f"row t is graded on label t + {offset}")


def _offset(patient: Patient) -> int | None:
    """How far the label lies from the row of logits that it grades."""
    place = patient.roles["labels"][0]
    labels = patient.base[place]
    if labels.ndim != 2:
        return None
    s = labels.shape[1] // 2
    changed = labels.clone()
    changed[:, s] = (labels[:, s] + 1) % (int(labels.max()) + 1)
    rows = []
    for used in (labels, changed):
        logits = patient.main_in(patient.base).clone().requires_grad_()
        inputs = {**patient.with_main(patient.base, logits), place: used}
        rows.append(torch.autograd.grad(loss_of(patient, inputs), logits)[0])
    hit = (rows[0] - rows[1]).abs().sum((0, 2)).nonzero().flatten().tolist()
    return s - hit[0] if len(hit) == 1 else None


def _offset_heard(patient: Patient) -> int | None:
    """The same for a causal model of tokens, from what its loss was heard to read.

    A changed label shows in one row of the targets. A changed token shows first in the row of
    probabilities at its place. Their distance is the offset.
    """
    place = patient.roles["labels"][0]
    labels, x = patient.base[place], patient.main_in(patient.base)
    if labels.shape != x.shape or not patient.promises.causal:
        return None
    s = x.shape[1] // 2
    label, token = labels.clone(), x.clone()
    label[0, s] = (labels[0, s] + 1) % (int(labels.max()) + 1)
    token[0, s] = different(patient, x)[0, s]
    made = [patient.base, {**patient.base, place: label}, patient.with_main(patient.base, token)]
    heard = [_graded(patient, inputs) for inputs in made]
    if any(h is None for h in heard):
        return None
    by_label = (heard[1][1] != heard[0][1]).flatten().nonzero().flatten().tolist()
    by_token = (heard[2][0] != heard[0][0]).any(-1).flatten().nonzero().flatten().tolist()
    return by_token[0] - by_label[0] if len(by_label) == 1 and by_token else None


def _graded(patient: Patient, inputs: Inputs) -> tuple[Tensor, Tensor] | None:
    """The log-probabilities and targets that the loss reads, classes last."""
    for op in patient.hear(inputs)[1].ops:
        if op.name.startswith("nll_loss"):
            return op.args[0].detach().movedim(1, -1), op.args[1]
    return None


def counted(patient: Patient) -> Iterator[Finding]:
    """A loss must be the same with padding at the end and without it.

    Where padding is left out of the sum and not out of the number that it is divided by, the loss
    of a sentence depends on how long the longest one of its batch is.
    """
    if not is_loss(patient) or patient.pads_left:
        return
    place, n = patient.roles["labels"][0], patient.sizes.length
    inputs = patient.make(lengths=[n - 2])
    labels = inputs[place]
    if labels.ndim != 2 or labels.shape[1] != n:
        return
    if "padding" not in patient.roles:
        pad = patient.promises.pad_id
        inputs[place] = torch.cat([labels[:, :-2], labels[:, :2] * 0 + (pad or IGNORED)], 1)
    short = patient.make(patient.resized(length=n - 2))
    x = patient.main_in(inputs).narrow(patient.axis, 0, n - 2)
    short = {**patient.with_main(short, x), place: labels[:, :-2]}
    try:
        long_loss, loss = (loss_of(patient, i).detach() for i in (inputs, short))
    except Exception:
        return
    if gap(long_loss, loss) > 1e-3 * float(loss.abs()):
        words = (
            f"two tokens of padding turn a loss of {float(loss):.3g} into {float(long_loss):.3g}"
        )
        yield Finding("labels-of-padding", WARNING, words)


def ignored(patient: Patient) -> Iterator[Finding]:
    """Logits at ignored labels, or at padding, must not move the loss."""
    if not is_loss(patient) or not patient.main.is_floating_point() or patient.pads_left:
        return
    place = patient.roles["labels"][0]
    labels = patient.base[place].clone()
    if labels.ndim != 2:
        return
    n = labels.shape[1]
    lengths = [n - 2]
    inputs = patient.make(lengths=lengths)
    if "padding" not in patient.roles:
        labels[:, n - 2 :] = patient.promises.pad_id or IGNORED
    inputs[place] = labels
    logits = patient.main_in(inputs).clone()
    changed = logits.clone()
    changed[:, n - 2] = changed[:, n - 2].flip(-1) + 1.0 * torch.arange(logits.shape[-1])
    try:
        losses = [
            loss_of(patient, patient.with_main(inputs, x)).detach() for x in (logits, changed)
        ]
    except Exception:
        return
    if gap(*losses) > 1e-6:
        words = f"the loss moved by {gap(*losses):.2g} when only logits at padding changed"
        yield Finding("labels-of-padding", FAULT, words)
