"""Handwritten digits."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attnlib.data.seeds import _generator
from attnlib.data.text import _find_scikit_learn


class Digits(NamedTuple):
    """Handwritten digits: images of 8 by 8 grey values, and which digit each one shows.

    Over the training images, the grey values have mean 0 and standard deviation 1.

    Example:
        >>> data = digits()
        >>> len(data.train_images), len(data.test_images)
        (1438, 359)
    """

    train_images: Float[Tensor, "n 1 8 8"]
    train_labels: Int[Tensor, " n"]
    test_images: Float[Tensor, "m 1 8 8"]
    test_labels: Int[Tensor, " m"]


def digits(*, seed: int | torch.Generator = 0) -> Digits:
    """Load scikit-learn's 1797 handwritten digits, a fifth of them kept for testing.

    Args:
        seed: Decides which ones are kept.

    Raises:
        ModuleNotFoundError: If scikit-learn is not installed.

    Example:
        >>> data = digits()
        >>> data.train_images.shape, data.test_images.shape
        (torch.Size([1438, 1, 8, 8]), torch.Size([359, 1, 8, 8]))

    Source:
        ``sklearn.datasets.load_digits``; Alpaydin and Kaynak 1998, doi:10.24432/C50P49.
    """
    _find_scikit_learn()
    from sklearn.datasets import load_digits  # a second to import, and only needed here

    found = load_digits()
    images = torch.from_numpy(found.images).float()[:, None]  # (N, 1, 8, 8)
    labels = torch.from_numpy(found.target).long()
    order = torch.randperm(len(images), generator=_generator(seed))
    test, train = order.split([len(order) // 5, len(order) - len(order) // 5])
    mean, std = images[train].mean(), images[train].std()
    images = (images - mean) / std
    return Digits(images[train], labels[train], images[test], labels[test])
