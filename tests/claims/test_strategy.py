"""Bets: no true claim lets a fortune grow often, and a false one lets it grow as fast as Kelly says."""

import math

import numpy as np
import pytest

from lostwax.claims.strategy import Fortune, fewest_games


def played(permitted, chance, games, random, hope=None):
    fortune = Fortune(permitted)
    for won in random.random(games) < chance:
        fortune.settle(fortune.bet(chance if hope is None else hope), bool(won))
    return fortune


@pytest.mark.parametrize("hope", [0.0, 0.8, 0.9, 1.0])
def test_a_fortune_does_not_grow_on_average(hope):
    """E[1 + b (won - p)] = 1 at the limit of the claim, for every bet."""
    fortune, p = Fortune(0.75), 0.75
    bet = fortune.bet(hope)
    assert 0 < bet < 1 / p
    assert p * (1 + bet * (1 - p)) + (1 - p) * (1 - bet * p) == pytest.approx(1)


def test_small_p_values_are_rare_if_the_claim_is_true_whatever_the_bets():
    """Ville: at most a share a of fortunes ever exceeds 1 / a, even if bets follow a run of luck."""
    wins, small = np.random.default_rng(0).random((1000, 60)) < 0.75, np.zeros(2)
    for luck in wins.tolist():
        fortune = Fortune(0.75)
        for game, won in enumerate(luck):
            fortune.settle(fortune.bet(sum(luck[max(0, game - 10) : game]) / 10), won)
        small += [fortune.p_value < 0.1, fortune.p_value < 0.02]
    assert small[0] <= 100 + 3 * math.sqrt(90)
    assert small[1] <= 20 + 3 * math.sqrt(20)


def test_a_fortune_grows_by_the_divergence_of_both_chances():
    p, chance, random = 0.75, 0.9, np.random.default_rng(1)
    rate = chance * math.log(chance / p) + (1 - chance) * math.log((1 - chance) / (1 - p))
    grown = [-math.log(played(p, chance, 400, random).p_value) for _ in range(30)]
    assert np.mean(grown) == pytest.approx(400 * rate, rel=0.15)


def test_the_fewest_games():
    for permitted in (0.5, 0.9, 0.99):
        fortune, needed = Fortune(permitted), fewest_games(permitted, 1e-3, 40)
        for _ in range(int(needed)):
            fortune.settle(fortune.bet(1.0), True)
        assert fortune.p_value < 1e-3
    assert fewest_games(1.0, 1e-3, 40) == math.inf


def test_cautious_bets_need_more_games():
    """With the boldest bet of every game, 1,532 would do, and a check of 2,000 games could never raise an alarm."""
    assert 2_000 < fewest_games(0.995, 1e-3, 40) < 2_500
    assert fewest_games(0.9, 1e-3, 8) > fewest_games(0.9, 1e-3, 400)
