"""Whole audits of parts that a user wrote, each in one class: what they state is all that is asked."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.audits.play import one_by_one
from lostwax.games import AttackFacts, Guess, Records, Release, TrainerFacts

KNOWN, PRIOR, SECRETS = lw.records.digits().split(60, 60, 40, seed=0)
NET = lw.nets.mlp(64, 4, 10)
GAME = {"threat": lw.Informed(KNOWN, candidates=2), "prior": PRIOR, "secrets": SECRETS}


@dataclass(frozen=True)
class Wrapped:
    """DP-SGD behind a class of one's own, which states its mechanism or not."""

    inner: lw.DPSGD
    states: bool = True

    def __call__(self, net, cohort, *, seed):
        return Release(self.inner(net, cohort, seed=seed).params)

    def tile_size(self, net, cohort):
        return self.inner.tile_size(net, cohort)

    def facts(self, net, n):
        return TrainerFacts(mechanism=self.inner.mechanism() if self.states else None)


@dataclass(frozen=True)
class FirstCandidate:
    """Names the first candidate, in the shape that is asked for or in another."""

    flat: bool = False

    def facts(self):
        return AttackFacts(names_candidates=True)

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        def answer(release, hints=None):
            first = hints.candidates[:, :1]
            if self.flat:
                first = Records(first.x.flatten(2), first.y)
            return Guess(first, torch.zeros(len(release), 1))

        return answer


def test_a_trainer_that_states_its_mechanism_gets_its_ceiling_and_the_gate_reads_it():
    inner = lw.DPSGD(lr=0.5, noise_multiplier=2.0, steps=4)
    ours, theirs = (lw.audit(NET, trainer=one, attack=FirstCandidate(), **GAME) for one in (Wrapped(inner), inner))
    assert ours.ceiling == theirs.ceiling
    assert ours.ceiling.certified
    kept, broken = lw.Policy(max_ceiling=0.999), lw.Policy(max_ceiling=0.6)
    assert kept.breaches(ours) == kept.breaches(theirs) == ()
    assert len(broken.breaches(ours)) == len(broken.breaches(theirs)) == 1
    silent = lw.audit(NET, trainer=Wrapped(inner, states=False), attack=FirstCandidate(), **GAME)
    assert silent.ceiling is None
    assert kept.breaches(silent)  # what nobody has stated is not certified


def test_an_answer_of_another_shape_is_refused_by_name():
    with pytest.raises(ValueError, match=r"FirstCandidate gave an answer of the wrong shape: expected guesses"):
        lw.audit(NET, trainer=lw.GD(steps=2), attack=FirstCandidate(flat=True), games=4, **GAME)


class Unfinished:
    """An attack as it is first written: something is forgotten."""

    def __init__(self, returns):
        self.returns = returns

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        return self.returns


def test_what_an_attack_of_ones_own_lacks_is_named():
    game = {**GAME, "trainer": lw.GD(steps=2), "threat": lw.Informed(KNOWN), "games": 4}
    with pytest.raises(TypeError, match=r"Unfinished.prepare returned NoneType. It must return a function"):
        lw.audit(NET, attack=Unfinished(None), **game)
    with pytest.raises(TypeError, match=r"Unfinished.prepare returned gave Tensor. It must return lw.games.Guess"):
        lw.audit(NET, attack=Unfinished(lambda release, hints: torch.zeros(4)), **game)
    prepares = type("Prepares", (), {"prepare": Unfinished.prepare})()
    with pytest.raises(TypeError, match=r"got Prepares. It has no objection: see docs/extending.md"):
        lw.audit(NET, attack=prepares, **game)


@dataclass(frozen=True)
class Focal:
    """A multi-class loss of one's own: (1 - p)^2 times cross-entropy, by autograd."""

    def __call__(self, outputs, y):
        log_p = outputs.log_softmax(-1)
        mine = (log_p * (y.unsqueeze(-1) == torch.arange(outputs.shape[-1]))).sum(-1)
        return -((1 - mine.exp()) ** 2) * mine

    def residual(self, outputs, y):
        return torch.func.grad(lambda out: self(out, y).sum())(outputs)

    def label(self, outputs, residual):
        return residual.argmin(-1)


