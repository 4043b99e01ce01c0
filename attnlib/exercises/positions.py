"""Exercises of the chapter on positions."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from attnlib.exercises.comparing import difference
from attnlib.exercises.exercise import Case, Complaint, Exercise, Suspect
from attnlib.positions import Rope, relative_position, sinusoidal_encoding

_BASE = 10_000.0


def _shown(numbers: Tensor) -> str:
    return f"{[round(x, 3) for x in numbers.flatten().tolist()]}"


def _starts_elsewhere(solution: Callable, *arguments: Tensor | int) -> Complaint | None:
    """Whether it means position 0 if nobody says where to start."""
    try:
        found = difference(solution(*arguments), solution(*arguments, 0))
    except TypeError as error:
        return Complaint("wrong-default", f"Without an offset it cannot be called: {error}.")
    if found is None:
        return None
    says = f"All is right with an offset, but without one it does not start at 0: {found.says}."
    return Complaint("wrong-default", says)


# ------------------------------------------------------------------------------- my_encoding


def _encoding_cases() -> Iterator[Case]:
    yield Case("6 positions of width 8", (6, 8, 0), "plain")
    yield Case("positions 5 to 8", (4, 6, 5), "offset")
    yield Case("an odd width of 7", (5, 7, 0), "odd-width")
    yield Case("a width of 1, from position 3", (2, 1, 3), "width-one")
    yield Case("one position, as in decoding: number 70", (1, 12, 70), "far-offset")


def _waves(position: Tensor, exponent: Tensor, base: float = _BASE, even: Callable = torch.sin,
           odd: Callable = torch.cos) -> Tensor:  # fmt: skip
    angle = position.double()[:, None] * base ** -exponent.double()
    is_even = torch.arange(len(exponent)) % 2 == 0
    return torch.where(is_even, even(angle), odd(angle)).float()


def _steps(length: int, offset: int) -> Tensor:
    return torch.arange(offset, offset + length)


def _pairs(d_model: int) -> Tensor:
    """The number i of the pair of each column."""
    return torch.arange(d_model) // 2


def _usual(length: int, d_model: int, offset: int = 0) -> Tensor:
    """What most programs do, which needs an even width."""
    table = torch.zeros(length, d_model)
    angle = _steps(length, offset)[:, None] * _BASE ** (-torch.arange(0, d_model, 2) / d_model)
    table[:, 0::2] = angle.sin()
    table[:, 1::2] = angle.cos()
    return table


def _without_last(length: int, d_model: int, offset: int = 0) -> Tensor:
    table = sinusoidal_encoding(length, d_model, offset=offset)
    return table if d_model % 2 == 0 else torch.cat([table[:, :-1], 0 * table[:, -1:]], dim=1)


def _own_speeds(length: int, d_model: int, offset: int = 0) -> Tensor:
    """Of each column j, an exponent of 2 j / d_model."""
    return _waves(_steps(length, offset), 2 * torch.arange(d_model) / d_model)


def _spread(length: int, d_model: int, offset: int = 0) -> Tensor:
    n_pairs = (d_model + 1) // 2
    return _waves(_steps(length, offset), _pairs(d_model) / max(n_pairs - 1, 1))


def _side_by_side(length: int, d_model: int, offset: int = 0) -> Tensor:
    table = sinusoidal_encoding(length, d_model, offset=offset)
    return torch.cat([table[:, 0::2], table[:, 1::2]], dim=1)


def _low_precision(length: int, d_model: int, offset: int = 0) -> Tensor:
    speed = (_BASE ** (-2 * _pairs(d_model) / d_model)).bfloat16()
    angle = _steps(length, offset).bfloat16()[:, None] * speed
    return torch.where(torch.arange(d_model) % 2 == 0, angle.sin(), angle.cos()).float()


def _faster_in_float32(length: int, d_model: int, offset: int = 0) -> Tensor:
    angle = _steps(length, offset)[:, None] * _BASE ** (2 * _pairs(d_model) / d_model)
    return torch.where(torch.arange(d_model) % 2 == 0, angle.sin(), angle.cos())


def _row_one(solution: Callable) -> str:
    due = sinusoidal_encoding(2, 8)[1]
    return f"position 1 of width 8 is {_shown(solution(2, 8, 0)[1])}, and {_shown(due)} was due"


def _offset_seen(solution: Callable) -> str:
    is_same = torch.equal(solution(2, 4, 0), solution(2, 4, 9))
    return f"offset=0 and offset=9 give {'the same' if is_same else 'different'} rows"


_MY_ENCODING = Exercise(
    name="my_encoding",
    chapter="positions",
    task="The sinusoidal encoding (length, d_model), float32, for any width and first position.",
    takes=("length", "d_model", "offset"),
    difficulty="medium",
    minutes=10,
    hints=(
        "How many columns are sines, and how many are cosines, for a width of 7?",
        "Column 2i and column 2i + 1 share one speed. Write down i for each of 7 columns, and "
        "count positions from the offset.",
    ),
    reference=lambda length, d_model, offset: sinusoidal_encoding(length, d_model, offset=offset),
    cases=_encoding_cases,
    probes=(lambda solution: _starts_elsewhere(solution, 3, 4),),
    suspects=(
        Suspect("odd", "an odd width has one sine more than it has cosines, and you fill as many "
                "of both", _usual),
        Suspect("odd-empty", "with an odd width, the last column stays 0", _without_last),
        Suspect("no-offset", "the offset is not used: {}",
                lambda n, d, o: sinusoidal_encoding(n, d), _offset_seen),
        Suspect("starts-at-one", "positions start at 1, and they should at 0 (with no offset): {}",
                lambda n, d, o: sinusoidal_encoding(n, d, offset=o + 1), _row_one),
        Suspect("own-frequency", "2i is an even number; column j takes j for i, and runs through "
                "the speeds twice as fast: {}", _own_speeds, _row_one),
        Suspect("every-column-own", "a cosine shares the speed of the sine before it; here each "
                "column has a speed of its own: {}",
                lambda n, d, o: _waves(_steps(n, o), torch.arange(d) / d), _row_one),
        Suspect("exponent-halved", "the exponent is i / d_model and should be 2i / d_model: {}",
                lambda n, d, o: _waves(_steps(n, o), _pairs(d) / d), _row_one),
        Suspect("spread-to-the-end", "the exponents run to 1; the last one falls short of it: {}",
                _spread, _row_one),
        Suspect("halves", "all sines come first, then all cosines; they should take turns: {}",
                _side_by_side, _row_one),
        Suspect("swapped", "cosines are where sines should be: {}",
                lambda n, d, o: _waves(_steps(n, o), 2 * _pairs(d) / d, even=torch.cos,
                                       odd=torch.sin), _row_one),
        Suspect("sines-only", "there are no cosines: {}",
                lambda n, d, o: _waves(_steps(n, o), 2 * _pairs(d) / d, odd=torch.sin), _row_one),
        Suspect("base-1000", "the base is 1,000, not 10,000: {}",
                lambda n, d, o: _waves(_steps(n, o), 2 * _pairs(d) / d, base=1000.0), _row_one),
        Suspect("faster", "later columns get faster, and they should get slower: {}",
                lambda n, d, o: _waves(_steps(n, o), -2 * _pairs(d) / d), _row_one),
        Suspect("faster", "later columns get faster, and they should get slower: {}",
                _faster_in_float32, _row_one),
        Suspect("even-denominator", "with an odd width the speeds are those of the next even one",
                lambda n, d, o: sinusoidal_encoding(n, d + d % 2, offset=o)[:, :d]),
        Suspect("half-precision", "the angles are computed with 8 bits: {}", _low_precision,
                _row_one),
        Suspect("table-too-short", "rows are cut from a table that ends: further on there are none",
                lambda n, d, o: sinusoidal_encoding(64, d)[o : o + n]),
        Suspect("transposed", "rows should be positions; here they are features",
                lambda n, d, o: sinusoidal_encoding(n, d, offset=o).T),
    ),
)  # fmt: skip

# ---------------------------------------------------------------------------------- my_alibi


def _alibi_cases() -> Iterator[Case]:
    yield Case("8 heads and 5 tokens", (8, 5), "eight-heads")
    yield Case("4 heads and 7 tokens", (4, 7), "four-heads")
    yield Case("16 heads and 3 tokens", (16, 3), "sixteen-heads")
    yield Case("one head and 3 tokens", (1, 3), "one-head")
    yield Case("2 heads and one token", (2, 1), "one-token")


def _slopes(n_heads: int) -> Tensor:
    return 2.0 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)


def _bias(slopes: Tensor, distance: Tensor) -> Tensor:
    return slopes[:, None, None] * -distance.float()


def _apart(length: int) -> Tensor:
    return relative_position(length).abs()


def _slopes_seen(solution: Callable) -> str:
    """What a key one step back costs in each of four heads."""
    cost = solution(4, 3)[:, 1, 0]
    return f"with 4 heads, a key one step back gets {_shown(cost)}; due are {_shown(-_slopes(4))}"


def _last_row(solution: Callable) -> str:
    row, due = solution(4, 4)[0, 1], _bias(_slopes(4), _apart(4))[0, 1]
    return f"query 1 of head 0 gives four keys {_shown(row)}; due are {_shown(due)}"


_MY_ALIBI = Exercise(
    name="my_alibi",
    chapter="positions",
    task="The bias (n_heads, length, length) of ALiBi, for 1, 2, 4, 8 or more heads.",
    takes=("n_heads", "length"),
    difficulty="easy",
    minutes=10,
    hints=(
        "The farther, the lower the score. Which sign does that ask for, on both sides of the "
        "query?",
        "Each slope is the one before it times the same number, and the last one is 2 to the "
        "power of -8, however many heads there are.",
    ),
    reference=lambda n_heads, length: _bias(_slopes(n_heads), _apart(length)),
    cases=_alibi_cases,
    suspects=(
        Suspect("rewards-distance", "far keys are preferred: the minus is missing: {}",
                lambda h, n: -_bias(_slopes(h), _apart(n)), _last_row),
        Suspect("signed", "the distance has a sign: keys of the past are held back, keys of the "
                "future are preferred: {}",
                lambda h, n: _bias(_slopes(h), -relative_position(n)), _last_row),
        Suspect("signed", "the distance has a sign: keys of the past are preferred: {}",
                lambda h, n: _bias(_slopes(h), relative_position(n)), _last_row),
        Suspect("reversed", "the heads are in the wrong order, from flat to steep: {}",
                lambda h, n: _bias(_slopes(h).flip(0), _apart(n)), _slopes_seen),
        Suspect("starts-at-one", "the first slope is 1: the powers start one too early: {}",
                lambda h, n: _bias(2.0 ** (-8 * torch.arange(h) / h), _apart(n)), _slopes_seen),
        Suspect("eight-heads-only", "each slope is half of the one before, which is right for 8 "
                "heads only: {}",
                lambda h, n: _bias(0.5 ** torch.arange(1.0, h + 1), _apart(n)), _slopes_seen),
        Suspect("arithmetic", "the slopes go down in equal steps, and should by equal factors: {}",
                lambda h, n: _bias(torch.linspace(2 ** (-8 / h), 2**-8, h), _apart(n)),
                _slopes_seen),
        Suspect("base-e", "the slopes are powers of e, and should be powers of 2: {}",
                lambda h, n: _bias((-8 * torch.arange(1, h + 1) / h).exp(), _apart(n)),
                _slopes_seen),
        Suspect("squared", "the distance is squared: {}",
                lambda h, n: _bias(_slopes(h), _apart(n) ** 2), _last_row),
        Suspect("keys-only", "the bias grows with the key's place, whatever the query's: {}",
                lambda h, n: _bias(_slopes(h), -torch.arange(n).expand(n, n)), _last_row),
        Suspect("one-slope", "all heads have the same slope: {}",
                lambda h, n: _bias(_slopes(h)[:1].expand(h), _apart(n)), _slopes_seen),
        Suspect("future-free", "keys of the future cost nothing here; the bias is the same on both "
                "sides: {}", lambda h, n: _bias(_slopes(h), _apart(n).tril()), _last_row),
        Suspect("heads-last", "the axis of the heads comes last, and should come first",
                lambda h, n: _bias(_slopes(h), _apart(n)).permute(1, 2, 0)),
    ),
)  # fmt: skip

# ----------------------------------------------------------------------------------- my_rope


def _rope_cases() -> Iterator[Case]:
    yield Case("2 texts of 7 tokens, 3 heads of width 8", (torch.randn(2, 3, 7, 8), 0), "plain")
    yield Case("positions 5 to 8", (torch.randn(1, 2, 4, 6), 5), "offset")
    yield Case("one token at position 70", (torch.randn(2, 1, 1, 10), 70), "one-token")
    yield Case("heads of width 2", (torch.randn(1, 3, 5, 2), 1), "width-two")
    yield Case("float16", (torch.randn(1, 2, 5, 4).half(), 0), "float16")


def _angles(x: Tensor, offset: int = 0, exponent: Tensor | None = None) -> Tensor:
    half = x.shape[-1] // 2
    exponent = torch.arange(half).double() / half if exponent is None else exponent
    return torch.outer(_steps(x.shape[-2], offset).double(), _BASE**-exponent)


def _turned(x: Tensor, angle: Tensor, *signs: int) -> Tensor:
    """Halves, turned; four signs for the four products."""
    a, b, c, d = signs or (1, -1, 1, 1)
    cos, sin = angle.cos().float(), angle.sin().float()
    first, second = x.float().chunk(2, dim=-1)
    both = [a * first * cos + b * second * sin, c * first * sin + d * second * cos]
    return torch.cat(both, dim=-1).to(x.dtype)


def _neighbours(x: Tensor, offset: int = 0) -> Tensor:
    order = torch.arange(x.shape[-1]).view(-1, 2).T.flatten()
    return _turned(x[..., order], _angles(x, offset))[..., order.argsort()]


def _mixed(x: Tensor, offset: int = 0) -> Tensor:
    """Halves, but with the angles laid out for neighbours."""
    angle = _angles(x, offset).repeat_interleave(2, dim=-1)
    first, second = x.chunk(2, dim=-1)
    other = torch.cat([-second, first], dim=-1)
    return (x * angle.cos() + other * angle.sin()).to(x.dtype)


def _by_head(x: Tensor, offset: int = 0) -> Tensor:
    return _turned(x.transpose(1, 2), _angles(x.transpose(1, 2), offset)).transpose(1, 2)


def _overwritten(x: Tensor, offset: int = 0) -> Tensor:
    cos, sin = _angles(x, offset).cos(), _angles(x, offset).sin()
    first, second = x.chunk(2, dim=-1)
    first = first * cos - second * sin
    return torch.cat([first, first * sin + second * cos], dim=-1).to(x.dtype)


def _rope_in_bfloat16(x: Tensor, offset: int = 0) -> Tensor:
    half = x.shape[-1] // 2
    speed = (_BASE ** (-torch.arange(half) / half)).bfloat16()
    return _turned(x, (_steps(x.shape[-2], offset).bfloat16()[:, None] * speed).float())


def _added(x: Tensor, offset: int = 0) -> Tensor:
    angle = _angles(x, offset)
    return x + torch.cat([angle.sin(), angle.cos()], dim=-1).to(x.dtype)


def _first_turned(solution: Callable) -> str:
    """Where the first unit vector goes at position 1."""
    x = torch.tensor([1.0, 0.0, 0.0, 0.0]).expand(1, 2, 2, 4)
    got = solution(x.clone(), 0)[0, 0, 1]
    due = Rope(4).rotate(x)[0, 0, 1]
    return f"at position 1, [1, 0, 0, 0] becomes {_shown(got)}, and {_shown(due)} was due"


def _lengths_kept(solution: Callable) -> str:
    x = torch.randn(1, 1, 3, 4)
    ratio = (solution(x.clone(), 4).norm(dim=-1) / x.norm(dim=-1)).flatten()
    return f"lengths of three vectors are multiplied by {_shown(ratio)}, and a turn keeps them"


def _offset_used(solution: Callable) -> str:
    x = torch.randn(1, 1, 3, 4)
    is_same = torch.equal(solution(x.clone(), 0), solution(x.clone(), 9))
    return f"offset=0 and offset=9 turn {'alike' if is_same else 'differently'}"


_MY_ROPE = Exercise(
    name="my_rope",
    chapter="positions",
    task="Turn queries or keys (batch, heads, length, d_head) by RoPE, in halves; the first is at "
    "position offset.",
    takes=("x", "offset"),
    difficulty="medium",
    minutes=15,
    hints=(
        "Entry i and entry i + d_head / 2 are one point in the plane. Write down where (1, 0) "
        "goes when it is turned by 90 degrees, and where (0, 1) goes.",
        "Both new entries need both old ones. A turn keeps the length of a vector: measure it.",
    ),
    reference=lambda x, offset: Rope(x.shape[-1]).rotate(x, offset=offset),
    cases=_rope_cases,
    probes=(lambda solution: _starts_elsewhere(solution, torch.ones(1, 1, 3, 4)),),
    suspects=(
        Suspect("neighbours", "you turn neighbours, 0 with 1; here 0 goes with d_head / 2: {}",
                _neighbours, _first_turned),
        Suspect("mixed-layouts", "the pairs are halves and the angles are laid out for "
                "neighbours: {}", _mixed, _lengths_kept),
        Suspect("backwards", "it turns the other way round: {}",
                lambda x, o: _turned(x, -_angles(x, o)), _first_turned),
        Suspect("no-minus", "a minus is missing, so this is no turn: {}",
                lambda x, o: _turned(x, _angles(x, o), 1, 1, 1, 1), _lengths_kept),
        Suspect("no-offset", "the offset is not used: {}",
                lambda x, o: _turned(x, _angles(x)), _offset_used),
        Suspect("starts-at-one", "positions start at 1, and they should at 0 (with no offset): {}",
                lambda x, o: _turned(x, _angles(x, o + 1)), _first_turned),
        Suspect("head-axis", "the angle depends on the head and not on the token: position was "
                "read off the wrong axis", _by_head),
        Suspect("exponent-halved", "the exponent is i / d_head where it should be 2i / d_head",
                lambda x, o: _turned(x, _angles(x, o, torch.arange(x.shape[-1] // 2).double()
                                                / x.shape[-1]))),
        Suspect("one-speed", "all pairs turn at the speed of the first one",
                lambda x, o: _turned(x, _angles(x, o, torch.zeros(x.shape[-1] // 2).double()))),
        Suspect("faster", "later pairs turn faster, and they should turn slower",
                lambda x, o: _turned(x, _angles(x, o, -torch.arange(x.shape[-1] // 2).double()
                                                / (x.shape[-1] // 2)))),
        Suspect("added", "something is added, and vectors should only turn: {}", _added,
                _lengths_kept),
        Suspect("overwritten-half", "the second half is computed from the *new* first half: {}",
                _overwritten, _lengths_kept),
        Suspect("half-precision", "the angles are computed with 8 bits", _rope_in_bfloat16),
        Suspect("first-half-only", "only the first half is turned: {}",
                lambda x, o: torch.cat([_turned(x, _angles(x, o)).chunk(2, -1)[0],
                                        x.chunk(2, -1)[1]], -1), _lengths_kept),
    ),
)  # fmt: skip

EXERCISES: tuple[Exercise, ...] = (_MY_ENCODING, _MY_ALIBI, _MY_ROPE)
