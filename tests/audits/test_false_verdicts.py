"""Cases that once passed a leak, or alarmed on noise: each as it was reported."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from torch import nn

import lostwax as lw
from audits.game import KNOWN, PRIOR, SECRETS, Publishes, Reads, audited
from audits.test_luck import Noise
from lostwax.defences import Defended, WeightNoise
from lostwax.games import AttackFacts, Guess, Records
from lostwax.grades import Grade
from lostwax.metrics.estimate import clopper_pearson
from lostwax.policies import MEASURES, Policy

TUTORIAL = Policy(max_grade="not found", max_rebuilt_share=0.05)
HIDDEN = lw.DPSGD(lr=0.1, noise_multiplier=1e6, steps=2)  # nothing is left of any record


def flat(records):
    return Records(records.x.flatten(1), records.y)


def test_the_optimum_leads_in_print_and_on_the_page():
    """README's ten lines: the print said 178 at the optimum, the first screen 2.8 %."""
    X, y = load_wine(return_X_y=True)
    audit = lw.audit(LogisticRegression(max_iter=10_000).fit(X, y), (X, y))
    assert audit.grade is Grade.EXACT
    assert "can rebuild the missing ones from the model at its optimum" in audit.conclusion.headline
    some = int(audit.finding("as released").rebuilt.sum())  # how far a solver comes depends on the machine
    assert 0 < some < 178
    assert f"As released, {some} of 178 do" in " ".join(audit.conclusion.sentences)


@pytest.mark.parametrize("games", [29, 30, 60, 91, 100])
def test_the_number_of_games_does_not_change_the_grade(games):
    """KernelRidge on digits at a threshold of 0.01: "no record" at 30, 60 and 91 games, "some" at 29 and 100."""
    audit = audited(Reads(noise=0.12), games=games, threshold=0.01)
    assert audit.conclusion.line.nearer > 0
    assert audit.grade is Grade.RECOGNISABLE


def test_diverged_victims_are_not_safe():
    x = torch.randn(60, 3)
    records = Records(x, (x[:, 0] > 0).long())
    known, prior, secrets = records.split(15, 15, 30, seed=0)
    audit = lw.audit(
        lw.nets.mlp(3, 4, 2),
        trainer=lw.GD(lr=1e30, steps=10),
        threat=lw.Informed(known),
        attack=Noise("mean", 0),
        prior=prior,
        secrets=secrets,
    )
    assert audit.grade is Grade.UNDECIDED
    assert "30 of 30 victims diverged" in str(audit.conclusion)
    assert TUTORIAL.breaches(audit)


RATES = {
    "one huge step": (lw.GD(lr=1e5, steps=1), True),
    "huge steps": (lw.GD(lr=300.0, momentum=0.9, steps=30), True),
    "huge steps, then a defence": (Defended(lw.GD(lr=3e4, steps=10), by=WeightNoise(0.01)), True),
    "Adam": (lw.Adam(lr=50.0, epochs=3, batch_size=10), True),
    "one small step": (lw.GD(lr=1e-3, steps=1), False),
    "shrunk to nothing": (lw.GD(lr=0.1, steps=40, weight_decay=2.0), False),
    "a defence that ruins them": (Defended(lw.GD(lr=0.1, steps=10), by=WeightNoise(10.0)), False),
    "noise of a mechanism": (lw.DPSGD(lr=30.0, noise_multiplier=5.0, steps=10), False),
    "small batches": (lw.SGD(lr=0.3, batch_size=4, epochs=1), False),
}


@pytest.mark.parametrize("random_labels", [False, True])
@pytest.mark.parametrize(("trainer", "failed"), RATES.values(), ids=RATES)
def test_victims_that_did_not_learn_are_not_safe(trainer, failed, random_labels):
    """Those that learn little or badly, for other reasons than their learning rate, are judged as they are."""
    torch.manual_seed(5)
    x = torch.randn(70, 5)
    records = Records(x, torch.randint(3, (70,)) if random_labels else (x[:, 0] > 0).long())
    audit = nothing_found(records, lw.nets.mlp(5, 6, 3), trainer)
    assert (audit.grade is Grade.UNDECIDED) == failed
    said = " ".join(audit.unanswered)
    assert ("lower the learning rate" in said and ("did not learn" in said or "diverged" in said)) == failed
    assert bool(Policy(max_grade="not found").breaches(audit)) == failed


