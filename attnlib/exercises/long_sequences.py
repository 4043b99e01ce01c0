"""Exercises on long sequences and on decoding."""

import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnlib.exercises.exercise import Case, Complaint, Exercise, Suspect
from attnlib.functional import attention, masked_softmax
from attnlib.masks import causal_mask, window_mask

_INF = torch.inf
_Block = tuple[Tensor, Tensor]
_Cache = tuple[Tensor, Tensor] | None

# ---------------------------------------------------------------------------- online_average


class _Stream:
    """Hands out blocks, and notes how many in all, and how many old ones are still held."""

    def __init__(self, blocks: list[_Block]) -> None:
        self.blocks, self.coming = blocks, iter(blocks)
        self.n_read, self.most_held = 0, 0
        self.old: list[weakref.ref] = []

    def __iter__(self) -> Iterator[_Block]:
        if self.n_read == len(self.blocks):
            self.coming = iter(self.blocks)
        return self

    def __next__(self) -> _Block:
        self.most_held = max(self.most_held, sum(scores() is not None for scores in self.old))
        scores, values = (x.clone() for x in next(self.coming))
        self.n_read += 1
        self.old.append(weakref.ref(scores))
        return scores, values


def _average_cases() -> Iterator[Case]:
    def of(q_len: int, *sizes: int, add: tuple = (), dtype: torch.dtype = torch.float32) -> tuple:
        add = add or (0,) * len(sizes)
        pairs = zip(sizes, add, strict=True)
        return ([(torch.randn(q_len, n, dtype=dtype) + a, torch.randn(n, 3, dtype=dtype))
                 for n, a in pairs],)  # fmt: skip

    yield Case("5 queries, blocks of 4, 4 and 2 keys", of(5, 4, 4, 2), "plain")
    yield Case("scores that rise from block to block", of(3, 4, 4, 4, add=(0, 3, 6)), "rising")
    yield Case("scores that fall from block to block", of(2, 3, 3, 1, add=(6, 3, 0)), "falling")
    yield Case("scores around 100, whose powers overflow", of(3, 2, 5, add=(100, 103)), "large")
    yield Case("scores around -110", of(3, 2, 5, add=(-113, -110)), "very-negative")
    (rows,) = of(2, 3, 4)
    tall = torch.tensor([[0.0], [-120.0]])
    yield Case("two queries, one with much lower scores", ([(s + tall, v) for s, v in rows],),
               "mixed-rows")  # fmt: skip
    (blocks,) = of(2, 3, 3, 2)
    hidden = torch.tensor([[True], [False]])
    first = blocks[0][0].masked_fill(hidden, -_INF), blocks[0][1]
    yield Case("a first block that one query may not see (-inf)", ([first, *blocks[1:]],), "hidden")
    yield Case("one block", of(2, 5), "one-block")
    yield Case("float64", of(2, 3, 4, dtype=torch.float64), "float64")


def _average(solution: Callable, blocks: list[_Block]) -> Any:
    return solution(_Stream(blocks))


def _online(blocks: Iterator[_Block], *, old_sum: float = 1, old_output: float = 1,
            start: float = -_INF, per_row: bool = True, safe: bool = True,
            divide: bool = True) -> Tensor:  # fmt: skip
    """One pass over the blocks; each switch makes one mistake."""
    top, total, output = None, 0.0, 0.0
    for scores, values in blocks:
        top = scores.new_full((len(scores), 1), start) if top is None else top
        best = scores.amax(1, keepdim=True) if per_row else scores.max()
        new_top = torch.maximum(top, best)
        base = new_top.masked_fill(new_top == -_INF, 0) if safe else new_top
        shrink, powers = (top - base).exp(), (scores - base).exp()
        total = total * (shrink if old_sum else 1) + powers.sum(1, keepdim=True)
        output = output * (shrink if old_output else 1) + powers @ values
        top = new_top
    return output / total if divide else output


def _average_all(blocks: Iterator[_Block]) -> Tensor:
    scores, values = zip(*blocks, strict=True)
    return torch.cat(scores, 1).softmax(1) @ torch.cat(values)


def _each(blocks: Iterator[_Block]) -> list[tuple[Tensor, int]]:
    """Each block's own average, and its number of keys."""
    return [(masked_softmax(scores) @ values, len(values)) for scores, values in blocks]


def _mean_of_each(blocks: Iterator[_Block]) -> Tensor:
    averages = [average for average, _ in _each(blocks)]
    return sum(averages) / len(averages)


def _weighted_by_size(blocks: Iterator[_Block]) -> Tensor:
    averages = _each(blocks)
    return sum(average * n for average, n in averages) / sum(n for _, n in averages)


