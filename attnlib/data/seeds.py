"""What every source of data asks of its arguments."""

import torch
from torch import Tensor


def _generator(seed: int | torch.Generator) -> torch.Generator:
    if isinstance(seed, torch.Generator):
        return seed
    if isinstance(seed, Tensor) or not hasattr(seed, "__index__"):
        raise TypeError(f"seed must be a whole number or a torch.Generator, got {seed!r}")
    return torch.Generator().manual_seed(seed)
