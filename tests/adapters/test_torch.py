"""The law of the batches, by counts; and that a DataLoader takes them."""

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch.utils.data import DataLoader, TensorDataset

import lostwax as lw
from lostwax.adapters.torch import BallsInBinsSampler, PoissonSampler


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def places(sampler, epochs):
    """The batch of each record in each epoch: (epochs, n)."""
    found = np.full((epochs, sampler.records), -1)
    for epoch in range(epochs):
        for number, batch in enumerate(sampler):
            found[epoch, batch] = number
    return found


def test_balls_in_bins_sees_every_record_once_per_epoch():
    sampler = BallsInBinsSampler(103, 10, generator=generator())
    for _ in range(3):
        batches = list(sampler)
        assert len(batches) == len(sampler) == 10
        assert sorted(record for batch in batches for record in batch) == list(range(103))


def test_bins_are_uniform_and_independent_between_records_and_epochs():
    steps, epochs = 5, 4000
    found = places(BallsInBinsSampler(6, steps, generator=generator(1)), epochs)
    for record in range(6):
        assert chisquare(np.bincount(found[:, record], minlength=steps)).pvalue > 1e-4
    pairs = found[:, 0] * steps + found[:, 1]  # two records of one epoch
    assert chisquare(np.bincount(pairs, minlength=steps**2)).pvalue > 1e-4
    turns = found[:-1, 0] * steps + found[1:, 0]  # one record in two epochs
    assert chisquare(np.bincount(turns, minlength=steps**2)).pvalue > 1e-4


def test_sizes_vary_as_those_of_a_binomial():
    """Batches of a fixed size would be shuffling, for which the ceiling does not hold."""
    sampler = BallsInBinsSampler(200, 20, generator=generator(2))
    sizes = np.array([[len(batch) for batch in sampler] for _ in range(300)])
    assert sizes.var() == pytest.approx(200 * 0.05 * 0.95, rel=0.1)


def test_poisson_draws_each_record_of_each_step_independently():
    sampler = PoissonSampler(4, 3000, rate=0.3, generator=generator(3))
    drawn = np.zeros((3000, 4), int)
    for step, batch in enumerate(sampler):
        drawn[step, batch] = 1
    patterns = np.bincount(drawn @ [1, 2, 4, 8], minlength=16)
    ones = np.array([bin(i).count("1") for i in range(16)])
    assert chisquare(patterns, 3000 * 0.3**ones * 0.7 ** (4 - ones)).pvalue > 1e-4
    assert PoissonSampler(100, 20).rate == 0.05


@pytest.mark.parametrize("kind", [BallsInBinsSampler, PoissonSampler])
def test_a_data_loader_takes_them_and_a_seed_repeats_them(kind):
    data = TensorDataset(torch.arange(50))
    loader = DataLoader(data, batch_sampler=kind(50, 5, generator=generator(4)))
    batches = [batch[0] for batch in loader]
    assert len(batches) == len(loader) == 5
    again = list(kind(50, 5, generator=generator(4)))
    assert [batch.tolist() for batch in batches] == again


def test_the_ceiling_of_a_loop_with_it():
    sampler, epochs = BallsInBinsSampler(50_000, 100), 10
    ceiling = lw.bound(
        noise_multiplier=1.0, steps=epochs * len(sampler), baseline=0.1, sampling=lw.bounds.BallsInBins(epochs)
    )
    assert ceiling.upper < 0.1930


@pytest.mark.parametrize("wrong", [{"records": 0}, {"steps": 0}, {"steps": 2.5}])
def test_wrong_numbers_are_refused(wrong):
    for kind in (BallsInBinsSampler, PoissonSampler):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            kind(**{"records": 10, "steps": 2} | wrong)