def _plain_powers(blocks: Iterator[_Block]) -> Tensor:
    pairs = [(s.exp() @ v, s.exp().sum(1, keepdim=True)) for s, v in blocks]
    return sum(a for a, _ in pairs) / sum(b for _, b in pairs)


def _twice(blocks: Iterator[_Block]) -> Tensor:
    top = torch.cat([scores.amax(1, keepdim=True) for scores, _ in blocks], 1).amax(1)[:, None]
    pairs = [((s - top).exp() @ v, (s - top).exp().sum(1, keepdim=True)) for s, v in blocks]
    return sum(a for a, _ in pairs) / sum(b for _, b in pairs)


def _two_blocks(solution: Callable) -> str:
    """Values of 0 and 1: the average is the share of the second block."""
    scores = torch.zeros(1, 1), torch.full((1, 1), math.log(3.0))
    blocks = [(s, torch.full((1, 1), float(i))) for i, s in enumerate(scores)]
    got = float(solution(_Stream(blocks)))
    return f"scores 0 and ln 3 with values 0 and 1 give {got:.3g}, and 0.75 was due"


def _reads_or_keeps_too_much(solution: Callable) -> Complaint | None:
    blocks = _Stream([(torch.randn(2, 3), torch.randn(3, 2)) for _ in range(8)])
    solution(blocks)
    if blocks.n_read > 8:
        says = (
            f"The result is right, but of 8 blocks you read {blocks.n_read}: they come once, and "
            "after that a generator has nothing more to give."
        )
        return Complaint("read-twice", says)
    if blocks.most_held <= 2:
        return None
    says = (
        f"The result is right, but after 8 blocks {blocks.most_held} of them were still in "
        "memory: work each of them in, and let it go."
    )
    return Complaint("keeps-blocks", says)


_ONLINE_AVERAGE = Exercise(
    name="online_average",
    chapter="long_sequences",
    task="Softmax average from blocks of (scores, values), (q_len, n) and (n, width), that come "
    "once; a query may be hidden (-inf) from a whole block.",
    takes=("blocks",),
    difficulty="hard",
    minutes=25,
    hints=(
        "What must you remember of the blocks so far, so that the next one can be added? Two "
        "things for each query are not enough if scores are large.",
        "When a new largest score turns up, everything that was summed with the old one is too "
        "large, by the same factor. What is that factor if nothing was seen so far?",
    ),
    reference=_average_all,
    cases=_average_cases,
    call=_average,
    suspects=(
        Suspect("never-rescaled", "when the maximum rises, what was summed before stays as it "
                "was: {}", lambda b: _online(b, old_sum=0, old_output=0), _two_blocks),
        Suspect("output-not-rescaled", "when the maximum rises, the sum is rescaled, and the "
                "output is not: {}", lambda b: _online(b, old_output=0), _two_blocks),
        Suspect("sum-not-rescaled", "when the maximum rises, the output is rescaled, and the sum "
                "is not: {}", lambda b: _online(b, old_sum=0), _two_blocks),
        Suspect("hidden-block", "after a block of nothing but -inf the maximum is still -inf, and "
                "minus infinity minus itself is not a number", lambda b: _online(b, safe=False)),
        Suspect("starts-at-zero", "the maximum starts at 0: if all scores are far below, all "
                "powers vanish", lambda b: _online(b, start=0.0)),
        Suspect("one-maximum-for-all", "all queries share one maximum: the powers of a query with "
                "much lower scores vanish", lambda b: _online(b, per_row=False)),
        Suspect("not-divided", "the sum of the powers was not divided out: {}",
                lambda b: _online(b, divide=False), _two_blocks),
        Suspect("overflows", "powers of large scores overflow: a maximum must be taken off first",
                _plain_powers),
        Suspect("mean-of-blocks", "each block gets a softmax of its own, and all count alike: {}",
                _mean_of_each, _two_blocks),
        Suspect("sum-of-blocks", "each block gets a softmax of its own, and these are added up: {}",
                lambda b: sum(average for average, _ in _each(b)), _two_blocks),
        Suspect("weighted-by-size", "each block counts by its number of keys, whatever its scores: "
                "{}", _weighted_by_size, _two_blocks),
        Suspect("last-block-only", "only the last block is in the result: {}",
                lambda b: _each(b)[-1][0], _two_blocks),
        Suspect("read-twice", "the blocks come once; you read them a second time", _twice),
        Suspect("keeps-blocks", "all blocks are kept, and that is the memory to be saved",
                _average_all),
    ),
    probes=(_reads_or_keeps_too_much,),
)  # fmt: skip

# --------------------------------------------------------------------------- tiled_attention


