"""A report shows a table in its owner's words, and its numbers file shows none of its cells."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import lostwax as lw

TOWNS = ["Nether Wallop", "Upper Slaughter", "=HYPERLINK(1)"]


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    income = rng.normal(40_000, 9_000, 60).round(2)
    income[:6] = np.nan
    return pd.DataFrame({"income": income, "home town": rng.choice(TOWNS, 60), "smoker": rng.random(60) > 0.5})


@pytest.fixture(scope="module")
def audit(frame):
    columns = ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["income"]),
            ("categories", OneHotEncoder(), ["home town", "smoker"]),
        ]
    )
    y = np.arange(60) % 2
    return lw.audit(make_pipeline(columns, LogisticRegression(max_iter=2_000)).fit(frame, y), (frame, y))


@pytest.fixture(scope="module")
def folder(audit, tmp_path_factory):
    return lw.report(audit, tmp_path_factory.mktemp("report")).parent


def test_records_in_the_words_of_the_table(audit, frame, folder):
    rows = list(csv.DictReader(io.StringIO((folder / "records.csv").read_text())))
    released = [row for row in rows if row["line"] == audit.findings[-1].name]
    assert len(released) == 60
    for row, (_, truth) in zip(released, frame.iloc[audit.games].iterrows(), strict=True):
        shown = {name: [row[name], row[f"{name} (rebuilt)"]] for name in frame.columns}
        assert len(set(shown["home town"])) == 1  # the original and what was rebuilt are equal
        assert shown["home town"][0].lstrip("'") == truth["home town"]
        assert set(shown["smoker"]) == {str(truth["smoker"])}
        missing = np.isnan(truth["income"])
        assert all((cell == "missing") is bool(missing) for cell in shown["income"])
        assert {row[f"{name} (known)"] for name in frame.columns} == {"exact"}
    assert not any(cell.startswith("=") for row in rows for cell in row.values())


def test_the_page_names_columns_and_values(folder):
    page = (folder / "report.html").read_text()
    for words in ("home town", "income", "Nether Wallop", "missing"):
        assert words in page


@pytest.mark.parametrize("records", [True, False])
def test_the_numbers_file_holds_no_cell(audit, frame, records, tmp_path):
    lw.report(audit, tmp_path, records=records)
    text = (tmp_path / "audit.json").read_text()
    assert "home town" in text  # names of columns are no cells
    for value in [*TOWNS, *frame["income"].dropna().astype(str)]:
        assert value not in text
    json.loads(text)


def test_without_records_no_file_holds_a_cell(audit, frame, tmp_path):
    lw.report(audit, tmp_path, records=False)
    for path in tmp_path.rglob("*.*"):
        content = path.read_bytes()
        assert not any(town.encode() in content for town in TOWNS), path.name
        assert not any(str(value).encode() in content for value in frame["income"].dropna()), path.name


def test_words_of_texts_are_cells(tmp_path):
    """The columns of a bag of words are its words, and a rare one may be a name."""
    texts = ["red fish", "blue fish", "red bird", "blue bird"] * 10 + ["Xanthippe red"]
    y = np.arange(41) % 2
    audit = lw.audit(make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts, y), (texts, y))
    assert "xanthippe" in audit.columns
    assert not any("xanthippe" in note for note in (*audit.notes, *audit.unanswered))
    lw.report(audit, tmp_path / "records")
    assert "xanthippe" not in (tmp_path / "records" / "audit.json").read_text()
    lw.report(audit, tmp_path / "numbers", records=False)
    assert not any(b"xanthippe" in path.read_bytes() for path in (tmp_path / "numbers").rglob("*.*"))
