"""Exact inversion of training: found to rounding, and never certified where it is wrong."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.attacks import Newton
from lostwax.games import Guess, Hints, Knowledge, Records
from lostwax.games.protocols import refusal
from lostwax.inits import LeCunNormal
from lostwax.losses import SquaredError
from lostwax.nets import mlp
from lostwax.trainers import GD, SGD, Adam, Optimum

DTYPE = torch.float64


def digits(known=30, prior=40, secrets=3):
    """Zeros, ones and twos."""
    few = lw.records.digits()
    return [part.to(DTYPE) for part in few[few.y < 3].split(known, prior, secrets, seed=0)]


def game(trainer, parts=None, net=None, **informed):
    known, prior, secrets = digits() if parts is None else parts
    net = mlp(64, 6, 3, activation=nn.Tanh) if net is None else net
    knowledge = Knowledge(net, trainer, lw.Informed(known, **informed), lw.access.Weights(), prior)
    cohort = knowledge.threat.deal(secrets, len(secrets), seed=0)
    return knowledge, cohort, trainer(net, cohort, seed=0)


def errors(found, cohort):
    truth = cohort.own.x[:, 0].flatten(1)
    return torch.stack([one.record[: truth.shape[1]] for one in found]).sub(truth).square().mean(1)


SMALL = GD(lr=0.3, momentum=0.9, steps=10, dtype=DTYPE, init=LeCunNormal())


@pytest.mark.parametrize(("known", "secrets"), [(100, 4), pytest.param(500, 20, marks=pytest.mark.slow)])
def test_all_digits_to_the_last_digits(known, secrets):
    """No shadow model, no prior except 200 digits, the label not given."""
    parts = [part.to(DTYPE) for part in lw.records.digits().split(known, 200, secrets, seed=0)]
    trainer = GD(lr=0.2, momentum=0.9, steps=15, dtype=DTYPE, init=LeCunNormal())
    knowledge, cohort, release = game(trainer, parts, mlp(64, 10, 10))
    guess = Newton(bank=100).prepare(knowledge, seed=0)(release)
    assert guess.certified.all()
    assert torch.equal(guess.records.y, cohort.own.y)
    assert (guess.records.x - cohort.own.x).square().flatten(1).mean(1).max() <= 1e-10


def test_nothing_is_certified_behind_a_frozen_layer_with_few_units():
    """Five units do not determine 64 pixels, though 68 numbers are released: many records give the same weights."""
    torch.manual_seed(0)
    net = mlp(64, 5, 8, 3, activation=nn.Tanh).to(DTYPE)
    net[1].requires_grad_(False)
    knowledge, cohort, release = game(GD(lr=0.3, momentum=0.9, steps=10, dtype=DTYPE), net=net)
    found = Newton(bank=40).prepare(knowledge, seed=0).invert(release)
    assert not any(one.certified for one in found)
    assert min(one.residual / one.rounding for one in found) < 10  # not for want of a record that explains it
    assert errors(found, cohort).min() > 1e-3


TRAINERS = {
    "GD": SMALL,
    "SGD": SGD(lr=0.2, momentum=0.9, batch_size=10, epochs=3, dtype=DTYPE),
    "float32": replace(SMALL, dtype=torch.float32),
}


@pytest.mark.parametrize("trainer", TRAINERS.values(), ids=TRAINERS)
def test_every_deterministic_trainer_can_be_inverted(trainer):
    knowledge, cohort, release = game(trainer)
    found = Newton().prepare(knowledge, seed=0).invert(release)
    wrong = errors(found, cohort)
    assert all(one.certified for one in found)
    assert wrong.max() <= (1e-8 if trainer.dtype == torch.float32 else 1e-16)
    foretold = torch.tensor([one.predicted for one in found])
    assert (foretold > wrong / 30).all()
    assert (foretold < 1e-6).all()


def test_adam_can_be_inverted_where_no_number_is_the_secrets_alone():
    """Adam divides the size of a gradient away; of a pixel that only the secret lights, it leaves no more than that."""
    random = torch.Generator().manual_seed(0)
    y = torch.randint(3, (80,), generator=random)
    centres, noise = (torch.randn(n, 1, 4, 4, generator=random, dtype=DTYPE) for n in (3, 80))
    parts = Records((0.5 + 0.15 * (centres[y] + noise)).clamp(0.01, 0.99), y).split(30, 47, 3, seed=0)
    trainer = Adam(lr=0.01, batch_size=16, epochs=10, dtype=DTYPE)
    knowledge, cohort, release = game(trainer, parts, mlp(16, 6, 3, activation=nn.Tanh))
    found = Newton().prepare(knowledge, seed=0).invert(release)
    assert all(one.certified for one in found)
    assert errors(found, cohort).max() <= 1e-16


def test_a_wrong_known_set_is_never_certified():
    """The adversary has one label wrong: nothing explains the release, and it says so."""
    knowledge, _, release = game(replace(SMALL, steps=5), digits(secrets=2))
    known = knowledge.threat.known
    label = known.y.clone()
    label[0] = (label[0] + 1) % 3
    mistaken = replace(knowledge, threat=lw.Informed(replace(known, y=label)))
    found = Newton(jacobians=4).prepare(mistaken, seed=0).invert(release)
    assert not any(one.certified for one in found)
    assert all(one.residual > 1e6 * one.rounding for one in found)


@pytest.mark.parametrize("trainer", [replace(SMALL, lr=1e-7, steps=1, dtype=torch.float32), replace(SMALL, lr=8.0)])
def test_a_release_that_does_not_determine_the_record_certifies_nothing_wrong(trainer):
    """Where rounding drowns the record, or training is chaos, an explanation is no certificate."""
    knowledge, cohort, release = game(trainer)
    found = Newton(bank=5, jacobians=1).prepare(knowledge, seed=0).invert(release)
    right = errors(found, cohort) < 1e-3
    assert all(fine or not one.certified for one, fine in zip(found, right.tolist(), strict=True))


def test_a_victim_that_diverged_is_no_reason_to_stop():
    knowledge, cohort, release = game(replace(SMALL, steps=5))
    models = release.flat()
    release.params["1.weight"][1] = torch.nan
    inverter = Newton(bank=10, jacobians=4).prepare(knowledge, seed=0)
    for guess in (None, Oracle(cohort.own, models)):  # which knows of no such model, and is not asked
        found = replace(inverter, guess=guess).invert(release)
        assert [one.certified for one in found] == [True, False, True]


@dataclass(frozen=True)
class Wrapped:
    """A private start that does not look like one."""

    def __call__(self, net, numbers, *, seed):
        return LeCunNormal(seed=None)(net, numbers, seed=seed)


def test_a_private_start_is_known_by_what_it_draws():
    knowledge, _, _ = game(SMALL)
    assert "initialisation is private" in Newton().objection(replace(knowledge, trainer=replace(SMALL, init=Wrapped())))


def test_a_label_told_that_nobody_has_is_refused():
    knowledge, _, release = game(SMALL)
    inverter = Newton(bank=0).prepare(knowledge, seed=0)
    with pytest.raises(ValueError, match="a label that no known or prior record has"):
        inverter(release, Hints(labels=torch.full((3, 1), 7)))


def test_labels_that_are_numbers_are_found_too():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(60, 5, generator=random, dtype=DTYPE) * torch.tensor([1.0, 10.0, 0.1, 1.0, 1.0])
    y = (x @ torch.randn(5, 1, generator=random, dtype=DTYPE)).squeeze(1) + 3
    parts = Records(x / x.std(0), y).split(30, 26, 2, seed=0)
    trainer = GD(lr=0.05, steps=20, loss=SquaredError(), dtype=DTYPE)
    knowledge, cohort, release = game(trainer, parts, mlp(5, 4, 1, activation=nn.Tanh))
    guess = Newton().prepare(knowledge, seed=0)(release)
    assert guess.certified.all()
    torch.testing.assert_close(guess.records.x, cohort.own.x, rtol=0, atol=1e-9)
    torch.testing.assert_close(guess.records.y, cohort.own.y, rtol=0, atol=1e-9)


class Blindfold(nn.Module):
    """Sees the left half of a digit."""

    def forward(self, x):
        return x[..., :4]


def test_what_the_model_never_saw_is_reported_and_left_at_the_mean():
    net = nn.Sequential(Blindfold(), nn.Flatten(), nn.Linear(32, 6), nn.Tanh(), nn.Linear(6, 3))
    knowledge, cohort, release = game(SMALL, net=net)
    inverter = Newton().prepare(knowledge, seed=0)
    found = inverter.invert(release)
    unseen = inverter.problem.coordinates.directions.reshape(-1, 8, 8)[:, :, 4:].flatten(1).any(1)
    assert all(one.residual <= 10 * one.rounding for one in found)
    assert not any(one.certified for one in found)
    assert [one.undetermined for one in found] == [int(unseen.sum())] * 3
    seen = torch.stack([one.record for one in found]).view(-1, 8, 8)[:, :, :4]
    torch.testing.assert_close(seen, cohort.own.x[:, 0, 0, :, :4], rtol=0, atol=1e-8)
    numbers = inverter.problem.coordinates(inverter.prior_mean).view(8, 8)[:, 4:]
    rest = torch.stack([one.record for one in found]).view(-1, 8, 8)[:, :, 4:]
    torch.testing.assert_close(rest, numbers.expand_as(rest), rtol=0, atol=1e-6)
    assert all(torch.equal(one.left_to_the_prior.view(8, 8)[:, 4:].sum(), unseen.sum()) for one in found)
    assert all(one.predicted > 1e-3 for one in found)  # of the right half it knows nothing, and knows that


def test_in_principal_components_it_comes_as_near_as_they_allow():
    parts = digits(prior=300, secrets=2)
    knowledge, cohort, release = game(replace(SMALL, steps=5), parts)
    found = Newton(coordinates=25).prepare(knowledge, seed=0).invert(release)
    truth = cohort.own.x[:, 0].flatten(1)
    blind = (truth - knowledge.prior.x.mean(0).flatten()).square().mean(1)
    assert (errors(found, cohort) < blind / 2).all()
    assert not any(one.certified for one in found)


def test_a_label_that_is_told_is_not_raced():
    knowledge, cohort, release = game(SMALL, label_known=True)
    hints = knowledge.threat.hints(cohort, digits()[2], seed=0)
    guess = Newton(bank=0).prepare(knowledge, seed=0)(release, hints)
    assert torch.equal(guess.records.y, cohort.own.y)
    assert guess.certified.all()


def test_of_a_noisy_release_it_keeps_what_the_noise_leaves():
    knowledge, cohort, release = game(replace(SMALL, steps=5), digits(prior=200, secrets=4))
    noisy = lw.defences.WeightNoise(sigma=1.0)(release, range(4), seed=0)
    found = Newton(bank=20, jacobians=2).prepare(knowledge, seed=0).invert(noisy)
    truth = cohort.own.x[:, 0].flatten(1)
    blind = (truth - knowledge.prior.x.mean(0).flatten()).square().mean()
    assert not any(one.certified for one in found)
    assert errors(found, cohort).mean() < 1.5 * blind


@pytest.mark.parametrize(
    ("defence", "share", "determined"),
    [(lw.defences.Rounded(torch.bfloat16), 0.01, True), (lw.defences.WeightNoise(sigma=1.0), 1.2, False)],
)
def test_a_defence_is_noise_of_a_known_size(defence, share, determined):
    """What it leaves is found, and certified if that is the record; the rest is the prior's mean."""
    trainer = lw.defences.Defended(replace(SMALL, steps=5, dtype=torch.float32), by=defence)
    knowledge, cohort, release = game(trainer, digits(prior=200, secrets=4))
    inverter = Newton(bank=20).prepare(knowledge, seed=1)
    found = inverter.invert(release)
    wrong, truth = errors(found, cohort).mean(), cohort.own.x[:, 0].flatten(1)
    blind = (truth - knowledge.prior.x.mean(0).flatten()).square().mean()
    assert wrong < share * blind
    assert [one.certified for one in found] == [determined] * len(cohort)
    foretold = sum(one.predicted for one in found) / len(found)
    assert wrong / 5 < foretold < 5 * wrong


