"""Steps of Gauss-Newton."""

import torch

from lostwax.attacks.newton.solver import Linearised, Point, Problem
from lostwax.learning.coordinates import Coordinates


def test_training_that_diverges_shows_no_way():
    linear = Linearised.of(torch.tensor([[1.0, torch.nan], [torch.inf, 2.0]]))
    assert torch.equal(linear.jacobian, torch.tensor([[1.0, 0.0], [0.0, 2.0]]))
    assert torch.equal(linear.normal, torch.tensor([[1.0, 0.0], [0.0, 4.0]], dtype=torch.float64))


def test_a_correction_follows_a_curved_valley():
    def rosenbrock(z, label):  # 0 at (1, 1); the full step from the start raises the residual 200-fold
        return torch.stack([100 * (z[:, 1] - z[:, 0] ** 2), 1 - z[:, 0]], 1)

    anywhere = torch.full((2,), torch.inf, dtype=torch.float64)
    unknowns = Coordinates(torch.zeros_like(anywhere), torch.eye(2, dtype=torch.float64), -anywhere, anywhere)
    problem, released = Problem(rosenbrock, rosenbrock, unknowns), torch.zeros(1, 2, dtype=torch.float64)
    (start,) = problem.points(torch.tensor([[-1.2, 1.44]], dtype=torch.float64), torch.zeros(1, 1).long(), released)
    linear = Linearised.of(torch.tensor([[240.0, 100.0], [-1.0, 0.0]], dtype=torch.float64))
    (corrected,) = problem.steps([start], [linear], released)
    assert corrected.distance < 1e-3 * start.distance
    alone = Point(*problem.first_steps([start], [linear], released)[0])
    assert alone.distance > 0.5 * start.distance
