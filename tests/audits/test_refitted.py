"""Estimators without an equation are fitted again and again: those that memorise are found, others are not."""

import time
from dataclasses import replace
from datetime import datetime
from uuid import uuid4
from zlib import compress

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.datasets import load_diabetes, load_wine
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import Perceptron, SGDClassifier
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OrdinalEncoder, StandardScaler
from sklearn.svm import LinearSVR
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier

import lostwax as lw
from audits import game
from audits.test_decision import ALL
from lostwax.access import Outputs
from lostwax.audits import refitted
from lostwax.audits.models import worse_of
from lostwax.audits.play import Settings
from lostwax.audits.refitted import Encoding, SameClass, Split, audit_refitted
from lostwax.games import Columns, Records
from lostwax.grades import Grade
from lostwax.metrics.estimate import clopper_pearson

WINE = load_wine(return_X_y=True)


def audited(model, X, y, *, access=None, seed=0, games=None, max_minutes=None, columns=None, table=None):
    X_numbers = np.asarray(X, dtype=np.float64) if table is None else table
    labels = torch.from_numpy(
        np.unique(y, return_inverse=True)[1] if np.asarray(y).dtype.kind != "f" else np.asarray(y)
    )
    names = tuple(f"x{number}" for number in range(X_numbers.shape[1]))
    return audit_refitted(
        model.fit(X, y),
        X,
        y,
        Settings(games=games, seed=seed, max_minutes=max_minutes),
        table=Records(torch.from_numpy(X_numbers), labels),
        columns=columns or Columns(names, ((),) * len(names)),
        sample_weight=None,
        access=access,
        reasons=("there is no equation.",),
    )


@pytest.mark.parametrize("access", [None, Outputs()])
def test_a_model_that_memorises_is_found(access):
    audit = audited(KNeighborsClassifier(1), *WINE, access=access)
    assert audit.grade.leaks
    assert audit.chance == pytest.approx(0.1)
    assert audit.finding("LikeliestRefit").rebuilt.mean() > 0.3


def test_a_tree_is_found_by_its_outputs():
    assert audited(DecisionTreeClassifier(random_state=0), *WINE, access=Outputs()).grade.leaks


def test_a_forest_is_found_for_it_stores_its_seeds():
    audit = audited(RandomForestClassifier(5, max_depth=None), *WINE)
    assert audit.grade is Grade.RECOGNISABLE
    assert any("stores the seeds" in note for note in map(str, audit.notes))


class Tail(ClassifierMixin, BaseEstimator):
    """Correlations with the labels over most rows; the last fifth is held out, as Keras's validation_split does."""

    def __init__(self, history=0.0):
        self.history = history

    def fit(self, X, y):
        cut = int(0.8 * len(X))
        self.classes_, self.coef_ = np.unique(y), X[:cut].T @ (y[:cut] - y.mean())
        self.history_ = np.array([self.history])
        return self

    def predict(self, X):
        return self.classes_[(X @ self.coef_ > 0).astype(int)]


