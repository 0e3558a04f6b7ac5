"""Starting points: the right spread, public or private."""

import math
import os
from dataclasses import replace

import pytest
import torch
from torch import nn

from lostwax.inits import FromNet, Given, Glorot, He, LeCunNormal, Normal, TorchDefault

NET = nn.Sequential(nn.Conv2d(4, 64, 5), nn.GroupNorm(4, 64), nn.Flatten(), nn.Linear(64, 200))
SPREADS = [
    (LeCunNormal(), lambda fan_in, fan_out: 1 / math.sqrt(fan_in)),
    (Normal(0.02), lambda fan_in, fan_out: 0.02),
    (He(), lambda fan_in, fan_out: math.sqrt(2 / fan_in)),
    (Glorot(), lambda fan_in, fan_out: math.sqrt(2 / (fan_in + fan_out))),
    (TorchDefault(), lambda fan_in, fan_out: 1 / math.sqrt(3 * fan_in)),
]
every_init = pytest.mark.parametrize("init", [init for init, _ in SPREADS], ids=str)


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize(("init", "spread"), SPREADS, ids=lambda value: str(value)[:12])
def test_weights_have_the_spread_of_their_fans(init, spread, public):
    start = (init if public else replace(init, seed=None))(NET, [7], seed=0)
    assert all(value.dtype == torch.float64 for value in start.values() if public)
    for name, fan_in, fan_out in (("0.weight", 100, 1600), ("3.weight", 64, 200)):
        weight = start[name]
        assert weight.std().item() == pytest.approx(spread(fan_in, fan_out), rel=0.05)
        assert abs(weight.mean().item()) < 0.1 * weight.std().item()
    assert torch.equal(start["1.weight"], torch.ones(1, 64, dtype=torch.float64))
    if not isinstance(init, TorchDefault):
        assert not any(start[name].any() for name in ("0.bias", "1.bias", "3.bias"))


@every_init
def test_a_public_start_is_the_same_for_all(init):
    start, other = init(NET, [3, 8], seed=0), init(NET, [5], seed=1)
    for name, value in start.items():
        assert torch.equal(value[0], value[1])
        assert torch.equal(value[0], other[name][0])
    assert not torch.equal(replace(init, seed=1)(NET, [3], seed=0)["0.weight"], start["0.weight"][:1])


@every_init
def test_a_private_start_belongs_to_seed_and_number(init):
    private = replace(init, seed=None)
    start = private(NET, [3, 8], seed=0)["0.weight"]
    assert not torch.equal(start[0], start[1])
    assert torch.equal(private(NET, [8], seed=0)["0.weight"][0], start[1])
    assert torch.equal(private(NET, torch.tensor([8]), seed=0)["0.weight"][0], start[1])
    layers = torch.stack([private(NET, [8], seed=0)[name].flatten()[:6_400] for name in ("0.weight", "3.weight")])
    assert torch.corrcoef(layers)[0, 1].abs() < 5 / 80, "two layers begin with the same numbers"
    assert not torch.equal(private(NET, [8], seed=1)["0.weight"][0], start[1])


@pytest.mark.gpu
@every_init
def test_a_private_start_is_the_same_on_a_gpu(init):
    if not torch.cuda.is_available() or os.environ.get("TRITON_INTERPRET") == "1":
        pytest.skip("no CUDA device, or kernels are interpreted")
    private, numbers = replace(init, seed=None), torch.tensor([3, 8, 2**40])
    here, there = private(NET, numbers, seed=0), private(NET, numbers.cuda(), seed=0)
    for name, value in here.items():
        assert there[name].is_cuda
        torch.testing.assert_close(there[name].cpu(), value, rtol=1e-4, atol=1e-5)


@every_init
def test_drawing_leaves_torchs_randomness_and_the_net_alone(init):
    state, weight = torch.get_rng_state(), NET[0].weight.clone()
    init(NET, [0], seed=0)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(NET[0].weight, weight)


def test_a_given_state_is_known_by_its_fingerprint_and_not_printed():
    state = NET.state_dict()
    other = {name: value + 1 for name, value in state.items()}
    assert repr(Given(state)) == repr(Given(dict(state))) != repr(Given(other))
    assert len(repr(Given(state))) < 40


def test_a_given_state_must_fit():
    state = NET.state_dict()
    assert torch.equal(Given(state)(NET, [0, 1], seed=0)["0.weight"][1], state["0.weight"].double())
    with pytest.raises(ValueError, match=r"Given: expected 3.bias of shape \(200,\) in state, got nothing"):
        Given({name: value for name, value in state.items() if name != "3.bias"})(NET, [0], seed=0)
    with pytest.raises(ValueError, match=r"got shape \(1,\)"):
        Given({**state, "3.bias": torch.zeros(1)})(NET, [0], seed=0)


def test_normal_refuses_a_negative_spread():
    with pytest.raises(ValueError, match=r"Normal: expected sigma >= 0, got -1.0\."):
        Normal(-1.0)


def test_the_nets_own_weights_are_a_start_for_all():
    start = FromNet()(NET, [3, 8], seed=0)
    assert set(start) == {name for name, _ in NET.named_parameters()}
    for name, value in NET.named_parameters():
        assert torch.equal(start[name], value.detach().double().expand(2, *value.shape))
        assert start[name].data_ptr() != value.data_ptr()
    frozen = nn.Sequential(nn.Linear(2, 2).requires_grad_(False), nn.Linear(2, 1)).double()
    assert set(FromNet()(frozen, [0], seed=0)) == {"1.weight", "1.bias"}


def test_a_net_without_weights_is_no_start():
    with pytest.raises(ValueError, match="it is on the meta device and has no weights to start from"):
        FromNet()(nn.Linear(2, 2, device="meta"), [0], seed=0)
    broken = nn.Linear(2, 2)
    nn.init.constant_(broken.bias, math.nan)
    with pytest.raises(ValueError, match="starts from the net's weights, but bias holds NaN"):
        FromNet()(broken, [0], seed=0)
