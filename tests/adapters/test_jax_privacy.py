"""Real batch selection strategies of JAX Privacy: their law, and the ceiling that follows."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

import lostwax as lw
from lostwax.adapters.jax_privacy import mechanism
from lostwax.bounds import BallsInBins, Correlated, Cyclic, FixedSize, FullBatch, Poisson, Shuffled, TruncatedPoisson


@pytest.fixture
def selection():
    return pytest.importorskip("jax_privacy.batch_selection")


def keras(**fields):
    """What a `DPKerasConfig` states, without JAX Privacy."""
    given = {"batch_size": 10, "train_size": 200, "train_steps": 45, "gradient_accumulation_steps": 1} | fields
    size = given["batch_size"] * given["gradient_accumulation_steps"]
    return SimpleNamespace(effective_batch_size=size, noise_multiplier=2.0, poisson_sampling_in_fit=False, **given)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, (60, Shuffled(3))),
        ({"gradient_accumulation_steps": 2}, (50, Shuffled(5))),
        ({"train_size": 205}, (60, Shuffled(3))),
    ],
)
def test_shuffled_batches_of_keras(fields, expected):
    found = mechanism(keras(**fields))
    assert (found["steps"], found["sampling"]) == expected


@pytest.mark.parametrize("train_size", [150, 205, 210])
def test_batches_accumulated_across_epochs_are_refused(train_size):
    """A record may then be in a step twice: of 150 records in batches of 10, step 2 of 100 holds the end of the first
    epoch and the start of the second. A test of that step alone would exceed the ceiling of shuffled epochs."""
    with pytest.raises(ValueError, match="several times"):
        mechanism(keras(gradient_accumulation_steps=10 if train_size == 150 else 2, train_size=train_size))


def test_noise_that_may_be_correlated_is_not_guessed():
    plan = SimpleNamespace(batch_selection_strategy=None, dp_event=None)
    with pytest.raises(ValueError, match="Pass its dp_event"):
        mechanism(plan, noise_multiplier=1.0)
    with pytest.raises(ValueError, match="Do not pass matrix"):
        mechanism(keras(), matrix=[1.0, 0.5])


def of(strategy, **more):
    found = mechanism(strategy, noise_multiplier=1.0, **more)
    assert lw.bound(**found, baseline=0.1, tolerance=1e-2).certified
    return found["steps"], found["sampling"]


def test_each_strategy_is_read(selection):
    poisson = selection.CyclicPoissonSampling
    assert of(poisson(sampling_prob=0.1, iterations=40)) == (40, Poisson(0.1))
    assert of(poisson(sampling_prob=0.1, iterations=41, cycle_length=4)) == (11, Poisson(0.1))
    assert of(poisson(sampling_prob=1, iterations=12)) == (12, FullBatch())
    assert of(poisson(sampling_prob=1, iterations=12, cycle_length=4)) == (12, Cyclic(3))
    cut = poisson(sampling_prob=0.1, iterations=40, cycle_length=2, truncated_batch_size=30)
    assert of(cut, records=200) == (20, TruncatedPoisson(0.1, 100, 30))
    alone = poisson(0.1, 40, 30, 2, selection.PartitionType.INDEPENDENT)
    assert of(alone, records=200) == (20, TruncatedPoisson(0.1, 200, 30))
    assert of(selection.FixedBatchSampling(10, 40), records=200) == (40, FixedSize(200, 10))
    assert of(selection.BallsInBinsSampling(iterations=25, cycle_length=10)) == (30, BallsInBins(3, redrawn=False))


def test_its_balls_stay_in_their_bins(selection):
    """The law that redrawn=False states: one batch of each cycle, the same in all of them."""
    strategy = selection.BallsInBinsSampling(iterations=12, cycle_length=4)
    where = np.zeros((2000, 12), bool)
    for step, batch in enumerate(strategy.batch_iterator(2000, rng=0)):
        where[batch, step] = True
    cycles = where.reshape(2000, 3, 4)
    assert (cycles.sum(2) == 1).all()
    assert (cycles == cycles[:, :1]).all()
    anew, fixed = (
        lw.bound(noise_multiplier=2.0, steps=12, sampling=BallsInBins(3, redrawn=one), baseline=0.1)
        for one in (True, False)
    )
    assert fixed.lower > anew.upper  # reading one for the other would be a false pass


def test_banded_noise(selection):
    strategy = selection.CyclicPoissonSampling(sampling_prob=0.05, iterations=300, cycle_length=3)
    band = [1.0, 0.5, 0.375]
    steps, sampling = of(strategy, matrix=band)
    ours = lw.bound(noise_multiplier=1.0, steps=300, baseline=0.1, sampling=Correlated.of(band, Poisson(0.05)))
    assert lw.bound(noise_multiplier=1.0, steps=steps, baseline=0.1, sampling=sampling) == ours
    for other in (selection.CyclicPoissonSampling(0.05, 300, cycle_length=2), selection.BallsInBinsSampling(300, 3)):
        with pytest.raises(ValueError, match="the matrix has 3 diagonals"):
            mechanism(other, noise_multiplier=1.0, matrix=band)


def test_what_has_no_ceiling_is_refused(selection):
    with pytest.raises(ValueError, match=r"BMinSepSampling. It is at most that of sampling=lw.bounds.Cyclic\(5\)"):
        of(selection.BMinSepSampling(0.1, 10, 2))
    with pytest.raises(ValueError, match="with replacement"):
        of(selection.FixedBatchSampling(10, 40, replace=True), records=200)
    with pytest.raises(ValueError, match="needs records"):
        of(selection.FixedBatchSampling(10, 40))
    with pytest.raises(ValueError, match="the noise is missing"):
        mechanism(selection.FixedBatchSampling(10, 40), records=200)


def test_keras_shuffles_unless_it_is_told_to_sample():
    api = pytest.importorskip("jax_privacy.keras_api")
    numbers = {"epsilon": 8.0, "delta": 1e-5, "clipping_norm": 1.0, "batch_size": 10, "train_steps": 45}
    numbers |= {"train_size": 200, "noise_multiplier": 2.0}
    for poisson, times in itertools.product((False, True), (1, 2)):
        config = api.DPKerasConfig(**numbers, gradient_accumulation_steps=times, poisson_sampling_in_fit=poisson)
        if poisson and times > 1:
            with pytest.raises(ValueError, match="several times"):
                mechanism(config)
            continue
        expected = (45, Poisson(0.05)) if poisson else (60, Shuffled(3)) if times == 1 else (50, Shuffled(5))
        found = mechanism(config)
        assert (found["noise_multiplier"], found["steps"], found["sampling"]) == (2.0, *expected)
