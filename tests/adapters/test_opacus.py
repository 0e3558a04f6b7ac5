import warnings

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import lostwax as lw

opacus = pytest.importorskip("opacus")


@pytest.fixture
def trained():
    """A net that Opacus trained for two epochs."""
    torch.manual_seed(0)
    net, data = nn.Linear(4, 2), TensorDataset(torch.randn(40, 4), torch.randint(2, (40,)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = opacus.PrivacyEngine()
        net, optimiser, loader = engine.make_private(
            module=net,
            optimizer=torch.optim.SGD(net.parameters(), lr=0.1),
            data_loader=DataLoader(data, batch_size=10),
            noise_multiplier=1.5,
            max_grad_norm=1.0,
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
    engine, *_ = trained
    mechanism = lw.adapters.opacus.mechanism(engine)
    assert mechanism == {"noise_multiplier": 1.5, "sample_rate": 0.25, "steps": 8}
    assert lw.adapters.opacus.mechanism(engine.accountant) == mechanism
    ceiling = lw.bound(**mechanism, baseline=0.1)
    assert ceiling == lw.bound(noise_multiplier=1.5, sample_rate=0.25, steps=8, baseline=0.1)


def test_changed_noise_is_taken_on_the_safe_side(trained):
    engine, net, optimiser, loader = trained
    optimiser.noise_multiplier = 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _epochs(net, optimiser, loader, 1)
    with pytest.warns(UserWarning, match="noise or rate changed"):
        mechanism = lw.adapters.opacus.mechanism(engine)
    assert mechanism == {"noise_multiplier": 1.0, "sample_rate": 0.25, "steps": 12}


def test_what_is_no_trained_engine(trained):
    with pytest.raises(ValueError, match="seen no step"):
        lw.adapters.opacus.mechanism(opacus.PrivacyEngine())
    with pytest.raises(TypeError, match="expected a PrivacyEngine of Opacus, or its accountant, got Linear"):
        lw.adapters.opacus.mechanism(nn.Linear(1, 1))
