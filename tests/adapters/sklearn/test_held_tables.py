"""Rows that hang on a release in any form are found: frames with strings, records, CSV, bytes, closures, labels."""

import base64
import gzip
import hashlib
import json
import pickle
import zlib
from array import array

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import make_column_transformer
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier

import lostwax as lw
from lostwax.adapters.objects import Walk, decompressed, unmentioned
from lostwax.adapters.sklearn import released
from lostwax.adapters.sklearn.held_tables import held_columns, held_labels, held_tables, is_setting
from lostwax.adapters.sklearn.refitting import Estimator
from lostwax.adapters.sklearn.scan import scan
from lostwax.games import Kept
from lostwax.grades import Grade
from lostwax.policies import Policy
from lostwax.records.tables import coded

rng = np.random.default_rng(0)
N = 120
TABLE = pd.DataFrame(
    {
        "age": rng.integers(18, 90, N),
        "pay": rng.lognormal(10, 1, N).round(2),
        "town": rng.choice(["Bath", "Ely", "York"], N),
        "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, N), unit="D"),
    }
)
TABLE["pay"] = TABLE["pay"].mask(rng.random(N) < 0.1)
y = (TABLE["age"] + rng.normal(0, 20, N) > 55).astype(int)
NUMBERS = rng.normal(size=(N, 3))


def pipeline():
    """A stump behind encoders: it tells little of any row."""
    days = FunctionTransformer(lambda frame: frame.astype("int64"))
    columns = make_column_transformer((OrdinalEncoder(), ["town"]), (days, ["seen"]), ("passthrough", ["age", "pay"]))
    return make_pipeline(columns, DecisionTreeClassifier(max_depth=1, min_samples_leaf=30)).fit(TABLE, y)


HELD = {
    "frame": lambda: TABLE,
    "shuffled": lambda: TABLE.sample(frac=1, random_state=0)[["town", "pay", "age", "seen"]],
    "records": lambda: TABLE.to_dict("records"),
    "lists": lambda: TABLE[["age", "pay", "town"]].to_dict("list"),
    "csv": lambda: TABLE[["age", "town", "pay"]].dropna().to_csv(),
    "json": lambda: TABLE[["age", "town", "pay"]].to_json(orient="records"),
    "array": lambda: TABLE.to_numpy(),
    "closure": lambda: (lambda frame: lambda: frame)(TABLE),
    "sample": lambda: TABLE.head(5),
}


def test_a_stump_behind_encoders_is_no_exact_leak():
    audit = lw.audit(pipeline(), (TABLE, y))
    assert audit.grade is not Grade.EXACT


def found(held):
    x, columns = coded(TABLE)
    return list(held_tables({"kept": held}, x, columns, range(4), 4))


@pytest.mark.parametrize("held", HELD.values(), ids=HELD)
def test_rows_of_every_form_are_found(held):
    one, *others = found(held())
    assert not others
    assert len(one.rows) >= 5
    assert len(one.columns) >= 3


@pytest.mark.parametrize("name", ["frame", "sample"])
def test_rows_on_the_pipeline_itself_are_found(name):
    """They once were not: only parts were searched, in the numbers that they were fitted on."""
    model = pipeline()
    model.kept = HELD[name]()
    audit = lw.audit(model, (TABLE, y))
    assert audit.grade is Grade.EXACT
    assert audit.findings[0].cells.certified >= 15
    assert any("Pipeline's kept" in note and "rows of this table" in note for note in map(str, audit.notes))


def test_rows_on_a_search_are_found():
    model = GridSearchCV(DecisionTreeClassifier(max_depth=1), {"min_samples_leaf": [30]}).fit(NUMBERS, y)
    model.kept = NUMBERS
    audit = lw.audit(model, (NUMBERS, y))
    assert audit.findings[0].rebuilt.all()


@pytest.mark.parametrize(
    "held",
    [
        TABLE.groupby("town", as_index=False)["age"].median(),  # one line per town, not per person
        TABLE.assign(age=TABLE["age"] + 1, pay=TABLE["pay"] + 1),
        pd.DataFrame({"town": ["Bath", "Ely"]}),
        TABLE.describe(),
        "age,town\nn/a\n\n\n",
        "{" * 5000,
        np.eye(4),
    ],
    ids=["lookup", "others", "names", "summary", "text", "braces", "identity"],
)
def test_other_tables_are_not_rows(held):
    assert found(held) == []


