"""Records rebuilt from the published steps of DP-SGD without a prior."""

from dataclasses import replace

import pytest
import torch

import lostwax as lw
from lostwax.access import Weights
from lostwax.attacks.dp_steps import gradient_inversion as inversion
from lostwax.games import Knowledge
from lostwax.games.protocols import refusal
from lostwax.nets import mlp

KNOWN, PRIOR, SECRETS = lw.records.digits().split(20, 50, 4, seed=0)
NET = mlp(64, 10, 10)
TRAINER = lw.DPSGD(lr=5.0, clip=0.1, noise_multiplier=0.02, steps=20, init=lw.inits.LeCunNormal())
ATTACK = lw.GradientInversion(iterations=100, restarts=1, steps_at_a_time=10, prior=False)  # S3's


def play(attack=ATTACK, trainer=TRAINER, threat=None, games=3):
    threat = threat or lw.Informed(KNOWN, label_known=True)
    cohort = threat.deal(SECRETS, games, seed=0)
    rebuild = attack.prepare(Knowledge(NET, trainer, threat, Weights(), PRIOR), seed=0)
    return rebuild, cohort, trainer(NET, cohort, seed=0), threat.hints(cohort, SECRETS, seed=0)


def errors(guess, cohort):
    return (guess.records.x - cohort.own.x).square().flatten(1).mean(1)


def test_little_noise_hides_nothing_and_much_hides_all():
    rebuild, cohort, release, hints = play()
    guess = rebuild(release, hints)
    assert errors(guess, cohort).max() < 0.005
    assert guess.records.x.min() >= 0
    assert guess.records.x.max() <= 1
    rebuild, cohort, release, hints = play(trainer=replace(TRAINER, noise_multiplier=20.0))
    blind = (PRIOR.x.mean(0) - cohort.own.x).square().mean()
    assert errors(rebuild(release, hints), cohort).mean() > blind


def test_labels_that_are_not_told_race():
    rebuild, cohort, release, _ = play(replace(ATTACK, iterations=60), threat=lw.Informed(KNOWN), games=2)
    guess = rebuild(release)
    assert torch.equal(guess.records.y, cohort.own.y)
    assert errors(guess, cohort).max() < 0.02


def test_a_prior_sees_through_noise_that_hides_the_record_from_the_papers_attack():
    noisy = replace(TRAINER, noise_multiplier=0.5)
    found = {}
    for prior in (False, True):
        rebuild, cohort, release, hints = play(replace(ATTACK, prior=prior), trainer=noisy, games=4)
        found[prior] = errors(rebuild(release, hints), cohort).mean()
    of_class = [PRIOR.x[label == PRIOR.y].mean(0) for label in cohort.own.y[:, 0]]
    blind = (torch.stack(of_class) - cohort.own.x[:, 0]).square().mean()
    assert found[True] < 0.7 * blind < 0.7 * found[False]


def test_under_much_noise_a_prior_answers_its_mean():
    deafening = replace(TRAINER, lr=0.01, noise_multiplier=50.0)
    rebuild, cohort, release, hints = play(replace(ATTACK, prior=True), trainer=deafening)
    mean = rebuild.search.law(torch.zeros(3, 1, len(rebuild.search.law.directions)), cohort.own.y).view_as(cohort.own.x)
    assert (rebuild(release, hints).records.x - mean).abs().max() < 0.05


def test_with_a_prior_labels_race_too():
    attack = replace(ATTACK, iterations=60, prior=True)
    rebuild, cohort, release, _ = play(attack, threat=lw.Informed(KNOWN), games=2)
    assert torch.equal(rebuild(release).records.y, cohort.own.y)


def test_a_prior_finds_a_secret_that_is_in_some_of_the_steps():
    """Taken to be in every step, it was pulled to where it is worse than the mean of its class."""
    attack, trainer = replace(ATTACK, iterations=80, prior=True), replace(TRAINER, steps=40, sample_rate=0.2)
    rebuild, cohort, release, hints = play(attack, trainer=trainer, games=2)
    of_class = torch.stack([PRIOR.x[label == PRIOR.y].mean(0) for label in cohort.own.y[:, 0]])
    blind = (of_class - cohort.own.x[:, 0]).square().mean()
    assert errors(rebuild(release, hints), cohort).mean() < 0.5 * blind


def linear_game(noise, label_known, **fields):
    """Records of six numbers, which a prior of two hundred spans."""
    draws = torch.Generator().manual_seed(3)
    known, prior, secrets = lw.games.Records(torch.rand(300, 6, generator=draws), torch.arange(300) % 3).split(
        12, 200, 60, seed=0
    )
    trainer = lw.DPSGD(lr=0.1, clip=0.5, noise_multiplier=noise, steps=20)
    threat, net = lw.Informed(known, label_known=label_known), torch.nn.Linear(6, 3)
    cohort = threat.deal(secrets, 4, seed=0)
    attack = lw.GradientInversion(iterations=150, **fields)
    rebuild = attack.prepare(Knowledge(net, trainer, threat, Weights(), prior), seed=1)
    return rebuild, cohort, trainer(net, cohort, seed=0)


def test_with_a_prior_the_error_falls_with_the_noise_to_nothing():
    """Gradients clipped by what is typical leave an error of 0.005 that no noise explains."""
    rebuild, cohort, release = linear_game(0.001, label_known=True)
    assert errors(rebuild(release, lw.games.Hints(labels=cohort.own.y)), cohort).max() < 5e-4


