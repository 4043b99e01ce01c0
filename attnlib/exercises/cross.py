"""Exercises of the chapter on cross-attention."""

import copy
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from attnlib.exercises.exercise import Case, Complaint, Exercise, Suspect
from attnlib.exercises.masking import Weights, suspects
from attnlib.functional import masked_softmax, merge_heads, split_heads
from attnlib.layers import MultiHeadAttention

# ------------------------------------------------------------------------ the mask of a source


def _source_mask(ids: Tensor) -> Tensor:
    return (ids != 0)[:, None, None, :]


def _ids_cases() -> Iterator[Case]:
    yield Case(
        "3 sources of up to 3 words", (torch.tensor([[5, 4, 0], [7, 2, 9], [3, 0, 0]]),), "plain"
    )
    two = torch.tensor([[5, 4, 0, 0, 0], [7, 2, 9, 6, 0]])
    yield Case("2 sources of up to 5 words", (two,), "other-sizes")
    yield Case("one source", (torch.tensor([[5, 4, 0]]),), "batch-of-one")
    yield Case("no padding", (torch.tensor([[5, 4], [3, 2]]),), "no-padding")
    yield Case("words with id 1", (torch.tensor([[1, 5, 1, 0], [1, 0, 0, 0]]),), "id-one")
    left = torch.tensor([[0, 0, 5, 4], [0, 7, 2, 9]])
    yield Case("padding in front", (left,), "left-padding")
    yield Case("a source of padding only", (torch.tensor([[0, 0, 0], [4, 5, 0]]),), "empty")
    yield Case("ids of int32", (two.int(),), "int32")


def _up_to_first_zero(ids: Tensor) -> Tensor:
    return (ids != 0).cumprod(1).bool()[:, None, None]


def _counted(ids: Tensor) -> Tensor:
    return (torch.arange(ids.shape[1]) < (ids != 0).sum(1, keepdim=True))[:, None, None]


_SOURCE_MASK = Exercise(
    name="source_mask",
    chapter="cross",
    task="From ids in which padding is 0, the 4-D mask of a cross-attention.",
    takes=("ids",),
    difficulty="easy",
    minutes=5,
    hints=(
        "The keys are on the last axis. Heads and queries all get the same.",
        "True means that a query may attend to a key. And an axis of length 1 is repeated as often "
        "as needed.",
    ),
    reference=_source_mask,
    cases=_ids_cases,
    suspects=(
        Suspect("inverted", "True is where padding is; here True means that a query may attend",
                lambda ids: ~_source_mask(ids)),
        Suspect("no-axes", "the axes for heads and queries are missing: a mask is 4-D",
                lambda ids: ids != 0),
        Suspect("one-axis-missing", "one axis is missing: a mask is (batch, heads, q_len, k_len)",
                lambda ids: (ids != 0)[:, None]),
        Suspect("queries-hidden", "the words stand on the axis of the queries; padding is hidden "
                "as "
                "a key", lambda ids: (ids != 0)[:, None, :, None]),
        Suspect("heads-hidden", "the words stand on the axis of the heads",
                lambda ids: (ids != 0)[:, :, None, None]),
        Suspect("square", "queries are hidden as well: their number is not even known, as they "
                "come "
                "from the target", lambda ids: _source_mask(ids) & _source_mask(ids).mT),
        Suspect("causal-too", "later words are hidden besides: the source was there all along",
                lambda ids: _source_mask(ids) & _square(ids).tril()),
        Suspect("not-boolean", "the mask has numbers for True and False; it has to be boolean",
                lambda ids: _source_mask(ids).to(ids.dtype)),
        Suspect("additive", "this is what is added to the scores, not a boolean mask",
                lambda ids: torch.zeros(_source_mask(ids).shape).masked_fill(
                    ~_source_mask(ids), -torch.inf)),
        Suspect("id-one-hidden", "words with the id 1 are hidden, too: only 0 is padding",
                lambda ids: (ids > 1)[:, None, None]),
        Suspect("only-at-the-end", "everything after the first 0 is hidden: padding may stand in "
                "front as well", _up_to_first_zero),
        Suspect("counted", "you count the words and take as many places from the front: padding "
                "may stand there", _counted),
        Suspect("batch-lost", "the mask of the first source is used for all",
                lambda ids: _source_mask(ids)[:1]),
    ),
)  # fmt: skip


