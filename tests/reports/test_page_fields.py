"""The fields of a report and its policy: on the page, in audit.json, and there again when it is written anew."""

import html
import json
from dataclasses import replace
from datetime import date

import pytest

import lostwax as lw
from lostwax import reports
from lostwax.cli import main
from lostwax.reports.fields import NAMES, fields_of, identity, with_fields
from lostwax.reports.html import css_text, render
from reports.conftest import NASTY

FIELDS = {
    "title": "Yearly review",
    "model": "credit-score",
    "version": "3.2",
    "data_set": "loans 2025",
    "owner": "Risk analytics",
    "date": "2026-01-31",
    "report_id": "R-17",
}


def test_fields_stand_on_the_page_and_survive(audit_of, tmp_path):
    page = lw.report(audit_of("one_game"), tmp_path / "a", **FIELDS, policy=lw.Policy(max_grade="not found"))
    lw.report(reports.read(tmp_path / "a"), tmp_path / "b", records=False, owner="Somebody else")
    again = (tmp_path / "b" / "report.html").read_text()
    for value in FIELDS.values():
        assert value in page.read_text()
        assert (value in again) == (value != "Risk analytics")
    for text in (page.read_text(), again):
        assert "<strong>do not release</strong>" in text
        assert "The policy is broken: 1 limit not kept" in text
        assert "<strong>broken</strong>: the grade is exact." in text
    held = json.loads((tmp_path / "b" / "audit.json").read_text())["provenance"]["report"]
    assert held == {**FIELDS, "owner": "Somebody else", "policy": {"max_grade": "not found", "threshold": 0.05}}
    assert set(FIELDS) == set(NAMES)


def test_without_fields_there_is_a_date_and_a_fingerprint(audit_of, tmp_path):
    audit = audit_of("one_game")
    page = lw.report(audit, tmp_path).read_text()
    assert date.today().isoformat() in page
    assert identity(audit) in page
    assert identity(audit) != identity(audit_of("nothing"))
    slower = replace(audit, findings=tuple(replace(finding, seconds=9.0) for finding in audit.findings))
    assert identity(slower) == identity(audit)
    assert fields_of(reports.read(tmp_path)).report_id == identity(audit)
    assert "report" not in json.loads((tmp_path / "audit.json").read_text())["provenance"]
    titled = lw.report(audit, tmp_path, title="A title", date=date(2026, 1, 2)).read_text()
    assert identity(audit) in titled  # of the numbers, whatever the title
    assert "2026-01-02" in titled


def test_a_damaged_policy_is_named(audit_of, tmp_path):
    audit = audit_of("one_game")
    damaged = replace(audit, provenance={**audit.provenance, "report": {"policy": {"max_grad": "not found"}}})
    with pytest.raises(ValueError, match=r"^report: the policy in audit.json is damaged"):
        lw.report(damaged, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_fields_are_text(audit_of, tmp_path):
    page = lw.report(audit_of("one_game"), tmp_path, **dict.fromkeys(NAMES, NASTY)).read_text()
    assert NASTY not in page
    assert html.escape(NASTY, quote=False)[:20] in page
    assert css_text('x"}</style>\n') == '"x\\22 \\7d \\3c \\2f style\\3e \\a "'


@pytest.mark.parametrize("wrong", [{"title": 3}, {"owner": " "}, {"model": 301 * "x"}, {"policy": {"max_grade": "x"}}])
def test_wrong_fields_are_refused_before_anything_is_written(wrong, audit_of, tmp_path):
    with pytest.raises((TypeError, ValueError), match=rf"^report: expected {next(iter(wrong))} to"):
        lw.report(audit_of("one_game"), tmp_path / "new", **wrong)
    assert not (tmp_path / "new").exists()


RECIPE = """
from sklearn.datasets import load_iris
from sklearn.linear_model import Ridge
X, y = load_iris(return_X_y=True)
data, model, games = (X, y), Ridge().fit(X, y), 40
report = {"title": "Iris, reviewed", "owner": "Botany"}
"""


def test_exit_code_and_page_agree(tmp_path, monkeypatch):
    """A recipe has the fields; a policy that is broken ends with 1 and advises against a release."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.py").write_text(RECIPE)
    (tmp_path / "strict.toml").write_text('max_grade = "not found"')
    assert main(["audit", "recipe.py", "--out", "strict", "--policy", "strict.toml"]) == 1
    page = (tmp_path / "strict" / "report.html").read_text()
    assert "Iris, reviewed" in page
    assert "Botany" in page
    assert "Suggestion: <strong>do not release</strong>" in page
    assert 'class="verdict alarm"' in page


def test_a_recipe_with_other_fields_is_refused(tmp_path):
    from lostwax.recipes import Recipe

    for value, why in (('{"titel": "x"}', "'titel', which is not a field"), ('"x"', "report is a str")):
        (tmp_path / "recipe.py").write_text(RECIPE.replace('{"title": "Iris, reviewed", "owner": "Botany"}', value))
        with pytest.raises(ValueError, match=why):
            Recipe.read(tmp_path / "recipe.py")


def test_no_policy_is_said_too(audit_of):
    assert "No policy was given" in render(audit_of("nothing"), {}, records=False)


def test_a_long_title_leaves_room_for_the_page_number(audit_of):
    page = render(with_fields(audit_of("one_game"), {"title": "A" * 200}, None, ()), {}, records=False)
    assert f'content: "{"A" * 59}\\2026 ' in page
