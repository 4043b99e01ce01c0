"""Our dropout against the definition, and against PyTorch's where they share a path."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from attnlib.dropout import Dropout
from attnlib.memory import saved_bytes

N = 100_003  # of which the last draw serves three
EACH_P = pytest.mark.parametrize("p", [0.03, 0.1, 0.5, 0.9])


def dropped_share(kept):
    return 1 - kept.double().mean().item()


@EACH_P
def test_the_stated_share_is_dropped_and_the_others_are_scaled(p):
    x = torch.rand(N, dtype=torch.float64) + 1
    y = Dropout(p)(x)
    kept = y != 0
    five_sigma = 5 * (p * (1 - p) / N) ** 0.5
    assert dropped_share(kept) == pytest.approx(p, abs=five_sigma)
    for quarter in range(4):  # of a draw
        assert dropped_share(kept[quarter::4]) == pytest.approx(p, abs=2 * five_sigma)
    assert_close(y[kept], x[kept] / (1 - p), rtol=1e-3, atol=0)  # p is rounded to 2 ** -16
    steps = round(p * 2**16)
    assert_close(y[kept], x[kept] * (2**16 / (2**16 - steps)))


@EACH_P
def test_neighbours_are_dropped_independently(p):
    kept = (Dropout(p)(torch.ones(4 * N)) != 0).double()
    for distance in (1, 2, 3, 4, 8):
        r = torch.corrcoef(torch.stack([kept[:-distance], kept[distance:]]))[0, 1]
        assert abs(r.item()) < 5 / (4 * N) ** 0.5


def test_the_gradient_passes_where_the_number_did():
    x = torch.randn(7, 5, 3, dtype=torch.float64, requires_grad=True)
    y = Dropout(0.5)(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert_close(gradient, 2 * (y != 0).double())
    assert 0 < (y == 0).sum() < y.numel()


@pytest.mark.parametrize("p", [0.0, 0.1, 1.0])
def test_in_evaluation_nothing_happens(p):
    x = torch.randn(5, 7)
    assert torch.equal(Dropout(p).eval()(x), x)


def test_nothing_and_everything_can_be_dropped():
    x = torch.randn(5, 7)
    assert torch.equal(Dropout(0.0)(x), x)
    assert not Dropout(1.0)(x).any()
    assert Dropout(1 - 1e-9)(x).isfinite().all()
    assert Dropout(1e-9)(x).all()


def test_a_seed_repeats_it_and_no_two_calls_are_alike():
    drop, x = Dropout(0.5), torch.ones(10, 11)
    torch.manual_seed(3)
    first, second = drop(x), drop(x)
    torch.manual_seed(3)
    assert torch.equal(copy.deepcopy(drop)(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (5, 1, 7), (0, 3)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_any_shape_and_dtype_stays_what_it_is(shape, dtype):
    x = torch.ones(shape, dtype=dtype)
    y = Dropout(0.5)(x)
    assert (y.shape, y.dtype) == (x.shape, x.dtype)
    assert ((y == 0) | (y == 2)).all()


def test_the_input_stays_and_may_be_transposed():
    x = torch.randn(11, 13).T
    before = x.clone()
    y = Dropout(0.5)(x)
    assert torch.equal(x, before)
    assert_close(y[y != 0], 2 * x[y != 0])


def test_a_nan_that_is_kept_stays_one():
    y = Dropout(0.5)(torch.full((1000,), torch.nan))
    assert y.isnan().any()


def test_a_byte_is_kept_for_each_entry_and_pytorch_keeps_four():
    x = torch.randn(64, 64, requires_grad=True)
    assert saved_bytes(lambda: Dropout(0.1)(x).sum(), leave_out=[x]) == 64 * 64
    assert saved_bytes(lambda: nn.Dropout(0.1)(x).sum(), leave_out=[x]) == 4 * 64 * 64


@pytest.mark.compiles
def test_it_compiles_into_one_graph():
    torch.compiler.reset()
    drop, x = Dropout(0.5), torch.ones(10, 11)
    y = torch.compile(drop, fullgraph=True, backend="eager")(x)
    assert set(y.unique().tolist()) == {0.0, 2.0}


@pytest.mark.messages
@pytest.mark.parametrize("p", [-0.1, 1.5])
def test_a_share_outside_0_to_1_is_refused(p):
    with pytest.raises(ValueError, match=f"between 0 and 1, but got {p}"):
        Dropout(p)
