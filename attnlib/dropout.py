"""Dropout that does not hold up training on a CPU."""

import torch
from jaxtyping import Float, Int16
from torch import Tensor, nn

_STEPS = 2**16  # what 16 random bits can tell apart


class Dropout(nn.Dropout):
    r"""Drop numbers at random in training, and make the others larger by as much on average.

    .. math:: y_i = \frac{m_i\, x_i}{1 - p}, \quad P(m_i = 0) = p, \; P(m_i = 1) = 1 - p

    The same as ``torch.nn.Dropout``, which it is on other devices and when it is compiled. On a
    CPU that draws a random number for each entry; here one of 64 bits serves four. Forward and
    backward take half the time, and a byte is kept for each entry instead of four.

    Args:
        p: Probability that a number is dropped, rounded to a multiple of :math:`2^{-16}`.

    Raises:
        ValueError: If ``p`` is not in 0 to 1.

    Example:
        >>> drop = Dropout(0.5)
        >>> sorted(set(drop(torch.ones(1000)).tolist()))
        [0.0, 2.0]
        >>> drop.eval()(torch.ones(3))
        tensor([1., 1., 1.])

    Source:
        Srivastava et al. 2014, JMLR 15, section 4, scaled in training instead of at test time.
    """

    def __init__(self, p: float) -> None:
        super().__init__(p)

    def forward(self, x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        """Drop some of the numbers, in training only."""
        if not self.training:
            return x
        dropped = round(self.p * _STEPS)
        is_cpu = x.device.type == "cpu" and not torch.compiler.is_compiling()
        if dropped in (0, _STEPS) or not is_cpu:
            return super().forward(x)
        keep = _random_int16(x) >= dropped - _STEPS // 2
        return torch.where(keep, x, 0.0) * (_STEPS / (_STEPS - dropped))


def _random_int16(x: Tensor) -> Int16[Tensor, "*shape"]:
    """A random whole number of 16 bits for each entry, four of them from each draw."""
    draws = torch.empty((x.numel() + 3) // 4, dtype=torch.int64, device=x.device)
    draws.random_(-(2**63), None)  # without the limits, the first bit would always be 0
    return draws.view(torch.int16)[: x.numel()].view(x.shape)
