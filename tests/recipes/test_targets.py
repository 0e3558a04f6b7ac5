"""Target folders of SACRO-ML, one of which it wrote itself (sacro_target.py)."""

import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from lostwax.cli import main
from lostwax.grades import Grade
from lostwax.recipes import Recipe

X, y = load_iris(return_X_y=True)
X, y = X[::2], y[::2]


class Bomb:
    """Unpickling it fails the test."""

    def __reduce__(self):
        return pytest.fail, ("it was unpickled",)


@pytest.fixture
def folder(tmp_path):
    """What SACRO-ML wrote, with a model that this version of scikit-learn can read."""
    shutil.copytree(Path(__file__).with_name("sacro_target"), tmp_path / "target")
    model = LogisticRegression(max_iter=5_000).fit(X, y)
    (tmp_path / "target" / "model.pkl").write_bytes(pickle.dumps(model))
    return tmp_path / "target"


def change(folder, name, value):
    path = folder / "target.yaml"
    lines = [line for line in path.read_text().splitlines() if not line.startswith(f"{name}:")]
    path.write_text("\n".join([*lines, f"{name}: {value}"]))


def test_a_trusted_folder_is_audited_without_a_recipe(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder.parent)
    assert main(["audit", "target", "--trust-pickles"]) == 0
    assert "grade: exact" in capsys.readouterr().out
    assert (folder.parent / "audits" / "target" / "report.html").is_file()


def test_without_trust_arrays_are_read_and_no_code_is_run(folder):
    (folder / "model.pkl").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(TypeError, match=r"model\.pkl is a pickle, and reading it can run any code.*--trust-pickles"):
        Recipe.read(folder)
    model = folder / "model.skops"
    pytest.importorskip("skops.io").dump(LogisticRegression(max_iter=5_000).fit(X, y), model)
    change(folder, "model_path", model.name)
    recipe = Recipe.read(folder)
    np.testing.assert_array_equal(recipe.arguments["data"][0], X)
    assert recipe.audit(games=20).grade is Grade.EXACT


@pytest.mark.parametrize(
    "bad", [Bomb(), np.array([Bomb()], dtype=object), {"rows": print}], ids=["object", "cells", "dict"]
)
def test_a_pickle_that_is_more_than_an_array_is_refused(folder, bad):
    (folder / "X_train.pkl").write_bytes(pickle.dumps(bad))
    with pytest.raises(TypeError, match="holds more than an array of numpy"):
        Recipe.read(folder)


def test_names_of_classes_and_columns_of_labels(folder):
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    for labels in (names[:, None], names.astype(object)):
        (folder / "y_train.pkl").write_bytes(pickle.dumps(labels))
        np.testing.assert_array_equal(Recipe.read(folder, trust_pickles=True).arguments["data"][1], names)
    change(folder, "y_train_path", "y.csv")
    np.savetxt(folder / "y.csv", names, fmt="%s")
    np.testing.assert_array_equal(Recipe.read(folder, trust_pickles=True).arguments["data"][1], names)
    change(folder, "X_train_path", "X.csv")
    np.savetxt(folder / "X.csv", X, delimiter=",")
    np.testing.assert_array_equal(Recipe.read(folder, trust_pickles=True).arguments["data"][0], X)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("model_type", "PytorchModel", "a net of PyTorch.*lostwax init torch"),
        ("model_path", "''", "names no model_path: the file is incomplete"),
        ("X_train_path", "''", "names no X_train_path: the file is incomplete"),
        ("model_path", "../model.pkl", "is outside the folder"),
        ("y_train_path", "none.pkl", "which target.yaml names, does not exist"),
        ("X_train_path", "target.yaml", "cannot be read: it is damaged"),
        ("model_path", "target.yaml", "does not end as a file of a model does"),
    ],
)
def test_what_is_missing_is_named(folder, name, value, message):
    change(folder, name, value)
    with pytest.raises((ValueError, FileNotFoundError, TypeError), match=message):
        Recipe.read(folder)


def test_data_that_come_from_code_need_a_recipe(folder):
    change(folder, "X_train_path", "''")
    change(folder, "dataset_module_path", "dataset.py")
    with pytest.raises(ValueError, match="its data come from code"):
        Recipe.read(folder)


def test_a_damaged_model_is_named(folder):
    (folder / "model.pkl").write_bytes(b"no pickle")
    with pytest.raises(ValueError, match=r"model\.pkl cannot be read"):
        Recipe.read(folder, trust_pickles=True)
