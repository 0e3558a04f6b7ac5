from dataclasses import replace

import pytest

from lostwax.grades import Grade
from lostwax.metrics.estimate import clopper_pearson, median_interval
from lostwax.numerals import at_most, number
from lostwax.reports.advice import answer

RECORDS = "somebody who knows all other records"
QUERIES = (
    "Somebody who knows all other rows and can query the model can rebuild the missing one; from 2 missing rows on "
    "nothing was rebuilt."
)


@pytest.mark.parametrize(
    ("kind", "grade", "tone", "headline"),
    [
        ("of_a_table", Grade.EXACT, "alarm", QUERIES),
        (
            "by_accident",
            Grade.EXACT,
            "alarm",
            "Somebody who knows all but 2 rows can rebuild the missing ones from the model at its optimum; from 3 "
            "missing rows on nothing was rebuilt.",
        ),
        ("one_game", Grade.EXACT, "alarm", QUERIES),
        (
            "of_pictures",
            Grade.RECOGNISABLE,
            "alarm",
            f"Records can be recognised in what is rebuilt from models trained this way by {RECORDS}.",
        ),
        (
            "rebuilt_pictures",
            Grade.EXACT,
            "alarm",
            f"Every record tried can be rebuilt from models trained this way by {RECORDS}.",
        ),
        ("nothing", Grade.NOT_FOUND, "warning", "This attack rebuilds no record."),
        (
            "all_diverged",
            Grade.UNDECIDED,
            "alarm",
            "Undecided: this audit cannot tell whether records can be rebuilt.",
        ),
        (
            "candidates",
            Grade.BETTER_THAN_CHANCE,
            "warning",
            f"Secrets are picked out of the candidates by {RECORDS}, more often than by guessing.",
        ),
    ],
)
def test_the_first_screen_says_what_was_found(kind, grade, tone, headline, audit_of):
    found = answer(audit_of(kind))
    assert found.conclusion.grade is grade
    assert found.tone == tone
    assert found.conclusion.headline == headline
    assert found.advice


def test_several_attacks_are_not_called_one(audit_of):
    audit = audit_of("nothing")
    twice = replace(audit, findings=(audit.findings[0], replace(audit.findings[0], name="another")))
    found = answer(twice).conclusion
    assert found.headline == "The best of 2 attacks rebuilds no record."
    assert "This is the result of 2 attacks, not a proof that no attack can." in found.sentences


def test_no_all_clear_where_an_attack_has_no_answer(audit_of):
    found = answer(replace(audit_of("nothing"), unanswered=("Newton was stopped.",)))
    assert found.conclusion.grade is Grade.UNDECIDED
    assert found.conclusion.open == ("Not answered: Newton was stopped.",)
    assert found.advice[0].startswith("Allow more minutes (max_minutes)")
    rebuilt = audit_of("rebuilt_pictures")
    assert answer(replace(rebuilt, unanswered=("Newton was stopped.",))) == answer(rebuilt)  # there is no more to find


def test_hidden_by_an_early_stop_or_by_other_rows_or_weights(audit_of):
    found = answer(audit_of("by_accident"))
    assert "or the model was fitted on other rows or weights" in found.conclusion.sentences[1]
    assert [fact.name for fact in found.facts[:2]] == ["rebuilt at the optimum", "rebuilt as released"]
    assert any("sample weights" in one for one in found.advice)


def test_only_an_audit_without_a_policy_is_advised_to_set_one(audit_of):
    audit = audit_of("nothing")
    assert any("policy=" in one for one in answer(audit).advice)
    assert not any("policy=" in one for one in answer(audit, breaches=()).advice)


def test_a_typical_error_has_its_interval(audit_of):
    audit = audit_of("of_pictures")
    low, high = median_interval(audit.findings[0].errors[audit.criterion])
    assert f"interval {number(low)} to {number(high)}" in answer(audit).facts[-1].detail
    assert "interval" not in answer(audit_of("one_game")).facts[-1].detail


def test_each_share_has_its_own_interval(audit_of):
    audit = audit_of("of_pictures")
    line = audit.conclusion.line
    assert 0 < line.nearer < 120
    low, high = clopper_pearson(line.nearer, 120)
    fact = next(fact for fact in answer(audit).facts if fact.name == "closer than every baseline")
    shown = f"{100 * low:.0f}\N{NO-BREAK SPACE}% to {100 * high:.0f}\N{NO-BREAK SPACE}%"
    assert shown in fact.detail
    assert shown in " ".join(audit.conclusion.sentences)
    assert "luck alone gives at most about" in fact.detail


def test_counts_and_interval_are_the_audits(audit_of):
    audit = audit_of("candidates")
    won, played = int(audit.findings[0].rebuilt.sum()), len(audit.games)
    found = answer(audit)
    assert found.conclusion.sentences[0].startswith(f"In {won} of {played} games")
    low, high = clopper_pearson(won, played)
    assert f"{100 * low:.0f}\N{NO-BREAK SPACE}% to {100 * high:.0f}\N{NO-BREAK SPACE}%" in found.facts[0].detail


def test_a_ceiling_is_named_at_once(audit_of):
    found = answer(audit_of("under_a_ceiling"))
    ceiling = audit_of("under_a_ceiling").ceiling.upper
    assert f"it succeeds in at most {at_most(ceiling)} of games" in found.conclusion.sentences[-1]
    assert found.advice[0].startswith("A ceiling holds for every attack")
