"""Listen to the tensor operations of a forward pass, and find the attention in them.

Many faults are the same from outside: padding leaks because the mask was forgotten, multiplied, or
put on the wrong axis. The operations tell them apart. The listener sits below the modules, where
PyTorch dispatches each operation, so it hears any code: a class, a function, ``einsum``, or the
fused ``scaled_dot_product_attention``. It can also change what an operation returns, which shows
what depends on it.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

Edit = Callable[[Tensor], Tensor]

VIEWS = set(
    "view _unsafe_view reshape t transpose permute expand clone contiguous slice select split "
    "split_with_sizes unbind unsqueeze squeeze alias detach repeat cat index_select _to_copy "
    "as_strided unfold lift_fresh stack flatten roll flip index copy_ _reshape_alias gather "
    "movedim swapaxes chunk constant_pad_nd".split()
)
SCALINGS = {"mul", "div", "mul_", "div_", "neg"}
SHAPINGS = SCALINGS | set(
    "add add_ sub sub_ masked_fill masked_fill_ where tanh clamp nan_to_num baddbmm rsub minimum "
    "maximum native_dropout tril triu _log_softmax log exp".split()
)
PRODUCTS = {"bmm", "mm", "baddbmm", "addmm", "dot", "mv"}
SOFTMAXES = {"_softmax", "_safe_softmax", "_log_softmax"}


@dataclass(frozen=True)
class Op:
    """One tensor operation that was heard."""

    index: int
    name: str
    args: tuple
    kwargs: dict[str, Any]
    outs: tuple[Tensor, ...]


def key(tensor: Tensor) -> tuple:
    """What tells one tensor from another, also when PyTorch has wrapped it anew."""
    place = tensor.untyped_storage().data_ptr()
    return place, tensor.storage_offset(), tuple(tensor.shape), tensor.stride()


def tensors_in(value: Any) -> Iterator[Tensor]:
    """All tensors in a nest of tuples, lists, dicts and model outputs."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors_in(item)


