import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression, Ridge

import lostwax as lw
from audits.game import Reads, audited
from audits.test_conclusion import FAR, audit_of, proven
from lostwax.audits.ceiling import privacy_of
from lostwax.games import Note
from lostwax.games.attackers import NOT_STATED
from lostwax.games.notes import stored_rows
from lostwax.metrics import Null


@pytest.fixture(scope="module")
def procedure():
    """Some errors have no bound, and of PSNR some are +inf and some -inf."""
    audit = audited(Reads(), games=20)
    released = audit.findings[0]
    errors = {name: values.copy() for name, values in released.errors.items()}
    errors[audit.metric][3] = np.inf
    errors["peak signal-to-noise ratio (dB)"][[3, 4]] = [-np.inf, np.inf]
    certified = torch.arange(20)[:, None] % 2 == 0
    guess = replace(released.guess, certified=certified)
    ceiling = lw.bound(noise_multiplier=1.0, log_baseline=-2_000.0)
    return replace(
        audit,
        findings=(replace(released, errors=errors, guess=guess),),
        ceiling=ceiling,
        privacy=privacy_of({"noise_multiplier": 1.0, "sample_rate": 1.0, "steps": 1}),
        chance=0.5,
        left_out=("ClosedForm is not applicable.",),
        unanswered=("Newton was stopped.",),
    )


@pytest.fixture(scope="module")
def model():
    X, y = load_iris(return_X_y=True)
    return lw.audit(LogisticRegression(max_iter=1_000).fit(X, y), (X, y), games=10)


def test_files_without_a_ceiling_for_membership_are_read_and_prove_nothing(tmp_path):
    """Up to 0.2.0 a file held the ceiling of its game alone, and was graded by that."""
    line = (np.full(100, 1.0), None)
    audit = audit_of(line, baseline=FAR, chance=0.1, threshold=0.0, **proven(20.0, 0.1))
    path = audit.to_json(tmp_path / "audit.json")
    plain = json.loads(path.read_text())
    assert plain["conclusion"]["grade"] == "limited by proof"
    assert plain.pop("privacy")["delta"] == 1e-5
    path.write_text(json.dumps(plain))
    old = lw.Audit.from_json(path)
    assert (old.ceiling, old.privacy, old.grade) == (audit.ceiling, None, "not found")


@pytest.mark.parametrize("kind", ["procedure", "model"])
def test_all_but_the_records_comes_back(kind, request, tmp_path):
    audit = request.getfixturevalue(kind)
    again = lw.Audit.from_json(audit.to_json(tmp_path / "audit.json"))
    assert repr(again) == repr(audit)
    for name in (
        "subject",
        "kind",
        "metric",
        "threshold",
        "provenance",
        "notes",
        "oracle",
        "chance",
        "ceiling",
        "privacy",
    ):
        assert getattr(again, name) == getattr(audit, name)
    assert (again.left_out, again.unanswered) == (audit.left_out, audit.unanswered)
    for one, other in zip(again.findings, audit.findings, strict=True):
        for metric, values in other.errors.items():
            np.testing.assert_array_equal(one.errors[metric], values)
        assert one.verdicts == other.verdicts
        assert torch.equal(one.guess.confidence, other.guess.confidence.double())
        assert one.null_errors.keys() == other.null_errors.keys()
    assert again.truth.x.shape == (len(audit.games), 0)
    assert again.to_json(tmp_path / "again.json").read_bytes() == (tmp_path / "audit.json").read_bytes()


def test_a_conclusion_that_does_not_follow_from_the_numbers_is_refused(model, tmp_path):
    path = model.to_json(tmp_path / "audit.json")
    plain = json.loads(path.read_text())
    path.write_text(json.dumps(plain | {"conclusion": {**plain["conclusion"], "grade": "not found"}}))
    with pytest.raises(ValueError, match="the conclusion does not follow from the numbers"):
        lw.Audit.from_json(path)
    for name in ("metric", "criterion", "oracle"):
        path.write_text(json.dumps(plain | {name: "nothing"}))
        with pytest.raises(ValueError, match="was edited or damaged"):
            lw.Audit.from_json(path)


