"""Single checks for a test suite of your own: each raises ``AssertionError`` with the evidence."""

from collections.abc import Callable
from typing import Any

from attnlib.doctor.examination import examine, look
from attnlib.doctor.patient import Patient
from attnlib.doctor.probes.padding import has_padding
from attnlib.doctor.promises import Promises
from attnlib.doctor.report import Report, UnhealthyError


def assert_healthy(module: Callable, *inputs: Any, **promises: Any) -> Report:
    """Assert that the doctor finds no fault and no warning; all that ``examine`` takes goes.

    Raises:
        UnhealthyError: With the printed report. It is an ``AssertionError``.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        >>> assert_healthy(layer, torch.randn(2, 5, 8), causal=False, n_heads=2).ok
        True
    """
    report = examine(module, *inputs, **promises)
    report.raise_for_faults()
    return report


def _assert_none_from(
    probes: tuple[str, ...], module: Callable, inputs: tuple, promises: dict[str, Any]
) -> None:
    """Assert that some probes ran and found nothing."""
    report = look(module, inputs, promises, probes)
    report.raise_for_faults()
    if not set(probes) <= set(report.probes):
        raise UnhealthyError(f"{report.patient} could not be checked: {'; '.join(report.inferred)}")


def assert_causal(module: Callable, *inputs: Any, **promises: Any) -> None:
    """Assert that no output depends on later tokens.

    Raises:
        UnhealthyError: If one does; the text says how far it moved, and why.

    Example:
        >>> import torch
        >>> from attnlib.functional import attention
        >>> from attnlib.masks import causal_mask
        >>> x = torch.randn(2, 5, 8)
        >>> assert_causal(lambda x: attention(x, x, x, mask=causal_mask(x.shape[1]))[0], x)
    """
    _assert_none_from(("seeing.future",), module, inputs, promises | {"causal": True})


def assert_padding_invariant(module: Callable, *inputs: Any, **promises: Any) -> None:
    """Assert that padding, its content and its amount change nothing at real tokens.

    Pass the mask among the inputs; say ``padding=`` (its place or name) and ``padding_means=`` if
    its name does not tell.

    Raises:
        UnhealthyError: If padding is read.
        ValueError: If none of the inputs is a padding mask.

    Example:
        >>> import torch
        >>> from attnlib.functional import attention
        >>> def attend(x, keep):
        ...     return attention(x, x, x, mask=keep[:, None, None, :])[0]
        >>> x, keep = torch.randn(2, 5, 8), torch.ones(2, 5, dtype=torch.bool)
        >>> assert_padding_invariant(attend, x, keep)
    """
    names = promises.keys() - {"kwargs", "seed"}
    promised = Promises.named(**{name: promises[name] for name in names})
    if not has_padding(Patient(module, inputs, promises.get("kwargs") or {}, promised, 0)):
        raise ValueError(
            "no input is a padding mask of shape (batch, length); pass one, and say which it is: "
            "padding='keep'"
        )
    probes = ("padding.replaced_padding", "padding.no_effect", "padding.cropped")
    _assert_none_from(probes, module, inputs, promises)


def assert_batch_independent(module: Callable, *inputs: Any, **promises: Any) -> None:
    """Assert that no sample knows of another one, nor of its own index in the batch.

    Raises:
        UnhealthyError: If one does.

    Example:
        >>> import torch
        >>> assert_batch_independent(torch.nn.Linear(8, 8), torch.randn(2, 5, 8))
    """
    probes = ("batch.other_samples", "batch.index", "alarms.other_sizes")
    _assert_none_from(probes, module, inputs, promises)


def assert_cache_consistent(module: Callable, *inputs: Any, cache: Any, **promises: Any) -> None:
    """Assert that decoding with a cache equals the full pass, wherever it is cut.

    Args:
        module: The decoder.
        *inputs: Example inputs, without a cache.
        cache: How to pass it; see ``Promises``.
        **promises: Further promises.

    Raises:
        UnhealthyError: If some split differs.

    Example:
        >>> import torch
        >>> def running_sum(x, cache=None):
        ...     y = x.cumsum(1) + (0 if cache is None else cache)
        ...     return y, y[:, -1:]
        >>> assert_cache_consistent(running_sum, torch.randn(2, 5, 8), cache="cache")
    """
    _assert_none_from(("caching.cache",), module, inputs, promises | {"cache": cache})
