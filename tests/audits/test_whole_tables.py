"""Forests audited with no row known: what they leak is found, and what they do not say is not."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import lostwax as lw
from lostwax.attacks.whole_table import places
from lostwax.audits import whole_tables
from lostwax.audits.whole_tables import Public
from lostwax.games import Kept
from lostwax.grades import Grade
from lostwax.policies import Policy

ROWS = 60
WEAK = lw.Weak(size=ROWS)


def binary_table(seed=0, n=ROWS):
    """Two one-hot groups and five binary columns, as COMPAS has them."""
    rng = np.random.default_rng(seed)
    age, group = np.eye(3)[rng.choice(3, n, p=[0.25, 0.5, 0.25])], np.eye(4)[rng.choice(4, n, p=[0.5, 0.3, 0.1, 0.1])]
    x = np.c_[age, group, rng.random((n, 5)) < rng.uniform(0.1, 0.6, 5)]
    signal = x @ rng.normal(size=x.shape[1]) + 0.7 * rng.normal(size=n)
    return x, (signal > np.median(signal)).astype(int)


X, Y = binary_table()


def audited(model, x=X, y=Y, **options):
    return lw.audit(model.fit(x, y), (x, y), threat=lw.Weak(size=len(y)), **options)


def rows_of(audit):
    return audit.guess.records.x[:, 0].numpy()


@pytest.fixture(scope="module")
def leak():
    return audited(RandomForestClassifier(50, bootstrap=False, random_state=0))


def test_a_forest_gives_its_whole_table_away(leak):
    assert leak.grade is Grade.EXACT
    assert leak.conclusion.headline == "Every record tried can be rebuilt from this model."
    assert leak.threat == "the adversary knows no row"
    np.testing.assert_array_equal(rows_of(leak), X)  # each beside the row that it was matched with
    assert leak.findings[0].labels_right.all()
    assert leak.findings[0].cells.exact_share == 1
    assert leak.findings[0].luck.rebuilt_by_luck < 0.5
    assert not leak.unanswered


def test_bootstraps_tell_the_order_of_rows():
    audit = audited(RandomForestClassifier(50, random_state=0))
    assert audit.grade is Grade.EXACT
    assert any("row i is rebuilt as row i" in note for note in map(str, audit.notes))
    np.testing.assert_array_equal(rows_of(audit), X)
    assert audit.findings[0].luck.rebuilt_by_luck < 0.05  # chance is not matched where the order is known


def test_the_names_of_columns_and_classes_are_the_owners():
    names = [f"c{number}" for number in range(X.shape[1])]
    frame, labels = pd.DataFrame(X == 1, columns=names), np.where(Y == 1, "yes", "no")
    audit = audited(RandomForestClassifier(50, bootstrap=False, random_state=0), frame, labels)
    assert audit.columns == tuple(names)
    assert audit.classes == ("no", "yes")
    assert audit.grade is Grade.EXACT
    assert "assumed public: exactly one of these is 1: c0, c1, c2." in map(str, audit.notes)


@pytest.mark.parametrize("seed", range(2))
def test_a_stump_is_no_leak(seed):
    """It tells how often a value occurs, in each class: no row."""
    x, y = binary_table(seed)
    audit = audited(DecisionTreeClassifier(max_depth=1), x, y)
    assert audit.grade is Grade.NOT_FOUND
    assert audit.findings[0].cells.certified == 0


def test_a_stump_on_rows_that_are_mostly_alike_is_no_leak():
    """Most rows are all zeros: the most common values rebuild them, with any model."""
    x = np.zeros((ROWS, 6))
    x[:12] = np.random.default_rng(0).integers(2, size=(12, 6))
    audit = audited(DecisionTreeClassifier(max_depth=1), x, (x[:, 0] + x[:, 1] > 0).astype(int))
    assert audit.findings[0].rebuilt.mean() > 0.5
    assert audit.grade is Grade.NOT_FOUND


def test_a_forest_without_a_split_is_no_leak():
    audit = audited(RandomForestClassifier(10, min_samples_split=ROWS + 1, bootstrap=False, random_state=0))
    assert audit.grade is Grade.NOT_FOUND
    assert audit.findings[0].cells.unknown == audit.findings[0].cells.total


def test_counts_that_many_tables_have_are_no_leak():
    audit = audited(RandomForestClassifier(4, max_depth=1, bootstrap=False, random_state=1))
    cells = audit.findings[0].cells
    assert cells.exact == cells.certified == 0
    assert cells.estimated > 0
    assert audit.grade is Grade.NOT_FOUND


def test_constant_columns_are_no_leak():
    """The only column that varies is not split."""
    rng = np.random.default_rng(0)
    x = np.c_[np.ones((ROWS, 3)), np.arange(ROWS) < 2]
    audit = audited(RandomForestClassifier(5, min_samples_leaf=5, bootstrap=False), x, rng.integers(2, size=ROWS))
    assert audit.grade is Grade.NOT_FOUND
    assert audit.findings[0].cells.total == ROWS  # constant columns do not count


def test_rows_that_are_told_in_part_are_a_leak():
    """Leaves of one row: several of its cells are certain, and chance has no such row."""
    audit = audited(DecisionTreeClassifier(random_state=0))
    cells = audit.findings[0].cells
    assert audit.grade.leaks
    assert 0 < cells.certified <= cells.exact < cells.total
    assert "no other value agrees with the model" in " ".join(audit.conclusion.sentences)


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_numbers_lie_in_intervals(scale):
    rng = np.random.default_rng(0)
    x = scale * rng.normal(size=(30, 3))
    y = (x.sum(1) + 0.5 * scale * rng.normal(size=30) > 0).astype(int)
    audit = audited(RandomForestClassifier(20, random_state=0), x, y)
    cells = audit.findings[0].cells
    assert audit.grade.leaks
    assert cells.exact == 0
    within = cells.each.kept == Kept.INTERVAL
    low, high = cells.each.bounds[:2]
    assert within.mean() > 0.5
    assert ((low <= x) & (x <= high))[within].all()


def test_a_search_that_is_too_large_leaves_the_question_open(monkeypatch):
    monkeypatch.setattr(places, "MAX_BOXES", 10)
    audit = audited(RandomForestClassifier(10, bootstrap=False, random_state=0))
    assert audit.grade is Grade.UNDECIDED
    assert "leave more than 10 places for a row" in audit.unanswered[0]
    assert Policy(max_grade="not found").breaches(audit)


def test_a_search_that_is_stopped_leaves_the_question_open():
    """No time at all: nothing is claimed that bounds alone do not prove, and all of it is true."""
    audit = audited(RandomForestClassifier(10, max_depth=2, random_state=0), max_minutes=1e-9)
    assert len(audit.unanswered) == 1
    assert "max_minutes" in audit.unanswered[0]
    exact = audit.findings[0].cells.each.kept == Kept.EXACT
    assert (rows_of(audit) == X)[exact].all()
    assert set(audit.verdicts) <= {"recoverable", "undecided"}
    assert "at most 3e-08 s" in str(audit.notes[-1])


def test_without_the_solver_nothing_more_is_certain(monkeypatch):
    monkeypatch.setattr(whole_tables, "find_spec", lambda name: None)
    monkeypatch.setattr("lostwax.attacks.whole_table.solutions.find_spec", lambda name: None)
    audit = audited(RandomForestClassifier(6, max_depth=2, bootstrap=False, random_state=0))
    assert "lostwax[solver]" in audit.unanswered[0]


def test_it_is_printed_saved_read_and_reported(leak, tmp_path):
    assert "grade: exact" in str(leak)
    assert "blind table (columns shuffled)" in str(leak)
    read = lw.Audit.from_json(leak.to_json(tmp_path / "audit.json"))
    assert read.grade is leak.grade
    assert read.findings[0].luck == leak.findings[0].luck
    assert str(read) == str(leak)
    page = lw.report(leak, tmp_path / "report")
    assert "knows no row" in page.read_text()
    records = pd.read_csv(tmp_path / "report" / "records.csv")
    assert len(records) == ROWS
    assert (records.filter(like="known") == "exact").to_numpy().all()


def test_one_hot_groups_are_neighbours_with_one_1():
    public = Public.of(np.c_[X, np.arange(ROWS)])
    assert public.one_hot == ((0, 1, 2), (3, 4, 5, 6))
    assert public.binary.tolist() == [True] * 12 + [False]
    assert public.blocks[2:] == [(column,) for column in range(7, 13)]


FOREST = RandomForestClassifier(5, bootstrap=False, random_state=0).fit(X, Y)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (make_pipeline(StandardScaler(), RandomForestClassifier(2)), r"Pipeline: .* Pass the forest, with X as"),
        (GridSearchCV(RandomForestClassifier(2), {"max_depth": [1]}), "GridSearchCV: pass its best_estimator_"),
        (GradientBoostingClassifier(n_estimators=2), "GradientBoostingClassifier: .* Leave threat out"),
        (RandomForestRegressor(2), "RandomForestRegressor: .* Leave threat out"),
        (RandomForestClassifier(2, class_weight="balanced"), "class weights"),
    ],
)
def test_other_models_are_refused_by_name(model, words):
    with pytest.raises(TypeError, match=f"audit: .*{words}"):
        audited(model)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"threat": lw.Weak(size=59)}, ValueError, r"59 secret records, but the table has 60 rows.*Weak\(size=60\)"),
        ({"threat": lw.Weak}, TypeError, "got the class Weak"),
        (
            {"threat": lw.Informed(lw.Records(torch.from_numpy(X), torch.from_numpy(Y)))},
            TypeError,
            "Informed knows records.*Leave threat out",
        ),
        ({"threat": WEAK, "games": 10}, ValueError, "games=None or all 60 rows, got 10"),
        ({"threat": WEAK, "access": lw.access.Outputs()}, TypeError, "access does not apply"),
        ({"threat": WEAK, "max_minutes": 0}, ValueError, "max_minutes > 0"),
    ],
)
def test_arguments_that_do_not_fit(options, error, words):
    with pytest.raises(error, match=words):
        lw.audit(FOREST, (X, Y), **options)


def test_a_table_of_equal_rows_is_refused():
    x = np.ones((10, 2))
    with pytest.raises(ValueError, match="all 10 rows of X are the same"):
        audited(RandomForestClassifier(2), x, np.arange(10) % 2)


def test_another_table_is_refused():
    with pytest.raises(ValueError, match="audit: "):
        lw.audit(FOREST, (X[:, ::-1].copy(), Y), threat=WEAK)
