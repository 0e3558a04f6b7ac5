"""Events of dp-accounting, as it makes them, and what lw.bound takes."""

import dp_accounting as dp
import pytest
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant

import lostwax as lw
from lostwax.adapters.dp_accounting import mechanism
from lostwax.bounds import FixedSize, FullBatch, Poisson, TruncatedPoisson

STEP = dp.PoissonSampledDpEvent(0.05, dp.GaussianDpEvent(1.2))


@pytest.mark.parametrize(
    ("event", "noise", "steps", "sampling"),
    [
        (dp.GaussianDpEvent(3.0), 3.0, 1, FullBatch()),
        (dp.SelfComposedDpEvent(dp.GaussianDpEvent(3.0), 7), 3.0, 7, FullBatch()),
        (dp.SelfComposedDpEvent(STEP, 100), 1.2, 100, Poisson(0.05)),
        (dp.ComposedDpEvent([STEP, dp.NoOpDpEvent(), dp.SelfComposedDpEvent(STEP, 9)]), 1.2, 10, Poisson(0.05)),
        (dp.SampledWithoutReplacementDpEvent(200, 10, dp.GaussianDpEvent(2.0)), 2.0, 1, FixedSize(200, 10)),
        (
            dp.dp_event.TruncatedSubsampledGaussianDpEvent(200, 0.05, 25, 1.0),
            1.0,
            1,
            TruncatedPoisson(0.05, 200, 25),
        ),
    ],
)
def test_an_event_is_read(event, noise, steps, sampling):
    assert mechanism(event) == {"noise_multiplier": noise, "steps": steps, "sampling": sampling}
    assert lw.bound(**mechanism(event), baseline=0.1).certified


@pytest.mark.parametrize("kind", [RdpAccountant, PLDAccountant])
def test_an_accountant_is_read(kind):
    accountant = kind().compose(STEP, 60).compose(STEP, 40)
    assert mechanism(accountant) == {"noise_multiplier": 1.2, "steps": 100, "sampling": Poisson(0.05)}


def test_full_batches_of_several_noises_add_up():
    event = dp.ComposedDpEvent([dp.GaussianDpEvent(1.0), dp.SelfComposedDpEvent(dp.GaussianDpEvent(2.0), 12)])
    found = lw.bound(**mechanism(event), baseline=0.1)
    assert found.upper == pytest.approx(lw.bound(noise_multiplier=0.5, baseline=0.1).upper, rel=1e-12)


def test_a_tree_is_that_of_its_depth():
    """Epsilon by dp-accounting is that of one Gaussian step of the noise that is read."""
    tree = dp.SingleEpochTreeAggregationDpEvent(8.0, [100, 127])
    read = mechanism(tree)
    one, whole = (
        RdpAccountant(neighboring_relation=dp.NeighboringRelation.REPLACE_SPECIAL).compose(event).get_epsilon(1e-5)
        for event in (dp.GaussianDpEvent(read["noise_multiplier"]), tree)
    )
    assert one == pytest.approx(whole, rel=1e-9)
    assert mechanism(dp.SelfComposedDpEvent(tree, 3))["steps"] == 3  # a record in each of three trees


def test_changes_are_taken_on_the_safe_side():
    event = dp.ComposedDpEvent([STEP, dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0))])
    with pytest.warns(UserWarning, match="noise or rate changed"):
        assert mechanism(event) == {"noise_multiplier": 1.2, "steps": 2, "sampling": Poisson(0.1)}
    with pytest.warns(UserWarning, match="noise or rate changed"):
        full = mechanism(dp.ComposedDpEvent([STEP, dp.GaussianDpEvent(2.0)]))
    assert full == {"noise_multiplier": 1.2, "steps": 2, "sampling": Poisson(1.0)}


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (dp.LaplaceDpEvent(1.0), "nothing is known here about LaplaceDpEvent"),
        (dp.NonPrivateDpEvent(), "nothing is known here about NonPrivateDpEvent"),
        (dp.PoissonSampledDpEvent(0.1, dp.LaplaceDpEvent(1.0)), "nothing is known here about PoissonSampledDpEvent"),
        (dp.SampledWithReplacementDpEvent(9, 2, dp.GaussianDpEvent(1.0)), "SampledWithReplacementDpEvent"),
        (dp.NoOpDpEvent(), "no noisy step"),
        (dp.SelfComposedDpEvent(STEP, 0), "no noisy step"),
        ("event", "nothing is known here about str"),
        (
            dp.ComposedDpEvent([STEP, dp.SampledWithoutReplacementDpEvent(9, 2, dp.GaussianDpEvent(1.2))]),
            "steps of several kinds",
        ),
    ],
)
def test_what_is_not_known_is_refused(event, words):
    with pytest.raises(ValueError, match=words):
        mechanism(event)


def test_steps_that_release_nothing_are_not_counted():
    noisy = dp.PoissonSampledDpEvent(0.1, dp.GaussianDpEvent(2.0))
    never = dp.PoissonSampledDpEvent(0.0, dp.GaussianDpEvent(2.0))
    tree = dp.SingleEpochTreeAggregationDpEvent(2.0, [0])
    assert mechanism(dp.ComposedDpEvent([noisy, never, tree])) == mechanism(noisy)
    assert mechanism(dp.SelfComposedDpEvent(noisy, 3))["steps"] == 3