@pytest.mark.parametrize("history", [0.0, np.nan, np.inf])
def test_secrets_are_not_all_at_a_place_that_every_fit_leaves_out(history):
    """Whatever else the model holds."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 4))
    y = (X[:, 0] + 0.5 * rng.normal(size=200) > 0).astype(int)
    assert audited(Tail(history), X, y, games=30).grade.severe


def test_refits_that_decide_nothing_answer_nothing():
    """A small leak was read, and too few games were played about the rest: that is not a complete audit."""
    rest = ("Own was not read completely.",)
    read = replace(ALL[Grade.BETTER_THAN_CHANCE], unanswered=rest)
    assert not worse_of(read, ALL[Grade.NOT_FOUND], rest).unanswered
    assert rest[0] in worse_of(read, ALL[Grade.UNDECIDED], rest).unanswered
    assert worse_of(read, ALL[Grade.EXACT], rest).grade is Grade.EXACT


def test_a_model_that_fit_leaves_as_it_is_gets_no_all_clear():
    X, y = WINE[0], (WINE[1] > 0).astype(int)
    net = MLPClassifier((3,), max_iter=5, random_state=0).fit(X, y)
    for model in (
        FixedThresholdClassifier(FrozenEstimator(net), threshold=0.3),
        make_pipeline(FunctionTransformer(net.predict_proba), DummyClassifier()),
    ):
        audit = lw.audit(model.fit(X, y), (X, y), games=30)
        assert audit.grade is Grade.UNDECIDED
        assert any("MLPClassifier inside" in sentence for sentence in audit.unanswered)


def test_rows_that_do_not_give_the_released_model_are_noted():
    X, y = WINE
    model = Perceptron(random_state=0).fit(X, y)
    right, wrong = (lw.audit(model, (X, labels), games=10) for labels in (y, np.roll(y, 1)))
    doubts = [
        any("another model than the released one" in note for note in map(str, audit.notes)) for audit in (right, wrong)
    ]
    assert doubts == [False, True]


@pytest.fixture
def two_repeats(monkeypatch):
    """Instead of six, which take longer."""
    monkeypatch.setattr(refitted, "REPEATS", (2,))


def test_private_random_numbers_do_not_hide_what_a_scaler_says(two_repeats):
    audit = audited(make_pipeline(StandardScaler(), SGDClassifier(max_iter=5, tol=None)), *WINE)
    assert audit.grade is Grade.RECOGNISABLE
    assert audit.finding("LikeliestRefit").rebuilt.all()


def test_regressions_are_played_with_candidates_of_any_label():
    X, y = load_diabetes(return_X_y=True)
    audit = audited(KNeighborsRegressor(2), X[:200], y[:200], access=Outputs())
    assert audit.grade.leaks


def test_a_net_gets_a_verdict(two_repeats):
    audit = audited(MLPClassifier((4,), max_iter=4), *WINE)
    assert audit.grade in (Grade.NOT_FOUND, Grade.BETTER_THAN_CHANCE, Grade.RECOGNISABLE)
    assert str(audit.notes[0]) == "there is no equation."
    assert any(note.startswith(("Reconstruction:", "Membership:")) for note in map(str, audit.notes))


class Noise(ClassifierMixin, BaseEstimator):
    """Its outputs and its parameter are random, and owe nothing to the rows."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        random = np.random.default_rng(self.random_state)
        self.classes_ = np.unique(y)
        self.coef_, self.rate_ = random.normal(size=(X.shape[1], len(self.classes_))), random.normal(size=3)
        return self

    def predict_proba(self, X):
        scores = np.exp(np.asarray(X) @ self.coef_)
        return scores / scores.sum(1, keepdims=True)


def alarms(model, seeds):
    """Audits that are graded above chance, of small tables, some of whose records repeat."""
    found = 0
    for seed in seeds:
        random = np.random.default_rng(seed)
        y = random.integers(2, size=60)
        X = random.normal(size=(60, 3)) + y[:, None]
        found += audited(model, np.round(X) if seed % 4 == 3 else X, y, seed=seed).grade.leaks
    return found


MODELS = [DummyClassifier(), Noise(), Noise(random_state=0)]


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_model_that_holds_no_record_is_seldom_graded_above_chance(model):
    """At most 1 % of the audits of each question alarm: 1 of 50 is expected at most, 4 or more have a chance of 2 %."""
    assert alarms(model, range(50)) <= 3


@pytest.mark.parametrize("model", MODELS, ids=str)
def test_a_model_that_holds_no_record_is_not_found(model, two_repeats):
    assert alarms(model, range(3)) == 0


class Changes(Noise):
    """Holds something that differs in every fit, whatever the rows."""

    def __init__(self, what=None):
        self.what = what

    def fit(self, X, y):
        self.classes_, self.coef_, self.at_ = np.unique(y), np.zeros((X.shape[1], 3)), CHANGES[self.what](self)
        return self