class Listener(TorchDispatchMode):
    """Hears every operation inside a ``with`` block, and edits the ones it is told to.

    Args:
        edits: For the number of an operation, a function that changes what it returns.
    """

    def __init__(self, edits: dict[int, Edit] | None = None) -> None:
        super().__init__()
        self.ops: list[Op] = []
        self.edits = edits or {}
        self.made: dict[tuple, list[int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        """Run one operation and write it down."""
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        index = len(self.ops)
        if index in self.edits:
            first = next(tensors_in(out))
            with torch.no_grad():
                first.copy_(self.edits[index](first))
        outs = tuple(tensors_in(out))
        self.ops.append(Op(index, func.overloadpacket.__name__, args, kwargs, outs))
        come_in = {key(t) for t in tensors_in(args)} if outs else set()
        for made in outs:
            if key(made) not in come_in or func.overloadpacket.__name__.endswith("_"):
                self.made.setdefault(key(made), []).append(index)
        return out

    def maker(self, tensor: Tensor, before: int) -> Op | None:
        """The operation that made a tensor, as it was when operation ``before`` read it."""
        earlier = [i for i in self.made.get(key(tensor), ()) if i < before]
        return self.ops[earlier[-1]] if earlier else None

    def ancestors(self, tensor: Tensor, before: int, through: set[str]) -> dict[int, Op]:
        """The operations that a tensor comes from, as far back as ``through`` allows."""
        found: dict[int, Op] = {}
        waiting = [(tensor, before)]
        while waiting:
            current, limit = waiting.pop()
            op = self.maker(current, limit)
            if op is None or op.index in found:
                continue
            found[op.index] = op
            if op.name in through:
                waiting += [(t, op.index) for t in tensors_in(op.args)]
        return found


@dataclass(frozen=True)
class Product:
    """The product of queries and keys, and the factor that scales it before the softmax.

    ``factor`` is None where a factor is not one constant; ``learned`` says that a parameter
    takes part. ``q`` and ``k`` are the tensors before any scaling. ``width`` is how many numbers a
    score sums over: more than in ``q`` where several products are added, content and position.
    """

    q: Tensor
    k: Tensor
    factor: float | None
    learned: bool
    index: int
    width: int = 0


@dataclass(frozen=True)
class AttentionCall:
    """One attention in a forward pass.

    ``weights`` are those that multiply the values, with the keys last, or None if no product was
    found. ``scores`` is what went into the softmax. ``index`` and ``result`` are the operation that
    mixed the values, and what came out.
    """

    kind: str  # "softmax", or "fused" for scaled_dot_product_attention
    scores: Tensor
    probs: Tensor
    dim: int
    weights: Tensor | None
    v: Tensor | None
    result: Tensor | None
    index: int
    softmax_index: int
    product: Product | None


def _largest(parts: list[Tensor] | tuple[Tensor, ...]) -> Tensor:
    """The largest of the tensors that were joined, the last if several are: scores, not a sink."""
    return max(reversed(parts), key=lambda part: part.numel())


def _has_scores(product: Tensor, scores: Tensor) -> bool:
    """Whether a product can be the scores, or all of them but a few that have no key: sinks."""
    if product.numel() == scores.numel():
        return True
    if product.ndim < 2 or scores.ndim < 2 or product.shape[-2] != scores.shape[-2]:
        return False
    rows, extra = product.numel() // product.shape[-1], scores.shape[-1] - product.shape[-1]
    return rows * scores.shape[-1] == scores.numel() and 0 < extra <= 4


def scalar(value: Any) -> float | None:
    """The number in a number or in a tensor of one element."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, Tensor) and value.numel() == 1 and value.dtype != torch.bool:
        return float(value.detach())
    return None


class Hearing:
    """What one forward pass did: its operations and the attention in them."""

    def __init__(self, listener: Listener, parameters: list[Tensor]) -> None:
        self.listener = listener
        self.ops = listener.ops
        self.parameters = {key(p) for p in parameters}
        self.calls = [c for op in self.ops for c in self._call(op)]

    # ------------------------------------------------------------------ scale

    def is_learned(self, value: Any, before: int) -> bool:
        """Whether a number or tensor comes from parameters alone."""
        if not isinstance(value, Tensor):
            return False
        if key(value) in self.parameters:
            return True
        every = {op.name for op in self.ops}
        found = self.listener.ancestors(value, before, every)
        return any(key(t) in self.parameters for op in found.values() for t in tensors_in(op.args))

    def unscale(self, tensor: Tensor, before: int) -> tuple[Tensor, float | None, bool]:
        """Take constant factors off a tensor: what is left, the factor, and whether it is learned.

        The walk goes back through views and multiplications by one number.
        """
        factor: float | None = 1.0
        learned = False
        while (op := self.listener.maker(tensor, before)) is not None:
            before = op.index
            if op.name in SCALINGS:
                other = op.args[1] if len(op.args) > 1 else -1.0
                number, inner = scalar(other), op.args[0]
                if number is None and scalar(inner) is not None and op.name.startswith("mul"):
                    number, inner, other = scalar(inner), other, inner
                if number is None and not (
                    isinstance(other, Tensor) and self._is_plain(other, before)
                ):
                    break
                learned |= self.is_learned(other, before)
                if number is None or factor is None:
                    factor = None
                else:
                    factor = factor / number if op.name.startswith("div") else factor * number
                tensor = inner
            elif op.name in VIEWS and op.args:
                first = op.args[0]
                tensor = _largest(first) if isinstance(first, list | tuple) else first
            else:
                break
        return tensor, factor, learned

    def _is_plain(self, other: Tensor, before: int) -> bool:
        """Whether a factor is a small learned tensor, such as a temperature for each head."""
        return (
            other.numel() <= 64
            and self.is_learned(other, before)
            and max(other.shape, default=1) == other.numel()
        )

    def _product(self, scores: Tensor, before: int) -> Product | None:
        """Find the product of queries and keys behind the scores."""
        waiting: list[tuple[Tensor, int, float | None, bool]] = [(scores, before, 1.0, False)]
        found: list[Product] = []
        while waiting:
            tensor, limit, factor, learned = waiting.pop(0)
            inner, more, from_parameter = self.unscale(tensor, limit)
            factor = None if factor is None or more is None else factor * more
            learned |= from_parameter
            op = self.listener.maker(inner, limit)
            if op is None:
                continue
            if op.name in {"bmm", "mm", "baddbmm"}:
                product = self._operands(op, scores, factor, learned)
                if product is not None:
                    found.append(product)
            elif op.name in SHAPINGS:
                for t in tensors_in(op.args):
                    if t.is_floating_point() and t.numel() > 1:
                        waiting.append((t, op.index, factor, learned))
        if not found:
            return None
        return replace(found[0], width=sum({p.index: p.q.shape[-1] for p in found}.values()))

    def _operands(
        self, op: Op, scores: Tensor, factor: float | None, learned: bool
    ) -> Product | None:
        a, b = list(tensors_in(op.args))[-2:]
        if not _has_scores(op.outs[0], scores):
            return None
        if key(a) in self.parameters or key(b) in self.parameters:
            return None
        if not self._is_made(a, op.index) or not self._is_made(b, op.index):
            return None
        _, fa, la = self.unscale(a, op.index)
        _, fb, lb = self.unscale(b, op.index)
        total = None if None in (factor, fa, fb) else factor * fa * fb
        return Product(a, b.transpose(-2, -1), total, learned or la or lb, op.index)

    def _is_made(self, tensor: Tensor, before: int) -> bool:
        """Whether a tensor is more than a view of a parameter."""
        found = self.listener.ancestors(tensor, before, VIEWS)
        if any(op.name not in VIEWS for op in found.values()):
            return True  # learned keys beside keys of tokens are no parameter any more
        sources = [t for op in found.values() if op.name in VIEWS for t in tensors_in(op.args)]
        return not any(key(t) in self.parameters for t in sources)

    # ------------------------------------------------------------------ attention

    def _call(self, op: Op) -> Iterator[AttentionCall]:
        if op.name.startswith("_scaled_dot_product") and not op.name.endswith("backward"):
            yield self._fused(op)
        elif op.name in SOFTMAXES:
            yield self._softmax(op)

    def _fused(self, op: Op) -> AttentionCall:
        q, k, v = (t.detach() for t in op.args[:3])
        causal = op.kwargs.get("is_causal", op.args[4] if len(op.args) > 4 else False)
        mask, given = op.kwargs.get("attn_mask"), op.kwargs.get("scale")
        scale = q.shape[-1] ** -0.5 if given is None else given
        if k.shape[1] != q.shape[1]:
            k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
            v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
        scores = q @ k.transpose(-2, -1) * scale
        if causal:
            hide = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
            scores = scores.masked_fill(hide, -math.inf)
        if mask is not None:
            added = mask.detach()
            scores = (
                scores.masked_fill(~added, -math.inf)
                if mask.dtype == torch.bool
                else scores + added
            )
        weights = scores.softmax(-1).nan_to_num()
        _, fq, lq = self.unscale(op.args[0], op.index)
        _, fk, lk = self.unscale(op.args[1], op.index)
        total = None if None in (fq, fk) else scale * fq * fk
        product = Product(q, k, total, lq or lk, op.index)
        return AttentionCall(
            "fused", scores, weights, -1, weights, v, op.outs[0], op.index, op.index, product
        )

    def _softmax(self, op: Op) -> AttentionCall:
        scores, dim = op.args[0], op.args[1]
        mixed = self._mixing(op)
        weights, v, result, index = (None, None, None, op.index) if mixed is None else mixed
        product = self._product(scores, op.index)
        return AttentionCall(
            "softmax",
            scores.detach(),
            op.outs[0].detach(),
            dim % scores.ndim,
            weights,
            v,
            result,
            index,
            op.index,
            product,
        )

    def _mixing(self, softmax: Op) -> tuple[Tensor, Tensor, Tensor, int] | None:
        """The product of these weights with the values: weights, values, result, number.

        A product with a parameter, as in talking heads, passes weights on.
        """
        carriers = {softmax.index}
        for op in self.ops[softmax.index + 1 :]:
            if op.name not in {"bmm", "mm", "baddbmm"}:
                continue
            a, b = list(tensors_in(op.args))[-2:]
            for weights, v, turned in ((a, b, False), (b, a, True)):
                found = self.listener.ancestors(weights, op.index, VIEWS | SHAPINGS)
                if not carriers & set(found):
                    continue
                if key(v) in self.parameters or not self._is_made(v, op.index):
                    carriers.add(op.index)
                    break
                w = weights.transpose(-2, -1) if turned else weights
                values = v.transpose(-2, -1) if turned else v
                result = op.outs[0].transpose(-2, -1) if turned else op.outs[0]
                return w.detach(), values.detach(), result.detach(), op.index
        return None

    # ------------------------------------------------------------------ alarms

    def first_bad(self) -> Op | None:
        """The first operation that makes NaN or infinity out of good numbers, if NaN comes of it.

        Minus infinity is what masks are made of, so it is no alarm by itself.
        """
        for op in self.ops:
            outs = [t for t in op.outs if t.is_floating_point()]
            if op.name in {"empty", "empty_like", "new_empty", "empty_strided"}:
                continue
            comes_in = [t for t in tensors_in(op.args) if t.is_floating_point()]
            if any(t.isnan().any() for t in outs) and not any(t.isnan().any() for t in comes_in):
                return op
        return None
