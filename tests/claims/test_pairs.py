"""Records that oppose each other, and records that are quiet."""

import pytest
import torch
from torch import nn

from claims.training import layer, records
from lostwax.claims.pairs import pairs
from lostwax.claims.slopes import Slopes
from lostwax.games import Records


def net(classes, activation):
    torch.manual_seed(classes)
    return nn.Sequential(nn.Linear(4, 8), activation(), nn.Linear(8, classes))


def data(classes, n=30):
    return Records(torch.randn(n, 4, generator=torch.Generator().manual_seed(1)), torch.arange(n) % classes)


def gradients(slopes, some):
    return slopes(slopes.start.unsqueeze(0), some, some)[1][0]


@pytest.mark.parametrize("classes", [2, 3, 5])
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU])
def test_gradients_of_the_last_pair_oppose_each_other(classes, activation):
    slopes = Slopes.of(net(classes, activation), data(classes), None)
    pair = pairs(data(classes), slopes)[3]
    first, second = gradients(slopes, pair.canaries)
    cosine = float(nn.functional.cosine_similarity(first, second, dim=0))
    plain = gradients(slopes, pairs(data(classes), slopes)[0].canaries)
    assert cosine <= float(nn.functional.cosine_similarity(*plain, dim=0)) + 1e-6
    assert cosine < (-0.999 if classes == 2 else -0.6)
    assert torch.equal(pair.others.x, pair.canaries.x[:1].expand_as(pair.others.x))
    assert (pair.others.y == pair.canaries.y[0]).all()


def test_quiet_records_have_no_gradient_where_there_are_such():
    slopes = Slopes.of(net(3, nn.ReLU), data(3), None)
    pair = pairs(data(3), slopes)[0]
    quiet, canary = gradients(slopes, pair.others[:1])[0].norm(), gradients(slopes, pair.canaries).norm(dim=1).max()
    assert quiet < 1e-3 * canary


def test_bounded_records_are_not_scaled_up():
    slopes = Slopes.of(net(3, nn.ReLU), data(3), None)
    every = pairs(data(3), slopes, bounded=True)
    assert len(every) == 2
    for pair in every:
        for some in (pair.others, pair.canaries):
            assert some.x.norm(dim=1).max() <= data(3).x.norm(dim=1).max()


def test_numbers_as_labels():
    values = Records(records().x, torch.linspace(0, 1, 6))
    torch.manual_seed(0)
    every = pairs(values, Slopes.of(nn.Linear(4, 1), values, None))
    assert [len(pair.others) for pair in every] == [5] * 4
    assert every[3].canaries.y[0] < 0 < 1 < every[3].canaries.y[1]


def test_gradients_are_those_of_autograd():
    some, slopes = records(), Slopes.of(layer(), records(), None)
    losses, found = slopes(slopes.start.unsqueeze(0), some, some)
    for number in range(len(some)):
        plain = layer()
        loss = nn.functional.cross_entropy(plain(some.x[number : number + 1]), some.y[number : number + 1])
        loss.backward()
        flat = torch.cat([value.grad.flatten() for value in plain.parameters()])
        torch.testing.assert_close(found[0, number], flat)
        torch.testing.assert_close(losses[0, number], loss.detach())


def test_bounded_labels_are_labels_of_the_data():
    """Column by column, the smallest and the largest numbers of one-hot labels are (0, ..., 0) and (1, ..., 1)."""
    some = data(5)
    soft = Records(some.x, nn.functional.one_hot(some.y, 5).float())
    slopes = Slopes.of(net(5, nn.Tanh), soft, None)
    for pair in pairs(soft, slopes, bounded=True):
        assert all((label == soft.y).all(1).any() for label in pair.canaries.y)
        assert not torch.equal(*pair.canaries.y)
    numbers = Records(some.x, some.x[:, 0])
    single = Slopes.of(nn.Linear(4, 1), Records(some.x, numbers.y[:, None]), None)
    for pair in pairs(Records(some.x, numbers.y[:, None]), single, bounded=True):
        assert sorted(pair.canaries.y.flatten().tolist()) == [float(numbers.y.min()), float(numbers.y.max())]
