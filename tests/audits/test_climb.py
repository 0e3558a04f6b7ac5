import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris, load_wine
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

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


def test_three_classes_give_two_rows_and_of_more_those_that_stand_out(three_classes):
    curve, margin = insiders(three_classes), three_classes.attackers.margin
    assert curve[2].rebuilt == curve[2].certified == curve[2].tried
    assert all(rung.share < 0.1 and not rung.certified for missing, rung in curve.items() if missing > 2)
    assert curve[max(curve)].grade is Grade.NOT_FOUND
    assert curve[max(curve)].games == climb.ENOUGH
    headline = three_classes.conclusion.headline
    assert headline.startswith("Somebody who knows all but 2 rows can rebuild the missing ones")
    assert margin == 2 or f"if {margin} are missing" in headline
    assert headline.endswith(f"from {min(k for k in curve if k > margin)} missing rows on nothing was rebuilt.")


def flags(targets):
    """A table of truth values, and a model of it."""
    rng = np.random.default_rng(0)
    x = (rng.random((200, 20)) < rng.uniform(0.2, 0.6, 20)).astype(float)
    score = x @ rng.standard_normal(20) + rng.standard_normal(200)
    return (Ridge(), x, score) if targets else (tight(), x, (score > 0) * 1)


@pytest.mark.parametrize("targets", [False, True])
def test_flags_come_back_however_few_outputs_a_model_has(targets):
    model, x, y = flags(targets)
    curve = insiders(lw.audit(model.fit(x, y), (x, y), attackers=["insider"]))
    assert [curve[k].share > 0.9 for k in (2, 4)] == [True, True]


def test_a_row_that_stands_out_is_tried():
    """One row in 400 has a large residual: random games miss it, and its share of the sum is nearly all."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((400, 6))
    y = x @ rng.standard_normal(6) + 0.01 * rng.standard_normal(400)
    y[7] += 100
    audit = lw.audit(Ridge().fit(x, y), (x, y))
    assert insiders(audit)[2].worst_fitted == 1
    assert audit.attackers.margin >= 2
    assert lw.Policy(max_knowledge_margin=1).breaches(audit)


def test_few_games_that_find_nothing_leave_it_open(monkeypatch):
    monkeypatch.setattr(climb, "NUMBERS", (1, *climb.NUMBERS[1:]))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((200, 6)), rng.integers(0, 2, 200)
    model = tight().fit(x, y)
    audit = lw.audit(model, (x, y))
    rung = insiders(audit)[2]
    assert (rung.games, rung.grade) == (climb.GAMES, Grade.UNDECIDED)
    assert "too few" in str(lw.Policy(max_knowledge_margin=1).breaches(audit)[0])
    asked = lw.audit(model, (x, y), attackers=["insider"])
    assert (insiders(asked)[2].games, insiders(asked)[2].grade) == (climb.ENOUGH, Grade.NOT_FOUND)
    assert lw.Policy(max_knowledge_margin=1).breaches(asked) == ()


@pytest.mark.parametrize("seed", range(3))
def test_luck_is_no_leak(seed):
    """Of two columns guesses are near rows by chance: on a model of noise no more rows are missed than stated."""
    rng = np.random.default_rng(seed)
    x, y = rng.standard_normal((150, 2)), rng.integers(0, 2, 150)
    audit = lw.audit(LogisticRegression(C=1e-3, tol=1e-10).fit(x, y), (x, y), seed=seed)
    assert all(not rung.rebuilt for missing, rung in insiders(audit).items() if missing > 4)


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


def test_a_scaler_does_not_hide_what_the_optimum_shows():
    """The scaler's sums need no solver, but two missing rows need the model too, which stopped early."""
    table, target = load_wine(return_X_y=True)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(table, target)
    assert insiders(lw.audit(model, (table, target)))[2].share == 1


def test_attackers_narrow_the_climb():
    audit = lw.audit(tight().fit(X, Y), (X, Y), attackers=["anyone"])
    assert insiders(audit)[2].grade is None
    assert set(insiders(audit)) == {1, 2}
    assert audit.attackers.of_kind(Attacker.ANYONE)[0].grade is Grade.NOT_FOUND


def test_large_equations_are_solved_where_that_is_asked_for(monkeypatch):
    monkeypatch.setattr(climb, "NUMBERS", (1, 10, climb.NUMBERS[2]))
    (rung,) = [rung for missing, rung in insiders(lw.audit(tight().fit(X, Y), (X, Y))).items() if missing == 2]
    assert rung.grade is None
    assert "max_minutes" in rung.reason
    asked = lw.audit(tight().fit(X, Y), (X, Y), attackers=["insider"])
    assert asked.attackers.margin >= 2


def test_a_forest_is_searched_where_that_is_asked_for():
    model = RandomForestClassifier(5, max_depth=2, random_state=0).fit(X[:40] > 3, Y[:40] + np.arange(40) % 2)
    data = (X[:40] > 3, Y[:40] + np.arange(40) % 2)
    (rung,) = lw.audit(model, data).attackers.of_kind(Attacker.ANYONE)
    assert rung.grade is None
    assert 'attackers=["anyone"]' in rung.reason
    (rung,) = lw.audit(model, data, max_minutes=0.1).attackers.of_kind(Attacker.ANYONE)
    assert rung.grade is not None


def binary_table(seed):
    rng = np.random.default_rng(seed)
    x = (rng.random((80, 12)) < rng.uniform(0.2, 0.6, 12)).astype(float)
    return x, (x @ rng.standard_normal(12) + rng.standard_normal(80) > 0) * 1


def test_several_missing_rows_of_a_forest():
    x, y = binary_table(0)
    curve = insiders(lw.audit(RandomForestClassifier(50, random_state=0).fit(x, y), (x, y)))
    assert [curve[k].grade for k in (2, 4, 8)] == [Grade.EXACT] * 3
    assert curve[8].share > 0.5  # the others are equal to a known row
    assert 0 < curve[8].certified <= curve[8].rebuilt


def test_numbers_come_back_from_a_regression_forest_too():
    x, y = load_diabetes(return_X_y=True)
    x, y = x[:120], y[:120]
    audit = lw.audit(RandomForestRegressor(30, random_state=0).fit(x, y), (x, y), games=10)
    assert insiders(audit)[2].grade is Grade.EXACT
    assert audit.attackers.margin >= 8


@pytest.mark.parametrize("seed", range(3))
def test_stumps_tell_no_missing_row(seed):
    """Counts of how often a value occurs; guesses that luck brings near a row are no leak."""
    x, y = binary_table(seed)
    for model in (DecisionTreeClassifier(max_depth=1), RandomForestClassifier(5, max_depth=2, random_state=seed)):
        audit = lw.audit(model.fit(x, y), (x, y))
        assert not [rung for missing, rung in insiders(audit).items() if missing > 1 and rung.leaks]
        assert audit.attackers.margin in (0, 1)


def test_what_trees_do_not_count_is_not_tried():
    x, y = binary_table(0)
    x[0, 0] = np.nan
    (rung,) = [
        rung for missing, rung in insiders(lw.audit(DecisionTreeClassifier().fit(x, y), (x, y))).items() if missing == 2
    ]
    assert rung.grade is None
    assert "values are missing" in rung.reason


@pytest.mark.parametrize("names", ["anyone", ["nobody"], [3]])
def test_attackers_that_are_none(names):
    with pytest.raises((TypeError, ValueError), match="audit: expected attackers to be"):
        lw.audit(Ridge().fit(X, Y), (X, Y), attackers=names)
