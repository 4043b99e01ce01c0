"""Exercises of the chapter on causal attention."""

import math
from collections.abc import Callable, Iterator
from functools import lru_cache

import torch
from torch import Tensor

from attnlib.exercises.exercise import Case, Complaint, Exercise, Suspect
from attnlib.functional import attention
from attnlib.masks import causal_mask, document_mask, left_padding_mask, padding_mask

_INF = torch.inf
_Run = Callable[[Tensor], Tensor]


def _seen(mask: Tensor, query: int) -> str:
    """Which keys a query may see, in words."""
    row = mask.reshape(-1, *mask.shape[-2:])[0, query]
    row = row > -_INF if row.is_floating_point() and row.min() < 0 else row.bool()
    return f"{row.nonzero().flatten().tolist()}"


def _first_and_last(solution: Callable) -> str:
    """What the first and the last of two queries may see among four keys."""
    mask = solution(2, 4)
    return (
        f"of 4 keys, the first of 2 queries may see {_seen(mask, 0)} and the last {_seen(mask, -1)}"
    )


# ------------------------------------------------------------------------------- causal_mask


def _mask_cases() -> Iterator[Case]:
    yield Case("3 queries and 3 keys", (3, 3), "square")
    yield Case("3 queries, the last ones of 7 keys", (3, 7), "more-keys")
    yield Case("one query and 5 keys", (1, 5), "one-query")
    yield Case("one query and one key", (1, 1), "one-key")
    yield Case("97 queries and 101 keys", (97, 101), "long")


def _tril(q_len: int, k_len: int, diagonal: int = 0) -> Tensor:
    """The causal mask with its edge moved to the right."""
    return torch.ones(1, 1, q_len, k_len, dtype=torch.bool).tril(k_len - q_len + diagonal)