CHANGES = {
    "time": lambda _: time.time(),
    "date": lambda _: str(datetime.now()),
    "address": id,
    "shown": lambda _: repr(object()),
    "keys": lambda _: {object(): 1.0},
    "identifier": lambda _: uuid4().hex,
    "random": lambda _: np.random.default_rng().normal(size=(30, 3)),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_changes_by_itself_is_no_leak(what):
    """A time that was stored by a fit was once recognised: victims and refits were the same fits."""
    audit = audited(Changes(what), *WINE, games=30)
    assert not audit.grade.leaks


class ChangesAndKeeps(Changes):
    """Also holds its rows, out of sight."""

    def fit(self, X, y):
        self.rows_ = compress(np.asarray(X).tobytes())
        return super().fit(X, y)


@pytest.mark.parametrize("what", ["time", "identifier"])
def test_what_changes_by_itself_hides_no_leak(what):
    assert audited(ChangesAndKeeps(what), *WINE, games=30).grade is Grade.RECOGNISABLE


class Constant(Noise):
    """Has nothing to learn."""

    def fit(self, X, y):
        self.classes_, self.coef_ = np.unique(y), np.zeros((X.shape[1], 3))
        return self


def test_a_constant_model_is_not_found():
    audit = audited(Constant(), *WINE)
    assert (audit.grade, audit.unanswered) == (Grade.NOT_FOUND, ())
    assert any("gave the same model" in note for note in map(str, audit.notes))


class Bounded(Noise):
    """Holds limits that are infinite, a history that begins with infinity, and a missing value, as encoders do."""

    def fit(self, X, y):
        self.limits_, self.history_ = np.array([-np.inf, np.inf, np.nan]), [np.inf, float(X.mean())]
        return super().fit(X, y)


class MarksRows(Bounded):
    """NaN at a place that only one row has: its numbers are otherwise the same for all tables."""

    def fit(self, X, y):
        super().fit(X[:1] * 0, y)
        self.marks_ = np.zeros(4_096)
        self.marks_[(1e4 * np.abs(X).sum(1)).astype(int) % 4_096] = np.nan
        return self


def test_numbers_that_are_not_finite_are_not_divergence():
    audit = audited(Bounded(random_state=0), *WINE, games=30)
    assert not any("diverge" in said or "learning rate" in said for said in map(str, (*audit.unanswered, *audit.notes)))
    assert not any("was not tried" in why for why in audit.unanswered)
    leak = audited(MarksRows(random_state=0), *WINE, games=30)
    assert leak.grade is Grade.RECOGNISABLE


def test_it_is_what_lw_audit_does_where_nothing_can_be_read():
    X, y = WINE
    model = DecisionTreeClassifier(random_state=0).fit(X, y)
    audit = lw.audit(model, (X, y), access=Outputs())
    assert (audit.kind, audit.grade.leaks) == ("this procedure", True)


def test_cells_are_shown_in_the_units_of_the_table(tmp_path):
    random = np.random.default_rng(0)
    town, age = random.choice(list("ABC"), 160), random.normal(40, 10, 160)
    age[:20] = np.nan
    X, y = pd.DataFrame({"age": age, "town": town}), random.choice(["ill", "well"], 160)
    codes = np.stack([age, np.unique(town, return_inverse=True)[1]], 1)

    class Nearest(ClassifierMixin, BaseEstimator):
        def fit(self, X, y):
            self.held_, self.classes_ = (
                [(*row, label) for row, label in zip(X.to_numpy(), y, strict=True)],
                np.unique(y),
            )
            return self

        def predict_proba(self, X):
            held = {(str(age), town): label for age, town, label in self.held_}
            known = [held.get((str(age), town)) for age, town in X.to_numpy()]
            return np.array([[0.5, 0.5] if label is None else self.classes_ == label for label in known], dtype=float)

    audit = audited(Nearest(), X, y, columns=Columns(("age", "town"), ((), ("A", "B", "C"))), table=codes)
    assert audit.grade is Grade.RECOGNISABLE
    assert audit.columns == ("age", "town")
    assert set(audit.truth.x[:, 1].tolist()) <= {0.0, 1.0, 2.0}
    assert audit.truth.x[:, 0].nan_to_num(-1).min() < audit.truth.x[:, 0].nan_to_num(0).max()
    rows = {(row[0], row[1]) for row in codes[~np.isnan(age)].round(9).tolist()}
    assert {(a, t) for a, t in audit.truth.x.numpy().round(9).tolist() if a == a} <= rows
    lw.report(audit, tmp_path / "report")


def test_an_encoding_goes_back_to_cells():
    x = torch.tensor([[1.0, 0, torch.nan], [3.0, 2, 1], [torch.nan, 1, 0], [2.0, torch.nan, 40]], dtype=torch.float64)
    many = tuple(range(50))
    encoding = Encoding.of(x, Columns(("a", "b", "c"), ((), ("u", "v", "w"), many)))
    numbers = encoding(x)
    assert numbers.isfinite().all()
    assert numbers.shape == (4, 2 + 4 + 2)
    assert torch.allclose(encoding.cells(numbers), x, equal_nan=True)
    assert torch.allclose(encoding.cells(numbers[:, None]), x[:, None], equal_nan=True)


def test_candidates_are_of_the_secrets_class():
    y = torch.arange(60) % 3
    records = Records(torch.arange(60.0, dtype=torch.float64)[:, None], y, torch.arange(60.0)[:, None])
    known, pool = records[:15], records[15:]
    threat = SameClass(known, candidates=5)
    cohort = threat.deal(pool, 45, seed=0)
    hints = threat.hints(cohort, pool, seed=0)
    assert (hints.candidates.y == cohort.own.y).all()
    assert ((hints.candidates.x == cohort.own.x).flatten(2).all(2).sum(1) == 1).all()
    assert (hints.candidates.features[..., 0].double() == hints.candidates.x[..., 0]).all()


def test_a_split_keeps_most_rows_and_every_class():
    y = torch.tensor([0] * 100 + [1] * 60 + [2] * 3)
    split = Split.of(y, None, seed=0)
    assert sorted(torch.cat(split.parts).tolist()) == list(range(163))
    assert len(split.known) >= 81
    assert split.left_out == (2,)
    assert set(y[split.known].tolist()) == {0, 1, 2}
    assert set(y[split.secrets].tolist()) == set(y[split.examples].tolist()) == {0, 1}
    with pytest.raises(ValueError, match="too few"):
        Split.of(torch.arange(10), None, seed=0)


def test_other_accesses_are_refused():
    with pytest.raises(TypeError, match=r"lw\.access\.Outputs"):
        audited(DummyClassifier(), *WINE, access=lw.access.Logits(torch.zeros(3, 13)))


def test_a_limit_on_time_is_kept():
    class Slow(DummyClassifier):
        def fit(self, X, y, sample_weight=None):
            import time

            time.sleep(0.5 if len(X) < 178 else 0)
            return super().fit(X, y)

    with pytest.raises(ValueError, match="max_minutes is too short"):
        audited(Slow(), *WINE, max_minutes=0.005)


def test_candidates_are_as_many_as_there_are_different_rows():
    x = torch.tensor([[0.0], [0.0], [1.0], [2.0], [3.0]])
    secrets = Records(x, torch.tensor([0, 0, 0, 1, 1]))
    assert refitted._fewest_distinct(secrets, by_class=True) == 2
    assert refitted._fewest_distinct(secrets, by_class=False) == 4
    with pytest.raises(ValueError, match="all rows that were drawn are the same"):
        refitted._fewest_distinct(Records(x[:2], torch.zeros(2)), by_class=False)


def test_what_was_read_is_returned_where_refitting_is_not_possible():
    """All rows of a small table of categories occur several times: the adversary has every secret."""
    towns = pd.DataFrame({"town": ["Bath", "York", "Ely"] * 20})
    y = np.arange(60) % 2
    model = make_pipeline(OrdinalEncoder(), Perceptron(random_state=0)).fit(towns, y)
    audit = lw.audit(model, (towns, y), max_minutes=1)
    assert audit.conclusion.grade is Grade.UNDECIDED
    assert "Perceptron was not audited" in audit.unanswered[0]
    assert audit.unanswered[-1].startswith("The model was not refitted: ")


def test_of_a_large_table_the_rows_that_were_drawn_are_refitted(monkeypatch):
    """Rows of the sample stand for themselves: a model that stores its rows gives them back."""
    for name, value in (("LARGE", 10), ("SAMPLE_NUMBERS", 300), ("GAMES", 60)):
        monkeypatch.setattr(f"lostwax.adapters.sklearn.reading.{name}", value)
    X = np.random.default_rng(0).normal(size=(400, 3))
    y = X[:, 0].copy()
    seen = []

    class Recorded(RegressorMixin, BaseEstimator):
        def fit(self, X, y):
            seen.append(X[:, 0])
            self.tree_ = DecisionTreeRegressor(random_state=0).fit(X, y)
            return self

        def predict(self, X):
            return self.tree_.predict(X)

    audit = lw.audit(Recorded().fit(X, y), (X, y), max_minutes=1)
    assert any("refitted on 120 of its rows" in note for note in map(str, audit.notes))
    assert np.isclose(audit.truth.x[:, :1].numpy(), np.unique(np.concatenate(seen[1:]))).any(1).all()


def test_a_class_that_is_too_rare_for_a_game_leaves_the_question_open():
    """It once was a note beside "not found", though the rarest rows may leak most."""
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = np.r_[np.ones(3, int), np.zeros(197, int)]
    audit = audited(DummyClassifier(strategy="most_frequent"), X, y)
    assert audit.grade is Grade.UNDECIDED
    assert "3 rows of 1 class, which has too few for a game, were not attacked." in str(audit.conclusion)
    common = audited(DummyClassifier(strategy="most_frequent"), X, np.arange(200) % 2)
    assert common.grade is Grade.NOT_FOUND


def test_intervals_allow_for_other_splits_in_print_file_and_gate(tmp_path):
    random = np.random.default_rng(5)
    X = random.normal(size=(120, 3))
    audit = audited(DecisionTreeRegressor(max_leaf_nodes=4), X, X[:, 0], games=24)
    won = int(audit.findings[0].rebuilt.sum())
    low, high = clopper_pearson(won * audit.victims / len(audit.games), audit.victims)
    assert audit.interval(won)[0] <= low
    assert audit.interval(won)[1] >= high
    assert audit.interval(0)[1] > 1.5 * clopper_pearson(0, audit.victims)[1]
    assert any("one split of the table" in note for note in map(str, audit.notes))
    read = lw.Audit.from_json(audit.to_json(tmp_path / "audit.json"))
    assert read.interval(won) == audit.interval(won)
    (breach,) = lw.Policy(max_rebuilt_share=0.01).breaches(read)
    assert f"{audit.interval(won)[1]:.3g}" in str(breach)
    (open_question,) = lw.Policy(max_tpr_at_1pct=0.5).breaches(replace(game.audited(game.Reads()), split_spread=0.6))
    assert "one split of the table" in str(open_question)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "rows"),
    [
        (DecisionTreeRegressor(max_leaf_nodes=5, random_state=0), 90),
        (ExtraTreeClassifier(max_depth=3, random_state=0), 150),
        (LinearSVR(C=0.05, epsilon=0.5, random_state=0), 130),
    ],
)
def test_the_mean_over_splits_is_in_nearly_all_intervals(model, rows):
    random = np.random.default_rng(11)
    X = random.lognormal(size=(rows, 4))
    score = X[:, 0] - X[:, 1] + random.normal(size=rows)
    y = (score > 0).astype(int) if isinstance(model, ClassifierMixin) else score
    audits = [audited(model, X, y, seed=seed, access=Outputs()) for seed in range(60)]
    won = [int(audit.findings[0].rebuilt.sum()) for audit in audits]
    mean = np.mean([number / len(audit.games) for number, audit in zip(won, audits, strict=True)])
    ends = np.array([audit.interval(number) for number, audit in zip(won, audits, strict=True)])
    assert ((ends[:, 0] <= mean) & (mean <= ends[:, 1])).mean() >= 0.93
