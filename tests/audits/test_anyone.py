import numpy as np
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression, Perceptron, Ridge
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, StandardScaler
from sklearn.svm import SVC

import lostwax as lw
from lostwax.games import Attacker
from lostwax.grades import Grade

X, Y = load_wine(return_X_y=True)


def anyone(audit):
    (rung,) = audit.attackers.of_kind(Attacker.ANYONE)
    return rung


@pytest.mark.parametrize("steps", [(), (StandardScaler(),), (MinMaxScaler(), StandardScaler())])
def test_neighbours_hold_every_row_for_anyone_in_the_units_of_the_table(steps):
    audit = lw.audit(make_pipeline(*steps, KNeighborsClassifier()).fit(X, Y), (X, Y))
    assert (anyone(audit).rebuilt, anyone(audit).grade) == (178, Grade.EXACT)
    assert audit.conclusion.headline == "Anyone who gets the file can read 178 of 178 rows."
    assert "it is like publishing the data" in lw.audits.decision.decide(audit).people
    assert audit.attackers.margin == 178


@pytest.mark.parametrize("model", [GaussianNB(), BernoulliNB(), CategoricalNB()])
def test_a_class_of_one_row_is_that_row(model):
    x, y = (X.mean(0) < X) * 1, Y.copy()
    y[5] = 3
    audit = lw.audit(model.fit(x, y), (x, y))
    assert (anyone(audit).grade, anyone(audit).rebuilt) == (Grade.EXACT, 1)
    assert audit.conclusion.weakest.attacker.kind is Attacker.ANYONE
    y[6] = 3
    weight = np.ones(len(y))
    weight[6] = 0
    audit = lw.audit(model.fit(x, y, sample_weight=weight), (x, y), sample_weight=weight)
    assert (anyone(audit).grade, anyone(audit).rebuilt) == (Grade.EXACT, 1)
    model.fit(x, y)
    assert anyone(lw.audit(model.fit(x, y), (x, y))).rebuilt == 0


def test_a_support_vector_machine_holds_some():
    model = make_pipeline(StandardScaler(), SVC()).fit(X, Y)
    assert anyone(lw.audit(model, (X, Y))).rebuilt == len(model[-1].support_)


@pytest.mark.parametrize("model", [LogisticRegression(max_iter=10_000), GaussianNB(), StandardScaler()])
def test_what_needs_the_other_rows_is_nothing_to_anyone(model):
    audit = lw.audit(model.fit(X, Y), (X, Y))
    assert audit.grade is Grade.EXACT
    assert anyone(audit).grade is Grade.NOT_FOUND
    assert audit.conclusion.weakest.attacker.kind is Attacker.INSIDER
    assert "like publishing" not in lw.audits.decision.decide(audit).people


def test_extremes_are_values_of_single_rows():
    audit = lw.audit(make_pipeline(MinMaxScaler(), Ridge()).fit(X, Y.astype(float)), (X, Y.astype(float)))
    assert anyone(audit).grade is Grade.BETTER_THAN_CHANCE
    assert 0 < anyone(audit).cells <= 2 * X.shape[1]


def test_extremes_of_flags_are_no_news():
    flags = np.random.default_rng(0).integers(0, 2, (100, 5)).astype(float)
    audit = lw.audit(make_pipeline(MinMaxScaler(), Ridge()).fit(flags, flags[:, 0]), (flags, flags[:, 0]))
    assert anyone(audit).cells == 0


def test_predictions_alone_are_no_file():
    model = KNeighborsClassifier().fit(X, Y)
    audit = lw.audit(model, (X, Y), access=lw.access.Outputs(), games=20, max_minutes=0.2)
    assert all(rung.grade is None for rung in audit.attackers.of_kind(Attacker.ANYONE))


def towns(rare):
    """A table of which every row has an age and a town, and `rare` rows a town of their own."""
    rng = np.random.default_rng(0)
    town = np.array([f"town {number}" for number in rng.integers(4, size=60)], dtype=object)
    town[:rare] = [f"village {number}" for number in range(rare)]
    return np.column_stack([rng.integers(20, 80, size=60).astype(object), town]), rng.integers(2, size=60)


@pytest.mark.parametrize(
    ("rare", "grade", "cells"),
    [(0, Grade.UNDECIDED, 0), (2, Grade.BETTER_THAN_CHANCE, 2), (60, Grade.RECOGNISABLE, 60)],
)
def test_a_list_of_categories_tells_only_what_single_rows_have(rare, grade, cells):
    X, y = towns(rare)
    model = make_pipeline(ColumnTransformer([("town", OneHotEncoder(), [1])], remainder="passthrough"), Perceptron())
    rung = anyone(lw.audit(model.fit(X, y), (X, y), attackers=["anyone"]))
    assert (rung.grade, rung.cells) == (grade, cells)
