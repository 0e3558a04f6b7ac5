import io
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lostwax as lw
from lostwax import reports
from lostwax.audits.ceiling import privacy_of
from lostwax.cli import main
from lostwax.reports.fields import with_fields
from lostwax.reports.formats import FORMATS, Outcome, as_junit, as_sarif, checks

KINDS = [
    "of_a_table",
    "by_accident",
    "one_game",
    "nothing",
    "candidates",
    "all_diverged",
    "under_a_ceiling",
]
JUNIT = Path(__file__).with_name("junit_subset.xsd")


def outcomes(audit):
    return {check.rule: check.outcome for check in checks(audit)}


@pytest.mark.parametrize("kind", KINDS)
def test_sarif_keeps_to_its_schema(kind, audit_of):
    """The models of pydantic-sarif were generated from the schema of OASIS, and forbid what it does not name."""
    log = pytest.importorskip("pydantic_sarif.model").StaticAnalysisResultsFormatSarifVersion210JsonSchema
    text = as_sarif(audit_of(kind), "audits/a/audit.json")
    log.model_validate_json(text)
    with pytest.raises(ValueError, match="surprise"):
        log.model_validate_json(text.replace('"ruleIndex"', '"surprise"', 1))
    (run,) = json.loads(text)["runs"]
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert (result["kind"] == "fail") == (result["level"] != "none"), "section 3.27.10"


@pytest.mark.parametrize("kind", KINDS)
def test_junit_keeps_to_its_schema(kind, audit_of):
    schema = pytest.importorskip("xmlschema").XMLSchema(str(JUNIT))
    text = as_junit(audit_of(kind), "audit.json")
    schema.validate(io.StringIO(text))
    suite = ET.fromstring(text)
    for name, tag in (("tests", "testcase"), ("failures", "failure"), ("skipped", "skipped")):
        assert int(suite.get(name)) == len(list(suite.iter(tag)))
    assert len({(case.get("classname"), case.get("name")) for case in suite}) == len(suite), "servers match by name"


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_passes_that_the_page_does_not_suggest_to_release(kind, audit_of):
    audit = audit_of(kind)
    assert outcomes(audit)["suggestion"].fails, "without a policy only a proof of a low ceiling is a pass"
    assert audit.grade is not lw.grades.Grade.UNDECIDED or outcomes(audit)["open"].fails


def test_a_low_ceiling_passes(audit_of):
    mechanism = {"noise_multiplier": 20.0, "sample_rate": 1.0, "steps": 10}
    proof = {"ceiling": lw.bound(**mechanism, baseline=1 / 8), "privacy": privacy_of(mechanism)}
    assert outcomes(replace(audit_of("nothing"), **proof))["suggestion"] is Outcome.PASS


def test_the_policy_decides(audit_of):
    audit, pictures = audit_of("of_a_table"), audit_of("of_pictures")
    strict = with_fields(audit, {}, lw.Policy(max_rebuilt_share=0.1, max_grade="not found"), ())
    assert outcomes(strict)["policy/max_rebuilt_share"] is Outcome.ERROR
    assert outcomes(strict)["suggestion"] is Outcome.ERROR
    lax = with_fields(pictures, {}, lw.Policy(max_grade="recognisable"), ())
    assert not any(outcome.fails for outcome in outcomes(lax).values()), "what the policy allows is a note"
    assert outcomes(lax)["suggestion"] is Outcome.NOTE
    assert outcomes(audit)["attacker/insider"] is Outcome.ERROR


@pytest.mark.parametrize("kind", ["of_a_table", "by_accident"])
def test_no_record_is_in_them(kind, audit_of):
    """No number of a record with three digits or more, original or rebuilt, and no class of the user."""
    audit = audit_of(kind)
    values = np.concatenate([part.flatten().cpu().numpy() for part in (audit.truth.x, audit.guess.records.x)])
    private = {f"{value:.4g}".lstrip("-") for value in values if len(f"{abs(value):.4g}") > 4}
    for form in FORMATS.values():
        text = form(audit, "audit.json")
        assert not private & set(re.findall(r"\d+\.\d+", text))
        assert "<script>" not in text


def test_on_the_command_line(tmp_path, monkeypatch, capsys, audit_of):
    monkeypatch.chdir(tmp_path)
    lw.report(audit_of("of_a_table"), "audit", records=False)
    before = {path.name: path.stat().st_mtime_ns for path in Path("audit").iterdir()}
    assert main(["report", "audit", "--format", "sarif"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    place = run["results"][0]["locations"][0]["physicalLocation"]["artifactLocation"]
    assert place == {"uri": "audit/audit.json"}
    Path("policy.toml").write_text("max_rebuilt_share = 0.1\n")
    assert main(["report", "audit", "--format", "junit", "--policy", "policy.toml"]) == 1
    suite = ET.fromstring(capsys.readouterr().out)
    assert [case.find("failure").get("type") for case in suite if "max_rebuilt" in case.get("name")] == ["error"]
    assert {path.name: path.stat().st_mtime_ns for path in Path("audit").iterdir()} == before, "it only reads"
    assert main(["report", str(tmp_path / "audit"), "--format", "sarif"]) == 0
    assert str(tmp_path) not in capsys.readouterr().out
    assert reports.read("audit").grade is lw.grades.Grade.EXACT
