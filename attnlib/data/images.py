"""Handwritten digits, and images as patches."""

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


def patches(
    images: Float[Tensor, "batch channels height width"], size: int
) -> Float[Tensor, "batch n_patches d_patch"]:
    """Cut images into square patches, row by row: the tokens of a vision Transformer.

    Args:
        images: The images.
        size: Height and width of a patch, in pixels.

    Returns:
        One row of ``channels * size * size`` numbers for each patch.

    Raises:
        ValueError: If ``images`` is not 4-D, or ``size`` does not divide its height and width.

    Example:
        >>> image = torch.arange(16.0).reshape(1, 1, 4, 4)
        >>> patches(image, 2)[0]
        tensor([[ 0.,  1.,  4.,  5.],
                [ 2.,  3.,  6.,  7.],
                [ 8.,  9., 12., 13.],
                [10., 11., 14., 15.]])

    Source:
        Dosovitskiy et al. 2021, arXiv:2010.11929, section 3.1.
    """
    if images.ndim != 4:
        raise ValueError(
            f"images must be (batch, channels, height, width), got shape {tuple(images.shape)}"
        )
    height, width = images.shape[-2:]
    if size < 1 or height % size or width % size:
        raise ValueError(f"patches of {size} by {size} do not fill an image of {height} by {width}")
    rows = images.unflatten(-2, (-1, size)).unflatten(-1, (-1, size))  # (B, C, H/s, s, W/s, s)
    return rows.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
