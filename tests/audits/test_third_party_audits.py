"""Whole audits of parts that a user wrote, each in one class: what they state is all that is asked."""

from dataclasses import dataclass

import pytest
import torch

import lostwax as lw
from lostwax.games import Guess, Records, Release, TrainerFacts

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

    def transcript(self, net, cohort, *, seed):
        return self.inner.transcript(net, cohort, seed=seed)

    def tile_size(self, net, cohort):
        return self.inner.tile_size(net, cohort)

    def facts(self, net, n):
        return TrainerFacts(mechanism=self.inner.mechanism() if self.states else None)


@dataclass(frozen=True)
class FirstCandidate:
    """Names the first candidate, in the shape that is asked for or in another."""

    names_candidates = True
    flat: bool = False

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
