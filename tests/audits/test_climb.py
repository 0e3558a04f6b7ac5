import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

import lostwax as lw
from lostwax.audits import climb
from lostwax.games import Attacker, Sees
from lostwax.grades import Grade

X, Y = load_iris(return_X_y=True)
X = X + 1e-3 * np.random.default_rng(0).standard_normal(X.shape)  # no two rows are equal


def tight(**options):
    return LogisticRegression(tol=1e-10, max_iter=10_000, **options)


@pytest.fixture(scope="module")
def three_classes():
    return lw.audit(tight().fit(X, Y), (X, Y))


def insiders(audit):
    return {rung.attacker.missing: rung for rung in audit.attackers.rungs if rung.attacker.kind is Attacker.INSIDER}


def test_three_classes_give_two_rows(three_classes):
    assert three_classes.attackers.margin == 2
    assert insiders(three_classes)[3].rebuilt == 0
    assert three_classes.conclusion.headline.startswith("Somebody who knows all rows but 2 can rebuild")
    assert three_classes.conclusion.headline.endswith("from 3 missing rows on nothing was rebuilt.")


def test_two_classes_give_one_and_of_more_those_that_stand_out():
    table, target = load_breast_cancer(return_X_y=True)
    table = StandardScaler().fit_transform(table)[:, :8]  # elsewhere: the scaler is not part of the model
    audit = lw.audit(tight().fit(table, target), (table, target))
    margin, curve = audit.attackers.margin, insiders(audit)
    assert all(rung.share < 0.5 for missing, rung in curve.items() if missing > 1)
    assert curve[max(curve)].grade is Grade.NOT_FOUND
    assert lw.Policy(max_knowledge_margin=margin).breaches(audit) == ()
    (breach,) = lw.Policy(max_knowledge_margin=margin - 1).breaches(audit)
    assert breach.found == margin


def test_weights_are_read_from_predictions(three_classes):
    (caller,) = [rung for rung in three_classes.attackers.rungs if rung.attacker.sees is Sees.PREDICTIONS]
    assert caller.grade is Grade.EXACT
    assert caller.rebuilt == caller.tried == climb_games(three_classes)


def climb_games(audit):
    return min(lw.audits.models.CALLER_GAMES, len(audit.games))


def test_attackers_narrow_the_climb():
    audit = lw.audit(tight().fit(X, Y), (X, Y), attackers=["anyone"])
    assert set(insiders(audit)) == {1}
    assert audit.attackers.of_kind(Attacker.ANYONE)[0].grade is Grade.NOT_FOUND


def test_large_equations_are_solved_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(climb, "QUICK", 10)
    (rung,) = [rung for missing, rung in insiders(lw.audit(tight().fit(X, Y), (X, Y))).items() if missing == 2]
    assert rung.grade is None
    assert "max_minutes" in rung.reason
    asked = lw.audit(tight().fit(X, Y), (X, Y), attackers=["insider"])
    assert asked.attackers.margin == 2


def test_a_forest_is_searched_where_that_is_asked_for():
    model = RandomForestClassifier(5, max_depth=2, random_state=0).fit(X[:40] > 3, Y[:40] + np.arange(40) % 2)
    data = (X[:40] > 3, Y[:40] + np.arange(40) % 2)
    (rung,) = lw.audit(model, data).attackers.of_kind(Attacker.ANYONE)
    assert rung.grade is None
    assert 'attackers=["anyone"]' in rung.reason
    (rung,) = lw.audit(model, data, max_minutes=0.1).attackers.of_kind(Attacker.ANYONE)
    assert rung.grade is not None


@pytest.mark.parametrize("names", ["anyone", ["nobody"], [3]])
def test_attackers_that_are_none(names):
    with pytest.raises((TypeError, ValueError), match="audit: expected attackers to be"):
        lw.audit(Ridge().fit(X, Y), (X, Y), attackers=names)
