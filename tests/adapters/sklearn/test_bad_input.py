"""Every complaint names the argument, what was expected, what was got."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from sklearn.ensemble import VotingClassifier
from sklearn.feature_selection import SelectKBest
from sklearn.linear_model import (
    Lasso,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    PoissonRegressor,
    Ridge,
)
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, LinearSVR

import lostwax as lw
from lostwax.adapters.sklearn import released
from lostwax.audits.play import Settings
from lostwax.audits.tables import audit_table
from lostwax.grades import Grade

X, Y = load_iris(return_X_y=True)
X = StandardScaler().fit_transform(X)
MODEL = LogisticRegression(max_iter=1000).fit(X, Y)


def broken(value, row=3, column=2):
    copy = X.copy()
    copy[row, column] = value
    return copy


@pytest.mark.parametrize(
    ("data", "error", "words"),
    [
        (
            (broken(np.nan), Y),
            ValueError,
            "X holds 1 values that are NaN or infinite, the first at row 3, column 2",
        ),
        ((broken(np.inf), Y), ValueError, "X holds 1 values"),
        ((X[:0], Y[:0]), ValueError, "X is empty"),
        ((X[:1], Y[:1]), ValueError, "X has one row"),
        ((X[:, 0], Y), ValueError, "expected X of shape"),
        ((X, Y[:-1]), ValueError, "expected y with one row per record, 150 rows"),
        ((X, 5), ValueError, "expected y with one row per record"),
        ((X[:, :3], Y), ValueError, "X has 3 features, but LogisticRegression was fitted on 4"),
        ((X, np.eye(3)[Y]), ValueError, "one class label per record"),
        (
            (X, np.array(["a", None] * 75, dtype=object)),
            ValueError,
            "the label in y at row 1 is missing",
        ),
        ((X, np.array(["0", *Y.tolist()[1:]], dtype=object)), ValueError, "y holds labels of types int and str"),
        (
            (X, np.array([("0", 1.0)] * 150, dtype=[("a", "U1"), ("b", "f8")])),
            ValueError,
            "one label or row of targets",
        ),
        ((X, np.zeros((150, 0))), ValueError, "one label or row of targets"),
        ((X, Y + 1), ValueError, "labels that the model was not fitted on in 50 of 150 rows, the first in row 100"),
        ((X, np.where(Y == 0, np.nan, Y)), ValueError, "y holds 50 values"),
        ((X.astype(str) + "a", Y), TypeError, "expected numbers in X"),
        ((X.astype(complex), Y), TypeError, "complex"),
        (X, TypeError, "y is missing"),
        ((X, Y, Y), TypeError, r"expected data=\(X, y\)"),
        ((np.random.default_rng(0).normal(size=X.shape), Y), ValueError, "was not fitted on this data"),
        ((X, np.roll(Y, 30)), ValueError, "was not fitted on this data"),
    ],
)
def test_data(data, error, words):
    with pytest.raises(error, match=words):
        lw.audit(MODEL, data)


def test_sparse_tables_are_read_as_they_are():
    dense, sparse = (lw.audit(MODEL, (x, Y)) for x in (X, scipy.sparse.csr_array(X)))
    assert [int(one.rebuilt.sum()) for one in dense.findings] == [int(one.rebuilt.sum()) for one in sparse.findings]


def test_targets_of_another_width():
    with pytest.raises(ValueError, match="expected y with 1 targets per record"):
        lw.audit(Ridge().fit(X, Y), (X, np.stack([Y, Y], 1)))


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        (np.ones(3), r"sample_weight of shape \(150,\), got \(3,\)"),
        (-np.ones(150), "sample_weight >= 0"),
        (np.zeros(150), "sample_weight is 0 for every row"),
        (np.full(150, 1e-320), r"largest sample_weight is 1e-320, expected 1e-100 to"),
        (np.full(150, 1e200), r"largest sample_weight is 1e\+200"),
        (np.full(150, np.nan), "sample_weight holds 150 values"),
    ],
)
def test_sample_weight(weight, words):
    with pytest.raises(ValueError, match=words):
        lw.audit(MODEL, (X, Y), sample_weight=weight)


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        (GaussianNB().fit(X, np.zeros(150)), ValueError, "has one class"),
        (LogisticRegression(), ValueError, "LogisticRegression is not fitted"),
        (make_pipeline(StandardScaler(), LogisticRegression()), ValueError, "Pipeline is not fitted"),
        (make_pipeline("passthrough").fit(X, Y), TypeError, "has only 'passthrough' steps"),
        (LogisticRegression, TypeError, "expected a fitted scikit-learn estimator"),
        (3, TypeError, "expected a fitted scikit-learn estimator"),
        ("model.pkl", TypeError, "is a pickle"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_model(model, error, words):
    labels = np.zeros(150) if isinstance(model, GaussianNB) else Y
    with pytest.raises(error, match=words):
        lw.audit(model, (X, labels))


@pytest.mark.parametrize(
    ("model", "at_least"),
    [
        (SVC(), 50),  # its support vectors
        (KNeighborsClassifier(), 150),
        (KMeans(3, n_init=1, random_state=0), 100),
        (NearestCentroid(), 150),
        (VotingClassifier([("one", LogisticRegression(max_iter=1000))]), 150),
        (make_pipeline(SelectKBest(k=4), LogisticRegression(max_iter=1000)), 150),
    ],
    ids=str,
)
def test_models_that_hold_rows_or_sums_are_read(model, at_least):
    audit = lw.audit(model.fit(X, Y), (X, Y))
    assert audit.conclusion.grade is Grade.EXACT
    assert audit.findings[-1].rebuilt.sum() >= at_least
    assert audit.findings[-1].rebuilt.all() or audit.unanswered


def test_columns_that_were_not_selected_are_named():
    model = make_pipeline(SelectKBest(k=2), LogisticRegression(max_iter=1000)).fit(X, Y)
    audit = audit_table(released(model, (X, Y)), Settings())
    assert audit.conclusion.grade.severity >= Grade.RECOGNISABLE.severity
    assert "the model at its optimum gives exactly: column 2, column 3." in map(str, audit.notes)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (MLPClassifier((3,), max_iter=1), "no unique optimum"),
        (Lasso(positive=True), "positive=True"),
        (LinearRegression(positive=True), "positive=True"),
        (Ridge(positive=True), "positive=True"),
        (
            LinearSVC(penalty="l1", dual=False, fit_intercept=False),
            "several outputs without an intercept",
        ),
        (LinearSVC(loss="hinge"), "loss='hinge'"),
        (LinearSVC(multi_class="crammer_singer"), "multi_class='crammer_singer'"),
        (LinearSVC(class_weight="balanced"), "class_weight"),
        (OneVsRestClassifier(LogisticRegression(class_weight="balanced")), "class_weight"),
        (OneVsRestClassifier(LinearRegression()), "does not support LinearRegression"),
        (LogisticRegressionCV(refit=False, cv=2), "refit=False"),
        (LinearSVR(), "LinearSVR with loss"),
    ],
    ids=str,
)
def test_models_without_an_equation_are_handed_over_with_the_reason(model, words):
    """The release itself says nothing that was read: it is refitted (tests/audits/test_refitted.py), never passed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        release = released(model.fit(X, Y), (X, Y))
    assert not release.parts
    (reason,) = release.unread
    assert re.search(words, reason)
    assert "was not audited" in reason
    assert not re.search("no trace|last step|transform X|steps after", reason)


