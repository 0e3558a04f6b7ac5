"""Draws have the covariance of the deviations they are made of."""

import numpy as np
import torch

from lostwax.attacks.ensemble import Cloud, like_the_prior

DEVIATIONS = torch.from_numpy(np.random.default_rng(0).standard_normal((40, 3)) @ np.diag([1.0, 0.1, 0.0]))


def test_draws_have_the_mean_and_the_covariance():
    cloud = Cloud(torch.tensor([5.0, 0.0, 1.0], dtype=torch.float64), DEVIATIONS)
    drawn = cloud.draw(20_000, np.random.default_rng(1))
    torch.testing.assert_close(drawn.mean(0), cloud.centre, atol=0.03, rtol=0)
    torch.testing.assert_close(torch.cov(drawn.T), DEVIATIONS.T @ DEVIATIONS / 40, atol=0.02, rtol=0.05)


def test_a_cloud_keeps_its_shape_where_it_must_shrink():
    cloud = Cloud(torch.zeros(3, dtype=torch.float64), DEVIATIONS)
    assert cloud.no_wider_than(2 * cloud.variance) is cloud
    smaller = cloud.no_wider_than(cloud.variance / 4)
    torch.testing.assert_close(smaller.deviations, DEVIATIONS / 2)


def test_a_class_has_its_own_records_first():
    own = torch.arange(6, dtype=torch.float64).reshape(2, 3)
    few = like_the_prior(own, DEVIATIONS, 10, np.random.default_rng(2))
    assert few.shape == (10, 3)
    assert sorted(few[:2].tolist()) == own.tolist()
    assert (few[2:, 2] == own[:, 2].mean()).all()  # nobody deviates there
    enough = like_the_prior(DEVIATIONS, DEVIATIONS, 10, np.random.default_rng(2))
    assert all(any(torch.equal(row, ours) for ours in DEVIATIONS) for row in enough)
