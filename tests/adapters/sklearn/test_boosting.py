"""Boosted trees inside models of scikit-learn, with labels and tables of all kinds."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import BaggingRegressor, VotingClassifier
from sklearn.model_selection import GridSearchCV

import lostwax as lw
from boosting import check, forest_part, mixed, part_of, table, tells_sizes
from lostwax.adapters.sklearn import released
from lostwax.adapters.sklearn.boosting import is_booster, released_booster
from lostwax.games import Kept

xgb, lgb = pytest.importorskip("xgboost"), pytest.importorskip("lightgbm")

CLASSIFIERS = [xgb.XGBClassifier(n_estimators=5), lgb.LGBMClassifier(n_estimators=5, verbose=-1, n_jobs=1)]
REGRESSORS = [xgb.XGBRegressor(n_estimators=5), lgb.LGBMRegressor(n_estimators=5, verbose=-1, n_jobs=1)]


def forests(release):
    return [part.fitted for part in release.parts if part.fitted.forest is not None]


@pytest.mark.parametrize("model", CLASSIFIERS)
def test_models_of_models(model):
    X, y = table("wine")
    folds = CalibratedClassifierCV(model, cv=3, ensemble=True).fit(X, y)
    found = forests(released(folds, (X, y)))
    assert len(found) == 3
    for fitted in found:  # each was grown on two thirds of the rows
        assert all(tells_sizes(fitted))
        assert np.isclose((fitted.forest.trees[0].share > 0).mean(), 2 / 3, atol=0.02)
        check(fitted)
    voting = VotingClassifier([("one", model)]).fit(X, y)
    (fitted,) = forests(released(voting, (X, y)))
    check(fitted)
    search = GridSearchCV(model, {"max_depth": [2]}, cv=2).fit(X, y)
    check(part_of(released(search, (X, y))))


@pytest.mark.parametrize("model", REGRESSORS)
def test_whole_numbers_are_targets(model):
    X, y = table("diabetes")
    fitted = forest_part(model.fit(X, y.astype(int)), X, y.astype(int))
    assert fitted.table.y.is_floating_point()
    assert fitted.forest.trees[0].labels is not None
    check(fitted)


def test_bags_say_nothing_wrong():
    X, y = table("diabetes")
    for model in REGRESSORS:
        bag = BaggingRegressor(model, n_estimators=2, random_state=0).fit(X, y)
        for fitted in forests(released(bag, (X, y))):
            check(fitted)


def test_names_of_classes():
    X, y = table("wine")
    names = np.array(["red", "rosé", "white"])[y]
    model = CLASSIFIERS[1].fit(X, names)
    release = released(model, (X, names))
    assert release.classes == ("red", "rosé", "white")
    assert lw.audit(model, (X, names)).unanswered == ()


def test_boosters_of_frames():
    X, y = mixed()
    model = lgb.train({"verbose": -1, "num_threads": 1}, lgb.Dataset(X, y), 10)
    assert is_booster(model)
    assert not is_booster(REGRESSORS[0])
    check(part_of(released_booster(model, (X, y))))
    model = xgb.train({}, xgb.DMatrix(X, y, enable_categorical=True), 10)
    check(part_of(released_booster(model, (X, y))))


def test_sparse_tables():
    rng = np.random.default_rng(0)
    X = np.round(rng.normal(size=(200, 4)), 1) * (rng.random((200, 4)) < 0.4)
    y = X[:, 0] + rng.normal(size=200) * 0.1
    check(forest_part(REGRESSORS[1].fit(csr_matrix(X), y), csr_matrix(X), y))
    release = released(REGRESSORS[0].fit(csr_matrix(X), y), (csr_matrix(X), y))
    assert any("sparse" in reason for reason in release.unread)


def towns(rare: int, n: int = 90):
    """A table in which `rare` rows have a town of their own; one town that is listed is nobody's."""
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(2)
    town = [f"hamlet {number}" if number < rare else str(rng.choice(["Bath", "Ely"])) for number in range(n)]
    listed = [*dict.fromkeys(town), "Atlantis"]
    X = pandas.DataFrame({"pay": rng.normal(size=n), "town": pandas.Categorical(town, categories=listed)})
    return X, rng.integers(0, 2, n)


UNSPLIT = [
    xgb.XGBClassifier(n_estimators=2, enable_categorical=True, min_child_weight=1e6, n_jobs=1),
    lgb.LGBMClassifier(n_estimators=2, min_child_samples=1_000, verbose=-1, n_jobs=1),
]


@pytest.mark.parametrize("model", UNSPLIT)
@pytest.mark.parametrize("rare", [0, 4])
def test_names_that_trees_do_not_split_are_in_the_file(model, rare, tmp_path):
    """Both libraries write every category of a data frame: who has a town for himself is in the model by name."""
    X, y = towns(rare)
    if not isinstance(model, lgb.LGBMModel) and tuple(map(int, xgb.__version__.split(".")[:2])) < (3, 1):
        pytest.skip("this XGBoost writes no names")
    fitted = model.fit(X, y)
    path = tmp_path / ("model.json" if isinstance(model, xgb.XGBModel) else "model.txt")
    fitted.save_model(path) if isinstance(model, xgb.XGBModel) else fitted.booster_.save_model(path)
    for released_model in (fitted, path):
        audit = lw.audit(released_model, (X, y))
        assert any("every category of the data frame by name" in note for note in map(str, audit.notes))
        by_target = audit.conclusion.line.by_target  # XGBoost also writes the share of a class
        assert audit.grade.leaks == (bool(rare) or by_target)
        assert int((audit.findings[0].cells.each.kept == Kept.EXACT).sum()) == rare


def test_names_of_a_table_that_was_passed_as_codes_are_listed_as_not_audited():
    X, y = towns(4)
    fitted = UNSPLIT[1].fit(X, y)
    codes = X.assign(town=X["town"].cat.codes)
    assert any("categories that" in reason for reason in released_booster(fitted.booster_, (codes, y)).unread)
