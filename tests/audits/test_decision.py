"""The suggestion follows from grade, ceiling and policy, and nothing contradicts it."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lostwax as lw
from audits.test_conclusion import CHANCE, FAR, audit_of, audits, proven
from lostwax.audits.audit import TargetRead
from lostwax.audits.conclusion import most_advantage
from lostwax.audits.decision import LOW, Suggestion, decide
from lostwax.audits.membership import MembershipFinding
from lostwax.games import Adversary
from lostwax.grades import Grade

POLICIES = [
    lw.Policy(max_grade="not found"),
    lw.Policy(max_grade="recognisable"),
    lw.Policy(max_grade="limited by proof"),
    lw.Policy(max_rebuilt_share=0.5, max_nearer_share=0.9),
    lw.Policy(max_ceiling=0.99),
]
SAFE = re.compile(r"\b(safe|anonymous|no risk|harmless|all-clear|protected)\b", re.IGNORECASE)


def of_every_grade():
    """One audit of each grade."""
    luck, few = CHANCE, np.where(np.arange(100) < 50, 0.5, 3.0)
    near = CHANCE | {"nearer_by_luck": 0.05}
    found = [
        audit_of((np.full(100, 1e-9), luck), baseline=FAR),
        audit_of((few, near), baseline=FAR),
        audit_of((np.full(100, 3.0), luck | {"farther": 0.9}), baseline=FAR),
        audit_of((np.full(100, 3.0), luck), baseline=FAR, unanswered=("Newton was stopped.",)),
        audit_of((np.full(100, 3.0), luck), baseline=FAR),
        audit_of(
            (np.where(np.arange(100) < 10, 0.0, 1.0), None),
            baseline=FAR,
            chance=0.1,
            threshold=0.0,
            **proven(20.0, 0.1),
        ),
    ]
    assert {audit.grade for audit in found} == set(Grade)
    return {audit.grade: audit for audit in found}


ALL = of_every_grade()
OTHERS = "Somebody who knows all other records"


def test_a_small_leak_in_a_model_that_was_audited_in_part_is_no_reason_to_release():
    small = ALL[Grade.BETTER_THAN_CHANCE]
    partly = replace(small, unanswered=("PowerTransformer was not read completely.",))
    assert (partly.grade, decide(partly).suggestion) == (small.grade, Suggestion.KEEP)
    assert "only in part" in decide(partly).reason


def test_a_target_is_not_named_where_membership_gives_the_grade():
    clean = ALL[Grade.NOT_FOUND]
    n = len(clean.games)
    read, guessed = np.arange(n)[:, None] < n // 3, np.zeros((n, 1), dtype=bool)
    target = TargetRead(read, guessed, guessed, np.ones(n, dtype=bool))
    small = replace(clean, findings=(replace(clean.findings[0], target=target),))
    assert (small.grade, small.conclusion.by_target) == (Grade.BETTER_THAN_CHANCE, True)
    assert "read the target" in decide(small).reason
    audit = replace(small, membership=MembershipFinding(64, np.ones(40), np.ones(40)))
    assert (audit.grade, audit.conclusion.by_target) == (Grade.RECOGNISABLE, False)
    assert "recognise training records" in decide(audit).reason
    assert "who took part" in decide(audit).people


@pytest.mark.parametrize(
    ("grade", "alone", "kept"),
    [
        (Grade.EXACT, Suggestion.KEEP, Suggestion.CHANGE),
        (Grade.RECOGNISABLE, Suggestion.KEEP, Suggestion.CHANGE),
        (Grade.BETTER_THAN_CHANCE, Suggestion.CHANGE, Suggestion.CHANGE),
        (Grade.UNDECIDED, Suggestion.KEEP, Suggestion.KEEP),
        (Grade.NOT_FOUND, Suggestion.CHANGE, Suggestion.RELEASE),
        (Grade.LIMITED, Suggestion.RELEASE, Suggestion.RELEASE),
    ],
)
def test_every_grade_has_its_suggestion(grade, alone, kept):
    audit = ALL[grade]
    assert decide(audit).suggestion is alone
    assert decide(audit, []).suggestion is kept
    assert decide(audit, ["max_grade"]).suggestion is Suggestion.KEEP
    assert decide(audit).policy is None
    assert "broken" in decide(audit, ["max_grade"]).policy


def test_the_colour_is_that_of_the_suggestion():
    assert [one.tone for one in Suggestion] == ["calm", "warning", "alarm"]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(audit=audits(), policy=st.sampled_from([None, *POLICIES]))
def test_gate_grade_and_suggestion_never_contradict_each_other(audit, policy):
    breaches = None if policy is None else [str(breach) for breach in policy.breaches(audit)]
    found = decide(audit, breaches)
    if breaches:  # exit code 1
        assert found.suggestion is Suggestion.KEEP
    if breaches == []:  # exit code 0
        assert found.suggestion is not Suggestion.KEEP
        assert audit.grade is not Grade.UNDECIDED
    if audit.grade is Grade.UNDECIDED:
        assert found.suggestion is Suggestion.KEEP
    if found.suggestion is Suggestion.RELEASE:
        assert not audit.grade.leaks
        assert breaches == [] or most_advantage(audit) <= LOW
    if audit.grade.leaks:
        assert found.suggestion is not Suggestion.RELEASE
    for text in (found.reason, found.people, found.residual, *audit.conclusion.open):
        for word in SAFE.finditer(text):
            before = text[: word.start()]
            assert re.search(r"\b(not|neither)\b", before), text


@pytest.mark.parametrize("grade", [Grade.UNDECIDED, Grade.NOT_FOUND])
def test_nothing_found_is_no_evidence_of_safety(grade):
    found = decide(ALL[grade])
    assert found.suggestion.tone != "calm"
    said = " ".join((found.reason, found.people))
    assert "not a proof" in said or "neither" in said


def test_a_high_ceiling_asks_for_more_noise():
    audit = replace(ALL[Grade.LIMITED], **proven(2.0, 0.1))
    assert audit.grade is Grade.LIMITED
    assert audit.ceiling.advantage < LOW < most_advantage(audit)  # two candidates are told apart more often
    found = decide(audit)
    assert found.suggestion is Suggestion.CHANGE
    assert "more noise" in found.reason


def test_a_sample_says_so():
    audit = replace(ALL[Grade.NOT_FOUND], population=300)
    assert "up to 3.6\N{NO-BREAK SPACE}% of records" in decide(audit).residual


@pytest.mark.parametrize(
    ("access", "who"),
    [
        (lw.access.Weights(), f"{OTHERS} can"),
        (lw.access.Outputs(), f"{OTHERS} and can query the model can"),
        (lw.access.Logits(torch.zeros(16, 2)), f"{OTHERS} and can query the model can"),
        (lw.access.Layers("fc"), f"{OTHERS} and gets the layers that are given out can"),
        (object(), f"{OTHERS} and gets the layers that are given out can"),  # an access that states nothing
    ],
)
@pytest.mark.parametrize("grade", [Grade.EXACT, Grade.RECOGNISABLE])
def test_the_reason_names_what_the_attacker_sees(access, who, grade):
    audit = replace(ALL[grade], adversary=Adversary.of(access, 99, 100))
    assert decide(audit).reason.startswith(who)
    assert ("from the predictions" in decide(audit).people) == ("query" in who and grade is Grade.EXACT)
