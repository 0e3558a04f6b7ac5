"""The target is a column of the record: what a model tells of it, beside a guess from the other columns."""

import csv
import io
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.compose import TransformedTargetRegressor
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.feature_selection import VarianceThreshold
from sklearn.linear_model import ElasticNet, Lasso, LassoCV, LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multioutput import MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, QuantileTransformer, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

import lostwax as lw
from lostwax.audits.conclusion import LEVEL
from lostwax.audits.decision import decide
from lostwax.audits.play import Answer, LeaveOneOut, filled, judged
from lostwax.audits.scoring import Scoring
from lostwax.games import Guess, Records
from lostwax.grades import Grade
from lostwax.reports.gallery import most_at_risk

pytestmark = pytest.mark.filterwarnings("ignore")
POLICIES = [
    lw.Policy(max_rebuilt_share=0.05),
    lw.Policy(max_nearer_share=0.9),
    lw.Policy(max_rebuilt_share=0.05, max_nearer_share=0.9, max_exact_cell_share=0.01),
    lw.Policy(max_grade="not found", max_rebuilt_share=0.05),
]


def table(seed=0, n=90, d=4):
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)) * [1, 10, 100, 1000][:d] + 3
    return X, 30 + X[:, 0] + 5 * random.normal(size=n), random.choice(3, size=n, p=[0.5, 0.3, 0.2])


X, Y, CLASSES = table()
SEVERAL = np.c_[Y, np.random.default_rng(5).normal(size=len(Y)), X[:, 1]]
LEAVES = RandomForestRegressor(5, min_samples_leaf=35, random_state=0)
ALPHAS = {"regressor__alpha": [1e6, 1e7]}
MODELS = {
    "stump": (DecisionTreeRegressor(max_depth=1), Y),
    "large leaves": (RandomForestRegressor(7, min_samples_leaf=35, random_state=0), Y),
    "extremely random": (ExtraTreesRegressor(7, min_samples_leaf=40, random_state=0), Y),
    "stump of classes": (DecisionTreeClassifier(max_depth=1, class_weight={0: 1, 1: 2, 2: 3}), CLASSES),
    "lasso": (Lasso(alpha=1e6), Y),
    "lasso by folds": (LassoCV(alphas=[1e6, 2e6]), Y),
    "elastic net": (ElasticNet(alpha=1e6), Y),
    "logistic": (LogisticRegression(l1_ratio=1.0, C=1e-7, solver="saga", max_iter=20), CLASSES),
    "two classes": (LogisticRegression(l1_ratio=1.0, C=1e-7, solver="saga"), np.array(["no", "yes"])[CLASSES // 2]),
    "mean": (DummyRegressor(), Y),
    "shares": (DummyClassifier(), CLASSES),
    "most frequent": (DummyClassifier(strategy="most_frequent"), CLASSES),
    "several means": (DummyRegressor(), SEVERAL),
    "several targets": (DecisionTreeRegressor(max_depth=1), SEVERAL),
    "scaled targets": (TransformedTargetRegressor(Lasso(alpha=1e6), transformer=StandardScaler()), Y),
    "logarithms": (TransformedTargetRegressor(DummyRegressor(), func=np.log, inverse_func=np.exp), Y),
    "ranks": (TransformedTargetRegressor(LEAVES, transformer=QuantileTransformer(n_quantiles=30)), Y),
    "several scaled": (TransformedTargetRegressor(DummyRegressor(), transformer=StandardScaler()), SEVERAL),
    "searched": (GridSearchCV(TransformedTargetRegressor(Lasso(), transformer=StandardScaler()), ALPHAS), Y),
    "lassos": (MultiOutputRegressor(Lasso(alpha=1e6)), SEVERAL),
    "a lasso alone": (MultiOutputRegressor(Lasso(alpha=1e6)), Y[:, None]),
    "forests": (MultiOutputRegressor(LEAVES), SEVERAL),
    "several shares": (MultiOutputClassifier(DummyClassifier()), np.c_[CLASSES, CLASSES[::-1] > 0]),
    "scaled columns": (MultiOutputRegressor(TransformedTargetRegressor(LEAVES, transformer=StandardScaler())), SEVERAL),
    "several classes": (DecisionTreeClassifier(max_depth=1), np.c_[CLASSES, CLASSES[::-1]]),
}


@pytest.mark.parametrize("name", MODELS)
def test_targets_that_follow_are_a_leak(name):
    model, y = MODELS[name]
    audit = lw.audit(model.fit(X, y), (X, y))
    assert audit.grade is Grade.RECOGNISABLE, audit
    assert audit.conclusion.line.by_target
    assert audit.conclusion.line.targets == len(X)
    assert audit.conclusion.headline.startswith(f"The target of {len(X)} of {len(X)} rows can be read from this model")
    assert "the target of training records" in decide(audit).reason
    for policy in POLICIES:
        assert policy.breaches(audit), policy
    target = audit.finding(audit.conclusion.line.name).target
    assert target.read.shape[1] == (y.shape[1] if y.ndim > 1 else 1)
    assert target.read.all()


def test_a_target_that_the_other_columns_give_is_no_leak():
    exact = X @ [1, 0.1, 0, 0.01]
    target = lw.audit(DummyRegressor().fit(X, exact), (X, exact)).findings[0].target
    assert target.guessed.all()
    one_of_three = lw.audit(DummyRegressor().fit(X, SEVERAL), (X, SEVERAL)).findings[0].target
    assert one_of_three.guessed.all(0).tolist() == [False, False, True]


def test_what_is_shown_and_kept(tmp_path):
    audit = lw.audit(DecisionTreeRegressor(max_depth=1).fit(X, SEVERAL), (X, SEVERAL))
    audit.to_json(tmp_path / "audit.json")
    again = lw.Audit.from_json(tmp_path / "audit.json")
    assert again.conclusion == audit.conclusion
    for ours, theirs in zip(audit.findings[0].target, again.findings[0].target, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    lw.report(audit, tmp_path / "report")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "report" / "records.csv").read_text())))
    assert {row["label read"] for row in rows} == {"certain"}
    assert {row["label guessed without model"] for row in rows} == {"no"}
    page = (tmp_path / "report" / "report.html").read_text()
    assert "of targets read" in page
    assert {record.columns for record in most_at_risk(audit, records=True)} >= {"target"}
    assert "can be read from this model" in page
    assert audit.to_frame()["target_read"].all()
    assert "labels_guessed" in audit.to_csv()


