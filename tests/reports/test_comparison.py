import html
from dataclasses import replace

import pytest

import lostwax as lw
from lostwax import reports
from lostwax.audits.decision import Suggestion, decide
from lostwax.grades import Grade
from reports.conftest import NASTY


@pytest.fixture
def both(audit_of):
    ceiling = lw.bound(noise_multiplier=20.0, baseline=0.02)
    safer = replace(audit_of("nothing"), ceiling=ceiling)
    return lw.compare(
        audit_of("rebuilt_pictures"), audit_of("of_pictures"), safer, names=("a", "b", "c"), accuracy=(0.9, None, 0.8)
    )


def test_numbers_are_the_audits(both, audit_of):
    first, second, third = both.audits
    audit = audit_of("rebuilt_pictures")
    assert (first.grade, first.success) == (Grade.EXACT, 1.0)
    assert (first.low, first.high) == audit.interval(120)
    assert first.suggestion is decide(audit).suggestion
    assert third.ceiling == lw.bound(noise_multiplier=20.0, baseline=0.02).upper
    assert second.accuracy is None
    assert 0 < second.nearer < 1
    assert both.differences == ()


def test_page_and_print_say_the_same(both, tmp_path):
    path = both.to_html(tmp_path / "comparison.html")
    page = html.unescape(path.read_text())
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    assert "<script" not in page
    for one in both.audits:
        assert one.headline in page
        assert one.success_in_words() in page
        assert one.success_in_words().replace("\N{NO-BREAK SPACE}", " ") in repr(both)
    for sentence in both.measured():
        assert sentence in page
    assert "accuracy 80.0\N{NO-BREAK SPACE}% instead of 90.0\N{NO-BREAK SPACE}%" in both.measured()[1]
    assert "accuracy" not in both.measured()[0]
    assert "100 %" in repr(both)


def test_audits_that_are_not_alike_are_called_so(audit_of):
    other = replace(audit_of("nothing"), threshold=0.1, threat="another", provenance={"data": "x"})
    found = lw.compare(audit_of("rebuilt_pictures"), other)
    assert [one.name for one in found.audits] == ["before", "after"]
    said = " ".join(found.differences)
    assert "the attacker differs between “before” and “after”" in said
    assert "the measure of success differs" in said
    assert "the data differ" in said
    assert "lw.audit" not in said
    undecided = lw.compare(audit_of("nothing"), audit_of("all_diverged"))
    assert "after is undecided: its success rate shows nothing." in undecided.differences


def test_the_suggestion_is_that_of_the_report(audit_of, tmp_path):
    """An audit that was read from a report with a policy keeps it."""
    lw.report(audit_of("nothing"), tmp_path, policy=lw.Policy(max_ceiling=0.5))
    assert "<strong>do not release</strong>" in (tmp_path / "report.html").read_text()
    alone, read = lw.compare(audit_of("nothing"), reports.read(tmp_path)).audits
    assert (alone.suggestion, read.suggestion) == (Suggestion.CHANGE, Suggestion.KEEP)


def test_names_are_text(audit_of, tmp_path):
    found = lw.compare(audit_of("nothing"), audit_of("of_pictures"), names=(NASTY, "b"))
    for page in (found.to_html(tmp_path / "page.html").read_text(), found._repr_html_()):
        assert "<script>" not in page
        assert "<img" not in page


def test_more_than_two_are_called_by_what_was_audited(audit_of):
    found = lw.compare(audit_of("nothing"), audit_of("one_game"), audit_of("nothing"))
    assert [one.name for one in found.audits] == [
        "Identity trained by Publishes (1)",
        "Ridge",
        "Identity trained by Publishes (3)",
    ]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"names": ("a",)}, "names to have one entry per audit"),
        ({"names": "ab"}, "names to have one entry per audit"),
        ({"names": ("a", "a")}, "names that differ"),
        ({"accuracy": (0.9, 85)}, "shares from 0 to 1"),
        ({"accuracy": (0.9,)}, "accuracy to have one entry"),
    ],
)
def test_slips_are_named(settings, why, audit_of):
    with pytest.raises(ValueError, match=f"^compare: expected .*{why}|^compare: expected {why}"):
        lw.compare(audit_of("nothing"), audit_of("one_game"), **settings)


def test_it_takes_audits(audit_of):
    with pytest.raises(TypeError, match=r"expected audits, results of lw\.audit"):
        lw.compare(audit_of("nothing"), "audit/")
    with pytest.raises(ValueError, match="2 to 12 audits, got 1"):
        lw.compare(audit_of("nothing"))