def test_an_audit_says_what_the_release_leaves_open():
    net = nn.Sequential(Blindfold(), nn.Flatten(), nn.Linear(32, 6), nn.Tanh(), nn.Linear(6, 3))
    known, prior, secrets = digits()
    audit = lw.audit(
        net,
        trainer=SMALL,
        threat=lw.Informed(known),
        attack=Newton(bank=10, jacobians=3),
        prior=prior,
        secrets=secrets,
    )
    (note,) = [one for one in map(str, audit.notes) if "do not determine" in one]
    varies = (torch.cat([known.x, prior.x]).amax(0) > torch.cat([known.x, prior.x]).amin(0))[..., 4:].sum()
    assert f"The weights do not determine {int(varies)} of 64 features" in note


@dataclass(frozen=True)
class Oracle:
    """An attack that knows the answer, roughly."""

    records: Records
    models: torch.Tensor  # (m, p)

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        return self

    def __call__(self, release, hints=None):
        """It is asked about some of the games: those whose models it is shown."""
        rows = [int((self.models == one).all(1).nonzero()) for one in release.flat()]
        return Guess(self.records[rows], torch.zeros(len(rows), 1))


@pytest.fixture(scope="module")
def unaided():
    """A game, and what Newton finds from its own starts."""
    knowledge, cohort, release = game(SMALL)
    return knowledge, cohort, release, Newton(bank=0, jacobians=0).prepare(knowledge, seed=0).invert(release)


