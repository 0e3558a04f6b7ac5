"""Model files of other libraries that were cut, flipped or edited, and objects that are almost models."""

import bz2
import copy
import gzip
import json
import lzma
import re
import traceback
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import lostwax as lw
from fuzz.arrays import CLASSES, TARGETS, X
from fuzz.files import FOLDER, edit, harmed, written
from fuzz.outcomes import Case

NUMBERS = ("0", "-1", "1", "3", "99", "2147483648", "-9223372036854775808", "9" * 30, "1e308", "-1e308", "1e999", "nan")
NUMBERS += ("inf", "2.5", "x", "", "1 1", "[0:1]", "é", "9" * 5000)
R_FILES = Path(__file__).parents[1] / "adapters" / "r_files"
PATIENTS = R_FILES / "patients.csv"
COMPUTED = ("XGBoost .ubj", "CatBoost .cbm")  # each starts a process: a second or two


@cache
def files():
    """What the libraries write, by kind: (ending, contents)."""
    import catboost
    import lightgbm
    import skops.io
    import xgboost
    from skl2onnx import to_onnx

    found = {}

    def keep(kind, ending, save):
        path = FOLDER / f"saved{ending}"
        save(path)
        found.setdefault(kind, []).append((ending, path.read_bytes()))

    codes = np.column_stack([X, np.arange(len(X)) % 5])
    settings = {"n_estimators": 3, "max_depth": 3, "tree_method": "hist"}
    kinds = ["q"] * 3 + ["c"]
    for model in (
        xgboost.XGBRegressor(**settings).fit(X, TARGETS),
        xgboost.XGBClassifier(**settings).fit(X, np.arange(len(X)) % 3),
        xgboost.XGBRegressor(**settings, feature_types=kinds, enable_categorical=True).fit(codes, TARGETS),
    ):
        for kind, ending in (("XGBoost .json", ".json"), (COMPUTED[0], ".ubj")):
            keep(kind, ending, model.save_model)
    trees = {"n_estimators": 3, "min_child_samples": 2, "verbose": -1}
    for model in (
        lightgbm.LGBMRegressor(**trees).fit(X, TARGETS),
        lightgbm.LGBMClassifier(**trees).fit(X, CLASSES),
        lightgbm.LGBMRegressor(**trees, min_data_per_group=1).fit(codes, TARGETS, categorical_feature=[3]),
    ):
        keep("LightGBM .txt", ".txt", model.booster_.save_model)
    quiet = {"iterations": 3, "depth": 3, "verbose": False, "allow_writing_files": False}
    for model in (
        catboost.CatBoostRegressor(**quiet).fit(X, TARGETS),
        catboost.CatBoostClassifier(**quiet).fit(X, CLASSES),
    ):
        keep("CatBoost .json", ".json", lambda path, model=model: model.save_model(str(path), format="json"))
        keep(COMPUTED[1], ".cbm", lambda path, model=model: model.save_model(str(path), format="cbm"))
    linear = LogisticRegression().fit(X, CLASSES)
    keep("skops", ".skops", lambda path: skops.io.dump(linear, path))
    keep("ONNX", ".onnx", lambda path: path.write_bytes(to_onnx(linear, X.astype(np.float32)).SerializeToString()))
    for path in (*sorted(R_FILES.glob("*.rds")), *sorted(R_FILES.glob("*.RData"))):
        found.setdefault("R", []).append((path.suffix, unpacked(path.read_bytes())))
    return found


def unpacked(content):
    """What R packed, so that what is damaged gets past the packing."""
    for way in (gzip, bz2, lzma):
        with suppress(OSError, lzma.LZMAError):
            return way.decompress(content)
    return content


def cases(random):
    """A damaged file in nine of ten, of those that start a process a few; else an object that is almost a model."""
    plain = [kind for kind in files() if kind not in COMPUTED]
    while True:
        draw = random.random()
        if draw < 0.1:
            yield _almost(random)
        else:
            yield damaged(random, COMPUTED[random.integers(2)] if draw < 0.15 else plain[random.integers(len(plain))])


