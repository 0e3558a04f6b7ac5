"""Nothing that a fitted model holds is overlooked: what differs between fits is seen to differ."""

import pickle
import time
from array import array
from collections import deque
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neighbors import KDTree
from sklearn.tree import DecisionTreeClassifier
from torch import nn

import lostwax as lw
from lostwax.adapters.objects import FINGERPRINT, Walk, contents
from lostwax.adapters.sklearn.refitting import Estimator, tried
from lostwax.adapters.sklearn.scan import scan
from lostwax.grades import Grade
from lostwax.policies import Policy

rng = np.random.default_rng(0)
X = rng.normal(size=(120, 3))
y = (X[:, 0] > 0).astype(int)


class Slots:
    __slots__ = ("rows",)

    def __init__(self, rows):
        self.rows = rows


def net(rows):
    layer = nn.Linear(3, len(rows), bias=False)
    layer.weight.data = torch.from_numpy(rows)
    return layer


class Dictionary(dict):
    """Its attributes are not items."""


class Version(str):
    """A text with attributes."""


class Share(float):
    """A number with attributes."""


def with_attribute(value, rows):
    value.rows = rows
    return value


def of_no_dimensions(value):
    cell = np.empty((), dtype=object)
    cell[()] = value
    return cell


def with_attrs(frame, rows):
    frame.attrs["rows"] = rows
    return frame


HIDDEN = {
    "array of no dimensions": lambda X: of_no_dimensions({"rows": X}),
    "attribute of a text": lambda X: with_attribute(Version("1.2"), X),
    "attribute of a number": lambda X: with_attribute(Share(0.5), X),
    "attributes of a frame": lambda X: with_attrs(pd.DataFrame({"a": ["b"]}), X),
    "attributes of a numeric frame": lambda X: with_attrs(pd.DataFrame({"a": [1.0]}), X),
    "sparse tensor": lambda X: torch.from_numpy(X).to_sparse(),
}


KEEPS = {
    "bytes": lambda X: X.tobytes(),
    "pickled": pickle.dumps,
    "text": lambda X: "\n".join(map(str, X.tolist())),
    "function": lambda X: lambda row: X @ row,
    "default": lambda X: lambda row, rows=X: rows @ row,
    "partial": lambda X: partial(np.dot, X),
    "bound": lambda X: Slots(X).__init__,
    "net": net,
    "slots": Slots,
    "tree": lambda X: KDTree(X),
    "frame": lambda X: pd.DataFrame(X).astype(str),
    "objects": lambda X: X.astype(object),
    "strings": lambda X: X.astype(str),
    "dates": lambda X: (X * 1e9).astype("datetime64[s]"),
    "set": lambda X: set(map(tuple, X.tolist())),
    "deque": lambda X: deque(X.tolist()),
    "keys": lambda X: dict.fromkeys(map(str, X[:, 0])),
    "structured": lambda X: np.array([(1, *row) for row in X], dtype="i4,f8,f8,f8"),
    "complex": lambda X: X.astype(complex),
    "array": lambda X: array("d", X.ravel()),
    "function attribute": lambda X: with_attribute(lambda row: row, X),
    "dictionary attribute": lambda X: with_attribute(Dictionary(a=1), X),
    "index": lambda X: pd.DataFrame({"a": 0}, index=X[:, 0].astype(str)),
    "columns": lambda X: pd.DataFrame(columns=X[:, 0].astype(str)),
    "setting": lambda X: Keeps(X),
    "settings of settings": lambda X: Keeps({"inner": Keeps([X])}),
    "fitted setting": lambda X: Keeps(DecisionTreeClassifier().fit(X, X[:, 0] > 0)),
    **HIDDEN,
}


def seen(value):
    held = contents({"kept": value})
    return held, held.fingerprints([*held.numbers, *held.others])


@pytest.mark.parametrize("keep", KEEPS.values(), ids=KEEPS)
def test_equal_rows_look_the_same_and_others_do_not(keep):
    (one, first), (again, second), (_, other) = (seen(keep(rows.copy())) for rows in (X, X, X[::-1] + 1e-9))
    assert one.numbers.keys() == again.numbers.keys()
    np.testing.assert_array_equal(first, second)
    assert first.shape != other.shape or (first != other).any()


