"""Files that R wrote (tests/adapters/r_files/make.R): every value, and no crash on damaged ones."""

import gzip
import lzma
from contextlib import suppress
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import lostwax as lw
from lostwax.adapters.objects import attributes
from lostwax.adapters.r_files import load_r

FILES = Path(__file__).parent / "r_files"
PATIENTS = pd.read_csv(FILES / "patients.csv")


@pytest.mark.parametrize("path", sorted(FILES.glob("*.rds")), ids=lambda path: path.name)
def test_every_file_is_read_to_its_end(path):
    model = load_r(path)
    kinds = {"closure": "function", "forest": "randomForest", "values": "list"}
    name = path.stem.partition("_")[0]
    assert model.kind == kinds.get(name, name)
    assert model.contents is model.value


def test_a_data_frame_is_what_r_wrote_as_csv():
    model = load_r(FILES / "lm.rds")
    frame = model.value["model"]
    for name in ("age", "dose", "town", "smokes", "pain"):
        assert np.array_equal(np.asarray(frame[name]), PATIENTS[name].to_numpy()), name
    assert attributes(frame["town"])["levels"].tolist() == ["Bath", "Ely", "York"]
    assert attributes(model.value["terms"])["term.labels"].tolist() == ["age", "dose", "town", "smokes"]


def test_values_of_every_type():
    values = load_r(FILES / "values.rds").value
    assert [*values] == [
        *("sequence", "texts", "missing", "flags", "4", "bytes", "table", "text", "sequence.8", "name"),
    ]
    assert values["sequence"].tolist() == [*range(1, 11)]
    assert values["texts"].tolist() == ["1.5", "2", "300"]
    assert np.array_equal(values["missing"], [1, np.nan, 3], equal_nan=True)
    assert np.array_equal(values["flags"], [1, np.nan], equal_nan=True)
    assert values["4"].tolist() == [1j]
    assert values["bytes"] == b"\1\2\3"
    assert values["table"].tolist() == [[1, 3, 5], [2, 4, 6]]
    assert values["text"].tolist() == ["x", None]
    assert attributes(values["text"])["names"].tolist() == ["a", "b"]
    assert values["sequence.8"] is None
    assert values["name"]["0"] == "f"
    assert values["name"]["y"].tolist() == [2]


def test_attributes_and_what_a_function_or_a_formula_encloses():
    attached = attributes(load_r(FILES / "lm_attribute.rds").value)["drift"]
    assert np.array_equal(attached["dose"], PATIENTS["dose"])
    enclosed = load_r(FILES / "closure.rds").value["environment"]["records"]["value"]  # of a promise
    assert np.array_equal(enclosed["pain"], PATIENTS["pain"])
    terms = load_r(FILES / "lm_environment.rds").value["terms"]
    assert np.array_equal(attributes(terms)[".Environment"]["records"]["value"]["age"], PATIENTS["age"])


def test_one_of_several_models():
    with pytest.raises(ValueError, match=r'2 models with a formula: linear \(lm\), logit \(glm\).*load_r\(.*"linear"'):
        load_r(FILES / "several.RData")
    model = lw.adapters.load_r(FILES / "several.RData", "logit")
    assert model.kind == "glm"
    assert set(model.contents) == {"linear", "logit"}
    with pytest.raises(ValueError, match="no 'cubic', but linear, logit"):
        load_r(FILES / "several.RData", "cubic")
    assert load_r(FILES / "beside.RData").name == "linear"  # the only model; the table beside it is released too
    with pytest.raises(FileNotFoundError):
        load_r(FILES / "absent.rds")


@pytest.mark.parametrize("name", ["lm.rds", "glm_binomial.rds", "closure.rds", "several.RData"])
def test_damaged_files_are_refused(name, tmp_path):
    stored, rng = lzma.decompress((FILES / name).read_bytes()), np.random.default_rng(0)
    damaged = tmp_path / name
    for place in rng.integers(0, len(stored), 25):
        damaged.write_bytes(stored[:place])
        with pytest.raises(ValueError, match="is damaged"):
            load_r(damaged)
        changed = bytearray(stored)
        changed[place] ^= 1 << int(rng.integers(8))
        damaged.write_bytes(gzip.compress(changed, 1))
        with suppress(ValueError):  # a changed number or letter is a value like any other
            load_r(damaged)
    damaged.write_text("A\n3\n")  # ascii = TRUE
    with pytest.raises(ValueError, match="ascii = FALSE"):
        load_r(damaged)
