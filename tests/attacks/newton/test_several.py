"""More than one unknown record."""

from itertools import combinations_with_replacement, product

import pytest
import torch

import lostwax as lw
from lostwax.attacks.newton import Newton
from lostwax.attacks.newton.bank import Bank, ways
from lostwax.audits.play import one_by_one
from lostwax.games import Hints, Knowledge
from lostwax.games.judges import OneToOne

DIGITS = lw.records.digits().to(torch.float64)


def play(secrets, games, pool, *, attack, trainer, net, known=40, prior=100):
    """The errors (games, secrets) of the best order, and the guess."""
    known, prior, rest = pool.split(known, prior, secrets * games, seed=0)
    threat = lw.Informed(known, secrets=secrets)
    inverter = attack.prepare(Knowledge(net, trainer, threat, lw.access.Weights(), prior), seed=0)
    cohort = threat.deal(rest, games, seed=0)
    guess = inverter(trainer(net, cohort, seed=0))
    matched = one_by_one(guess, OneToOne().pairs(guess.records, cohort.own).guess).records.x[:, 0]
    return (matched - cohort.own.x.flatten(0, 1)).square().flatten(1).mean(1).view(games, secrets), guess, cohort


SHORT = lw.GD(lr=0.3, momentum=0.9, steps=10, dtype=torch.float64, init=lw.inits.LeCunNormal())


@pytest.mark.parametrize("classes", [(0, 1, 2), (1,)])
def test_two_records_are_found_together_also_of_one_class(classes):
    pool = DIGITS[torch.isin(DIGITS.y, torch.tensor(classes))]
    wrong, guess, cohort = play(2, 2, pool, attack=Newton(bank=60), trainer=SHORT, net=lw.nets.mlp(64, 8, 3))
    assert wrong.max() < 1e-20
    assert guess.certified.all()
    assert guess.confidence.shape == (2, 2)
    assert torch.equal(guess.records.y.sort(1).values, cohort.own.y.sort(1).values)


def test_with_batches_in_a_public_order_places_differ():
    """(3, 5) is not (5, 3) then: all orders of classes are raced."""
    trainer = lw.SGD(lr=0.2, momentum=0.9, batch_size=14, epochs=4, dtype=torch.float64)
    wrong, guess, cohort = play(
        2, 2, DIGITS[DIGITS.y < 2], attack=Newton(bank=60), trainer=trainer, net=lw.nets.mlp(64, 8, 2)
    )
    assert wrong.max() < 1e-20
    assert torch.equal(guess.records.y, cohort.own.y)


def test_products_look_for_two_records_as_well():
    known, prior, secrets = DIGITS.split(30, 300, 2, seed=0)
    net, threat = lw.nets.mlp(64, 8, 10), lw.Informed(known, secrets=2)
    cohort = threat.deal(secrets, 1, seed=0)
    inverter = Newton(bank=100, products=28).prepare(Knowledge(net, SHORT, threat, lw.access.Weights(), prior), seed=0)
    guess = inverter(SHORT(net, cohort, seed=0), Hints(labels=cohort.own.y))
    guess = one_by_one(guess, OneToOne().pairs(guess.records, cohort.own).guess)
    blind = (prior.x.mean(0) - cohort.own.x[0]).square().mean()
    assert (guess.records.x[:, 0] - cohort.own.x[0]).square().mean() < blind / 2


def test_ways_are_counted_before_they_are_made():
    """One model each: ten classes have a hundred million ways to be those of eight secrets."""
    assert ways(10, 3, in_any_order=True) == len(list(combinations_with_replacement(range(10), 3))) == 220
    assert ways(10, 3, in_any_order=False) == len(list(product(range(10), repeat=3))) == 1_000
    known, prior = DIGITS.split(40, 100, seed=0)

    def objection(secrets, trainer, prior=prior):
        threat = lw.Informed(known[known.y < 5], secrets=secrets)
        return Newton().objection(Knowledge(lw.nets.mlp(64, 30, 10), trainer, threat, lw.access.Weights(), prior))

    batches = lw.SGD(lr=0.2, batch_size=14, epochs=4, dtype=torch.float64)
    assert "8 secrets of 10 classes have 24,310 combinations of labels" in objection(8, SHORT)
    assert "5 secrets of 10 classes have 100,000 combinations of labels" in objection(5, batches)
    assert "Use fewer secrets or fewer classes." in objection(20, batches)
    assert objection(6, SHORT) is None
    assert objection(4, batches) is None
    assert objection(8, SHORT, prior[prior.y < 3]) is None


def test_the_nearest_model_of_every_class():
    """The least distance of each, and who has it, by looking at them one by one."""
    draw = torch.Generator().manual_seed(0)
    distance = torch.rand(12, 5, generator=draw)
    distance[:, 4] = torch.inf
    group = torch.tensor([0, 1, 2, 2, 0, 1, 2, 0, 0, 1, 1, 2])
    empty = torch.empty(0)
    least, nearest = Bank(empty, empty, empty, ((0,), (1,), (2,)), group, None)._nearest(distance)
    for c in range(3):
        rows = (group == c).nonzero()[:, 0]
        assert torch.equal(least[c], distance[rows].min(0).values)
        assert torch.equal(nearest[c], rows[distance[rows].min(0).indices])


@pytest.mark.slow
@pytest.mark.parametrize(("secrets", "games", "found"), [(2, 10, 9), (3, 4, 3)])
def test_most_games_of_ten_classes_are_won(secrets, games, found):
    trainer = lw.GD(lr=0.2, momentum=0.9, steps=20, dtype=torch.float64)
    wrong, guess, _ = play(
        secrets,
        games,
        DIGITS,
        attack=Newton(bank=100 * secrets),
        trainer=trainer,
        net=lw.nets.mlp(64, 10, 10),
        known=100,
        prior=200,
    )
    right = (wrong < 1e-10).all(1)
    assert int(right.sum()) >= found
    assert torch.equal(guess.certified.all(1), right)