@pytest.mark.parametrize("form", [np.ndarray.tobytes, pickle.dumps, lambda x: bytearray(x.tobytes())])
def test_rows_in_bytes_leave_the_audit_undecided(form):
    model = DecisionTreeClassifier(max_depth=1, min_samples_leaf=30).fit(NUMBERS, y)
    model.blob = form(NUMBERS)
    assert released(model, (NUMBERS, y)).attached


def test_a_stump_with_rows_in_a_text_is_an_exact_leak():
    model = DecisionTreeClassifier(max_depth=1, min_samples_leaf=30).fit(NUMBERS, y)
    model.blob = pd.DataFrame(NUMBERS).to_csv(index=False)
    assert lw.audit(model, (NUMBERS, y)).findings[0].rebuilt.all()


def test_a_copy_on_another_scale_is_an_exact_leak():
    model = DecisionTreeClassifier(max_depth=1, min_samples_leaf=30).fit(NUMBERS, y)
    model.scaled = (NUMBERS * [1, -2, 3] + 5).astype(np.float32)
    assert lw.audit(model, (NUMBERS, y)).findings[0].rebuilt.all()


def test_many_places_are_one_note():
    model = DecisionTreeClassifier(max_depth=1).fit(NUMBERS, y)
    model.by_person = {f"p{number}": row for number, row in enumerate(NUMBERS)}
    notes = [note for note in map(str, lw.audit(model, (NUMBERS, y)).notes) if "rows of this table" in note]
    assert notes == [f"DecisionTreeClassifier's by_person holds {N} of {N} rows of this table as they reach it."]


class KeepsLabels(ClassifierMixin, BaseEstimator):
    def fit(self, X, y):
        self.classes_, self.answers_ = np.unique(y), list(y)
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


def test_a_model_that_holds_all_labels_never_passes():
    audit = lw.audit(KeepsLabels().fit(NUMBERS, y), (NUMBERS, y))
    assert audit.grade is Grade.UNDECIDED
    assert "holds the labels of all rows" in str(audit.conclusion)
    assert Policy(max_grade="better than chance").breaches(audit)


def test_labels_are_found_by_any_name_and_not_by_accident():
    labels = torch.from_numpy(y.to_numpy())
    assert held_labels({"a": np.where(y, "ill", "well").tolist()}, labels) == "a"
    assert held_labels({"a": pd.Series(1 - y)}, labels) is not None
    assert held_labels({"a": 1 - y[::-1].to_numpy(), "b": [1, [2]], "c": [None] * N}, labels) is None
    assert held_labels({"a": np.zeros(N)}, torch.zeros(N, dtype=torch.long)) is None


def test_the_ends_of_columns_are_certain_cells():
    """A MinMaxScaler alone once passed as "not found", although it publishes two cells of each column."""
    audit = lw.audit(MinMaxScaler().fit(NUMBERS), (NUMBERS, None))
    assert audit.findings[0].cells.certified == 6
    assert audit.grade.leaks
    assert "6 of 360 cells" in str(audit.conclusion)


def test_targets_that_all_differ_are_not_held_in_any_list_of_as_many_numbers():
    """The singular values of a LinearRegression with fewer rows than columns were once taken for its labels."""
    targets = torch.from_numpy(np.random.default_rng(5).normal(size=N))
    own = targets.numpy()
    others = (np.arange(N), np.linspace(9, 1, N), np.random.default_rng(6).normal(size=N), list(map(str, range(N))))
    for other in others:
        assert held_labels({"a": other}, targets) is None
    for same in (own, 3 - 2 * own, np.exp(own), own.tolist(), own.astype(np.float32)):
        assert held_labels({"a": same}, targets) == "a"


def test_the_order_of_a_sorted_table_is_no_label():
    targets = torch.from_numpy(np.random.default_rng(5).normal(size=N)).sort().values
    assert held_labels({"a": np.arange(N), "b": np.linspace(9, 1, N) ** 2}, targets) is None
    assert held_labels({"a": targets.numpy() / 7 + 1}, targets) == "a"


