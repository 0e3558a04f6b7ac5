"""Shifted systems by one Krylov space, against direct solutions."""

import torch

from lostwax.attacks.least_squares import conjugate_gradients

RANDOM = torch.Generator().manual_seed(0)


def test_all_shifts_at_once():
    root = torch.randn(2, 12, 6, generator=RANDOM, dtype=torch.float64)
    slope = torch.randn(2, 6, generator=RANDOM, dtype=torch.float64)
    shifts = torch.tensor([[1e-6, 1.0, 1e4], [0.1, 10.0, 0.0]], dtype=torch.float64)
    normal = root.mT @ root
    x = conjugate_gradients(lambda v: (normal @ v.unsqueeze(2)).squeeze(2), slope, shifts, 30, 1e-14)
    lifted = normal.unsqueeze(1) + shifts[..., None, None] * torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(x, torch.linalg.solve(lifted, slope.unsqueeze(1).expand(-1, 3, -1)))


def test_a_direction_without_curvature_is_left_alone():
    normal = torch.diag(torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64))
    x = conjugate_gradients(
        lambda v: v @ normal, torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64), torch.zeros(1, 1).double(), 5
    )
    torch.testing.assert_close(x[0, 0], torch.tensor([1.0, 0.5, 0.0], dtype=torch.float64))