def _tiled_cases() -> Iterator[Case]:
    def of(*sizes: int, block: int, dtype: torch.dtype = torch.float32) -> tuple:
        batch, heads, length, d, d_v = sizes
        shapes = (length, d), (length, d), (length, d_v)
        return (*(torch.randn(batch, heads, *shape, dtype=dtype) for shape in shapes), block)

    yield Case("6 tokens in blocks of 2", of(2, 3, 6, 8, 8, block=2), "plain")
    yield Case("7 tokens in blocks of 3", of(1, 2, 7, 5, 2, block=3), "ragged")
    yield Case("3 tokens in a block of 5", of(2, 1, 3, 2, 3, block=5), "large-block")
    yield Case("5 tokens in blocks of 1", of(1, 2, 5, 3, 2, block=1), "blocks-of-one")
    q, k, v, block = of(1, 1, 7, 5, 2, block=2)
    yield Case("scores around 1000", (40 * q, 40 * k, v, block), "large-scores")
    yield Case("float64", of(1, 2, 5, 3, 2, block=2, dtype=torch.float64), "float64")


def _causal(q: Tensor, k: Tensor, v: Tensor, block: int = 0) -> Tensor:
    return attention(q, k, v, mask=causal_mask(q.shape[-2]))[0]


_Rule = Callable[[Tensor, Tensor, int], Tensor]


