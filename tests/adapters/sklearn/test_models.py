"""Models at the end of a pipeline, and models made of models."""

import re

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import (
    BaggingClassifier,
    BaggingRegressor,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
    VotingRegressor,
)
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import Lasso, LinearRegression, Perceptron, Ridge, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier, StratifiedKFold, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import lostwax as lw
from adapters.sklearn.mixed import encoded, encoder, logistic, people
from lostwax.grades import Grade

N = 50
FRAME, Y = people(N)
INCOME = FRAME["income"].to_numpy()


def audited(model, y=Y):
    return lw.audit(model.fit(FRAME, y), (FRAME, y))


EXACT = {
    "nearest neighbours": encoded(KNeighborsClassifier()),
    "naive Bayes": encoded(GaussianNB(), sparse_output=False),
    "voting": encoded(VotingClassifier([("a", logistic()), ("b", KNeighborsClassifier())])),
    "voting of pipelines": VotingClassifier([("a", encoded(logistic())), ("b", encoded(RandomForestClassifier(3)))]),
    "calibrated": encoded(CalibratedClassifierCV(logistic(), cv=2)),
    "calibrated on all rows": encoded(CalibratedClassifierCV(logistic(), cv=2, ensemble=False)),
    "calibrated pipelines": CalibratedClassifierCV(encoded(logistic(), handle_unknown="ignore"), cv=2),
    "stacking": encoded(StackingClassifier([("a", logistic()), ("b", GaussianNB())], cv=2), sparse_output=False),
    "one against the rest": encoded(OneVsRestClassifier(logistic())),
}


@pytest.mark.parametrize("model", EXACT.values(), ids=EXACT.keys())
def test_rows_and_labels_come_back(model):
    audit = audited(model)
    assert audit.conclusion.grade is Grade.EXACT
    assert audit.findings[-1].rebuilt.all()
    assert audit.findings[-1].labels_right.all()


@pytest.mark.parametrize(
    "model",
    [Ridge(), VotingRegressor([("a", Ridge()), ("b", LinearRegression())]), BaggingRegressor(Ridge(), 5)],
    ids=str,
)
def test_regressors(model):
    audit = audited(encoded(model), INCOME)
    assert audit.findings[-1].rebuilt.mean() > 0.9


def test_bags_of_models_whose_samples_are_known():
    audit = audited(encoded(BaggingClassifier(logistic(), 5, random_state=0)))
    assert audit.findings[-1].rebuilt.mean() > 0.9
    part_of_columns = encoded(BaggingClassifier(logistic(), 5, max_features=0.5, random_state=0))
    assert "BaggingClassifier was not audited" in audited(part_of_columns).unanswered[0]


@pytest.mark.parametrize(
    ("model", "y"),
    [
        (MultiOutputClassifier(logistic()), np.stack([Y, 1 - Y], 1)),
        (MultiOutputRegressor(Ridge()), np.stack([INCOME, INCOME**0.5], 1)),
        (TransformedTargetRegressor(Ridge(), transformer=StandardScaler()), INCOME),
    ],
    ids=["classes", "targets", "transformed"],
)
def test_targets_in_another_form_are_read_as_rows_are(model, y):
    audit = audited(encoded(model), y)
    assert audit.findings[-1].rebuilt.all()
    assert audit.findings[-1].target.read.all()


def test_parts_that_were_fitted_on_predictions_are_listed():
    stacked = audited(encoded(StackingClassifier([("a", logistic())], cv=2)))
    assert "LogisticRegression at the end of StackingClassifier was not audited" in stacked.unanswered[0]
    calibrated = audited(encoded(CalibratedClassifierCV(logistic(), cv=2)))
    assert "calibrators of CalibratedClassifierCV were not audited" in calibrated.unanswered[0]


@pytest.mark.parametrize("wrapped", [FrozenEstimator, FixedThresholdClassifier, TunedThresholdClassifierCV])
def test_models_behind_a_threshold_or_frozen_are_looked_into(wrapped):
    X, y = load_breast_cancer(return_X_y=True)
    audit = lw.audit(wrapped(KNeighborsClassifier().fit(X, y)).fit(X, y), (X, y), games=50)
    assert audit.findings[0].rebuilt.all()


