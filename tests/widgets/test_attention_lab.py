"""The attention lab as Python sees it: its numbers, its switches and what it refuses."""

import io
import json
import math
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch.testing import assert_close

from attnlib.functional import attention
from attnlib.masks import causal_mask
from attnlib.widgets.attention import AttentionLab

WORDS = ["the", "animal", "crossed", "it", "tired"]


def drawn(picture):
    """A mask from a picture: "x." lets the first query see the first key."""
    return torch.tensor([[cell == "x" for cell in row] for row in picture.split()])


@pytest.fixture
def numbers():
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(5, width, generator=generator, dtype=torch.float64) for width in (7, 7, 3)]


@pytest.fixture
def lab(numbers):
    return AttentionLab(WORDS, *numbers)


def test_as_it_comes_it_is_plain_attention(lab, numbers):
    now = lab.result()
    output, weights = attention(*numbers)
    assert_close(now.output, output)
    assert_close(now.weights, weights)
    assert_close(now.scores, numbers[0] @ numbers[1].mT)
    assert_close(now.row_sums, torch.ones(5, dtype=torch.float64))


def test_a_result_cannot_be_written_to(lab):
    with pytest.raises(FrozenInstanceError):
        lab.result().weights = None


def test_two_tokens_worked_out_by_hand():
    query, key = torch.tensor([[2.0, 9.0], [0.0, 9.0]]), torch.tensor([[1.0, 9.0], [3.0, 9.0]])
    value = torch.tensor([[4.0], [8.0]])
    lab = AttentionLab(["a", "b"], query, key, value, d_k=1, temperature=2.0)
    now = lab.result()
    share = 1 / (1 + math.e**2)  # scores 2 and 6, halved by the temperature
    assert now.scores.tolist() == [[2, 6], [0, 0]]
    assert now.scaled.tolist() == [[1, 3], [0, 0]]
    assert_close(now.weights[0].tolist(), [share, 1 - share])
    assert_close(now.output.flatten().tolist(), [8 - 4 * share, 6.0])
    assert_close(now.entropy[1].item(), math.log(2))  # an even choice of two


@pytest.mark.parametrize(
    ("switches", "picture"),
    [
        ({"mask_kind": "none"}, "xxxxx xxxxx xxxxx xxxxx xxxxx"),
        ({"mask_kind": "causal"}, "x.... xx... xxx.. xxxx. xxxxx"),
        ({"mask_kind": "padding"}, "xxxx. xxxx. xxxx. xxxx. xxxx."),
        ({"mask_kind": "padding", "length": 2}, "xx... xx... xx... xx... xx..."),
        ({"mask_kind": "padding", "length": 0}, "..... ..... ..... ..... ....."),
        ({"mask_kind": "window"}, "xx... xxx.. .xxx. ..xxx ...xx"),
        ({"mask_kind": "window", "radius": 0}, "x.... .x... ..x.. ...x. ....x"),
        (
            {"mask_kind": "drawn", "drawn": drawn("..... xx... x.x.x ....x xxxxx")},
            "..... xx... x.x.x ....x xxxxx",
        ),
    ],
)
def test_each_mask_and_its_misreading(numbers, switches, picture):
    right = AttentionLab(WORDS, *numbers, **switches).result()
    wrong = AttentionLab(WORDS, *numbers, polarity="blocked", **switches).result()
    mask = drawn(picture)
    misread = mask if switches["mask_kind"] == "none" else ~mask
    assert torch.equal(right.mask, mask)
    assert torch.equal(wrong.mask, mask)  # the very same matrix
    assert torch.equal(right.allowed, mask)
    assert torch.equal(wrong.allowed, misread)
    for now in (right, wrong):
        assert torch.equal(now.masked == -math.inf, ~now.allowed)
        assert torch.equal(now.masked[now.allowed], now.scaled[now.allowed])
        assert torch.equal(now.weights == 0, ~now.allowed)
        assert_close(now.row_sums, now.allowed.any(-1).double())


def test_a_query_that_sees_nothing_has_zeros_everywhere(numbers):
    lab = AttentionLab(WORDS, *numbers, mask_kind="causal", polarity="blocked", selected=4)
    now = lab.result()
    assert now.weights[4].tolist() == [0] * 5
    assert now.output[4].tolist() == [0] * 3
    assert now.entropy[4] == 0
    assert repr(lab).endswith("“tired” sees nothing.")


