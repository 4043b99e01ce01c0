"""Exercises of the chapter on queries, keys and values."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlib.exercises.exercise import Case, Exercise, Suspect
from attnlib.exercises.masking import Weights, suspects
from attnlib.functional import masked_softmax

# ------------------------------------------------------------------- attention in one line


def _attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return ((q @ k.mT) / math.sqrt(q.shape[-1])).softmax(-1) @ v


def _attend_cases() -> Iterator[Case]:
    def of(batch: int, q_len: int, k_len: int, d: int, d_v: int, dtype: torch.dtype) -> tuple:
        sizes = (batch, q_len, d), (batch, k_len, d), (batch, k_len, d_v)
        return tuple(torch.randn(*size, dtype=dtype) for size in sizes)

    single, double = torch.float32, torch.float64
    yield Case("2 sequences of 5, width 64", of(2, 5, 5, 64, 64, single), "plain")
    words = "3 sequences, 5 queries, 7 keys, widths 11 and 13"
    yield Case(words, of(3, 5, 7, 11, 13, single), "other-sizes")
    yield Case("5 sequences, 33 queries, 19 keys", of(5, 33, 19, 5, 2, single), "long")
    yield Case("one sequence", of(1, 3, 5, 2, 7, single), "batch-of-one")
    yield Case("one query", of(2, 1, 5, 3, 7, single), "one-query")
    yield Case("one key", of(2, 5, 1, 3, 7, single), "one-key")
    yield Case("float64", of(2, 3, 5, 7, 11, double), "float64")
    q, k, v = of(2, 3, 5, 7, 11, single)
    yield Case("scores around 1000", (100 * q, 100 * k, v), "large-scores")


def _times_too_large(solution: Callable) -> str:
    """How the scores compare with what they should be, seen from the weights alone."""
    d = 64
    q, k = torch.randn(1, 5, d).double(), torch.randn(1, 7, d).double()
    weights = solution(q / 8, k / 8, torch.eye(7).double()[None])
    scores, right = weights.log(), q @ k.mT / 64 / math.sqrt(d)
    scores, right = scores - scores.mean(-1, keepdim=True), right - right.mean(-1, keepdim=True)
    ratio = float((scores * right).sum() / (right * right).sum())
    size = f"{ratio:.1f} times too large" if ratio > 1 else f"{1 / ratio:.1f} times too small"
    return f"at d_k = {d} the scores are {size}"


def _softmax_over_queries(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-2) @ v


def _softmax_over_batch(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(0) @ v


def _batch_summed(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bqd,ckd->bqk", q, k) / math.sqrt(q.shape[-1])
    return scores.softmax(-1) @ v


def _diagonal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = torch.einsum("bnd,bnd->bn", q, k) / math.sqrt(q.shape[-1])
    return scores.softmax(-1)[..., None] * v


def _unstable(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    powers = (q @ k.mT / math.sqrt(q.shape[-1])).exp()
    return powers / powers.sum(-1, keepdim=True) @ v


def _no_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1]) @ v


def _weights_alone(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1)


def _causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    past = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    return scores.masked_fill(~past, -torch.inf).softmax(-1) @ v


def _scaled(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return (q @ k.mT * scale).softmax(-1) @ v


_ATTEND = Exercise(
    name="attend",
    chapter="qkv",
    task="Attention for tensors of shape (batch, length, width), with any sizes.",
    takes=("q", "k", "v"),
    difficulty="easy",
    minutes=10,
    hints=(
        "Write down the shape after each step. Which axis has vanished after the dot products, "
        "and over which one do the shares add up to 1?",
        "Take the width from the tensor, at the moment of the call. Which of the three tensors "
        "has the width that the dot product sums over?",
    ),
    reference=_attend,
    cases=_attend_cases,
    suspects=(
        Suspect("no-scale", "you did not scale: {}", lambda q, k, v: _scaled(q, k, v, 1.0),
                _times_too_large),
        Suspect("scaled-by-width", "you divided by d_k, not by its square root: {}",
                lambda q, k, v: _scaled(q, k, v, 1 / q.shape[-1]), _times_too_large),
        Suspect("scale-inverted", "you multiplied by the root where you should divide: {}",
                lambda q, k, v: _scaled(q, k, v, q.shape[-1] ** 0.5), _times_too_large),
        Suspect("scaled-by-fourth-root", "you took the root twice, and divide by the fourth root "
                "of d_k: {}",
                lambda q, k, v: _scaled(q, k, v, q.shape[-1] ** -0.25), _times_too_large),
        Suspect("scaled-by-values", "the root is of the width of the values, not of the keys",
                lambda q, k, v: _scaled(q, k, v, v.shape[-1] ** -0.5)),
        Suspect("scaled-by-length", "the root is of the number of keys, not of their width",
                lambda q, k, v: _scaled(q, k, v, k.shape[-2] ** -0.5)),
        Suspect("scale-hard-coded", "you always divide by 8, which is right for a width of 64 only",
                lambda q, k, v: _scaled(q, k, v, 1 / 8)),
        Suspect("softmax-over-queries", "the shares add up to 1 over the queries, so a key deals "
                "itself out; over the keys they should", _softmax_over_queries),
        Suspect("softmax-over-batch", "the softmax runs over the batch: sequences compete",
                _softmax_over_batch),
        Suspect("batch-mixed", "the keys of all sequences are added up: give the batch one letter",
                _batch_summed),
        Suspect("diagonal-only", "each query meets only the key at its own place", _diagonal),
        Suspect("overflows", "powers of large scores overflow, and infinity by infinity is not a "
                "number", _unstable),
        Suspect("no-softmax", "scores are not shares yet: the softmax is missing", _no_softmax),
        Suspect("weights-returned", "you returned the weights; the values are not mixed yet",
                _weights_alone),
        Suspect("roles-exchanged", "keys ask and queries answer: their roles are exchanged",
                lambda q, k, v: _attend(k, q, v)),
        Suspect("view-for-transpose", "the keys are given a new shape, not transposed: a view or a "
                "reshape keeps the order of the numbers, and mixes the keys up",
                lambda q, k, v: _attend(q, k.reshape(*k.mT.shape).mT, v)),
        Suspect("causal-uncalled-for", "later keys are hidden, which nobody asked for", _causal),
        Suspect("keys-as-values", "the keys are mixed where the values should be",
                lambda q, k, v: _attend(q, k, k)),
    ),
    patient=lambda attend: (
        lambda x: attend(x, x, x), (torch.randn(2, 5, 16),), {"causal": False}),
)  # fmt: skip

# ------------------------------------------------------------------------------ a safe softmax


def _softmax_cases() -> Iterator[Case]:
    yield Case("scores of shape (5, 7)", (torch.randn(5, 7),), "plain")
    yield Case("scores of shape (2, 3, 5, 7)", (torch.randn(2, 3, 5, 7),), "more-axes")
    yield Case("one row, a vector", (torch.randn(5),), "vector")
    yield Case("scores around 150", (150 + torch.randn(3, 5),), "large")
    yield Case("scores around -150", (-150 + torch.randn(3, 5),), "very-negative")
    rows = torch.tensor([[150.0, 149.0], [-150.0, -151.0], [0.0, 1.0]])
    yield Case("large, very negative and small rows together", (rows,), "mixed-rows")
    hidden = torch.randn(3, 5).masked_fill(torch.eye(3, 5).bool(), -torch.inf)
    yield Case("a score of minus infinity in each row", (hidden,), "hidden")
    yield Case("float64", (torch.randn(3, 5).double(),), "float64")
    yield Case("float16", (torch.randn(3, 5).half() * 20,), "float16")


def _naive(scores: Tensor) -> Tensor:
    return scores.exp() / scores.exp().sum(-1, keepdim=True)


def _minus(scores: Tensor, shift: Tensor) -> Tensor:
    return _naive(scores - shift)


_SOFTMAX = Exercise(
    name="softmax",
    chapter="qkv",
    task="A softmax over the last axis, from exp and sum, that is right for scores of any size.",
    takes=("scores",),
    difficulty="easy",
    minutes=10,
    hints=(
        "What happens to the shares if you add the same number to all scores of a row?",
        "Which number could you take off a row so that no power is larger than 1, and not all of "
        "them vanish?",
    ),
    reference=lambda scores: scores.softmax(-1),
    cases=_softmax_cases,
    suspects=(
        Suspect("overflows", "powers of large scores overflow, and infinity by infinity is not a "
                "number", _naive),
        Suspect("one-maximum-for-all", "you subtract the largest score of the whole tensor: in a "
                "row that is far below it all powers vanish",
                lambda s: _minus(s, s.max())),
        Suspect("minimum-subtracted", "you subtract the smallest score, and the powers get larger",
                lambda s: _minus(s, s.amin(-1, keepdim=True))),
        Suspect("mean-subtracted", "you subtract the mean of each row: that is no bound, and it is "
                "minus infinity if one score is", lambda s: _minus(s, s.mean(-1, keepdim=True))),
        Suspect("wrong-axis", "the shares add up to 1 down the columns, not along the rows",
                lambda s: s.softmax(-2)),
        Suspect("first-axis", "the softmax runs over the first axis, not over the last one",
                lambda s: s.softmax(0)),
        Suspect("second-axis", "the softmax always runs over axis 1, which is the last one of a "
                "matrix only", lambda s: s.softmax(1)),
        Suspect("over-everything", "all entries together add up to 1, where each row should",
                lambda s: s.flatten().softmax(0).view_as(s)),
        Suspect("not-divided", "the powers are not divided by their sum",
                lambda s: (s - s.amax(-1, keepdim=True)).exp()),
        Suspect("maximum-added", "you add the largest score in place of subtracting it",
                lambda s: _minus(s, -s.amax(-1, keepdim=True))),
        Suspect("clamped", "you clamp the scores: large ones that differ get equal shares",
                lambda s: _naive(s.clamp(max=80))),
        Suspect("logarithm", "this is the logarithm of the shares",
                lambda s: s.log_softmax(-1)),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------- with a mask


def _masked(weights_of: Weights) -> Callable:
    """Attention with the step from scores to weights left open."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return weights_of(q @ k.mT / math.sqrt(q.shape[-1]), mask) @ v

    return attend


