"""The pattern lab as Python sees it: recipes, numbers, code, puzzles, and what it refuses."""

import io
import random

import pytest
import torch

from attnlib.memory import mask_cost
from attnlib.widgets.pattern_puzzles import PUZZLES
from attnlib.widgets.patterns import COST_LENGTHS, FORMS, LENGTHS, PRESETS, PatternLab
from attnlib.widgets.recipes import PATTERNS

DRAWN = {
    "causal": "x....... xx...... xxx..... xxxx.... xxxxx... xxxxxx.. xxxxxxx. xxxxxxxx",
    "padding 3": " ".join(["xxxxx..."] * 8),
    "left_padding 3": " ".join(["...xxxxx"] * 8),
    "window 1": "xx...... xxx..... .xxx.... ..xxx... ...xxx.. ....xxx. .....xxx ......xx",
    "global 1": "xxxxxxxx " + " ".join(["x......."] * 7),
    "prefix 3": "xxx..... xxx..... xxx..... xxxx.... xxxxx... xxxxxx.. xxxxxxx. xxxxxxxx",
    "document 3": "xxx..... xxx..... xxx..... ...xxx.. ...xxx.. ...xxx.. ......xx ......xx",
    "not causal": ".xxxxxxx ..xxxxxx ...xxxxx ....xxxx .....xxx ......xx .......x ........",
    "window 1 or global 1 and causal": "x....... xx...... xxx..... x.xx.... x..xx... x...xx.. "
    "x....xx. x.....xx",  # nothing of the future: the last line has the last word
    "causal and window 1 or global 1": "xxxxxxxx xx...... xxx..... x.xx.... x..xx... x...xx.. "
    "x....xx. x.....xx",
    "causal and not window 1": "........ ........ x....... xx...... xxx..... xxxx.... xxxxx... "
    "xxxxxx..",
    "window 60": " ".join(["xxxxxxxx"] * 8),
    "padding 64": " ".join(["........"] * 8),
}
SOLUTIONS = dict(
    zip(
        PUZZLES,
        (
            "window 3 and causal",
            "window 2 or global 1 and causal",
            "causal and left_padding 5 or window 0",
            "causal and window 8",
            "global 1 or window 0",
            "causal or not left_padding 6",
        ),
        strict=True,
    )
)


def drawn(picture):
    return torch.tensor([[cell == "x" for cell in row] for row in picture.split()])


def some_recipes(count):
    """Recipes of one to six lines, the same ones in every run."""
    dice = random.Random(0)
    for _ in range(count):
        lines = []
        for _ in range(dice.randint(1, 6)):
            kind = dice.choice(list(PATTERNS))
            size = dice.randint(1, 3 if kind == "random" else dice.choice([4, 64]))
            words = [dice.choice(["and", "or"])] if lines else []
            words += ["not"] * (dice.random() < 0.3) + [kind] + [str(size)] * (kind != "causal")
            lines.append(" ".join(words))
        yield {"recipe": " ".join(lines), "length": dice.choice(LENGTHS)}


def evaluated(code):
    names = {}
    exec(code, names)
    return names


@pytest.mark.parametrize(("recipe", "picture"), DRAWN.items())
def test_each_recipe_is_the_mask_that_it_says(recipe, picture):
    lab = PatternLab(recipe, length=8)
    assert torch.equal(lab.result().allowed, drawn(picture))
    assert torch.equal(lab.mask()[0, 0], drawn(picture))


def test_random_blocks_are_whole_different_and_the_same_in_each_run():
    allowed = PatternLab("random 2", length=32).result().allowed
    blocks = allowed[::4, ::4]
    assert torch.equal(blocks.repeat_interleave(4, 0).repeat_interleave(4, 1), allowed)
    assert blocks.sum(-1).tolist() == [2] * 8
    assert len({tuple(row) for row in blocks.tolist()}) > 4
    assert torch.equal(PatternLab("random 2", length=32).result().allowed, allowed)
    assert PatternLab("random 3", length=8).result().allowed.all()  # there are two blocks only