def test_a_file_with_other_targets_is_refused(tmp_path):
    audit = lw.audit(DummyRegressor().fit(X, Y), (X, Y))
    text = audit.to_json(tmp_path / "audit.json").read_text()
    for name in ("read", "different"):
        place = text.index("true,", text.index(f'"{name}"', text.index('"target"')))
        (tmp_path / "audit.json").write_text(text[:place] + text[place + 5 :])  # one game fewer
        with pytest.raises(ValueError, match="edited or damaged"):
            lw.Audit.from_json(tmp_path / "audit.json")


def test_a_label_that_is_given_is_not_read():
    model = Ridge(fit_intercept=False).fit(X, Y)
    assert lw.audit(model, (X, Y)).findings[0].target is None


@pytest.mark.parametrize("copies", [[[0.0], [1.0]], [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]])
@pytest.mark.parametrize("model", [LinearRegression(), LogisticRegression(), Ridge(3.0)], ids=str)
def test_copies_of_two_or_three_rows_are_not_cleared(copies, model):
    arms = np.repeat(np.array(copies), 15, 0)
    random = np.random.default_rng(2)
    y = random.integers(0, 2, len(arms)) if isinstance(model, LogisticRegression) else random.normal(size=len(arms))
    audit = lw.audit(model.fit(arms, y), (arms, y))
    assert audit.grade is Grade.RECOGNISABLE
    assert audit.conclusion.line.targets == len(arms)
    assert any(f"All rows are copies of {len(copies)}" in why for why in audit.unanswered)
    assert all(policy.breaches(audit) for policy in POLICIES)


