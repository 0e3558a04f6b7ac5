"""Reconstruction used as a membership test."""

from dataclasses import dataclass

import pytest
import torch
from sklearn.datasets import load_iris
from torch import nn

import lostwax as lw
from lostwax.access import Weights
from lostwax.games import Guess, Hints, Knowledge, Records
from lostwax.games.protocols import objection_to, refusal
from lostwax.metrics import MSE, PSNR


@pytest.fixture(scope="module")
def parts():
    X, y = load_iris(return_X_y=True)
    return Records(torch.from_numpy((X - X.mean(0)) / X.std(0)), torch.from_numpy(y)).split(60, 40, 30, seed=0)


@dataclass(frozen=True)
class Answers:
    """An attack that answers what it is told to."""

    x: torch.Tensor

    def objection(self, knowledge):
        return None

    def prepare(self, knowledge, *, seed):
        return lambda release, hints=None: Guess(Records(self.x, torch.zeros(len(self.x), 1)), torch.zeros(1, 1))


def test_an_exact_reconstruction_names_every_secret(parts):
    known, prior, secrets = parts
    audit = lw.audit(
        nn.Linear(4, 3),
        trainer=lw.Optimum(),
        threat=lw.Informed(known, candidates=4),
        attack=lw.attacks.NearestCandidate(lw.ClosedForm()),
        prior=prior,
        secrets=secrets,
    )
    assert audit.findings[0].rebuilt.all()
    assert audit.errors.max() == 0
    assert "guessing among the 4 candidates is right in 25 % of games" in str(audit)
    assert "and 4 candidates for each" in audit.threat


@pytest.mark.parametrize("metric", [MSE(), PSNR()], ids=["lower is better", "higher is better"])
def test_the_nearest_is_answered_and_the_lead_is_the_confidence(parts, metric):
    known, prior, _ = parts
    x = torch.tensor([[[0.0] * 4, [1.0] * 4, [3.0] * 4]])  # (1, 3, 4)
    knowledge = Knowledge(nn.Linear(4, 3), lw.Optimum(), lw.Informed(known, candidates=3), Weights(), prior)
    attack = lw.attacks.NearestCandidate(Answers(torch.full((1, 1, 4), 1.2)), metric)
    guess = attack.prepare(knowledge, seed=0)(None, Hints(candidates=Records(x, torch.tensor([[5, 6, 7]]))))
    assert guess.alternatives.y.tolist() == [[6, 5, 7]]  # 0.2, 1.2 and 1.8 away
    assert guess.records.y.tolist() == [[6]]
    near, far = metric(torch.full((2, 4), 1.2), x[0, [1, 0]])
    torch.testing.assert_close(guess.confidence, (near - far).abs().view(1, 1))


def test_between_equally_near_candidates_the_likelier_is_answered(parts):
    known, prior, _ = parts
    x = torch.tensor([[[0.0] * 4, [2.0] * 4, [3.0] * 4]])  # (1, 3, 4)
    knowledge = Knowledge(nn.Linear(4, 3), lw.Optimum(), lw.Informed(known, candidates=3), Weights(), prior)
    reconstruct = lw.attacks.NearestCandidate(Answers(torch.ones(1, 1, 4))).prepare(knowledge, seed=0)
    hints = Hints(candidates=Records(x, torch.tensor([[5, 6, 7]])), chances=torch.tensor([[0.2, 0.3, 0.5]]))
    assert reconstruct(None, hints).alternatives.y.tolist() == [[6, 5, 7]]


def test_passes_on_what_the_attack_inside_objects_to(parts):
    known, prior, _ = parts
    knowledge = Knowledge(nn.Linear(4, 3), lw.GD(), lw.Informed(known, candidates=2), Weights(), prior)
    attack = lw.attacks.NearestCandidate(lw.ClosedForm())
    assert attack.objection(knowledge) == objection_to(lw.ClosedForm(), knowledge)
    assert refusal(attack, knowledge).startswith("NearestCandidate(ClosedForm) is not applicable: it needs weights at")
    alone = Knowledge(nn.Linear(4, 3), lw.Optimum(), lw.Informed(known), Weights(), prior)
    assert "NearestCandidate(ClosedForm) is not applicable: it chooses" in refusal(attack, alone)
