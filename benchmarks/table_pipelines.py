"""The pipelines of tables.py and the tables they are fitted on, made of scikit-learn and pandas alone.

The peers import this file in environments of their own, so that all tools answer for the same fitted models.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import sklearn
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.cluster import KMeans
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestClassifier, VotingClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import Lasso, LogisticRegression, Ridge, SGDClassifier
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    RobustScaler,
    StandardScaler,
    TargetEncoder,
)
from sklearn.svm import SVC
from sklearn.utils.fixes import parse_version

SEED = 0
HELD_OUT = 0.3  # of the rows, for attacks that need non-members
NUMBERS = make_column_selector(dtype_include="number")
CATEGORIES = make_column_selector(dtype_exclude="number")


def frame(load):
    X, y = load(return_X_y=True, as_frame=True)
    return X, y.to_numpy()


def mixed(rows=600, missing=0.05):
    """A made-up table of patients: 5 columns of numbers, 6 of categories, and a share of missing cells in both."""
    draw = np.random.default_rng(SEED)
    age = draw.integers(18, 95, rows).astype(float)
    weight = draw.normal(75, 14, rows).round(1)
    smoker = draw.choice(["never", "former", "current"], rows, p=[0.5, 0.3, 0.2])
    region = draw.choice(["north", "east", "south", "west", "islands"], rows, p=[0.3, 0.3, 0.2, 0.15, 0.05])
    risk = 0.04 * (age - 55) + 0.03 * (weight - 75) + (smoker == "current") - 0.5 * (region == "west")
    X = pd.DataFrame(
        {
            "age": age,
            "weight": weight,
            "pressure": (120 + 8 * risk + draw.normal(0, 10, rows)).round(),
            "income": draw.lognormal(10, 0.5, rows).round(2),
            "visits": draw.poisson(3, rows).astype(float),
            "smoker": smoker,
            "region": region,
            "sex": draw.choice(["female", "male"], rows),
            "job": draw.choice([f"job {i:02d}" for i in range(20)], rows),
            "blood": draw.choice(["0", "A", "B", "AB"], rows, p=[0.4, 0.4, 0.12, 0.08]),
            "insured": draw.choice(["no", "yes"], rows, p=[0.2, 0.8]),
        }
    )
    X = X.mask(draw.random(X.shape) < missing)
    return X, (risk + draw.logistic(size=rows) > 0).astype(int)


def complete():
    return mixed(missing=0)


def texts(rows=300):
    """Made-up notes of 8 to 20 words; the class decides which words are frequent."""
    draw = np.random.default_rng(SEED)
    words = np.array(
        [a + b for a in ("ba", "do", "ki", "lu", "me", "no", "ra", "su") for b in ("ren", "tal", "vic", "mon", "per")]
    )
    y = draw.integers(0, 2, rows)
    frequency = draw.dirichlet(np.ones(len(words)), 2)
    X = [" ".join(draw.choice(words, draw.integers(8, 21), p=frequency[label])) for label in y]
    return pd.Series(X, name="note"), y


def one_column():
    X, y = frame(load_diabetes)
    return X[["bmi"]], y


def breast_cancer():
    return frame(load_breast_cancer)


def diabetes():
    return frame(load_diabetes)


def digits():
    return frame(load_digits)


def wine():
    return frame(load_wine)


def logistic(*steps, **settings):
    return make_pipeline(*steps, LogisticRegression(max_iter=1_000, **settings))


def by_kind(numbers, categories):
    return make_column_transformer((numbers, NUMBERS), (categories, CATEGORIES))


def with_missing(encoder):
    """Nested pipelines as in scikit-learn's user guide; missing values stay visible."""
    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    return by_kind(numbers, make_pipeline(SimpleImputer(strategy="constant", fill_value="missing"), encoder))


FOLDS = StratifiedKFold(5, shuffle=True, random_state=SEED)
# The same folds: scikit-learn before 1.9 takes no splitter, and later versions no seed.
TARGET = (
    TargetEncoder(cv=FOLDS)
    if parse_version(sklearn.__version__) >= parse_version("1.9")
    else TargetEncoder(cv=5, random_state=SEED)
)
ONE_HOT = OneHotEncoder(handle_unknown="ignore")
ENCODED = logistic(by_kind(StandardScaler(), ONE_HOT))