def test_a_multi_class_loss_of_ones_own_trains_and_is_attacked():
    trainer = lw.GD(lr=0.5, steps=10, loss=Focal())
    audit = lw.audit(NET, trainer=trainer, attack=lw.KernelRidge(), games=10, **{**GAME, "threat": lw.Informed(KNOWN)})
    assert audit.findings[0].errors[audit.metric].shape == (10,)


@dataclass(frozen=True)
class Ink:
    """A metric of one's own."""

    name: str = "difference in ink"
    better: str = "lower"

    def __call__(self, guess, truth):
        return (guess.flatten(1).sum(1) - truth.flatten(1).sum(1)).abs()


def test_a_metric_of_ones_own_is_reported():
    audit = lw.audit(NET, trainer=lw.GD(steps=2), attack=FirstCandidate(), metrics=[Ink()], games=4, **GAME)
    assert "difference in ink" in audit.findings[0].errors


@dataclass(frozen=True)
class Forwards:
    """A trainer that hands on another's facts, or states its objective alone."""

    inner: object
    objective_alone: bool = False

    def __call__(self, net, cohort, *, seed):
        return self.inner(net, cohort, seed=seed)

    def tile_size(self, net, cohort):
        return self.inner.tile_size(net, cohort)

    def facts(self, net, n):
        facts = self.inner.facts(net, n)
        return TrainerFacts(objective=facts.objective) if self.objective_alone else facts


class Hands:
    """A threat that hands on another's facts, and has none of its fields."""

    def __init__(self, inner):
        self.inner = inner

    def facts(self):
        return self.inner.facts()

    def deal(self, pool, m, *, seed, start=0):
        return self.inner.deal(pool, m, seed=seed, start=start)

    def hints(self, cohort, pool, *, seed):
        return self.inner.hints(cohort, pool, seed=seed)


TABLES = [Records(part.x.flatten(1)[:, :6].contiguous(), part.y % 2) for part in (KNOWN, PRIOR, SECRETS)]


@pytest.mark.parametrize("candidates", [None, 2])
def test_parts_that_hand_on_facts_do_not_end_an_audit_without_a_named_attack(candidates):
    """Newton takes no trainer that only says it is differentiable; candidates are no field of the threat."""
    known, prior, secrets = TABLES
    audit = lw.audit(
        nn.Linear(6, 2),
        trainer=Forwards(lw.GD(lr=0.3, steps=5)),
        threat=Hands(lw.Informed(known, candidates=candidates)),
        prior=prior,
        secrets=secrets,
        games=2,
        max_minutes=3,
    )
    assert audit.findings
    assert any("its facts say differentiable=True" in why for why in audit.left_out)


def test_a_torch_layer_is_read_by_a_stated_objective_alone():
    records, trainer = TABLES[0].to(torch.float64), lw.Optimum(ridge=1.0)
    net = nn.Linear(6, 2).double()
    net.load_state_dict(trainer(net, lw.Informed(records[:-1]).deal(records[-1:], 1, seed=0), seed=0)[0])
    data = (records.x.numpy(), records.y.numpy())
    ours, theirs = (lw.audit(net, data, trainer=one) for one in (Forwards(trainer, objective_alone=True), trainer))
    assert ours.grade is theirs.grade
    assert (ours.errors == theirs.errors).all()


def test_a_judge_may_hold_one_guess_against_two_secrets():
    guess = Guess(Records(torch.arange(6.0).view(2, 1, 3), torch.tensor([[0], [1]])), torch.zeros(2, 1))
    flat = one_by_one(guess, torch.zeros(2, 2, dtype=torch.long))
    assert flat.records.x[:, 0, 0].tolist() == [0.0, 0.0, 3.0, 3.0]