def test_of_lines_that_are_equally_bad_another_version_may_have_named_another(model, tmp_path):
    X, y = load_iris(return_X_y=True)
    tied = lw.audit(Ridge().fit(X, y), (X, y), games=10, attackers=[])
    for audit, loads in ((tied, True), (model, False)):
        path = audit.to_json(tmp_path / "audit.json")
        plain = json.loads(path.read_text())
        (other,) = {finding.name for finding in audit.findings} - {plain["conclusion"]["line"]}
        path.write_text(json.dumps(plain | {"conclusion": {**plain["conclusion"], "line": other}}))
        with nullcontext() if loads else pytest.raises(ValueError, match="does not follow from the numbers"):
            assert lw.Audit.from_json(path).grade is audit.grade


def test_what_is_estimated_is_the_same(procedure, tmp_path):
    again = lw.Audit.from_json(procedure.to_json(tmp_path / "audit.json"))
    assert again.tpr(0.1, null=Null.OTHER_SECRETS) == procedure.tpr(0.1)
    assert again.success() == procedure.success()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"schema": 1}, "has schema 1, this lostwax reads schema 4"),
        ({"schema": 3}, "has schema 3, this lostwax reads schema 4"),
        ({"schema": 99}, "Read it with the lostwax that wrote it"),
        ({"format": "else"}, "JSON, but not an audit"),
        ({"threshold": -1}, r"\$.threshold does not fit"),
        ({"games": [0, 1]}, "holds 20 numbers for 2 games"),
        ({"kind": "a model"}, r"\$.kind does not fit"),
        ({"extra": 1}, "does not fit the schema of audits"),
    ],
    ids=str,
)
def test_a_file_that_does_not_fit(change, words, procedure, tmp_path):
    path = procedure.to_json(tmp_path / "audit.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(ValueError, match=words):
        lw.Audit.from_json(path)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(place=st.floats(0, 1), byte=st.integers(0, 255), cut=st.booleans())
def test_damage_is_named(place, byte, cut, procedure, tmp_path):
    """Whatever a broken disk does: an audit as good as new, or our own error."""
    content = bytearray(procedure.to_json(tmp_path / "audit.json").read_bytes())
    where = int(place * (len(content) - 1))
    content = content[:where] if cut else content[:where] + bytes([byte]) + content[where + 1 :]
    path = tmp_path / "damaged.json"
    path.write_bytes(content)
    try:
        lw.Audit.from_json(path)
    except ValueError as error:
        if not str(error).startswith("Audit.from_json"):
            raise


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no file"):
        lw.Audit.from_json(tmp_path / "none.json")


def test_the_adversary_of_a_file_up_to_0_3_is_not_stated(model, tmp_path):
    plain = json.loads(model.to_json(tmp_path / "new.json").read_text())
    del plain["adversary"], plain["rungs"], plain["knowledge_margin"]
    (tmp_path / "old.json").write_text(json.dumps(plain))
    audit = lw.Audit.from_json(tmp_path / "old.json")
    assert audit.adversary == NOT_STATED
    assert audit.grade is model.grade


def test_an_adversary_who_knows_more_than_there_is(model, tmp_path):
    path = model.to_json(tmp_path / "audit.json")
    plain = json.loads(path.read_text())
    plain["adversary"]["known"] = 151
    path.write_text(json.dumps(plain))
    with pytest.raises(ValueError, match="the adversary knows more records than there are"):
        lw.Audit.from_json(path)


def test_notes_come_back_as_values(model, tmp_path):
    noted = replace(model, notes=(stored_rows("X's rows", (5, 150)), Note("a fact.")))
    again = lw.Audit.from_json(noted.to_json(tmp_path / "audit.json"))
    assert again.notes == noted.notes
    assert json.loads((tmp_path / "audit.json").read_text())["notes"][1] == "a fact."