def test_folds_that_cannot_be_drawn_again_are_listed():
    folds = StratifiedKFold(2, shuffle=True)
    audit = audited(encoded(CalibratedClassifierCV(logistic(), cv=folds)))
    assert audit.unanswered == (
        "LogisticRegression inside CalibratedClassifierCV was not audited: its folds were drawn at random.",
    )
    known = StratifiedKFold(2, shuffle=True, random_state=0)
    assert audited(encoded(CalibratedClassifierCV(logistic(), cv=known))).findings[-1].rebuilt.all()


def test_scalers_inside_folds_are_read_with_their_rows():
    """Each was fitted on the rows outside its fold: together they give every row away, whatever the model."""
    X, y = load_breast_cancer(return_X_y=True)
    model = CalibratedClassifierCV(make_pipeline(StandardScaler(), RandomForestClassifier(3)), cv=2).fit(X, y)
    assert lw.audit(model, (X, y), games=100).findings[0].rebuilt.all()


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (SVC(), "SVC was audited only for the rows and values that it holds"),
        (SGDClassifier(random_state=0), "SGDClassifier was not audited.*hinge"),
        (MLPClassifier((3,), max_iter=5), "MLPClassifier was not audited.*no unique optimum"),
        (Perceptron(), "Perceptron was not audited.*order of the rows"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_the_scaler_leaks_and_the_model_is_listed(model, words):
    audit = audited(encoded(model))
    assert audit.conclusion.grade.severity >= Grade.RECOGNISABLE.severity
    (unanswered,) = audit.unanswered
    assert re.search(words, unanswered)


def test_support_vectors_come_back_with_their_labels():
    X, y = load_breast_cancer(return_X_y=True)
    model = SVC().fit(X, y)
    audit = lw.audit(model, (X, y))
    assert audit.conclusion.grade is Grade.EXACT
    assert audit.findings[0].rebuilt[model.support_].mean() > 0.99
    assert audit.findings[0].labels_right[model.support_].mean() > 0.99
    assert "SVC was audited only for" in audit.unanswered[0]


def test_an_active_set_of_weights():
    X, y = load_diabetes(return_X_y=True)
    audit = lw.audit(make_pipeline(StandardScaler(), Lasso(1.0)).fit(X, y), (X, y), games=50)
    assert audit.findings[-1].rebuilt.all()


def test_clusters_need_no_labels():
    for model, X in (
        (encoded(KMeans(3, n_init=1, random_state=0)), FRAME),
        (KMeans(3, n_init=1, random_state=0), FRAME[["age", "income"]]),
    ):
        audit = lw.audit(model.fit(X), (X, None))
        assert audit.findings[0].rebuilt.all()


def test_a_monotone_curve_holds_rows():
    for X in (FRAME["age"].to_numpy(), FRAME[["age"]]):
        audit = lw.audit(IsotonicRegression().fit(X, INCOME), (X, INCOME))
        assert audit.conclusion.grade.leaks
        assert "IsotonicRegression was audited only for the rows and values" in audit.unanswered[0]


@pytest.mark.parametrize("kind", ["OLS", "Logit", "GLM"])
def test_statsmodels(kind):
    api = pytest.importorskip("statsmodels.api")
    X = api.add_constant(FRAME[["age", "income"]] / [10, 1e4])
    fit = getattr(api, kind)(Y, X).fit
    audit = lw.audit(fit(disp=False) if kind == "Logit" else fit(), (X, Y))
    assert audit.conclusion.grade is Grade.EXACT


def test_what_a_model_stores_of_other_rows_is_not_audited():
    other, labels = people(N, seed=3)
    for model in (KNeighborsClassifier(), SVC()):
        elsewhere = model.fit(encoder().fit_transform(other), labels)
        audit = lw.audit(make_pipeline(encoder().fit(FRAME), elsewhere), (FRAME, Y))
        assert f"{type(model).__name__} was not audited" in audit.unanswered[0]
        assert not audit.findings[0].labels_right.any()


@pytest.mark.parametrize("model", [MultiOutputRegressor(Ridge()), MultiOutputClassifier(logistic())])
def test_a_single_column_of_targets(model):
    audit = audited(encoded(model), (Y if isinstance(model, MultiOutputClassifier) else INCOME)[:, None])
    assert audit.findings[-1].rebuilt.all()
    assert audit.findings[-1].target.read.all()