@pytest.mark.parametrize("slope", [1, -2])
def test_a_shuffled_copy_on_another_scale_is_an_exact_leak(slope):
    order = np.random.default_rng(3).permutation(N)
    assert len(scan({"a": slope * NUMBERS[order] + 5}, torch.from_numpy(NUMBERS), None, torch.ones(N)).stored) == 1
    alone = np.take_along_axis(NUMBERS, np.random.default_rng(4).random(NUMBERS.shape).argsort(0), 0)  # no rows
    assert not scan({"a": slope * alone + 5}, torch.from_numpy(NUMBERS), None, torch.ones(N)).stored


def test_rows_in_buffers_are_found():
    (stored,) = scan({"a": array("d", NUMBERS.ravel())}, torch.from_numpy(NUMBERS), None, torch.ones(N)).stored
    assert len(stored.x) == N


def test_whole_numbers_are_no_archive():
    """Bytes that begin with zeros and ones look like an empty archive of LZMA: rows behind them were not read."""
    x = np.random.default_rng(0).integers(3, size=(200, 12)).astype(np.float64)
    x[0] = [0, 0, 0, 2, 0, 1, 0, 2, 2, 1, 1, 0]
    assert decompressed(x.tobytes()) is None


@pytest.mark.parametrize("text", ["-" * 63 + "a", base64.urlsafe_b64encode(bytes(range(256))[::-1] * 3).decode()])
def test_texts_of_both_alphabets_of_base64_are_read(text):
    assert decompressed(text) == base64.urlsafe_b64decode(text)


class Answers(dict):
    """Attributes are items: a common class of settings."""

    __getattr__ = dict.__getitem__


def test_an_object_that_raises_for_unknown_names_is_no_table():
    assert held_labels(Answers(a=1.0), torch.arange(N) % 2) is None
    assert not found(Answers(a=1.0))


@pytest.mark.parametrize("form", [np.copy, np.ndarray.tolist])
def test_rows_beside_a_linear_model_are_an_exact_leak(form):
    """Rows that a linear model fits exactly do not follow from its equations, and its attributes were not read."""
    wide, targets = rng.normal(size=(20, 40)), rng.normal(size=20)
    model = LinearRegression().fit(wide, targets)
    assert lw.audit(model, (wide, targets)).grade is not Grade.EXACT
    model.cache_ = form(wide)
    assert lw.audit(model, (wide, targets)).grade is Grade.EXACT


VISITS = pd.DataFrame(
    {
        "weight": rng.normal(70, 12, 90),
        "visits": rng.poisson(6, 90),
        "cost": rng.gamma(3, 40, 90),
        "ward": rng.choice(["east", "north", "south", "west"], 90),
    }
)
VISITS.loc[::9, "cost"] = np.nan
ILL = (VISITS["visits"] + rng.normal(0, 4, 90) > 6).astype(int)
FIGURES = VISITS[["weight", "visits", "cost"]]
EXACT_CELLS = {  # what is attached, and how many of the 360 cells are certain then
    "column": (lambda: VISITS["cost"].tolist(), 80),
    "sorted column": (lambda: np.sort(VISITS["weight"].to_numpy()), 90),
    "column of names": (lambda: VISITS["ward"].tolist(), 90),
    "rows by number": (lambda: VISITS.to_dict("index"), 360),
    "rows as JSON": (lambda: VISITS.to_json(), 360),
    "gzip": (lambda: gzip.compress(VISITS.to_csv().encode()), 360),
    "zlib in base64": (lambda: base64.b64encode(zlib.compress(VISITS.to_json().encode())).decode(), 360),
}
STATISTICS = {  # with all other rows they give the missing one
    "describe": lambda: FIGURES.describe(),
    "describe as dict": lambda: {"drift": FIGURES.describe().to_dict()},
    "describe as JSON": lambda: FIGURES.describe().to_json(),
    "describe as text": lambda: str(FIGURES.describe()),
    "means by name": lambda: FIGURES.mean().to_dict(),
    "means as JSON": lambda: json.dumps({"mean": FIGURES.mean().to_dict(), "model": "v3"}),
    "sums": lambda: [float(FIGURES["weight"].sum()), float(FIGURES["cost"].sum())],
    "sum of whole numbers": lambda: int(VISITS["visits"].sum()),
    "limits": lambda: {name: (FIGURES[name].min(), FIGURES[name].max()) for name in FIGURES},
    "column in bytes": lambda: VISITS["weight"].to_numpy().tobytes(),
    "counts": lambda: VISITS["ward"].value_counts(),
    "shares": lambda: VISITS["ward"].value_counts(normalize=True).to_dict(),
}


