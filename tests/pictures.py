"""Masks as drawings, so that no test compares a mask with the code that made it."""

import torch
from torch import Tensor


def drawn(picture: str) -> Tensor:
    """Turn ``"x.. xx. xxx"`` (x = may attend) into a matrix of booleans, a word for each row."""
    return torch.tensor([[c == "x" for c in row] for row in picture.split()])
