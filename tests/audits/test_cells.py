import csv
import io

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_diabetes, load_wine
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import lostwax as lw
from lostwax.audits.audit import CellsKept
from lostwax.games import Cells, Columns, Kept
from lostwax.games.cells import Bounds
from lostwax.grades import Grade
from lostwax.reports import folder
from lostwax.reports.gallery import known_in_words

NUMBERS = Columns((), ((),) * 13)


@pytest.fixture(scope="module")
def wine():
    X, y = load_wine(return_X_y=True, as_frame=True)
    return lw.audit(RandomForestClassifier(20, random_state=0).fit(X, y), (X, y))


def test_every_exact_cell_is_the_truth_and_every_interval_holds_it(wine):
    for finding in wine.findings:
        cells, truth = finding.cells, wine.truth.x.numpy()
        each, targets = cells.each, 0 if finding.target is None else len(truth)
        exact = each.kept == Kept.EXACT
        assert (each.values.astype(np.float32) == truth.astype(np.float32))[exact].all()
        assert ((each.bounds.low <= truth) & (truth <= each.bounds.high))[~exact].all()
        assert cells.certified == cells.exact == int(exact.sum()) + targets
        assert cells.total == truth.size + targets
    assert wine.findings[0].target is not None
    assert wine.findings[0].cells.certified > 0


def test_the_print_the_file_and_the_report_say_what_is_known(wine, tmp_path):
    cells = wine.findings[0].cells
    assert f"cells: {str(cells).replace(chr(160), ' ')}" in str(wine)
    assert "within an interval (mean width" in str(cells)
    wine.to_json(tmp_path / "audit.json")
    again = lw.Audit.from_json(tmp_path / "audit.json")
    assert again.findings[0].cells == cells._replace(each=None)
    assert again.conclusion == wine.conclusion
    lw.report(wine, tmp_path / "report")
    read = folder.read(tmp_path / "report").findings[0].cells
    np.testing.assert_array_equal(read.each.bounds.low, cells.each.bounds.low)
    assert known_in_words(read.each, NUMBERS, 3) == known_in_words(cells.each, NUMBERS, 3)
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report" / "records.csv").read_text())))
    known = [row["alcohol (known)"] for row in rows]
    assert "exact" in known
    assert any(" to " in one for one in known)
    assert " to " in (tmp_path / "report" / "report.html").read_text()


def test_a_report_without_records_holds_no_limits(wine, tmp_path):
    lw.report(wine, tmp_path / "report", records=False)
    words = known_in_words(wine.findings[0].cells.each, NUMBERS, 0)
    for name in ("records.csv", "report.html", "audit.json"):
        text = (tmp_path / "report" / name).read_text()
        assert "(known)" not in text
        assert not any(word in text for word in words if " to " in word)


def test_a_row_counts_as_rebuilt_if_every_cell_is():
    X, y = load_diabetes(return_X_y=True)
    X, y = X[:120], y[:120]
    audit = lw.audit(RandomForestRegressor(10, random_state=0).fit(X, y), (X, y))
    found = audit.findings[0]
    off = ((found.guess.records.x[:, 0] - audit.truth.x) / torch.from_numpy(X).std(0, correction=0)).abs()
    assert found.rebuilt.tolist() == (off.amax(1) <= audit.threshold).tolist()
    assert (off.square().mean(1).sqrt() <= audit.threshold).sum() > found.rebuilt.sum()  # the mean would hide a cell
    assert audit.grade is Grade.EXACT


def test_exact_cells_are_a_leak_even_if_no_row_comes_back():
    """A shallow tree tells the towns of all rows and nothing else: no guess is near, but these cells are certain."""
    rng = np.random.default_rng(0)
    towns = rng.integers(0, 2, 60)
    table = pd.DataFrame({"town": np.array(["a", "b"])[towns], **{f"n{k}": rng.normal(size=60) for k in range(30)}})
    steps = make_column_transformer((OrdinalEncoder(), ["town"]), remainder="passthrough")
    model = make_pipeline(steps, DecisionTreeClassifier(max_depth=1)).fit(table, towns)
    audit = lw.audit(model, (table, towns))
    cells = audit.findings[0].cells
    assert (cells.certified, int(audit.findings[0].rebuilt.sum())) == (60 + 60, 0)  # with the targets
    assert audit.grade.leaks
    assert not audit.conclusion.line.by_target  # the town gives the target without the model
    assert "120 of 1,920 cells (6.2 %) come back exactly; for all of them no other value agrees" in str(
        audit.conclusion
    ).replace("\N{NO-BREAK SPACE}", " ")


