"""A planted leak is found; where there is none, nothing is."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from attacks.reconn.game import ATTACK, KNOWN, NET, SECRETS, Leaks, errors, knowledge
from lostwax.games import Hints, Informed, Records, Release
from lostwax.inits import LeCunNormal
from lostwax.nets import mlp
from lostwax.trainers import GD


@pytest.fixture(scope="module")
def found():
    return ATTACK.prepare(knowledge(Leaks()), seed=0)


def test_a_planted_leak_is_found(found):
    (error, blind), guess, cohort = errors(found, Leaks())
    assert error.mean() < 0.1 * blind.mean()
    assert (guess.records.y == cohort.own.y).float().mean() > 0.95
    assert guess.records.x.shape == cohort.own.x.shape
    assert found.validation_error == pytest.approx(float(error.mean()), rel=0.5)


def test_a_victim_that_ignores_its_record_gives_the_blind_guess():
    silent = Leaks(strength=0.0)
    (error, blind), guess, cohort = errors(ATTACK.prepare(knowledge(silent), seed=0), silent)
    assert error.mean() == pytest.approx(float(blind.mean()), rel=0.1)
    assert 0.2 < (guess.records.y == cohort.own.y).float().mean() < 0.47


def test_permuting_targets_destroys_success(found):
    learned_wrong = ATTACK.prepare(knowledge(Leaks(turned=1)), seed=0)
    (error, blind), _, _ = errors(learned_wrong, Leaks())
    assert error.mean() > 0.9 * blind.mean()
    (error, blind), _, _ = errors(found, Leaks(turned=1))
    assert error.mean() > 1.5 * blind.mean()  # somebody else's record, rebuilt well


def test_it_is_deterministic_for_a_seed_and_leaves_torchs_generator_alone():
    quick = replace(ATTACK, epochs=2)
    before = torch.random.get_rng_state()
    release = Leaks()(NET, Informed(KNOWN).deal(SECRETS, 5, seed=0), seed=0)
    one, two, other = (quick.prepare(knowledge(Leaks()), seed=seed)(release) for seed in (3, 3, 4))
    assert torch.equal(one.records.x, two.records.x)
    assert torch.equal(one.confidence, two.confidence)
    assert not torch.equal(one.records.x, other.records.x)
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_adversary_draws_none_of_the_victims_private_randomness():
    trainer = Leaks()
    replace(ATTACK, epochs=1).prepare(knowledge(trainer), seed=7)
    assert 7 not in trainer.seeds
    assert len(set(trainer.seeds)) == 2  # shadows to learn from, shadows to be tested on


def test_confidence_ranks_the_errors():
    """Secrets unlike the prior are rebuilt worse, and the attack says so without seeing them."""
    found = ATTACK.prepare(knowledge(Leaks()), seed=0)
    odd = Records(torch.cat([SECRETS.x, 3 * SECRETS.x[:100]]), torch.cat([SECRETS.y, SECRETS.y[:100]]))
    (error, _), guess, _ = errors(found, Leaks(), odd)
    assert guess.confidence.max() < 0
    assert spearmanr(-guess.confidence[:, 0], error).statistic > 0.3


def test_a_label_that_is_told_is_not_guessed(found):
    cohort = Informed(KNOWN).deal(SECRETS, 4, seed=0)
    told = torch.full((4, 1), 2)
    assert torch.equal(found(Leaks()(NET, cohort, seed=0), Hints(labels=told)).records.y, told)


def test_tables_and_real_valued_labels():
    """A linear model's weights, unbounded records, a number for a label."""
    random = np.random.default_rng(0)
    x = torch.from_numpy(random.normal(5, 3, (300, 4)))
    records = Records(x, x.sum(1))
    prior, secrets = records[:200], records[200:]

    def tell(net, cohort, *, seed):
        own = torch.cat([cohort.own.x[:, 0], cohort.own.y], 1)
        return Release({"weight": own})

    tell.tile_size = lambda net, cohort: 1_000
    threat = Informed(records[:1])
    found = ATTACK.prepare(replace(knowledge(tell, prior), threat=threat), seed=0)
    cohort = threat.deal(secrets, len(secrets), seed=0)
    guess = found(tell(NET, cohort, seed=0))
    assert guess.records.x.dtype == torch.float64
    assert (guess.records.x - cohort.own.x).square().mean() < 0.15 * x.var()
    assert (guess.records.y - cohort.own.y).square().mean() < 0.15 * records.y.var()


def test_divergence_is_named():
    game = replace(knowledge(GD(lr=1e30, steps=4, init=LeCunNormal(seed=None))), net=mlp(6, 4, 3))
    with pytest.raises(ValueError, match=r"RecoNN: \d+ of 360 shadow models hold NaN or infinite numbers"):
        ATTACK.prepare(game, seed=0)
