"""A net of one neuron, whose pre-activation hides the rest of a record from a search that starts at small noise."""

from dataclasses import replace

import pytest
import torch

import lostwax as lw
from lostwax.attacks.newton.annealing import ClassPrior, ErrorModel
from lostwax.games import Knowledge, Release

TRAINER = lw.GD(lr=0.2, momentum=0.9, steps=40, init=lw.inits.LeCunNormal())
KNOWN, PRIOR, SECRETS = lw.records.digits().split(600, 1_000, 12, seed=0)
RESPONSE = lw.shadows.LinearResponse(checked=150, rank=85)  # 85 weights


@pytest.fixture(scope="module")
def game():
    net = lw.nets.mlp(64, 1, 10)
    knowledge = Knowledge(net, TRAINER, lw.Informed(KNOWN), lw.access.Weights(), PRIOR)
    cohort = knowledge.threat.deal(SECRETS, len(SECRETS), seed=0)
    return knowledge, cohort, TRAINER(net, cohort, seed=0)


@pytest.fixture(scope="module")
def inverter(game):
    return lw.Newton(bank=1_000, coordinates=64, response=RESPONSE, polish=False).prepare(game[0], seed=0)


def errors(guess, cohort):
    return (guess.records.x - cohort.own.x).square().flatten(1).mean(1)


def test_one_neuron_gives_the_records_back(game, inverter):
    _, cohort, release = game
    guess = inverter(release)
    blind = (PRIOR.x.mean(0) - cohort.own.x[:, 0]).square().mean()
    assert (guess.records.y == cohort.own.y).float().mean() >= 0.9
    assert errors(guess, cohort).median() < 0.02 * blind
    assert not guess.certified.any()


def test_the_search_at_small_noise_alone_finds_fewer(game, inverter, monkeypatch):
    _, cohort, release = game
    annealed = errors(inverter(release), cohort)
    monkeypatch.setattr("lostwax.attacks.newton.annealing.NOISE", 0.0)
    assert annealed.mean() < 0.5 * errors(inverter(release), cohort).mean()


def test_predicted_errors_are_of_the_size_of_the_errors(game, inverter):
    _, cohort, release = game
    guess = inverter(release)
    ratio = errors(guess, cohort) / -guess.confidence[:, 0]
    assert 0.05 < ratio.median() < 20


def test_weights_that_no_record_explains_are_not_explained(game, inverter):
    release = game[2]
    noise = {name: torch.randn(value.shape, generator=torch.manual_seed(0)) for name, value in release.params.items()}
    moved = release.flat() - inverter.problem.exact.responses.access.origin
    size = float(moved.norm(dim=1).median()) / 85**0.5
    noisy = Release({name: value + size * noise[name] for name, value in release.params.items()})
    assert all(one.explained for one in inverter.invert(release))
    assert not any(one.explained for one in inverter.invert(noisy))


def test_models_trained_at_the_end_certify(game):
    knowledge, cohort, release = game
    exact = replace(TRAINER, dtype=torch.float64)
    trained = exact(knowledge.net, cohort, seed=0)
    attack = lw.Newton(bank=1_000, coordinates=64, response=RESPONSE)
    guess = attack.prepare(replace(knowledge, trainer=exact), seed=0)(trained)
    certified = guess.certified[:, 0]
    assert (errors(guess, cohort)[certified] < 1e-6).all()


def test_whitened_errors_are_standard():
    generator = torch.Generator().manual_seed(0)
    mix = torch.diag(torch.logspace(-4, 0, 20, dtype=torch.float64))
    drawn = torch.randn(4_000, 20, generator=generator, dtype=torch.float64) @ mix
    model = ErrorModel.of(drawn[:2_000])
    whitened = (0.3**2 * drawn[2_000:]) @ model.whitening(size=0.3).mT
    assert whitened.square().mean() == pytest.approx(1, rel=0.1)
    with_noise = model.whitening(size=0.3, noise=0.1)
    assert float(torch.linalg.eigvalsh(with_noise.mT @ with_noise)[-1]) <= (0.1 * 0.3) ** -2


def test_the_prior_of_a_class_has_its_mean_and_nearly_its_covariance():
    a = torch.randn(3_000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a[1_500:] = 0.1 * a[1_500:] + 5
    narrow = ClassPrior.each(a, torch.arange(3_000) // 1_500)[1]
    torch.testing.assert_close(narrow.mean, torch.full((4,), 5.0, dtype=torch.float64), atol=0.02, rtol=0)
    covariance = narrow.factor @ narrow.factor.mT
    assert 0.01 < float(covariance.diagonal().mean()) < 0.04
