"""Objects that are no estimators of scikit-learn: plain classes, functions, Keras and JAX."""

import os

import numpy as np
import pytest

import lostwax as lw

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
Y = (X @ [1.0, -1.0, 0.5] > 0).astype(int)


class Plain:
    def fit(self, X, y):
        self.w = np.linalg.lstsq(X, y, rcond=None)[0]
        return self

    def predict(self, X):
        return X @ self.w


def least_squares(X, y):
    w = np.linalg.lstsq(X, y, rcond=None)[0]
    return lambda rows: rows @ w


def test_plain_classes_and_functions_are_refitted():
    for model in (Plain().fit(X, Y), lw.adapters.TrainedBy(least_squares).fit(X, Y)):
        audit = lw.audit(model, (X, Y), max_minutes=1)
        assert audit.grade.severe
        assert "refitted" in audit.subject
    trained = lw.adapters.TrainedBy(lambda X, y: Plain().fit(X, y)).fit(X, Y)
    assert np.allclose(trained.predict(X), Plain().fit(X, Y).predict(X))


def test_a_keras_model_is_refused_with_the_next_step():
    os.environ.setdefault("KERAS_BACKEND", "jax")
    keras = pytest.importorskip("keras")
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, activation="sigmoid")])
    net.compile("adam", "binary_crossentropy")
    net.fit(X, Y, epochs=1, verbose=0)
    with pytest.raises(TypeError, match=r"continues from the weights that it has.*lw.adapters.TrainedBy\(train\)"):
        lw.audit(net, (X, Y))
