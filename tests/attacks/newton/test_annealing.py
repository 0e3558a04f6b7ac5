"""The likeliest record by a response of every weight, on nets of one neuron."""

import pytest
import torch

import lostwax as lw
from lostwax.attacks.newton.annealing import ClassPrior, ErrorModel
from lostwax.games import Knowledge, Release

TRAINER = lw.GD(lr=0.2, momentum=0.9, steps=15, init=lw.inits.LeCunNormal())
KNOWN, PRIOR, SECRETS = lw.records.digits().split(600, 1_000, 3, seed=0)
RESPONSE = lw.shadows.LinearResponse(checked=100, rank=85)  # 85 weights


@pytest.fixture(scope="module")
def game():
    net = lw.nets.mlp(64, 1, 10)
    knowledge = Knowledge(net, TRAINER, lw.Informed(KNOWN), lw.access.Weights(), PRIOR)
    cohort = knowledge.threat.deal(SECRETS, len(SECRETS), seed=0)
    return knowledge, cohort, TRAINER(net, cohort, seed=0)


@pytest.fixture(scope="module")
def inverter(game):
    return lw.Newton(bank=400, coordinates=64, response=RESPONSE, polish=False).prepare(game[0], seed=0)


@pytest.fixture(scope="module")
def found(game, inverter):
    return inverter.invert(game[2])


def errors(found, cohort):
    """(g,) mean squared."""
    return (torch.stack([one.record for one in found]) - cohort.own.x.flatten(1)).square().mean(1)


def test_one_neuron_gives_the_records_back_to_the_errors_predicted(game, found):
    cohort = game[1]
    assert [int(one.label) for one in found] == cohort.own.y.flatten().tolist()
    assert errors(found, cohort).max() < 1e-6  # a blind guess: 0.057
    predicted = torch.tensor([one.predicted for one in found])
    assert ((0.2 * predicted < errors(found, cohort)) & (errors(found, cohort) < 5 * predicted)).all()
    assert all(one.explained and not one.certified for one in found)


def test_a_class_that_does_not_explain_the_release_is_followed_by_the_next(game, inverter, found):
    released = inverter.problem.exact.in_units(game[2].flat().double())[:1]
    right = int(found[0].label)
    first, second = (inverter.annealing(released, [classes], inverter.bank)[0] for classes in ([3, right], [right, 3]))
    assert int(first.point.label) == right
    torch.testing.assert_close(first.point.a, second.point.a)


def test_weights_that_no_record_explains_are_not_explained(game, inverter):
    one = {name: value[:1] for name, value in game[2].params.items()}
    origin = inverter.problem.exact.responses.access.origin
    size = float((Release(one).flat()[0] - origin).norm()) / len(origin) ** 0.5
    generator = torch.Generator().manual_seed(0)
    noisy = {name: value + size * torch.randn(value.shape, generator=generator) for name, value in one.items()}
    (found,) = inverter.invert(Release(noisy))
    assert not found.explained
    assert not found.certified


def test_a_victim_that_diverged_gets_the_guess_of_one_who_sees_nothing(game, inverter):
    one = {name: torch.full_like(value[:1], torch.nan) for name, value in game[2].params.items()}
    (found,) = inverter.invert(Release(one))
    assert found.record.isfinite().all()
    assert found.predicted >= 0.5 * found.blind
    assert not found.explained


def test_models_trained_at_the_end_certify(game):
    knowledge, cohort, release = game
    guess = lw.Newton(bank=400, coordinates=64, response=RESPONSE).prepare(knowledge, seed=0)(release)
    assert guess.certified.all()
    assert (guess.records.x - cohort.own.x).square().mean() < 1e-6


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
