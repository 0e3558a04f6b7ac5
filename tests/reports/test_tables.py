"""A report shows a table in its owner's words, and its numbers file shows none of its cells."""

import csv
import io
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import lostwax as lw
from lostwax import reports
from lostwax.reports.folder import as_csv
from lostwax.reports.gallery import cells

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


def test_a_table_with_words_and_missing_values_is_read_back(audit, folder, tmp_path):
    again = reports.read(folder)
    assert torch.equal(again.truth.x.isnan(), audit.truth.x.isnan())
    assert (folder / "records.csv").read_text() == as_csv(again, records=True)
    lw.report(again, tmp_path)
    assert "Nether Wallop" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("stored", [b"[", b"[[]]", b'[[], ["a town"], ["False", "True"]]', b"3"])
def test_categories_of_another_table_are_refused(stored, folder, tmp_path):
    copy = shutil.copytree(folder, tmp_path / "copy")
    tensors = load_file(copy / "records.safetensors")
    save_file(tensors | {"categories": torch.tensor(list(stored), dtype=torch.uint8)}, copy / "records.safetensors")
    with pytest.raises(ValueError, match="'categories' that are not those of the records"):
        reports.read(copy)


def test_rounding_is_not_shown(audit):
    """A rebuilt zero is a zero on the page, and a small number of a column of small numbers is itself."""
    rebuilt = torch.tensor([[-4.7e-14, 0.0, 1.0], [4e-4, 1.0, 0.0]], dtype=torch.float64)
    assert [row[0] for row in cells(audit, rebuilt)] == ["0", "0.0004"]


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
    assert not any("xanthippe" in note for note in map(str, (*audit.notes, *audit.unanswered)))
    lw.report(audit, tmp_path / "records")
    assert "xanthippe" not in (tmp_path / "records" / "audit.json").read_text()
    lw.report(audit, tmp_path / "numbers", records=False)
    assert not any(b"xanthippe" in path.read_bytes() for path in (tmp_path / "numbers").rglob("*.*"))
