"""Releases of several parts: their answers cell by cell, verdicts, and what readers are told."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.ensemble import VotingClassifier, VotingRegressor
from sklearn.linear_model import BayesianRidge, LogisticRegression, Ridge, SGDRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

import lostwax as lw
from lostwax.audits.audit import Verdict
from lostwax.audits.play import Settings
from lostwax.audits.tables import audit_table
from lostwax.games import Cells, Columns, Fitted, Kept, Part, Records, ReleasedTable, Stored, Sums
from lostwax.games.notes import Topic
from lostwax.grades import Grade

N = 40
rng = np.random.default_rng(0)
TOWNS = ("Bath", "York", "Ely")
X = torch.from_numpy(np.stack([rng.normal(size=N), rng.normal(size=N), rng.integers(0, 3, N)], 1))
Y = torch.from_numpy(rng.integers(0, 2, N))
COLUMNS = Columns(("age", "income", "town"), ((), (), TOWNS))
ONES = torch.ones(N, dtype=torch.float64)


def part(columns, labelled=False, **facts):
    """A part that saw these columns."""

    def back(x):
        cells = Cells.lost(len(x), 3)
        cells.values[:, columns] = x
        cells.kept[:, columns] = np.where(x.isnan(), Kept.LOST, Kept.EXACT)
        return cells

    return Part(Fitted("a part", Records(X[:, columns], Y), ONES, None, **facts), back, labelled)


def mean(columns):
    sums = Sums("mean", X[:, columns].sum(0, keepdim=True), torch.tensor([float(N)]).double(), False, False)
    return part(columns, sums=(sums,))


def audited(*parts, unread=(), columns=COLUMNS, x=X, **options):
    release = ReleasedTable("a release", Records(x, Y), ONES, columns, parts, unread=unread)
    return audit_table(release, Settings(**options))


def test_parts_that_know_different_columns_together_know_the_row():
    whole = part([2], stored=(Stored("categories", X[:, [2]]),))
    audit = audited(mean([0, 1]), whole)
    assert audit.conclusion.grade is Grade.EXACT
    assert audit.findings[0].rebuilt.all()
    assert set(audit.verdicts) == {Verdict.RECOVERABLE}


def test_a_part_of_the_columns_is_recognisable_and_named():
    audit = audited(mean([0]), unread=("the forest was not audited: no equation.",))
    assert audit.conclusion.grade.severity >= Grade.RECOGNISABLE.severity
    assert "the release gives exactly: age." in map(str, audit.notes)
    assert "what was read tells nothing of: income, town." in map(str, audit.notes)
    assert audit.unanswered == ("the forest was not audited: no equation.",)


def test_what_is_lost_is_information_limited_only_if_all_was_read():
    assert set(audited(mean([0])).verdicts) <= {Verdict.INFORMATION_LIMITED, Verdict.RECOVERABLE}
    open_ones = set(audited(mean([0]), unread=("the rest.",)).verdicts)
    assert open_ones <= {Verdict.UNDECIDED, Verdict.RECOVERABLE}
    assert Verdict.UNDECIDED in open_ones


def test_nothing_told_is_no_leak():
    """Stored rows of another table tell of no row, and blind guesses are not taken for a leak."""
    others = torch.from_numpy(np.random.default_rng(1).normal(size=(N, 2)))
    audit = audited(part([0, 1], stored=(Stored("rows", others),)))
    assert not audit.conclusion.grade.leaks
    assert "what was read tells nothing of: age, income, town." in map(str, audit.notes)


def test_labels_that_nothing_tells_are_not_right():
    assert not audited(mean([0, 1, 2])).findings[0].labels_right.any()
    rows = Stored("rows", X, Y)
    assert audited(part([0, 1, 2], labelled=True, stored=(rows,))).findings[0].labels_right.all()


def test_a_row_does_not_change_its_own_game():
    """Leave-one-out: what is guessed of columns that are lost depends on the other rows only."""
    changed = X.clone()
    changed[3, 1] = 1e3
    own, other = (audited(mean([0]), x=x).findings[0].guess.records.x[3, 0] for x in (X, changed))
    torch.testing.assert_close(own, other)


def test_names_of_wide_tables_are_cut_and_words_are_counted():
    names = tuple(f"column {number}" for number in range(30))
    columns = Columns(names, ((),) * 30)
    assert columns.listed(range(30)).endswith("column 11 and 18 more")
    assert columns.listed([3, 4]) == "column 3, column 4"
    assert replace(columns, are_words=True).listed(range(30)) == "30 words"
    assert Columns((), ((),) * 2).listed([1]) == "column 1"


def test_rows_that_are_all_the_same():
    with pytest.raises(ValueError, match="all 40 rows of X are the same"):
        audited(mean([0]), x=X[:1].expand(N, -1))


def test_games_are_drawn_by_the_seed():
    first, again, other = (audited(mean([0, 1, 2]), games=5, seed=seed).games for seed in (1, 1, 2))
    assert first.tolist() == again.tolist() != other.tolist()


def test_a_blind_guess_that_is_a_record_of_categories_is_no_leak():
    """The most frequent categories may be one of the rows: nothing was told of it."""
    codes = np.unique(rng.choice(5, size=(900, 5), p=[0.4, 0.25, 0.15, 0.1, 0.1]), axis=0)
    codes[0] = 0  # the most frequent value of every column
    codes = np.unique(codes, axis=0)
    x, y = torch.from_numpy(codes.astype(np.float64)), torch.zeros(len(codes), dtype=torch.long)
    ones, categories = (
        torch.ones(len(x), dtype=torch.float64),
        Stored("categories", torch.arange(5.0)[:, None].double()),
    )

    def back(values):
        return Cells.lost(len(values), 5)

    facts = Part(Fitted("an encoder", Records(x[:, :1], y), ones, None, stored=(categories,)), back, labelled=False)
    columns = Columns(tuple("abcde"), (tuple("vwxyz"),) * 5)
    release = ReleasedTable("a release", Records(x, y), ones, columns, (facts,))
    audit = audit_table(release, Settings())
    assert audit.findings[0].rebuilt.sum() == 1
    assert audit.findings[0].luck.closest == 1.0
    assert not audit.conclusion.grade.leaks


def test_of_two_models_the_one_at_its_optimum_counts():
    X, y = rng.normal(size=(60, 3)), rng.normal(size=60)
    rough, exact = SGDRegressor(max_iter=5, tol=None, random_state=0), Ridge()
    for members in ([("rough", rough), ("exact", exact)], [("exact", exact), ("rough", rough)]):
        audit = lw.audit(VotingRegressor(members).fit(X, y), (X, y))
        assert audit.findings[0].rebuilt.all()


def test_counts_of_classes_give_the_label_that_a_rough_model_beside_them_does_not():
    x, y = rng.normal(size=(60, 3)) * [1, 10, 100], rng.integers(0, 3, 60)
    members = [("rough", LogisticRegression(max_iter=3)), ("counts", GaussianNB())]
    audit = lw.audit(VotingClassifier(members).fit(x, y), (x, y))
    assert audit.findings[0].rebuilt.all()
    assert audit.findings[0].labels_right.all()
    assert audit.findings[0].target.certain.all()


@pytest.mark.parametrize("model", [GaussianNB(), BayesianRidge()], ids=repr)
def test_a_total_is_named_once(model):
    notes = lw.audit(model.fit(X, Y), (X.numpy(), Y.numpy())).notes
    assert [note.topic for note in notes].count(Topic.TOTAL) == 1
    assert len(notes) == 1


def test_records_that_no_reason_explains_are_counted_as_not_answered():
    wrong = Sums("mean", X[:, :2].sum(0, keepdim=True) + 1, torch.tensor([float(N)]).double(), False, False)
    town = part([2], stored=(Stored("categories", X[:, [2]]),))
    audit = audited(part([0, 1], sums=(wrong,)), town)
    assert set(audit.verdicts) == {Verdict.UNDECIDED}
    assert audit.unanswered == (f"{N} records were not rebuilt although what was read should give every cell.",)


def test_a_time_limit_holds_for_tables_that_are_read(monkeypatch):
    """All of 50,000 rows were attacked, for minutes, whatever max_minutes said."""
    monkeypatch.setattr("lostwax.audits.models.SOME_ROWS", 20)
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 3)), rng.integers(0, 2, 300)
    model = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    short = lw.audit(model, (X, y), max_minutes=1e-4)
    assert len(short.games) == 20
    assert not short.complete
    assert "max_minutes is time for 20 of 300 rows, drawn by the seed. games=300 attacks all." in map(str, short.notes)
    assert len(lw.audit(model, (X, y), max_minutes=10).games) == 300
    assert len(lw.audit(model, (X, y), max_minutes=1e-4, games=40).games) == 40
