"""The table "the weakest attacker of common models" in the officers' guide, made by audits of small models."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import is_regressor
from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import Lasso, LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from lostwax import audit
from lostwax.audits.words import reached, who

PAGE = Path("docs") / "officers.md"
BEGIN, END = "<!-- weakest attackers -->", "<!-- end -->"


def models() -> dict[str, Any]:
    """What the table lists, by name."""
    return {
        "nearest neighbours": KNeighborsClassifier(),
        "scaler, support vector machine": make_pipeline(StandardScaler(), SVC()),
        "logistic regression, three classes": LogisticRegression(tol=1e-10, max_iter=100_000),
        "scaler, logistic regression": make_pipeline(StandardScaler(), LogisticRegression()),
        "range scaler, ridge regression": make_pipeline(MinMaxScaler(), Ridge()),
        "ridge regression": Ridge(),
        "lasso": Lasso(0.1),
        "naive Bayes": GaussianNB(),
        "k-means": KMeans(3, random_state=0, n_init=10),
        "principal components": PCA(3),
        "decision tree": DecisionTreeClassifier(random_state=0),
        "random forest, 30 trees": RandomForestClassifier(30, random_state=0),
        "gradient boosting, 30 trees": GradientBoostingClassifier(n_estimators=30, random_state=0),
    }


def lines() -> list[str]:
    """A line for each model: grade, weakest attacker, what came back to them."""
    X, y = load_wine(return_X_y=True)
    X = X + 1e-3 * np.random.default_rng(0).standard_normal(X.shape)  # else many cells are equal
    rows = []
    for name, model in models().items():
        target = y.astype(float) if is_regressor(model) or (hasattr(model, "steps") and is_regressor(model[-1])) else y
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = audit(model.fit(X, target), (X, target))
        weakest = result.conclusion.weakest
        attacker = "none" if weakest is None else who(weakest.attacker)
        back = "" if weakest is None else reached(weakest).replace("\N{NO-BREAK SPACE}", " ")
        rows.append(f"| {name} | {result.grade} | {attacker} | {back} |")
    return rows


def table() -> str:
    """The table with its head."""
    head = ("| model | grade | the weakest attacker with it | what comes back to them |", "|---|---|---|---|")
    return "\n".join((*head, *lines()))


def main() -> None:
    """`python -m lostwax_dev.who [ROOT]` rewrites the table."""
    page = (Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()) / PAGE
    before, _, rest = page.read_text().partition(BEGIN)
    page.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
