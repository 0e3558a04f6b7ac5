"""Every loss: the residual is its derivative, and the label is the residual solved for y."""

import pytest
import torch

from instances import instances
from lostwax.losses import (
    BinaryCrossEntropy,
    CrossEntropy,
    Huber,
    ModifiedHuber,
    MultiLabel,
    ProbitLoss,
    SquaredEpsilonInsensitive,
    SquaredError,
    SquaredHinge,
    SquaredSignError,
    Tweedie,
)
from lostwax.trainers import Negated

KINDS = [BinaryCrossEntropy, CrossEntropy, SquaredError, SquaredHinge, Tweedie]
KINDS += [MultiLabel, Negated, ProbitLoss, SquaredSignError, ModifiedHuber, Huber, SquaredEpsilonInsensitive]

EXAMPLES = [example for kind in KINDS for example in instances(kind)]
every_loss = pytest.mark.parametrize(("loss", "y"), EXAMPLES, ids=lambda value: str(value)[:40])


def outputs_for(loss, y):
    width = 1 if isinstance(loss, Tweedie) else 3
    random = torch.Generator().manual_seed(0)
    return torch.rand(len(y), width, generator=random, dtype=torch.float64) + 0.1


@every_loss
def test_the_residual_is_the_derivative_of_the_loss(loss, y):
    outputs = outputs_for(loss, y).requires_grad_()
    each = loss(outputs, y)
    assert each.shape == (len(y),)
    (slope,) = torch.autograd.grad(each.sum(), outputs)
    torch.testing.assert_close(loss.residual(outputs, y), slope, rtol=1e-12, atol=1e-12)


@every_loss
def test_the_label_gives_its_residual(loss, y):
    outputs = outputs_for(loss, y)
    found = loss.label(outputs, loss.residual(outputs, y))
    torch.testing.assert_close(found, y, rtol=1e-10, atol=1e-10)


@every_loss
def test_leading_axes_and_memory_layout_change_nothing(loss, y):
    outputs = outputs_for(loss, y)
    wanted = loss.residual(outputs, y)
    stacked = outputs.expand(2, *outputs.shape)
    records_last = stacked.mT.contiguous().mT
    for each in (stacked, records_last):
        torch.testing.assert_close(loss.residual(each, y.expand(2, *y.shape)), wanted.expand_as(each))
    mapped = torch.func.vmap(loss.residual, in_dims=(0, None))(records_last, y)
    torch.testing.assert_close(mapped, wanted.expand_as(mapped))


def test_a_clipped_residual_gives_the_nearest_label_it_allows():
    outputs, y = torch.zeros(3, 1).double(), torch.tensor([0.5, 7.0, -7.0]).double()
    loss = Huber(2.0)
    found = loss.label(outputs, loss.residual(outputs, y))
    torch.testing.assert_close(found, torch.tensor([0.5, 2.0, -2.0]).double())
    torch.testing.assert_close(loss(outputs, y), torch.tensor([0.125, 12.0, 12.0]).double())


def test_the_far_side_of_a_modified_hinge_is_linear():
    outputs, y = torch.tensor([[-3.0], [0.5], [2.0], [3.0]]).double(), torch.tensor([1, 1, 1, 0])
    torch.testing.assert_close(ModifiedHuber()(outputs, y), torch.tensor([12.0, 0.25, 0.0, 12.0]).double())
    torch.testing.assert_close(
        ModifiedHuber().residual(outputs, y)[:, 0], torch.tensor([-4.0, -1.0, 0.0, 4.0]).double()
    )
