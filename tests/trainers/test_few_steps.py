"""Gradients at few steps give those at all steps."""

import numpy as np
import pytest

from lostwax.trainers.responses import FewSteps


def gram(gradients):
    """Of records (m, t, p)."""
    return np.einsum("zsp,ztp->st", gradients, gradients)


def smooth(records, rank, seed=0):
    """(m, t, p) gradients whose every number is a mix of `rank` functions of the step."""
    rng, t = np.random.default_rng(seed), np.linspace(0, 1, 40)
    functions = np.stack([np.exp(-k * t) for k in range(rank)])
    return np.einsum("zkp,kt->ztp", rng.standard_normal((records, rank, 30)), functions)


def error_on(others):
    """Relative, of gradients (m, t, p) mixed from those at the picked steps."""

    def error(few):
        left = others - np.einsum("st,zsp->ztp", few.mix, others[:, few.picked])
        return np.linalg.norm(left) / np.linalg.norm(others)

    return error


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_as_many_steps_are_picked_as_there_are_functions(rank):
    error = error_on(smooth(4, rank, seed=1))
    few = FewSteps.of(gram(smooth(5, rank)), error, 1e-4)
    assert len(few.picked) == rank
    assert list(few.picked) == sorted(few.picked)
    assert error(few) < 1e-4
    np.testing.assert_allclose(few.mix[:, few.picked], np.eye(rank), atol=1e-8)  # each picked step is its own


def test_a_coarser_tolerance_needs_fewer_steps():
    noise = np.random.default_rng(3).standard_normal((8, 40, 30))
    ours, others = (smooth(4, 4, seed=seed) + 0.005 * noise[4 * seed : 4 * seed + 4] for seed in (0, 1))
    error = error_on(others)
    few, coarser = (FewSteps.of(gram(ours), error, tolerance) for tolerance in (0.05, 0.5))
    assert error(few) <= 0.05
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
        assert FewSteps.of(gram(gradients), error_on(np.nan_to_num(gradients) + 1e-9), 1e-2) is None


def test_an_error_that_is_not_a_number_is_not_within_the_tolerance():
    assert FewSteps.of(gram(smooth(5, 3)), lambda few: np.nan, 1e-2) is None
