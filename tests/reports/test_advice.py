import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import Lasso, Ridge
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import lostwax as lw
from lostwax.games import Adversary, Sees
from lostwax.reports.advice import answer, attacker, remedies


def test_an_insider_with_the_model_file(audit_of):
    found = attacker(audit_of("of_a_table"))
    assert found.has == "The attacker has the model itself, with every number in its file."
    assert found.knows.startswith("They know every other row of the training data")
    assert found.applies[0].startswith("the model file or its weights are given out")
    assert any(one.startswith("only predictions are given out") for one in found.differs)
    assert "Somebody with similar public rows who gets the file." in found.untested
    assert "382 of 442 records: a sample was drawn at random." in found.untested


def test_predictions_only(audit_of):
    audit = replace(audit_of("nothing"), adversary=Adversary.of(lw.access.Outputs(), 99, 100))
    found = attacker(audit)
    assert "does not have the model file" in found.has
    assert any("too mild" in one for one in found.differs)
    assert "Anyone who gets the file." in found.untested
    assert not any("predictions only" in one.lower() for one in remedies(audit))


def test_an_outsider(audit_of):
    found = attacker(replace(audit_of("nothing"), adversary=Adversary(0, 10)))
    assert found.knows.startswith("They know no record of the training data")
    assert "Somebody who knows all other records." in found.untested


def test_a_threat_of_a_user_is_quoted(audit_of):
    mine = Adversary(sees=Sees.PART, access="Mine(3)")
    audit = replace(audit_of("nothing"), threat="an attacker of my own", adversary=mine)
    found = attacker(audit)
    assert found.knows == "What they know: an attacker of my own."
    assert found.has == "The attacker sees a part of the model (Mine(3))."


def test_candidates_and_labels_are_said(audit_of):
    assert "a short list of records" in attacker(audit_of("candidates")).knows
    assert "its label" in attacker(replace(audit_of("nothing"), labels_given=True)).knows


def test_no_attacker_reads_as_no_risk(audit):
    found = attacker(audit)
    assert len(found.untested) >= 3
    assert found.untested[-1] == "Attacks that are not known today."
    for one in found.differs:
        assert "too mild" in one or "not tested" in one or "not shown" in one


def of_diabetes(model):
    X, y = load_diabetes(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return lw.audit(model.fit(X, y), (X, y), games=20)


def test_this_scaler_comes_first():
    found = answer(of_diabetes(make_pipeline(StandardScaler(), Ridge()))).advice
    assert found[0].startswith("StandardScaler's mean")
    assert found[0].endswith("Fit it on public data.")
    assert found[1].startswith("Do not give out exact predictions instead")  # they give the weights away
    assert found[2].startswith("Train with differential privacy")


def test_predictions_alone_are_a_remedy_for_trees_but_not_for_equations():
    def advice(model):
        return " ".join(remedies(of_diabetes(model)))

    assert "Give out predictions only" in advice(DecisionTreeRegressor(max_depth=3))
    for model in (Ridge(), Lasso(0.1), make_pipeline(PolynomialFeatures(), Lasso(0.1))):
        assert "predictions only" not in advice(model)
        assert "exact predictions" in advice(model)


def test_this_range():
    advice = remedies(of_diabetes(make_pipeline(MinMaxScaler(), Ridge())))
    assert any(
        "show the extreme values of columns: use limits that are known without the data" in text for text in advice
    )


def test_this_file():
    X, y = load_iris(return_X_y=True)
    found = remedies(lw.audit(KNeighborsClassifier().fit(X, y), (X, y), games=20))
    assert "do not give out this file" in found[0]


def test_these_leaves():
    X = np.random.default_rng(0).normal(size=(60, 3)).round(2)
    audit = lw.audit(RandomForestRegressor(10, random_state=0).fit(X, X[:, 0]), (X, X[:, 0]), games=10)
    assert any("larger leaves" in one for one in remedies(audit))


def test_what_it_costs_follows_noise(audit_of):
    audit = audit_of("rebuilt_pictures")
    both = lw.compare(audit, audit_of("nothing"), names=("as it is", "with noise"), accuracy=(0.9, 0.8))
    advice = answer(audit, None, both.measured()).advice
    place = next(i for i, one in enumerate(advice) if one.startswith("Train with differential privacy"))
    assert advice[place + 1].startswith("Measured, with noise: grade not found instead of exact")
    assert "accuracy 80.0\N{NO-BREAK SPACE}% instead of 90.0\N{NO-BREAK SPACE}%" in advice[place + 1]


@pytest.mark.parametrize("kind", ["of_a_table", "candidates"])
def test_a_page_explains_its_words(kind, audit_of):
    from lostwax.reports.html import render

    page = render(audit_of(kind), {}, records=False)
    assert "<dt>game</dt>" in page