def _square(ids: Tensor) -> Tensor:
    return torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool)


# ---------------------------------------------------------------------- one layer, by its maps


def _cross(
    weights_of: Weights = masked_softmax,
    asks: Callable = lambda x, memory: x,
    keys: Callable = lambda x, memory: memory,
    values: Callable = lambda x, memory: memory,
    scale: Callable = lambda q: q.shape[-1] ** -0.5,
) -> Callable:
    """Cross-attention with one thing changed."""

    def run(layer: MultiHeadAttention, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        q = split_heads(layer.to_query(asks(x, memory)), layer.n_heads)
        k = split_heads(layer.to_key(keys(x, memory)), layer.n_heads)
        v = split_heads(layer.to_value(values(x, memory)), layer.n_heads)
        return layer.to_output(merge_heads(weights_of(q @ k.mT * scale(q), mask) @ v))

    return run


def _causal_too(scores: Tensor, mask: Tensor) -> Tensor:
    return masked_softmax(scores, mask & (torch.ones_like(scores).tril() > 0))


def _cross_cases() -> Iterator[Case]:
    def of(batch: int, q_len: int, k_len: int, d_model: int, n_heads: int) -> tuple:
        layer = MultiHeadAttention(d_model, n_heads)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(2)  # so that the scores matter
        lengths = torch.arange(batch) + k_len - batch + 1
        real = (torch.arange(k_len) < lengths[:, None])[:, None, None]
        return layer, torch.randn(batch, q_len, d_model), torch.randn(batch, k_len, d_model), real

    yield Case("5 words ask 5 others", of(2, 5, 5, 8, 2), "plain")
    yield Case("3 words ask 7 others", of(2, 3, 7, 15, 3), "other-sizes")
    yield Case("7 words ask 3 others", of(2, 7, 3, 6, 3), "longer-target")
    layer, x, memory, real = of(3, 4, 5, 6, 2)
    yield Case("one sentence", (layer, x[:1], memory[:1], real[:1]), "batch-of-one")
    yield Case("one word asks", (layer, x[:, :1], memory, real), "one-query")
    rows = torch.rand(3, 2, 4, 5) < 0.7
    rows[..., 1] = True
    yield Case("a mask for each head and query", (layer, x, memory, rows), "full-mask")
    hidden = torch.arange(5).view(1, 1, 1, 5) != 2
    huge = torch.where(hidden[0, 0].mT, memory, _huge_for(layer, x))
    yield Case("a hidden word with a huge score", (layer, x, huge, hidden), "huge")
    blind = real & (torch.arange(3) != 1).view(3, 1, 1, 1)
    yield Case("a source of padding only", (layer, x, memory, blind), "blind-row")
    double = (copy.deepcopy(layer).double(), x.double(), memory.double(), real)
    yield Case("float64", double, "float64")
    half = MultiHeadAttention(6, 2).half()
    yield Case("float16", (half, x.half(), memory.half(), blind), "float16")


def _huge_for(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """A word that all queries would look at, and no other: only the sum of queries is asked."""
    asked = layer.to_query(x).mean(1, keepdim=True).detach()
    return 300 * asked @ layer.to_key.weight.detach()


_CROSS_ATTEND = Exercise(
    name="cross_attend",
    chapter="cross",
    task="Let x ask the memory, from the four linear maps of a layer, with a mask.",
    takes=("layer", "x", "memory", "mask"),
    difficulty="medium",
    minutes=12,
    hints=(
        "Two sequences, two lengths: which of them gives the rows of the weights, and which the "
        "columns?",
        "Whoever asks gives the queries, whoever answers gives the rest. The mask is about those "
        "who answer.",
    ),
    reference=_cross(),
    cases=_cross_cases,
    suspects=(
        *suspects(lambda weights_of: _cross(weights_of)),
        Suspect("roles-exchanged", "the memory asks and x answers",
                lambda layer, x, memory, mask: _cross(masked_softmax)(layer, memory, x, mask)),
        Suspect("memory-not-read", "x asks itself: the memory is not read at all",
                _cross(keys=lambda x, memory: x, values=lambda x, memory: x)),
        Suspect("roles-exchanged", "the memory asks and x answers",
                lambda layer, x, memory, mask: layer(memory, x)),
        Suspect("memory-not-read", "x asks itself: the memory is not read at all",
                lambda layer, x, memory, mask: layer(x)),
        Suspect("memory-asks-itself", "the memory asks itself: x is not heard",
                _cross(asks=lambda x, memory: memory)),
        Suspect("keys-of-x", "the keys come from x; only the queries do",
                _cross(keys=lambda x, memory: x)),
        Suspect("values-of-x", "the values come from x; only the queries do",
                _cross(values=lambda x, memory: x)),
        Suspect("memory-averaged", "the memory became one vector: with a single key its weight is "
                "always 1, whoever asks",
                lambda layer, x, memory, mask: layer(x, memory.mean(1, keepdim=True))),
        Suspect("memory-cut", "the memory is cut to the length of x",
                lambda layer, x, memory, mask: layer(
                    x, memory[:, : x.shape[1]], mask=mask[..., : x.shape[1]])),
        Suspect("causal-too", "later words of the memory are hidden besides: all of it was there "
                "before", _cross(_causal_too)),
        Suspect("no-scale", "you did not scale the scores", _cross(scale=lambda q: 1.0)),
        Suspect("scaled-by-model", "the root is of d_model; the scores sum over d_head numbers",
                _cross(scale=lambda q: (q.shape[1] * q.shape[-1]) ** -0.5)),
        Suspect("residual-added", "x is added; the layer leaves that to its caller",
                lambda layer, x, memory, mask: x + layer(x, memory, mask=mask)),
        Suspect("one-head-for-all", "the mask of the first head is used for all of them",
                lambda layer, x, memory, mask: layer(x, memory, mask=mask[:, :1])),
    ),
)  # fmt: skip

# ----------------------------------------------------------------- which word does it need?


def _falls(log_p: Callable, source: Tensor, words: Tensor) -> Tensor:
    before, found = log_p(source), []
    for place in range(source.shape[1]):
        changed = source.clone()
        changed[:, place] = words[:, place]
        found.append(before - log_p(changed))
    return torch.stack(found, dim=-1)


def _falls_cases() -> Iterator[Case]:
    def of(batch: int, target: int, length: int) -> tuple:
        table, mix = torch.randn(20, 8), torch.randn(length, target, 8)

        def log_p(source: Tensor) -> Tensor:
            heard = table[source][:, :, None] * mix  # (batch, source, target, 8)
            return heard.sum(1).tanh().sum(-1) - 5

        draw = torch.randint(0, 20, (2, batch, length))
        return log_p, draw[0], draw[1]

    yield Case("3 sentences, 3 words from 3", of(3, 3, 3), "plain")
    yield Case("2 sentences, 5 words from 7", of(2, 5, 7), "other-sizes")
    yield Case("one sentence", of(1, 2, 3), "batch-of-one")
    yield Case("one source word", of(2, 3, 1), "one-place")
    log_p, source, _ = of(2, 3, 5)
    yield Case("words that are the same as before", (log_p, source, source), "unchanged")


def _falls_with(
    change: Callable, fall: Callable = lambda before, after: before - after, axis: int = -1
) -> Callable:
    """The falls with one thing changed: what is replaced, what is subtracted, or the axis."""

    def run(log_p: Callable, source: Tensor, words: Tensor) -> Tensor:
        before, found = log_p(source), []
        for place in range(source.shape[1]):
            found.append(fall(before, log_p(change(source, words, place))))
        return torch.stack(found, dim=axis)

    return run


def _replaced(source: Tensor, words: Tensor, place: int) -> Tensor:
    return torch.where(torch.arange(source.shape[1]) == place, words, source)


_FALLS = Exercise(
    name="falls",
    chapter="cross",
    task="By how much log p of each target word falls if one source place is replaced.",
    takes=("log_p", "source", "words"),
    difficulty="medium",
    minutes=15,
    hints=(
        "One place after the other: everything else has to be as it was. Where does your loop put "
        "the old word back?",
        "log_p gives (batch, target words). What you return has one axis more, the source places, "
        "and it comes last.",
    ),
    reference=_falls,
    cases=_falls_cases,
    suspects=(
        Suspect("sign", "these are rises: a word that is needed should have a large positive fall",
                _falls_with(_replaced, lambda before, after: after - before)),
        Suspect("not-put-back", "earlier places stay replaced: put each word back before the next",
                _falls_with(lambda s, w, place:
                            torch.where(torch.arange(s.shape[1]) <= place, w, s))),
        Suspect("row-replaced", "a sentence is replaced, not a place",
                _falls_with(lambda s, w, place: torch.where(
                    torch.arange(len(s))[:, None] == place, w, s))),
        Suspect("others-replaced", "all places but this one are replaced",
                _falls_with(lambda s, w, place: torch.where(
                    torch.arange(s.shape[1]) == place, s, w))),
        Suspect("places-first", "the source places come first, where they should be the last axis",
                _falls_with(_replaced, axis=0)),
        Suspect("places-in-the-middle", "the source places stand before the target words",
                _falls_with(_replaced, axis=1)),
        Suspect("no-difference", "this is log p after the change; what it was before is missing",
                _falls_with(_replaced, lambda before, after: after)),
        Suspect("probabilities", "probabilities are subtracted, not their logarithms",
                _falls_with(_replaced, lambda before, after: before.exp() - after.exp())),
        Suspect("absolute", "the sign is lost: a rise is not a fall",
                _falls_with(_replaced, lambda before, after: (before - after).abs())),
        Suspect("hidden-not-replaced", "the place is set to 0; the new words are in words",
                _falls_with(lambda s, w, place: _replaced(s, torch.zeros_like(s), place))),
        Suspect("one-word-for-all", "all sentences get the first sentence's word",
                _falls_with(lambda s, w, place: _replaced(s, w[:1].expand_as(s), place))),
        Suspect("batch-averaged", "the sentences are averaged; each has its own falls",
                lambda log_p, s, w: _falls(log_p, s, w).mean(0)),
        Suspect("next-place", "each place stands one too late: a negative index reaches around",
                _falls_with(lambda s, w, place: _replaced(s, w, (place - 1) % s.shape[1]))),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------- read once, ask often


class _Memory:
    """A source that was read, and may be asked as often as one likes."""

    def __init__(self, layer: MultiHeadAttention, memory: Tensor, mask: Tensor) -> None:
        self.layer, self.mask = layer, mask
        self.pair = layer.keys_and_values(memory)

    def ask(self, x: Tensor) -> Tensor:
        return self.layer(x, self.pair, mask=self.mask)


def _ask_two(
    solution: Callable,
    layer: MultiHeadAttention,
    x: Tensor,
    first: Tensor,
    second: Tensor,
    mask: Tensor,
) -> tuple[Tensor, ...]:
    """Two sources at a time, asked in turn: by one word after the other."""
    one, two = solution(layer, first, mask), solution(layer, second, mask)
    steps = x.split(1, dim=1)
    return tuple(source.ask(step) for step in steps for source in (one, two))


def _memory_cases() -> Iterator[Case]:
    for words, key, sizes in (
        ("2 sentences of 4 words, asked by 3", "plain", (2, 3, 4, 8, 2)),
        ("one sentence of 7 words, asked by 2", "batch-of-one", (1, 2, 7, 6, 3)),
    ):
        batch, q_len, k_len, d_model, n_heads = sizes
        first, second = torch.randn(2, batch, k_len, d_model)
        real = (torch.arange(k_len) < k_len - torch.arange(batch)[:, None])[:, None, None]
        layer, x = MultiHeadAttention(d_model, n_heads), torch.randn(batch, q_len, d_model)
        yield Case(words, (layer, x, first, second, real), key)
    layer = MultiHeadAttention(6, 2, n_kv_heads=1).double()
    x, first, second = torch.randn(3, 2, 3, 6).double()
    yield Case("shared keys, float64", (layer, x, first, second, real[..., :3]), "shared-keys")


class _Unmasked(_Memory):
    def ask(self, x: Tensor) -> Tensor:
        return self.layer(x, self.pair)


class _Inverted(_Memory):
    def ask(self, x: Tensor) -> Tensor:
        return self.layer(x, self.pair, mask=~self.mask)


class _AnswersOnce(_Memory):
    def ask(self, x: Tensor) -> Tensor:
        if not hasattr(self, "answer"):
            self.answer = super().ask(x)
        return self.answer


class _Grows(_Memory):
    def ask(self, x: Tensor) -> Tensor:
        new = self.layer.keys_and_values(x)
        self.pair = tuple(torch.cat(both, 2) for both in zip(self.pair, new, strict=True))
        seen = nn.functional.pad(self.mask, (0, self.pair[0].shape[2] - self.mask.shape[-1]))
        added = torch.arange(seen.shape[-1]) >= self.mask.shape[-1]
        return self.layer(x, self.pair, mask=seen | added)


class _Swapped(_Memory):
    def ask(self, x: Tensor) -> Tensor:
        return self.layer(x, self.pair[::-1], mask=self.mask)


class _SelfAsked(_Memory):
    def ask(self, x: Tensor) -> Tensor:
        return self.layer(x)


class _KeysOnly(_Memory):
    def ask(self, x: Tensor) -> Tensor:
        return self.layer(x, (self.pair[0], self.pair[0]), mask=self.mask)


class _LastForAll(_Memory):
    """Keeps its pair where all of them find it, as an attribute of a class would."""

    def __init__(self, layer: MultiHeadAttention, memory: Tensor, mask: Tensor) -> None:
        super().__init__(layer, memory, mask)
        layer.__dict__["kept"] = self.pair

    def ask(self, x: Tensor) -> Tensor:
        return self.layer(x, self.layer.__dict__["kept"], mask=self.mask)


def _first_for_all(layer: MultiHeadAttention, memory: Tensor, mask: Tensor) -> _Memory:
    """Remembers the first source by its layer, as a cache that is never emptied does."""
    kept = layer.__dict__.setdefault("kept", [])
    kept.append(_Memory(layer, memory, mask))
    return kept[0]


def _projects_again(solution: Callable) -> Complaint | None:
    """Count how often the keys are made while a source is asked five times."""
    layer, made = MultiHeadAttention(6, 2), []
    memory, mask = torch.randn(1, 7, 6), torch.ones(1, 1, 1, 7, dtype=torch.bool)
    for linear in (layer.to_key, layer.to_value):
        linear.register_forward_hook(lambda *call: made.append(call[2].shape[1]))
    source = solution(layer, memory, mask)
    for step in torch.randn(1, 5, 6).split(1, dim=1):
        source.ask(step)
    if sum(made) <= 14:
        return None
    says = f"For 7 words that were asked 5 times it made {sum(made)} keys and values, due 14."
    return Complaint("projects-again", f"The answers are right, but the work is done again. {says}")


_MEMORY = Exercise(
    name="Memory",
    chapter="cross",
    task="A class that makes keys and values once: Memory(layer, memory, mask), then ask(x).",
    takes=("layer", "memory", "mask"),
    difficulty="medium",
    minutes=15,
    hints=(
        "What does not change from one question to the next, and where is it kept?",
        "Two sources may be open at a time. The layer has a method that makes keys and values, and "
        "takes them in place of a memory.",
    ),
    reference=_Memory,
    cases=_memory_cases,
    suspects=(
        Suspect("mask-ignored", "padding of the source is seen: the mask is not used", _Unmasked),
        Suspect("mask-inverted", "you hide what may be seen, and show the padding", _Inverted),
        Suspect("answers-once", "later questions get the first answer: what is kept is the answer, "
                "not what was read", _AnswersOnce),
        Suspect("grows", "the keys of x are added to those of the source, as in self-attention; a "
                "source does not grow", _Grows),
        Suspect("keys-for-values", "keys and values have changed places", _Swapped),
        Suspect("keys-as-values", "the keys are mixed where the values should be", _KeysOnly),
        Suspect("source-not-read", "x asks itself: the source is not read", _SelfAsked),
        Suspect("last-for-all", "two sources share one place: the one read last answers for both",
                _LastForAll),
        Suspect("first-for-all", "the source read first answers for all later ones",
                _first_for_all),
    ),
    probes=(_projects_again,),
    call=_ask_two,
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (_SOURCE_MASK, _CROSS_ATTEND, _MEMORY, _FALLS)
