"""Exercises of the chapter on multi-head attention."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from attnlib.exercises.exercise import Case, Exercise, Suspect
from attnlib.functional import attention, merge_heads, split_heads
from attnlib.layers import MultiHeadAttention
from attnlib.masks import causal_mask

# ----------------------------------------------------------------------- cut and put together


def _split_cases() -> Iterator[Case]:
    yield Case("2 sequences of 4, width 16, 4 heads", (torch.randn(2, 4, 16), 4), "plain")
    yield Case("3 sequences of 5, width 14, 2 heads", (torch.randn(3, 5, 14), 2), "other-sizes")
    yield Case("one sequence", (torch.randn(1, 5, 21), 3), "batch-of-one")
    yield Case("one token", (torch.randn(2, 1, 15), 3), "one-token")
    yield Case("one head", (torch.randn(2, 3, 5), 1), "one-head")
    yield Case("heads of width 1", (torch.randn(2, 3, 5), 5), "narrow-heads")
    yield Case("float64", (torch.randn(2, 3, 10).double(), 2), "float64")
    longer = torch.randn(5, 2, 6).transpose(0, 1)
    yield Case("a tensor that was transposed before", (longer, 3), "transposed")


def _of_split(x: Tensor, n_heads: int) -> Tensor:
    """Cut, and not yet moved: (batch, length, heads, width)."""
    return x.unflatten(-1, (n_heads, -1))


_SPLIT = Exercise(
    name="split",
    chapter="multi_head",
    task="Cut (batch, length, d_model) into heads: (batch, heads, length, d_head).",
    takes=("x", "n_heads"),
    difficulty="easy",
    minutes=5,
    hints=(
        "It takes two steps: the last axis is cut, and then an axis moves. Which numbers of a "
        "token belong to head 0?",
        "After the cut the shape is (batch, length, heads, d_head). Which two axes change places?",
    ),
    reference=split_heads,
    cases=_split_cases,
    suspects=(
        Suspect("scrambled", "the shape is right, and the numbers are not: a view or a reshape to "
                "this shape goes on with the next token where it should go on with the next head",
                lambda x, n: x.reshape(len(x), n, x.shape[1], -1)),
        Suspect("not-moved", "the heads still stand behind the tokens",
                lambda x, n: _of_split(x, n)),
        Suspect("interleaved", "each head got every so many numbers; it should get neighbours",
                lambda x, n: x.unflatten(-1, (-1, n)).permute(0, 3, 1, 2)),
        Suspect("width-before-length", "the tokens have come last, as for a matrix product with "
                "keys", lambda x, n: split_heads(x, n).mT),
        Suspect("heads-first", "the heads have come before the batch",
                lambda x, n: split_heads(x, n).transpose(0, 1)),
        Suspect("heads-in-batch", "heads and batch are one axis now, where they should be two",
                lambda x, n: split_heads(x, n).flatten(0, 1)),
        Suspect("width-for-number", "the axes of heads and of width are exchanged: n_heads is the "
                "number of heads", lambda x, n: split_heads(x, x.shape[-1] // n)),
        Suspect("batch-moved", "you moved the heads to the place of the batch, and the batch "
                "behind "
                "the tokens", lambda x, n: split_heads(x, n).permute(1, 2, 0, 3)),
        Suspect("copied", "every head got all numbers of a token",
                lambda x, n: x[:, None].expand(-1, n, -1, -1)),
    ),
)  # fmt: skip


def _merge_cases() -> Iterator[Case]:
    yield Case("2 sequences, 4 heads, 4 tokens, width 4", (torch.randn(2, 4, 4, 4),), "plain")
    yield Case("3 sequences, 2 heads, 5 tokens, width 7", (torch.randn(3, 2, 5, 7),), "other-sizes")
    yield Case("one sequence", (torch.randn(1, 3, 5, 2),), "batch-of-one")
    yield Case("one head", (torch.randn(2, 1, 3, 5),), "one-head")
    yield Case("one token", (torch.randn(2, 3, 1, 5),), "one-token")
    yield Case("heads of width 1", (torch.randn(2, 3, 5, 1),), "narrow-heads")
    yield Case("heads that were cut before", (split_heads(torch.randn(2, 5, 6), 3),), "from-split")
    yield Case("float64", (torch.randn(2, 3, 5, 7).double(),), "float64")


_MERGE = Exercise(
    name="merge",
    chapter="multi_head",
    task="Put the heads of each token side by side again: the way back from split.",
    takes=("heads",),
    difficulty="easy",
    minutes=5,
    hints=(
        "First move the axis of the heads, then lay two axes together. Which of them has to come "
        "first?",
        "A view wants its numbers in order in memory, and a transposed tensor's are not.",
    ),
    reference=merge_heads,
    cases=_merge_cases,
    suspects=(
        Suspect("scrambled", "the shape is right, and the numbers are not: the heads have to move "
                "behind the tokens before they are laid together",
                lambda x: x.reshape(x.shape[0], x.shape[2], -1)),
        Suspect("interleaved", "the numbers of the heads alternate; each head's should stay "
                "together",
                lambda x: x.permute(0, 2, 3, 1).flatten(2)),
        Suspect("summed", "the heads are added up; they should stand side by side",
                lambda x: x.sum(1)),
        Suspect("averaged", "the heads are averaged; they should stand side by side",
                lambda x: x.mean(1)),
        Suspect("in-the-length", "the heads stand one after the other in the length",
                lambda x: x.flatten(1, 2)),
        Suspect("in-the-batch", "the heads stand one after the other in the batch",
                lambda x: x.flatten(0, 1)),
        Suspect("not-laid-together", "the heads have moved, and are still an axis of their own",
                lambda x: x.transpose(1, 2)),
        Suspect("first-head-only", "only the first head is there", lambda x: x[:, 0]),
        Suspect("transposed-again", "tokens and numbers have changed places",
                lambda x: merge_heads(x).mT),
        Suspect("view-after-transpose", "a view of a transposed tensor is refused: its numbers do "
                "not lie in order",
                lambda x: x.transpose(1, 2).view(x.shape[0], x.shape[2], -1)),
    ),
)  # fmt: skip

# ------------------------------------------------------------------- a layer, seen from outside


def _layer_cases(*extra: Callable[[MultiHeadAttention], object]) -> Iterator[Case]:
    def of(batch: int, length: int, d_model: int, n_heads: int, **options: object) -> tuple:
        layer = MultiHeadAttention(d_model, n_heads, **options)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.mul_(2)  # so that the scores matter
        return layer, torch.randn(batch, length, d_model), *(make(layer) for make in extra)

    yield Case("4 tokens, width 16, 4 heads", of(2, 4, 16, 4), "plain")
    yield Case("7 tokens, width 15, 3 heads", of(2, 7, 15, 3), "other-sizes")
    yield Case("one sequence of one token", of(1, 1, 6, 2), "one-token")
    yield Case("one head", of(2, 3, 5, 1), "one-head")
    yield Case("heads of width 7 in a width of 10", of(2, 3, 10, 2, d_head=7), "wide-heads")
    yield Case("no biases", of(2, 5, 6, 3, bias=False), "no-bias")
    layer, x, *rest = of(2, 3, 10, 2)
    yield Case("float64", (layer.double(), x.double(), *rest), "float64")


def _heads_with(
    split: Callable = split_heads,
    attend: Callable = lambda q, k, v: attention(q, k, v)[0],
    merge: Callable = merge_heads,
    output: Callable = lambda layer, heads: layer.to_output(heads),
) -> Callable:
    """Multi-head attention with one thing changed."""

    def run(layer: MultiHeadAttention, x: Tensor) -> Tensor:
        q, k, v = layer.to_query(x), layer.to_key(x), layer.to_value(x)
        return output(layer, merge(attend(*(split(part, layer.n_heads) for part in (q, k, v)))))

    return run


def _scaled(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    return attention(q, k, v, scale=scale)[0]


def _over(axis: int) -> Callable:
    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return (q @ k.mT / q.shape[-1] ** 0.5).softmax(axis) @ v

    return attend


def _heads_meet_heads(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))  # (B, n, H, Dh)
    return attention(q, k, v)[0].transpose(1, 2)


def _first_weights(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention(q, k, v)[1][:, :1] @ v


def _mean_weights(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention(q, k, v)[1].mean(1, keepdim=True) @ v


def _patient(multi_head: Callable) -> tuple[Callable, tuple, dict]:
    layer = MultiHeadAttention(16, 4)
    promises = {"causal": False, "n_heads": 4}
    return lambda x: multi_head(layer, x), (torch.randn(2, 5, 16),), promises


_MULTI_HEAD = Exercise(
    name="multi_head",
    chapter="multi_head",
    task="Compute a MultiHeadAttention layer from its four linear maps.",
    takes=("layer", "x"),
    difficulty="medium",
    minutes=12,
    hints=(
        "Write the shape of the queries after each step. Over which axis is summed in a score, "
        "and over which one do the shares add up to 1?",
        "Each head scores by its own few numbers, and the root is of how many these are. In the "
        "end the heads of a token stand side by side, and one map mixes them.",
    ),
    reference=lambda layer, x: layer(x),
    cases=_layer_cases,
    suspects=(
        Suspect("no-scale", "you did not scale the scores",
                _heads_with(attend=lambda q, k, v: _scaled(q, k, v, 1.0))),
        Suspect("scaled-by-model", "the root is of d_model; the scores sum over d_head numbers",
                _heads_with(attend=lambda q, k, v:
                            _scaled(q, k, v, (q.shape[1] * q.shape[-1]) ** -0.5))),
        Suspect("scaled-by-width", "you divided by d_head, not by its square root",
                _heads_with(attend=lambda q, k, v: _scaled(q, k, v, 1 / q.shape[-1]))),
        Suspect("scrambled-split", "the heads are cut by a view alone, which mixes tokens: first "
                "cut "
                "the last axis, then move the heads",
                _heads_with(split=lambda x, n: x.reshape(len(x), n, x.shape[1], -1))),
        Suspect("scrambled-merge", "the heads are laid together without moving them behind the "
                "tokens first", _heads_with(merge=lambda x: x.reshape(len(x), x.shape[2], -1))),
        Suspect("interleaved-split", "each head got every so many numbers; it should get "
                "neighbours",
                _heads_with(split=lambda x, n: x.unflatten(-1, (-1, n)).permute(0, 3, 1, 2))),
        Suspect("interleaved-merge", "the numbers of the heads alternate after the average",
                _heads_with(merge=lambda x: x.permute(0, 2, 3, 1).flatten(2))),
        Suspect("one-head", "all is computed as a single head of full width",
                _heads_with(split=lambda x, n: x[:, None])),
        Suspect("heads-meet-heads", "the heads of a token attend to each other; tokens should",
                _heads_with(attend=_heads_meet_heads)),
        Suspect("softmax-over-queries", "the shares add up to 1 over the queries, not over the "
                "keys",
                _heads_with(attend=_over(-2))),
        Suspect("softmax-over-heads", "the softmax runs over the heads",
                _heads_with(attend=_over(1))),
        Suspect("first-weights-for-all", "all heads use the weights of the first one",
                _heads_with(attend=_first_weights)),
        Suspect("weights-averaged", "the weights of the heads are averaged before they are used",
                _heads_with(attend=_mean_weights)),
        Suspect("no-output-map", "the last map, which mixes the heads, is missing",
                _heads_with(output=lambda layer, heads: heads)),
        Suspect("no-output-bias", "the last map has lost its bias",
                _heads_with(output=lambda layer, heads: heads @ layer.to_output.weight.T)),
        Suspect("roles-exchanged", "keys ask and queries answer",
                _heads_with(attend=lambda q, k, v: attention(k, q, v)[0])),
        Suspect("keys-as-values", "the keys are mixed where the values should be",
                _heads_with(attend=lambda q, k, v: attention(q, k, k)[0])),
        Suspect("residual-added", "the input is added; the layer leaves that to its caller",
                lambda layer, x: x + layer(x)),
        Suspect("causal-uncalled-for", "later tokens are hidden, which nobody asked for",
                lambda layer, x: layer(x, mask=causal_mask(x.shape[1]))),
    ),
    patient=_patient,
)  # fmt: skip

# ------------------------------------------------------------------------ one head taken away


def _without(layer: MultiHeadAttention, x: Tensor, head: int) -> Tensor:
    q, k, v = (f(x) for f in (layer.to_query, layer.to_key, layer.to_value))
    heads = attention(*(split_heads(part, layer.n_heads) for part in (q, k, v)))[0]
    there = torch.arange(layer.n_heads) != head
    return layer.to_output(merge_heads(heads * there[:, None, None]))


def _without_after(change: Callable[[nn.Module, slice], None]) -> Callable:
    """Take a head away by a change of a copy of the layer."""

    def run(layer: MultiHeadAttention, x: Tensor, head: int) -> Tensor:
        width = layer.to_query.out_features // layer.n_heads
        block = slice(head * width, (head + 1) * width)
        parameters = {name: p.clone() for name, p in layer.named_parameters()}
        change(parameters, block)
        return torch.func.functional_call(layer, parameters, (x,))

    return run


def _zero(*places: tuple[str, bool]) -> Callable:
    """Set blocks of parameters to 0: rows, or columns."""

    def change(parameters: dict, block: slice) -> None:
        for name, is_column in places:
            if name in parameters:
                parameters[name][(slice(None), block) if is_column else block] = 0

    return change


_WITHOUT_HEAD = Exercise(
    name="without_head",
    chapter="multi_head",
    task="The output of a layer if one of its heads says nothing.",
    takes=("layer", "x", "head"),
    difficulty="medium",
    minutes=10,
    hints=(
        "The output is a sum: one summand for each head, and the bias. Which summand goes, and "
        "what stays?",
        "Numbers of the head's average are 0, just before the last map. If you change the layer "
        "itself, the caller's layer is changed.",
    ),
    reference=_without,
    cases=lambda: _layer_cases(lambda layer: layer.n_heads - 1),
    suspects=(
        Suspect("nothing-removed", "all heads still speak", lambda layer, x, head: layer(x)),
        Suspect("only-this-head", "you kept this head and took the others away",
                lambda layer, x, head: layer.to_output(_heads(layer, x) * _there(layer, head))),
        Suspect("value-bias-left", "without the head's rows in the weights of the values, their "
                "bias "
                "still speaks", _without_after(_zero(("to_value.weight", False)))),
        Suspect("output-rows", "the head's numbers come in through the columns of the last map; "
                "you "
                "cleared its rows", _without_after(_zero(("to_output.weight", False)))),
        Suspect("bias-removed", "the last map's bias is gone as well; it belongs to no head",
                lambda layer, x, head: _without(layer, x, head) - layer.to_output(
                    0 * _heads(layer, x))),
        Suspect("uniform-instead", "a head without queries still averages over all tokens",
                _without_after(_zero(("to_query.weight", False), ("to_query.bias", False)))),
        Suspect("head-before", "another head was taken away: counting starts at 0",
                lambda layer, x, head: _without(layer, x, head - 1 if head else layer.n_heads)),
        Suspect("first-head", "you took away the first head, whichever was asked for",
                lambda layer, x, head: _without(layer, x, 0)),
        Suspect("scaled-up", "the other heads are scaled up, as dropout would do",
                lambda layer, x, head: layer.to_output(_heads(layer, x) * ~_there(layer, head)
                * layer.n_heads / max(layer.n_heads - 1, 1))),
        Suspect("input-cleared", "the head's part of the input is cleared; all heads read all of "
                "it",
                lambda layer, x, head: layer(_cleared(x, layer, head))),
        Suspect("output-cleared", "numbers of the output are cleared: after the last map every "
                "number has something of each head",
                lambda layer, x, head: _cleared(layer(x), layer, head)),
        Suspect("every-so-many", "you took every so many numbers; those of a head are neighbours",
                lambda layer, x, head: layer.to_output(_heads(layer, x) * ~_there(
                    layer, head).view(layer.n_heads, -1).T.flatten())),
    ),
)  # fmt: skip


def _heads(layer: MultiHeadAttention, x: Tensor) -> Tensor:
    """The heads of each token side by side, before the last map."""
    parts = (f(x) for f in (layer.to_query, layer.to_key, layer.to_value))
    return merge_heads(attention(*(split_heads(part, layer.n_heads) for part in parts))[0])


def _cleared(x: Tensor, layer: MultiHeadAttention, head: int) -> Tensor:
    """Vectors of d_model numbers, without the share of a head."""
    width = x.shape[-1] // layer.n_heads
    return x * (torch.arange(x.shape[-1]) // width != head)


def _there(layer: MultiHeadAttention, head: int) -> Tensor:
    """Which of the numbers side by side are those of a head."""
    width = layer.to_query.out_features // layer.n_heads
    return torch.arange(layer.to_query.out_features) // width == head


# ----------------------------------------------------------------------------- shared keys


def _hand_out(k: Tensor, n_heads: int) -> Tensor:
    return k.repeat_interleave(n_heads // k.shape[1], dim=1)


def _hand_out_cases() -> Iterator[Case]:
    yield Case("2 groups for 4 heads", (torch.randn(2, 2, 4, 4), 4), "plain")
    yield Case("2 groups for 6 heads", (torch.randn(3, 2, 5, 7), 6), "other-sizes")
    yield Case("3 groups for 6 heads, one sequence", (torch.randn(1, 3, 5, 2), 6), "batch-of-one")
    yield Case("one group for all heads", (torch.randn(2, 1, 3, 5), 4), "one-group")
    yield Case("a group for each head", (torch.randn(2, 3, 4, 5), 3), "no-sharing")
    yield Case("float64", (torch.randn(2, 3, 5, 7).double(), 6), "float64")


_HAND_OUT = Exercise(
    name="hand_out",
    chapter="multi_head",
    task="Give shared keys to their heads: (batch, groups, n, width) to (batch, heads, n, width).",
    takes=("k", "n_heads"),
    difficulty="medium",
    minutes=10,
    hints=(
        "With 6 heads and 2 groups the heads should get the groups 0, 0, 0, 1, 1, 1. Try it with "
        "keys that are the number of their group.",
        "An axis of length 1 can be repeated without a copy. Behind which axis must it stand, so "
        "that laying the two together gives this order?",
    ),
    reference=_hand_out,
    cases=_hand_out_cases,
    suspects=(
        Suspect("dealt-in-turn", "the heads get the groups 0, 1, 0, 1 and so on; neighbours should "
                "share one", lambda k, n: k.repeat(1, n // k.shape[1], 1, 1)),
        Suspect("too-many", "each group is repeated n_heads times: that many heads there are in "
                "all",
                lambda k, n: k.repeat_interleave(n, dim=1)),
        Suspect("batch-repeated", "the sequences are repeated, not the groups",
                lambda k, n: k.repeat_interleave(n // k.shape[1], dim=0)),
        Suspect("tokens-repeated", "the tokens are repeated, not the groups",
                lambda k, n: k.repeat_interleave(n // k.shape[1], dim=2)),
        Suspect("first-group-for-all", "all heads get the first group",
                lambda k, n: k[:, :1].expand(-1, n, -1, -1)),
        Suspect("five-axes", "groups and the heads of a group are still two axes",
                lambda k, n: k[:, :, None].expand(-1, -1, n // k.shape[1], -1, -1)),
        Suspect("averaged", "all heads get the average of the groups",
                lambda k, n: k.mean(1, keepdim=True).expand(-1, n, -1, -1)),
        Suspect("unchanged", "the keys are as they were", lambda k, n: k),
        Suspect("zeros-appended", "only the first heads get keys, the others zeros",
                lambda k, n: torch.cat([k, k.new_zeros(len(k), n - k.shape[1], *k.shape[2:])], 1)),
        Suspect("last-repeated", "the last group is repeated, the others are there once",
                lambda k, n: torch.cat(
                    [k, k[:, -1:].expand(-1, n - k.shape[1], -1, -1)], 1)),
    ),
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (_SPLIT, _MERGE, _HAND_OUT, _MULTI_HEAD, _WITHOUT_HEAD)