def stump_of_visits():
    columns = make_column_transformer((OrdinalEncoder(), ["ward"]), remainder="passthrough")
    return make_pipeline(columns, DecisionTreeClassifier(max_depth=1, min_samples_leaf=30)).fit(VISITS, ILL)


@pytest.mark.parametrize(("value", "cells"), EXACT_CELLS.values(), ids=EXACT_CELLS)
def test_what_is_attached_to_a_model_is_read(value, cells):
    model = stump_of_visits()
    model.drift = value()
    audit = lw.audit(model, (VISITS, ILL), games=90)
    told = audit.findings[0].cells.each.kept[:, :4] == Kept.EXACT  # without the target
    assert int(told.sum()) >= cells
    assert Policy(max_grade="not found", max_exact_cell_share=0.005).breaches(audit)


@pytest.mark.parametrize("value", STATISTICS.values(), ids=STATISTICS)
def test_statistics_that_are_attached_leave_the_audit_undecided(value):
    model = stump_of_visits()
    model.drift = value()
    assert released(model, (VISITS, ILL)).attached


def test_a_stump_alone_tells_no_cell_of_these():
    told = lw.audit(stump_of_visits(), (VISITS, ILL), games=90).findings[0].cells.each.kept[:, :4] == Kept.EXACT
    assert int(told.sum()) == 0


class Wrapped(ClassifierMixin, BaseEstimator):
    """A net of a user's class, which keeps statistics of its inputs."""

    def __init__(self, keep=None):
        self.keep = keep

    def fit(self, X, y):
        self.net_ = MLPClassifier((3,), max_iter=3, random_state=0).fit(X, y)
        self.classes_, self.drift_ = self.net_.classes_, None if self.keep is None else self.keep(X)
        return self

    def predict(self, X):
        return self.net_.predict(X)