def test_over_the_queries_the_columns_sum_to_one_and_the_rows_do_not(numbers):
    now = AttentionLab(WORDS, *numbers, softmax_over="queries", mask_kind="causal").result()
    assert_close(now.column_sums, torch.ones(5, dtype=torch.float64))
    assert (now.row_sums - 1).abs().max() > 0.1
    assert_close(now.weights, now.masked.softmax(0))
    assert_close(now.output, now.weights @ numbers[2])
    assert now.entropy.isnan().all()


def test_without_the_scale_the_weights_are_sharper(numbers):
    entropy = {s: AttentionLab(WORDS, *numbers, scaled=s).result().entropy for s in (True, False)}
    assert (entropy[False] < entropy[True]).all()


def test_the_temperature_divides_the_scaled_scores(numbers):
    plain, hot = (AttentionLab(WORDS, *numbers, temperature=t).result() for t in (1.0, 4.0))
    assert_close(hot.scaled, plain.scaled / 4)
    assert (hot.entropy > plain.entropy).all()


def test_d_k_takes_the_first_columns_and_scales_by_their_number(numbers):
    query, key, value = numbers
    now = AttentionLab(WORDS, *numbers, d_k=2).result()
    assert_close(now.weights, attention(query[:, :2], key[:, :2], value)[1])
    assert AttentionLab(WORDS, *numbers).d_k == 7


def test_python_reads_and_sets_every_switch(lab):
    settings = {
        "scaled": False,
        "temperature": 0.5,
        "d_k": 4,
        "mask_kind": "window",
        "length": 3,
        "radius": 2,
        "drawn": causal_mask(5)[0, 0].tolist(),
        "polarity": "blocked",
        "softmax_over": "queries",
        "selected": 3,
    }
    before = lab.result().weights
    for name, value in settings.items():
        setattr(lab, name, value)
    assert {name: getattr(lab, name) for name in settings} == settings
    assert (lab.result().weights - before).abs().max() > 0.1


def test_a_drawing_starts_from_the_mask_that_is_shown(lab):
    lab.mask_kind = "causal"
    lab.mask_kind = "drawn"
    assert lab.drawn == causal_mask(5)[0, 0].tolist()


def test_a_drawing_is_kept_while_another_mask_is_shown(lab):
    lab.drawn = drawn("xxxxx ..... xxxxx ..... xxxxx")
    lab.mask_kind = "causal"
    lab.mask_kind = "drawn"
    assert torch.equal(lab.result().mask, drawn("xxxxx ..... xxxxx ..... xxxxx"))


def test_a_drawing_of_nothing_yet_lets_everything_pass(numbers):
    assert AttentionLab(WORDS, *numbers, mask_kind="drawn").drawn == [[True] * 5] * 5


def test_the_state_is_json_and_keeps_every_digit(numbers):
    third = torch.full((5, 7), 1 / 3, dtype=torch.float64)
    state = AttentionLab(WORDS, third, numbers[1], numbers[2]).get_state()
    state.pop("layout")
    assert json.loads(json.dumps(state))["query"][0][0] == 1 / 3


def test_float32_and_a_gradient_are_taken_as_they_are():
    x = torch.randn(2, 3, requires_grad=True)
    assert AttentionLab(["a", "b"], x, x, x).query == x.detach().double().tolist()


def test_one_token_and_twelve_are_both_fine():
    for n in (1, 12):
        x = torch.randn(n, 2)
        lab = AttentionLab([str(i) for i in range(n)], x, x, x, mask_kind="window")
        assert lab.result().weights.shape == (n, n)
        assert lab.still() is not None


def test_it_says_what_it_shows_the_same_in_every_run(numbers):
    lab = AttentionLab(["it", "the", "it", "$x", "<b>"], *numbers, mask_kind="causal", selected=0)
    assert repr(lab) == (
        "Attention lab, 5 tokens, scores divided by √7, temperature 1, causal mask, "
        "softmax over the keys: “it₁” looks most at “it₁” (1.00)."
    )
    lab.scaled, lab.polarity, lab.d_k = False, "blocked", 2
    assert "d_k = 2, no scale, temperature 1, causal mask, True read as blocked" in repr(lab)


def test_the_still_shows_the_weights_with_their_tokens(numbers):
    lab = AttentionLab(["it", "the", "it", "$x", "<b>"], *numbers, mask_kind="causal")
    ax = lab.still().axes[0]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["it₁", "the", "it₂", "$x", "<b>"]
    written = {t.get_position()[::-1]: t.get_text() for t in ax.texts}
    weights = lab.result().weights
    assert written == {(i, j): f"{weights[i, j]:.2f}" for i in range(5) for j in range(i + 1)}