def _masked_cases() -> Iterator[Case]:
    def of(batch: int, heads: int, q_len: int, k_len: int, d: int, d_v: int) -> tuple:
        k, v = torch.randn(batch, heads, k_len, d), torch.randn(batch, heads, k_len, d_v)
        mask = torch.rand(batch, heads, q_len, k_len) < 0.6
        mask[..., 0] = True
        return torch.randn(batch, heads, q_len, d), k, v, mask

    yield Case("5 queries, 5 keys, width 16", of(2, 3, 5, 5, 16, 16), "plain")
    yield Case("3 queries, 7 keys, widths 5 and 11", of(2, 3, 3, 7, 5, 11), "other-sizes")
    yield Case("one sequence, one head", of(1, 1, 3, 5, 2, 7), "batch-of-one")
    q, k, v, mask = of(3, 2, 4, 5, 7, 2)
    real = (torch.arange(5) < torch.tensor([5, 3, 2])[:, None])[:, None, None]
    yield Case("a mask of padding, (3, 1, 1, 5)", (q, k, v, real), "padding")
    yield Case("a mask for all sequences, (1, 1, 4, 5)", (q, k, v, mask[:1, :1]), "shared-mask")
    hidden = torch.arange(5).view(1, 1, 1, 5) != 2
    huge = torch.where(hidden.mT, k, 900 * q.mean(2, keepdim=True))
    yield Case("a hidden key with a huge score", (q, huge, v, hidden), "huge")
    blind = mask & (torch.arange(4) != 1)[:, None]
    yield Case("a query that may see nothing", (q, k, v, blind), "blind-row")
    yield Case("float64", (q.double(), k.double(), v.double(), mask), "float64")
    yield Case("float16", (q.half(), k.half(), v.half(), blind), "float16")


