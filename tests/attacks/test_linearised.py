import torch

from lostwax.attacks.least_squares import Linearised


def test_training_that_diverges_shows_no_way():
    linear = Linearised.of(torch.tensor([[1.0, torch.nan], [torch.inf, 2.0]]))
    assert torch.equal(linear.jacobian, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    assert torch.equal(linear.normal, torch.tensor([[1.0, 0.0], [0.0, 4.0]], dtype=torch.float64))
