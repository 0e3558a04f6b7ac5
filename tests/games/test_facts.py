import torch

import lostwax as lw
from lostwax.games import AccessFacts, Adversary, AttackFacts, Sees, TrainerFacts
from lostwax.games.facts import stated, trainer_facts


class Mine:
    """An access of a user, which states that every weight is seen."""

    def facts(self):
        return AccessFacts(all_weights=True)


def test_a_part_that_states_nothing_has_the_defaults():
    assert stated("states nothing", AttackFacts()) == AttackFacts()


def test_the_loss_of_a_trainer_that_does_not_state_it_is_its_attribute():
    class Stating:
        loss = lw.losses.MultiLabel()

        def facts(self, net, n):
            return TrainerFacts(deterministic=True)

    assert trainer_facts(Stating(), torch.nn.Linear(1, 1), 1) == TrainerFacts(True, loss=Stating.loss)


def test_what_is_seen_is_a_fact_of_the_access():
    seen = {
        lw.access.Weights(): Sees.MODEL,
        lw.access.Logits(torch.zeros(3, 2)): Sees.PREDICTIONS,
        lw.access.Outputs(): Sees.PREDICTIONS,
        lw.access.Layers("fc"): Sees.PART,
        Mine(): Sees.MODEL,
        "states nothing": Sees.PART,
    }
    assert {access: Adversary.of(access, 1, 2).sees for access in seen} == seen


def test_insiders_and_outsiders():
    assert Adversary.insider(10).knows_all_others
    assert not Adversary.insider(10).knows_none
    assert Adversary(0, 10).knows_none
    for some in (Adversary(), Adversary(7, 10)):
        assert not some.knows_none
        assert not some.knows_all_others


def test_an_audit_holds_its_adversary():
    X = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).double().numpy()
    from sklearn.linear_model import Ridge

    audit = lw.audit(Ridge().fit(X, X[:, 0]), (X, X[:, 0]), games=3)
    assert audit.adversary == Adversary(29, 30, "row")
