"""The value of one column: found where a model memorises it, and not where it follows from the other columns."""

from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier

from lostwax.access import Weights
from lostwax.adapters.sklearn.refitting import Estimator, Refits
from lostwax.audits.attributes import InferenceRows, Inferred, infer
from lostwax.audits.play import Settings
from lostwax.audits.refitted import Encoding, audit_refitted
from lostwax.games import Columns, Records
from lostwax.grades import Grade

N = 120
RANDOM = np.random.default_rng(0)
TOWN, AGE = RANDOM.choice(list("ABCD"), N), RANDOM.normal(40, 10, N)
COAST = TOWN == "A"  # it follows from the town
X = pd.DataFrame({"age": AGE, "town": pd.Categorical(TOWN), "coast": COAST})
Y = RANDOM.choice(["ill", "well"], N)
CELLS = np.stack([AGE, np.unique(TOWN, return_inverse=True)[1], COAST], 1)
CELLS[:3, 1] = np.nan  # what the owner calls missing is in no game
COLUMNS = Columns(("age", "town", "coast"), ((), tuple("ABCD"), (False, True)))


class Towns(ClassifierMixin, BaseEstimator):
    """Knows who lives where, and is sure of their labels."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.known_ = {(age, town): label for age, town, label in zip(X.age, X.town, y, strict=True)}
        return self

    def predict_proba(self, X):
        known = [self.known_.get(pair) for pair in zip(X.age, X.town, strict=True)]
        return np.array([[0.5, 0.5] if label is None else self.classes_ == label for label in known], dtype=float)


def rows(model):
    table = Records(torch.from_numpy(CELLS), torch.from_numpy((Y == "well").astype(int)))
    known, examples, secrets = torch.arange(N).split([60, 30, 30])
    probes = {"known": known[:5].numpy(), "candidates": secrets.numpy()}
    encoding = Encoding.of(table.x, COLUMNS)
    return InferenceRows(Estimator(model, X, Y, None, probes, {}), table, COLUMNS, encoding, known, examples, secrets)


def inferred(model, column, repeats=1):
    trainer = partial(_trainer, deterministic=repeats == 1)
    return infer(rows(model), column, trainer=trainer, access=Weights(), repeats=repeats, seed=0)


def _trainer(sealed, deterministic):
    return Refits(sealed, "a model", ("outputs.known", "outputs.candidates"), deterministic)


@pytest.mark.parametrize("repeats", [1, 2])
def test_a_value_that_is_memorised_is_named(repeats):
    found = inferred(Towns(), 1, repeats)
    assert (found.right, found.games) == (30, 30)
    assert found.swapped <= found.predicted < 25  # another release tells no more than the other columns do
    assert found.pairs[1] == 0
    assert found.chance < 1e-3
    assert "Attribute inference of town: " in str(found)


def test_a_value_that_follows_from_others_is_no_leak():
    """The model has never looked at it."""
    found = inferred(Towns(), 2)
    assert found.right == found.swapped == found.predicted >= 29
    assert (found.pairs, found.chance) == ((0, 0), 1.0)


@pytest.mark.parametrize("column", [1, 2])
def test_a_constant_model_tells_no_value(column):
    assert inferred(DummyClassifier(), column).chance == 1.0


def test_copies_differ_in_one_column_and_keep_its_type():
    ours = rows(Towns())
    assert ours.guessable() == (1, 2)
    games = ours.games(1)
    frame = games.estimator.X
    assert len(frame) == N + 120
    assert frame.dtypes.equals(X.dtypes)
    copies = frame.iloc[N:].reset_index(drop=True)
    assert (copies.age.to_numpy() == np.repeat(AGE[90:], 4)).all()
    assert copies.town.astype(str).tolist() == 30 * list("ABCD")
    own = copies.iloc[(4 * torch.arange(30) + games.own).numpy()]
    assert (own.town.astype(str).to_numpy() == TOWN[90:]).all()
    assert games.estimator.y[N:].tolist() == np.repeat(Y[90:], 4).tolist()


def test_the_chance_is_that_of_a_sign_test():
    assert Inferred("town", 30, 20, 10, 9, (10, 0)).chance == pytest.approx(2.0**-10)
    assert Inferred("town", 30, 20, 10, 9, (0, 4)).chance == 1.0


def test_an_audit_tells_of_every_column_of_categories():
    labels = torch.from_numpy((Y == "well").astype(int))
    audit = audit_refitted(
        Towns().fit(X, Y),
        X,
        Y,
        Settings(),
        table=Records(torch.from_numpy(CELLS), labels),
        columns=COLUMNS,
        sample_weight=None,
        access=None,
        reasons=(),
    )
    assert audit.grade is Grade.RECOGNISABLE
    told = [note for note in map(str, audit.notes) if note.startswith("Attribute inference of ")]
    assert [note.split()[3] for note in told] == ["town:", "coast:"]
