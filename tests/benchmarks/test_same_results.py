"""The comparison of two versions notices every digit, and ignores words and times."""

import copy
import json
import runpy
import sys

import pytest

AUDIT = {
    "attack": "Newton",
    "threshold": 0.05,
    "labels_given": False,
    "notes": ["a sentence"],
    "unanswered": ["too slow"],
    "games": [3, 1],
    "findings": [
        {
            "name": "as released",
            "seconds": 1.5,
            "errors": {"RMSE": [0.1, "nan"]},
            "rebuilt": [True, False],
            "certified": None,
            "verdicts": ["recoverable", "undecided"],
            "luck": {"games": 2, "rebuilt": 0.5},
        }
    ],
    "summary": {"as released": {"rebuilt": 0.5, "milliseconds_per_record": 750.0}},
    "conclusion": {"grade": "exact", "headline": "All come back."},
    "provenance": {"versions": {"lostwax": "0.1.0"}, "seed": 0},
}


@pytest.fixture
def compare(root, tmp_path, monkeypatch, capsys):
    """The exit code of the script for an audit and a changed copy of it, and what it prints."""

    def compared(change):
        changed = copy.deepcopy(AUDIT)
        change(changed)
        for folder, audit in (("before", AUDIT), ("after", changed)):
            (tmp_path / folder / "newton").mkdir(parents=True)
            (tmp_path / folder / "newton" / "audit.json").write_text(json.dumps(audit))
        script = str(root / "benchmarks" / "same_results.py")
        monkeypatch.setattr(sys, "argv", [script, "compare", str(tmp_path / "before"), str(tmp_path / "after")])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(script, run_name="__main__")
        return ended.value.code, capsys.readouterr().out

    return compared


def reword(audit):
    audit["attack"] = "Newton's method"
    audit["notes"] = ["other", "words"]
    audit["unanswered"] = ["skipped"]
    audit["conclusion"]["headline"] = "Every record is recovered."
    audit["findings"][0]["seconds"] = 9.0
    audit["summary"]["as released"]["milliseconds_per_record"] = 1.0
    audit["provenance"] = {"seed": 1}


def test_words_and_times_may_differ(compare):
    code, printed = compare(reword)
    assert code == 0
    assert "newton" in printed
    assert "1 of 1 are the same." in printed


CHANGES = {
    "$.findings[0].errors.RMSE[0]: 0.1 and 0.10000000000000002": lambda found: found["errors"].update(
        RMSE=[0.1 + 2e-17, "nan"]
    ),
    "$.findings[0].errors.RMSE[1]: 'nan' and 0.2": lambda found: found["errors"].update(RMSE=[0.1, 0.2]),
    "$.findings[0].rebuilt[1]: False and True": lambda found: found.update(rebuilt=[True, True]),
    "$.findings[0].rebuilt[1]: False and 0": lambda found: found.update(rebuilt=[True, 0]),
    "$.findings[0].rebuilt has 2 and 1 entries": lambda found: found.update(rebuilt=[True]),
    "$.findings[0].certified: None and a list of 2": lambda found: found.update(certified=[True, False]),
    "$.findings[0].verdicts[1]: 'undecided' and 'recoverable'": lambda found: found.update(
        verdicts=["recoverable", "recoverable"]
    ),
    "$.findings[0].luck.rebuilt is only in the one before": lambda found: found["luck"].pop("rebuilt"),
}


@pytest.mark.parametrize("difference", CHANGES)
def test_a_changed_value_is_shown_with_its_path(compare, difference):
    code, printed = compare(lambda audit: CHANGES[difference](audit["findings"][0]))
    assert code == 1
    assert f"differs: {difference}" in printed


def test_an_attack_that_no_longer_answers_is_noticed(compare):
    code, printed = compare(lambda audit: audit["unanswered"].append("failed"))
    assert code == 1
    assert "$.unanswered has 1 and 2 entries" in printed


def test_an_audit_that_is_missing_is_noticed(compare, tmp_path):
    (tmp_path / "before" / "ridge").mkdir(parents=True)
    (tmp_path / "before" / "ridge" / "audit.json").write_text(json.dumps(AUDIT))
    code, printed = compare(lambda audit: None)
    assert code == 1
    assert "1 of 2 are the same." in printed
