"""An edited audit.json is refused wherever its parts contradict each other."""

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sklearn.linear_model import LogisticRegression

import lostwax as lw
from audits.game import Reads, audited
from fuzz.arrays import CLASSES, X
from lostwax.reports.folder import read


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    lw.report(lw.audit(LogisticRegression().fit(X, CLASSES), (X, CLASSES), games=8), folder)
    return folder


@pytest.fixture(scope="module")
def procedure(tmp_path_factory):
    folder = tmp_path_factory.mktemp("procedure")
    lw.report(audited(Reads(), games=12), folder)
    return folder


def plain(folder):
    return json.loads((folder / "audit.json").read_text())


def refused(edited, folder):
    path = folder / "edited.json"
    path.write_text(edited if isinstance(edited, str) else json.dumps(edited))
    with pytest.raises(ValueError, match=r"^Audit.from_json") as error:
        lw.Audit.from_json(path)
    return str(error.value)


def finding(**changes):
    return lambda audit: audit["findings"][0].update(changes)


LUCK = {
    **{"games": 8, "rebuilt": 8, "rebuilt_by_luck": 0.1, "closest": 0.0},
    **{"nearer": 8, "nearer_by_luck": 0.1, "farther": 1.0},
}
EDITS = {
    "a smaller threshold": (lambda audit: audit.update(threshold=1e-30), "contradicts its errors"),
    "other errors": (
        lambda audit: audit["findings"][0]["errors"].update({audit["metric"]: [9.0] * 8}),
        "contradicts its errors",
    ),
    "another summary": (
        lambda audit: audit["summary"]["as released"].update(rebuilt=0.0, median_error=9.0),
        "the summary of as released contradicts its errors",
    ),
    "a baseline that had it": (
        lambda audit: [errors.update({audit["criterion"]: [0.0] * 8}) for errors in audit["baselines"].values()],
        "contradicts its errors",
    ),
    "nan": (
        lambda audit: audit["findings"][0]["errors"].update({audit["metric"]: ["nan"] * 8}),
        "has errors that are NaN",
    ),
    "too few": (finding(rebuilt=[True]), "holds 1 numbers for 8 games"),
    "a row twice": (lambda audit: audit.update(games=[0] * 8), "each at most once"),
    "a row beyond the table": (lambda audit: audit.update(games=[*range(7), 400]), "each at most once"),
    "a list for the number of rows": (lambda audit: audit["provenance"].update(rows=[1] * 8), "$.provenance.rows"),
    "fewer rows": (lambda audit: audit.update(population=3), "each at most once"),
    "negative luck": (finding(luck={**LUCK, "rebuilt": -1}), "luck.rebuilt does not fit"),
    "luck above one": (finding(luck={**LUCK, "nearer_by_luck": 2}), "luck.nearer_by_luck does not fit"),
    "more luck than games": (finding(luck={**LUCK, "nearer": 9}), "luck has more games than there are"),
    "another grade": (lambda audit: audit["conclusion"].update(grade="not found"), "does not follow from the numbers"),
    "two lines of one name": (lambda audit: audit["findings"].append(audit["findings"][0]), "one name"),
    "no such oracle": (lambda audit: audit.update(oracle="else"), "the oracle is none"),
    "a metric that baselines lack": (
        lambda audit: finding(errors={**audit["findings"][0]["errors"], "MAE": [1.0] * 8})(audit),
        "no errors by a metric that others have",
    ),
    "no such metric": (lambda audit: audit.update(metric="else"), "no errors by the headline metric"),
    "a huge game": (lambda audit: audit.update(kind="this procedure", games=[10**30] * 8), "does not fit"),
    "no percentile": (lambda audit: audit.update(oracle_percentiles={"1.2.3": 0.1}), "a percentile that is none"),
    "a ceiling below the blind guess": (
        lambda audit: audit.update(
            ceiling={
                "log_lower": -9,
                "log_upper": -8,
                "log_baseline": -1,
                "method": "",
                "certified": True,
                "estimate": None,
            }
        ),
        "in no order",
    ),
    "a ceiling of nan": (
        lambda audit: audit.update(
            ceiling={
                "log_lower": "nan",
                "log_upper": "nan",
                "log_baseline": -1,
                "method": "",
                "certified": True,
                "estimate": None,
            }
        ),
        "in no order",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_that_contradicts_the_rest(name, model):
    edit, words = EDITS[name]
    audit = copy.deepcopy(plain(model))
    edit(audit)
    assert words in refused(audit, model)


def test_numbers_that_json_does_not_know(model):
    text = json.dumps({**plain(model), "threshold": float("nan")})
    assert "NaN is not a number in JSON" in refused(text, model)
    assert "no JSON" in refused('{"format": "lostwax audit", "schema": ' + "9" * 5_000 + "}", model)


def test_the_classes_are_not_quoted(model):
    assert "Smith" not in refused({**plain(model), "classes": ["Smith", 3]}, model)


TENSORS = {
    "a single number": (lambda tensors: tensors.update({"0.y": torch.tensor(1.0)}), "does not hold '0.y' for the 12"),
    "other records": (lambda tensors: tensors.update({"0.x": tensors["0.x"][..., :4]}), "'0.x' of another shape"),
    "whole numbers": (lambda tensors: tensors.update({"truth.x": tensors["truth.x"].long()}), "'truth.x' of another"),
    "nan": (lambda tensors: tensors["truth.x"].fill_(np.nan), "NaN or infinite numbers in the records"),
}


@pytest.mark.parametrize("name", TENSORS)
def test_records_that_are_not_those_of_the_audit(name, procedure):
    path = procedure / "records.safetensors"
    whole = path.read_bytes()
    tensors = {name: value.clone() for name, value in load_file(path).items()}
    edit, words = TENSORS[name]
    edit(tensors)
    save_file({name: value.contiguous() for name, value in tensors.items()}, path)
    try:
        with pytest.raises(ValueError, match=words):
            read(procedure)
    finally:
        path.write_bytes(whole)
    assert read(procedure).truth.x.shape[0] == 12
