"""What results of lifelines and statsmodels hold, and Cox models of both and of scikit-survival."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lostwax as lw
from lostwax.grades import Grade

PATIENTS = pd.read_csv(Path(__file__).parent / "r_files" / "patients.csv")
X, Y = PATIENTS[["age", "dose"]], PATIENTS[["weeks", "died"]]


def test_cox_models_of_lifelines():
    lifelines = pytest.importorskip("lifelines")
    frame = PATIENTS[["age", "dose", "weeks", "died"]]
    model = lifelines.CoxPHFitter().fit(frame, "weeks", "died")
    audit = lw.audit(model, (X, Y))
    assert audit.findings[0].rebuilt.all()
    assert any("_norm_mean includes the secret row" in str(note) for note in audit.notes)
    assert any("holds a target of all rows" in str(sentence) for sentence in audit.unanswered)
    with pytest.raises(ValueError, match="was not fitted on this data"):
        lw.audit(model, (X[::-1].to_numpy(), Y))
    with pytest.raises(ValueError, match="X has 1 columns, but CoxPHFitter was fitted on 2: age, dose"):
        lw.audit(model, (X[["age"]], Y))
    with pytest.raises(ValueError, match="times and events"):
        lw.audit(model, (X, PATIENTS[["weeks", "pain"]]))
    ridge = lifelines.CoxPHFitter(penalizer=0.1).fit(frame, "weeks", "died")
    assert any("with penalizer is not read" in str(sentence) for sentence in lw.audit(ridge, (X, Y)).unanswered)
    frame = PATIENTS[["age", "dose", "town", "weeks", "died"]]
    strata = lifelines.CoxPHFitter().fit(frame, "weeks", "died", strata="town")
    assert lw.audit(strata, (frame[["age", "dose", "town"]], Y)).findings[0].rebuilt.all()
    with pytest.raises(ValueError, match="has strata by town"):
        lw.audit(strata, (X, Y))
    frame = PATIENTS[["age", "dose", "weeks", "died"]]
    weibull = lifelines.WeibullAFTFitter().fit(frame, "weeks", "died")
    assert any("WeibullAFTFitter were not attacked" in str(each) for each in lw.audit(weibull, (X, Y)).unanswered)


def test_cox_models_of_scikit_survival():
    linear = pytest.importorskip("sksurv.linear_model")
    y = pytest.importorskip("sksurv.util").Surv.from_arrays(PATIENTS["died"].astype(bool), PATIENTS["weeks"])
    for ties in ("breslow", "efron"):
        model = linear.CoxPHSurvivalAnalysis(ties=ties).fit(X, y)
        assert lw.audit(model, (X, y)).findings[0].rebuilt.all()
    ridge = linear.CoxPHSurvivalAnalysis(alpha=1.0).fit(X, y)
    assert lw.audit(ridge, (X, y), max_minutes=1).grade.severe  # by refitting


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_cox_models_of_statsmodels(ties):
    sm = pytest.importorskip("statsmodels.api")
    results = sm.PHReg(PATIENTS["weeks"], X, status=PATIENTS["died"], ties=ties).fit()
    audit = lw.audit(results, (X, Y))
    assert audit.findings[0].rebuilt.all()
    assert audit.attackers.rungs[0].grade is Grade.EXACT
    assert any("model.exog holds 60 of 60 rows" in str(note) for note in audit.notes)


def test_cox_models_of_two_releases_are_listed_as_not_compared():
    sm = pytest.importorskip("statsmodels.api")
    first, second = (
        (sm.PHReg(rows["weeks"], rows[["age", "dose"]], status=rows["died"]).fit(), (rows[["age", "dose"]], rows[[*Y]]))
        for rows in (PATIENTS, PATIENTS[1:])
    )
    audit = lw.audit(*second, before=first)
    assert any("coefficients were not compared: a Cox model" in str(sentence) for sentence in audit.unanswered)


def test_mixed_models_and_time_series_of_statsmodels_hold_their_data():
    smf = pytest.importorskip("statsmodels.formula.api")
    tsa = pytest.importorskip("statsmodels.tsa.arima.model")
    mixed = smf.mixedlm("pain ~ age + dose", PATIENTS, groups=PATIENTS["town"]).fit()
    audit = lw.audit(mixed, (X, PATIENTS["pain"]))
    assert audit.attackers.rungs[0].grade is Grade.EXACT
    assert any("MixedLM of statsmodels is not supported" in str(sentence) for sentence in audit.unanswered)
    series = np.random.default_rng(0).normal(size=100).cumsum()
    arima = tsa.ARIMA(series, order=(1, 1, 0)).fit()
    audit = lw.audit(arima, (np.arange(100.0)[:, None], series))
    assert any("endog holds 100 of 100 rows" in str(note) for note in audit.notes)
    assert audit.grade.severe