@pytest.mark.parametrize("keep", HIDDEN.values(), ids=HIDDEN)
def test_rows_beside_a_plain_value_are_found(keep):
    (stored,) = scan({"kept": keep(X)}, torch.from_numpy(X), None, torch.ones(len(X))).stored
    np.testing.assert_array_equal(stored.x.numpy(), X)


def test_objects_that_hold_each_other_end():
    one, other = {}, {}
    one["other"], other["one"] = other, one
    assert {path for path, _ in Walk(one)} == {"", "keys", "other", "other.keys"}


def test_many_objects_do_not_hide_what_lies_beside_them(monkeypatch):
    monkeypatch.setattr("lostwax.adapters.objects.MAX_OBJECTS", 100)
    held = contents({"kept": X, "many": [[[i]] for i in range(1_000)]})
    assert "kept" in held.numbers
    assert not held.complete


class Refuses:
    """Raises no AttributeError for an unknown name."""

    __slots__ = ()

    def __getattr__(self, name):
        raise KeyError(name)


def nested(value, levels):
    for _ in range(levels):
        value = [value]
    return value


def test_odd_objects_are_passed_over():
    itself = []
    itself.append(itself)
    for odd in (Refuses(), itself, nested(1.0, 5_000)):
        contents({"odd": odd, "kept": X})
        assert len(scan({"odd": odd, "kept": X}, torch.from_numpy(X), None, torch.ones(len(X))).stored) == 1


def test_a_range_is_its_ends():
    assert len(contents({"kept": range(10**12)}).numbers) == 1


def test_a_tree_is_looked_into_by_its_numbers():
    held = contents(DecisionTreeClassifier(max_depth=1).fit(X, y))
    assert any(path.endswith("threshold") for path in held.numbers)  # not by bytes, which padding would make random


def test_paths_are_part_of_the_fingerprints():
    one, other = contents({"a": 1}), contents({"b": 1})
    assert (one.fingerprints([])[:FINGERPRINT] != other.fingerprints([])[:FINGERPRINT]).any()


class Keeps(ClassifierMixin, BaseEstimator):
    """Answers one class, and keeps its rows."""

    def __init__(self, how="bytes"):
        self.how = how

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.kept_ = KEEPS[self.how](np.asarray(X)) if self.how else None
        return self

    def predict(self, X):
        return np.full(len(X), self.classes_[0])


@pytest.mark.parametrize("how", ["bytes", "text", "function", "net"])
def test_rows_that_are_kept_out_of_sight_are_found(how):
    """Such a model once passed: "Fits on different rows gave the same model"."""
    audit = lw.audit(Keeps(how).fit(X, y), (X, y))
    assert audit.grade.leaks
    assert Policy(max_grade="not found").breaches(audit)


def test_a_large_array_that_holds_the_table_in_another_form_is_found(monkeypatch):
    monkeypatch.setattr("lostwax.adapters.sklearn.refitting.MOST_NUMBERS", 10)
    monkeypatch.setitem(KEEPS, "scaled", lambda X: 3 * X.T)
    assert lw.audit(Keeps("scaled").fit(X, y), (X, y)).grade is Grade.RECOGNISABLE


def test_a_model_that_keeps_nothing_passes():
    audit = lw.audit(Keeps("").fit(X, y), (X, y), games=30)
    assert not audit.grade.leaks
    assert any("gave the same model" in note for note in map(str, audit.notes))


def test_a_model_that_was_not_looked_into_wholly_never_passes(monkeypatch):
    monkeypatch.setattr("lostwax.adapters.objects.MAX_OBJECTS", 100)
    monkeypatch.setitem(KEEPS, "many", lambda X: [[[i, None]] for i in range(200)])
    audit = lw.audit(Keeps("many").fit(X, y), (X, y), games=30)
    assert Policy(max_grade="not found").breaches(audit)
    assert any("more objects than were looked into" in sentence for sentence in audit.unanswered)


def test_many_texts_take_no_long_time(monkeypatch):
    """The names of all of them were once sorted to compare each of them."""
    monkeypatch.setitem(KEEPS, "texts", lambda X: [[str(i), i] for i in range(5_000)])
    rows, start = np.arange(len(X)), time.perf_counter()
    tried(Estimator(Keeps("texts"), X, y, None, {"known": rows}, {}), rows[1:], rows[:-1])
    assert time.perf_counter() - start < 5