def test_a_refitted_model_names_what_was_not_audited():
    audit = lw.audit(Perceptron(random_state=0).fit(X, Y), (X, Y), games=10, max_minutes=2)
    assert "Perceptron was not audited" in str(audit.notes[0])
    assert any(
        "the released model was fitted on all rows, and was not attacked" in note for note in map(str, audit.notes)
    )


def test_other_rows_of_the_same_kind_are_noticed():
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(2, 300, 5))
    for model in (Ridge(), LinearRegression(), LogisticRegression()):
        targets = [(part @ np.arange(5.0) + rng.normal(size=300)) for part in (A, B)]
        if isinstance(model, LogisticRegression):
            targets = [target > 0 for target in targets]
        model.fit(A, targets[0])
        lw.audit(model, (A, targets[0]))
        with pytest.raises(ValueError, match="was not fitted on this data"):
            lw.audit(model, (B, targets[1]))


def diverged(model, attribute, value):
    model = model.fit(X, Y)
    part = model[0] if attribute == "mean_" else model
    numbers = np.array(getattr(part, attribute), dtype=float)
    numbers.flat[0] = value
    setattr(part, attribute, numbers)
    return model


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize(
    ("model", "attribute"),
    [
        (LogisticRegression(), "coef_"),
        (LogisticRegression(max_iter=2), "intercept_"),
        (Ridge(), "coef_"),
        (GaussianNB(), "theta_"),
        (make_pipeline(StandardScaler(), Ridge()), "mean_"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_weights_that_are_no_numbers(model, attribute, value):
    """Newton steps from there would never end, and nothing rebuilt would look like safety."""
    with pytest.raises(ValueError, match=f"{attribute} of .* holds 1 value that is NaN or infinite: training diverged"):
        lw.audit(diverged(clone(model), attribute, value), (X, Y))


@pytest.mark.parametrize("early", [False, True])
def test_weights_too_large_to_compute_with(early):
    """Finite, but their gradients are not."""
    model = LogisticRegression(max_iter=1000).fit(X, Y)
    model.coef_, model.n_iter_ = model.coef_ * 1e200, np.array([1000 if early else 1])
    with pytest.raises(ValueError, match="was not fitted on this data"):
        lw.audit(model, (X, Y))


FRAME = pd.DataFrame(X, columns=["a", "b", "c", "d"])


@pytest.mark.parametrize(
    "model",
    [
        LogisticRegression(max_iter=2),
        GaussianNB(),
        make_pipeline(StandardScaler(), Ridge()),
        make_pipeline("passthrough", Ridge()),
        GridSearchCV(Ridge(), {"alpha": [1.0]}, cv=2),
    ],
    ids=lambda model: type(model).__name__,
)
@pytest.mark.filterwarnings("ignore")
def test_columns_must_be_the_model_s(model):
    """Weights belong to the columns in their order, as scikit-learn has it when it predicts."""
    model = clone(model).fit(FRAME, Y)
    with pytest.raises(
        ValueError, match=r"different order.*column 1 is 'c' where .* 'b'. Pass X\[model.feature_names_in_"
    ):
        lw.audit(model, (FRAME[["a", "c", "b", "d"]], Y))
    with pytest.raises(ValueError, match=r"not those of the model: column 3 is 'e' where .* was fitted on 'd'"):
        lw.audit(model, (FRAME.rename(columns={"d": "e"}), Y))
    for same in (FRAME, X, FRAME.set_axis([0, 1, 2, 3], axis=1)):  # without names there is nothing to compare
        lw.audit(model, (same, Y), games=2)


def test_columns_may_have_spaces_where_lightgbm_writes_underscores():
    lightgbm = pytest.importorskip("lightgbm")
    spaced = FRAME.rename(columns={"a": "first column"})
    model = lightgbm.LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1).fit(spaced, Y)
    assert released(model, (spaced, Y)).columns.names == ("first column", "b", "c", "d")
    with pytest.raises(ValueError, match="not those of the model: column 1 is 'other' where"):
        released(model, (spaced.rename(columns={"b": "other"}), Y))


@pytest.mark.filterwarnings("ignore")
def test_a_model_stopped_early_is_at_least_better_than_zero_weights():
    """The gradient of such a model says nothing; but a solver goes downhill."""
    for model in (
        LogisticRegression(max_iter=5),
        LinearSVC(max_iter=2),
        Ridge(solver="sag", max_iter=2, random_state=0),
    ):
        model.fit(X, Y)
        lw.audit(model, (X, Y), games=2)
        with pytest.raises(ValueError, match=r"not fitted on this data.*times that of zero weights"):
            lw.audit(model, (3 * X, np.roll(Y, 50)))


def test_published_sums_must_agree_with_the_table():
    with pytest.raises(ValueError, match=r"was not fitted on this data.*does not agree"):
        lw.audit(GaussianNB().fit(X, Y), (broken(9.0), Y))
    with pytest.raises(ValueError, match="almost this data"):
        lw.audit(make_pipeline(StandardScaler(), Ridge()).fit(X, Y), (broken(X[3, 2] + 0.05), Y))


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ({"games": 2.5}, "games to be a whole number"),
        ({"games": True}, "games to be a whole number"),
        ({"games": "all"}, "games to be a whole number"),
        ({"seed": None}, "seed to be a whole number"),
        (
            {"trainer": lw.Optimum(), "attack": lw.ClosedForm()},
            "attack, trainer does not apply to a scikit-learn model",
        ),
    ],
)
def test_arguments_of_another_kind(argument, words):
    with pytest.raises(TypeError, match=words):
        lw.audit(MODEL, (X, Y), **argument)