KEPT = {
    "describe": lambda X: pd.DataFrame(X).describe().to_dict(),
    "means": lambda X: dict(enumerate(X.mean(0))),
    "JSON": lambda X: pd.DataFrame(X).describe().to_json(),
    "gzip": lambda X: gzip.compress(X.tobytes()),
    "column": lambda X: dict(enumerate(X[:, 1])),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("keep", KEPT.values(), ids=KEPT)
def test_what_a_user_s_class_keeps_of_its_inputs_is_left_to_refits(keep):
    kept, late = Wrapped(keep).fit(NUMBERS, y), Wrapped().fit(NUMBERS, y)
    late.monitor = keep(NUMBERS)
    assert released(kept, (NUMBERS, y)).unread
    assert any("monitor" in reason for reason in released(late, (NUMBERS, y)).attached)


class KeepsMeans(DecisionTreeClassifier):
    """A tree of a user's class."""

    def fit(self, X, y):
        self.means_ = dict(enumerate(X.mean(0)))
        return super().fit(X, y)


def test_a_user_s_class_whose_trees_are_read_is_refitted_for_what_else_it_keeps():
    (reason,) = released(KeepsMeans(max_depth=1).fit(NUMBERS, y), (NUMBERS, y)).unread
    assert "means_" in reason
    assert not released(DecisionTreeClassifier(max_depth=1).fit(NUMBERS, y), (NUMBERS, y)).unread


def test_what_is_attached_and_not_understood_never_passes():
    model = DecisionTreeClassifier(max_depth=1, min_samples_leaf=30).fit(NUMBERS, y)
    model.blob = rng.bytes(5_000)
    audit = lw.audit(model, (NUMBERS, y))
    assert any("blob was attached after fit" in reason for reason in audit.unanswered)
    assert Policy(max_grade="recognisable").breaches(audit)


def test_what_a_deterministic_fit_does_not_put_there_is_not_answered_by_refits():
    model = Wrapped().fit(NUMBERS, y)
    model.drift_ = rng.normal(size=500)
    estimator = Estimator(model, NUMBERS, y.to_numpy(), None, {"known": np.arange(5)}, {})
    assert estimator.reproduced() == (False, ("drift_",))
    assert Estimator(Wrapped().fit(NUMBERS, y), NUMBERS, y.to_numpy(), None, {"known": np.arange(5)}, {}).reproduced()[
        0
    ]


def test_settings_that_are_attached_change_nothing():
    model = LinearRegression().fit(NUMBERS, rng.normal(size=N))
    model.version, model.names, model.metrics = "1.2", ["a", "b", "c"], {"r2": 0.31, "rows": N, "when": "2024-01-01"}
    assert not released(model, (NUMBERS, NUMBERS @ model.coef_ + model.intercept_)).attached


drawn = np.random.default_rng(4)
HOMES = pd.DataFrame(drawn.gamma(4, 30, (150, 3)).round(2), columns=["area", "garden", "distance"])
RENT = pd.Series(drawn.lognormal(7, 0.4, 150).round(2))
DISTRICT = drawn.choice(["hill", "lake", "port"], 150)
HASHES = [hashlib.sha256(str(row).encode()).hexdigest() for row in HOMES.to_numpy().tolist()]


def constant(value):
    """A model that tells nothing of the table, with something attached."""
    model = DummyRegressor(strategy="constant", constant=0.0).fit(HOMES, RENT)
    model.drift_ = value
    return model


UNEXPLAINED = {
    "mean of the target": {"rent": float(RENT.mean())},
    "mean of the target in a text": f"mean rent: {RENT.mean():.2f}, 2024-03-01",
    "sum of the target": RENT.sum(),
    "means of the target": RENT.groupby(DISTRICT).mean().to_dict(),
    "summary of the target": RENT.describe().to_dict(),
    "target in another order": np.sort(RENT),
    "means of groups": HOMES.groupby(DISTRICT).mean(),
    "means of groups by name": HOMES.groupby(DISTRICT).mean().to_dict(),
    "three digits": HOMES.mean().round(3).to_dict(),
    "squares": (HOMES**2).sum().to_dict(),
    "products": HOMES.to_numpy().T @ HOMES.to_numpy(),
    "three dimensions": HOMES.to_numpy()[:60].reshape(3, 20, 3),
    "many whole numbers": list(range(3, 60, 2)),
    "hashes": HASHES,
    "set of hashes": set(HASHES),
    "hashes by number": dict(enumerate(HASHES)),
    "pickled": pickle.dumps((HOMES**2).sum().to_dict()),
    "packed": base64.b64encode(zlib.compress(json.dumps((HOMES**2).sum().to_dict()).encode())).decode(),
    "largest": float(HOMES["area"].max()),
    "counts": np.unique(DISTRICT, return_counts=True)[1],
    "table of counts": pd.crosstab(DISTRICT, (RENT > 1_000) + 1),
    "counts by two names": pd.crosstab(DISTRICT, RENT > 1_000).to_dict(),
    "histogram": np.histogram(HOMES["area"], 5)[0].tolist(),
    "rounded shares": {"hill": 0.36, "lake": 0.31, "port": 0.33},
    "whole number of many bits": 7**6000,
    "two dates": ["2020-02-03", "2023-11-30"],
    "noise": float(drawn.normal()),
}


@pytest.mark.parametrize("value", UNEXPLAINED.values(), ids=UNEXPLAINED)
def test_what_was_attached_and_nobody_explains_is_no_all_clear(value):
    assert released(constant(value), (HOMES, RENT)).attached


def test_a_statistic_of_the_target_leaves_the_audit_undecided():
    audit = lw.audit(constant({"rent": float(RENT.mean())}), (HOMES, RENT), games=20)
    assert audit.grade is Grade.UNDECIDED
    assert Policy(max_grade="recognisable").breaches(audit)


@pytest.mark.parametrize(
    "value",
    [{"ill": float(ILL.mean())}, int(ILL.sum()), ILL.value_counts().to_dict(), ILL.value_counts(normalize=True)],
)
def test_how_many_rows_have_each_class_is_no_all_clear(value):
    model = stump_of_visits()
    model.prior = value
    assert released(model, (VISITS, ILL)).attached


READ = {
    "row": HOMES.iloc[7],
    "row by name": HOMES.iloc[7].to_dict(),
    "split": HOMES.head(6).to_dict("split"),
    "lists": HOMES.head(6).to_numpy().tolist(),
}


@pytest.mark.parametrize("value", READ.values(), ids=READ)
def test_other_forms_of_rows_are_read(value):
    release = released(constant(value), (HOMES, RENT))
    assert max(part.fitted.table.x.shape[1] for part in release.parts) == 3


def test_rows_with_names_are_read_from_lists():
    model = stump_of_visits()
    model.sample = VISITS.head(5).to_dict("split")
    assert any("holds 5 of 90 rows" in note for note in map(str, released(model, (VISITS, ILL)).notes))


def test_a_text_whose_rows_are_all_read_is_understood():
    release = released(constant(HOMES.to_csv()), (HOMES, RENT))
    assert any("holds 150 of 150 rows" in note for note in map(str, release.notes))
    assert not release.attached


def test_rows_in_a_compressed_text_are_found():
    packed = base64.b64encode(zlib.compress(json.dumps(HOMES.to_numpy().tolist()).encode())).decode()
    notes = released(constant(packed), (HOMES, RENT)).notes
    assert any("holds 150 of 150 rows" in note for note in map(str, notes))


def test_many_places_are_named_without_the_names_in_them():
    people = {f"Person {row}": {"visit": cells} for row, cells in enumerate(HOMES.to_numpy())}
    notes = [str(note) for note in released(constant(people), (HOMES, RENT)).notes]
    assert any("DummyRegressor's drift_ holds 150 of 150 rows" in note for note in notes)
    assert not any("Person" in note for note in notes)


@pytest.mark.parametrize(
    "value",
    [
        {"version": "2.10.3", "trained": "2025-06-30T08:15:42.123456", "threshold": 0.35, "rows": 150, "seed": 2025},
        {"commit": "9f3e1c07d5b2a4886e0f1d2c3b4a59687e6d5c4b", "run": "550e8400-e29b-41d4-a716-446655440000"},
        [18, 25, 40, 65],
        {"area": "m2", "garden": "m2", "distance": "km"},
        np.float32(0.1),
        {"train": 0.8, "test": 0.2},
        b"v3",
        json.dumps({"alpha": 0.05, "levels": [0.1, 0.25, 0.5], "owner": "team 7"}),
    ],
)
def test_settings_are_settings(value):
    release = released(constant(value), (HOMES, RENT))
    assert not release.attached
    assert not release.parts


@pytest.mark.parametrize("draw", range(40))
def test_statistics_of_other_tables_are_not_found(draw):
    random = np.random.default_rng(draw)
    n, d = int(random.integers(20, 200)), int(random.integers(1, 7))
    make = (
        lambda: random.normal(size=(n, d)),
        lambda: random.integers(0, 6, (n, d)).astype(float),
        lambda: random.gamma(2, size=(n, d)).round(1),
    )[draw % 3]
    x, columns = coded(pd.DataFrame(make()))
    other = pd.DataFrame(make())
    for value in (
        other.describe(),
        other.mean().to_dict(),
        other.describe().to_json(),
        other[0].tolist(),
        other.to_dict("index"),
        random.normal(size=2_000),
        random.integers(0, 1_000, 2_000),
        random.bytes(1_000),
        list(range(n)),
        {str(key): int(count) for key, count in enumerate(random.integers(0, n, 6))},
    ):
        assert not list(held_columns(value, x, columns))
        assert not list(held_tables({"a": value}, x, columns, range(d), d))


def test_no_estimator_of_scikit_learn_holds_what_its_class_does_not_mention():
    for model in (pipeline(), GridSearchCV(LinearRegression(), {"positive": [True]}).fit(NUMBERS, y), MinMaxScaler()):
        for _, value in Walk(model):
            assert not (hasattr(type(value), "fit") and unmentioned(value, type(value).__mro__))


def test_a_round_number_is_no_extreme():
    """The number of columns, of models or of seeds may be the largest value of a column."""
    x = np.random.default_rng(0).random((200, 4))
    x[0, 1], x[1, 2] = 4.0, 200.0
    assert is_setting([4, 200.0], x)
    assert not is_setting(float(x[:, 3].max().round(2)) + 7e-5, x)
    x[5, 3] = 0.00125
    assert not is_setting(0.00125, x - x.min(0) * (np.arange(4) == 3) + 0.00125)