def damaged(random, kind):
    """A file of this kind, with some harm done to it."""
    ending, content = files()[kind][random.integers(len(files()[kind]))]
    way = "damaged"
    if ending == ".json" and random.random() < 0.8:
        document = json.loads(content)
        for _ in range(int(random.integers(1, 3))):
            way = edit(random, document)
        content = json.dumps(document)
    elif ending == ".txt" and random.random() < 0.8:
        content, way = _rewritten(random, content.decode())
    else:
        content = harmed(random, content)
    if kind == "R":
        content = gzip.compress(content, 1) if random.random() < 0.5 else content
        return Case(kind, f"lw.audit({kind}), {way}", partial(_of_patients, ending, content))
    columns = X if random.random() < 0.7 else np.column_stack([X, np.arange(len(X)) % 5])
    targets = (TARGETS, CLASSES)[random.integers(2)]

    def read():
        return repr(lw.audit(written(f"model{ending}", content), (columns, targets), games=3))

    return Case(kind, f"lw.audit({kind}), {way}", read)


def _of_patients(ending, content):
    table = pd.read_csv(PATIENTS)
    model = written(f"model{ending}", content)
    return repr(lw.audit(model, (table[["age", "dose", "town", "smokes"]], table["pain"]), games=3))


def _rewritten(random, text):
    """A line left out, or a number of it replaced."""
    lines = text.splitlines()
    place = int(random.integers(len(lines)))
    if random.random() < 0.3:
        return "\n".join(lines[:place] + lines[place + 1 :]), f"without {lines[place][:20]!r}"
    name, equals, values = lines[place].partition("=")
    words = re.split("( )", values)
    words[int(random.integers(len(words)))] = NUMBERS[random.integers(len(NUMBERS))]
    lines[place] = name + equals + "".join(words)
    return "\n".join(lines), f"{name[:20]!r} changed"


class Plain:
    """Can be fitted and asked, and is no estimator of scikit-learn."""

    def fit(self, X, y=None):
        self.mean = np.asarray(X, dtype=float).mean(0)
        return self

    def predict(self, X):
        return np.asarray(X, dtype=float) @ self.mean


class Raises(Plain):
    def predict(self, X):
        raise RuntimeError("no prediction")


class FitsNothing(Plain):
    def fit(self, X, y=None):
        raise KeyError("fit")


class Odd(Plain):
    def __init__(self, answer):
        self.answer = answer

    def predict(self, X):
        return copy.copy(self.answer)

    def get_params(self, deep=True):
        return self.answer


class NoAttributes(Plain):
    __slots__ = ()

    def __getattr__(self, name):
        raise RuntimeError(name)


def _almost(random):
    """Nets whose weights have no shape yet, and objects that have some of an estimator's methods."""
    lazy = (nn.LazyLinear(2), nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2)), nn.LazyBatchNorm1d())
    answers = (None, 3, "text", [], {}, {"a": object()}, np.empty(0), np.ones((2, 2)), object())
    fitted = [kind().fit(X) for kind in (Plain, Raises)] + [FitsNothing(), Plain(), NoAttributes()]
    fitted += [Odd(answer) for answer in answers]
    everything = [*lazy, *fitted, Plain, nn.Module(), nn.Sequential(), nn.Linear(3, 2).to("meta"), nn.Identity()]
    model = everything[random.integers(len(everything))]
    net = isinstance(model, nn.Module)
    records = lw.Records(torch.from_numpy(X).float(), torch.from_numpy(CLASSES))
    calls = {
        "lw.audit(model, data)": lambda: lw.audit(model, (X, CLASSES), games=3, max_minutes=0.05),
        "lw.audit(net, trainer)": lambda: lw.audit(
            model, records, trainer=lw.GD(lr=0.1, steps=2), games=2, max_minutes=0.05
        ),
        "lw.audit(net, threat)": lambda: lw.audit(
            model,
            trainer=lw.GD(lr=0.1, steps=2),
            threat=lw.Informed(records[:20]),
            prior=records[20:30],
            secrets=records[30:],
            games=2,
            attack=lw.KernelRidge(),
        ),
        "lw.simulate": lambda: list(
            lw.simulate(
                model,
                trainer=lw.GD(lr=0.1, steps=2),
                threat=lw.Informed(records[:20]),
                prior=records[20:],
                models=2,
            )
        ),
    }
    name = list(calls)[random.integers(len(calls) if net else 1)]
    return Case("almost a model", f"{name}: {type(model).__name__}", lambda: _or_its_own_error(calls[name]))


def _or_its_own_error(call):
    """What an object of the user raises by itself is shown as it is."""
    try:
        return repr(call())
    except (RuntimeError, KeyError) as error:
        if traceback.extract_tb(error.__traceback__)[-1].filename != __file__:
            raise
        return repr(error)
