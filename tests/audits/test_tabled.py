"""Audits as data frames and tables for papers."""

import csv
import io
import sys

import numpy as np
import pandas
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

import lostwax as lw
from audits.game import Reads, audited
from lostwax.audits.tabled import short_name


@pytest.fixture(scope="module")
def of_a_model():
    X, y = load_iris(return_X_y=True)
    return lw.audit(LogisticRegression(max_iter=1_000, tol=1e-2).fit(X, y), (X, y), games=40)


@pytest.fixture(scope="module")
def trained():
    return audited(Reads(noise=0.1), games=120)


def test_a_frame_has_a_row_per_line_and_game(of_a_model):
    frame = of_a_model.to_frame()
    assert len(frame) == 2 * 40
    assert all(name.isidentifier() and len(name) < 30 for name in frame.columns)
    for name in ("rebuilt", "nearer", "label_right"):
        assert frame[name].dtype == bool
    released = frame[frame.line == "as released"]
    assert np.array_equal(released.error, of_a_model.errors)
    assert np.array_equal(released.game, of_a_model.games)
    assert released.rebuilt.mean() == of_a_model.summary()["as released"]["rebuilt"]
    nearest = of_a_model.baselines["nearest known row"][of_a_model.metric]
    assert np.array_equal(released.nearest_known_row, nearest)
    assert set(released.verdict) == set(of_a_model.verdicts)
    assert frame.attrs["error"] == of_a_model.metric


def test_a_frame_holds_errors_and_no_records(trained):
    always = {"line", "game", "error", "rebuilt", "nearer", "label_right", "confidence"}
    others = {"blind_guess", "nearest_prior_or_known_record", "rmse", "mean_absolute_error"}
    pictures = {"peak_signal_to_noise_ratio", "structural_similarity"}
    assert set(trained.to_frame().columns) == always | others | pictures


def test_a_certificate_is_a_boolean_or_missing(trained):
    """Of several lines, some may have no certificates."""
    from dataclasses import replace

    import torch

    line = trained.findings[0]
    sure = replace(line, name="sure", guess=replace(line.guess, certified=torch.ones(120, 1, dtype=torch.bool)))
    frame = replace(trained, findings=(line, sure)).to_frame()
    assert frame.certified.dtype == "boolean"
    assert frame[frame.line == "sure"].certified.all()
    assert frame[frame.line != "sure"].certified.isna().all()


def test_without_pandas_the_message_says_what_to_install(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModuleNotFoundError, match=r"Install lostwax\[tables\]"):
        trained.to_frame()
    assert trained.to_csv()  # this needs no pandas


def test_csv_has_the_numbers_of_the_summary(trained, tmp_path):
    text = trained.to_csv(tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text() == text
    rows = {row["line"]: row for row in csv.DictReader(io.StringIO(text))}
    summary = trained.summary()
    assert list(rows) == list(summary)
    assert float(rows["as released"]["rebuilt"]) == summary["as released"]["rebuilt"]
    assert float(rows["as released"]["rebuilt_high"]) == trained.interval(int(trained.findings[0].rebuilt.sum()))[1]
    rate = trained.tpr()
    assert (float(rows["as released"]["tpr"]), float(rows["as released"]["tpr_low"])) == (rate.rate, rate.low)
    assert rows["blind guess (mean of the prior)"]["nearer"] == ""
    assert len(pandas.read_csv(io.StringIO(text))) == len(rows)


def test_short_names():
    assert short_name("RMSE in feature standard deviations") == "rmse"
    assert short_name("blind guess (mean of the prior)") == "blind_guess"
    assert short_name("peak signal-to-noise ratio (dB)", whole=True) == "peak_signal_to_noise_ratio_db"
