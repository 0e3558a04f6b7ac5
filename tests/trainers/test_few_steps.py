"""Gradients at few steps give those at all steps."""

import numpy as np
import pytest

from lostwax.trainers.few_steps import FewSteps


def gram(gradients):
    """Of records (m, t, p)."""
    return np.einsum("zsp,ztp->st", gradients, gradients)


def smooth(records, rank, seed=0):
    """(m, t, p) gradients whose every number is a mix of `rank` functions of the step."""
    rng, t = np.random.default_rng(seed), np.linspace(0, 1, 40)
    functions = np.stack([np.exp(-k * t) for k in range(rank)])
    return np.einsum("zkp,kt->ztp", rng.standard_normal((records, rank, 30)), functions)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_as_many_steps_are_picked_as_there_are_functions(rank):
    few = FewSteps.of(gram(smooth(5, rank)), gram(smooth(5, rank, seed=1)), 1e-6)
    assert len(few.picked) == rank
    assert list(few.picked) == sorted(few.picked)
    other = smooth(4, rank, seed=2)
    np.testing.assert_allclose(np.einsum("st,zsp->ztp", few.mix, other[:, few.picked]), other, atol=1e-4)
    np.testing.assert_allclose(few.mix[:, few.picked], np.eye(rank), atol=1e-8)  # each picked step is its own


def test_the_tolerance_is_that_of_other_records():
    noise = np.random.default_rng(3).standard_normal((8, 40, 30))
    ours, others = (smooth(4, 4, seed=seed) + 0.005 * noise[4 * seed : 4 * seed + 4] for seed in (0, 1))
    few = FewSteps.of(gram(ours), gram(others), 0.05)
    left = others - np.einsum("st,zsp->ztp", few.mix, others[:, few.picked])
    assert np.linalg.norm(left) <= 0.05 * np.linalg.norm(others)
    coarser = FewSteps.of(gram(ours), gram(others), 0.5)
    assert len(coarser.picked) < len(few.picked) <= 10


@pytest.mark.parametrize(
    "gradients",
    [
        np.random.default_rng(0).standard_normal((3, 10, 30)),  # no step is like another
        np.zeros((3, 10, 30)),
        np.full((3, 10, 30), np.inf),
        np.full((3, 10, 30), np.nan),
        np.ones((3, 1, 30)),
    ],
    ids=["rough", "zero", "infinite", "not a number", "one step"],
)
def test_all_steps_are_kept_where_few_do_not_do(gradients):
    with np.errstate(invalid="ignore"):
        found = gram(gradients)
    few = FewSteps.of(found, found, 1e-2)
    assert len(few.picked) == gradients.shape[1]
    np.testing.assert_array_equal(few.mix, np.eye(gradients.shape[1]))
