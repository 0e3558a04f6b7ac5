"""Models named by a path: what cannot run code is read, what can is refused with the line that loads it."""

import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

import lostwax as lw
from fuzz.models import COMPUTED, damaged
from fuzz.outcomes import play
from fuzz.suite import bugs, describe
from lostwax.adapters import model_files
from lostwax.adapters.model_files import load_model, released_computation
from lostwax.adapters.onnx_files import arrays, loaded

X, y = load_iris(return_X_y=True)


class Bomb:
    """Unpickling it fails the test."""

    def __reduce__(self):
        return pytest.fail, ("it was unpickled",)


@pytest.mark.parametrize(
    ("name", "line"), [("m.joblib", "joblib.load("), ("m.pkl", "pickle.load("), ("M.PICKLE", "load")]
)
def test_a_pickle_is_never_read(tmp_path, name, line):
    path = tmp_path / name
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(TypeError, match="can run any code") as error:
        lw.audit(path, (X, y))
    assert line in str(error.value)


def test_other_files_are_refused(tmp_path):
    (tmp_path / "m.bin").write_bytes(b"x")
    with pytest.raises(TypeError, match="does not end as"):
        load_model(str(tmp_path / "m.bin"))
    with pytest.raises(FileNotFoundError, match="does not exist"):
        load_model(tmp_path / "none.skops")
    (tmp_path / "f.skops").mkdir()
    with pytest.raises(FileNotFoundError, match="is a folder"):
        load_model(tmp_path / "f.skops")


def test_a_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(model_files, "find_spec", lambda name: None)
    for name, read, package in (
        ("m.skops", load_model, "skops"),
        ("m.onnx", lambda path: released_computation(path, (X, y)), "onnx"),
    ):
        (tmp_path / name).write_bytes(b"x")
        with pytest.raises(ImportError, match=f"pip install {package}"):
            read(tmp_path / name)


class Unknown(BaseEstimator):
    """A type that skops does not know."""

    def fit(self, X, y):
        self.mean_ = X.mean(0)
        return self


def test_a_skops_file_is_loaded_if_its_types_are_trusted(tmp_path):
    io = pytest.importorskip("skops.io")
    model = LogisticRegression().fit(X, y)
    io.dump(model, tmp_path / "m.skops")
    np.testing.assert_array_equal(load_model(tmp_path / "m.skops").coef_, model.coef_)
    assert lw.audit(tmp_path / "m.skops", (X, y), games=20).games.size == 20
    io.dump(Unknown().fit(X, y), tmp_path / "u.skops")
    with pytest.raises(ValueError, match=r"does not trust.*Unknown"):
        load_model(tmp_path / "u.skops")
    (tmp_path / "d.skops").write_bytes(b"no zip")
    with pytest.raises(ValueError, match="damaged"):
        load_model(tmp_path / "d.skops")


def test_the_arrays_of_an_onnx_file_hold_what_the_model_stores(tmp_path):
    onnx = pytest.importorskip("onnx")
    skl2onnx = pytest.importorskip("skl2onnx")
    model = SVC().fit(X, y)
    onnx.save(skl2onnx.to_onnx(model, X[:1].astype(np.float32)), tmp_path / "m.onnx")
    numbers = dict(arrays(onnx, loaded(onnx, tmp_path / "m.onnx")))
    vectors = next(value for name, value in numbers.items() if name.endswith("support_vectors"))
    np.testing.assert_allclose(vectors.reshape(-1, 4), model.support_vectors_, rtol=1e-6)
    (tmp_path / "d.onnx").write_bytes(b"no graph")
    with pytest.raises(ValueError, match="damaged"):
        loaded(onnx, tmp_path / "d.onnx")


def test_the_initialisers_of_a_graph_are_read(tmp_path):
    onnx = pytest.importorskip("onnx")
    weight = np.arange(6, dtype=np.float32).reshape(2, 3)
    node = onnx.helper.make_node("MatMul", ["x", "w"], ["z"])
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "z")]
    graph = onnx.helper.make_graph([node], "g", ends[:1], ends[1:], [onnx.numpy_helper.from_array(weight, "w")])
    onnx.save(onnx.helper.make_model(graph), tmp_path / "g.onnx")
    np.testing.assert_array_equal(dict(arrays(onnx, loaded(onnx, tmp_path / "g.onnx")))["w"], weight)


@pytest.mark.parametrize("ending", [".safetensors", ".pt"])
def test_weights_need_their_net(ending):
    with pytest.raises(TypeError, match=r"holds weights.*load_weights\(net, "):
        load_model(f"model{ending}")


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "CatBoost crashed when it opened the file"),
        ("import os; os._exit(0)", "CatBoost crashed when it opened the file"),
        ("raise ValueError", "is damaged, or not a model of CatBoost"),
        ("b'x' * 2**40", "is damaged, or not a model of CatBoost"),  # above the limit on memory
        ("import time; time.sleep(60)", "CatBoost did not open it in 1 s"),
    ],
)
def test_a_binary_file_is_opened_in_a_process_that_may_crash(tmp_path, monkeypatch, convert, message):
    (tmp_path / "model.cbm").write_bytes(b"CBM1")
    monkeypatch.setitem(model_files.AS_JSON, ".cbm", ("CatBoost", "json", convert))  # a package that is quick to import
    monkeypatch.setattr(model_files, "SECONDS", 1 if "sleep" in convert else 60)
    with pytest.raises(ValueError, match=rf"model\.cbm is damaged.*{message}|model\.cbm {message}"):
        lw.audit(tmp_path / "model.cbm", load_iris(return_X_y=True))


def test_a_package_that_only_this_process_has_is_named(tmp_path, monkeypatch):
    (tmp_path / "model.cbm").write_bytes(b"CBM1")
    monkeypatch.setitem(model_files.AS_JSON, ".cbm", ("CatBoost", "this_is_no_package", "pass"))
    monkeypatch.setattr(model_files, "_package", lambda *names: None)
    with pytest.raises(ImportError, match="cannot import the package this_is_no_package"):
        load_model(tmp_path / "model.cbm")


@pytest.mark.slow
@pytest.mark.parametrize("kind", COMPUTED)
def test_damaged_binary_files_are_refused(kind):
    random = np.random.default_rng(0)
    found = [play(damaged(random, kind)) for _ in range(120)]
    assert not bugs(found), describe(found)