def _values_masked(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    seen = mask.expand(*q.shape[:2], *mask.shape[2:]).any(-2)[..., None]
    return (q @ k.mT / math.sqrt(q.shape[-1])).softmax(-1) @ (v * seen)


def _masked_twin(**change: Callable) -> Callable:
    """Right attention with a mask, but for one of q, k, v and mask, which is changed before."""

    def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        given = {"q": q, "k": k, "v": v, "mask": mask}
        changed = {name: change[name](x) if name in change else x for name, x in given.items()}
        return _masked(masked_softmax)(**changed)

    return attend


def _masked_patient(masked: Callable) -> tuple[Callable, tuple, dict]:
    """Self-attention of one head, with a mask of padding."""

    def module(x: Tensor, keep: Tensor) -> Tensor:
        return masked(*(x[:, None],) * 3, keep[:, None, None])[:, 0]

    keep = torch.arange(5) < torch.tensor([[5], [3]])
    return module, (torch.randn(2, 5, 16), keep), {"causal": False, "padding": "keep"}


_MASKED_ATTEND = Exercise(
    name="masked_attend",
    chapter="qkv",
    task="Attention with a 4-D mask; a query that may see nothing gets 0, and no NaN gradient.",
    takes=("q", "k", "v", "mask"),
    difficulty="medium",
    minutes=15,
    hints=(
        "Which score gives a weight of exactly 0? And what does the softmax make of a row that "
        "has no other?",
        "Find the rows that may see nothing before the softmax, and give it something harmless "
        "there; take their weights away afterwards.",
    ),
    reference=_masked(masked_softmax),
    cases=_masked_cases,
    suspects=(
        *suspects(_masked),
        Suspect("no-scale", "you did not scale the scores",
                _masked_twin(q=lambda q: q * math.sqrt(q.shape[-1]))),
        Suspect("scaled-by-width", "you divided by d_k, not by its square root",
                _masked_twin(q=lambda q: q / math.sqrt(q.shape[-1]))),
        Suspect("values-masked", "you hide values, not scores: hidden keys still take their share",
                _values_masked),
        Suspect("one-head-for-all", "the mask of the first head is used for all of them",
                _masked_twin(mask=lambda mask: mask[:, :1])),
        Suspect("one-sequence-for-all", "the mask of the first sequence is used for all of them",
                _masked_twin(mask=lambda mask: mask[:1])),
        Suspect("one-query-for-all", "the mask of the first query is used for all of them",
                _masked_twin(mask=lambda mask: mask[:, :, :1])),
        Suspect("causal-too", "later keys are hidden besides, which nobody asked for",
                _masked(lambda s, m: masked_softmax(s, m & (torch.ones_like(s).tril() > 0)))),
    ),
    patient=_masked_patient,
)  # fmt: skip

# ----------------------------------------------------------------------------------- entropy


def _entropy(weights: Tensor) -> Tensor:
    return -torch.xlogy(weights, weights).sum(-1)


def _entropy_cases() -> Iterator[Case]:
    yield Case("weights of shape (3, 5)", (torch.randn(3, 5).softmax(-1),), "plain")
    yield Case("weights of shape (2, 3, 4, 7)", (torch.randn(2, 3, 4, 7).softmax(-1),), "4-d")
    yield Case("a square", (torch.randn(5, 5).softmax(-1),), "square")
    zeros = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]])
    yield Case("weights that are 0", (zeros,), "zeros", gradient=False)
    yield Case("a row of zeros only", (torch.zeros(2, 3),), "blind-row", gradient=False)
    yield Case("one key", (torch.ones(3, 1),), "one-key")
    tiny = torch.tensor([[1.0 - 3e-9, 1e-9, 2e-9]], dtype=torch.float64)
    yield Case("tiny weights in float64", (tiny,), "tiny")
    yield Case("float16", (torch.randn(2, 5).softmax(-1).half(),), "float16")


