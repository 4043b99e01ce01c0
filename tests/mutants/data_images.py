"""Faults in the digits."""

from mutants import Mutant

MODULE = "attnlib.data.images"
TESTS = ["test_data.py"]
NEEDS = ["sklearn.datasets"]
MUTANTS = [
    Mutant(
        "Digits",
        "test before training",
        '    train_images: Float[Tensor, "n 1 8 8"]\n'
        '    train_labels: Int[Tensor, " n"]\n'
        '    test_images: Float[Tensor, "m 1 8 8"]\n'
        '    test_labels: Int[Tensor, " m"]\n',
        '    test_images: Float[Tensor, "m 1 8 8"]\n'
        '    test_labels: Int[Tensor, " m"]\n'
        '    train_images: Float[Tensor, "n 1 8 8"]\n'
        '    train_labels: Int[Tensor, " n"]\n',
        "fields in another order",
    ),
    Mutant(
        "Digits",
        "labels of other images",
        "images[test], labels[test])",
        "images[test], labels[train][: len(test)])",
        "accuracy at chance, with no error",
    ),
    Mutant(
        "Digits",
        "tested on what was learned",
        "images[test], labels[test])",
        "images[train], labels[train])",
        "a copied line",
    ),
    Mutant(
        "digits",
        "not centred",
        "images = (images - mean) / std",
        "images = images / std",
        "half of a normalisation",
    ),
    Mutant(
        "digits",
        "the test images have a say",
        "mean, std = images[train].mean(), images[train].std()",
        "mean, std = images.mean(), images.std()",
        "a small leak",
    ),
    Mutant(
        "digits",
        "the last ones are not kept apart by chance",
        "order = torch.randperm(len(images), generator=_generator(seed))",
        "order = torch.arange(len(images))",
        "the file is sorted by writer",
    ),
    Mutant(
        "digits",
        "the seed is ignored",
        "generator=_generator(seed)",
        "generator=_generator(0)",
        "an argument that is not used",
    ),
]
