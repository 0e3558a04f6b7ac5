"""A false claim is refuted, a true one is not, and few p-values of true claims are small."""

import importlib
import sys
from copy import deepcopy
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import binom, norm
from torch import nn

import lostwax as lw
from claims.training import full_batches, layer, records

CLAIM = {"noise_multiplier": 2.0, "steps": 2, "sampling": lw.bounds.FullBatch()}
QUICK = {"games": 80, "trials": 16}


def check(train=full_batches, **changes):
    return lw.check_dp(layer(), records(), train, **{**CLAIM, **QUICK, **changes})


def test_true_claims_stand():
    found = check()
    assert not found.refuted
    assert "not contradicted" in str(found)
    assert found.ceiling.upper == pytest.approx(norm.cdf(2**0.5 / 2), rel=1e-6)


@pytest.mark.slow
def test_the_game_comes_close_to_what_the_claim_permits():
    """Otherwise small faults would not be seen."""
    found = check(games=400)
    assert found.success > found.ceiling.upper - 0.08


@pytest.mark.parametrize("fault", [{"scale": 0.25}, {"scale": 0.0}, {"own_seed": 3}, {"steps": 20}], ids=str)
def test_false_claims_are_refuted(fault):
    found = check(partial(full_batches, **fault))
    assert found.refuted
    assert "The claim is false" in str(found)
    assert found.p_value < 1e-3
    assert found.games <= QUICK["games"]  # it ends when it knows
    if fault.keys() & {"own_seed"}:
        assert "seeded again in every run" in found.look_for
    if fault.keys() & {"steps"}:
        assert "The function made 20 steps, the claim counts 2." in found.notes


def test_a_canary_is_not_held_out_for_validation():
    def with_validation(net, x, y, seed):
        return full_batches(net, x[: len(x) // 2], y[: len(x) // 2], seed, scale=0.0)

    assert check(with_validation).refuted


def test_a_canary_is_not_held_out_for_validation_where_noise_cannot_be_seeded():
    """As a generator that is seeded by the operating system does; here from numbers that no run repeats."""
    runs = count()

    def with_validation(net, x, y, seed):
        kept = int(0.8 * len(x))
        return full_batches(net, x[:kept], y[:kept], seed, scale=0.05, own_seed=next(runs))

    assert check(with_validation).refuted


def test_true_claims_stand_where_noise_cannot_be_seeded():
    runs = count()

    def train(net, x, y, seed):
        return full_batches(net, x, y, seed, own_seed=next(runs))

    assert not check(train).refuted


def test_a_claim_of_epsilon():
    found = check(partial(full_batches, scale=0.1), noise_multiplier=None, sampling=None, steps=1, epsilon=1.0)
    assert found.refuted


def test_games_that_are_all_won_refute_even_after_few_trials():
    """60 of 60 games were won, 0.82 of them permitted, and the claim stood: bets did not learn from games."""
    claim = {"noise_multiplier": None, "sampling": None, "steps": 1, "epsilon": 1.0}
    found = check(partial(full_batches, scale=0.0), **claim, games=60, trials=8)
    assert found.won == found.games
    assert found.refuted


def test_more_noise_than_claimed_is_no_fault():
    assert not check(partial(full_batches, scale=2.0)).refuted


def test_a_seed_changes_the_games_and_nothing_else():
    one, same = (check(games=60, trials=8, seed=1) for _ in range(2))
    assert (one.won, one.pair, one.rule) == (same.won, same.pair, same.rule)


def test_a_claim_that_permits_everything_cannot_be_refuted():
    with pytest.raises(ValueError, match="more noise or fewer steps"):
        check(noise_multiplier=0.1)
    with pytest.raises(ValueError, match=r"games=\d+, or more"):
        check(games=10)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"games": 0}, ValueError, "games to be a whole number"),
        ({"trials": 2}, ValueError, "trials to be a whole number"),
        ({"train": 3}, TypeError, r"function\(net, x, y, seed\)"),
        ({"noise_multiplier": None}, ValueError, "the noise is missing"),
    ],
)
def test_slips_are_named(changes, error, words):
    with pytest.raises(error, match=words):
        check(**changes)


