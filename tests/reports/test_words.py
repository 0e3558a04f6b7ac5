from dataclasses import replace

import pytest

from lostwax.metrics.estimate import median_interval, wilson
from lostwax.reports.numerals import at_most, number
from lostwax.reports.words import answer


@pytest.mark.parametrize(
    ("kind", "leaks", "headline"),
    [
        ("of_a_table", True, "Every record tried can be rebuilt from this model."),
        ("by_accident", True, "Records stay hidden only until the model is trained to the end."),
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


def test_no_all_clear_where_an_attack_has_no_answer(audit_of):
    found = answer(replace(audit_of("nothing"), unanswered=("Newton was stopped.",)))
    assert found.headline == "This attack rebuilds no record, but not all was tried."
    assert found.sentences[-1] == "One attack that can play has no answer, and might do better: this audit cannot tell."
    assert found.advice[0].startswith("Allow more minutes (max_minutes)")
    rebuilt = audit_of("rebuilt_pictures")
    assert answer(replace(rebuilt, unanswered=("Newton was stopped.",))) == answer(rebuilt)  # there is no more to find


def test_hidden_by_an_early_stop_or_by_other_rows_or_weights(audit_of):
    found = answer(audit_of("by_accident"))
    assert "or that the model was fitted on other rows or weights than these" in found.sentences[0]
    assert any("sample weights" in one for one in found.advice)


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
