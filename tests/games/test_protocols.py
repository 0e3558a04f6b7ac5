"""One way to run any attack: those of version 0.2, which state nothing or state attributes, run as before."""

from dataclasses import dataclass

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.access import Weights
from lostwax.games import AttackFacts, Guess, Knowledge, Note, Records
from lostwax.games.facts import attack_facts, attack_name, notes_of
from lostwax.games.protocols import accepted, objection_to, prepared, refusal
from lostwax.learning.costs import Cost, Rate, predicted

RECORDS = Records(torch.rand(40, 4), torch.arange(40) % 3)
KNOWN, PRIOR = RECORDS.split(20, 20, seed=0)
KNOWLEDGE = Knowledge(nn.Linear(4, 3), lw.GD(steps=2), lw.Informed(KNOWN), Weights(), PRIOR)
RATE = Rate(0.01, 15, 15)


class Bare:
    """Nothing but what an attack must have."""

    def objection(self, knowledge):
        return None if len(knowledge.prior) > 10 else "it needs more records. Add some."

    def prepare(self, knowledge, *, seed):
        return lambda release, hints=None: Guess(knowledge.prior[:1][None], torch.zeros(1, 1))


class Old(Bare):
    """With its name before an objection, and a cost."""

    def facts(self):
        return AttackFacts(10, True)

    def objection(self, knowledge):
        reason = super().objection(knowledge)
        return None if reason is None else f"Old is not applicable: {reason}"

    def cost(self, knowledge, games, rate):
        return Cost(games * rate.training)


@dataclass(frozen=True)
class Around:
    """An attack that makes use of another."""

    attack: object


def test_what_nobody_states_has_a_default():
    assert attack_facts(Bare()) == AttackFacts()
    assert attack_facts(Bare()).cheaper(KNOWLEDGE) == ()
    assert predicted(Bare(), KNOWLEDGE, 3, RATE).seconds == float("inf")
    assert notes_of(Bare().prepare(KNOWLEDGE, seed=0)) == ()


def test_what_an_attack_states():
    assert attack_facts(Old()) == AttackFacts(10, True)
    assert predicted(Old(), KNOWLEDGE, 3, RATE) == Cost(3 * 0.01)
    assert attack_name(Around(Around(Old()))) == "Around(Around(Old))"


@pytest.mark.parametrize("attack", [Bare(), Old()])
def test_an_objection_is_named_once(attack):
    few = Knowledge(KNOWLEDGE.net, KNOWLEDGE.trainer, KNOWLEDGE.threat, Weights(), PRIOR[:5])
    assert objection_to(attack, few) == "it needs more records. Add some."
    sentence = f"{type(attack).__name__} is not applicable: it needs more records. Add some."
    assert refusal(attack, few) == sentence
    with pytest.raises(ValueError, match=sentence):
        accepted(attack, few)
    assert refusal(attack, KNOWLEDGE) is None
    assert accepted(attack, KNOWLEDGE).threat is KNOWLEDGE.threat  # all on one device


def test_records_are_moved_to_the_device_that_is_stated():
    class There(Bare):
        def facts(self):
            return AttackFacts(device="meta")

    with pytest.raises(ValueError, match="x is on the meta device"):  # another is not at hand
        accepted(There(), KNOWLEDGE)


def test_answers_are_checked():
    class NoFunction(Bare):
        def prepare(self, knowledge, *, seed):
            return 3

    class NoGuess(Bare):
        def prepare(self, knowledge, *, seed):
            return lambda release, hints=None: 3

    with pytest.raises(TypeError, match=r"NoFunction\.prepare returned int\. It must return a function"):
        prepared(NoFunction(), KNOWLEDGE, seed=0)
    with pytest.raises(TypeError, match=r"that NoGuess\.prepare returned gave int\. It must return lw\.games\.Guess"):
        prepared(NoGuess(), KNOWLEDGE, seed=0)(None)


def test_notes_of_a_prepared_attack_are_passed_on():
    class Noting(Bare):
        def prepare(self, knowledge, *, seed):
            reconstruct = super().prepare(knowledge, seed=seed)
            reconstruct.notes = (Note("A remark.", cure="A cure."),)
            return reconstruct

    (note,) = prepared(Noting(), KNOWLEDGE, seed=0).notes
    assert (note.text, note.cure) == ("A remark.", "A cure.")


@pytest.mark.parametrize("notes", ["One sentence.", Note("One sentence."), ("One sentence.",), [Note("One sentence.")]])
def test_a_single_note_is_one_note(notes):
    def reconstruct(release, hints=None):
        raise AssertionError

    reconstruct.notes = notes
    assert [str(note) for note in notes_of(reconstruct)] == ["One sentence."]
