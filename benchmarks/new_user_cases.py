"""What does a new user read who brings a model of another library: now, and before the work on such models?

    python benchmarks/new_user_cases.py [--before COMMIT]

Ten cases that were refused or misleading in a trial: each is audited with `lw.audit(model, (X, y))` and one minute for
refits. What is shown is the grade, or the kind of error, and the sentence that names the cause. `--before` is an
earlier commit, with whose src/ the same cases are played by another process.
Libraries that are not installed leave their case out: keras and jax, lifelines, imbalanced-learn, skorch,
category_encoders, catboost.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ.setdefault("KERAS_BACKEND", "jax")

import numpy as np
import pandas as pd
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

N = 120


def table(holes=False):
    """Three columns, the label of a noisy line, and a column of towns."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(N, 3)).round(3)
    y = (x @ [1.0, -1.0, 0.5] + rng.normal(size=N) > 0).astype(int)
    x[rng.random(x.shape) < 0.1 * holes] = np.nan
    return x, y, np.array(["Bath", "Ely", "York"])[rng.integers(3, size=N)]


class Plain:
    def fit(self, X, y):
        self.w = np.linalg.lstsq(X, y, rcond=None)[0]
        return self

    def predict(self, X):
        return X @ self.w


def keras_on_jax():
    import keras

    x, y, _ = table()
    net = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1, activation="sigmoid")])
    net.compile("adam", "binary_crossentropy")
    net.fit(x, y, epochs=1, verbose=0)
    return net, (x, y)


def plain_class():
    x, y, _ = table()
    return Plain().fit(x, y), (x, y)


def of_lifelines():
    from lifelines import CoxPHFitter

    x, y, _ = table()
    frame = pd.DataFrame(x, columns=["age", "dose", "pain"])
    weeks = np.random.default_rng(1).exponential(np.exp(-x[:, 0])).round(2) + 0.01
    times = pd.DataFrame({"weeks": weeks, "died": y})
    return CoxPHFitter().fit(frame.join(times), "weeks", "died"), (frame, times)


def mixed_model():
    import statsmodels.formula.api as smf

    x, _, town = table()
    frame = pd.DataFrame(x, columns=["age", "dose", "pain"]).assign(town=town)
    return smf.mixedlm("pain ~ age + dose", frame, groups=frame["town"]).fit(), (frame[["age", "dose"]], frame["pain"])


def arima():
    from statsmodels.tsa.arima.model import ARIMA

    x, _, _ = table()
    series = x[:, 0].cumsum()
    return ARIMA(series, order=(1, 1, 0)).fit(), (series[:, None], series)


def smote():
    from imblearn.over_sampling import SMOTE
    from imblearn.pipeline import make_pipeline as sampled

    x, y, _ = table()
    return sampled(SMOTE(random_state=0), LogisticRegression()).fit(x, y), (x, y)


def net_of_skorch():
    import skorch
    import torch

    torch.manual_seed(0)
    x, y, _ = table()
    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softmax(1))
    net = skorch.NeuralNetClassifier(module, max_epochs=5, lr=0.1, verbose=0, train_split=None)
    return net.fit(x.astype(np.float32), y), (x.astype(np.float32), y)


def iterative_imputer():
    x, y, _ = table(holes=True)
    model = make_pipeline(IterativeImputer(random_state=0), StandardScaler(), LogisticRegression())
    return model.fit(x, y), (x, y)


def weight_of_evidence():
    from category_encoders import WOEEncoder

    x, y, town = table()
    frame = pd.DataFrame(x, columns=["age", "dose", "pain"]).assign(town=town)
    return make_pipeline(WOEEncoder(cols=["town"]), LogisticRegression(tol=1e-10)).fit(frame, y), (frame, y)


def catboost_with_categories():
    from catboost import CatBoostClassifier

    x, y, town = table()
    frame = pd.DataFrame(x, columns=["age", "dose", "pain"]).assign(town=town)
    model = CatBoostClassifier(iterations=200, depth=4, cat_features=["town"], random_seed=0, allow_writing_files=False)
    return model.fit(frame, y, verbose=False), (frame, y)


CASES = {
    "Keras on JAX": keras_on_jax,
    "a plain class with fit and predict": plain_class,
    "lifelines": of_lifelines,
    "MixedLM": mixed_model,
    "ARIMA": arima,
    "SMOTE in a pipeline": smote,
    "skorch": net_of_skorch,
    "IterativeImputer": iterative_imputer,
    "WOE encoder": weight_of_evidence,
    "CatBoost with categories, 200 trees": catboost_with_categories,
}


def answer(case):
    """The grade with its sentences, or the error."""
    import lostwax as lw

    model, data = case()
    try:
        audit = lw.audit(model, data, max_minutes=1)
    except Exception as error:
        return f"{type(error).__name__}: {error}".replace("\n", " ")
    causes = " ".join(map(str, audit.unanswered[:2]))
    return f"{audit.grade}: {audit.conclusion} {causes}".strip()


def main():
    from lostwax_dev.results import Row, parse, write_rows

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", help="an earlier commit")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="CASE")
    options, rows = parse(parser), []
    root = Path(__file__).resolve().parents[1]
    with TemporaryDirectory() as folder:
        checkouts = {"now": root}
        if options.before is not None:
            packed = subprocess.run(
                ["git", "archive", options.before, "src"], cwd=root, capture_output=True, check=True
            )
            subprocess.run(["tar", "x", "-C", folder], input=packed.stdout, check=True)
            checkouts[f"before ({options.before})"] = Path(folder)
        for name in options.cases:
            for when, checkout in checkouts.items():
                if (text := played(name, checkout / "src")) is not None:
                    print(f"{name}, {when}: {text}\n", flush=True)
                    rows.append(Row(f"{name}.{when.split()[0]}", f"{name}, {when}", text, seed=0))
    print("written to", write_rows(__file__, rows, keep_others=True))


def played(name, sources):
    """The answer of a checkout, in a process of its own; None without the library."""
    paths = os.pathsep.join([str(sources), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-W", "ignore", __file__, "--play", name]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, check=False)
    return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None


if __name__ == "__main__":
    if sys.argv[1:2] == ["--play"]:
        warnings.simplefilter("ignore")
        print("\n" + json.dumps(answer(CASES[sys.argv[2]])))  # libraries leave unfinished lines
    else:
        main()