def test_a_tree_without_a_split_tells_the_targets_alone():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    model = RandomForestClassifier(5, min_samples_leaf=40, random_state=0).fit(X, y)
    audit = lw.audit(model, (X, y))
    assert audit.findings[0].cells.certified == 60
    assert audit.conclusion.line.by_target


def test_pipelines_without_trees_tell_of_their_cells_and_certify_what_needs_no_equation():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"town": rng.choice(["a", "b", "c"], 60), "age": rng.integers(20, 60, 60)})
    steps = make_column_transformer((OneHotEncoder(), ["town"]), (StandardScaler(), ["age"]))
    y = rng.integers(0, 2, 60)
    audit = lw.audit(make_pipeline(steps, LogisticRegression()).fit(table, y), (table, y))
    cells = audit.findings[0].cells
    assert cells.exact > 0.9 * cells.total
    assert cells.certified == len(table)  # ages, by the scaler's mean; towns come from an equation


def test_what_is_exact_in_name_only_counts_as_estimated():
    table = torch.tensor([[1.0, 0.0], [2.0, 1.0], [4.0, 1.0]]).double()
    kept = np.full((3, 2), Kept.EXACT, dtype=np.uint8)
    cells = CellsKept.of(Cells(table.numpy() + np.array([0.1, 0.0]), kept), None, table, table)
    assert (cells.exact, cells.estimated, cells.total) == (3, 3, 6)


def test_cells_in_words():
    columns = Columns(("n",) * 6 + ("c",) * 2, ((),) * 6 + (("red", "blue", "green"),) * 2)
    kept = [Kept.EXACT, Kept.INTERVAL, Kept.INTERVAL, Kept.INTERVAL, Kept.SET, Kept.ESTIMATED, Kept.SET, Kept.LOST]
    inf = np.inf
    low, high = [0, 1, -inf, 2, 5, -inf, -inf, -inf], [0, 2.5, 3, inf, 5, inf, inf, inf]
    missing = [False, False, False, True, True, True, False, True]
    codes = {6: np.array([[True, False, True]])}
    bounds = Bounds(np.array([low]), np.array([high]), np.array([missing]), codes)
    cells = Cells(np.zeros((1, 8)), np.array([kept], dtype=np.uint8), bounds)
    words = "exact, 1 to 2.5, at most 3, at least 2 or missing, 5 or missing, estimated, red or green, unknown"
    assert known_in_words(cells, columns, 0) == words.split(", ")


def test_a_category_that_may_have_been_imputed_can_be_reported(tmp_path):
    """Of such a cell two values are known to be possible, and no codes are excluded."""
    rng = np.random.default_rng(0)
    town = pd.Series(rng.choice(["a", "a", "b", "c"], 80)).mask(rng.random(80) < 0.2)
    table, y = pd.DataFrame({"town": town, "age": rng.normal(size=80)}), rng.integers(0, 2, 80)
    filled = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder())
    steps = make_column_transformer((filled, ["town"]), ("passthrough", ["age"]))
    audit = lw.audit(make_pipeline(steps, LogisticRegression()).fit(table, y), (table, y))
    lw.report(audit, tmp_path / "report")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report" / "records.csv").read_text())))
    known = {(row["town"], row["town (known)"]) for row in rows if row["line"] == "as converged"}
    assert {("missing", "one of several values"), ("a", "one of several values"), ("b", "exact")} <= known
    page = (tmp_path / "report" / "report.html").read_text()
    assert "are rebuilt (as released), with an error" in page  # the slider counts this line, the headline the worst


def test_the_page_says_that_every_cell_counts(wine, tmp_path):
    lw.report(wine, tmp_path / "report")
    assert "largest error of a feature of at most 0.05" in (tmp_path / "report" / "report.html").read_text()