def _tiled(q: Tensor, k: Tensor, v: Tensor, block: int, *, scale: float | None = None,
           seen: _Rule = lambda row, key, start: key <= row, rescale: bool = True,
           whole: bool = False) -> Tensor:  # fmt: skip
    """Tiles; each switch makes one mistake. ``seen(row, key, start of the block)`` is the mask."""
    length, width = q.shape[-2:]
    row, scale = torch.arange(length)[:, None], width**-0.5 if scale is None else scale
    top, total, output = q.new_full((*q.shape[:-1], 1), -_INF), 0.0, 0.0
    for start in range(0, length // block * block if whole else length, block):
        key = torch.arange(start, min(start + block, length))
        scores = q @ k[..., key, :].mT * scale
        scores = scores.masked_fill(~seen(row, key, start), -_INF)
        new_top = torch.maximum(top, scores.amax(-1, keepdim=True))
        base = new_top.masked_fill(new_top == -_INF, 0)
        shrink, powers = (top - base).exp() if rescale else 1.0, (scores - base).exp()
        total = total * shrink + powers.sum(-1, keepdim=True)
        output, top = output * shrink + powers @ v[..., key, :], new_top
    return output / total


def _block_softmax(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    scores = q @ k.mT / math.sqrt(q.shape[-1])
    scores = scores.masked_fill(~causal_mask(q.shape[-2]), -_INF)
    parts = zip(scores.split(block, -1), v.split(block, -2), strict=True)
    return sum(masked_softmax(s) @ values for s, values in parts)


def _blocks_alone(q: Tensor, k: Tensor, v: Tensor, block: int) -> Tensor:
    parts = zip(*(x.split(block, -2) for x in (q, k, v)), strict=True)
    return torch.cat([_causal(*part) for part in parts], -2)


class _Largest(TorchFunctionMode):
    """Notes the size of the largest tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.shape: tuple[int, ...] = ()

    def __torch_function__(
        self, func: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        made = result if isinstance(result, tuple | list) else (result,)
        shapes = [tuple(x.shape) for x in made if isinstance(x, Tensor)]
        self.shape = max(self.shape, *shapes, key=math.prod) if shapes else self.shape
        return result


def _makes_whole_matrix(solution: Callable) -> Complaint | None:
    """64 tokens in blocks of 4: a tile has 256 numbers for all queries, the matrix 4096."""
    q, k, v = torch.randn(3, 1, 1, 64, 2)
    with torch.no_grad(), _Largest() as largest:
        solution(q, k, v, 4)
    if math.prod(largest.shape) <= 1024:
        return None
    says = (
        f"The result is right, but 64 tokens in blocks of 4 took a tensor of shape "
        f"{largest.shape}, {math.prod(largest.shape)} numbers: the whole matrix, not a tile."
    )
    return Complaint("whole-matrix", says)


def _future_moved(solution: Callable) -> str:
    q, k, v = torch.randn(3, 1, 1, 6, 8)
    last = torch.arange(6)[:, None] == 5
    before = solution(q, k, v, 2)
    after = solution(q, torch.where(last, 3 - k, k), torch.where(last, 3 - v, v), 2)
    moved = float((after - before)[..., :5, :].nan_to_num(0).abs().max())
    return f"when only token 5 of 6 changes, the outputs before it move by up to {moved:.2g}"


_TILED_ATTENTION = Exercise(
    name="tiled_attention",
    chapter="long_sequences",
    task="Causal attention of (batch, heads, length, width), never with a tensor of length times "
    "length.",
    takes=("q", "k", "v", "block"),
    difficulty="hard",
    minutes=30,
    hints=(
        "Begin without a mask. Carry three things from block to block of keys: the largest score "
        "of each query, the sum of its powers, and its output.",
        "The keys of a block have numbers that go on from those before it. Compare these with the "
        "numbers of the queries; and the last block may be shorter.",
    ),
    reference=_causal,
    cases=_tiled_cases,
    suspects=(
        Suspect("whole-matrix", "this makes the whole matrix", _causal),
        Suspect("last-block-lost", "the keys behind the last whole block are never read",
                lambda q, k, v, b: _tiled(q, k, v, b, whole=True)),
        Suspect("no-mask", "nothing is hidden: {}",
                lambda q, k, v, b: attention(q, k, v)[0], _future_moved),
        Suspect("local-mask", "the mask counts keys from the start of their block, where it should "
                "count from the start of the text: {}",
                lambda q, k, v, b: _tiled(q, k, v, b, seen=lambda i, j, s: j - s <= i),
                _future_moved),
        Suspect("whole-blocks-seen", "whole blocks are seen or hidden: within its own block, a "
                "query sees its future: {}",
                lambda q, k, v, b: _tiled(q, k, v, b, seen=lambda i, j, s: j // b <= i // b),
                _future_moved),
        Suspect("own-block-hidden", "a query does not see the block that it is in",
                lambda q, k, v, b: _tiled(q, k, v, b, seen=lambda i, j, s: j // b < i // b)
                .nan_to_num(0)),
        Suspect("not-itself", "a token does not see itself",
                lambda q, k, v, b: _tiled(q, k, v, b, seen=lambda i, j, s: j < i)),
        Suspect("never-rescaled", "when the maximum rises, what was summed before stays as it was",
                lambda q, k, v, b: _tiled(q, k, v, b, rescale=False)),
        Suspect("no-scale", "you did not scale by the root of the width",
                lambda q, k, v, b: _tiled(q, k, v, b, scale=1.0)),
        Suspect("scaled-by-block", "the root is of the size of a block, not of the width",
                lambda q, k, v, b: _tiled(q, k, v, b, scale=b**-0.5)),
        Suspect("block-softmax", "each block gets a softmax of its own; there is one for the whole "
                "row", _block_softmax),
        Suspect("window-of-a-block", "a query sees its own block only, and none before it",
                _blocks_alone),
    ),
    probes=(_makes_whole_matrix,),
)  # fmt: skip

# ------------------------------------------------------------------------------------ window


def _window_cases() -> Iterator[Case]:
    yield Case("7 tokens, a window of 3", (7, 7, 3), "plain")
    yield Case("3 queries, the last ones of 11 keys, a window of 5", (3, 11, 5), "more-keys")
    yield Case("a window of 1", (5, 5, 1), "window-of-one")
    yield Case("a window longer than the text", (4, 6, 20), "long-window")
    yield Case("one query and 9 keys, a window of 4", (1, 9, 4), "one-query")


def _by_rule(rule: Callable[[Tensor, Tensor, int], Tensor]) -> Callable:
    """A mask from a rule on (query, key, size), where both are numbered like the keys."""

    def mask(q_len: int, k_len: int, size: int) -> Tensor:
        query = torch.arange(k_len - q_len, k_len)[:, None]
        return rule(query, torch.arange(k_len), size).view(1, 1, q_len, k_len)

    return mask


_window = _by_rule(lambda q, k, size: (k <= q) & (k > q - size))


def _window_top_left(q_len: int, k_len: int, size: int) -> Tensor:
    ones = torch.ones(1, 1, q_len, k_len, dtype=torch.bool)
    return ones.tril().triu(1 - size)


def _row_four(solution: Callable) -> str:
    row = solution(6, 6, 3)[0, 0, 4].nonzero().flatten().tolist()
    return f"with a window of 3, query 4 of 6 may see {row}, and [2, 3, 4] was due"


_WINDOW = Exercise(
    name="window",
    chapter="long_sequences",
    task="The mask (1, 1, q_len, k_len) of a causal window: each query sees the last size keys up "
    "to its own.",
    takes=("q_len", "k_len", "size"),
    difficulty="easy",
    minutes=10,
    hints=(
        "Two conditions: not later than the query, and not too early. With a window of 1, a token "
        "sees only itself.",
        "The queries are the last of the keys: which number among the keys has the first of them?",
    ),
    reference=_window,
    cases=_window_cases,
    suspects=(
        Suspect("one-too-many", "a token counts as one of its window; you add it on top: {}",
                _by_rule(lambda q, k, n: (k <= q) & (k >= q - n)), _row_four),
        Suspect("one-too-few", "the window is too short by one: {}",
                _by_rule(lambda q, k, n: (k <= q) & (k > q - n + 1)), _row_four),
        Suspect("two-sided", "the window looks ahead, too: {}",
                lambda q, k, n: window_mask(q, k, radius=n - 1), _row_four),
        Suspect("centred", "the window lies around the query, half of it in the future: {}",
                _by_rule(lambda q, k, n: (k - q).abs() <= n // 2), _row_four),
        Suspect("no-window", "the whole past is seen: {}", lambda q, k, n: causal_mask(q, k),
                _row_four),
        Suspect("no-causal", "the future is seen: {}", _by_rule(lambda q, k, n: k > q - n),
                _row_four),
        Suspect("top-left", "with fewer queries than keys, they are the last of the keys, not the "
                "first", _window_top_left),
        Suspect("inverted", "true marks what is blocked; here it says what may be seen: {}",
                lambda q, k, n: ~_window(q, k, n), _row_four),
        Suspect("chunks", "the text is cut into pieces, and a token sees only its own piece: {}",
                _by_rule(lambda q, k, n: (k <= q) & (k // n == q // n)), _row_four),
        Suspect("not-itself", "a token does not see itself: {}",
                _by_rule(lambda q, k, n: (k < q) & (k >= q - n)), _row_four),
        Suspect("outside", "what lies before the window is seen, and the window is not: {}",
                _by_rule(lambda q, k, n: k <= q - n), _row_four),
        Suspect("last-keys", "all queries see the end of the text, not what is before them: {}",
                _by_rule(lambda q, k, n: (k <= q) & (k >= k.numel() - n)), _row_four),
        Suspect("wrong-dtype", "these are numbers; a mask of True and False was asked for",
                lambda q, k, n: _window(q, k, n).int()),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------- attend_with_cache


def _cache_cases() -> Iterator[Case]:
    def of(*sizes: int, dtype: torch.dtype = torch.float32) -> tuple:
        batch, heads, length, d, d_v = sizes
        shapes = (length, d), (length, d), (length, d_v)
        return tuple(torch.randn(batch, heads, *shape, dtype=dtype) for shape in shapes)

    yield Case("5 tokens at once", (*of(2, 3, 5, 8, 8), (5,)), "at-once")
    yield Case("a prompt of 3, then one by one", (*of(2, 3, 6, 5, 7), (3, 1, 1, 1)), "one-by-one")
    yield Case("4 tokens, then 3 more at once", (*of(1, 2, 7, 3, 2), (4, 3)), "pieces")
    yield Case("one token, then 2 at once", (*of(3, 1, 3, 2, 5), (1, 2)), "short")
    yield Case("float64", (*of(1, 2, 4, 3, 2, dtype=torch.float64), (2, 2)), "float64")


def _decoded(solution: Callable, q: Tensor, k: Tensor, v: Tensor, splits: tuple) -> Any:
    """All outputs, the last cache, and the last step once more from the cache before it."""
    cache, outputs, steps = None, [], zip(*(x.split(splits, 2) for x in (q, k, v)), strict=True)
    for step in steps:
        before = cache
        output, cache = solution(*step, before)
        outputs.append(output)
    last = tuple(cache)
    again, _ = solution(*step, before)
    return torch.cat(outputs, 2), last, again


def _with_cache(q: Tensor, k: Tensor, v: Tensor, cache: _Cache, *, axis: int = 2,
                mask: Callable = causal_mask, in_front: bool = False,
                scale: float | None = None) -> tuple[Tensor, _Cache]:  # fmt: skip
    """A step; each switch makes one mistake."""
    if cache is not None:
        pairs = [(new, old) if in_front else (old, new)
                 for old, new in zip(cache, (k, v), strict=True)]  # fmt: skip
        k, v = (torch.cat(pair, axis) for pair in pairs)
    seen = mask(q.shape[2], k.shape[2])
    return attention(q, k, v, mask=seen, scale=scale)[0], (k, v)


def _exchanged(q: Tensor, k: Tensor, v: Tensor, cache: _Cache) -> tuple[Tensor, _Cache]:
    output, (keys, values) = _with_cache(q, k, v, cache)
    return output, (values, keys)


def _old_values_lost(q: Tensor, k: Tensor, v: Tensor, cache: _Cache) -> tuple[Tensor, _Cache]:
    cache = None if cache is None else (cache[0], torch.zeros_like(cache[1]))
    return _with_cache(q, k, v, cache)


def _last_output(q: Tensor, k: Tensor, v: Tensor, cache: _Cache) -> tuple[Tensor, _Cache]:
    output, cache = _with_cache(q, k, v, cache)
    return output[:, :, -1:], cache


def _grows_in_place(q: Tensor, k: Tensor, v: Tensor, cache: list | None) -> tuple[Tensor, list]:
    output, (keys, values) = _with_cache(q, k, v, cache)
    cache = [] if cache is None else cache
    cache[:] = keys, values
    return output, cache


def _top_left(q_len: int, k_len: int) -> Tensor:
    return torch.ones(1, 1, q_len, k_len).tril().bool()


def _past_hidden(q_len: int, k_len: int) -> Tensor:
    return F.pad(causal_mask(q_len), (k_len - q_len, 0))


def _not_itself(q_len: int, k_len: int) -> Tensor:
    return torch.ones(1, 1, q_len, k_len, dtype=torch.bool).tril(k_len - q_len - 1)


def _shares(solution: Callable) -> str:
    """With equal scores: who is seen by the first of two tokens that follow two in the cache."""
    ones, old = torch.zeros(1, 1, 2, 4), torch.eye(4)[None, None]
    output, _ = solution(ones, ones.clone(), old[:, :, 2:], (ones.clone(), old[:, :, :2]))
    row = [round(x, 2) for x in output[0, 0, 0].tolist()]
    return (
        f"two tokens follow two in the cache, all scores equal: the first of them gives shares "
        f"{row}, and [0.33, 0.33, 0.33, 0] was due"
    )


_ATTEND_WITH_CACHE = Exercise(
    name="attend_with_cache",
    chapter="long_sequences",
    task="Causal attention of new tokens with a cache, None or (keys, values); return the output "
    "and the new cache, and leave the old one as it was.",
    takes=("q", "k", "v", "cache"),
    difficulty="medium",
    minutes=20,
    hints=(
        "The new queries look at old and new keys. Which axis holds the tokens?",
        "Feed 4 tokens, and then 3 more at once: the first of these three must see five keys. "
        "Which part of the mask of all seven is that?",
    ),
    reference=_with_cache,
    cases=_cache_cases,
    call=_decoded,
    suspects=(
        Suspect("ignores-cache", "what is in the cache is not read: {}",
                lambda q, k, v, c: _with_cache(q, k, v, None), _shares),
        Suspect("no-mask", "new tokens see each other's future: {}",
                lambda q, k, v, c: _with_cache(q, k, v, c, mask=lambda *_: None), _shares),
        Suspect("top-left", "the triangle starts at the first key, as with is_causal=True, but "
                "the queries are the last of the keys: {}",
                lambda q, k, v, c: _with_cache(q, k, v, c, mask=_top_left), _shares),
        Suspect("returns-new-only", "the cache that comes back holds the new tokens only",
                lambda q, k, v, c: (_with_cache(q, k, v, c)[0], (k, v))),
        Suspect("new-in-front", "the new keys stand before the old ones: {}",
                lambda q, k, v, c: _with_cache(q, k, v, c, in_front=True), _shares),
        Suspect("wrong-axis", "old and new are joined along the heads, not along the tokens",
                lambda q, k, v, c: _with_cache(q, k, v, c, axis=1)),
        Suspect("keys-and-values-swapped", "keys and values have changed places in the cache",
                _exchanged),
        Suspect("keys-only", "the old values are lost: their places hold zeros: {}",
                _old_values_lost, _shares),
        Suspect("cache-hidden", "the mask hides what is in the cache: {}",
                lambda q, k, v, c: _with_cache(q, k, v, c, mask=_past_hidden), _shares),
        Suspect("not-itself", "a new token does not see itself: {}",
                lambda q, k, v, c: _with_cache(q, k, v, c, mask=_not_itself), _shares),
        Suspect("changes-cache", "the old cache was changed: who goes on from it a second time, as "
                "beam search does, finds tokens in it that were never meant", _grows_in_place),
        Suspect("last-token-only", "only the last new token has an output", _last_output),
        Suspect("no-scale", "you did not scale by the root of the width",
                lambda q, k, v, c: _with_cache(q, k, v, c, scale=1.0)),
    ),
)  # fmt: skip

# ---------------------------------------------------------------------------- write_greedily


class _Writer:
    """A model with a cache: what comes next depends on all tokens so far and on their order."""

    def __init__(self, seed: int, n_words: int = 11) -> None:
        of = torch.Generator().manual_seed(seed)
        self.table = torch.randn(n_words, 8, generator=of)
        self.out = torch.randn(8, n_words, generator=of)
        self.n_read = 0

    def __call__(self, ids: Tensor, cache: Tensor | None = None) -> tuple[Tensor, Tensor]:
        self.n_read += ids.shape[1]
        seen = ids if cache is None else torch.cat([cache, ids], dim=1)
        place = torch.arange(1, seen.shape[1] + 1).sin()[:, None]
        state = (self.table[seen] * place).cumsum(1)[:, -ids.shape[1] :]
        return state.tanh() @ self.out, seen


def _writing_cases() -> Iterator[Case]:
    def prompt(*sizes: int) -> Tensor:
        return torch.randint(11, sizes)

    yield Case("2 texts of 3 tokens, 5 new ones", (0, prompt(2, 3), 5), "plain")
    yield Case("one text, one new token", (1, prompt(1, 4), 1), "one-new")
    yield Case("a prompt of one token", (2, prompt(3, 1), 7), "short-prompt")
    yield Case("a prompt longer than what is new", (3, prompt(2, 6), 4), "long-prompt")


def _written(solution: Callable, seed: int, prompt: Tensor, n_new: int) -> Any:
    return solution(_Writer(seed), prompt, n_new)


def _greedy(model: Callable, prompt: Tensor, n_new: int, *, place: int = -1, feed: str = "new",
            update: bool = True, sign: int = 1) -> Tensor:  # fmt: skip
    """Greedy writing; each switch makes one mistake."""
    text, new, cache = prompt, prompt, None
    for i in range(n_new):
        logits, came = model(text if feed == "all" else new, cache)
        cache = came if update or i == 0 else cache
        new = (sign * logits[:, place]).argmax(-1, keepdim=True)
        text = torch.cat([text, new], dim=1)
    return text


def _forgetful(model: Callable, prompt: Tensor, n_new: int) -> Tensor:
    return _greedy(lambda ids, cache: (model(ids, None)[0], None), prompt, n_new)


def _from_last_token(model: Callable, prompt: Tensor, n_new: int) -> Tensor:
    """The prompt goes into the cache, and then its last token once more."""
    _, cache = model(prompt, None)
    first = iter([cache])
    after = _greedy(lambda ids, old: model(ids, next(first, old)), prompt[:, -1:], n_new)
    return torch.cat([prompt[:, :-1], after], dim=1)


def _one_for_all(model: Callable, prompt: Tensor, n_new: int) -> Tensor:
    def same(ids: Tensor, cache: Tensor | None) -> tuple[Tensor, Tensor]:
        logits, cache = model(ids, cache)
        return logits[:1].expand_as(logits), cache

    return _greedy(same, prompt, n_new)


def _without_cache(model: Callable, prompt: Tensor, n_new: int) -> Tensor:
    return _greedy(lambda ids, cache: model(ids, None), prompt, n_new, feed="all")


def _read_too_much(solution: Callable) -> Complaint | None:
    model = _Writer(seed=5)
    solution(model, torch.randint(11, (2, 4)), 6)
    if model.n_read <= 10:
        return None
    says = (
        f"The text is right, but for a prompt of 4 and 6 new tokens the model read "
        f"{model.n_read} tokens; with its cache, no token is read twice, and 10 are enough."
    )
    return Complaint("no-cache", says)


_WRITE_GREEDILY = Exercise(
    name="write_greedily",
    chapter="long_sequences",
    task="Prompt (batch, length) plus n_new tokens; logits, cache = model(new ids, cache or None).",
    takes=("model", "prompt", "n_new"),
    difficulty="medium",
    minutes=15,
    hints=(
        "The model remembers what it has read. What must it read in the first step, and what in "
        "each later one?",
        "Count: for a prompt of 4 and 6 new tokens, no more than 10 tokens go into the model. At "
        "which place do its logits say what comes next?",
    ),
    reference=_greedy,
    cases=_writing_cases,
    call=_written,
    suspects=(
        Suspect("all-again", "the whole text goes into the model in each step, on top of the cache "
                "that holds it", lambda m, p, n: _greedy(m, p, n, feed="all")),
        Suspect("cache-forgotten", "only the new token goes in, and no cache: the model knows "
                "nothing of what came before", _forgetful),
        Suspect("first-cache", "the cache of the prompt is used in every step: what was written "
                "later is never remembered", lambda m, p, n: _greedy(m, p, n, update=False)),
        Suspect("last-token-twice", "the last token of the prompt is read twice",
                _from_last_token),
        Suspect("first-place", "the first place is read, and says what comes after the first "
                "token", lambda m, p, n: _greedy(m, p, n, place=0)),
        Suspect("new-only", "the prompt is missing in what is returned",
                lambda m, p, n: _greedy(m, p, n)[:, p.shape[1]:]),
        Suspect("one-too-few", "one token is missing at the end",
                lambda m, p, n: _greedy(m, p, n - 1)),
        Suspect("one-too-many", "there is one token more than was asked for",
                lambda m, p, n: _greedy(m, p, n + 1)),
        Suspect("total-length", "n_new is taken for the length of the whole text",
                lambda m, p, n: _greedy(m, p, max(n - p.shape[1], 0))),
        Suspect("first-of-batch", "all texts go on with the word that the first one chose",
                _one_for_all),
        Suspect("least-likely", "it takes the word with the lowest logit",
                lambda m, p, n: _greedy(m, p, n, sign=-1)),
        Suspect("no-cache", "every token is read again in every step", _without_cache),
    ),
    probes=(_read_too_much,),
)  # fmt: skip

# ------------------------------------------------------------------------- count_cache_bytes

_SIZES = ("length", "batch", "n_layers", "n_heads", "n_kv_heads", "d_head", "bytes_each")


def _byte_cases() -> Iterator[Case]:
    yield Case("7 tokens, 3 texts, 5 layers, 6 heads on 2, width 11, 2 bytes each",
               (7, 3, 5, 6, 2, 11, 2), "plain")  # fmt: skip
    yield Case("4096 tokens of a model with 32 layers and 8 heads of keys",
               (4096, 1, 32, 32, 8, 128, 2), "large")  # fmt: skip
    yield Case("one head of keys for 4, and 4 bytes each", (5, 2, 3, 4, 1, 7, 4), "one-kv-head")
    yield Case("as many heads of keys as of queries, 1 byte each", (3, 1, 2, 5, 5, 7, 1), "int8")


def _bytes(**factors: float) -> Callable:
    """The formula with some factors changed: ``n_layers=0`` leaves one out."""

    def count(*sizes: int) -> int:
        by_name = dict(zip(_SIZES, sizes, strict=True))
        used = [by_name[s] ** factors.get(s, s != "n_heads") for s in _SIZES]
        return math.prod(used) * factors.get("times", 2)

    return count


def _small(solution: Callable) -> str:
    got = solution(10, 1, 1, 4, 2, 8, 2)
    return f"10 tokens, 1 layer, 4 heads on 2, width 8, 2 bytes: {got:,} came, and 640 was due"


_COUNT_CACHE_BYTES = Exercise(
    name="count_cache_bytes",
    chapter="long_sequences",
    task="The bytes of a cache of keys and values, for grouped heads: n_kv_heads of them are kept.",
    takes=_SIZES,
    difficulty="easy",
    minutes=5,
    hints=(
        "How many numbers does one token leave behind in one layer?",
        "Which heads have keys of their own? And what is kept besides the keys?",
    ),
    reference=_bytes(),
    cases=_byte_cases,
    suspects=(
        Suspect("keys-only", "values are kept, too: {}", _bytes(times=1), _small),
        Suspect("three-of-each", "queries are not kept: {}", _bytes(times=3), _small),
        Suspect("query-heads", "you count the heads that ask; several of them share one head of "
                "keys: {}", _bytes(n_heads=1, n_kv_heads=0), _small),
        Suspect("one-layer", "each layer has a cache of its own: {}", _bytes(n_layers=0), _small),
        Suspect("one-sequence", "each text of the batch has a cache of its own: {}",
                _bytes(batch=0), _small),
        Suspect("one-head", "each head of keys has a cache of its own: {}", _bytes(n_kv_heads=0),
                _small),
        Suspect("one-number", "a key is a vector: its width is missing: {}", _bytes(d_head=0),
                _small),
        Suspect("squared", "this is the matrix of weights, and that is not kept: {}",
                _bytes(length=2, n_heads=1, n_kv_heads=0, d_head=0, times=1), _small),
        Suspect("numbers", "these are numbers, not bytes: {}", _bytes(bytes_each=0), _small),
        Suspect("bits", "these are bits: {}", _bytes(times=16), _small),
        Suspect("float32-only", "you always count 4 bytes for a number: {}",
                _bytes(bytes_each=0, times=8), _small),
        Suspect("divided-twice", "the heads that ask do not divide anything here: {}",
                lambda *s: _bytes()(*s) // s[-1] // s[3] * s[-1], _small),
        Suspect("mebibytes", "these are mebibytes: {}", _bytes(times=2 / 2**20), _small),
    ),
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (
    _ONLINE_AVERAGE,
    _TILED_ATTENTION,
    _WINDOW,
    _ATTEND_WITH_CACHE,
    _WRITE_GREEDILY,
    _COUNT_CACHE_BYTES,
)