@pytest.mark.parametrize(("lr", "failed"), [(0.02, False), (300.0, True)])
def test_regressions_that_did_not_learn_are_not_safe(lr, failed):
    torch.manual_seed(6)
    x = torch.randn(70, 4)
    trainer = lw.GD(lr=lr, steps=21, loss=lw.losses.Huber(1.0))
    audit = nothing_found(Records(x, 40 + 5 * x[:, :1]), lw.nets.mlp(4, 6, 1), trainer)
    assert any("lower the learning rate" in why for why in audit.unanswered) == failed


def nothing_found(records, net, trainer):
    """The audit of an attack that guesses the mean."""
    known, prior, secrets = records.split(20, 20, 30, seed=0)
    return lw.audit(
        net, trainer=trainer, threat=lw.Informed(known), attack=Noise("mean", 0), prior=prior, secrets=secrets
    )


@pytest.mark.parametrize("classes", [False, True])
def test_values_and_classes_that_only_secrets_have_are_tried(classes):
    """A column that is 0 in all the adversary has and 1 in the secrets; a class of which it has no record."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(80, 4, generator=random, dtype=torch.float64)
    y = (x[:, 1] > 0).long()
    x[:, 0] = 0
    secrets = Records(x[:6].clone(), torch.full((6,), 2) if classes else y[:6])
    secrets.x[:, 0] = 0.0 if classes else 1.0
    torch.manual_seed(0)
    audit = lw.audit(
        lw.nets.mlp(4, 6, 3).double(),
        trainer=lw.GD(lr=0.3, momentum=0.9, steps=20),
        threat=lw.Informed(Records(x[6:30], y[6:30])),
        attack=lw.Newton(bank=30),
        prior=Records(x[30:], y[30:]),
        secrets=secrets,
    )
    assert audit.findings[0].rebuilt.all()
    assert audit.findings[0].labels_right.all()
    words = "a class of which the prior has no record: [2]" if classes else "values that the prior never shows"
    assert f"6 of 6 secrets have {words}" in " ".join(map(str, audit.notes))


def test_a_candidate_that_looks_alike_is_another_one():
    """Noise of 1e6, candidates nearer together than the threshold: "98 of 100 named", truly 11."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(140, 3, generator=random)
    x[40:] = x[40:41] + 1e-4 * torch.randn(100, 3, generator=random)
    records = Records(x, torch.zeros(140, dtype=torch.long))
    audit = lw.audit(
        nn.Linear(3, 2),
        trainer=HIDDEN,
        threat=lw.Informed(records[:20], candidates=10),
        attack=lw.PriorAware(),
        prior=records[20:40],
        secrets=records[40:],
    )
    named = (audit.guess.records.x[:, 0] == audit.truth.x.float()).all(1).numpy()
    assert np.array_equal(audit.findings[0].rebuilt, named)
    assert audit.findings[0].rebuilt.mean() < 0.25
    assert audit.grade is Grade.LIMITED


def test_what_the_label_alone_tells_is_no_leak():
    """Noise of 1e6 and the label given: guesses by class were closer than those of other classes, TPR 1 at 10 %."""
    game = {"threat": lw.Informed(flat(KNOWN), label_known=True), "prior": flat(PRIOR), "secrets": flat(SECRETS)}
    audit = lw.audit(nn.Identity(), trainer=Publishes(), attack=Noise("class", 0), **game)
    assert "blind guess (mean of its class)" in audit.baselines
    assert audit.tpr(0.1).rate < 0.3
    assert not audit.grade.leaks
    assert audit.labels_given
    assert "given" in str(audit)


def test_numbers_that_are_given_count_in_no_error():
    """All but one number given: "70 of 100 rebuilt" for a guess that has the last one wrong."""
    known, prior, secrets = flat(KNOWN), flat(PRIOR), flat(SECRETS)
    parts = torch.ones(64, dtype=torch.bool)
    parts[20] = False
    audit = lw.audit(
        nn.Identity(),
        trainer=Publishes(),
        threat=lw.Informed(known, parts=parts),
        attack=Noise("mean", 0),
        prior=prior,
        secrets=secrets,
    )
    off = (audit.guess.records.x[:, 0, 20].double() - audit.truth.x[:, 20]).abs() / prior.x[:, 20].std()
    np.testing.assert_allclose(audit.errors, off, rtol=0.01)
    assert audit.findings[0].rebuilt.mean() < 0.2
    assert "predicted from the given numbers" in audit.baselines
    assert not audit.grade.leaks


