"""The likeliest record by a response of every weight, on nets of one neuron."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.attacks.least_squares import Linearised, Point
from lostwax.attacks.newton.annealing import AnnealedSearch, ClassPrior, ErrorModel
from lostwax.games import Hints, Knowledge, Release
from lostwax.learning.costs import Rate

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
    entries = {int(label): inverter.bank.entry(row) for row, label in enumerate(inverter.bank.label[:, 0])}
    starts = [[entries[3], entries[right]], [entries[right], entries[3]]]
    first, second = inverter.annealing(released.expand(2, -1), starts)
    assert int(first.point.label) == right
    torch.testing.assert_close(first.point.a, second.point.a, atol=5e-4, rtol=0)
    assert first.jacobians > second.jacobians


def test_a_game_does_not_depend_on_those_searched_with_it(game, inverter, found):
    alone = [inverter.invert(Release({name: value[[g]] for name, value in game[2].params.items()}))[0] for g in (0, 2)]
    for one, together in zip(alone, (found[0], found[2]), strict=True):
        torch.testing.assert_close(one.record, together.record, atol=1e-4, rtol=0)


@pytest.mark.parametrize("label_known", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_weights_that_no_record_explains_are_not_explained(game, inverter, label_known):
    one = {name: value[:1] for name, value in game[2].params.items()}
    origin = inverter.problem.exact.responses.access.origin
    size = float((Release(one).flat()[0] - origin).norm()) / len(origin) ** 0.5
    generator = torch.Generator().manual_seed(0)
    noisy = {name: value + size * torch.randn(value.shape, generator=generator) for name, value in one.items()}
    (found,) = inverter.invert(Release(noisy), Hints(labels=game[1].own.y[:1]) if label_known else None)
    assert not found.explained
    assert not found.certified


def test_a_victim_that_diverged_gets_the_guess_of_one_who_sees_nothing(game, inverter):
    one = {name: torch.full_like(value[:1], torch.nan) for name, value in game[2].params.items()}
    (found,) = inverter.invert(Release(one))
    assert found.record.isfinite().all()
    assert found.predicted >= 0.5 * found.blind
    assert not found.explained


@pytest.mark.parametrize("size", [1.0, 10.0, 1e30])
def test_weights_far_from_those_of_any_record_are_not_explained(game, inverter, size):
    """The response's error grows with the square of the distance: soon it exceeds it."""
    generator = torch.Generator().manual_seed(0)
    far = {name: v[:1] + size * torch.randn(v[:1].shape, generator=generator) for name, v in game[2].params.items()}
    assert not inverter.invert(Release(far))[0].explained


def test_weights_that_diverged_and_those_without_a_record_are_not_explained(game, inverter):
    ours = {name: value[:1] for name, value in game[2].params.items()}
    broken = [Release({name: value * far for name, value in ours.items()}) for far in (torch.nan, torch.inf)]
    origin = inverter.problem.exact.responses.access.origin
    parts = torch.split(origin, [value.numel() for value in ours.values()])
    known_alone = Release({name: part.view_as(ours[name]) for name, part in zip(ours, parts, strict=True)})
    for polish in (False, True):
        for release in (*broken, known_alone):
            (found,) = replace(inverter, by_training=polish).invert(release)
            assert not found.explained
            assert not found.certified
            assert found.record.isfinite().all()


def test_a_table_of_every_number_by_default():
    """Labels of one class, a constant column, and `directions` that do not apply."""
    x = torch.rand(202, 4, generator=torch.Generator().manual_seed(0))
    x[:, 1] = 0.5
    table = lw.Records(x, torch.zeros(202, dtype=torch.long))
    knowledge = Knowledge(lw.nets.mlp(4, 3, 2), TRAINER, lw.Informed(table[:100]), lw.access.Weights(), table[100:200])
    response = lw.shadows.LinearResponse(checked=60, rank=23, directions=2)
    cohort = knowledge.threat.deal(table[200:], 2, seed=0)
    guess = lw.Newton(bank=50, response=response).prepare(knowledge, seed=0)(TRAINER(knowledge.net, cohort, seed=0))
    assert guess.certified.all()
    assert (guess.records.x - cohort.own.x).square().mean() < 1e-8


