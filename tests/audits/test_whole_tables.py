"""Forests audited with no row known: what they leak is found, and what they do not say is not.

Whole tables beside the true one: the matching, and what blind tables reach.
"""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
import torch
import xgboost as xgb
from sklearn.ensemble import (
    GradientBoostingClassifier,
    GradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import lostwax as lw
from lostwax.attacks.whole_table import places
from lostwax.audits import whole_tables
from lostwax.audits.climb import Public
from lostwax.audits.scoring import Scoring
from lostwax.audits.whole_tables import Claims, MatchedRows, WholeTableGames
from lostwax.games import Columns, Kept, Records
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
    assert leak.conclusion.headline == "Every record tried can be rebuilt from this model by anyone who gets the file."
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
        (make_pipeline(StandardScaler(), RandomForestClassifier(2)), r"Pipeline: .* Pass the trees, with X as"),
        (GridSearchCV(RandomForestClassifier(2), {"max_depth": [1]}), "GridSearchCV: pass its best_estimator_"),
        (
            GradientBoostingClassifier(n_estimators=2, loss="exponential"),
            "GradientBoostingClassifier: .* Leave threat out",
        ),
        (RandomForestRegressor(2), "RandomForestRegressor: .* Leave threat out"),
        (RandomForestClassifier(2, class_weight="balanced"), "class_weight"),
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


def games_of(x, y=None, *, numbers=False, ordered=False, blocks=None, seed=0):
    x, d = torch.from_numpy(np.asarray(x, dtype=float)), np.shape(x)[1]
    labels = torch.zeros(len(x), dtype=torch.long) if y is None else torch.from_numpy(y)
    return WholeTableGames(
        Records(x, labels),
        Scoring.of_cells(x, Columns((), ((),) * d), 0.05).by_cell(),
        blind=x.mean(0),
        blocks=[(column,) for column in range(d)] if blocks is None else blocks,
        numbers=np.full(d, numbers),
        ordered=ordered,
        seed=seed,
    )


def matched_rows(games, x):
    x = np.asarray(x, dtype=float)
    order = games.order(x)
    return MatchedRows(x[order], games.secrets.y.numpy(), np.ones(x.shape, dtype=bool))


def binary(seed, n=40, d=6):
    rng = np.random.default_rng(seed)
    return (rng.random((n, d)) < rng.uniform(0.2, 0.6, d)).astype(float)


def test_the_matching_has_the_least_sum_of_errors():
    rng = np.random.default_rng(0)
    x, guess = rng.normal(size=(6, 3)), rng.normal(size=(6, 3))
    games = games_of(x)
    scores = np.stack(
        [games.scoring.scores(torch.from_numpy(guess), row.expand(6, 3)).headline for row in games.secrets.x]
    )
    least = min(sum(scores[row, place] for row, place in enumerate(order)) for order in permutations(range(6)))
    assert scores[np.arange(6), games.order(guess)].sum() == pytest.approx(least)


def test_equal_rows_are_paired_whatever_the_rest():
    x = binary(0)
    guess = np.concatenate([x[::-1][:30], 1 - x[:10]])  # thirty true rows, in another order
    games = games_of(x)
    paired = guess[games.order(guess)]
    assert (paired == x).all(1).sum() >= 30


def test_an_order_that_is_known_is_kept():
    x = binary(1)
    games = games_of(x, ordered=True)
    np.testing.assert_array_equal(games.order(x[::-1].copy()), np.arange(len(x)))


@pytest.mark.parametrize("ordered", [False, True])
def test_a_blind_table_seldom_looks_like_a_leak(ordered):
    """A guess whose columns were shuffled is one of the blind tables: as likely to be the best of them as any."""
    chances = []
    for seed in range(10):
        games = games_of(binary(seed), ordered=ordered, seed=seed)
        rng = np.random.default_rng(100 + seed)
        guess = np.stack([rng.permutation(column) for column in games.secrets.x.numpy().T], 1)
        chances.append(games.luck_of(matched_rows(games, guess)).blind_tables)
    chances = np.array(chances)  # (tables, 3)
    assert (chances > 0.01 / 3).all()
    assert 0.3 < chances[:, 2].mean() < 0.8


def test_the_true_table_is_better_than_all_blind_ones():
    games = games_of(binary(0))
    found = games.luck_of(matched_rows(games, games.secrets.x.numpy()[::-1].copy()))
    assert found.blind_tables == (1 / 400, 1 / 400, 1 / 400)
    assert (found.games, found.rebuilt, found.farther) == (40, 40, 1)
    assert found.rebuilt_by_luck < 0.9


def test_one_column_of_zeros_and_ones_is_its_frequency():
    """No row is in it: every blind table has the same."""
    games = games_of(binary(0, d=1))
    assert games.luck_of(matched_rows(games, games.secrets.x.numpy())).blind_tables == (1, 1, 1)


def test_the_values_of_one_column_of_numbers_are_a_leak():
    x = np.random.default_rng(0).lognormal(size=(40, 1))
    games = games_of(x, numbers=True)
    assert games.luck_of(matched_rows(games, x[::-1].copy())).blind_tables[0] == 1 / 400


def test_what_is_not_known_stays_as_it_is_in_blind_tables():
    """A column of blind guesses, better than random values: no table gains by it."""
    x = binary(3)
    games = games_of(x)
    guess = np.tile((x.mean(0) > 0.5).astype(float), (len(x), 1))
    found = games.luck_of(MatchedRows(guess, games.secrets.y.numpy(), np.zeros(x.shape, dtype=bool)))
    assert found.blind_tables == (1, 1, 1)


def test_one_hot_columns_are_shuffled_together():
    x = np.eye(3)[np.random.default_rng(0).integers(3, size=30)]
    games = games_of(x, blocks=[(0, 1, 2)])
    assert games.luck_of(matched_rows(games, x)).blind_tables == (1, 1, 1)  # each table has the same rows


def test_chance_knows_the_classes():
    """Columns that depend on the class alone tell no row beyond it."""
    y = np.repeat([0, 1], 20)
    x = np.stack([y, 1 - y, y], 1)
    games = games_of(x, y)
    assert games.luck_of(matched_rows(games, x)).blind_tables == (1, 1, 1)


def test_many_rows_are_compared_in_part(monkeypatch):
    monkeypatch.setattr(whole_tables, "MAX_COMPARED_ROWS", 20)
    games = games_of(binary(0))
    found = games.luck_of(matched_rows(games, games.secrets.x.numpy()))
    assert found.games == found.rebuilt == 20
    assert found.blind_tables[2] == 1 / 400


def test_claims_are_usual_if_blind_tables_have_such_a_row():
    x = np.zeros((40, 4))
    x[0], x[1:11, 0], x[11:21, 1] = 1, 1, 1  # one row of four ones
    certain = np.zeros(x.shape, dtype=bool)
    certain[0], certain[1, 0], certain[2, :2] = True, True, True
    claims = Claims(x, x, certain, np.zeros(40, dtype=np.int64), np.zeros(40, dtype=bool))
    usual = games_of(x).usual(claims)
    assert usual[0] < 0.05
    assert (usual[1:] > 0.9).all()
    other = claims._replace(labels=np.ones(40, dtype=np.int64), label_certain=np.ones(40, dtype=bool))
    assert (games_of(x).usual(other) == 0).all()  # a class that no row has


BOOSTED = {"n_estimators": 30, "max_depth": 4, "reg_lambda": 0.5, "min_child_weight": 0.5}


def test_boosted_trees_give_their_whole_table_away():
    audit = audited(xgb.XGBClassifier(**BOOSTED))
    assert audit.grade is Grade.EXACT
    np.testing.assert_array_equal(rows_of(audit), X)
    assert audit.findings[0].labels_right.all()
    assert "30 of 30 trees were solved with proof; the rebuilt rows have the sums of 30." in map(str, audit.notes)
    assert not audit.unanswered


def test_a_booster_and_its_file_are_audited_alike(tmp_path):
    model = xgb.XGBClassifier(**BOOSTED).fit(X, Y)
    model.get_booster().save_model(tmp_path / "model.json")
    for subject in (model.get_booster(), tmp_path / "model.json"):
        assert lw.audit(subject, (X, Y), threat=WEAK).grade is Grade.EXACT


def test_boosted_stumps_are_no_leak():
    stump = {"n_estimators": 1, "max_depth": 1}
    for model in (xgb.XGBClassifier(**stump), GradientBoostingClassifier(**stump)):
        for table in (
            (X, Y),
            binary_table(15),
            binary_table(17),
        ):  # columns that rose together agreed with 5 and 6 rows
            assert audited(model, *table).grade is Grade.NOT_FOUND


def test_boosting_on_noise_with_few_trees_is_no_leak():
    """Numbers, few thresholds: what is proven of them is an interval, and no row."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(ROWS, 5)), random.integers(0, 2, ROWS)
    audit = audited(xgb.XGBClassifier(n_estimators=3, max_depth=2), x, y)
    assert audit.grade is Grade.NOT_FOUND
    assert audit.findings[0].cells.exact == 0


def test_a_regressor_is_audited_by_its_counts():
    random = np.random.default_rng(0)
    audit = audited(GradientBoostingRegressor(n_estimators=3), X, X @ random.normal(size=X.shape[1]), max_minutes=0.05)
    assert audit.findings[0].cells.total == X.size


def test_other_rows_and_missing_values_are_refused_by_name():
    model = xgb.XGBClassifier(**BOOSTED).fit(X, Y, sample_weight=np.linspace(0.5, 2, ROWS))
    with pytest.raises(ValueError, match="first tree was not grown on these 60 rows"):
        lw.audit(model, (X, Y), threat=WEAK, sample_weight=np.linspace(0.5, 2, ROWS))
    holes = X.copy()
    holes[0, 0] = np.nan
    with pytest.raises((TypeError, ValueError), match="missing values"):
        audited(xgb.XGBClassifier(**BOOSTED), holes, Y)


def test_an_objection_is_cheap_and_names_the_reason():
    model = xgb.XGBClassifier(**BOOSTED)
    assert whole_tables.objection_without_rows(model.fit(X, Y)) is None
    assert "subsample" in whole_tables.objection_without_rows(xgb.XGBClassifier(subsample=0.5).fit(X, Y))
