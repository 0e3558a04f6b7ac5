"""The normal law of records that an attack may lean on."""

import torch

from lostwax.attacks.dp_steps.gradient_inversion import NormalLaw


def some_records(n=4_000):
    """Two classes, far apart, with one covariance: numbers 0 and 1 vary together, number 2 not at all."""
    draws = torch.Generator().manual_seed(0)
    y = torch.randint(2, (n,), generator=draws) * 3 + 4  # 4 and 7
    shared = torch.randn(n, 1, generator=draws, dtype=torch.float64)
    own = torch.randn(n, 2, generator=draws, dtype=torch.float64)
    x = torch.cat([2 * shared + 0.5 * own, torch.ones(n, 1)], 1) + y.unsqueeze(1)
    return x.view(n, 1, 3), y


def test_it_has_the_mean_of_each_class_and_the_covariance_within():
    x, y = some_records()
    law = NormalLaw.of(x, y)
    assert law.classes.tolist() == [4, 7]
    for row, label in enumerate((4, 7)):
        torch.testing.assert_close(law.means[row], x[y == label].flatten(1).mean(0))
    rest = x.flatten(1) - law.means[(y == 7).long()]
    torch.testing.assert_close(law.directions.mT @ law.directions, rest.mT @ rest / (len(x) - 2), rtol=1e-6, atol=1e-9)
    assert len(law.directions) == 2  # what never varies is no direction
    assert law.directions[0].norm() > law.directions[1].norm()


def test_nothing_is_the_mean_and_a_unit_is_one_deviation():
    x, y = some_records()
    law = NormalLaw.of(x.float(), y)
    labels = torch.tensor([[7, 4]])
    v = torch.zeros(1, 2, 2)
    torch.testing.assert_close(law(v, labels), law.means[[1, 0]].unsqueeze(0))
    v[0, 1, 0] = 1.0
    torch.testing.assert_close(law(v, labels)[0, 1], law.means[0] + law.directions[0])
    assert law.means.dtype == torch.float32


def test_fewer_records_than_numbers_span_what_they_span():
    x = torch.rand(6, 50, generator=torch.Generator().manual_seed(1))
    law = NormalLaw.of(x, torch.tensor([0, 0, 0, 1, 1, 1]))
    assert law.directions.shape == (4, 50)
