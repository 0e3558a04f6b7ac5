import torch

from lostwax.attacks.least_squares import Linearised, Point
from lostwax.attacks.secant import _Search


def test_only_a_residual_within_rounding_is_certified():
    linear, released = Linearised.of(torch.eye(3, 2).double()), torch.zeros(3, dtype=torch.float64)
    for last, certified in ((1e-5, True), (1e-3, False), (torch.nan, False), (torch.inf, False)):
        residual = torch.tensor([0.0, 0.0, last], dtype=torch.float64)
        point = Point(torch.zeros(2, dtype=torch.float64), torch.zeros(1), residual)
        assert _Search(point, linear, released, enough=1e-4).certified is certified
