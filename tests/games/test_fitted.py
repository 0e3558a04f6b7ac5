"""Sums over rows in blocks, against their definition on the whole table."""

import pytest
import torch
from torch.func import jacrev, vmap

from lostwax.games import Records, Stationary, Sums, fitted
from lostwax.games.fitted import curvature_times, rounding, sums_of_others, uncertain, unexplained
from lostwax.losses import BinaryCrossEntropy, CrossEntropy, SquaredError, SquaredHinge, Tweedie

EPS = torch.finfo(torch.float64).eps
LOSSES = [(CrossEntropy(), 3), (BinaryCrossEntropy(2.0), 1), (BinaryCrossEntropy(), 3), (SquaredHinge(), 3)]
LOSSES += [(SquaredError(), 1), (Tweedie(1.5), 1)]


def problem(loss, c, bias=True):
    random = torch.Generator().manual_seed(0)
    x, weight, w = (torch.randn(shape, generator=random).double() for shape in ((23, 4), (c, 4), (23,)))
    targets = isinstance(loss, SquaredError | Tweedie)
    y = torch.rand(23, generator=random).double() if targets else torch.arange(23) % max(2, c)
    ones = torch.ones(c).double()
    b = weight[:, 0].clone() if bias else None
    model = Stationary(weight, b, loss, 0.5 * ones, 0.1 * ones, torch.arange(4.0).double(), 2 * torch.ones(4).double())
    return model, Records(x, y), w.abs()


def jacobians(model, table):
    def residual(output, y):
        return model.loss.residual(output[None], y[None])[0]

    return vmap(jacrev(residual))(model.outputs(table.x), table.y)  # (n, c, c)


@pytest.mark.parametrize(("loss", "c"), LOSSES, ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_blocks_change_nothing_but_rounding(loss, c, bias, monkeypatch):
    model, table, w = problem(loss, c, bias)
    monkeypatch.setattr(fitted, "BLOCK_NUMBERS", 5 * 4)  # five rows at a time
    r, f = model.factors(table, w)
    size = model.features(table.x).abs() @ model.weight.abs().mT + (model.bias.abs() if bias else 0)
    doubt = r.abs() + w[:, None] * torch.einsum("nij,nj->ni", jacobians(model, table), size).abs()
    gap, noise = unexplained(model, table, w)
    torch.testing.assert_close(gap, model.total() - r.mT @ f)
    torch.testing.assert_close(uncertain(model, table, w), doubt)
    torch.testing.assert_close(noise, EPS * (doubt.mT @ f.abs() + model.total().abs()))
    centre = f.mean(0)
    away = EPS * (doubt.mT @ (f - centre).abs() + model.total().abs() + model.total().abs()[:, -1:] * centre.abs())
    torch.testing.assert_close(rounding(model, table, w, centre), away)


def test_sums_of_classes_in_blocks(monkeypatch):
    _, table, w = problem(CrossEntropy(), 3)
    sums = Sums("", torch.zeros(3, 4).double(), torch.zeros(3).double(), by_label=True, weighted=True)
    whole = unexplained(sums, table, w)
    monkeypatch.setattr(fitted, "BLOCK_NUMBERS", 1)
    for ours, theirs in zip(unexplained(sums, table, w), whole, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(("loss", "c"), LOSSES, ids=str)
def test_the_curvature_of_a_loss_times_a_vector(loss, c):
    model, table, _ = problem(loss, c)
    v = torch.randn(23, c, generator=torch.Generator().manual_seed(1)).double()
    expected = torch.einsum("nij,nj->ni", jacobians(model, table), v)
    torch.testing.assert_close(curvature_times(loss, model.outputs(table.x), table.y, v), expected)


def test_a_piecewise_linear_loss_has_no_curvature():
    class Absolute:
        def residual(self, outputs, y):
            return torch.where(outputs > y[:, None], 1.0, -1.0).double()

    outputs = torch.ones(3, 1).double()
    assert curvature_times(Absolute(), outputs, torch.zeros(3), outputs).eq(0).all()


def test_every_sum_leaves_its_own_term_out():
    terms = torch.randn(9, 2, generator=torch.Generator().manual_seed(0)).double()
    honest = sums_of_others(terms)
    for i in range(9):
        torch.testing.assert_close(honest[i], torch.cat([terms[:i], terms[i + 1 :]]).sum(0))
        blinded = terms.clone()
        blinded[i] = torch.nan
        assert torch.equal(sums_of_others(blinded)[i], honest[i])
