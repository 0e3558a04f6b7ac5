"""Products with the Jacobian of training, against its columns and against each other."""

import pytest
import torch

from attacks.newton.test_training_map import MAPS, normal
from lostwax.attacks.newton.training_map import Unrolled

every_map = pytest.mark.parametrize("weights", MAPS.values(), ids=MAPS)
LABEL = torch.tensor([[1], [2]])


@every_map
def test_forward_products_are_tangents(weights):
    z, v = normal(2, weights.unknowns), normal(2, weights.unknowns)
    training = Unrolled.of(weights, z, LABEL)
    torch.testing.assert_close(
        torch.cat([value.flatten(1) for value in training.states[-1].params.values()], 1), weights(z, LABEL)
    )
    columns = [weights.tangents(z[game], LABEL[game], v[game : game + 1])[:, 0] for game in range(2)]
    torch.testing.assert_close(training.forward(v), torch.stack(columns))


@every_map
def test_reverse_products_are_the_transpose_of_forward_ones(weights):
    """<w, J v> = <J^T w, v>, game by game."""
    z, v = normal(2, weights.unknowns), normal(2, weights.unknowns)
    training = Unrolled.of(weights, z, LABEL)
    moved = training.forward(v)
    w = normal(*moved.shape)
    torch.testing.assert_close((w * moved).sum(1), (training.backward(w) * v).sum(1), rtol=1e-10, atol=1e-12)
