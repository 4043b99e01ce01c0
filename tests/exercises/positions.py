"""Solutions of the exercises on positions, as readers write them."""

import math

import torch

from attnlib.positions import Alibi, Rope, relative_position, sinusoidal_encoding
from exercises import Solutions

solutions = Solutions()
RIGHT, WRONG = solutions.right, solutions.wrong
right, wrong = solutions.is_right, solutions.is_wrong
BASE = 10_000.0

# ------------------------------------------- my_encoding(length, d_model, offset=0)


@right("my_encoding")
def waves_into_slices(length, d_model, offset=0):
    position = torch.arange(offset, offset + length)[:, None].double()
    speed = BASE ** (-torch.arange(0, d_model, 2).double() / d_model)
    table = torch.zeros(length, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * speed)
    table[:, 1::2] = torch.cos(position * speed[: d_model // 2])
    return table.float()


@right("my_encoding")
def waves_by_loop(length, d_model, offset=0):
    wave = (math.sin, math.cos)
    return torch.tensor(
        [
            [wave[j % 2]((offset + t) / BASE ** ((j - j % 2) / d_model)) for j in range(d_model)]
            for t in range(length)
        ]
    )


@right("my_encoding")
def waves_stacked(length, d_model, offset=0):
    speed = torch.exp(-math.log(BASE) / d_model * torch.arange(0, d_model, 2))
    angle = torch.outer(torch.arange(length) + offset, speed)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :d_model]


@right("my_encoding")
def waves_by_shifted_sine(length, d_model, offset=0):
    column = torch.arange(d_model)
    angle = torch.arange(offset, offset + length)[:, None] / BASE ** ((column // 2) * 2 / d_model)
    return torch.where(column % 2 == 0, angle.sin(), angle.cos())


@right("my_encoding")
def waves_of_package(length, d_model, offset=0):
    return sinusoidal_encoding(length, d_model, offset=offset)


def waves(length, d_model, offset=0, *, exponent=None, base=BASE):
    """The table with other exponents, to build wrong ones from."""
    exponent = 2 * (torch.arange(d_model) // 2) / d_model if exponent is None else exponent
    angle = torch.arange(offset, offset + length)[:, None] * base**-exponent
    return torch.where(torch.arange(d_model) % 2 == 0, angle.sin(), angle.cos())


@wrong("my_encoding", "odd")
def waves_as_everywhere(length, d_model, offset=0):
    position = torch.arange(offset, offset + length).unsqueeze(1)
    speed = torch.exp(torch.arange(0, d_model, 2) * (-math.log(BASE) / d_model))
    table = torch.zeros(length, d_model)
    table[:, 0::2] = torch.sin(position * speed)
    table[:, 1::2] = torch.cos(position * speed)
    return table


@wrong("my_encoding", "odd-empty")
def waves_leave_last_column(length, d_model, offset=0):
    table = waves(length, d_model, offset)
    if d_model % 2:
        table[:, -1] = 0
    return table


@wrong("my_encoding", "no-offset")
def waves_from_zero(length, d_model, offset=0):
    return waves(length, d_model)


@wrong("my_encoding", "starts-at-one")
def waves_count_from_one(length, d_model, offset=0):
    position = torch.arange(1, length + 1) + offset
    return waves(length, d_model, int(position[0]))


@wrong("my_encoding", "own-frequency")
def waves_cosine_with_own_speed(length, d_model, offset=0):
    exponent = torch.arange(d_model) / d_model
    exponent[1::2] = 2 * (exponent[1::2] * d_model) / d_model
    exponent[0::2] = 2 * (exponent[0::2] * d_model) / d_model
    return waves(length, d_model, offset, exponent=exponent)


@wrong("my_encoding", "every-column-own")
def waves_j_over_d(length, d_model, offset=0):
    angle = (torch.arange(length)[:, None] + offset) / BASE ** (torch.arange(d_model) / d_model)
    angle[:, 0::2] = angle[:, 0::2].sin()
    angle[:, 1::2] = angle[:, 1::2].cos()
    return angle


@wrong("my_encoding", "exponent-halved")
def waves_i_over_d(length, d_model, offset=0):
    return waves(length, d_model, offset, exponent=(torch.arange(d_model) // 2) / d_model)


@wrong("my_encoding", "spread-to-the-end")
def waves_linspace(length, d_model, offset=0):
    speeds = BASE ** -torch.linspace(0, 1, (d_model + 1) // 2)
    angle = torch.outer(torch.arange(offset, offset + length).float(), speeds)
    return torch.stack((angle.sin(), angle.cos()), 2).flatten(1)[:, :d_model]


@wrong("my_encoding", "halves")
def waves_side_by_side(length, d_model, offset=0):
    table = waves(length, d_model, offset)
    return torch.cat((table[:, ::2], table[:, 1::2]), dim=1)


@wrong("my_encoding", "swapped")
def waves_cosine_first(length, d_model, offset=0):
    speed = BASE ** (-torch.arange(0, d_model, 2) / d_model)
    angle = torch.outer(torch.arange(offset, offset + length).float(), speed)
    return torch.stack((angle.cos(), angle.sin()), 2).flatten(1)[:, :d_model]


@wrong("my_encoding", "sines-only")
def waves_without_cosine(length, d_model, offset=0):
    speed = BASE ** (-(torch.arange(d_model) // 2 * 2) / d_model)
    return torch.sin(torch.arange(offset, offset + length)[:, None] * speed)


@wrong("my_encoding", "base-1000")
def waves_base_lost_a_zero(length, d_model, offset=0):
    return waves(length, d_model, offset, base=1000.0)


@wrong("my_encoding", "faster")
def waves_lost_the_minus(length, d_model, offset=0):
    exponent = 2 * (torch.arange(d_model) // 2) / d_model
    return waves(length, d_model, offset, exponent=-exponent)


@wrong("my_encoding", "half-precision")
def waves_with_half_angles(length, d_model, offset=0):
    position = torch.arange(offset, offset + length).bfloat16()[:, None]
    angle = position * (BASE ** (-2 * (torch.arange(d_model) // 2) / d_model)).bfloat16()
    return torch.where(torch.arange(d_model) % 2 == 0, angle.sin(), angle.cos()).float()


@wrong("my_encoding", "even-denominator")
def waves_of_next_width(length, d_model, offset=0):
    return waves(length, d_model + d_model % 2, offset)[:, :d_model]


@wrong("my_encoding", "wrong-default")
def waves_start_at_one_by_default(length, d_model, offset=1):
    return waves(length, d_model, offset)


@wrong("my_encoding", "table-too-short")
def waves_cut_a_table(length, d_model, offset=0):
    return waves(64, d_model)[offset : offset + length]


@wrong("my_encoding", "transposed")
def waves_lie_down(length, d_model, offset=0):
    return waves(length, d_model, offset).T


# --------------------------------------------------------- my_alibi(n_heads, length)


@right("my_alibi")
def alibi_by_distance(n_heads, length):
    slopes = 2.0 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)
    return slopes[:, None, None] * -relative_position(length).abs()


@right("my_alibi")
def alibi_by_loop(n_heads, length):
    return torch.tensor(
        [
            [
                [-abs(i - j) * 2 ** (-8 * (h + 1) / n_heads) for j in range(length)]
                for i in range(length)
            ]
            for h in range(n_heads)
        ]
    )


@right("my_alibi")
def alibi_by_einsum(n_heads, length):
    slopes = (2 ** (-8 / n_heads)) ** torch.arange(1.0, n_heads + 1)
    steps = torch.arange(length).float()
    return -torch.einsum("h,qk->hqk", slopes, (steps - steps[:, None]).abs())


@right("my_alibi")
def alibi_by_triangles(n_heads, length):
    past = torch.ones(length, length).tril(-1).cumsum(0).tril(-1)
    slopes = torch.logspace(-8 / n_heads, -8, n_heads, base=2)
    return -(past + past.T) * slopes.view(-1, 1, 1)


@right("my_alibi")
def alibi_of_package(n_heads, length):
    q = torch.zeros(1, n_heads, length, 4)
    return Alibi(n_heads).bias(q, q)[0]


def alibi(slopes, length, distance=None):
    distance = relative_position(length).abs() if distance is None else distance
    return slopes.view(-1, 1, 1) * -distance.float()


def slopes_of(n_heads):
    return 2.0 ** (-8 * torch.arange(1, n_heads + 1) / n_heads)


@wrong("my_alibi", "rewards-distance")
def alibi_without_minus(n_heads, length):
    return -alibi(slopes_of(n_heads), length)


@wrong("my_alibi", "signed")
def alibi_without_abs(n_heads, length):
    i = torch.arange(length)
    return alibi(slopes_of(n_heads), length, i[:, None] - i[None])


@wrong("my_alibi", "reversed")
def alibi_slowest_first(n_heads, length):
    return alibi(slopes_of(n_heads).flip(0), length)


@wrong("my_alibi", "starts-at-one")
def alibi_slopes_from_one(n_heads, length):
    return alibi(2.0 ** (-8 * torch.arange(n_heads) / n_heads), length)


@wrong("my_alibi", "eight-heads-only")
def alibi_halves_each_head(n_heads, length):
    slopes = torch.tensor([1 / 2 ** (h + 1) for h in range(n_heads)])
    return alibi(slopes, length)


@wrong("my_alibi", "arithmetic")
def alibi_even_steps(n_heads, length):
    return alibi(torch.linspace(2 ** (-8 / n_heads), 2**-8, n_heads), length)


@wrong("my_alibi", "base-e")
def alibi_of_exp(n_heads, length):
    return alibi(torch.exp(-8 * torch.arange(1, n_heads + 1) / n_heads), length)


@wrong("my_alibi", "squared")
def alibi_of_squares(n_heads, length):
    return alibi(slopes_of(n_heads), length, relative_position(length) ** 2)


@wrong("my_alibi", "keys-only")
def alibi_counts_keys(n_heads, length):
    keys = torch.arange(length).expand(length, length)
    return alibi(slopes_of(n_heads), length, -keys)


@wrong("my_alibi", "one-slope")
def alibi_same_for_all(n_heads, length):
    return alibi(slopes_of(n_heads)[:1].expand(n_heads), length)


@wrong("my_alibi", "future-free")
def alibi_past_only(n_heads, length):
    distance = (-relative_position(length)).clamp(min=0)
    return alibi(slopes_of(n_heads), length, distance)


@wrong("my_alibi", "heads-last")
def alibi_heads_at_the_end(n_heads, length):
    return -relative_position(length).abs()[..., None] * slopes_of(n_heads)


# ------------------------------------------------------------- my_rope(x, offset=0)


def angles(length, d_head, offset=0):
    speed = BASE ** (-torch.arange(0, d_head, 2).double() / d_head)
    return torch.outer(torch.arange(offset, offset + length).double(), speed)


@right("my_rope")
def turn_by_chunks(x, offset=0):
    angle = angles(x.shape[-2], x.shape[-1], offset)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


@right("my_rope")
def turn_as_llama_does(x, offset=0):
    half = x.shape[-1] // 2
    speed = 1.0 / (BASE ** (torch.arange(0, x.shape[-1], 2).float() / x.shape[-1]))
    position = torch.arange(offset, offset + x.shape[-2]).float()
    angle = torch.cat([position[:, None] * speed] * 2, dim=-1)
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return (x * angle.cos() + turned * angle.sin()).to(x.dtype)


@right("my_rope")
def turn_complex(x, offset=0):
    real, imaginary = x.double().chunk(2, -1)
    angle = angles(x.shape[-2], x.shape[-1], offset)
    turned = torch.complex(real, imaginary) * torch.exp(1j * angle)
    return torch.cat([turned.real, turned.imag], -1).to(x.dtype)


@right("my_rope")
def turn_by_loop(x, offset=0):
    half, rows = x.shape[-1] // 2, []
    for t in range(x.shape[-2]):
        first, second = [], []
        for i in range(half):
            angle = (offset + t) * BASE ** (-i / half)
            a, b = x[..., t, i], x[..., t, i + half]
            first.append(a * math.cos(angle) - b * math.sin(angle))
            second.append(a * math.sin(angle) + b * math.cos(angle))
        rows.append(torch.stack(first + second, dim=-1))
    return torch.stack(rows, dim=-2)


@right("my_rope")
def turn_by_package(x, offset=0):
    return Rope(x.shape[-1]).rotate(x, offset=offset)


def turn(x, angle, sign=1):
    """Turn pairs of halves by any angles, to build wrong ways from."""
    cos, sin = angle.cos().to(x.dtype), sign * angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


@wrong("my_rope", "neighbours")
def turn_neighbours(x, offset=0):
    angle = angles(x.shape[-2], x.shape[-1], offset)
    pairs = torch.view_as_complex(x.double().unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(pairs * torch.exp(1j * angle)).flatten(-2).to(x.dtype)


@wrong("my_rope", "mixed-layouts")
def turn_halves_with_neighbours_angles(x, offset=0):
    half = x.shape[-1] // 2
    angle = angles(x.shape[-2], x.shape[-1], offset).repeat_interleave(2, dim=-1).to(x.dtype)
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * angle.cos() + turned * angle.sin()


@wrong("my_rope", "backwards")
def turn_the_other_way(x, offset=0):
    return turn(x, angles(x.shape[-2], x.shape[-1], offset), sign=-1)


@wrong("my_rope", "no-minus")
def turn_without_minus(x, offset=0):
    angle = angles(x.shape[-2], x.shape[-1], offset).to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * angle.cos() + b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)


@wrong("my_rope", "no-offset")
def turn_from_zero(x, offset=0):
    return turn(x, angles(x.shape[-2], x.shape[-1]))


@wrong("my_rope", "starts-at-one")
def turn_from_one(x, offset=0):
    return turn(x, angles(x.shape[-2], x.shape[-1], offset + 1))


@wrong("my_rope", "head-axis")
def turn_along_heads(x, offset=0):
    angle = angles(x.shape[1], x.shape[-1], offset)  # takes (batch, length, heads, d_head)
    return turn(x, angle[:, None])


@wrong("my_rope", "exponent-halved")
def turn_i_over_d(x, offset=0):
    d_head = x.shape[-1]
    speed = BASE ** (-torch.arange(d_head // 2).double() / d_head)
    return turn(x, torch.outer(torch.arange(offset, offset + x.shape[-2]).double(), speed))


@wrong("my_rope", "one-speed")
def turn_all_alike(x, offset=0):
    angle = torch.arange(offset, offset + x.shape[-2]).double()[:, None]
    return turn(x, angle.expand(-1, x.shape[-1] // 2))


@wrong("my_rope", "added")
def turn_by_adding(x, offset=0):
    angle = angles(x.shape[-2], x.shape[-1], offset)
    return x + torch.cat([angle.sin(), angle.cos()], -1).to(x.dtype)


@wrong("my_rope", "changes-inputs")
def turn_in_place(x, offset=0):
    angle = angles(x.shape[-2], x.shape[-1], offset)
    cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    old = a.clone()
    a.mul_(cos).sub_(b * sin)
    b.mul_(cos).add_(old * sin)
    return x


@wrong("my_rope", "overwritten-half")
def turn_with_new_first_half(x, offset=0):
    angle = angles(x.shape[-2], x.shape[-1], offset).to(x.dtype)
    a, b = x.chunk(2, dim=-1)
    a = a * angle.cos() - b * angle.sin()
    b = a * angle.sin() + b * angle.cos()
    return torch.cat([a, b], dim=-1)


@wrong("my_rope", "faster")
def turn_faster_and_faster(x, offset=0):
    speed = BASE ** (torch.arange(0, x.shape[-1], 2).double() / x.shape[-1])
    return turn(x, torch.outer(torch.arange(offset, offset + x.shape[-2]).double(), speed))


@wrong("my_rope", "first-half-only")
def turn_first_half_only(x, offset=0):
    turned = turn(x, angles(x.shape[-2], x.shape[-1], offset))
    half = x.shape[-1] // 2
    return torch.cat([turned[..., :half], x[..., half:]], dim=-1)


@wrong("my_rope", "half-precision")
def turn_with_half_angles(x, offset=0):
    position = torch.arange(offset, offset + x.shape[-2]).bfloat16()
    speed = BASE ** (-torch.arange(0, x.shape[-1], 2) / x.shape[-1])
    return turn(x, (position[:, None] * speed.bfloat16()).float())


@wrong("my_rope", "wrong-default")
def turn_only_with_an_offset(x, offset):
    return turn(x, angles(x.shape[-2], x.shape[-1], offset))


@wrong("my_rope", "no-gradient")
def turn_detached(x, offset=0):
    return turn(x.detach(), angles(x.shape[-2], x.shape[-1], offset))
