"""Estimators whose optimum gives an equation for some features, or for some rows only: nothing else is claimed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn import linear_model
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import (
    ARDRegression,
    BayesianRidge,
    ElasticNet,
    ElasticNetCV,
    HuberRegressor,
    Lasso,
    LassoCV,
    LassoLars,
    LassoLarsIC,
    LogisticRegression,
    MultiTaskLasso,
    Perceptron,
    QuantileRegressor,
    Ridge,
    RidgeClassifier,
    RidgeClassifierCV,
    SGDClassifier,
    SGDRegressor,
)
from sklearn.multiclass import OneVsRestClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import LinearSVC, LinearSVR

import lostwax as lw
from equations import read
from lostwax.adapters.sklearn import released
from lostwax.attacks.closed_form import ClosedForm
from lostwax.games import Hints
from lostwax.games.cells import Kept
from lostwax.games.fitted import unexplained
from lostwax.trainers.optimum import polish

TIGHT = {"tol": 1e-14, "max_iter": 1_000_000}


def standardised(load):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X), y


def relative_gradient(fitted):
    gap, _ = unexplained(fitted.model, fitted.table, fitted.weight)
    r, f = fitted.model.factors(fitted.table, fitted.weight)
    return float(gap.norm() / (r.abs().mT @ f.abs()).norm())


def rebuilt(model, X, y, weight=None):
    """The guesses at the optimum, their errors in deviations, and what they claim, (n, d) each."""
    fitted = read(model, (X, y), weight)
    optimum = polish(fitted.model, fitted.table, fitted.weight)
    assert optimum.converged
    fitted = replace(fitted, model=optimum.model)
    hints = None if fitted.model.bias is not None else Hints(labels=fitted.table.y[:, None])
    guess = ClosedForm().leave_one_out(fitted, torch.arange(len(X)), hints)
    rows = guess.records.x if guess.alternatives is None else guess.alternatives.x  # (n, candidates, d)
    kept = torch.full_like(fitted.table.x, Kept.EXACT) if guess.kept is None else guess.kept[:, 0]
    errors = (rows - fitted.table.x[:, None]).abs() / fitted.table.x.std(0)
    claimed = torch.where(kept[:, None] >= Kept.SET, errors, 0.0).amax(-1).nan_to_num(nan=torch.inf)
    best = claimed.argmin(1)
    return fitted, guess, errors[torch.arange(len(X)), best].numpy(), kept.numpy()


LASSOS = [
    Lasso(alpha=1.0, **TIGHT),
    Lasso(alpha=5.0, fit_intercept=False, **TIGHT),
    ElasticNet(alpha=2.0, l1_ratio=0.99, **TIGHT),
    ElasticNetCV(l1_ratio=[0.98, 0.99], alphas=[2.0, 5.0], **TIGHT),
    LassoCV(alphas=[2.0, 5.0], **TIGHT),
    LassoLars(alpha=1.0),
    LassoLarsIC(),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("model", LASSOS, ids=str)
def test_a_lasso_gives_away_the_features_it_uses(model, weighted):
    if weighted and isinstance(model, LassoLars):
        pytest.skip("LassoLars.fit takes no sample_weight")
    X, y = standardised(load_diabetes)
    y = y if model.fit_intercept else y - y.mean()
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    fit = clone(model).fit(X, y, **({"sample_weight": weight} if weighted else {}))
    assert relative_gradient(read(fit, (X, y), weight)) < 1e-7
    fitted, guess, errors, kept = rebuilt(fit, X, y, weight)
    used = fit.coef_ != 0
    assert 0 < used.sum() < len(used)
    np.testing.assert_allclose(fitted.model.weight[0], fit.coef_, rtol=1e-6, atol=1e-8)
    assert (kept[:, used] >= Kept.SET).all()
    assert (kept[:, ~used] <= Kept.INTERVAL).all()
    assert errors[:, used].max() < 1e-6
    np.testing.assert_allclose(guess.records.y[:, 0], y, rtol=0, atol=1e-6)


def test_several_targets_use_each_others_features():
    X, y = standardised(load_diabetes)
    Y = np.stack([y, X[:, 0] * 30 + y], 1)
    fit = Lasso(alpha=5.0, **TIGHT).fit(X, Y)
    _, guess, errors, kept = rebuilt(fit, X, Y)
    used = (fit.coef_ != 0).any(0)
    assert (fit.coef_ != 0).all(0).sum() < used.sum() < len(used)
    assert ((kept == Kept.EXACT) == used).all()
    assert errors[:, used].max() < 1e-6
    np.testing.assert_allclose(guess.records.y[:, 0], Y, rtol=0, atol=1e-6)


SPARSE_CLASSIFIERS = [
    LogisticRegression(C=0.1, l1_ratio=1, solver="saga", tol=1e-9, max_iter=100_000),
    LogisticRegression(C=0.1, l1_ratio=0.5, solver="saga", tol=1e-9, max_iter=100_000),
    OneVsRestClassifier(LogisticRegression(C=0.2, l1_ratio=1, solver="liblinear", tol=1e-10)),
    LinearSVC(C=0.1, penalty="l1", dual=False, tol=1e-10, max_iter=100_000),
    LinearSVC(C=0.1, penalty="l1", dual=False, tol=1e-10, max_iter=100_000, intercept_scaling=3.0),
]


@pytest.mark.parametrize("model", SPARSE_CLASSIFIERS, ids=str)
def test_a_sparse_classifier_gives_away_the_features_it_uses(model):
    X, y = standardised(load_wine)
    fit = clone(model).fit(X, y)
    fitted = read(fit, (X, y))
    assert relative_gradient(fitted) < 1e-6
    optimum, guess, errors, kept = rebuilt(fit, X, y)
    assert torch.equal(optimum.model.weight != 0, fitted.model.weight != 0)
    used = (optimum.model.weight != 0).any(0).numpy()
    r, _ = optimum.model.factors(optimum.table, optimum.weight)
    seen = (r.abs() > 1e-6).any(1).numpy()  # of a LinearSVC: within the margin
    exact = kept == Kept.EXACT
    assert 0 < used.sum() < len(used)
    assert not exact[:, ~used].any()
    assert errors[exact].max() < 1e-6
    if not isinstance(model, LinearSVC):
        assert exact[:, used].all()
    assert not exact[~seen].any()
    assert exact[seen][:, used].mean() > 0.8  # a feature of one class needs a row within its margin
    assert (guess.records.y[:, 0] == fitted.table.y)[seen].double().mean() > 0.98


def test_a_penalised_intercept_of_zero_leaves_the_label_to_be_known():
    X, y = standardised(load_breast_cancer)
    X, y = np.concatenate([X, -X]), np.concatenate([y, 1 - y])  # the best intercept is zero
    fit = LogisticRegression(C=0.02, l1_ratio=1, solver="liblinear", tol=1e-10).fit(X, y)
    assert fit.intercept_ == 0
    fitted, _, errors, kept = rebuilt(fit, X, y)
    assert fitted.model.bias is None
    assert errors[kept >= Kept.SET].max() < 1e-5
    assert (kept >= Kept.SET).any()


def test_the_missing_row_is_not_used():
    X, y = standardised(load_diabetes)
    fitted = read(Lasso(alpha=1.0, **TIGHT).fit(X, y), (X, y))
    for row in (0, 7):
        hidden = fitted.table.x.clone()
        hidden[row] = torch.nan
        guesses = [
            ClosedForm().leave_one_out(replace(fitted, table=replace(fitted.table, x=x)), torch.tensor([row]))
            for x in (fitted.table.x, hidden)
        ]
        assert torch.equal(guesses[0].records.x, guesses[1].records.x)
        assert torch.equal(guesses[0].kept, guesses[1].kept)


def test_all_weights_zero():
    X, y = standardised(load_diabetes)
    fit = Lasso(alpha=100.0).fit(X, y)
    fitted, guess, _, kept = rebuilt(fit, X, y)
    assert not (kept == Kept.EXACT).any()
    np.testing.assert_allclose(guess.records.y[:, 0], y, rtol=0, atol=1e-8)  # the intercept is the mean of y
    assert "reveals no feature" in str(fitted.notes[0])


def test_weights_of_zero_are_within_their_penalty_on_their_own_table_alone():
    """Gradients of weights that are zero need not vanish."""
    draw = np.random.default_rng(0)
    X = draw.gamma(2.0, 0.2, size=(60, 5))
    y = X @ [3.0, 2.0, 1.0, 0.0, 0.0] + draw.normal(size=60)
    model = Lasso().fit(X, y)
    assert not model.coef_.any()
    assert lw.audit(model, (X, y)).conclusion.line.by_target
    with pytest.raises(ValueError, match="was not fitted on this data"):
        lw.audit(model, (X, y + 5))


def test_intervals_hold_the_truth():
    X, y = standardised(load_diabetes)
    fit = LassoCV(alphas=[0.3], **TIGHT).fit(X, y)
    _, _, errors, kept = rebuilt(fit, X, y)
    bounded = kept == Kept.INTERVAL
    assert bounded.any()
    assert errors[bounded].max() < 2.0  # the interval is narrower than two deviations


def test_a_sparse_model_behind_a_public_scaler():
    X, y = load_diabetes(return_X_y=True)
    scaler = MinMaxScaler((-1, 3)).fit(np.concatenate([X - 1, X + 1]))
    model = Lasso(alpha=1.0, **TIGHT).fit(scaler.transform(X), y)
    _, _, errors, kept = rebuilt(make_pipeline(scaler, model), X, y)
    assert ((kept == Kept.EXACT) == (model.coef_ != 0)).all()
    assert errors[kept == Kept.EXACT].max() < 1e-6


def test_an_audit_of_a_lasso():
    X, y = standardised(load_diabetes)
    fit = Lasso(alpha=1.0).fit(X, y)
    audit = lw.audit(fit, (X, y), games=20)
    converged, used = audit.finding("as converged"), fit.coef_ != 0
    errors = (converged.guess.records.x[:, 0] - audit.truth.x).abs().numpy()
    assert errors[:, used].max() < 1e-6
    assert errors[:, ~used].max(1).min() > 1e-3  # nothing is known of them
    assert not converged.rebuilt.any()  # three of ten features are lost
    assert str(audit.grade) != "not found"
    assert any("have weight zero" in note for note in map(str, audit.notes))
    whole = lw.audit(Lasso(alpha=1e-3).fit(X, y), (X, y), games=20)  # every feature is used
    assert whole.finding("as converged").rebuilt.all()
    nothing = lw.audit(Lasso(alpha=100.0).fit(X, y), (X, y), games=40)  # none is: only the target is told
    assert nothing.conclusion.line.by_target


def test_another_table_is_refused():
    X, y = standardised(load_diabetes)
    with pytest.raises(ValueError, match="was not fitted on this data"):
        read(Lasso(alpha=1.0).fit(X, y), (X[:, ::-1].copy(), y))


def test_groups_of_weights_are_not_read():
    X, y = standardised(load_diabetes)
    Y = np.stack([y, -y], 1)
    with pytest.raises(TypeError, match="does not support MultiTaskLasso"):
        read(MultiTaskLasso().fit(X, Y), (X, Y))


RIDGE_CLASSIFIERS = [
    RidgeClassifier(alpha=0.5),
    RidgeClassifier(class_weight="balanced"),
    RidgeClassifier(fit_intercept=False),
    RidgeClassifierCV(alphas=[0.1, 1.0, 10.0]),
]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("load", [load_wine, load_breast_cancer])
@pytest.mark.parametrize("model", RIDGE_CLASSIFIERS, ids=str)
def test_ridge_classifiers_with_three_and_two_classes(model, load, weighted):
    X, y = standardised(load)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    fit = clone(model).fit(X, y, sample_weight=weight)
    assert relative_gradient(read(fit, (X, y), weight)) < 1e-11
    _, guess, errors, _ = rebuilt(fit, X, y, weight)
    assert errors.max() < 1e-6
    assert (guess.records.y[:, 0].numpy() == y).all()


def test_bayesian_ridge_publishes_the_mean_of_the_table():
    X, y = load_diabetes(return_X_y=True)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y))
    for model, more in ((BayesianRidge(), weight), (BayesianRidge(), None), (ARDRegression(), None)):
        fit = model.fit(X, y) if more is None else model.fit(X, y, sample_weight=more)
        audit = lw.audit(fit, (X, y), sample_weight=more)
        assert audit.errors.max() < 1e-6
        assert any("X_offset_" in note for note in map(str, audit.notes))


@pytest.mark.parametrize("weighted", [False, True])
def test_huber_gives_every_row_and_the_targets_of_inliers(weighted):
    X, y = standardised(load_diabetes)
    weight = np.random.default_rng(0).uniform(0.5, 2.0, len(y)) if weighted else None
    fit = HuberRegressor(tol=1e-10, max_iter=10_000).fit(X, y, sample_weight=weight)
    assert relative_gradient(read(fit, (X, y), weight)) < 1e-4  # scipy's lbfgs stops here
    fitted, guess, errors, _ = rebuilt(fit, X, y, weight)
    assert errors.max() < 1e-6
    distance = (fitted.model.outputs(fitted.table.x)[:, 0] - fitted.table.y).abs()
    outlier = (distance > fitted.model.loss.threshold).numpy()
    assert 0 < outlier.sum() < len(y) / 2
    found = guess.records.y[:, 0].numpy()
    np.testing.assert_allclose(found[~outlier], y[~outlier], rtol=0, atol=1e-6)
    assert (np.abs(found - y)[outlier] > 0).all()


def test_linear_svr_gives_the_rows_outside_its_tube():
    X, y = standardised(load_diabetes)
    settings = {"loss": "squared_epsilon_insensitive", "epsilon": 5.0, "C": 0.1, "dual": False}
    fit = LinearSVR(**settings, tol=1e-12, max_iter=100_000).fit(X, y)
    assert relative_gradient(read(fit, (X, y))) < 1e-6
    fitted, guess, errors, _ = rebuilt(fit, X, y)
    outside = np.abs(fitted.model.outputs(fitted.table.x)[:, 0].numpy() - y) > 5.0 + 1e-3
    assert 0.5 < outside.mean() < 1
    assert errors[outside].max() < 1e-5
    np.testing.assert_allclose(guess.records.y[:, 0].numpy()[outside], y[outside], rtol=0, atol=1e-5)
    assert not (errors[~outside].max(1) < 1e-3).any()


def test_transformed_targets_come_back():
    X, y = standardised(load_diabetes)
    fit = TransformedTargetRegressor(Ridge(), func=np.log, inverse_func=np.exp).fit(X, y)
    finding = lw.audit(fit, (X, y)).finding("as converged")
    assert finding.rebuilt.all()
    np.testing.assert_allclose(finding.guess.records.y[:, 0], y, rtol=1e-8)  # in the units of the table


STOCHASTIC = [
    SGDClassifier(loss="log_loss", alpha=0.1, random_state=0),
    SGDClassifier(loss="modified_huber", alpha=0.1, random_state=0),
    SGDClassifier(loss="squared_hinge", alpha=0.1, eta0=1e-3, learning_rate="constant", random_state=0),
    SGDClassifier(loss="squared_error", alpha=0.1, learning_rate="invscaling", random_state=0),
    SGDRegressor(alpha=0.1, random_state=0),
    SGDRegressor(loss="huber", epsilon=30.0, alpha=0.1, eta0=0.1, random_state=0),
    SGDRegressor(loss="squared_epsilon_insensitive", alpha=0.1, random_state=0),
]


@pytest.mark.parametrize("model", STOCHASTIC, ids=str)
def test_descent_that_is_given_long_enough_reaches_the_optimum_we_read(model):
    X, y = standardised(load_diabetes if isinstance(model, SGDRegressor) else load_wine)
    fitted = read(clone(model).fit(X, y), (X, y))
    assert fitted.model.stopped_early
    assert any("'as converged'" in note for note in map(str, fitted.notes))
    optimum = polish(fitted.model, fitted.table, fitted.weight)
    assert optimum.converged
    long = clone(model).set_params(learning_rate="constant", eta0=0.002, tol=None, max_iter=300, average=30_000)
    near = read(long.fit(X, y), (X, y)).model.weight
    scale = optimum.model.weight.abs().max()
    assert (near - optimum.model.weight).abs().max() < 0.05 * scale
    _, _, errors, _ = rebuilt(clone(model).fit(X, y), X, y)
    r, _ = optimum.model.factors(fitted.table, fitted.weight)
    seen = (r.abs() > 1e-3).any(1).numpy()
    assert seen.mean() > 0.3
    assert errors[seen].max() < 1e-6


def test_descent_that_diverged_is_not_read():
    X, y = load_wine(return_X_y=True)
    fit = SGDClassifier(loss="squared_hinge", random_state=0).fit(X, y)
    with pytest.raises(TypeError, match="diverged"):
        read(fit, (X, y))


UNREADABLE = [
    (Perceptron(), "minimises no objective"),
    (QuantileRegressor(), "corners"),
    (SGDClassifier(), "loss='hinge'"),
    (SGDClassifier(loss="log_loss", penalty="l1"), "penalty='l1'"),
    (SGDClassifier(loss="log_loss", early_stopping=True), "early_stopping=True"),
    (LinearSVR(), "loss='epsilon_insensitive'"),
]


@pytest.mark.parametrize(("model", "words"), UNREADABLE, ids=str)
@pytest.mark.filterwarnings("ignore")
def test_models_without_an_equation_are_refused_by_name(model, words):
    X, y = standardised(load_wine)
    with pytest.raises(TypeError, match=words) as caught:
        read(clone(model).fit(X, y), (X, y))
    assert type(model).__name__ in str(caught.value)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_passive_aggressive_models_are_refused_by_name():
    kind = getattr(linear_model, "PassiveAggressiveClassifier", None)
    if kind is None:
        pytest.skip("newer versions have it as a setting of SGDClassifier")
    X, y = standardised(load_wine)
    with pytest.raises(TypeError, match="PassiveAggressiveClassifier: it minimises no objective"):
        read(kind().fit(X, y), (X, y))


TARGETS = np.stack([load_diabetes().target, load_diabetes().target ** 2 / 100], 1)
FLAGS = (np.median(TARGETS, 0) < TARGETS).astype(int)
MODELS_OF_MODELS = [
    (MultiOutputRegressor(Ridge()), TARGETS),
    (MultiOutputClassifier(LogisticRegression(solver="newton-cg", tol=1e-12)), FLAGS),
    (ClassifierChain(LogisticRegression(solver="newton-cg", tol=1e-12), order=[1, 0]), FLAGS),
    (
        TransformedTargetRegressor(make_pipeline(MinMaxScaler(), Ridge()), func=np.log, inverse_func=np.exp),
        TARGETS[:, 0],
    ),
]


@pytest.mark.parametrize(("model", "y"), MODELS_OF_MODELS, ids=lambda value: type(value).__name__)
def test_models_of_models_are_looked_into(model, y):
    X, _ = standardised(load_diabetes)
    audit = lw.audit(clone(model).fit(X, y), (X, y), games=20)
    assert audit.finding("as converged").rebuilt.all()
    columns = audit.finding("as converged").target.read.all(0)  # of a chain only the first was fitted on X alone
    assert columns.sum() == (1 if isinstance(model, ClassifierChain) else len(columns))


class ScaledForest(RegressorMixin, BaseEstimator):
    """Someone's own estimator: a scaler, which gives away extremes, and a model that is not read."""

    def fit(self, X, y):
        self.scaler_ = MinMaxScaler().fit(X)
        self.model_ = RandomForestRegressor(5, random_state=0).fit(self.scaler_.transform(X), y)
        return self

    def predict(self, X):
        return self.model_.predict(self.scaler_.transform(X))


def test_extremes_do_not_hide_that_a_model_was_not_read():
    X, y = standardised(load_diabetes)
    release = released(ScaledForest().fit(X, y), (X, y))
    assert any(
        "ScaledForest was audited only for the rows and values that it holds" in sentence for sentence in release.unread
    )
