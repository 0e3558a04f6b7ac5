"""Training on every candidate: certain where training is deterministic, statistics where it is not."""

import pytest
import torch

import lostwax as lw
from lostwax.access import Weights
from lostwax.games import Hints, Knowledge, Records, Release
from lostwax.games.protocols import refusal
from lostwax.shadows import Local

KNOWN, PRIOR, SECRETS = lw.records.digits().split(60, 20, 24, seed=0)
NET = lw.nets.mlp(64, 6, 10)
THREAT = lw.Informed(KNOWN, candidates=3)
GD = lw.GD(lr=0.2, momentum=0.9, steps=20, init=lw.inits.LeCunNormal())


def played(attack, trainer, access=None, games=24):
    knowledge = Knowledge(NET, trainer, THREAT, access or Weights(), PRIOR)
    cohort = THREAT.deal(SECRETS, games, seed=3)
    release, hints = trainer(NET, cohort, seed=3), THREAT.hints(cohort, SECRETS, seed=3)
    return cohort, attack.prepare(knowledge, seed=4)(release, hints), hints


def right(cohort, guess):
    return (guess.records.x == cohort.own.x).flatten(1).all(1)


@pytest.mark.parametrize("repeats", [1, 2])
@pytest.mark.parametrize(
    "access", [Weights(), lw.access.Layers("3"), lw.access.Logits(PRIOR.x)], ids=lambda a: type(a).__name__
)
def test_deterministic_training_gives_every_secret_away(access, repeats):
    cohort, guess, hints = played(lw.attacks.Refit(repeats=repeats), GD, access)
    assert right(cohort, guess).all()
    assert torch.equal(guess.records.y, cohort.own.y)
    assert guess.confidence.shape == (24, 1)
    assert (guess.confidence > 0).all()
    assert torch.equal(guess.alternatives.x[:, :1], guess.records.x)
    assert torch.equal(guess.alternatives.x.sum(1), hints.candidates.x.sum(1))


def test_a_private_start_hides_the_secret():
    """S1 Fig. 11. A third is chance among three; the repeats draw starts of their own, never the victim's."""
    cohort, guess, _ = played(lw.attacks.Refit(repeats=4), lw.GD(lr=0.2, steps=5, init=lw.inits.LeCunNormal(seed=None)))
    assert right(cohort, guess).float().mean() < 1 / 3 + 4 * (2 / 9 / 24) ** 0.5


def test_repeats_see_through_a_private_batch_order():
    """One secret pulls its model less than the order of batches does; the mean over orders shows it again."""
    sgd = lw.SGD(lr=0.02, batch_size=16, epochs=3, order_seed=None, init=lw.inits.LeCunNormal())
    cohort, guess, _ = played(lw.attacks.Refit(repeats=6), sgd)
    assert right(cohort, guess).float().mean() > 0.6


@pytest.mark.parametrize("repeats", [1, 2])
def test_chances_never_outweigh_an_exact_match(repeats):
    """Where training is deterministic, a secret of small chance is named all the same."""
    cohort, _, hints = played(lw.attacks.Refit(), GD)
    secret = (hints.candidates.x == cohort.own.x).flatten(2).all(2)
    unlikely = Hints(candidates=hints.candidates, chances=torch.where(secret, 1e-6, 0.5).double())
    reconstruct = lw.attacks.Refit(repeats=repeats).prepare(Knowledge(NET, GD, THREAT, Weights(), PRIOR), seed=0)
    assert right(cohort, reconstruct(GD(NET, cohort, seed=3), unlikely)).all()


def test_where_a_private_start_hides_the_secret_the_chances_count():
    """Repeats give log-likelihoods, so that chances of 1 to 1e60 decide between models that scatter alike."""
    trainer = lw.GD(lr=0.2, steps=5, init=lw.inits.LeCunNormal(seed=None))
    cohort, _, hints = played(lw.attacks.Refit(), trainer, games=8)
    chances = torch.tensor([1e-60, 1.0, 1e-60], dtype=torch.float64).expand(8, 3)
    reconstruct = lw.attacks.Refit(repeats=4).prepare(Knowledge(NET, trainer, THREAT, Weights(), PRIOR), seed=0)
    guess = reconstruct(trainer(NET, cohort, seed=3), Hints(candidates=hints.candidates, chances=chances))
    assert torch.equal(guess.records.x[:, 0], hints.candidates.x[:, 1])


def test_the_answer_does_not_depend_on_the_chunk(monkeypatch):
    _, whole, _ = played(lw.attacks.Refit(), GD, games=6)
    monkeypatch.setattr("lostwax.shadows.game.Local", lambda *_: Local(chunk=1))
    _, cut, _ = played(
        lw.attacks.Refit(), lw.GD(lr=0.2, momentum=0.9, steps=20, tile=4, init=lw.inits.LeCunNormal()), games=6
    )
    assert torch.equal(whole.alternatives.x, cut.alternatives.x)