def test_the_numbers_of_a_small_mask_by_hand():
    now = PatternLab("window 1 and causal and not window 0 or global 1", length=8).result()
    assert now.pairs == [22, 15, 7, 21]
    assert now.blind == []
    assert now.heard[5].tolist() == [1, 2, 2, 2, 1, 0, 2, 2]  # the first token tells of all
    now = PatternLab("window 1 and causal and left_padding 3", length=8).result()
    assert now.blind == [0, 1, 2]
    assert PatternLab("causal and not window 0", length=8).result().blind == [0]  # key 7 is unseen
    assert now.heard[7].tolist() == [-1, -1, -1, 4, 3, 2, 1, 0]
    assert PatternLab("causal and window 1", length=16).result().heard[15, :8].tolist() == (
        [-1] * 7 + [8]
    )


def test_the_costs_are_those_of_a_layer_with_12_heads():
    now = PatternLab("causal").result()
    for n, cost, tiled in zip(COST_LENGTHS, now.costs, now.tiled, strict=True):
        pairs = 12 * n * (n + 1) // 2
        assert cost == (pairs, (n + 1) / (2 * n), 4 * 64 * pairs, 4 * pairs)
        assert tiled == (n / 16 + 1) / (2 * n / 16)
    single = PatternLab("window 0").result()
    assert single.costs[0] == mask_cost(torch.eye(64).bool()[None, None], d_head=64, n_heads=12)
    assert single.tiled[0] == 1 / 4  # a block on the diagonal is computed whole


@pytest.mark.parametrize("form", FORMS)
def test_the_code_makes_the_mask(form):
    for switches in some_recipes(12):
        lab = PatternLab(**switches, form=form)
        mask = lab.mask()
        made = evaluated(lab.code())
        assert torch.equal(made["mask"].expand_as(mask), mask)
        if form == "additive":
            assert torch.equal((made["bias"] == 0).expand_as(mask), mask)
            assert made["bias"].dtype == torch.float32
        elif form == "blocked" and "attn_mask" in made:
            assert torch.equal(made["attn_mask"], ~mask[0, 0])


def test_padding_alone_becomes_what_multihead_attention_ignores():
    made = evaluated(PatternLab("padding 3", length=8, form="blocked").code())
    assert made["key_padding_mask"].tolist() == [[False] * 5 + [True] * 3]
    assert "attn_mask" not in made


def test_pytorch_takes_the_blocked_form_and_looks_where_it_may():
    lab = PatternLab("window 2 or global 1 and causal", length=8, form="blocked")
    layer, x = torch.nn.MultiheadAttention(6, 1), torch.randn(8, 6)
    _, weights = layer(x, x, x, attn_mask=evaluated(lab.code())["attn_mask"])
    assert torch.equal(weights > 0, lab.mask()[0, 0])


@pytest.mark.parametrize(("puzzle", "solution"), SOLUTIONS.items())
def test_a_puzzle_starts_unsolved_and_its_solution_solves_it(puzzle, solution):
    lab = PatternLab("causal", length=8)
    lab.pose(puzzle)
    assert (lab.length, lab.recipe) == (PUZZLES[puzzle]["length"], PUZZLES[puzzle]["start"])
    assert len(lab.result().misses) == len(PUZZLES[puzzle]["checks"])
    assert any(lab.result().misses)
    lab.recipe, lab.length = solution, 64  # it is judged at its own length
    assert not any(lab.result().misses)


