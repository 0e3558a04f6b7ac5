"""What an audit gives for each estimator of scikit-learn: fitted on small tables, read, and listed by what was found.

Nothing is declared by hand, so that the lists in docs/overview.md and docs/tables.md cannot differ from what is read.
`make results` writes them.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import groupby, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import sklearn
import torch
from sklearn.base import is_regressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401 (all_estimators lists it then)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB
from sklearn.utils import all_estimators

from lostwax.adapters import r_models, statsmodels
from lostwax.adapters.sklearn.models import inner_models
from lostwax.adapters.sklearn.reading import released
from lostwax.adapters.sklearn.steps import Array, step_of
from lostwax.games import Cells, Kept, Part, ReleasedTable


class Gives(StrEnum):
    """What an audit tells about a row, the most first."""

    SUM = "exact, from published means or sums"
    ALL_STORED = "exact: all rows are stored"
    EQUATION = "exact at the optimum"
    ACTIVE = "exact at the optimum for features with a weight, at most an interval for others"
    SOME_STORED = "exact for the rows that are stored"
    TREES = "exact for some values, an interval for others, from the nodes of trees"
    INTERVAL = "an interval for each value"
    UNIQUE = "exact for categories that no other row has"
    EXTREMES = "exact for the smallest and largest values"
    TARGET = "exact for the target, from its mean or the shares of classes"
    NOTHING = "membership and estimates, by refitting"


class Supported(NamedTuple):
    """One estimator."""

    name: str
    gives: Gives
    back: str | None  # of a transformer: what comes back of its inputs from its outputs


BACK = {
    Kept.EXACT: "exact",
    Kept.SET: "one of a few values",
    Kept.INTERVAL: "an interval",
    Kept.ESTIMATED: "an estimate",
    Kept.LOST: "nothing",
}
VARIANTS: Mapping[str, Mapping[str, Any]] = {  # listed beside the defaults, with their settings
    "SGDClassifier": {"loss": "log_loss"},
    "LinearSVR": {"loss": "squared_epsilon_insensitive"},
    "LinearSVC": {"penalty": "l1"},
    "LogisticRegression": {"l1_ratio": 1.0, "solver": "saga"},
    "PCA": {"n_components": 3},
    "OneHotEncoder": {"max_categories": 2},
}
SUITED: Mapping[str, Mapping[str, Any]] = {  # to small tables
    "LassoLarsCV": {"max_iter": 2},  # leaves features out
    "SVR": {"epsilon": 5.0},  # some rows lie inside its tube
    "SelectKBest": {"k": 3},  # fewer than there are
    "DictionaryLearning": {"max_iter": 2},  # from here on to save time
    "MiniBatchDictionaryLearning": {"max_iter": 2},
    "TSNE": {"max_iter": 250},
    "TheilSenRegressor": {"max_subpopulation": 100},
    "TunedThresholdClassifierCV": {"cv": 2, "thresholds": 3},
}
FAMILIAR = (  # named first where a list is cut short
    *("LogisticRegression", "LinearRegression", "Ridge", "LinearSVC", "SGDRegressor", "PoissonRegressor"),
    *("Lasso", "ElasticNet", "GaussianNB", "MultinomialNB", "LinearDiscriminantAnalysis", "KMeans", "NearestCentroid"),
    *("KNeighborsClassifier", "GaussianProcessRegressor", "KernelRidge", "SVC", "SVR", "DBSCAN", "StandardScaler"),
    *("RandomForestClassifier", "HistGradientBoostingClassifier", "MLPClassifier", "VotingClassifier"),
    *("StackingClassifier", "CalibratedClassifierCV", "BaggingClassifier"),
)
SHOWN = 5  # names of a list that is cut short
MARKS = {
    name: (f"<!-- {name}: `make results` writes this -->", f"<!-- end of {name} -->") for name in ("list", "short")
}


class _Table(NamedTuple):
    """A small table, with labels and with targets."""

    x: Array
    labels: Array
    targets: Array


def _tables(kind: type) -> Iterator[_Table]:
    """Tables of several kinds of value; the first that an estimator can be fitted on is what it is for."""
    draw = np.random.default_rng(0)
    numbers, noise = draw.gamma(2.0, 0.2, size=(60, 5)), draw.normal(size=(60, 2))
    targets = numbers @ [30.0, 20.0, 10.0, 0.0, 0.0] + 8 * noise[:, 0] ** 2
    plain = _Table(numbers, (targets > np.median(targets)).astype(int), targets)
    categories = draw.integers(3, size=(60, 5))
    yield plain._replace(x=np.array(["low", "middle", "high"], dtype=object)[categories])
    if kind.__module__.startswith("sklearn.impute"):
        yield plain._replace(x=np.where(draw.random(numbers.shape) < 0.1, np.nan, numbers))
    if kind is CategoricalNB:
        yield plain._replace(x=categories)
    yield plain
    yield plain._replace(x=numbers[:, :1])
    yield plain._replace(targets=np.stack([targets, numbers[:, 0] + noise[:, 1]], 1))


def listed() -> list[Supported]:
    """Every estimator of scikit-learn that is for tables, except models of models."""
    kinds = [kind for _, kind in all_estimators() if kind not in inner_models.registry]
    kinds = [kind for kind in kinds if not kind.__module__.startswith("sklearn.feature_extraction")]  # for texts
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        looks = [look(kind) for kind in kinds]
        looks += [look(kind, VARIANTS[kind.__name__]) for kind in kinds if kind.__name__ in VARIANTS]
    return sorted(support for support in looks if support is not None)


def look(kind: type, settings: Mapping[str, Any] | None = None) -> Supported | None:
    """What is found in an estimator that is fitted on the first table that it accepts; None if it accepts none."""
    name = kind.__name__
    for needed, table in product(((), (LogisticRegression(),)), _tables(kind)):
        try:
            estimator: Any = kind(*needed, **(settings or SUITED.get(name, {})))
            estimator.set_params(**dict.fromkeys({"random_state"} & set(estimator.get_params()), 0))
            y = table.targets if is_regressor(estimator) else table.labels
            estimator.fit(table.x, y)
        except (TypeError, ValueError, AttributeError, IndexError):  # it needs other arguments, or another table
            continue
        if settings:
            name += f"({', '.join(f'{setting}={value!r}' for setting, value in settings.items())})"
        return Supported(name, _given(released(estimator, (table.x, y))), _back(estimator, table.x))
    return None


def _given(release: ReleasedTable) -> Gives:
    """The most that any part gives."""
    facts = [part.fitted for part in release.parts]
    exact = [part.fitted for part in release.parts if _exact(part)]
    models = [one.model for one in facts if one.model is not None]
    stored = [rows.x for one in exact for rows in one.stored]
    whole = max((len(rows) for rows in stored if rows.shape[1] == release.table.x.shape[1]), default=0)
    found = {
        Gives.SUM: any(one.sums or one.present for one in exact),
        Gives.ALL_STORED: whole >= len(release.table),
        Gives.EQUATION: any(not model.sparse for model in models),
        Gives.ACTIVE: any(not model.without_features for model in models),
        Gives.SOME_STORED: whole > 0,
        Gives.TREES: any(one.forest is not None for one in facts),
        Gives.INTERVAL: any(one.sums for one in facts),
        Gives.UNIQUE: bool(stored),
        Gives.EXTREMES: any(one.extremes for one in facts),
        Gives.TARGET: bool(models),
    }
    return next((gives for gives, is_so in found.items() if is_so), Gives.NOTHING)


def _exact(part: Part) -> bool:
    """Whether rows as the part saw them go back to exact cells of the table, of its own columns at least."""
    kept = part.back(part.fitted.table.x.nan_to_num(nan=torch.inf)).kept
    return set(kept.flatten().tolist()) in ({Kept.EXACT}, {Kept.EXACT, Kept.LOST})


def _back(estimator: Any, x: Array) -> str | None:
    """Of a transformer: the least that comes back of a cell, if all outputs are known."""
    if hasattr(estimator, "predict") or not hasattr(estimator, "transform"):
        return None
    outputs = estimator.transform(x)
    plain = outputs.toarray() if hasattr(outputs, "toarray") else np.asarray(outputs)
    exact = np.full(plain.shape, Kept.EXACT, dtype=np.uint8)
    kept = step_of(estimator, x, outputs)(Cells(plain, exact)).kept
    least, most = Kept(int(kept.min())), Kept(int(kept.max()))
    return BACK[least] if least > Kept.LOST or most == least else f"{BACK[most]}, for the columns that are kept"


def models_of_models() -> list[str]:
    """Those that are looked into."""
    return sorted(kind.__name__ for kind in inner_models.registry if kind is not object)


def full_list(supported: Sequence[Supported]) -> str:
    """The lists of docs/tables.md."""
    version = ".".join(sklearn.__version__.split(".")[:2])
    lines = [
        f"With scikit-learn {version}, each fitted on a small table, with default settings unless others are named:",
        "",
        "| what an audit gives for a row | models |",
        "|---|---|",
        *(f"| {gives} | {', '.join(names)} |" for gives, names in _models(supported)),
        f"| what the models inside give | {', '.join(models_of_models())}; GridSearchCV and other searches |",
        f"| exact at the optimum; all rows, if the results hold their data | statsmodels: {statsmodels.SUPPORTED} |",
        f"| exact at the optimum; all rows that the file holds | R (.rds, .RData): {r_models.SUPPORTED} |",
        "| exact for who knows time and event | Cox models: CoxPHFitter (lifelines), CoxPHSurvivalAnalysis "
        "(scikit-survival), PHReg (statsmodels), coxph (R); with strata (lifelines, R) and weights (R) too |",
        "",
        "| comes back of its inputs | given by the transformer itself | transformers |",
        "|---|---|---|",
    ]
    order, backs = list(Gives), [*dict.fromkeys(BACK.values())]

    def place(estimator: Supported) -> tuple[int, str, int]:
        back = str(estimator.back)
        return next(k for k, words in enumerate(backs) if back.startswith(words)), back, order.index(estimator.gives)

    steps = sorted((estimator for estimator in supported if estimator.back is not None), key=place)
    for (_, back, _), group in groupby(steps, place):
        some = list(group)
        itself = "nothing" if some[0].gives is Gives.NOTHING else some[0].gives
        lines.append(f"| {back} | {itself} | {', '.join(estimator.name for estimator in some)} |")
    return "\n".join(lines)


def short_list(supported: Sequence[Supported]) -> str:
    """The list of docs/overview.md."""
    rows = [(str(gives), _some(names)) for gives, names in _models(supported) if len(names) >= SHOWN]
    rows.insert(-1, ("what the models inside give", f"{_some(models_of_models())}; GridSearchCV"))
    rows.insert(
        -1,
        (
            "exact at the optimum; all rows, if the results hold their data",
            f"statsmodels: {', '.join(statsmodels.MODELS)}, GLM",
        ),
    )
    return "\n".join(
        [
            "| what an audit gives for a row | models, alone or in a pipeline |",
            "|---|---|",
            *(f"| {gives} | {names} |" for gives, names in rows),
        ]
    )


def _models(supported: Iterable[Supported]) -> list[tuple[Gives, list[str]]]:
    """Names of models by what they give."""
    models = [estimator for estimator in supported if estimator.back is None]
    groups = [(gives, [estimator.name for estimator in models if estimator.gives is gives]) for gives in Gives]
    return [(gives, names) for gives, names in groups if names]


def _some(names: Sequence[str]) -> str:
    """The familiar names, and how many more there are."""
    first = sorted(names, key=lambda name: FAMILIAR.index(name) if name in FAMILIAR else len(FAMILIAR))[:SHOWN]
    return f"{', '.join(first)} and {len(names) - len(first)} more" if len(names) > len(first) else ", ".join(first)


def with_list(text: str, mark: str, lines: str) -> str:
    """A page with this between its marks."""
    start, end = MARKS[mark]
    return re.sub(f"(?<={re.escape(start)}\n).*?(?={re.escape(end)})", lambda _: f"{lines}\n", text, flags=re.DOTALL)


def main() -> None:
    """`python -m lostwax_dev.supported [ROOT]` rewrites lists in docs/overview.md and docs/tables.md."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path.cwd()
    torch.set_num_threads(1)
    supported = listed()
    for page, mark, lines in (
        (root / "docs" / "overview.md", "short", short_list(supported)),
        (root / "docs" / "tables.md", "list", full_list(supported)),
    ):
        page.write_text(with_list(page.read_text(), mark, lines))


if __name__ == "__main__":
    main()