def test_a_function_is_called_once_for_each_candidate_and_once_more_to_check_it():
    called = []

    def train(net, x, y, seed):
        called.append(float(x[-1].sum()))
        with torch.no_grad():
            net[1].weight[0] += x.sum(0).flatten()
        return net

    trainer = lw.OwnTraining(train, seed=0)
    knowledge = Knowledge(NET, trainer, THREAT, Weights(), PRIOR)
    cohort = THREAT.deal(SECRETS, 2, seed=3)
    release, hints = trainer(NET, cohort, seed=3), THREAT.hints(cohort, SECRETS, seed=3)
    called.clear()
    guess = lw.attacks.Refit(repeats=2).prepare(knowledge, seed=4)(release, hints)
    assert right(cohort, guess).all()
    each = hints.candidates.x.flatten(0, 1).flatten(1).sum(1).tolist()
    assert called == [*each[:2], each[0], *each[2:], *each]


def test_a_function_that_keeps_its_net_is_an_error():
    """Each of its models would contain the candidates before: no answer could be trusted."""
    kept = lw.nets.mlp(64, 6, 10)

    def train(net, x, y, seed):
        with torch.no_grad():
            kept[1].weight[0] += x.sum(0).flatten()
        return kept

    cohort = THREAT.deal(SECRETS, 2, seed=3)
    release = lw.GD(lr=0.1, steps=1)(NET, cohort, seed=3)
    knowledge = Knowledge(NET, lw.OwnTraining(train, seed=0), THREAT, Weights(), PRIOR)
    attack = lw.attacks.Refit().prepare(knowledge, seed=4)
    with pytest.raises(ValueError, match="keeps a net from an earlier call"):
        attack(release, THREAT.hints(cohort, SECRETS, seed=3))


def test_scores_are_the_pooled_gaussians():
    """Against the slow definition: all repeats kept, variances by torch.var, two games of three candidates."""
    trainer = lw.SGD(
        lr=0.05, batch_size=16, epochs=1, order_seed=None, dtype=torch.float64, init=lw.inits.LeCunNormal()
    )
    knowledge = Knowledge(NET, trainer, THREAT, Weights(), PRIOR)
    reconstruct = lw.attacks.Refit(repeats=3).prepare(knowledge, seed=0)
    candidates = SECRETS[:6]
    seen = torch.zeros(2, sum(value.numel() for value in NET.parameters()), dtype=torch.float64)
    mean, variance = reconstruct.moments(candidates, seen)
    trained = [reconstruct._trained(candidates, None, "refit", turn) for turn in range(3)]
    runs = torch.stack([torch.cat([part for _, part in chunks]) for chunks in trained])
    torch.testing.assert_close(mean, runs.mean(0))
    of_games = runs.var(0).view(2, 3, -1).mean(1)  # equal repeats: pooled is the mean
    torch.testing.assert_close(variance, of_games * 4 / 3)


def test_a_game_is_the_same_alone_and_among_others():
    trainer = lw.SGD(lr=0.05, batch_size=16, epochs=1, order_seed=None, init=lw.inits.LeCunNormal())
    knowledge = Knowledge(NET, trainer, THREAT, Weights(), PRIOR)
    cohort = THREAT.deal(SECRETS, 4, seed=0)
    release, hints = trainer(NET, cohort, seed=0), THREAT.hints(cohort, SECRETS, seed=0)
    reconstruct = lw.attacks.Refit(repeats=3).prepare(knowledge, seed=1)
    together = reconstruct(release, hints)
    first = slice(0, 1)
    alone = reconstruct(
        Release({name: value[first] for name, value in release.params.items()}),
        Hints(candidates=hints.candidates[first]),
    )
    assert torch.equal(alone.records.x, together.records.x[first])
    torch.testing.assert_close(alone.confidence, together.confidence[first])


def test_a_candidate_that_diverges_is_not_the_answer_and_spoils_nothing():
    cohort, _, hints = played(lw.attacks.Refit(), GD, games=4)
    x = hints.candidates.x.clone()
    decoy = (x[0] != cohort.own.x[0]).flatten(1).any(1).nonzero()[0, 0]
    x[0, decoy] = 1e30
    knowledge = Knowledge(NET, GD, THREAT, Weights(), PRIOR)
    for repeats in (1, 2):
        reconstruct = lw.attacks.Refit(repeats=repeats).prepare(knowledge, seed=0)
        guess = reconstruct(GD(NET, cohort, seed=3), Hints(candidates=Records(x, hints.candidates.y)))
        assert right(cohort, guess).all()


def test_objects_where_there_is_nothing_to_choose_from():
    knowledge = Knowledge(NET, GD, lw.Informed(KNOWN), Weights(), PRIOR)
    sentence = refusal(lw.attacks.Refit(), knowledge)
    assert sentence.startswith("Refit is not applicable")
    assert sentence.endswith("Use threat=Informed(known, candidates=2).")
    with pytest.raises(ValueError, match="Refit is not applicable"):
        lw.attacks.Refit().prepare(knowledge, seed=0)
    reconstruct = lw.attacks.Refit().prepare(Knowledge(NET, GD, THREAT, Weights(), PRIOR), seed=0)
    with pytest.raises(ValueError, match="expected candidates to choose among"):
        reconstruct(GD(NET, THREAT.deal(SECRETS, 1, seed=0), seed=0))
    with pytest.raises(ValueError, match="expected repeats >= 1, got 0"):
        lw.attacks.Refit(repeats=0)