@pytest.mark.parametrize(
    ("puzzle", "recipe", "misses"),
    [
        (0, "window 2 and causal", [0, 0, 13]),
        (0, "window 4 and causal", [0, 12, 0]),
        (1, "global 1 and causal or window 2", [29, 0, 0, 0]),
        (1, "causal and window 2", [0, 13, 0, 0]),
        (1, "causal", [0, 0, 0, 78]),
        (2, "causal and left_padding 5", [0, 0, 0, 5]),
        (2, "causal", [0, 55, 0, 0]),
        (2, "window 0", [0, 0, 55, 0]),
        (3, "causal and window 7", [0, 1, 0, 0]),
        (3, "causal and window 9", [0, 0, 0, 23]),
        (3, "causal and global 1 or window 0", [0, 0, 30, 0]),
        (4, "window 1 or global 1", [0, 52]),
        (4, "window 1", [870, 0]),
        (5, "prefix 6", [0, 0, 0, 1]),
        (5, "causal or left_padding 6", [15, 0, 105, 0]),
    ],
)
def test_what_is_nearly_right_is_told_how_far_off_it_is(puzzle, recipe, misses):
    lab = PatternLab(recipe, puzzle=list(PUZZLES)[puzzle])
    assert lab.result().misses == misses


def test_no_puzzle_has_no_checks_and_the_presets_can_be_read():
    assert PatternLab().result().misses == []
    for recipe in PRESETS.values():
        assert PatternLab(recipe).result().allowed.any()


def test_it_says_what_it_shows():
    lab = PatternLab("window 2  or global 1 and causal", query=9, layers=1)
    assert repr(lab) == (
        "Pattern lab, 16 tokens, window 2 or global 1 and causal: 58 of 256 pairs (23%). After 1 "
        "layer query 9 has heard of 4 of 16 tokens."
    )
    lab.recipe, lab.length, lab.layers = "causal and left_padding 2", 8, 2  # there is no query 9
    assert "21 of 64 pairs (33%). 2 queries see nothing. After 2 layers query 7 has" in repr(lab)


def test_the_still_shows_both_matrices_and_nothing_is_cut_off():
    lab = PatternLab("window 1 and causal", length=16)
    figure = lab.still()
    seen, heard = figure.axes[:2]
    assert torch.equal(torch.tensor(seen.images[0].get_array()), lab.result().allowed)
    shown = heard.images[0].get_array()
    assert shown.filled(-1).tolist() == lab.result().heard.tolist()
    assert seen.get_xlabel() == "31 of 256 pairs, 12 %"
    figure.savefig(io.BytesIO())
    box, (width, height) = figure.get_tightbbox(), figure.get_size_inches()
    assert min(box.x0, box.y0, width - box.x1, height - box.y1) >= 0


@pytest.mark.messages
@pytest.mark.parametrize(
    ("switches", "error", "message"),
    [
        ({"recipe": "widow 3"}, ValueError, "the patterns are causal, .*; got 'widow'"),
        ({"recipe": ""}, ValueError, "'': the patterns are causal, padding, .*; got ''"),
        ({"recipe": "causal and"}, ValueError, "the patterns are .*; got ''"),
        ({"recipe": "causal 3"}, ValueError, 'patterns are joined by "and" or "or", got \'3\''),
        ({"recipe": "window"}, ValueError, "window needs a whole number from 0 to 64.*; got ''"),
        ({"recipe": "window 65"}, ValueError, "from 0 to 64, as in 'window 1'; got '65'"),
        ({"recipe": "window -1"}, ValueError, "from 0 to 64, as in 'window 1'; got '-1'"),
        ({"recipe": "document 0"}, ValueError, "document needs a whole number from 1 to 64"),
        ({"recipe": "random 4"}, ValueError, "random needs a whole number from 1 to 3.*got '4'"),
        ({"recipe": " or ".join(["causal"] * 7)}, ValueError, "has 7 lines, and 6 are the most"),
        ({"recipe": ["causal"]}, TypeError, "recipe must be a string such as 'causal and win"),
        ({"length": 12}, ValueError, "length must be one of 8, 16, 32, 64; got 12"),
        ({"layers": 9}, ValueError, "layers must be a whole number from 0 to 8; got 9"),
        ({"form": "float"}, ValueError, "form must be one of 'bool', 'additive', 'blocked'"),
        ({"puzzle": "1"}, ValueError, "puzzle must be one of '', '1 The window that sees"),
    ],
)
def test_what_does_not_fit_is_refused(switches, error, message):
    with pytest.raises(error, match=message):
        PatternLab(**switches)
