"""Steps of other libraries in a pipeline: samplers, imputers, encoders, nets. The message names the real cause."""

import numpy as np
import pandas as pd
import pytest
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import lostwax as lw

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4))
Y = (X @ [1, -1, 0.5, 0] + RNG.normal(size=200) > 0).astype(int)
FRAME = pd.DataFrame(X[:, :2], columns=["a", "b"]).assign(town=RNG.choice(["Bath", "Ely", "Leeds", "York"], 200))
HOLES = np.where(RNG.random(X.shape) < 0.1, np.nan, X)


def test_an_iterative_imputer_holds_the_means():
    model = make_pipeline(IterativeImputer(random_state=0), LogisticRegression()).fit(HOLES, Y)
    audit = lw.audit(model, (HOLES, Y))
    assert audit.findings[0].rebuilt.all()
    assert any("SimpleImputer's means include the secret row" in str(note) for note in audit.notes)
    drawn = make_pipeline(IterativeImputer(sample_posterior=True), LogisticRegression()).fit(HOLES, Y)
    audit = lw.audit(drawn, (HOLES, Y))
    causes = " ".join(map(str, (*audit.notes, *audit.unanswered)))
    assert "what comes after IterativeImputer was not audited: what it gave at training was drawn at random" in causes


def test_columns_that_a_step_leaves_as_they_are_come_back():
    class Counted:
        """Towns become numbers; it has no inverse."""

        def fit(self, X, y=None):
            self.numbers_ = {town: float(place) for place, town in enumerate(sorted(set(X["town"])))}
            return self

        def transform(self, X):
            return X.assign(town=X["town"].map(self.numbers_))

    model = make_pipeline(Counted(), LogisticRegression(tol=1e-10)).fit(FRAME, Y)
    audit = lw.audit(model, (FRAME, Y))
    assert audit.findings[-1].rebuilt.all()
    lost = make_pipeline(FunctionTransformer(np.abs), LogisticRegression(tol=1e-10)).fit(X, Y)
    assert not lw.audit(lost, (X, Y), max_minutes=1).findings[0].rebuilt.all()


def test_a_sampler_is_named_and_its_rows_are_found():
    pytest.importorskip("imblearn")
    from imblearn.over_sampling import SMOTE
    from imblearn.pipeline import make_pipeline as sampled

    rare = (X[:, 0] > 1.0).astype(int)
    model = sampled(SMOTE(random_state=0), LogisticRegression()).fit(X, rare)
    audit = lw.audit(model, (X, rare), max_minutes=1)
    causes = " ".join(map(str, (*audit.notes, *audit.unanswered)))
    assert "what comes after SMOTE was not audited: it was fitted on rows that SMOTE made" in causes
    assert f"SMOTE's nn_k_._fit_X holds {rare.sum()} of 200 rows" in causes


def test_encoders_by_target():
    encoders = pytest.importorskip("category_encoders")
    model = make_pipeline(encoders.WOEEncoder(cols=["town"]), LogisticRegression(tol=1e-10)).fit(FRAME, Y)
    assert lw.audit(model, (FRAME, Y)).findings[-1].rebuilt.all()
    noisy = make_pipeline(encoders.WOEEncoder(cols=["town"], randomized=True), LogisticRegression()).fit(FRAME, Y)
    audit = lw.audit(noisy, (FRAME, Y), max_minutes=1)
    causes = " ".join(map(str, (*audit.notes, *audit.unanswered)))
    assert "what comes after WOEEncoder was not audited: what it gave at training was drawn at random" in causes


def test_nets_of_skorch():
    skorch = pytest.importorskip("skorch")
    from torch import nn

    net = skorch.NeuralNetClassifier(
        nn.Sequential(nn.Linear(4, 2), nn.Softmax(-1)), max_epochs=2, lr=0.1, verbose=0, train_split=None
    )
    x, y = X[:60].astype(np.float32), Y[:60]
    audit = lw.audit(net.fit(x, y), (x, y), games=4, max_minutes=4)
    assert "refitted" in audit.subject or audit.unanswered
