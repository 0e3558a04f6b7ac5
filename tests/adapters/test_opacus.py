import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import lostwax as lw

opacus = pytest.importorskip("opacus")


@pytest.fixture
def trained():
    """A net that Opacus trained for two epochs."""
    return _trained()


def _trained(*, batch_size=10, **settings):
    torch.manual_seed(0)
    net, data = nn.Linear(4, 2), TensorDataset(torch.randn(40, 4), torch.randint(2, (40,)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = opacus.PrivacyEngine()
        net, optimiser, loader = engine.make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            data_loader=DataLoader(data, batch_size=batch_size, shuffle=True),
            noise_multiplier=1.5,
            max_grad_norm=1.0,
            **settings,
        )
        _epochs(net, optimiser, loader, 2)
    return engine, net, optimiser, loader


def _epochs(net, optimiser, loader, count):
    for _ in range(count):
        for x, y in loader:
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x), y).backward()
            optimiser.step()


def test_the_mechanism_goes_into_bound(trained):
    engine, _, _, loader = trained
    mechanism = lw.adapters.opacus.mechanism(engine, loader)
    assert mechanism == {"noise_multiplier": 1.5, "sample_rate": 0.25, "steps": 8}
    assert lw.adapters.opacus.mechanism(engine.accountant, poisson=True) == mechanism
    ceiling = lw.bound(**mechanism, baseline=0.1)
    assert ceiling == lw.bound(noise_multiplier=1.5, sample_rate=0.25, steps=8, baseline=0.1)


def test_changed_noise_is_taken_on_the_safe_side(trained):
    engine, net, optimiser, loader = trained
    optimiser.noise_multiplier = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _epochs(net, optimiser, loader, 1)
    with pytest.warns(UserWarning, match="noise or rate changed"):
        mechanism = lw.adapters.opacus.mechanism(engine, loader)
    assert mechanism == {"noise_multiplier": 1.0, "sample_rate": 0.25, "steps": 12}


def test_what_is_no_trained_engine(trained):
    with pytest.raises(ValueError, match="recorded no step"):
        lw.adapters.opacus.mechanism(opacus.PrivacyEngine())
    with pytest.raises(TypeError, match="expected an Opacus PrivacyEngine or its accountant, got Linear"):
        lw.adapters.opacus.mechanism(nn.Linear(1, 1))


def test_shuffled_batches_are_not_poisson_samples():
    engine, _, _, loader = _trained(poisson_sampling=False)
    for said in ({}, {"poisson": True}):
        found = lw.adapters.opacus.mechanism(engine, loader, **said)
        assert found == {"noise_multiplier": 1.5, "steps": 8, "sampling": lw.bounds.Shuffled(2)}
    claimed = lw.bound(noise_multiplier=1.5, sample_rate=0.25, steps=8, baseline=0.1)
    assert lw.bound(**found, baseline=0.1).upper > claimed.upper
    with pytest.raises(ValueError, match="the accountant does not record how batches were drawn"):
        lw.adapters.opacus.mechanism(engine)
    with pytest.raises(ValueError, match="draws batches by list, not by Poisson sampling"):
        lw.adapters.opacus.mechanism(engine, [])


def test_the_sampler_that_ran_is_read_from_the_loader():
    engine, _, _, loader = _trained(poisson_sampling=False)
    data = loader.dataset
    samplers = lw.adapters.torch.BallsInBinsSampler(40, 4), lw.adapters.torch.PoissonSampler(40, 4)
    for sampler, sampling in zip(samplers, (lw.bounds.BallsInBins(2), lw.bounds.Poisson(0.25)), strict=True):
        found = lw.adapters.opacus.mechanism(engine, DataLoader(data, batch_sampler=sampler))
        assert found == {"noise_multiplier": 1.5, "steps": 8, "sampling": sampling}
        assert lw.bound(**found, baseline=0.1).upper < 1
    found = lw.adapters.opacus.mechanism(engine, DataLoader(data, batch_size=10))
    assert found["sampling"] == lw.bounds.Cyclic(2)


def test_a_begun_epoch_counts_as_a_whole_one():
    """Two batches are accumulated in each of five steps."""
    engine, _, _, loader = _trained(poisson_sampling=False)
    engine.accountant.history = [(1.5, 0.5, 5)]
    found = lw.adapters.opacus.mechanism(engine, loader)
    assert found == {"noise_multiplier": 1.5, "steps": 6, "sampling": lw.bounds.Shuffled(3)}
    bins = DataLoader(loader.dataset, batch_sampler=lw.adapters.torch.BallsInBinsSampler(40, 4))
    with pytest.raises(ValueError, match="accumulated"):
        lw.adapters.opacus.mechanism(engine, bins)


def test_full_batches_need_no_sampling():
    engine, _, _, loader = _trained(poisson_sampling=False, batch_size=40)
    full = {"noise_multiplier": 1.5, "sample_rate": 1.0, "steps": 2}
    assert lw.adapters.opacus.mechanism(engine, loader) == full
    again = DataLoader(loader.dataset, sampler=RandomSampler(loader.dataset, replacement=True), batch_size=40)
    with pytest.raises(ValueError, match="not by Poisson sampling"):  # a record may stand in a batch twice
        lw.adapters.opacus.mechanism(engine, again)


def test_a_loader_that_draws_more_than_was_accounted_for_counts(trained):
    engine, _, _, _ = trained
    _, _, _, larger = _trained(batch_size=20)
    assert lw.adapters.opacus.mechanism(engine, larger)["sample_rate"] == 0.5