@dataclass(frozen=True)
class Case:
    """A model that people release."""

    name: str
    table: Any  # () -> X, y
    model: Any  # not fitted
    invertible: bool  # all cells can be computed back from what the released object states of a row

    def split(self, rows=None):
        """X and y of the members and of the others; of the first `rows` rows."""
        X, y = self.table()
        X, y = X[:rows], y[:rows]
        classes = y if len(np.unique(y)) < 20 else None
        return train_test_split(X, y, test_size=HELD_OUT, random_state=SEED, stratify=classes)

    def fitted(self, X, y):
        return clone(self.model).fit(X, y)


CASES = (
    Case("one-hot + scaler, logistic", complete, ENCODED, True),
    Case(
        "one-hot + scaler, logistic, grid search",
        complete,
        GridSearchCV(ENCODED, {"logisticregression__C": [0.1, 1.0]}, cv=3),
        True,
    ),
    Case("imputers + one-hot, logistic", mixed, logistic(with_missing(ONE_HOT)), True),
    Case(
        "imputers + ordinal codes, logistic",
        mixed,
        logistic(with_missing(OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)), StandardScaler()),
        True,
    ),
    Case("imputers + target encoder, logistic", mixed, logistic(with_missing(TARGET)), False),
    Case("scaler + PCA, logistic", breast_cancer, logistic(StandardScaler(), PCA(10)), True),
    Case("robust scaler, logistic", breast_cancer, logistic(RobustScaler()), True),
    Case(
        "scaler, logistic, calibrated",
        breast_cancer,
        CalibratedClassifierCV(logistic(StandardScaler()), cv=3),
        True,
    ),
    Case("scaler, SVC", breast_cancer, make_pipeline(StandardScaler(), SVC()), True),
    Case("best 5 columns + scaler, logistic", wine, logistic(SelectKBest(k=5), StandardScaler()), False),
    Case("bins + one-hot, logistic", wine, logistic(KBinsDiscretizer(5, quantile_method="linear")), False),
    Case(
        "scaler, random forest",
        wine,
        make_pipeline(StandardScaler(), RandomForestClassifier(random_state=SEED)),
        True,
    ),
    Case("scaler, SGD", wine, make_pipeline(StandardScaler(), SGDClassifier(random_state=SEED)), True),
    Case("Gaussian naive Bayes", wine, GaussianNB(), True),
    Case(
        "vote of logistic and naive Bayes",
        wine,
        VotingClassifier([("logistic", logistic(StandardScaler())), ("bayes", GaussianNB())], voting="soft"),
        True,
    ),
    Case("k-means", wine, KMeans(3, random_state=SEED), True),
    Case("min-max scaler, ridge", diabetes, make_pipeline(MinMaxScaler(), Ridge()), True),
    Case("squares and products, ridge", diabetes, make_pipeline(PolynomialFeatures(), Ridge()), True),
    Case("lasso", diabetes, Lasso(alpha=0.1), False),
    Case("isotonic regression", one_column, IsotonicRegression(out_of_bounds="clip"), False),
    Case("min-max scaler, MLP", digits, make_pipeline(MinMaxScaler(), MLPClassifier((32,), random_state=SEED)), False),
    Case("5 nearest neighbours", digits, KNeighborsClassifier(), True),
    Case("TF-IDF, logistic", texts, logistic(TfidfVectorizer()), False),
)


def final_step(model, X):
    """The last estimator of a pipeline or search, the numbers it is given, and their names.

    For tools that take no raw table. An estimator that is no pipeline is its own last step.
    """
    model = getattr(model, "best_estimator_", model)
    if not isinstance(model, Pipeline):
        return model, np.asarray(X), list(getattr(X, "columns", []))
    encoded = model[:-1].transform(X)
    dense = encoded.toarray() if hasattr(encoded, "toarray") else np.asarray(encoded)
    return model[-1], dense, list(model[:-1].get_feature_names_out())


def fingerprint(model, X):
    """One number that two fits share only if they are the same model."""
    answer = getattr(model, "predict_proba", model.predict)(X)
    return float(np.square(answer).mean())
