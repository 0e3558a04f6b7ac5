from dataclasses import replace

import pytest

from lostwax.metrics.estimate import median_interval, wilson
from lostwax.reports.numerals import at_most, number
from lostwax.reports.words import answer


@pytest.mark.parametrize(
    ("kind", "leaks", "headline"),
    [
        ("of_a_table", True, "Every record tried can be rebuilt from this model."),
        ("by_accident", True, "Records stay hidden only because training stopped early."),
        ("one_game", True, "The record tried can be rebuilt from this model."),
        ("of_pictures", True, "No record comes back exactly, but the model gives some away."),
        ("rebuilt_pictures", True, "Every record tried can be rebuilt from models trained this way."),
        ("nothing", False, "This attack rebuilds no record."),
        ("all_diverged", False, "This attack rebuilds no record."),
        ("candidates", True, "Whose record was used can be told from the model."),
    ],
)
def test_the_headline_says_what_was_found(kind, leaks, headline, audit_of):
    found = answer(audit_of(kind))
    assert found.leaks is leaks
    assert found.headline == headline
    assert found.advice


def test_several_attacks_are_not_called_one(audit_of):
    audit = audit_of("nothing")
    twice = replace(audit, findings=(audit.findings[0], replace(audit.findings[0], name="another")))
    found = answer(twice)
    assert found.headline == "The best of 2 attacks rebuilds no record."
    assert "That is the result of 2 attacks, no proof that none can." in found.sentences


def test_a_typical_error_has_its_interval(audit_of):
    audit = audit_of("of_pictures")
    low, high = median_interval(audit.findings[0].errors[audit.criterion])
    assert f"interval {number(low)} to {number(high)}" in answer(audit).facts[-1].detail
    assert "interval" not in answer(audit_of("one_game")).facts[-1].detail


def test_counts_and_interval_are_the_audits(audit_of):
    audit = audit_of("candidates")
    won, played = int(audit.findings[0].rebuilt.sum()), len(audit.games)
    found = answer(audit)
    assert found.sentences[0].startswith(f"In {won} of {played} games the right record is picked out of 8 candidates")
    low, high = wilson(won, played)
    assert f"{100 * low:.0f}\N{NO-BREAK SPACE}% to {100 * high:.0f}\N{NO-BREAK SPACE}%" in found.facts[0].detail


def test_few_games_say_how_little_they_show(audit_of):
    assert "With so few games" in " ".join(answer(audit_of("one_game")).sentences)
    assert "With so few games" not in " ".join(answer(audit_of("of_a_table")).sentences)


def test_a_ceiling_is_named_at_once(audit_of):
    found = answer(audit_of("under_a_ceiling"))
    ceiling = audit_of("under_a_ceiling").ceiling.upper
    assert f"it succeeds in at most {at_most(ceiling)} of games" in found.sentences[-1]
    assert found.advice[0].startswith("The ceiling holds for every attack")
