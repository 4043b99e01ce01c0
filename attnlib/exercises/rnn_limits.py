"""Exercises of the chapter on recurrent networks and their limits."""

from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnlib.exercises.exercise import Case, Complaint, Exercise, Suspect
from attnlib.exercises.masking import Weights, suspects
from attnlib.functional import masked_softmax
from attnlib.recurrent import AdditiveAttention, GRUCell

# ----------------------------------------------------------------------------- one GRU step


def _gru_cases() -> Iterator[Case]:
    def of(batch: int, d_input: int, d_hidden: int) -> tuple[Tensor, Tensor, nn.Module]:
        cell = GRUCell(d_input, d_hidden)
        with torch.no_grad():
            for parameter in cell.parameters():
                parameter.mul_(3)  # so that gates are open or shut, and not all one half
        return torch.randn(batch, d_input), torch.randn(batch, d_hidden), cell

    yield Case("a batch of 3, widths 5 and 5", of(3, 5, 5), "plain")
    yield Case("a batch of 2, widths 3 and 7", of(2, 3, 7), "other-sizes")
    yield Case("a batch of one", of(1, 3, 5), "batch-of-one")
    yield Case("a state of one number", of(3, 2, 1), "narrow")
    x, h, cell = of(2, 3, 5)
    yield Case("float64", (x.double(), h.double(), cell.double()), "float64")


def _parts(x: Tensor, h: Tensor, cell: nn.Module) -> tuple[Tensor, ...]:
    return (*cell.from_input(x).chunk(3, -1), *cell.from_state(h).chunk(3, -1))


def _gru(x: Tensor, h: Tensor, cell: nn.Module) -> Tensor:
    return cell(x, (h,))[0]


def _gates_exchanged(x: Tensor, h: Tensor, cell: nn.Module) -> Tensor:
    keep_x, reset_x, new_x, keep_h, reset_h, new_h = _parts(x, h, cell)
    keep = (keep_x + keep_h).sigmoid()
    return keep * h + (1 - keep) * (new_x + (reset_x + reset_h).sigmoid() * new_h).tanh()


def _gru_with(
    bend: Callable = torch.tanh,
    gate: Callable = torch.sigmoid,
    new: Callable = lambda a, r, b: a + r * b,
    mix: Callable = lambda keep, new, h: (1 - keep) * new + keep * h,
) -> Callable:
    """A GRU step with one thing changed."""

    def step(x: Tensor, h: Tensor, cell: nn.Module) -> Tensor:
        reset_x, keep_x, new_x, reset_h, keep_h, new_h = _parts(x, h, cell)
        reset, keep = gate(reset_x + reset_h), gate(keep_x + keep_h)
        return mix(keep, bend(new(new_x, reset, new_h)), h)

    return step


def _reset_before(x: Tensor, h: Tensor, cell: nn.Module) -> Tensor:
    reset_x, keep_x, new_x, reset_h, keep_h, _ = _parts(x, h, cell)
    keep = (keep_x + keep_h).sigmoid()
    new_h = cell.from_state((reset_x + reset_h).sigmoid() * h).chunk(3, -1)[2]
    return keep * h + (1 - keep) * (new_x + new_h).tanh()


def _reset_without_bias(x: Tensor, h: Tensor, cell: nn.Module) -> Tensor:
    reset_x, keep_x, new_x, reset_h, keep_h, new_h = _parts(x, h, cell)
    bias = cell.from_state.bias.chunk(3)[2]
    keep = (keep_x + keep_h).sigmoid()
    new = new_x + (reset_x + reset_h).sigmoid() * (new_h - bias) + bias
    return keep * h + (1 - keep) * new.tanh()


def _interleaved(x: Tensor, h: Tensor, cell: nn.Module) -> Tensor:
    reset_x, keep_x, new_x = cell.from_input(x).unflatten(-1, (-1, 3)).unbind(-1)
    reset_h, keep_h, new_h = cell.from_state(h).unflatten(-1, (-1, 3)).unbind(-1)
    keep = (keep_x + keep_h).sigmoid()
    return keep * h + (1 - keep) * (new_x + (reset_x + reset_h).sigmoid() * new_h).tanh()