_ENTROPY = Exercise(
    name="entropy",
    chapter="qkv",
    task="The entropy of each row of weights, in nats; a weight of 0 adds nothing.",
    takes=("weights",),
    difficulty="easy",
    minutes=10,
    hints=(
        "For equal weights over n keys it should be the natural logarithm of n, for a weight of 1 "
        "it should be 0. Try both.",
        "The logarithm of 0 is minus infinity, and 0 times that is not a number. Is there a "
        "function that computes x log y, and knows what to do at 0?",
    ),
    reference=_entropy,
    cases=_entropy_cases,
    suspects=(
        Suspect("nan-at-zero", "a weight of 0 makes the whole row NaN: 0 times minus infinity",
                lambda w: -(w * w.log()).sum(-1)),
        Suspect("bits", "this is in bits: the logarithm is to the base 2",
                lambda w: _entropy(w) / math.log(2)),
        Suspect("base-ten", "the logarithm is to the base 10",
                lambda w: _entropy(w) / math.log(10)),
        Suspect("sign", "the sign is missing: an entropy is 0 or more", lambda w: -_entropy(w)),
        Suspect("over-queries", "it runs over the queries; each row has an entropy of its own",
                lambda w: _entropy(w.mT)),
        Suspect("total", "all rows are added up; each has an entropy of its own",
                lambda w: _entropy(w).sum()),
        Suspect("mean-of-rows", "the rows are averaged; each has an entropy of its own",
                lambda w: _entropy(w).mean()),
        Suspect("mean-of-keys", "it is divided by the number of keys: sum over them",
                lambda w: _entropy(w) / w.shape[-1]),
        Suspect("relative", "it is divided by its largest possible value, and not in nats any more",
                lambda w: _entropy(w) / math.log(w.shape[-1])),
        Suspect("perplexity", "this is e to the entropy, a number of keys",
                lambda w: _entropy(w).exp()),
        Suspect("softmax-again", "the weights are shares already; you took a softmax of them",
                lambda w: _entropy(w.softmax(-1))),
        Suspect("log-only", "the logarithms are not weighted by the weights",
                lambda w: -w.log().sum(-1)),
        Suspect("summand-in-log", "a small number is added to the weights before the logarithm: in "
                "float64 it shows, and in float16 it is nothing",
                lambda w: -(w * (w + 1e-9).log()).sum(-1)),
    ),
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (_ATTEND, _SOFTMAX, _ENTROPY, _MASKED_ATTEND)