def test_data_must_be_records_of_two_classes():
    x = torch.zeros(5, 4)
    with pytest.raises(ValueError, match="two classes"):
        lw.check_dp(layer(), (x, torch.zeros(5).long()), full_batches, **CLAIM)
    with pytest.raises(TypeError, match="data="):
        lw.check_dp(layer(), x, full_batches, **CLAIM)
    with pytest.raises(ValueError, match="floating-point"):
        lw.check_dp(layer(), (x.long(), torch.arange(5) % 2), full_batches, **CLAIM)


def test_regression():
    """Targets that are numbers, with the usual loss for them."""

    def train(net, x, y, seed, scale=1.0):
        draws = torch.Generator().manual_seed(seed)
        residual = (net(x)[:, 0] - y).detach()
        each = residual.unsqueeze(1) * torch.cat([x, torch.ones(len(x), 1)], 1)
        total = (each * (1 / each.norm(dim=1, keepdim=True)).clamp_max(1)).sum(0)
        total = total + scale * torch.randn(total.shape, generator=draws)
        with torch.no_grad():
            net.weight -= 0.1 * total[:-1]
            net.bias -= 0.1 * total[-1]
        return net.state_dict()

    data, claim = (np.random.default_rng(0).normal(size=(9, 3)), np.linspace(0, 1, 9)), {"noise_multiplier": 1.0}
    assert not lw.check_dp(nn.Linear(3, 1), data, train, **claim, **QUICK).refuted
    found = lw.check_dp(nn.Linear(3, 1), data, partial(train, scale=0.2), **claim, **QUICK)
    assert found.refuted
    assert "Only the last weights were seen" in str(found)


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(Path(__file__).parents[2] / "benchmarks"), *sys.path])
    yield importlib.import_module("dp_claims")
    del sys.modules["dp_claims"]


FAULTS = ["noise by batch size", "clip after averaging", "no noise on one layer", "shuffled", "accumulation"]
FAULTS += ["batch norm", "batch norm, buffers", "fixed seed", "seed of every step"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["clean", *FAULTS])
def test_planted_faults_are_found(benchmark, fault):
    """The faults of the issue, in mini-batches of Poisson sampling, each in less than ten minutes."""
    assert set(benchmark.FAULTS) == {"clean", *FAULTS}
    found = benchmark.check(fault)
    assert found.refuted == (fault != "clean")
    assert found.seconds < 600


@pytest.mark.slow
def test_p_values_of_true_claims_are_valid():
    """Full batches come near the ceiling; at most as many p-values are small as should be."""
    p_values = np.array([check(seed=seed).p_value for seed in range(100)])
    for level in (1e-3, 0.05, 0.2, 0.5):
        assert binom.sf((p_values < level).sum() - 1, len(p_values), level) > 1e-3


def test_what_is_not_returned_is_not_judged():
    """Weights that are replaced by noise after plain training say nothing about the records."""

    def train(net, x, y, seed):
        full_batches(net, x, y, seed, scale=0.0)
        draws = torch.Generator().manual_seed(seed)
        return {name: torch.randn(value.shape, generator=draws) for name, value in net.state_dict().items()}

    claim = {"noise_multiplier": None, "sampling": None, "steps": 1, "epsilon": 0.5}
    assert not check(train, **claim).refuted
    found = check(train)  # a claim of noise covers the steps that lead to what is returned, and these do not
    assert not found.refuted
    assert any("Only the last weights were seen" in note for note in found.notes)


def plain_steps(net, x, y, steps=3):
    """Without clipping or noise."""
    optimiser = torch.optim.SGD(net.parameters(), lr=0.5)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimiser.step()


def twin_first(net, x, y, seed):
    plain_steps(deepcopy(net), x, y)
    return full_batches(net, x, y, seed)


def twin_between_steps(net, x, y, seed):
    twin = deepcopy(net)
    full_batches(net, x, y, seed, steps=1)
    plain_steps(twin, x, y)
    return full_batches(net, x, y, seed + 1, steps=1)


