"""Candidates told apart by the published steps of DP-SGD, against slow definitions and the best that can be done."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import lostwax as lw
from lostwax.access import Weights
from lostwax.games import Hints, Knowledge, Records
from lostwax.games.protocols import refusal
from lostwax.nets import mlp
from lostwax.trainers.stacked import Architecture, record_gradients
from of_papers import paper_lib

best_success = paper_lib("other_bounds").best_success
KNOWN, PRIOR, SECRETS = lw.records.digits().split(20, 5, 400, seed=0)
NET = mlp(64, 5, 10)
FULL = lw.DPSGD(lr=0.5, clip=0.1, noise_multiplier=4.0, steps=10, init=lw.inits.LeCunNormal())
SAMPLED = lw.DPSGD(lr=0.5, clip=0.1, noise_multiplier=1.0, steps=10, sample_rate=0.15, init=lw.inits.LeCunNormal())
MASKED = replace(SAMPLED, sample_rate=0.6)


def game(trainer, attack, m=6, candidates=4, known=KNOWN):
    threat = lw.Informed(known, candidates=candidates)
    cohort = threat.deal(SECRETS, m, seed=0)
    hints = threat.hints(cohort, SECRETS, seed=0)
    chooser = attack.prepare(Knowledge(NET, trainer, threat, Weights(), PRIOR), seed=0)
    return chooser, cohort, trainer(NET, cohort, seed=0), hints


def right(guess, cohort):
    return (guess.records.x == cohort.own.x).flatten(1).all(1)


def clipped(trainer, params, x, y):
    """(c, p) by autograd, one record after the other."""
    rows = []
    for one, label in zip(x, y, strict=True):
        leaves = {name: value.clone().requires_grad_() for name, value in params.items()}
        loss = torch.nn.functional.cross_entropy(torch.func.functional_call(NET, leaves, (one[None],)), label[None])
        flat = torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(leaves.values()))])
        rows.append(flat * min(1.0, trainer.clip / float(flat.norm())))
    return torch.stack(rows)


@pytest.mark.parametrize("trainer", [FULL, SAMPLED, MASKED], ids=["full batch", "gathered", "masked"])
def test_the_scores_are_the_papers(trainer):
    trainer = replace(trainer, clip=0.8, dtype=torch.float64)
    chooser, _, release, hints = game(trainer, lw.PriorAware(), m=3)
    q, sigma, scores, evidence = trainer.sample_rate, trainer.noise_multiplier, [], []
    for row in range(3):
        products, likelihoods = [], []
        for step in release.steps():
            params = {name: value[row] for name, value in step.params.items()}
            published = torch.cat([value[row].flatten() for value in step.gradient.values()]) * q * 21
            counted = torch.ones(20) if step.sampled is None else step.sampled[row]
            known = clipped(trainer, params, KNOWN.x.double(), KNOWN.y)
            rest = published - (counted[:, None] * known).sum(0)  # gbar_t
            g = clipped(trainer, params, hints.candidates.x[row].double(), hints.candidates.y[row])  # (c, p)
            products.append(g @ rest)
            far, near = rest.square().sum(), (rest - g).square().sum(1)
            likelihoods.append(torch.log(1 - q + q * torch.exp((far - near) / (2 * sigma**2 * trainer.clip**2))))
        evidence.append(torch.stack(products) / trainer.clip**2)
        scores.append(torch.stack(likelihoods).sum(0))
    observed = [step.products for step in chooser.observed(release, hints.candidates)]
    torch.testing.assert_close(torch.stack(observed, 1), torch.stack(evidence))
    torch.testing.assert_close(chooser.scores(release, hints.candidates), torch.stack(scores))


def best_possible(trainer, release, hints):
    """How often the best rule is right, by the candidates' own Gram matrix."""
    net = Architecture.of(NET, torch.device("cpu"), torch.float32)
    gram = 0.0
    for step in release.steps():
        records = hints.candidates.x, hints.candidates.y
        parts = record_gradients(net, trainer.loss, dict(step.params), records)
        flat = torch.cat([part.flatten(2) for part in parts.values()], 2)  # (m, c, p)
        flat = flat * (trainer.clip / flat.norm(dim=2, keepdim=True)).clamp_max(1)
        gram = gram + flat @ flat.mT / (trainer.clip * trainer.noise_multiplier) ** 2
    return best_success(gram.double().numpy())


@pytest.mark.parametrize("clip", [0.1, 2.0], ids=["all clipped", "few clipped"])
def test_it_is_right_as_often_as_the_best_rule_and_stays_under_the_ceiling(clip):
    trainer = replace(FULL, clip=clip)
    chooser, *played = game(trainer, lw.PriorAware(), m=400, candidates=5)
    cohort, release, hints = played
    rate = float(right(chooser(release, hints), cohort).double().mean())
    spread = (0.25 / 400) ** 0.5
    assert abs(rate - best_possible(trainer, release, hints)) < 3 * spread
    assert rate < lw.bound(**trainer.mechanism(), baseline=0.2).upper + 3 * spread
    assert rate > 0.2 + 3 * spread


