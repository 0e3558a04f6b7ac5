"""The dual form against plain ridge regression, fitted again for every member that is left out."""

import pytest
import torch

from lostwax.learning.kernel_regression import LOCAL_RIDGES, LocalRegression

S, Q = 30, 4


@pytest.fixture(scope="module", params=[50, 12], ids=["more features than members", "fewer"])
def game(request):
    return drawn(request.param)


def drawn(features):
    random = torch.Generator().manual_seed(0)
    z = torch.randn(S, Q, generator=random, dtype=torch.float64)
    mixing = torch.randn(Q, features, generator=random, dtype=torch.float64)
    seen = 3 + z @ mixing + torch.randn(S, features, generator=random, dtype=torch.float64)
    return seen, z


class Primal:
    """minimise |Z - F B - 1 b|^2 + ridge |B|^2, by its normal equations."""

    def __init__(self, features, z, ridge):
        self.phi = torch.cat([features, torch.ones(len(features), 1, dtype=torch.float64)], 1)
        penalty = torch.full((self.phi.shape[1],), ridge, dtype=torch.float64)
        penalty[-1] = 0
        self.inverse = torch.linalg.inv(self.phi.T @ self.phi + torch.diag(penalty))
        self.weights, self.ridge = self.inverse @ self.phi.T @ z, ridge

    def __call__(self, features):
        phi = torch.cat([features, torch.ones(1, dtype=torch.float64)])
        return phi @ self.weights, self.ridge * (1 + phi @ self.inverse @ phi)  # expected squared error


def test_members_left_out_are_predicted_as_by_fitting_without_them(game):
    seen, z = game
    regression = LocalRegression.fit(seen, z)
    errors, expected = {}, None
    for share in LOCAL_RIDGES:
        ridge = share * float(regression.features.square().sum(1).mean())
        without = [Primal(rest(regression.features, i), rest(z, i), ridge)(regression.features[i]) for i in range(S)]
        left_out = z - torch.stack([prediction for prediction, _ in without])
        errors[ridge] = float(left_out.square().mean())
        if ridge == pytest.approx(regression.ridge):
            expected = torch.stack([variance for _, variance in without])
            torch.testing.assert_close(regression.left_out, left_out)
            torch.testing.assert_close(1 / regression.inverse.diagonal(), expected)
    assert regression.error == pytest.approx(min(errors.values()))
    assert min(errors, key=errors.get) == pytest.approx(regression.ridge)


def test_a_new_model_is_read_as_by_plain_ridge(game):
    seen, z = game
    regression = LocalRegression.fit(seen[1:], z[1:])
    estimate, features = regression(seen[:1]), regression.place(seen[:1])[0]
    coordinates, variance = Primal(regression.features, z[1:], regression.ridge)(features)
    torch.testing.assert_close(estimate.coordinates, coordinates)
    assert estimate.novelty == pytest.approx(float(variance * regression.inverse.diagonal().reciprocal().mean() ** -1))


def test_novelty_grows_with_the_distance_from_the_members():
    seen, z = drawn(50)
    regression = LocalRegression.fit(seen, z)
    novelty = [
        regression(seen.mean(0, keepdim=True) + far * (seen[:1] - seen.mean(0))).novelty for far in (0, 1, 3, 10)
    ]
    assert novelty == sorted(novelty)
    assert novelty[0] < 1 < novelty[-1] / 10


def rest(rows, left_out):
    return torch.cat([rows[:left_out], rows[left_out + 1 :]])