def _gates_without_state(x: Tensor, h: Tensor, cell: nn.Module) -> Tensor:
    reset_x, keep_x, new_x, _, _, new_h = _parts(x, h, cell)
    keep = keep_x.sigmoid()
    return keep * h + (1 - keep) * (new_x + reset_x.sigmoid() * new_h).tanh()


_GRU_STEP = Exercise(
    name="gru_step",
    chapter="rnn_limits",
    task="One step of a GRU, from the two linear maps of its cell.",
    takes=("x", "h", "cell"),
    difficulty="medium",
    minutes=15,
    hints=(
        "Each of the two maps gives three vectors side by side, for reset, keep and new, in this "
        "order. Two of the three sums go through the same function.",
        "The reset gate works on what the state says about the new value, bias included, and on "
        "nothing else. In the end old and new are mixed; keep is the share of the old.",
    ),
    reference=_gru,
    cases=_gru_cases,
    suspects=(
        Suspect("shares-exchanged", "keep is the share of the old state; you give it to the new",
                _gru_with(mix=lambda keep, new, h: keep * new + (1 - keep) * h)),
        Suspect("gates-exchanged", "reset and keep have changed places: reset comes first",
                _gates_exchanged),
        Suspect("reset-before-product", "you reset the state before its product with the weights, "
                "as in the first paper; here, as in PyTorch, it comes after", _reset_before),
        Suspect("reset-without-bias", "the bias of the state's map escapes the reset gate",
                _reset_without_bias),
        Suspect("reset-on-input", "the reset gate works on the input's part; it should on the "
                "state's", _gru_with(new=lambda a, r, b: r * a + b)),
        Suspect("reset-on-both", "the reset gate works on the sum; it should on the state's part",
                _gru_with(new=lambda a, r, b: r * (a + b))),
        Suspect("reset-forgotten", "the reset gate does nothing",
                _gru_with(new=lambda a, r, b: a + b)),
        Suspect("no-tanh", "the new value is not bounded: its tanh is missing",
                _gru_with(bend=lambda x: x)),
        Suspect("sigmoid-for-tanh", "the new value went through a sigmoid, and is never negative",
                _gru_with(bend=torch.sigmoid)),
        Suspect("tanh-for-sigmoid", "the gates went through a tanh: a share cannot be negative",
                _gru_with(gate=torch.tanh)),
        Suspect("old-state-lost", "nothing is left of the old state: you returned the new value",
                _gru_with(mix=lambda keep, new, h: new)),
        Suspect("old-state-whole", "the old state stays whole, and the new value is added to it",
                _gru_with(mix=lambda keep, new, h: (1 - keep) * new + h)),
        Suspect("parts-interleaved", "you took every third number; the three vectors lie side by "
                "side", _interleaved),
        Suspect("gates-without-state", "the gates do not hear the old state",
                _gates_without_state),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------------- a scan


def _one_by_one(a: Tensor, b: Tensor) -> Tensor:
    h, states = torch.zeros_like(b[0]), []
    for t in range(len(a)):
        h = a[t] * h + b[t]
        states.append(h)
    return torch.stack(states)


def _scan_cases() -> Iterator[Case]:
    def of(length: int, width: int, low: float = 0.0) -> tuple[Tensor, Tensor]:
        a = low + (1 - low) * torch.rand(length, width, dtype=torch.float64)
        return a, torch.randn(length, width, dtype=torch.float64)

    yield Case("4 steps", of(4, 3), "plain")
    yield Case("7 steps, no power of two", of(7, 3), "seven-steps")
    yield Case("one step", of(1, 3), "one-step")
    yield Case("a square, 5 steps of width 5", of(5, 5), "square")
    yield Case("factors of both signs", of(13, 2, low=-1.0), "signs")
    a, b = of(11, 3)
    yield Case("a factor of 0 in the middle", (a * (torch.arange(11) != 5)[:, None], b), "zero")
    yield Case("100 steps", of(100, 2), "long")
    yield Case("float32", tuple(x.float() for x in of(17, 3)), "float32")


def _rounds(
    a: Tensor,
    b: Tensor,
    combine: Callable = lambda a, b, old_a, old_b: (a * old_a, a * old_b + b),
    most: Callable = lambda length: length,
) -> Tensor:
    """The scan in rounds, with one thing changed."""
    reach = 1
    while reach < most(len(a)):
        old_a = F.pad(a[:-reach], (0, 0, reach, 0), value=1.0)
        a, b = combine(a, b, old_a, F.pad(b[:-reach], (0, 0, reach, 0)))
        reach *= 2
    return b


class _Counter(TorchFunctionMode):
    """Counts what is asked of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_function__(
        self, function: Callable, types: tuple, args: tuple = (), kwargs: dict | None = None
    ) -> object:
        self.count += 1
        return function(*args, **(kwargs or {}))


def _operations(solution: Callable, length: int) -> int:
    with _Counter() as counter:
        solution(torch.rand(length, 2), torch.randn(length, 2))
    return counter.count


def _loops(solution: Callable) -> Complaint | None:
    """Twice the length should take one more round, and not twice the operations."""
    short, long = _operations(solution, 64), _operations(solution, 128)
    if long <= 1.6 * short:
        return None
    says = f"It waits for each step: 64 steps take {short} operations, and 128 take {long}."
    return Complaint("loops-over-time", f"The states are right. {says}")


_SCAN = Exercise(
    name="scan",
    chapter="rnn_limits",
    task="All states of h = a h + b, from h = 0, without a loop over time.",
    takes=("a", "b"),
    difficulty="hard",
    minutes=20,
    hints=(
        "Two steps in one go are a step of the same form. What are its factor and its summand?",
        "In each round every step takes in what stands 1, then 2, then 4 places before it, all "
        "steps at once. Those with nothing so far before them keep what they have.",
    ),
    reference=_rounds,
    cases=_scan_cases,
    suspects=(
        Suspect("factors-ignored", "you added up b; the factors a are not used",
                lambda a, b: b.cumsum(0)),
        Suspect("divides-by-products", "you divide by the product of the factors: it gets so small "
                "that nothing is left to divide by, and a factor of 0 ends it at once",
                lambda a, b: a.cumprod(0) * (b / a.cumprod(0)).cumsum(0)),
        Suspect("factors-not-combined", "after the first round the factors are still those of "
                "single steps",
                lambda a, b: _rounds(a, b, lambda a, b, old_a, old_b: (a, a * old_b + b))),
        Suspect("factor-updated-first", "in a round, a is replaced before b is computed with it",
                lambda a, b: _rounds(
                    a, b, lambda a, b, old_a, old_b: (a * old_a, a * old_a * old_b + b))),
        Suspect("summand-of-old-kept", "what stood before is multiplied with its own factor, not "
                "with that of the later step",
                lambda a, b: _rounds(a, b, lambda a, b, old_a, old_b: (a * old_a,
                                                                       old_a * old_b + b))),
        Suspect("one-round-too-few", "the last round is missing: early steps never reach the end",
                lambda a, b: _rounds(a, b, most=lambda length: length / 2)),
        Suspect("one-round-only", "each step takes in one step before it, and that is all",
                lambda a, b: _rounds(a, b, most=lambda length: min(length, 2))),
        Suspect("backwards", "the states run from the end to the beginning",
                lambda a, b: _one_by_one(a.flip(0), b.flip(0)).flip(0)),
        Suspect("along-width", "it runs along the width; time is the first axis",
                lambda a, b: _one_by_one(a.mT, b.mT).mT),
        Suspect("one-step-late", "each state is that before its step",
                lambda a, b: F.pad(_one_by_one(a, b)[:-1], (0, 0, 1, 0))),
        Suspect("last-state-only", "all states are asked for, and this is the last one",
                lambda a, b: _one_by_one(a, b)[-1]),
        Suspect("factor-on-input", "the factor works on b as well: h = a (h + b)",
                lambda a, b: _one_by_one(a, a * b)),
        Suspect("wraps-around", "the first steps take in the last ones: a roll goes around",
                lambda a, b: _rolled(a, b)),
    ),
    probes=(_loops,),
)  # fmt: skip


def _rolled(a: Tensor, b: Tensor) -> Tensor:
    reach = 1
    while reach < len(a):
        a, b = a * a.roll(reach, 0), a * b.roll(reach, 0) + b
        reach *= 2
    return b


# ------------------------------------------------------------------- read a source backwards


def _read_backwards(source: Tensor, lengths: Tensor) -> Tensor:
    step = torch.arange(source.shape[1])
    end = lengths[:, None]
    return source.gather(1, torch.where(step < end, end - 1 - step, step))


def _backwards_cases() -> Iterator[Case]:
    def of(*lengths: int, longest: int = 7, low: int = 1) -> tuple[Tensor, Tensor]:
        ids = torch.arange(low, low + len(lengths) * longest).view(len(lengths), longest)
        there = torch.arange(longest) < torch.tensor(lengths)[:, None]
        return ids * there, torch.tensor(lengths)

    yield Case("lengths 7, 5 and 2 of 7", of(7, 5, 2), "plain")
    yield Case("sources without padding", of(7, 7), "no-padding")
    yield Case("one source", of(4), "batch-of-one")
    yield Case("a source of one token", of(1, 3), "one-token")
    yield Case("as many sources as tokens", of(3, 1, 2, 3, longest=4), "square")
    yield Case("a real token with id 0", of(4, 3, longest=5, low=0), "id-zero")
    ids, lengths = of(2, 4, longest=5)
    yield Case("padding with another id than 0", (ids + 9, lengths), "other-padding")


def _off_by_one(source: Tensor, lengths: Tensor) -> Tensor:
    step = torch.arange(source.shape[1])
    end = lengths[:, None]
    index = torch.where(step < end, end - step, step)
    return source.gather(1, index.clamp(max=source.shape[1] - 1))


def _sized_by_zeros(source: Tensor, lengths: Tensor) -> Tensor:
    return _read_backwards(source, (source != 0).sum(1))


def _padding_to_zero(source: Tensor, lengths: Tensor) -> Tensor:
    there = torch.arange(source.shape[1]) < lengths[:, None]
    return _read_backwards(source, lengths) * there


_BACKWARDS = Exercise(
    name="backwards",
    chapter="rnn_limits",
    task="Reverse each source of a padded batch; its padding stays at the end.",
    takes=("source", "lengths"),
    difficulty="easy",
    minutes=10,
    hints=(
        "Take one source of 4 tokens in 7 places. Where does the token at place 0 go, and where "
        "does the padding at place 5 go?",
        "Make a tensor of places, one row for each source, that says from where each token "
        "comes. One function of tensors picks by such a table.",
    ),
    reference=_read_backwards,
    cases=_backwards_cases,
    suspects=(
        Suspect("padding-first", "the padding was reversed with the source, and now comes first",
                lambda source, lengths: source.flip(1)),
        Suspect("batch-reversed", "you reversed the order of the sources, not of their tokens",
                lambda source, lengths: source.flip(0)),
        Suspect("unchanged", "the sources are as they were", lambda source, lengths: source),
        Suspect("off-by-one", "the first token of each source is lost: the last place of n "
                "tokens is n - 1", _off_by_one),
        Suspect("longest-for-all", "each source is reversed as if it were as long as the longest",
                lambda s, n: _read_backwards(s, n.amax().expand(len(n)))),
        Suspect("first-for-all", "each source is reversed as if it were as long as the first",
                lambda s, n: _read_backwards(s, n[:1].expand(len(n)))),
        Suspect("length-from-zeros", "you count the ids that are not 0, where lengths are given: a "
                "real token may have the id 0", _sized_by_zeros),
        Suspect("padding-overwritten", "the padding is set to 0; it should stay what it was",
                _padding_to_zero),
        Suspect("both-reversed", "tokens and sources are both reversed",
                lambda s, n: _read_backwards(s, n).flip(0)),
        Suspect("rolled", "the tokens keep their order and are moved to the end",
                lambda s, n: torch.stack([row.roll(s.shape[1] - int(k))
                                          for row, k in zip(s, n, strict=True)])),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------- the last real state


def _last(outputs: Tensor, lengths: Tensor) -> Tensor:
    return outputs[torch.arange(len(outputs)), lengths - 1]


def _last_cases() -> Iterator[Case]:
    def of(*lengths: int, longest: int, width: int) -> tuple[Tensor, Tensor]:
        return torch.randn(len(lengths), longest, width), torch.tensor(lengths)

    yield Case("lengths 5, 3 and 2 of 7", of(5, 3, 2, longest=7, width=4), "plain")
    yield Case("a sequence that fills its row", of(5, 2, longest=5, width=3), "full")
    yield Case("batch, length and width of 3", of(1, 3, 2, longest=3, width=3), "square")
    yield Case("one sequence", of(4, longest=7, width=3), "batch-of-one")
    yield Case("a width of one", of(4, 2, 3, longest=5, width=1), "narrow")
    outputs, lengths = of(4, 2, longest=5, width=3)
    nan = outputs.masked_fill((torch.arange(5) >= lengths[:, None])[..., None], torch.nan)
    yield Case("NaN in the padding", (nan, lengths), "nan-padding", gradient=False)
    yield Case("float64", (outputs.double(), lengths), "float64")
    yield Case("lengths of int32", (outputs, lengths.int()), "int32")


def _real(outputs: Tensor, lengths: Tensor) -> Tensor:
    return (torch.arange(outputs.shape[1]) < lengths[:, None])[..., None]


_LAST_STATE = Exercise(
    name="last_state",
    chapter="rnn_limits",
    task="From outputs of a padded batch, the state of each sequence at its last real token.",
    takes=("outputs", "lengths"),
    difficulty="easy",
    minutes=5,
    hints=(
        "Which number has the last place of a sequence of 5 tokens? And is it the same place for "
        "all sequences of the batch?",
        "Two tensors of indices, one for the batch and one for the place, pick one vector for "
        "each pair.",
    ),
    reference=_last,
    cases=_last_cases,
    suspects=(
        Suspect("last-place", "you took the last place of each row: for a short sequence that is "
                "padding", lambda y, n: y[:, -1]),
        Suspect("off-by-one", "one place too late: the last token of a sequence of n is number "
                "n - 1", lambda y, n: y[torch.arange(len(y)), n]),
        Suspect("one-too-early", "one place too early: that is the token before the last",
                lambda y, n: y[torch.arange(len(y)), n - 2]),
        Suspect("first-place", "you took the state at the first token", lambda y, n: y[:, 0]),
        Suspect("last-sequence", "you took the last sequence of the batch, not the last place",
                lambda y, n: y[-1]),
        Suspect("all-pairs", "the places of all sequences are taken from each of them: two indices "
                "have to go together", lambda y, n: y[:, n - 1]),
        Suspect("longest-for-all", "all sequences are cut where the longest one ends",
                lambda y, n: y[:, n.max() - 1]),
        Suspect("first-for-all", "all sequences are cut where the first one ends",
                lambda y, n: y[:, n[0] - 1]),
        Suspect("averaged", "this is the average over the real tokens, not the last state",
                lambda y, n: (y * _real(y, n)).sum(1) / n[:, None]),
        Suspect("summed-with-mask", "you multiply by a mask and sum: padding that is NaN stays NaN",
                lambda y, n: (y * (torch.arange(y.shape[1]) == n[:, None] - 1)[..., None]).sum(1)),
        Suspect("largest", "this is the largest number over time, not the last state",
                lambda y, n: y.amax(1)),
        Suspect("axis-of-length-left", "an axis of length 1 is left",
                lambda y, n: _last(y, n)[:, None]),
        Suspect("squeezed", "all axes of length 1 are gone, the batch and the width included",
                lambda y, n: _last(y, n).squeeze()),
    ),
)  # fmt: skip

# ------------------------------------------------------------------------------ ask the memory


def _ask(weights_of: Weights) -> Callable:
    """Additive attention, with the step from scores to weights left open."""

    def ask(query: Tensor, memory: Tensor, mask: Tensor, layer: nn.Module) -> Tensor:
        pairs = layer.to_query(query)[:, :, None] + layer.to_key(memory)[:, None]
        return weights_of(layer.to_score(pairs.tanh())[..., 0], mask[:, 0]) @ memory

    return ask


def _ask_with(score: Callable) -> Callable:
    """Additive attention with other scores, from the sums of all pairs."""

    def ask(query: Tensor, memory: Tensor, mask: Tensor, layer: nn.Module) -> Tensor:
        pairs = layer.to_query(query)[:, :, None] + layer.to_key(memory)[:, None]
        return masked_softmax(score(pairs, layer.to_score)[..., 0], mask[:, 0]) @ memory

    return ask


def _ask_by_products(query: Tensor, memory: Tensor, mask: Tensor, layer: nn.Module) -> Tensor:
    scores = layer.to_query(query) @ layer.to_key(memory).mT
    return masked_softmax(scores, mask[:, 0]) @ memory


def _ask_deaf(query: Tensor, memory: Tensor, mask: Tensor, layer: nn.Module) -> Tensor:
    scores = layer.to_score(layer.to_key(memory).tanh()).mT.expand(-1, query.shape[1], -1)
    return masked_softmax(scores, mask[:, 0]) @ memory


def _keys_mixed(query: Tensor, memory: Tensor, mask: Tensor, layer: nn.Module) -> Tensor:
    keys = layer.to_key(memory)
    scores = layer.to_score((layer.to_query(query)[:, :, None] + keys[:, None]).tanh())[..., 0]
    return masked_softmax(scores, mask[:, 0]) @ keys


def _ask_cases() -> Iterator[Case]:
    def of(batch: int, q_len: int, k_len: int, *widths: int) -> tuple:
        layer = AdditiveAttention(*widths)
        with torch.no_grad():
            layer.to_score.weight.mul_(9)
        query, memory = torch.randn(batch, q_len, widths[0]), torch.randn(batch, k_len, widths[1])
        mask = torch.rand(batch, 1, q_len, k_len) < 0.6
        mask[..., 0] = True
        return query, memory, mask, layer

    yield Case("3 queries, 3 tokens, all widths 5", of(2, 3, 3, 5, 5, 5), "plain")
    yield Case("4 queries, 7 tokens, widths 3, 5, 11", of(2, 4, 7, 3, 5, 11), "other-sizes")
    yield Case("one sequence and one query", of(1, 1, 5, 2, 3, 7), "one-query")
    query, memory, mask, layer = of(3, 2, 5, 2, 3, 7)
    real = (torch.arange(5) < torch.tensor([5, 3, 2])[:, None])[:, None, None]
    yield Case("a mask of padding, (3, 1, 1, 5)", (query, memory, real, layer), "padding")
    huge = AdditiveAttention(2, 2, 2)
    with torch.no_grad():
        huge.to_query.weight.zero_()
        huge.to_key.weight.copy_(9 * torch.eye(2))
        huge.to_score.weight.fill_(99)
    memory2 = torch.tensor([[[1.0, 1.0], [-1.0, -0.9], [-1.0, -1.1]]])
    hidden = torch.tensor([False, True, True]).view(1, 1, 1, 3)
    yield Case("a hidden token with a huge score", (query[:1], memory2, hidden, huge), "huge")
    blind = mask.clone()
    blind[1, :, 1] = False
    yield Case("a query that may see nothing", (query, memory, blind, layer), "blind-row")
    half = tuple(x.half() if x.is_floating_point() else x for x in (query, memory, blind))
    yield Case("float16", (*half, AdditiveAttention(2, 3, 7).half()), "float16")


_ASK = Exercise(
    name="ask",
    chapter="rnn_limits",
    task="Additive attention from the three maps of its layer, with a mask.",
    takes=("query", "memory", "mask", "layer"),
    difficulty="medium",
    minutes=15,
    hints=(
        "Every query meets every token: the sum of the two needs an axis for each, before the "
        "tanh. Write down its shape.",
        "What is mixed in the end are the tokens of the memory themselves. And what should a "
        "query get that may see nothing? Decide it before the softmax, not after.",
    ),
    reference=_ask(masked_softmax),
    cases=_ask_cases,
    suspects=(
        *suspects(_ask),
        Suspect("no-tanh", "without the tanh the query adds the same to all scores of its row, and "
                "cannot choose", _ask_with(lambda pairs, to_score: to_score(pairs))),
        Suspect("tanh-last", "the tanh comes after the map to a score; it belongs before",
                _ask_with(lambda pairs, to_score: to_score(pairs).tanh())),
        Suspect("divided-by-root", "additive scores are not divided by a root",
                _ask_with(lambda pairs, to_score: to_score(pairs.tanh()) / pairs.shape[-1] ** 0.5)),
        Suspect("summed", "the numbers of a pair are summed up; to_score weighs them",
                _ask_with(lambda pairs, to_score: pairs.tanh().sum(-1, keepdim=True))),
        Suspect("dot-product", "the score is a dot product here, where it should be the small "
                "network", _ask_by_products),
        Suspect("query-not-heard", "in the end the weights do not depend on the query: either it "
                "is not in the scores, or each part has a tanh of its own", _ask_deaf),
        Suspect("keys-mixed", "you mix the keys; the tokens of the memory are wanted", _keys_mixed),
    ),
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (_LAST_STATE, _BACKWARDS, _GRU_STEP, _ASK, _SCAN)