def test_with_little_noise_the_likelihood_is_always_right_also_in_mini_batches():
    trainer = replace(SAMPLED, noise_multiplier=0.05, steps=40)
    chooser, cohort, release, hints = game(trainer, lw.PriorAware(), m=60)
    assert right(chooser(release, hints), cohort).double().mean() > 0.95


def test_without_subtracting_what_is_known_it_fails_where_much_is():
    known, _ = lw.records.digits().without(SECRETS, PRIOR).split(300, 1, seed=0)
    trainer = replace(FULL, noise_multiplier=0.5)
    rates = []
    for attack in (lw.PriorAware(), lw.PriorAware(subtract_known=False)):
        chooser, cohort, release, hints = game(trainer, attack, m=60, known=known)
        rates.append(float(right(chooser(release, hints), cohort).double().mean()))
    assert rates[0] > 0.95
    assert rates[1] < 0.6


def test_unequal_chances_are_weighed():
    """The secret is the first candidate in 80 % of games: who knows that is right more often."""
    m, c = 300, 3
    random = torch.Generator().manual_seed(0)
    rows = torch.stack([torch.randperm(len(SECRETS), generator=random)[:c] for _ in range(m)])
    candidates = SECRETS[rows]
    secret = torch.where(torch.rand(m, generator=random) < 0.8, 0, torch.randint(1, c, (m,), generator=random))
    own = Records(*(part[torch.arange(m), secret].unsqueeze(1) for part in (candidates.x, candidates.y)))
    cohort = replace(lw.Informed(KNOWN).deal(SECRETS, m, seed=0), own=own)
    trainer = replace(FULL, noise_multiplier=12.0)
    chooser, *_ = game(trainer, lw.PriorAware(), candidates=c)
    release = trainer(NET, cohort, seed=0)
    chances = torch.tensor([0.8, 0.1, 0.1]).expand(m, c)
    blind, told = (
        float(right(chooser(release, hints), cohort).double().mean())
        for hints in (Hints(candidates=candidates), Hints(candidates=candidates, chances=chances))
    )
    assert told > blind + 0.1
    assert told >= 0.8 - 3 * (0.16 / m) ** 0.5


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trainer": lw.GD()}, "this GD publishes only the final weights"),
        ({"threat": lw.Informed(KNOWN)}, "it chooses among candidates"),
        ({"threat": object()}, "the adversary is object"),
        ({"trainer": replace(FULL, noise_multiplier=0.0)}, "no noise"),
        ({"trainer": replace(FULL, publish_steps=False)}, "this DPSGD publishes only the final weights"),
        ({"access": lw.access.Logits(PRIOR.x)}, "the adversary sees Logits"),
    ],
)
def test_objections(changes, words):
    knowledge = Knowledge(NET, FULL, lw.Informed(KNOWN, candidates=2), Weights(), PRIOR)
    assert lw.PriorAware().objection(knowledge) is None
    sentence = refusal(lw.PriorAware(), replace(knowledge, **changes))
    assert words in sentence
    assert sentence.startswith("PriorAware is not applicable: ")
    with pytest.raises(ValueError, match="PriorAware is not applicable"):
        lw.PriorAware().prepare(replace(knowledge, **changes), seed=0)


def test_a_release_without_steps_is_refused():
    chooser, _, release, hints = game(FULL, lw.PriorAware())
    with pytest.raises(ValueError, match=r"expected the steps of DP-SGD to be published"):
        chooser(replace(release, steps=None), hints)


@pytest.mark.parametrize("attack", [lw.Newton(), lw.ClosedForm()], ids=lambda attack: type(attack).__name__)
def test_attacks_on_deterministic_training_object_to_noise(attack):
    objection = attack.objection(Knowledge(NET, FULL, lw.Informed(KNOWN), Weights(), PRIOR))
    assert "DPSGD" in objection


def test_features_are_what_gradients_are_taken_of():
    with_features = [replace(part, features=part.x.flatten(1) * np.float32(2)) for part in (KNOWN, SECRETS)]
    known, secrets = with_features
    threat = lw.Informed(known, candidates=4)
    cohort = threat.deal(secrets, 40, seed=0)
    trainer = replace(FULL, noise_multiplier=0.2)
    chooser = lw.PriorAware().prepare(Knowledge(NET, trainer, threat, Weights(), PRIOR), seed=0)
    guess = chooser(trainer(NET, cohort, seed=0), threat.hints(cohort, secrets, seed=0))
    assert right(guess, cohort).double().mean() > 0.95