def test_under_moderate_noise_it_is_no_worse_than_with_gradients_clipped_as_is_typical(monkeypatch):
    """Clipped by their own length, estimates shrank, for nothing but the clipping held their length: 12 % worse."""
    draws = torch.Generator().manual_seed(3)
    records = lw.games.Records(torch.randn(1_000, 60, generator=draws), torch.arange(1_000) % 3)
    known, prior, secrets = records.split(12, 600, 60, seed=0)
    trainer = lw.DPSGD(lr=0.1, clip=0.5, noise_multiplier=0.3, steps=20)
    threat, net = lw.Informed(known, label_known=True), torch.nn.Linear(60, 3)
    cohort = threat.deal(secrets, 20, seed=0)
    attack = lw.GradientInversion(iterations=150, restarts=1, steps_at_a_time=10)
    rebuild = attack.prepare(Knowledge(net, trainer, threat, Weights(), prior), seed=0)
    release, hints = trainer(net, cohort, seed=0), lw.games.Hints(labels=cohort.own.y)
    found = errors(rebuild(release, hints), cohort).mean()
    monkeypatch.setattr(inversion, "TYPICAL_SHARE", 1.0)
    assert found < 1.03 * errors(rebuild(release, hints), cohort).mean()


def test_the_confidence_is_the_lead_over_another_label_not_over_another_start():
    rebuild, cohort, release = linear_game(0.5, label_known=False, restarts=2)
    told = [rebuild(release, lw.games.Hints(labels=torch.full_like(cohort.own.y, label))) for label in range(3)]
    leads = torch.stack([guess.confidence for guess in told]).sort(dim=0).values  # over no record at all
    torch.testing.assert_close(rebuild(release).confidence, leads[2] - leads[1], rtol=0.02, atol=0.02)


def test_a_class_that_no_record_at_hand_has():
    rebuild, cohort, release = linear_game(0.5, label_known=True)
    with pytest.raises(ValueError, match=r"a label that no known or prior record has.*Add some to the prior"):
        rebuild(release, lw.games.Hints(labels=torch.full_like(cohort.own.y, 3)))


def test_more_starts_never_fit_worse():
    misfits = []
    for restarts in (1, 3):
        rebuild, cohort, release, hints = play(replace(ATTACK, iterations=10, restarts=restarts))
        ((history, labels),) = rebuild._histories(release, cohort.own.y)
        x = rebuild(release, hints).records.x
        misfits.append(rebuild._misfit(x, labels, history)[:, 0])
    assert (misfits[1] <= misfits[0] + 1e-3).all()


def test_the_misfit_is_the_papers():
    trainer = replace(TRAINER, clip=0.7, dtype=torch.float64, steps=3)
    rebuild, cohort, release, _ = play(trainer=trainer)
    ((history, labels),) = rebuild._histories(release, cohort.own.y)
    x = torch.rand(3, 1, 1, 8, 8, dtype=torch.float64)
    wanted = torch.zeros(3, dtype=torch.float64)
    for row in range(3):
        for t in range(3):
            leaves = {name: value[row, t].clone().requires_grad_() for name, value in history.params.items()}
            logits = torch.func.functional_call(NET.double(), leaves, (x[row],))
            loss = torch.nn.functional.cross_entropy(logits, labels[row])
            g = torch.cat([part.flatten() for part in torch.autograd.grad(loss, list(leaves.values()))])
            g = g * min(1.0, 0.7 / float(g.norm())) / 0.7
            rest = torch.cat([value[row, t].flatten() for value in history.secret_gradient.values()])
            wanted[row] += (g - rest).abs().sum() - g @ rest
    NET.float()
    torch.testing.assert_close(rebuild._misfit(x, labels, history)[:, 0], wanted)


def test_memory_for_fewer_models_at_a_time_changes_nothing(monkeypatch):
    attack = replace(ATTACK, iterations=5)
    rebuild, _, release, hints = play(attack)
    whole = rebuild(release, hints).records.x
    monkeypatch.setitem(inversion.STEP_BYTES, "cpu", 1)
    assert len(list(rebuild._histories(release, hints.labels))) == 3
    torch.testing.assert_close(rebuild(release, hints).records.x, whole, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"trainer": lw.GD()}, "this GD publishes only"),
        ({"threat": lw.Informed(KNOWN, parts=torch.ones(1, 8, 8).triu().bool())}, "cannot use known parts"),
        (
            {"trainer": replace(TRAINER, sample_rate=0.3)},
            "sample_rate=0.3 it is in some. Use GradientInversion(prior=True)",
        ),
        ({"prior": replace(PRIOR, features=PRIOR.x.flatten(1))}, "through a backbone"),
        ({"prior": replace(PRIOR, y=PRIOR.y.float())}, "real numbers"),
    ],
)
def test_objections(changes, words):
    knowledge = Knowledge(NET, TRAINER, lw.Informed(KNOWN), Weights(), PRIOR)
    assert ATTACK.objection(knowledge) is None
    sentence = refusal(ATTACK, replace(knowledge, **changes))
    assert words in sentence
    assert sentence.startswith("GradientInversion is not applicable: ")


@pytest.mark.parametrize("fields", [{"iterations": 0}, {"restarts": 0}, {"steps_at_a_time": 0}, {"lr": 0.0}])
def test_fields_are_checked(fields):
    (name,) = fields
    with pytest.raises(ValueError, match=rf"GradientInversion: expected {name} "):
        lw.GradientInversion(**fields)


def test_it_answers_among_candidates_through_the_nearest():
    """S3 appendix D: a reconstruction turned into success over a discrete prior."""
    threat = lw.Informed(KNOWN, label_known=True, candidates=3)
    rebuild, cohort, release, hints = play(lw.attacks.NearestCandidate(ATTACK), threat=threat)
    assert torch.equal(rebuild(release, hints).records.x, cohort.own.x)
