"""What the author of a module promises: without it, a fault cannot be told from a design."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

from attnlib.doctor.findings import CAUSES

MEANINGS = ("keep", "hide", "lengths", "add")
Argument = int | str  # the position or the name of an argument


@dataclass(frozen=True)
class Promises:
    """What a module is meant to do. What is left out is inferred, or not judged.

    An argument of the module is named by its position, from 0, or by its name.

    Args:
        causal: Whether an output may depend on its own and earlier tokens alone.
        main: The argument whose tokens the outputs belong to; the queries.
        memory: The argument that cross-attention reads: the encoder's states; the keys.
        padding: The argument that says which tokens are padding.
        memory_padding: The same for the memory.
        padding_means: What the mask says: ``"keep"`` (True or 1 is a real token), ``"hide"`` (True
            is padding), ``"lengths"`` (a number of real tokens for each sample), ``"add"`` (a float
            that is added to the scores).
        left_padding: Whether padding may also stand on the left; ``"only"`` if it stands nowhere
            else. An example that is padded on the left says so too.
        pad_id: The token that is padding, for a module that finds it by itself.
        memory_pad_id: The same for the memory, such as the source of a translation.
        documents: The argument with the number of the document of each token, for packed rows.
        labels: The argument with the labels, for a module that returns a loss.
        label_offset: Row t of the logits is graded on label t + label_offset: 1 if labels are the
            very tokens, 0 if they come shifted.
        order_matters: Whether another order of tokens must give another output.
        cache: How to decode with a cache: the argument that takes it, where the module returns the
            new one as its second output (or as an attribute of that name); or a function
            ``step(module, chunk, cache)`` that returns output and cache.
        weights: How to ask for the weights, as keyword arguments: ``{"need_weights": True}``.
        output: Which output is the main one, if it is not the first.
        n_heads: Number of query heads.
        kv_heads: Number of key and value heads.
        n_layers: Number of layers.
        window: How many tokens a query sees, its own included.
        sinks: How many first tokens everybody sees.
        prefix: How many first tokens see each other both ways.
        dropout: The dropout that is configured.
        dtypes: The types it must survive, such as ``("float16",)``.
        scale: The factor of the scores if it is not 1/sqrt(d_head), or True: it is by design.
        qk_norm: Whether queries and keys are normalised.
        averages: Whether an output is an average of the input: constants must stay constant.
        shared_layers: Whether layers share their weights on purpose.
        batch_first: Whether the batch is the first axis of the input.
        by_design: Causes that are meant, and get a note at most.

    Raises:
        ValueError: If a meaning or a cause is unknown.

    Example:
        >>> Promises(causal=True, padding="keep").padding_means is None
        True
    """

    causal: bool | None = None
    main: Argument | None = None
    memory: Argument | None = None
    padding: Argument | None = None
    memory_padding: Argument | None = None
    padding_means: str | None = None
    left_padding: bool | str = False
    pad_id: int | None = None
    memory_pad_id: int | None = None
    documents: Argument | None = None
    labels: Argument | None = None
    label_offset: int | None = None
    order_matters: bool | None = None
    cache: Argument | Callable[[Any, Any, Any], tuple[Any, Any]] | None = None
    weights: dict[str, Any] | None = None
    output: Argument | None = None
    n_heads: int | None = None
    kv_heads: int | None = None
    n_layers: int | None = None
    window: int | None = None
    sinks: int = 0
    prefix: int | None = None
    dropout: float | None = None
    dtypes: tuple[str, ...] = ()
    scale: float | bool | None = None
    qk_norm: bool = False
    averages: bool = False
    shared_layers: bool = False
    batch_first: bool = True
    by_design: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.padding_means not in (None, *MEANINGS):
            raise ValueError(f"padding_means must be one of {MEANINGS}; got {self.padding_means!r}")
        if self.left_padding not in (False, True, "only"):
            raise ValueError(
                f"left_padding must be False, True or 'only'; got {self.left_padding!r}"
            )
        unknown = [cause for cause in self.by_design if cause not in CAUSES]
        if unknown:
            raise ValueError(f"by_design holds unknown causes: {unknown}; see doctor.CAUSES")

    @classmethod
    def named(cls, **promises: Any) -> "Promises":
        """Make promises from keyword arguments, with an error that lists what there is.

        Raises:
            TypeError: If a name is unknown.
        """
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(promises) - set(known))
        if unknown:
            raise TypeError(f"no such promise: {', '.join(unknown)}; there are {', '.join(known)}")
        return cls(**promises)
