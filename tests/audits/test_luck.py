"""What luck alone gives, against slow definitions, and that noise seldom looks like a leak."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

import lostwax as lw
from audits.game import Publishes
from lostwax.audits.luck import Rules, Scores, luck, luck_of_swapped
from lostwax.games import Guess, Records
from lostwax.games.judges import OneToOne

NOTHING = Records(torch.zeros(0, 3, dtype=torch.float64), torch.zeros(0, dtype=torch.long))


def score(guess, truth):
    errors = (guess - truth).square().mean(1).sqrt().numpy()
    return Scores(errors, errors)


def rules(best, threshold=0.5):
    """One baseline, with this error for every game."""
    return Rules(OneToOne(), score, lambda games: [Scores(best[games.numpy()], best[games.numpy()])], threshold)


def test_the_shares_are_means_over_all_other_secrets():
    random = torch.Generator().manual_seed(0)
    truth = torch.randn(12, 3, generator=random, dtype=torch.float64)
    guess = truth + torch.randn(12, 3, generator=random, dtype=torch.float64)
    best = np.linspace(0.4, 2.0, 12)
    y = torch.zeros(12, 1, dtype=torch.long)
    found = luck(rules(best), Records(guess[:, None], y), Records(truth[:, None], y), pool=NOTHING)
    error = np.array([[float((g - t).square().mean().sqrt()) for t in truth] for g in guess])  # (guess, truth)
    own = np.eye(12, dtype=bool)
    assert (found.games, found.rebuilt, found.nearer) == (12, (error[own] <= 0.5).sum(), (error[own] < best).sum())
    assert found.rebuilt_by_luck == pytest.approx((error <= 0.5).mean())
    assert found.nearer_by_luck == pytest.approx((error < best).mean())
    assert found.farther == pytest.approx((error > error[own][:, None])[~own].mean())


def test_where_the_label_is_given_only_games_with_it_are_compared():
    y = torch.arange(20)[:, None] % 2
    truth = 5.0 * y + torch.rand(20, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    guess = (5.0 * y + 0.5).double()  # what the label alone tells
    games = Records(guess[:, None], y), Records(truth[:, None], y)
    pool = Records(torch.zeros(0, 1, dtype=torch.float64), torch.zeros(0, dtype=torch.long))
    best = np.full(20, 1.0)
    assert luck(rules(best), *games, pool=pool).farther > 0.7  # as if it owed something to its secret
    given = luck(rules(best), *games, pool=pool, given=y)
    assert given.farther == pytest.approx(0.5)
    assert (given.nearer, given.nearer_by_luck) == (20, 1.0)
    alone = torch.arange(20)[:, None]  # a label for each game: nothing can be compared
    assert luck(rules(best), *games, pool=pool, given=alone) is None


def test_one_game_is_compared_with_what_the_adversary_has():
    one = Records(torch.full((1, 1, 3), 1.001, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.long))
    truth = Records(torch.ones(1, 1, 3, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.long))
    assert luck(rules(np.ones(1)), one, truth, pool=NOTHING) is None
    random = torch.Generator().manual_seed(0)
    pool = Records(9 + torch.rand(99, 3, generator=random, dtype=torch.float64), torch.zeros(99))
    found = luck(rules(np.ones(1)), one, truth, pool=pool)
    nearest = float((pool.x - 1.001).square().mean(1).sqrt().min())
    assert found.closest == pytest.approx(0.001 / nearest / 100)  # nearer by a factor than the nearest of 99 others
    twin = Records(torch.cat([pool.x, truth.x[0]]), torch.zeros(100))
    assert luck(rules(np.ones(1)), one, truth, pool=twin).closest == pytest.approx(2 / 101)


def test_a_release_of_another_game_tells_what_hints_alone_are_worth():
    truth = torch.arange(40.0, dtype=torch.float64).reshape(40, 1, 1)
    y = torch.zeros(40, 1)
    rule, games = rules(np.full(40, 0.2)), torch.arange(40)
    secrets, exact, near = (Records(part, y) for part in (truth, truth + 1e-9, truth + 0.1))
    same = luck_of_swapped(rule, exact, exact, secrets, games)
    assert (same.rebuilt, same.rebuilt_by_luck, same.farther) == (40, 1.0, 0.5)
    better = luck_of_swapped(rule, exact, Records(truth + 3, y), secrets, games)
    assert (better.rebuilt, better.rebuilt_by_luck, better.farther) == (40, 0.0, 1.0)
    assert (same.rebuilt_pairs, better.rebuilt_pairs) == ((0, 0), (40, 0))
    assert luck_of_swapped(rule, near, exact, secrets, games).farther == 0.0


@dataclass(frozen=True)
class Noise:
    """Guesses that owe nothing to the release: the mean and noise, other records, or one of each class."""

    kind: str
    seed: int

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        def reconstruct(release, hints=None):
            random = torch.Generator().manual_seed(self.seed)
            m, x = len(release), knowledge.prior.x
            rows = torch.randint(len(x), (m,), generator=random)
            if self.kind == "record":
                guess = x[rows]
            elif self.kind == "mean":
                guess = x.mean(0) + 0.3 * torch.randn((m, *x.shape[1:]), generator=random).to(x)
            else:
                labels = hints.labels[:, 0]
                guess = torch.stack([x[knowledge.prior.y == label].mean(0) for label in labels])
                guess = guess + 0.1 * torch.randn(guess.shape, generator=random).to(x)
            return Guess(Records(guess[:, None], knowledge.prior.y[rows][:, None]), torch.zeros(m, 1))

        return reconstruct


@pytest.mark.parametrize("kind", ["record", "mean", "class"])
def test_noise_is_seldom_graded_above_chance(kind):
    """Tables of 1 to 20 columns, some of few values, 5 to 60 games: at most 1 % of audits alarm."""
    alarms = audits = 0
    for seed in range(80):
        random = np.random.default_rng(seed)
        d, games = int(random.choice([1, 2, 5, 20])), int(random.choice([5, 12, 30, 60]))
        x = random.normal(size=(140 + games, d))
        if seed % 4 == 3:
            x = np.round(x)  # records repeat
        y = random.integers(3, size=len(x))
        x = x + 2 * y[:, None] * (seed % 2)
        records = Records(torch.from_numpy(x), torch.from_numpy(y))
        known, prior, secrets = records[:40], records[40:140], records[140:]
        audit = lw.audit(
            nn.Identity(),
            trainer=Publishes(),
            threat=lw.Informed(known, label_known=kind == "class"),
            attack=Noise(kind, seed),
            prior=prior,
            secrets=Records(secrets.x + (1e-9 if seed % 4 == 3 else 0), secrets.y),  # never the very record
            seed=seed,
        )
        audits += 1
        alarms += audit.grade.leaks
    assert alarms <= 4, f"{alarms} of {audits}"  # 0.8 are expected at most; 5 or more have a chance of 0.1 %


def many(leaks, seed):
    """2,000 guesses of noise, of which some are the very secret."""
    random = torch.Generator().manual_seed(seed)
    truth, guess = (torch.randn(2_000, 1, 3, generator=random).double() for _ in range(2))
    guess[:leaks] = truth[:leaks] + 1e-9
    y = torch.arange(2_000)[:, None] % 2
    return Records(guess, y), Records(truth, y)


@pytest.mark.parametrize("given", [False, True])
def test_many_games_are_compared_by_a_sample(given, monkeypatch):
    """The shares of a sample are near those of all games; what is counted is counted in all of them."""
    guesses, secrets = many(leaks=300, seed=0)
    labels = secrets.y if given else None
    every = luck(rules(np.full(2_000, 0.8)), guesses, secrets, pool=NOTHING, given=labels)
    monkeypatch.setattr("lostwax.audits.luck.MOST_PAIRS", 6_000)  # 300 games, 20 rounds
    some = luck(rules(np.full(2_000, 0.8)), guesses, secrets, pool=NOTHING, given=labels)
    assert (some.games, some.rebuilt, some.nearer, some.closest) == (2_000, every.rebuilt, every.nearer, every.closest)
    assert some.closest < 1e-3
    assert some.rebuilt_by_luck == pytest.approx(every.rebuilt_by_luck, abs=0.02)
    assert some.nearer_by_luck == pytest.approx(every.nearer_by_luck, abs=0.02)
    assert some.farther == pytest.approx(every.farther, abs=0.04)


def test_one_leak_among_many_games_of_noise_is_seen(monkeypatch):
    monkeypatch.setattr("lostwax.audits.luck.MOST_PAIRS", 6_000)
    assert luck(rules(np.full(2_000, 0.8)), *many(leaks=1, seed=1), pool=NOTHING).closest < 1e-3
    assert luck(rules(np.full(2_000, 0.8)), *many(leaks=0, seed=1), pool=NOTHING).closest > 0.1