def test_equal_secrets_are_not_independent_games():
    thrice = Records(SECRETS.x[:40].repeat(3, 1, 1, 1), SECRETS.y[:40].repeat(3))
    audit = audited(Reads(noise=0.1), secrets=thrice)
    assert (len(audit.games), audit.victims) == (120, 40)
    assert audit.interval(60) == pytest.approx(clopper_pearson(20, 40))


@dataclass
class Looks:
    """Keeps the releases that it is shown."""

    seen: list

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        def reconstruct(release, hints=None):
            self.seen.append(release.flat())
            x, y = (part[:1].expand(len(release), 1, *part.shape[1:]) for part in (PRIOR.x, PRIOR.y))
            return Guess(Records(x, y), torch.zeros(len(release), 1))

        return reconstruct


def test_a_shadow_model_never_has_a_victims_private_start():
    """`lw.simulate` and `lw.audit` by one seed: model i of each began at the same weights."""
    seen = []
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    trainer = lw.GD(lr=1e-30, steps=1, init=lw.inits.LeCunNormal(seed=None))
    game = {"trainer": trainer, "threat": lw.Informed(KNOWN), "prior": PRIOR}
    lw.audit(net, attack=Looks(seen), secrets=SECRETS, games=8, seed=0, **game)
    shadows = torch.cat([release.flat() for _, release in lw.simulate(net, models=8, seed=0, **game)])
    assert (torch.cdist(seen[0], shadows) > 0.1).all()


def test_the_ratio_of_medians_holds_with_its_confidence():
    """The oracle's median was taken as exact: the limit was missed in 7 to 26 % of audits where 2.5 % is promised."""
    policy, audit, missed = Policy(min_median_ratio_to_oracle=0.5), audited(Reads(noise=0.1), games=40), 0
    for seed in range(400):
        random = np.random.default_rng(seed)
        line = replace(audit.findings[0], errors={audit.metric: random.lognormal(-0.1, 1.0, 40)})
        nearest = {audit.oracle: {audit.metric: random.lognormal(0.0, 1.0, 40)}}
        drawn = replace(audit, findings=(line,), baselines=nearest)
        missed += MEASURES["min_median_ratio_to_oracle"](policy, drawn, line).worst > np.exp(-0.1)
    assert missed <= 10  # 2.5 % of 400


def test_a_record_that_is_rebuilt_among_candidates_is_named():
    """Newton rebuilds every secret to 1e-15; asked for a candidate bit for bit, it had named none: "not found"."""
    game = {"prior": flat(PRIOR), "secrets": flat(SECRETS)[:20]}
    audit = lw.audit(
        nn.Identity(), trainer=Publishes(), threat=lw.Informed(flat(KNOWN), candidates=2), attack=Reads(1e-6), **game
    )
    assert audit.findings[0].rebuilt.all()
    assert audit.grade.leaks
    assert audit.attack.startswith("NearestCandidate(Reads)")


@dataclass(frozen=True)
class OnlySome(Reads):
    """Reads the record off the release in the last `count` games; the mean of the prior elsewhere."""

    count: int = 10

    def prepare(self, knowledge, *, seed):
        reads, mean = super().prepare(knowledge, seed=seed), knowledge.prior.x.mean(0)

        def answer(release, hints=None):
            guess = reads(release, hints)
            some = release.flat().sum(1) > release.flat().sum(1).sort().values[-self.count - 1]
            x = torch.where(some.view(-1, 1, *(1 for _ in mean.shape)), guess.records.x, mean)
            if hints is not None and hints.parts is not None:
                x = torch.where(hints.parts.isnan(), x, hints.parts)
            return replace(guess, records=Records(x, guess.records.y))

        return answer


