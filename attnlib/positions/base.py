"""What positions that act inside attention have in common."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attnlib.checks import check_floats, check_sizes


class Positions(nn.Module):
    r"""Positions that act inside attention. This one does nothing; the others override it.

    An attention layer turns its queries and its new keys with :meth:`rotate`, appends the keys to
    its cache, and adds :meth:`bias` to the scaled scores:

    .. math:: scores = \frac{rotate(q) \cdot rotate(k)}{\sqrt{d_{head}}} + bias(q, k)

    Both methods speak of *one* sequence, in which the last query sits at the last key. So they
    serve training, decoding with a cache and a memory of earlier segments, but not
    cross-attention, where the queries count along another sequence than the keys. There, leave
    them out, as T5 and others do. Only rotation is of use there, where both sequences run in step
    (speech and its transcript): it works with absolute positions and needs no common last token.

    Example:
        >>> x = torch.randn(1, 2, 5, 4)
        >>> torch.equal(Positions().rotate(x), x), Positions().bias(x, x)
        (True, None)
    """

    def rotate(
        self, x: Float[Tensor, "batch heads length d_head"], offset: int = 0
    ) -> Float[Tensor, "batch heads length d_head"]:
        """Turn queries or keys according to where they are.

        Args:
            x: Queries, or keys that are new.
            offset: Position of the first of them, in tokens.

        Returns:
            ``x``, turned.
        """
        return x

    def bias(
        self,
        query: Float[Tensor, "batch heads q_len d_head"],
        key: Float[Tensor, "batch key_heads k_len d_head"],
    ) -> Float[Tensor, "#batch #heads q_len k_len"] | None:
        """What to add to the scaled scores, in nats.

        Args:
            query: The queries, not scaled. The last one sits at the last key.
            key: All keys, cached ones included. There may be fewer key heads than heads.

        Returns:
            A tensor that broadcasts to (batch, heads, q_len, k_len), or None if nothing is added.
        """
        return None


def relative_position(
    q_len: int, k_len: int | None = None, *, device: torch.device | str | None = None
) -> Int[Tensor, "q_len k_len"]:
    """How many positions each key comes after each query (negative: before it).

    Args:
        q_len: Number of queries.
        k_len: Number of keys; ``q_len`` if left out. With more keys than queries, the queries are
            the last ones, as in decoding with a cache.
        device: Where the numbers are made.

    Returns:
        Key position minus query position, in tokens.

    Raises:
        TypeError: If a length is not a whole number.
        ValueError: If a length is not positive or there are fewer keys than queries.

    Example:
        >>> relative_position(2, 4)
        tensor([[-2, -1,  0,  1],
                [-3, -2, -1,  0]])
    """
    k_len = q_len if k_len is None else k_len
    check_sizes(q_len=q_len, k_len=k_len)
    if k_len < q_len:
        raise ValueError(
            f"there must be at least as many keys as queries, got k_len={k_len}, q_len={q_len}: "
            "the last query sits at the last key. In cross-attention no position is shared; leave "
            "these positions out there"
        )
    query = torch.arange(k_len - q_len, k_len, device=device)
    return torch.arange(k_len, device=device) - query[:, None]


def _pick(
    by_distance: Float[Tensor, "batch heads q_len choices"], index: Int[Tensor, "q_len k_len"]
) -> Float[Tensor, "batch heads q_len k_len"]:
    """For each query and key, the query's number for the distance that they have."""
    batch, heads = by_distance.shape[:2]
    return by_distance.gather(-1, index.expand(batch, heads, -1, -1))


def _check_heads(
    name: str, x: Tensor, *, n_heads: int | None = None, d_head: int | None = None
) -> None:
    check_floats(name, x)
    if (
        x.ndim != 4
        or (n_heads is not None and x.shape[1] != n_heads)
        or (d_head is not None and x.shape[3] != d_head)
    ):
        layout = f"batch, {n_heads or 'heads'}, length, {d_head or 'd_head'}"
        raise ValueError(f"{name} must be ({layout}), got shape {tuple(x.shape)}")


def _check_same_kind(query: Tensor, weight: Tensor) -> None:
    if query.dtype != weight.dtype and not torch.is_autocast_enabled(query.device.type):
        raise TypeError(
            f"query is {query.dtype}, but the positions are {weight.dtype}; convert with .to()"
        )
    if query.device != weight.device:
        raise ValueError(
            f"query is on {query.device}, but the positions are on {weight.device}; move one of "
            "them with .to()"
        )
