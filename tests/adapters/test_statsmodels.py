"""Results of statsmodels: each model's equation, against statsmodels' own fit, and the rows that its results hold."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.preprocessing import StandardScaler

import lostwax as lw
from lostwax.adapters.statsmodels import is_statsmodels, read, released
from lostwax.attacks.closed_form import ClosedForm
from lostwax.games import Hints
from lostwax.games.fitted import unexplained
from lostwax.trainers.optimum import polish

sm = pytest.importorskip("statsmodels.api")
smf = pytest.importorskip("statsmodels.formula.api")
links = sm.families.links


def table(load, columns):
    X, y = load(return_X_y=True)
    return StandardScaler().fit_transform(X)[:, columns], y


DIABETES = table(load_diabetes, slice(2, 8))
CANCER = table(load_breast_cancer, [1, 4, 8, 9])  # no columns that separate the classes
WINE = table(load_wine, [1, 2, 4])
WEIGHTS = np.random.default_rng(0).uniform(0.5, 2.0, len(DIABETES[1]))
COUNTS = np.random.default_rng(0).poisson(np.exp(0.3 * DIABETES[0][:, 0] + 1))
POSITIVE = DIABETES[1] / DIABETES[1].mean()
TIGHT = {"disp": 0, "method": "newton", "tol": 1e-14, "maxiter": 200}
STRICT = {"tol": 1e-14, "maxiter": 300, "tol_criterion": "params"}


def glm(X, y, family):
    return sm.GLM(y, sm.add_constant(X), family=family)


FITS = {
    "OLS": (DIABETES[0], DIABETES[1], lambda X, y: sm.OLS(y, sm.add_constant(X)).fit()),
    "OLS without const": (DIABETES[0], DIABETES[1], lambda X, y: sm.OLS(y, X).fit()),
    "WLS": (DIABETES[0], DIABETES[1], lambda X, y: sm.WLS(y, sm.add_constant(X), weights=WEIGHTS).fit()),
    "Logit": (*CANCER, lambda X, y: sm.Logit(y, sm.add_constant(X)).fit(**TIGHT)),
    "Logit without const": (*CANCER, lambda X, y: sm.Logit(y, X).fit(**TIGHT)),
    "Probit": (*CANCER, lambda X, y: sm.Probit(y, sm.add_constant(X)).fit(**TIGHT)),
    "MNLogit": (*WINE, lambda X, y: sm.MNLogit(y, sm.add_constant(X)).fit(**TIGHT)),
    "Poisson": (DIABETES[0], COUNTS, lambda X, y: sm.Poisson(y, sm.add_constant(X)).fit(**TIGHT)),
    "GLM Gaussian": (*DIABETES, lambda X, y: glm(X, y, sm.families.Gaussian()).fit(**STRICT)),
    "GLM Binomial": (*CANCER, lambda X, y: glm(X, y, sm.families.Binomial()).fit(**STRICT)),
    "GLM Probit": (*CANCER, lambda X, y: glm(X, y, sm.families.Binomial(links.Probit())).fit(**STRICT)),
    "GLM Poisson": (DIABETES[0], COUNTS, lambda X, y: glm(X, y, sm.families.Poisson()).fit(**STRICT)),
    "GLM Gamma, log": (DIABETES[0], POSITIVE, lambda X, y: glm(X, y, sm.families.Gamma(links.Log())).fit(**STRICT)),
    "GLM Gamma": (0.3 * DIABETES[0], POSITIVE, lambda X, y: glm(X, y, sm.families.Gamma()).fit(**STRICT)),
    "GLM Tweedie": (
        DIABETES[0],
        POSITIVE,
        lambda X, y: glm(X, y, sm.families.Tweedie(links.Log(), var_power=1.5)).fit(**STRICT),
    ),
}
every_model = pytest.mark.parametrize("name", FITS)


@every_model
@pytest.mark.filterwarnings("ignore")
def test_every_row_comes_from_the_parameters_alone(name):
    X, y, fit = FITS[name]
    fitted = read(fit(X, y), (X, y))
    gap, _ = unexplained(fitted.model, fitted.table, fitted.weight)
    r, f = fitted.model.factors(fitted.table, fitted.weight)
    assert gap.norm() < 1e-7 * (r.abs().mT @ f.abs()).norm()
    optimum = polish(fitted.model, fitted.table, fitted.weight)
    assert optimum.converged
    alone = replace(fitted, model=optimum.model, stored=())
    hints = Hints(labels=fitted.table.y[:, None]) if fitted.model.bias is None else None
    guess = ClosedForm().leave_one_out(alone, torch.arange(len(X)), hints)
    rows = guess.records.x if guess.alternatives is None else guess.alternatives.x
    errors = (rows - fitted.table.x[:, None]).abs() / fitted.table.x.std(0)
    worst = errors.amax(-1).nan_to_num(nan=torch.inf).amin(1)  # (n,)
    seen = r.norm(dim=1) > 1e-4  # a row that is fitted better is lost in rounding sooner
    assert seen.double().mean() > 0.9
    assert worst[seen].max() < 1e-6
    if fitted.table.y.is_floating_point():
        torch.testing.assert_close(guess.records.y[seen, 0], fitted.table.y[seen], rtol=1e-6, atol=1e-6)
    else:
        assert torch.equal(guess.records.y[seen, 0], fitted.table.y[seen])


@pytest.mark.parametrize("name", ["OLS", "Logit", "MNLogit", "GLM Poisson"])
def test_results_hold_their_data_unless_it_was_removed(name):
    X, y, fit = FITS[name]
    results = fit(X, y)
    audit = lw.audit(results, (X, y), games=30)
    assert audit.errors.max() == 0
    assert str(audit.grade) == "exact"
    assert any("holds the training data" in note for note in map(str, audit.notes))
    results.remove_data()
    alone = read(results, (X, y))
    assert not alone.stored
    assert not any("holds" in note for note in map(str, alone.notes))
    again = lw.audit(results, (X, y), games=30)
    assert again.finding("as converged").rebuilt.all()  # by the equation
    assert 0 < again.errors.max() < 0.05


def test_a_formula_keeps_the_frame_after_remove_data():
    frame = pd.DataFrame(DIABETES[0][:, :3], columns=["bmi", "bp", "s1"]).assign(y=DIABETES[1])
    results = smf.ols("y ~ bmi + bp", frame).fit()
    fitted = read(results, (frame, frame["y"]))
    assert fitted.columns == ("bmi", "bp")
    assert fitted.stored
    results.remove_data()
    left = read(results, (frame, frame["y"]))
    assert left.stored  # statsmodels keeps model.data.orig_exog
    assert torch.equal(left.stored[0].x, fitted.table.x)
    assert any("model.data.frame" in note for note in map(str, left.notes))


def test_a_formula_with_terms_of_its_own():
    frame = pd.DataFrame(CANCER[0][:, :2], columns=["a", "b"]).assign(y=CANCER[1])
    frame["group"] = np.where(frame["a"] > 0, "high", "low")
    results = smf.logit("y ~ b + C(group)", frame).fit(**TIGHT)
    fitted = read(results, (frame, frame["y"]))
    assert fitted.columns == ("C(group)[T.low]", "b")
    assert any("design matrix" in note for note in map(str, fitted.notes))
    results.model.exog = None
    with pytest.raises(ValueError, match="Pass its design matrix"):
        read(results, (frame, frame["y"]))


def test_the_column_of_ones_may_be_left_out():
    X, y, fit = FITS["OLS"]
    results = fit(X, y)
    without, with_ones = read(results, (X, y)), read(results, (sm.add_constant(X), y))
    assert torch.equal(without.table.x, with_ones.table.x)
    assert torch.equal(without.model.weight, with_ones.model.weight)


def test_a_constant_that_is_not_one():
    X, y = DIABETES
    results = sm.OLS(y, np.column_stack([X, np.full(len(y), 7.0)])).fit()
    fitted = read(results, (X, y))
    assert fitted.model.bias is not None
    np.testing.assert_allclose(fitted.model.outputs(fitted.table.x)[:, 0], results.fittedvalues, rtol=1e-12)


def test_a_frame_with_other_columns():
    frame = pd.DataFrame(DIABETES[0][:, :3], columns=["bmi", "bp", "s1"])
    results = sm.OLS(DIABETES[1], sm.add_constant(frame[["bp", "bmi"]])).fit()
    fitted = read(results, (frame, DIABETES[1]))
    assert fitted.columns == ("bp", "bmi")
    np.testing.assert_allclose(fitted.model.outputs(fitted.table.x)[:, 0], results.fittedvalues, rtol=1e-12)


def test_frequency_weights():
    X, y = CANCER
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    model = sm.GLM(y, sm.add_constant(X), family=sm.families.Binomial(), freq_weights=weight)
    fitted = read(model.fit(**STRICT), (X, y))
    np.testing.assert_allclose(fitted.weight, weight)


def test_another_table_is_refused():
    X, y, fit = FITS["Logit"]
    results = fit(X, y)
    results.remove_data()
    with pytest.raises(ValueError, match="was not fitted on this data"):
        read(results, (X[:, ::-1].copy(), y))


REFUSED = [
    (lambda X, y: sm.OLS(y, sm.add_constant(X)).fit_regularized(alpha=0.1), "fit_regularized"),
    (lambda X, y: sm.QuantReg(y, sm.add_constant(X)).fit(), "QuantReg of statsmodels is not supported"),
    (lambda X, y: sm.GLM(y, X, family=sm.families.Gaussian(), offset=y).fit(), "offset"),
    (lambda X, y: glm(X, y, sm.families.Gaussian(links.Log())).fit(), "Gaussian"),
]


@pytest.mark.parametrize(("fit", "words"), REFUSED)
@pytest.mark.filterwarnings("ignore")
def test_models_without_a_known_equation_are_refused_by_name(fit, words):
    X, y = DIABETES
    with pytest.raises(TypeError, match=words):
        read(fit(X, y), (X, y))


@pytest.mark.parametrize("fit", [fit for fit, _ in REFUSED], ids=[words for _, words in REFUSED])
@pytest.mark.filterwarnings("ignore")
def test_the_rows_that_results_hold_are_exact_whatever_the_model(fit):
    X, y = DIABETES
    audit = lw.audit(fit(X, y), (X, y))
    assert audit.findings[0].rebuilt.all()
    assert "the parameters were not attacked" in audit.unanswered[0]


def test_only_results_are_recognised():
    X, y, fit = FITS["OLS"]
    results = fit(X, y)
    assert is_statsmodels(results)
    assert not is_statsmodels(sm.OLS(y, X))  # a model that was not fitted
    assert not is_statsmodels(StandardScaler().fit(X))
    assert released(results, (X, y)).parts


@pytest.mark.parametrize("removed", [False, True])
@pytest.mark.parametrize("kind", [sm.OLS, sm.Logit])
def test_an_intercept_alone_is_refused_in_words(kind, removed):
    y, ones = np.arange(30) % 7 // 4.0, np.ones((30, 1))
    results = kind(y, ones).fit()
    if removed:
        results.remove_data()
    with pytest.raises(ValueError, match="has an intercept and no features"):
        lw.audit(results, (ones, y))