def test_ten_exact_records_of_sixty_are_no_luck_where_parts_are_given(tmp_path):
    """Beside another game's release none was rebuilt, and half of what was seen was taken for luck: p = 0.05."""
    parts = torch.zeros(64, dtype=torch.bool)
    parts[:8] = True
    threat = lw.Informed(flat(KNOWN), parts=parts)
    game = {"threat": threat, "prior": flat(PRIOR), "secrets": flat(SECRETS)}
    audit = lw.audit(nn.Identity(), trainer=Publishes(), attack=OnlySome(noise=0.0, count=10), games=60, **game)
    assert audit.findings[0].rebuilt.sum() >= 10
    assert audit.findings[0].luck.rebuilt_pairs[1] == 0
    assert audit.grade is Grade.EXACT
    audit.to_json(tmp_path / "audit.json")
    again = lw.Audit.from_json(tmp_path / "audit.json")
    assert again.findings[0].luck == audit.findings[0].luck
    assert again.grade is audit.grade


def test_records_that_luck_did_not_look_at_are_not_passed_over():
    """Three games of a rare class, all rebuilt: too few of that class to compare with, so the question stays open."""
    from lostwax.audits.luck import Luck

    audit = audited(Reads(noise=10.0), games=60)
    finding = audit.findings[0]
    rebuilt = np.zeros(60, dtype=bool)
    rebuilt[-3:] = True
    errors = {name: np.where(rebuilt, 0.0, values) for name, values in finding.errors.items()}
    luck = Luck(57, 0.0, 0.0, 1.0, 0.0, 0.0, 0.5)
    seen = replace(audit, findings=(replace(finding, errors=errors, rebuilt=rebuilt, luck=luck),))
    assert seen.grade is Grade.UNDECIDED
    assert "3 of the records rebuilt by as released could not be compared with chance" in str(seen.conclusion)
    assert TUTORIAL.breaches(seen)


@pytest.mark.parametrize(
    ("more", "words"), [({"candidates": 3}, "3 candidates per secret"), ({"secrets": 2}, "2 secret records")]
)
def test_a_threat_that_deals_what_it_does_not_state_is_refused(more, words):
    threat = lw.Informed(flat(KNOWN), **more)
    object.__setattr__(threat, "facts", lambda: lw.games.ThreatFacts(known=threat.known))
    with pytest.raises(ValueError, match=f"Informed deals {words}"):
        lw.audit(
            nn.Identity(), trainer=Publishes(), threat=threat, attack=Reads(), prior=flat(PRIOR), secrets=flat(SECRETS)
        )


@dataclass(frozen=True)
class Across:
    """Looks across games, never at a release: an assignment in which no record is the secret of two games."""

    def facts(self):
        return AttackFacts(names_candidates=True)

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        return lambda release, hints=None: self._guess(hints.candidates)

    def _guess(self, candidates):
        games, count = candidates.x.shape[:2]
        _, number = torch.unique(candidates.x.flatten(2).flatten(0, 1), dim=0, return_inverse=True)
        number, cost = number.view(games, count), np.ones((games, max(games, int(number.max()) + 1)))
        np.put_along_axis(cost, number.numpy(), 0.0, 1)
        named = torch.from_numpy(linear_sum_assignment(cost)[1])  # (games,) of each game one record, none twice
        place = (number == named.unsqueeze(1)).long().argmax(1)
        own = torch.arange(games), place
        return Guess(Records(candidates.x[own][:, None], candidates.y[own][:, None]), torch.zeros(games, 1))


@pytest.mark.parametrize("candidates", [2, 3])
def test_candidates_are_not_told_by_looking_across_games(candidates):
    """Each record was the secret of one game: 195 of 200 were named without a model."""
    secrets = Records(torch.randn(150, 4, generator=torch.Generator().manual_seed(2)), torch.zeros(150).long())
    known, prior = (Records(secrets.x[:9] + shift, secrets.y[:9]) for shift in (0.1, 0.2))
    threat = lw.Informed(known, candidates=candidates)
    audit = audited(Across(), threat=threat, prior=prior, secrets=secrets)
    low, high = audit.interval(int(audit.findings[0].rebuilt.sum()))
    assert low < 1 / candidates < high
    assert audit.victims == 150
    assert audit.grade is Grade.NOT_FOUND
