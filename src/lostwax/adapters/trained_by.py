"""A way of training that is a function, as an estimator: Keras on any backend, JAX, or anything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator


class TrainedBy(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """An estimator whose fit calls `train(X, y)`; audited by training many models.

        def train(X, y):
            net = keras.Sequential([keras.layers.Dense(16, "relu"), keras.layers.Dense(1, "sigmoid")])
            net.compile("adam", "binary_crossentropy")
            net.fit(X, y, epochs=20, verbose=0)
            return net

        print(lw.audit(lw.adapters.TrainedBy(train).fit(X, y), (X, y)))

    What it returns answers for rows X by its method `predict`, or when it is called. Its weights are seen too, as far
    as they can be reached from it. Randomness: numpy, torch and random are seeded before each call; with a generator of
    its own, as JAX has, `train` is the same function of (X, y) each time.
    """

    def __init__(self, train: Callable[[Any, Any], Any]) -> None:
        self.train = train

    def fit(self, X: Any, y: Any) -> TrainedBy:
        """Train a new model."""
        self.model_ = self.train(X, y)
        return self

    def predict(self, X: Any) -> Any:
        """What the model answers."""
        model = self.model_
        return np.asarray(model.predict(X) if hasattr(model, "predict") else model(X))