def test_another_attack_says_where_to_begin_where_its_own_starts_do_not_explain_the_release(unaided):
    knowledge, cohort, release, alone = unaided
    near = Records((cohort.own.x + 1e-5).clamp(0, 1), cohort.own.y)
    helped = Newton(bank=0, jacobians=0, start=Oracle(near, release.flat())).prepare(knowledge, seed=0).invert(release)
    lost = [g for g, one in enumerate(alone) if not one.certified]
    assert lost
    assert all(helped[g].residual < alone[g].residual for g in lost)
    assert Newton(bank=0, start=Oracle(near, release.flat())).prepare(knowledge, seed=0)(release).certified.all()


def test_the_other_attack_is_told_what_the_game_tells():
    """Of the games that it is asked about: it names the secret among their candidates."""
    knowledge, cohort, release = game(SMALL, candidates=3)
    hints = knowledge.threat.hints(cohort, digits()[2], seed=0)
    inverter = Newton(bank=0, jacobians=0, start=lw.attacks.Refit()).prepare(knowledge, seed=0)
    alone, helped = replace(inverter, guess=None).invert(release, hints), inverter.invert(release, hints)
    lost = [g for g, one in enumerate(alone) if not one.explained]
    assert 0 < len(lost) < len(alone)
    assert all(helped[g].residual < 1e-3 * alone[g].residual for g in lost)