@pytest.mark.parametrize("games", [0, 151, -1])
def test_games(games):
    with pytest.raises(ValueError, match=f"expected 1 <= games <= 150.*got {games}"):
        lw.audit(MODEL, (X, Y), games=games)


@pytest.mark.parametrize("threshold", [0, -1, float("nan"), float("inf"), 1e300])
def test_threshold(threshold):
    with pytest.raises(ValueError, match="expected 0 < threshold"):
        lw.audit(MODEL, (X, Y), threshold=threshold)


def test_neither_kind_of_audit():
    with pytest.raises(TypeError, match=r"pass data=\(X, y\).*or trainer, threat, prior, secrets"):
        lw.audit(MODEL)


ESTIMATORS = [
    LogisticRegression(),
    Ridge(),
    LinearRegression(),
    PoissonRegressor(),
    LinearSVC(),
    GaussianNB(),
    make_pipeline(StandardScaler(), LogisticRegression()),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("scale", [0.0, 1e-300, 1e-200], ids=str)
def test_a_table_of_nothing_is_refused(estimator, scale):
    """A model audited with X * 0: "every record can be rebuilt", or none, and neither means anything."""
    model = clone(estimator).fit(X, Y)
    with pytest.raises(ValueError, match=r"audit: "):
        lw.audit(model, (scale * X, Y))


@pytest.mark.parametrize("estimator", [LogisticRegression(), Ridge(), LinearSVC(), LinearRegression()], ids=str)
def test_a_column_without_numbers_has_no_weight(estimator):
    model = clone(estimator).fit(X, Y)
    with pytest.raises(ValueError, match="was not fitted on this data"):
        lw.audit(model, (X * [1, 1, 1, 0], Y))
    empty = X * [1, 1, 1, 0]
    assert len(lw.audit(clone(estimator).fit(empty, Y), (empty, Y)).games) == 150


@pytest.mark.parametrize("estimator", [Ridge(), LinearRegression()], ids=str)
def test_a_table_of_another_scale_is_another_table(estimator):
    """The intercept's column, of ones, does not speak for all."""
    model = clone(estimator).fit(X, Y)
    with pytest.raises(ValueError, match="was not fitted on this data"):
        lw.audit(model, (1e-3 * X, Y))


def test_a_row_all_the_same():
    same = np.repeat(X[:1], 150, 0)
    with pytest.raises(ValueError, match="all 150 rows of X are the same"):
        lw.audit(LogisticRegression().fit(same, Y), (same, Y))
