"""The comparison on common pipelines, at toy size: all pipelines fit, answers and refusals become rows and lines."""

import importlib
import json
import subprocess
import sys
import time
from itertools import repeat
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from lostwax.games import Guess, Records

ROWS = 90  # members and held out


@pytest.fixture
def tables(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "benchmarks")
    monkeypatch.delitem(sys.modules, "tables", raising=False)  # a recipe has its own tables.py
    yield importlib.import_module("tables")
    del sys.modules["tables"]


@pytest.fixture
def asking(root, monkeypatch):
    monkeypatch.syspath_prepend(root / "benchmarks" / "peers")
    return importlib.import_module("asking")


def case(tables, name):
    return next(case for case in tables.CASES if case.name == name)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_every_pipeline_fits_and_has_its_own_name(tables):
    assert len({tables.key(case) for case in tables.CASES}) == len(tables.CASES) >= 20
    for one in tables.CASES:
        X, X_out, y, _ = one.split(ROWS)
        assert np.isfinite(tables.fingerprint(one.fitted(X, y), X_out)), one.name


def test_the_mixed_table_has_missing_values_in_both_kinds_of_columns(tables):
    X, _ = case(tables, "imputers + one-hot, logistic").table()
    numbers, categories = X.select_dtypes("number"), X.select_dtypes(exclude="number")
    assert (numbers.shape[1], categories.shape[1]) == (5, 6)
    assert numbers.isna().any().all()
    assert categories.isna().any().all()


def test_an_audit_becomes_rows(tables):
    rows = {row.id.split(".")[-1]: row for row in tables.by_lostwax(case(tables, "Gaussian naive Bayes"), ROWS)}
    assert rows["rebuilt"].value == 1
    assert rows["rebuilt"].paper == ">= 0.99"
    assert rows["cells exact"].value > 0.99
    assert rows["grade"].value == "exact"
    assert rows["seconds"].seed == 0


def test_a_refusal_becomes_a_row_with_its_message(tables, monkeypatch):
    def refuse(*_, **__):
        raise TypeError("audit: expected\n numbers.")

    monkeypatch.setattr(tables.lw, "audit", refuse)
    (row,) = tables.by_lostwax(case(tables, "lasso"), ROWS)
    assert row.value == "no answer, TypeError: audit: expected numbers."
    assert row.paper is None


def test_cells_are_equal_by_name_by_number_or_both_missing(tables):
    table = pd.DataFrame({"age": [1.0, 2.0, np.nan], "sex": ["f", "m", None]})
    truth = torch.tensor([[1.0, 0], [2, 1], [torch.nan, torch.nan]], dtype=torch.float64)
    guess = torch.tensor([[1 + 1e-9, 0], [2.1, 0], [torch.nan, 1]], dtype=torch.float64)
    audit = SimpleNamespace(truth=Records(truth, torch.zeros(3)), games=np.arange(3))
    finding = SimpleNamespace(guess=Guess(Records(guess[:, None], torch.zeros(3, 1)), torch.ones(3, 1)))
    assert tables.cells_exact(table, audit, finding) == {
        "cells exact": 3 / 6,
        "cells that are the most frequent": 1 / 3,
        "categories exact": 1 / 3,
        "categories that are the most frequent": 1 / 3,
    }
    assert tables.cells_exact(table * 2, audit, finding) == {"cells exact": "not in the units of the table"}


REPLY = {
    "fingerprint": 0.25,
    "answers": [
        {"attack": "LiRA", "given": "the fitted object, raw table", "seconds": 0.1, "error": "ValueError: no seed"},
        {
            "attack": "LiRA",
            "given": "its last step, encoded table",
            "seconds": 2.0,
            "values": {"membership AUC": [0.6, 0.5, 0.7]},
        },
        {"attack": "QMIA", "given": "the fitted object, raw table", "seconds": 0.1, "error": "KeyError: 'x'"},
    ],
}


def test_the_answers_of_a_peer_become_rows_and_one_line_of_the_table(tables, monkeypatch):
    done = SimpleNamespace(returncode=0, stdout="noise\n" + json.dumps(REPLY))
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)
    monkeypatch.setattr(tables, "environment", lambda tool: "python")
    lasso = case(tables, "lasso")
    rows = tables.by_peer("sacroml", lasso, ROWS, 1)
    assert [(row.value, row.low, row.high) for row in rows if row.id.endswith("AUC")] == [(0.6, 0.5, 0.7)]
    assert "ValueError: no seed" in [row.value for row in rows]
    assert tables.summary(rows, tables.prefix(lasso, "sacroml")) == (
        "LiRA: membership AUC 0.6 *, seconds 2 *<br>QMIA: KeyError"
    )
    assert tables.as_table(rows).count("\n| lasso | diabetes | not run | LiRA: membership AUC 0.6 *") == 1


def test_a_different_fit_in_another_environment_is_noticed(tables):
    marks = [("art", 0.25), ("sacroml", 0.26)]
    rows = [tables.Row(f"lasso.{tool}.fingerprint", "", value) for tool, value in marks]
    assert list(tables.different_fits(rows)) == ["lasso"]
    assert list(tables.different_fits(rows[:1])) == []


def test_rows_of_other_cases_and_tools_are_kept(tables, monkeypatch, tmp_path):
    lasso, bayes = case(tables, "lasso"), case(tables, "Gaussian naive Bayes")
    earlier = [tables.Row("lasso.art.old", "", 1.0), tables.Row("Gaussian_naive_Bayes.art.old", "", 2.0)]
    (tmp_path / "tables.json").write_text(json.dumps([vars(row) for row in earlier]))
    monkeypatch.setattr(tables, "RESULTS", tmp_path / "tables.json")
    new = tables.Row("lasso.art.new", "", 3.0)
    found = {tables.prefix(lasso, "art"): [new]}
    assert [row.id for row in tables.merged(found)] == [f"{tables.prefix(bayes, 'art')}old", new.id]


def test_a_peer_is_given_the_raw_table_and_then_the_last_step_with_the_encoded_one(tables, asking):
    whole, last = asking.releases(case(tables, "one-hot + scaler, logistic"), ROWS)
    assert list(whole.X.columns) == list(whole.columns)
    assert last.X.shape[1] == last.model.n_features_in_ > whole.X.shape[1]
    assert len(last.columns["age"]) == 1
    assert len(last.columns["sex"]) == 2
    (alone,) = asking.releases(case(tables, "lasso"), ROWS)
    assert isinstance(alone.X, np.ndarray)


def test_an_error_and_a_slow_attack_are_answers_too(tables, asking):
    (release,) = asking.releases(case(tables, "lasso"), ROWS)
    refused = asking.asked(lambda release: release.model.predict_proba(release.X), release, 5)
    assert refused["error"] == "AttributeError: 'Lasso' object has no attribute 'predict_proba'"
    for endless in (lambda release: time.sleep(5), lambda release: sum(1 for _ in repeat(1))):
        slow = asking.asked(endless, release, 0.1)
        assert slow["error"] == "TimeoutError: no answer in 0.1 s"


def test_the_interval_of_an_auc_covers_the_truth(asking):
    draw = np.random.default_rng(0)
    covered = []
    for _ in range(200):
        members, others = draw.normal(1, 1, 60), draw.normal(0, 1, 40)
        _, low, high = asking.auc(float((members[:, None] > others).mean()), 60, 40)
        covered.append(low <= 0.760 <= high)  # P(N(1, 2) > 0)
    assert np.mean(covered) > 0.9