def reset(net, x, y, seed):
    """The net itself is trained without noise, to choose a learning rate, and starts again."""
    start = deepcopy(net.state_dict())
    plain_steps(net, x, y)
    net.load_state_dict(start)
    return full_batches(net, x, y, seed)


@pytest.mark.parametrize("train", [twin_first, twin_between_steps, reset])
def test_a_twin_without_noise_that_is_never_returned_is_not_judged(train):
    found = check(train, games=40, trials=8)
    assert not found.refuted
    assert not any("steps" in note for note in found.notes)  # those of the claim


def from_the_twin(net, x, y, seed):
    twin = deepcopy(net)
    plain_steps(twin, x, y)
    net.load_state_dict(twin.state_dict())
    return full_batches(net, x, y, seed)


def mixed_with_the_twin(net, x, y, seed):
    twin = deepcopy(net)
    full_batches(net, x, y, seed, steps=1)
    plain_steps(twin, x, y)
    with torch.no_grad():
        for value, other in zip(net.parameters(), twin.parameters(), strict=True):
            value.lerp_(other, 0.5)
    return full_batches(net, x, y, seed + 1, steps=1)


@pytest.mark.parametrize("train", [from_the_twin, mixed_with_the_twin])
def test_a_twin_whose_weights_flow_into_what_is_returned_is_judged(train):
    assert check(train).refuted


def test_a_claim_about_bounded_records():
    """Noise that suffices for records of norm 1, without clipping."""

    def train(net, x, y, seed):
        draws, ones = torch.Generator().manual_seed(seed), torch.cat([x, torch.ones(len(x), 1)], 1)
        slope = (net(x).softmax(1) - nn.functional.one_hot(y, 2)).T @ ones
        slope = (slope + 2.0 * 2 * torch.randn(slope.shape, generator=draws)).detach()
        return {"weight": net.weight - 0.1 * slope[:, :-1], "bias": net.bias - 0.1 * slope[:, -1]}

    data = records()
    unit = lw.Records(data.x / data.x.norm(dim=1, keepdim=True), data.y)
    claim = {"noise_multiplier": 2.0, "steps": 1, **QUICK}
    assert lw.check_dp(layer(), unit, train, **claim).refuted
    assert not lw.check_dp(layer(), unit, train, bounded=True, **claim).refuted


def test_runs_without_randomness_are_said_whatever_the_test_says():
    others = records()

    def train(net, x, y, seed):
        return full_batches(net, others.x, others.y, seed, own_seed=3)  # a constant seed, and never the canary

    found = check(train)
    assert not found.refuted
    assert found.contradicted
    assert "not contradicted" not in str(found)
    assert "gave the same weights" in str(found)


def test_nothing_is_trained():
    with pytest.raises(ValueError, match="nothing is trained"):
        check(lambda net, *_: net)


def test_the_claims_number_of_records():
    with pytest.raises(ValueError, match="the claim is about 100 records, and data holds 6"):
        check(sampling=lw.bounds.FixedSize(100, 50))


def test_pairs_without_finite_weights_are_named():
    """A net that divides by the length of a record: blank ones give no weights, which are no sign of missing noise."""

    class Unit(nn.Module):
        def forward(self, x):
            return x / x.norm(dim=-1, keepdim=True)

    def train(net, x, y, seed):
        slopes = []
        for one, label in zip(x, y, strict=True):
            loss = nn.functional.cross_entropy(net(one[None]), label[None])
            slopes.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, net.parameters())]))
        total = sum(slope / max(1.0, float(slope.norm())) for slope in slopes)
        step = 0.1 * (total + 3.0 * torch.randn_like(total))
        torch.nn.utils.vector_to_parameters(
            torch.nn.utils.parameters_to_vector(net.parameters()).detach() - step, net.parameters()
        )
        return net

    net = nn.Sequential(Unit(), layer())
    found = lw.check_dp(net, records(), train, noise_multiplier=3.0, games=40, trials=8)
    assert not found.contradicted
    assert any("not finite" in note for note in found.notes)


def test_weights_that_are_never_finite_are_an_error():
    def train(net, x, y, seed):
        return {name: value * torch.nan for name, value in net.state_dict().items()}

    with pytest.raises(ValueError, match="not finite, in every run"):
        check(train)