def test_weights_that_never_move_are_no_equations():
    """Dead units: of 23 weights only the biases of the last layer move, for the 4 numbers of a record."""
    x = torch.rand(200, 4, generator=torch.Generator().manual_seed(0))
    table, net = lw.Records(x, (x.sum(1) > 2).long()), lw.nets.mlp(4, 3, 2, activation=nn.ReLU)
    *_, hidden, _, _ = net
    nn.init.constant_(hidden.bias, -100.0)
    trainer = replace(TRAINER, init=lw.inits.FromNet())
    knowledge = Knowledge(net, trainer, lw.Informed(table[:100]), lw.access.Weights(), table[100:])
    with pytest.raises(ValueError, match="2 reliable directions do not determine 4 coordinates"):
        lw.Newton(response=lw.shadows.LinearResponse(checked=60, rank=23)).prepare(knowledge, seed=0)


def test_the_cost_is_that_of_hessians_not_of_directions(game):
    rate = Rate(training=1e-3, features=85, parameters=85)
    costs = [
        lw.Newton(response=replace(RESPONSE, rank=rank, directions=directions)).cost(game[0], 1, rate)
        for rank, directions in ((85, 10), (85, 1_000), (800, 10), (84, 10), (84, 1_000))
    ]
    assert costs[0] == costs[1] == costs[2]
    assert costs[3].seconds < costs[4].seconds
    assert costs[0].bytes - costs[3].bytes == 4 * TRAINER.steps * 85**2


def test_a_record_with_a_wrong_label_is_found_with_it(game, inverter):
    """The sum is large at a record unlike its class: only the last search is not given up."""
    knowledge, cohort, _ = game
    wrong = replace(cohort, own=replace(cohort.own, y=(cohort.own.y + 3) % 10))
    found = inverter.invert(TRAINER(knowledge.net, wrong, seed=0))
    assert [int(one.label) for one in found] == wrong.own.y.flatten().tolist()
    assert errors(found, wrong).max() < 1e-5


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


def test_what_the_weights_do_not_show_keeps_its_prior_beside_what_they_show_very_well():
    """Squared, 1e12 would hide the prior's 1 in rounding."""
    jacobian = torch.tensor([[1e12, 1e12], [0.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    zero, one = torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    point, prior = Point(zero[:2], torch.zeros(1, dtype=torch.long), zero), ClassPrior(zero[:2], one[:2, :2])
    search = AnnealedSearch(point, Linearised.of(jacobian), zero, prior=prior, whitening=one)
    torch.testing.assert_close(search.posterior()[0], torch.tensor([0.5, 0.5], dtype=torch.float64))
    assert search.misfit() == 0


def test_rounding_contradicts_no_direction_along_which_errors_never_vary():
    drawn = torch.randn(300, 20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    drawn[:, 0] = 0
    model = ErrorModel.of(drawn)
    rounded = 0.3 * torch.finfo(torch.float32).eps * torch.eye(20, dtype=torch.float64)[0]
    assert (model.whitening(size=0.3) @ rounded).norm() < 1
    assert len(model.noises(0.3, first=0.03)) < 12


def test_the_prior_of_a_class_has_its_mean_and_nearly_its_covariance():
    a = torch.randn(3_000, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    a[1_500:] = 0.1 * a[1_500:] + 5
    narrow = ClassPrior.each(a, torch.arange(3_000) // 1_500)[1]
    torch.testing.assert_close(narrow.mean, torch.full((4,), 5.0, dtype=torch.float64), atol=0.02, rtol=0)
    covariance = narrow.factor @ narrow.factor.mT
    assert 0.01 < float(covariance.diagonal().mean()) < 0.04