@pytest.mark.parametrize("count", [1, 5, 12])
def test_nothing_in_the_still_is_cut_off(count):
    x = torch.zeros(count, 7)
    words = ["animal"] * count
    switches = {"mask_kind": "padding", "polarity": "blocked", "softmax_over": "queries"}
    figure = AttentionLab(words, x, x, x, scaled=False, temperature=0.63, **switches).still()
    figure.savefig(io.BytesIO())  # lays it out
    drawn = figure.get_tightbbox()  # in inches
    width, height = figure.get_size_inches()
    assert min(drawn.x0, drawn.y0, width - drawn.x1, height - drawn.y1) >= 0


X = torch.zeros(2, 3)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("tokens", "query", "key", "value", "error", "message"),
    [
        ([], X, X, X, ValueError, "takes 1 to 12 tokens, got 0"),
        (["a"] * 13, X, X, X, ValueError, "1 to 12 tokens, got 13; more would fit neither a phone"),
        (["a", 1], X, X, X, TypeError, "tokens must be strings, got 1"),
        (["a", " "], X, X, X, ValueError, "token ' ' would be invisible; write it with a sign"),
        (["a"], X, X, X, ValueError, r"query must have a row for each of the 1 tokens.*\(2, 3\)"),
        (["a", "b"], X, X[:1], X, ValueError, r"key must have a row .*got shape \(1, 3\)"),
        (["a", "b"], X, X, X[0], ValueError, r"value must have a row .*got shape \(3,\)"),
        (["a", "b"], X[:, :0], X[:, :0], X, ValueError, r"1 to 64 columns.*\(2, 0\)"),
        (["a", "b"], X, X, torch.zeros(2, 65), ValueError, r"1 to 64 columns.*\(2, 65\)"),
        (["a", "b"], X, X[:, :2], X, ValueError, "equally wide.*got widths 3 and 2"),
        (["a", "b"], X.long(), X, X, TypeError, "query must be a float tensor, got torch.int64"),
        (["a", "b"], X, X.tolist(), X, TypeError, "key must be a float tensor, got list"),
        (["a", "b"], X, X, X / 0, ValueError, "value must be finite and at most 1e.06.*got nan"),
        (["a", "b"], X, X + 2e6, X, ValueError, "key must be finite and at most .*got 2000000.0"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(tokens, query, key, value, error, message):
    with pytest.raises(error, match=message):
        AttentionLab(tokens, query, key, value)


@pytest.mark.messages
@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("scaled", 1, ValueError, "scaled must be one of True, False; got 1"),
        ("temperature", 0.0, ValueError, "temperature must be a number from 0.1 to 10.0; got 0.0"),
        ("d_k", 3, ValueError, "d_k must be one of 1, 2, 4, 7; got 3"),
        (
            "mask_kind",
            "casual",
            ValueError,
            "mask_kind must be one of 'none', 'causal', 'pad.* got",
        ),
        ("length", 6, ValueError, "length must be a whole number from 0 to 5; got 6"),
        ("radius", 5, ValueError, "radius must be a whole number from 0 to 4; got 5"),
        ("drawn", torch.ones(5, 5), TypeError, "drawn must be torch.bool, got torch.float32"),
        ("drawn", causal_mask(5), ValueError, r"matrix of shape \(5, 5\), .*mask\[0, 0\]"),
        ("drawn", [[True] * 5] * 4 + [[True] * 4], ValueError, "drawn must be a bool matrix of sh"),
        ("drawn", [[1] * 5] * 5, ValueError, r"drawn must be a bool matrix of shape \(5, 5\)"),
        ("polarity", True, ValueError, "polarity must be one of 'attend', 'blocked'; got True"),
        ("softmax_over", "rows", ValueError, "softmax_over must be one of 'keys', 'queries'"),
        ("selected", -1, ValueError, "selected must be a whole number from 0 to 4; got -1"),
    ],
)
def test_a_switch_is_refused_when_made_and_when_set(numbers, name, value, error, message):
    with pytest.raises(error, match=message):
        AttentionLab(WORDS, *numbers, **{name: value})
    lab = AttentionLab(WORDS, *numbers)
    with pytest.raises(error, match=message):
        setattr(lab, name, value)


@pytest.mark.messages
@pytest.mark.parametrize("name", ["tokens", "query", "key", "value"])
def test_the_numbers_cannot_be_exchanged_later(lab, name):
    with pytest.raises(AttributeError, match=f"{name} of this AttentionLab is fixed; make a new"):
        setattr(lab, name, [["other"]])
