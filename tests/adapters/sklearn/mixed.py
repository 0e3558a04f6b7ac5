"""A mixed table with what people write in theirs, and the encoders they use."""

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

NUMBERS, CATEGORIES = ["age", "income"], ["town", "sex"]


def people(n, seed=0):
    """n people and their labels."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "age": rng.normal(40, 10, n).round(1),
            "income": rng.lognormal(10, 1, n).round(2),
            "town": rng.choice(["Bath", "York", "Leeds", "Ely"], n),
            "sex": rng.choice(["f", "m"], n),
        }
    )
    return frame, (frame["age"] - 40 + rng.normal(0, 10, n) > 0).astype(int).to_numpy()


def gaps(frame, share=0.08, seed=1):
    """The same with some values missing."""
    return frame.mask(np.random.default_rng(seed).random(frame.shape) < share)


def encoder(**settings):
    """One-hot encoded categories beside scaled numbers."""
    return ColumnTransformer(
        [("categories", OneHotEncoder(**settings), CATEGORIES), ("numbers", StandardScaler(), NUMBERS)]
    )


def encoded(model, **settings):
    """A model after the encoder."""
    return make_pipeline(encoder(**settings), model)


def logistic(**settings):
    """Logistic regression that converges."""
    return LogisticRegression(max_iter=2_000, **settings)