def test_copies_of_few_rows_without_a_target_are_undecided():
    from sklearn.preprocessing import MinMaxScaler

    rows = np.repeat([[0.0, 1.0], [1.0, 0.0]], 20, 0)
    assert lw.audit(MinMaxScaler().fit(rows), rows).grade is Grade.UNDECIDED


def test_a_sparse_model_of_other_rows_gives_nothing_exactly():
    """At its optimum it is a model of these rows, which the release is not."""
    random = np.random.default_rng(4)
    rows = random.normal(size=(200, 6))
    y = rows @ [3, 2, 1, 0, 0, 0] + 0.3 * random.normal(size=200)
    model = Lasso(alpha=0.1).fit(rows[:160], y[:160])
    audit = lw.audit(model, (rows, y))
    assert not any("the release gives exactly" in note for note in map(str, audit.notes))
    assert any("not fitted on this table" in note for note in map(str, audit.notes))
    again = lw.audit(Lasso(alpha=0.1, tol=1e-12).fit(rows, y), (rows, y))
    assert any("the release gives exactly" in note for note in map(str, again.notes))
    assert not any("not fitted on this table" in note for note in map(str, again.notes))


def test_exact_and_certain_cells_are_one_statement():
    model = RandomForestRegressor(5, random_state=0).fit(X, Y)
    audit = lw.audit(model, (X, Y))
    cells = audit.finding(audit.conclusion.line.name).cells
    said = [sentence for sentence in audit.conclusion.sentences if "cells" in sentence]
    assert len(said) == 1
    assert said[0].startswith(f"{cells.exact} of {cells.total} cells")


def answered(seed, kind):
    """An audit of guesses that owe nothing to the targets of their games, beside what the other columns give."""
    random = np.random.default_rng(seed)
    n, classes = int(random.integers(20, 120)), bool(random.integers(2))
    x = torch.from_numpy(random.normal(size=(n, 3)))
    if random.random() < 0.3:
        x = x.round()
    score = x @ torch.from_numpy(random.normal(size=3)) + random.uniform(0, 2) * torch.from_numpy(random.normal(size=n))
    y = (score > 0).long() if classes else score.round() if random.random() < 0.5 else score
    guess = {
        "blind": lambda: y[torch.from_numpy(random.integers(n, size=n))],
        "permuted": lambda: y[torch.from_numpy(random.permutation(n))],
        # a model of the same law, fitted on other rows, which even sees the other columns
        "generalises": lambda: _predicted(x, y, classes, random),
    }[kind]()
    scoring = Scoring.of(x, 0.05, with_secrets=True)
    judging = LeaveOneOut(Records(x, y), torch.arange(n), scoring, x.mean(0).expand(n, -1))
    records = Records(torch.from_numpy(random.normal(size=(n, 1, 3))), guess[:, None])
    line = judged(judging, Answer(SimpleNamespace(), Guess(records, torch.ones(n, 1, dtype=torch.float64)), 0.0))
    return filled(
        judging,
        [line],
        subject="noise",
        kind="this model",
        threat="",
        attack="",
        numbers=torch.arange(n),
        seed=0,
        provenance={},
    )


