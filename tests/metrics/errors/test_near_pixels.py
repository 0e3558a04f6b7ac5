import pytest
import torch

from lostwax.bounds import log_kappa_pixels
from lostwax.metrics import NearPixels


def test_counts_the_numbers_within_the_tolerance():
    truth = torch.zeros(2, 1, 2, 2)
    guess = torch.tensor([[0.0, 0.1, -0.1, 0.2], [1.0, 1.0, 1.0, 0.0]]).reshape(2, 1, 2, 2)
    assert NearPixels()(guess, truth).tolist() == [0.75, 0.25]
    with pytest.raises(ValueError, match="NearPixels: expected tolerance > 0"):
        NearPixels(tolerance=0.0)


def test_grey_meets_the_blind_guess_of_the_ceiling():
    """Of uniform pixels, a grey guess has at least a share rho right as often as `log_kappa_pixels` says."""
    random = torch.Generator().manual_seed(0)
    truth = torch.rand(40_000, 10, generator=random)
    rate = float((NearPixels(0.2)(torch.full_like(truth, 0.5), truth) >= 0.6 - 1e-9).double().mean())
    kappa = torch.tensor(log_kappa_pixels(10, 0.2, 0.6)).exp().item()
    assert abs(rate - kappa) < 4 * (kappa * (1 - kappa) / 40_000) ** 0.5
