"""Labels and losses: which output is graded on which token, and what does padding count?"""

from collections.abc import Iterator

import torch
from torch import Tensor

from attnlib.doctor.findings import FAULT, WARNING, Finding
from attnlib.doctor.measure import gap
from attnlib.doctor.patient import Inputs, Patient
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
    if not is_loss(patient) or not patient.main.is_floating_point():
        return
    offset = _offset(patient)
    wanted = patient.promises.label_offset
    if offset is None:
        return
    if wanted is not None and offset != wanted:
        cause = "labels-not-shifted" if offset < wanted else "labels-shifted-twice"
        yield Finding(
            cause, FAULT, f"row t is graded on label t + {offset}; promised is t + {wanted}"
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


def ignored(patient: Patient) -> Iterator[Finding]:
    """Logits at ignored labels, or at padding, must not move the loss."""
    if not is_loss(patient) or not patient.main.is_floating_point():
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