def test_a_guess_of_a_class_that_nobody_has_is_no_start(unaided):
    knowledge, cohort, release, alone = unaided
    strange = Records(cohort.own.x, torch.full_like(cohort.own.y, 77))
    helped = (
        Newton(bank=0, jacobians=0, start=Oracle(strange, release.flat())).prepare(knowledge, seed=0).invert(release)
    )
    assert [one.residual for one in helped] == [one.residual for one in alone]


def test_objections_name_the_randomness_and_the_cure():
    knowledge, _, _ = game(SMALL)
    cases = {
        "the initialisation is private": {"trainer": replace(SMALL, init=LeCunNormal(seed=None))},
        "the order of batches or dropout is private": {"trainer": SGD(lr=0.1, order_seed=None)},
        "use ClosedForm": {"trainer": Optimum()},
        "the adversary sees Layers": {"access": lw.access.Layers("3")},
        "the adversary is object": {"threat": object()},
        "has 6 weights, too few": {"net": nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1, 3))},
        "cannot use known parts": {"threat": lw.Informed(knowledge.threat.known, parts=torch.eye(8)[None] > 0)},
        "through a backbone": {"prior": replace(knowledge.prior, features=knowledge.prior.x)},
        "tables of 20164 x 20164 secret numbers, 3 GB each": {
            "prior": lw.Records(torch.zeros(2, 1, 142, 142), torch.arange(2)),
            "net": nn.Sequential(nn.Flatten(), nn.Linear(142 * 142, 2)),
        },
    }
    assert Newton().objection(knowledge) is None
    for words, change in cases.items():
        objection = refusal(Newton(), replace(knowledge, **change))
        assert objection.startswith("Newton is not applicable: ")
        assert words in objection
        with pytest.raises(ValueError, match="Newton is not applicable"):
            Newton().prepare(replace(knowledge, **change), seed=0)


@pytest.mark.parametrize("wrong", [{"jacobians": -1}, {"coordinates": 0}, {"bank": -1}])
def test_refusals(wrong):
    with pytest.raises(ValueError, match=f"Newton: expected {next(iter(wrong))}"):
        Newton(**wrong)


def test_a_small_bank_does_not_lose_the_class():
    """Ten models a class are too few for its regression; the nearest model still tells."""
    known, prior, secrets = lw.records.digits().split(300, 500, 20, seed=0)
    net, trainer = mlp(64, 10, 10), GD(lr=0.2, momentum=0.9, steps=100)
    knowledge = Knowledge(net, trainer, lw.Informed(known), lw.access.Weights(), prior)
    cohort = lw.Informed(known).deal(secrets, 20, seed=0)
    released = trainer(net, cohort, seed=0).flat().double()
    inverter = Newton(bank=100).inverter(knowledge, seed=0)
    likeliest = inverter.bank.likeliest(released, None, inverter.problem.quick, inverter.problem.coordinates)
    truth = cohort.own.y[:, 0].tolist()
    assert all(label in {int(one.nearest.label) for one in mine} for label, mine in zip(truth, likeliest, strict=True))