def _predicted(x, y, classes, random):
    half = torch.from_numpy(random.permutation(len(x))[: len(x) // 2])
    ones = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
    weights = torch.linalg.lstsq(ones[half], y[half].double()[:, None]).solution
    predicted = (ones @ weights)[:, 0]
    return (predicted > 0.5).long() if classes else predicted


@pytest.mark.parametrize("kind", ["blind", "permuted"])
def test_targets_that_are_guessed_by_luck_do_not_alarm(kind):
    """One alarm in 20 audits has a chance of 18 %, three of 0.1 %, at the stated level."""
    assert sum(answered(seed, kind).grade.leaks for seed in range(20)) <= 2
    assert answered(0, kind).findings[0].target is not None


def test_a_model_that_generalises_is_no_leak():
    """It is right as often as the guess, which knows the same columns and more rows."""
    assert sum(answered(seed, "generalises").conclusion.line.by_target for seed in range(20)) <= 2


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["blind", "permuted", "generalises"])
def test_noise_alarms_no_more_often_than_stated(kind):
    """The chance of more than 7 alarms of 200 is below 0.2 %."""
    alarms = sum(answered(seed, kind).conclusion.line.by_target for seed in range(100, 300))
    print(kind, alarms)
    assert alarms <= 200 * LEVEL + 5


OTHER_ROWS = {
    "mean": (DummyRegressor(), False),
    "mean of coded columns": (make_pipeline(OneHotEncoder(handle_unknown="ignore"), DummyRegressor()), False),
    "no weights": (Lasso(alpha=1e6), False),
    "scaled targets": (TransformedTargetRegressor(Lasso(alpha=1e6), transformer=StandardScaler()), False),
    "one column": (MultiOutputRegressor(Lasso(alpha=1e6)), False),
    "shares": (DummyClassifier(), True),
}


@pytest.mark.parametrize("name", OTHER_ROWS)
def test_targets_of_rows_that_the_model_has_not_seen(name):
    model, classes = OTHER_ROWS[name]
    X = np.random.default_rng(7).integers(4, size=(60, 2)) + np.arange(60)[:, None] % 3
    for seed in range(25):
        y, other = np.random.default_rng(seed).exponential(size=(2, 60))
        if classes:
            y, other = np.digitize(y, [0.5, 1.5]), np.digitize(other, [0.5, 1.5])
            if (np.bincount(y, minlength=3) == np.bincount(other, minlength=3)).all():
                continue
        try:
            y, other = (y[:, None], other[:, None]) if name == "one column" else (y, other)
            audit = lw.audit(model.fit(X, other), (X, y))
        except ValueError:
            continue  # refused
        assert not audit.grade.leaks, audit
        assert any("not fitted on this table" in note for note in map(str, audit.notes))


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_mean_of_these_rows_in_any_precision(kind):
    y = (1000 + np.random.default_rng(1).normal(size=120)).astype(kind)
    X = np.random.default_rng(2).normal(size=(120, 3))
    audit = lw.audit(DummyRegressor().fit(X, y), (X, y))
    assert audit.finding("as converged").target is not None
    assert audit.grade is Grade.RECOGNISABLE


def test_of_several_targets_those_that_were_read_count():
    audit = lw.audit(RegressorChain(DummyRegressor(), order=[1, 0, 2]).fit(X, SEVERAL), (X, SEVERAL))
    assert audit.grade is Grade.RECOGNISABLE
    assert audit.findings[0].target.read.all(0).tolist() == [False, True, False]


@pytest.mark.parametrize("name", ["no way back", "no means", "medians"])
def test_a_model_of_labels_that_were_not_attacked_is_not_cleared(name):
    if name == "no way back":
        model = TransformedTargetRegressor(DummyRegressor(), func=np.log, inverse_func=np.sqrt, check_inverse=False)
    elif name == "medians":  # their impurities give how far each target is from them
        model = DecisionTreeRegressor(criterion="absolute_error", min_samples_leaf=50)
    else:
        lightgbm = pytest.importorskip("lightgbm")
        model = lightgbm.LGBMRegressor(n_estimators=1, min_child_samples=80, objective="quantile", verbose=-1)
    audit = lw.audit(model.fit(X, Y), (X, Y))
    assert audit.grade is Grade.UNDECIDED
    assert any("labels were not attacked" in why for why in audit.unanswered)
    for policy in POLICIES:
        assert policy.breaches(audit), policy


def test_labels_that_a_model_does_not_take_leave_nothing_open():
    audit = lw.audit(VarianceThreshold().fit(X, Y), (X, Y))
    assert not any("labels" in why for why in audit.unanswered)
