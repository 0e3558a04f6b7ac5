"""Records through a frozen backbone."""

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.games import Records

DIGITS = lw.records.digits()[:50]


def backbone():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.5)
    )


@pytest.fixture
def flat():
    return Records(DIGITS.x.flatten(1), DIGITS.y)


@pytest.mark.parametrize("batch_size", [1, 7, 256])
def test_features_are_the_backbones_outputs_whatever_the_batch(flat, batch_size):
    net = backbone()
    ours = flat.through(net, batch_size=batch_size)
    wanted = net.eval()(flat.x.float()).flatten(1)
    torch.testing.assert_close(ours.features, wanted.detach())
    assert ours.inputs is ours.features
    assert ours.x is flat.x
    assert not ours.features.requires_grad


def test_the_backbone_stays_as_it_is(flat):
    net = backbone()
    net[2].eval()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    flat.through(net)
    assert [module.training for module in net] == [True, True, False, True, True, True]
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())


def test_a_backbone_that_tells_nothing_is_refused(flat):
    dead = nn.Linear(64, 5)
    nn.init.zeros_(dead.weight)
    with pytest.raises(ValueError, match="the same features for all 50 records"):
        flat.through(dead)


@pytest.mark.parametrize(
    ("net", "records", "words"),
    [
        (nn.Flatten(0), DIGITS, "one row per record, got"),
        (nn.LSTM(64, 3), Records(DIGITS.x.flatten(1).float(), DIGITS.y), "got tuple"),
        (nn.Identity(), Records(torch.full((3, 2), torch.nan), torch.arange(3)), "6 of 6 features are NaN"),
        (nn.Conv2d(3, 4, 3), DIGITS, r"cannot take records of shape \(1, 8, 8\): .* Reshape x to"),
        (nn.Identity(), DIGITS[:0], "at least one record"),
    ],
)
def test_what_is_no_table_of_features_is_refused(net, records, words):
    with pytest.raises(ValueError, match=words):
        records.through(net)


def test_pixels_as_whole_numbers_are_refused():
    with pytest.raises(TypeError, match=r"got torch.uint8. Scale pixels"):
        Records(torch.zeros(3, 2, dtype=torch.uint8), torch.arange(3)).through(nn.Identity())