_CAUSAL_MASK = Exercise(
    name="causal_mask",
    chapter="causal",
    task="The causal mask, (1, 1, q_len, k_len), True = may attend; the queries are the last of "
    "the keys.",
    takes=("q_len", "k_len"),
    difficulty="easy",
    minutes=8,
    hints=(
        "Number the keys. Which number has the first query, if the last query is the last key?",
        "Moving the edge of a triangle needs one number: how many keys come before the first "
        "query. Try 1 query and 5 keys: all five must be allowed.",
    ),
    reference=causal_mask,
    cases=_mask_cases,
    suspects=(
        Suspect("inverted", "true marks what is blocked; here it says what may be seen: {}",
                lambda q, k: ~_tril(q, k), _first_and_last),
        Suspect("top-left", "the triangle starts at the first key, but the queries are the last "
                "of the keys: {}", lambda q, k: torch.ones(1, 1, q, k).tril().bool(),
                _first_and_last),
        Suspect("not-itself", "a query does not see its own place, and the first one may see "
                "nothing: {}", lambda q, k: _tril(q, k, -1), _first_and_last),
        Suspect("one-ahead", "each query sees one key of the future: {}",
                lambda q, k: _tril(q, k, 1), _first_and_last),
        Suspect("wrong-side", "the triangle is the upper one, of the future: {}",
                lambda q, k: torch.ones(1, 1, q, k).triu(k - q).bool(), _first_and_last),
        Suspect("additive", "these are numbers to add to the scores; a mask of True and False was "
                "asked for", lambda q, k: torch.full((1, 1, q, k), -_INF).triu(k - q + 1)),
        Suspect("numbers", "these are the numbers 1 and 0, which a library would add to the "
                "scores", lambda q, k: _tril(q, k).float()),
        Suspect("two-axes", "the axes of batch and heads are missing",
                lambda q, k: _tril(q, k)[0, 0]),
        Suspect("square", "it has as many keys as queries: k_len is not used",
                lambda q, k: _tril(q, q)),
        Suspect("hides-nothing", "it hides nothing: was the result of a step thrown away?",
                lambda q, k: torch.ones(1, 1, q, k, dtype=torch.bool)),
        Suspect("swapped-sizes", "rows are queries and columns are keys; here it is the other way "
                "round", lambda q, k: _tril(k, q)),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------ decoder_mask


def _decoder_cases() -> Iterator[Case]:
    yield Case("lengths 5, 3, 1 of 5", (torch.tensor([5, 3, 1]), 5), "plain")
    yield Case("lengths 2 and 4 of 7", (torch.tensor([2, 4]), 7), "nobody-is-longest")
    yield Case("one text, of 3 of 4", (torch.tensor([3]), 4), "batch-of-one")
    yield Case("no padding at all", (torch.tensor([2, 2]), 2), "no-padding")


def _decoder(lengths: Tensor, length: int) -> Tensor:
    return causal_mask(length) & left_padding_mask(lengths, length)


def _queries_hidden(lengths: Tensor, length: int) -> Tensor:
    return causal_mask(length) & left_padding_mask(lengths, length).mT


def _of_second(solution: Callable) -> str:
    """What is seen in a text of 2 tokens with 2 of padding before it."""
    mask = solution(torch.tensor([4, 2]), 4)[1:]
    return (
        f"with 2 of padding before a text of 2, its first token, at place 2, may see "
        f"{_seen(mask, 2)}, and its last {_seen(mask, 3)}"
    )


_DECODER_MASK = Exercise(
    name="decoder_mask",
    chapter="causal",
    task="The mask (batch, 1, length, length) of texts with padding in front: causal, and no key "
    "is padding.",
    takes=("lengths", "length"),
    difficulty="medium",
    minutes=10,
    hints=(
        "Two things must hold for a key to be seen. Write each of them as a mask, and look at "
        "their shapes.",
        "Padding is a matter of the keys: which axis of four must it lie along? And what do the "
        "others have to be, so that the two broadcast?",
    ),
    reference=_decoder,
    cases=_decoder_cases,
    suspects=(
        Suspect("or", "what one of the two masks allows is allowed; both should have to: {}",
                lambda n, m: causal_mask(m) | left_padding_mask(n, m), _of_second),
        Suspect("no-causal", "padding is hidden, and the future is not: {}",
                lambda n, m: left_padding_mask(n, m).expand(-1, 1, m, m), _of_second),
        Suspect("no-padding", "the future is hidden, and padding is not: {}",
                lambda n, m: causal_mask(m).expand(len(n), 1, m, m), _of_second),
        Suspect("queries-hidden", "the padding lies along the queries, where it hides nothing "
                "from real ones: {}", _queries_hidden, _of_second),
        Suspect("padding-inverted", "padding is what may be seen, and the text is not: {}",
                lambda n, m: causal_mask(m) & ~left_padding_mask(n, m), _of_second),
        Suspect("all-inverted", "true marks what is blocked; here it says what may be seen: {}",
                lambda n, m: ~_decoder(n, m), _of_second),
        Suspect("one-too-many", "the last padding is seen too: {}",
                lambda n, m: _decoder((n + 1).clamp(max=m), m), _of_second),
        Suspect("one-too-few", "the first token of a text is hidden, too: {}",
                lambda n, m: _decoder(n - 1, m), _of_second),
        Suspect("behind", "this is the mask of texts with the padding behind: {}",
                lambda n, m: causal_mask(m) & padding_mask(n, m), _of_second),
        Suspect("no-head-axis", "an axis is missing: between batch and queries belongs one for "
                "the heads", lambda n, m: _decoder(n, m)[:, 0]),
        Suspect("one-length", "all texts are treated as if they were as long as the longest: {}",
                lambda n, m: _decoder(n.max().expand(len(n)), m), _of_second),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------- packed_mask


def _packed_cases() -> Iterator[Case]:
    yield Case("two texts, of 3 and 2 tokens", (torch.tensor([0, 0, 0, 1, 1]),), "plain")
    three = torch.tensor([0, 0, 1, 1, 1, 2, 2])
    yield Case("three texts, of 2, 3 and 2 tokens", (three,), "three-texts")
    numbered = torch.tensor([7, 7, 3, 5, 5, 5])
    yield Case("texts numbered 7, 3 and 5", (numbered,), "other-numbers")
    yield Case("one text of 4 tokens", (torch.zeros(4).long(),), "one-text")
    yield Case("one token", (torch.tensor([2]),), "one-token")


def _packed(documents: Tensor) -> Tensor:
    return causal_mask(len(documents)) & document_mask(documents[None])


def _looks_one_back(documents: Tensor) -> Tensor:
    mask = torch.eye(len(documents), dtype=torch.bool)
    return (mask | (_packed(documents)[0, 0] & ~mask).triu(-1))[None, None]


def _first_or_not(documents: Tensor) -> Tensor:
    return _packed((documents == documents[0]).long())


def _of_fifth(solution: Callable) -> str:
    mask = solution(torch.tensor([0, 0, 0, 1, 1]))
    return f"the last token of [0, 0, 0, 1, 1] may see {_seen(mask, 4)}, the first {_seen(mask, 0)}"


_PACKED_MASK = Exercise(
    name="packed_mask",
    chapter="causal",
    task="The mask (1, 1, length, length) of texts in one row: each causal, none sees another.",
    takes=("documents",),
    difficulty="easy",
    minutes=10,
    hints=(
        "Two tokens may meet if they belong to the same text *and* the key is not later than the "
        "query.",
        "An axis more on each of two copies lets every token be compared with every other. Do "
        "not count on two texts, on their numbers, or on their order.",
    ),
    reference=_packed,
    cases=_packed_cases,
    suspects=(
        Suspect("no-causal", "each text sees its own future: {}",
                lambda d: document_mask(d[None]), _of_fifth),
        Suspect("no-documents", "a text sees the one before it: {}",
                lambda d: causal_mask(len(d)), _of_fifth),
        Suspect("or", "what one of the two conditions allows is allowed; both should have to: {}",
                lambda d: causal_mask(len(d)) | document_mask(d[None]), _of_fifth),
        Suspect("earlier-documents", "texts with a smaller number are seen, too: {}",
                lambda d: causal_mask(len(d)) & (d[None] <= d[:, None]), _of_fifth),
        Suspect("not-itself", "a token does not see itself: {}",
                lambda d: _tril(len(d), len(d), -1) & document_mask(d[None]), _of_fifth),
        Suspect("inverted", "true marks what is blocked; here it says what may be seen: {}",
                lambda d: ~_packed(d), _of_fifth),
        Suspect("wrong-side", "tokens see what comes later in their text, not what came before: {}",
                lambda d: _packed(d).mT, _of_fifth),
        Suspect("two-axes", "the axes of batch and heads are missing", lambda d: _packed(d)[0, 0]),
        Suspect("additive", "these are numbers to add to the scores; a mask of True and False was "
                "asked for", lambda d: torch.where(_packed(d), 0.0, -_INF)),
        Suspect("first-only", "only the first text gets to see anything: {}",
                lambda d: causal_mask(len(d)) & ((d == d[0])[:, None] & (d == d[0])), _of_fifth),
        Suspect("first-and-rest", "only the first text is told from the rest, and all others are "
                "taken for one", _first_or_not),
        Suspect("neighbour-only", "a token sees the one just before it, but no earlier one: {}",
                _looks_one_back, _of_fifth),
    ),
)  # fmt: skip

# -------------------------------------------------------------------------- causal_attention


def _attention_cases() -> Iterator[Case]:
    def of(*sizes: int, dtype: torch.dtype = torch.float32) -> tuple:
        batch, heads, q_len, k_len, d, d_v = sizes
        shapes = (q_len, d), (k_len, d), (k_len, d_v)
        return tuple(torch.randn(batch, heads, *shape, dtype=dtype) for shape in shapes)

    yield Case("2 sequences of 5 tokens, 3 heads of width 64", of(2, 3, 5, 5, 64, 64), "plain")
    yield Case("widths of 7 and 11", of(2, 3, 5, 5, 7, 11), "other-widths")
    yield Case("3 queries, the last ones of 7 keys", of(3, 2, 3, 7, 5, 2), "more-keys")
    yield Case("one query and 5 keys", of(2, 1, 1, 5, 3, 7), "one-query")
    yield Case("float64", of(1, 2, 5, 7, 3, 11, dtype=torch.float64), "float64")
    q, k, v = of(2, 3, 5, 5, 7, 2)
    yield Case("scores around 1000", (40 * q, 40 * k, v), "large-scores")
    yield Case("float16", of(1, 3, 5, 5, 7, 2, dtype=torch.float16), "float16")


def _later(scores: Tensor) -> Tensor:
    """What is the future, in a matrix of scores."""
    return ~_tril(*scores.shape[-2:])


def _scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.mT / math.sqrt(q.shape[-1])


def _filled(q: Tensor, k: Tensor, v: Tensor, fill: float = -_INF, scale: float = 1.0) -> Tensor:
    scores = _scores(q, k) * scale
    return scores.masked_fill(_later(scores), fill).softmax(-1) @ v


def _attend_at(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return attention(q, k, v, mask=mask)[0]


def _after_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k)
    return scores.softmax(-1).masked_fill(_later(scores), 0) @ v


def _zero_scores(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _filled(q, k, v, fill=0.0)


def _columns(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k)
    lowest = torch.finfo(q.dtype).min
    return scores.masked_fill(_later(scores), lowest).softmax(-2) @ v


def _own_softmax(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k)
    powers = scores.exp().masked_fill(_later(scores), 0)
    return powers / powers.sum(-1, keepdim=True) @ v


def _own_softmax_times(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = _scores(q, k)
    powers = scores.exp() * ~_later(scores)
    return powers / powers.sum(-1, keepdim=True) @ v


def _uniform(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return _attend_at(0 * q, k, v, causal_mask(q.shape[-2], k.shape[-2]))


def _leak(solution: Callable) -> str:
    """How far the past moves when only the last key and value change."""
    q, k, v = torch.randn(3, 1, 1, 5, 8)
    before, last = solution(q, k, v), torch.arange(5)[:, None] == 4
    after = solution(q, torch.where(last, 3 - k, k), torch.where(last, 3 - v, v))
    moved = float((after - before)[..., :4, :].nan_to_num(0).abs().max())
    return f"when only token 4 changes, the outputs before it move by up to {moved:.2g}"


def _row_sums(solution: Callable) -> str:
    q, k = torch.randn(2, 1, 1, 3, 8)
    sums = solution(q, k, torch.ones(1, 1, 3, 1)).flatten()
    return f"the shares of three queries add up to {[round(s, 2) for s in sums.tolist()]}"


def _times(solution: Callable) -> str:
    """How the scores compare with what they should be, seen from the weights alone."""
    q, k = torch.randn(2, 1, 1, 5, 64).double() / 8
    weights = solution(q, k, torch.eye(5).double()[None, None])[0, 0, -1]
    scores, right = weights.log(), _scores(q, k)[0, 0, -1]
    scores, right = scores - scores.mean(), right - right.mean()
    ratio = float((scores @ right) / (right @ right))
    return f"at a width of 64 the scores are {ratio:.2g} times what they should be"


_CAUSAL_ATTENTION = Exercise(
    name="causal_attention",
    chapter="causal",
    task="Causal attention of q, k, v, each (batch, heads, length, width); the queries are the "
    "last of the keys.",
    takes=("q", "k", "v"),
    difficulty="medium",
    minutes=15,
    hints=(
        "Three steps turn scores into an output. Between which two of them must the future go?",
        "Change the last token only, and look at the outputs before it: they must not move at "
        "all. Then try fewer queries than keys.",
    ),
    reference=lambda q, k, v: _attend_at(q, k, v, causal_mask(q.shape[-2], k.shape[-2])),
    cases=_attention_cases,
    suspects=(
        Suspect("no-mask", "nothing is hidden; a masked_fill without an underscore returns its "
                "result and changes nothing: {}", lambda q, k, v: attention(q, k, v)[0], _leak),
        Suspect("after-softmax", "the weights are masked after the softmax: the future is still "
                "in its sum, and {}", _after_softmax, _row_sums),
        Suspect("zero-scores", "the future's scores are set to 0, and a score of 0 is not "
                "nothing: {}", _zero_scores, _leak),
        Suspect("top-left", "with fewer queries than keys, the triangle starts at the first key, "
                "as is_causal=True does: the last query does not see its own key",
                lambda q, k, v: _attend_at(q, k, v, torch.ones(1, 1, q.shape[-2], k.shape[-2])
                                           .tril().bool())),
        Suspect("inverted", "the future is what is seen, and the past is hidden: this library "
                "wants True where attention is allowed: {}",
                lambda q, k, v: _attend_at(q, k, v, _later(_scores(q, k))), _leak),
        Suspect("not-itself", "a token does not see itself: the first one sees nothing",
                lambda q, k, v: _attend_at(q, k, v, _tril(q.shape[-2], k.shape[-2], -1))),
        Suspect("one-ahead", "each token sees the next one: {}",
                lambda q, k, v: _attend_at(q, k, v, _tril(q.shape[-2], k.shape[-2], 1)), _leak),
        Suspect("weak-fill", "the future gets a score of -10, and that is not minus infinity: {}",
                lambda q, k, v: _filled(q, k, v, fill=-10.0), _leak),
        Suspect("no-scale", "you did not scale: {}",
                lambda q, k, v: _filled(q, k, v, scale=q.shape[-1] ** 0.5), _times),
        Suspect("scaled-by-width", "you divided by the width, not by its square root: {}",
                lambda q, k, v: _filled(q, k, v, scale=q.shape[-1] ** -0.5), _times),
        Suspect("scaled-by-values", "the root is of the width of the values, not of the keys",
                lambda q, k, v: _filled(q, k, v, scale=(q.shape[-1] / v.shape[-1]) ** 0.5)),
        Suspect("scale-hard-coded", "you always divide by 8: right for a width of 64 only",
                lambda q, k, v: _filled(q, k, v, scale=q.shape[-1] ** 0.5 / 8)),
        Suspect("softmax-over-queries", "the softmax runs over the queries: a later query takes "
                "from an earlier one, and {}", _columns, _row_sums),
        Suspect("overflows", "powers of large scores overflow, and infinity by infinity is not a "
                "number", _own_softmax),
        Suspect("overflows", "powers of large scores overflow, and infinity times 0 is not a "
                "number", _own_softmax_times),
        Suspect("uniform", "all of the past gets equal shares: queries and keys are not used",
                _uniform),
    ),
)  # fmt: skip

# -------------------------------------------------------------------------- leak_by_gradient


def _linear(*entries: tuple[int, int, float], inner: Tensor | None = None) -> _Run:
    """A run in which token i gets that much of token j, for each (i, j, how much)."""
    mix = torch.zeros(4, 4, dtype=torch.float64)
    for i, j, much in entries:
        mix[i, j] = much
    inner = torch.eye(2) if inner is None else inner
    return lambda x: mix @ x @ inner.double() + 2 * x[:, :1] * torch.arange(1, inner.shape[1] + 1)


def _masked_late(x: Tensor) -> Tensor:
    return (x @ x.mT).softmax(-1).tril() @ x


def _causal_run(x: Tensor) -> Tensor:
    return attention(x, x, x, mask=causal_mask(len(x)))[0]


def _gradient_cases() -> Iterator[Case]:
    def case(words: str, run: _Run, key: str) -> Case:
        return Case(words, (run, torch.randn(4, 2, dtype=torch.float64)), key, gradient=False)

    past = (1, 0, 3.0), (3, 2, -4.0)
    yield case("a token that sees half of the next one", _linear(*past, (1, 2, 0.5)), "next")
    yield case("causal attention", _causal_run, "causal")
    yield case("a first token that sees the last", _linear(*past, (0, 3, 0.7)), "far")
    yield case("a next token that counts negatively", _linear((2, 3, -0.6)), "negative")
    yield case("two leaks, of 0.3 and 0.2", _linear((2, 3, 0.3), (1, 3, 0.2)), "two-leaks")
    cancel = _linear((1, 2, 0.9), inner=torch.tensor([[1.0, -1.0, 0.0], [0.0, 0.0, 0.0]]))
    yield case("features that cancel", cancel, "cancelling")
    second = _linear((1, 2, 0.8), inner=torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    yield case("one feature of two", second, "one-feature")
    yield case("a mask after the softmax", _masked_late, "after-softmax")


def _blocks(run: _Run, x: Tensor) -> Tensor:
    """Every derivative: (output token, its feature, input token, its feature)."""
    return _blocks_at(run, tuple(x.flatten().tolist()), x.shape[1])


@lru_cache(maxsize=16)  # a dozen suspects ask for the same ones
def _blocks_at(run: _Run, numbers: tuple[float, ...], width: int) -> Tensor:
    x = torch.tensor(numbers, dtype=torch.float64).view(-1, width)
    return torch.autograd.functional.jacobian(run, x)


def _by_gradient(run: _Run, x: Tensor) -> float:
    return float(_blocks(run, x).abs().amax((1, 3)).triu(1).max())


def _of_sum(run: _Run, x: Tensor) -> float:
    return float(_blocks(run, x).sum((0, 1))[1:].abs().max())


def _never_zeroed(run: _Run, x: Tensor) -> float:
    added = _blocks(run, x).flatten(0, 1).cumsum(0).unflatten(0, (len(x), -1))
    return float(added.abs().amax((1, 3)).triu(1).max())


def _leaves_a_trace(solution: Callable) -> Complaint | None:
    x = torch.randn(4, 2)
    solution(_causal_run, x)
    if not x.requires_grad and x.grad is None:
        return None
    says = "The result is right, but the caller's x asks for gradients from now on."
    return Complaint("changes-inputs", says)


_LEAK_BY_GRADIENT = Exercise(
    name="leak_by_gradient",
    chapter="causal",
    task="The largest absolute derivative of an output y[i] with respect to a later input x[j].",
    takes=("run", "x"),
    difficulty="medium",
    minutes=15,
    hints=(
        "There is one derivative for each output number and each input number: four axes. Which "
        "of them are tokens, and which are features?",
        "Take absolute values before anything is added or compared. Then a square is left, and "
        "you want what lies above its diagonal.",
    ),
    reference=_by_gradient,
    cases=_gradient_cases,
    suspects=(
        Suspect("present", "what an output takes from its own token counts as a leak here",
                lambda run, x: float(_blocks(run, x).abs().amax((1, 3)).triu().max())),
        Suspect("past", "this looks at what outputs take from earlier tokens, not later ones",
                lambda run, x: float(_blocks(run, x).abs().amax((1, 3)).tril(-1).max())),
        Suspect("signed", "a negative derivative is as much of a leak as a positive one",
                lambda run, x: float(_blocks(run, x).amax((1, 3)).triu(1).max())),
        Suspect("summed-outputs", "one gradient of the sum of all outputs does not say which "
                "output it came from", _of_sum),
        Suspect("summed-widths", "the features are added up before you compare, and cancel",
                lambda run, x: float(_blocks(run, x).sum((1, 3)).abs().triu(1).max())),
        Suspect("mean-widths", "the features are averaged: a leak in one of them gets small",
                lambda run, x: float(_blocks(run, x).abs().mean((1, 3)).triu(1).max())),
        Suspect("first-feature", "only the first feature of outputs and inputs is looked at",
                lambda run, x: float(_blocks(run, x)[:, 0, :, 0].abs().triu(1).max())),
        Suspect("first-output", "only the first output is looked at",
                lambda run, x: float(_blocks(run, x)[0, :, 1:].abs().max())),
        Suspect("next-only", "only the very next token is looked at",
                lambda run, x: float(_blocks(run, x).abs().amax((1, 3)).diagonal(1).max())),
        Suspect("total", "the leaks are added up; the largest one was asked for",
                lambda run, x: float(_blocks(run, x).abs().amax((1, 3)).triu(1).sum())),
        Suspect("accumulated", "gradients of earlier outputs are still in there: they add up "
                "until they are cleared", _never_zeroed),
        Suspect("yes-or-no", "it says whether there is a leak; its size was asked for",
                lambda run, x: _by_gradient(run, x) > 0),
    ),
    probes=(_leaves_a_trace,),
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (
    _CAUSAL_MASK,
    _DECODER_MASK,
    _PACKED_MASK,
    _CAUSAL_ATTENTION,
    _LEAK_BY_GRADIENT,
)
