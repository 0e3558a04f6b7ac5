"""One grade, from the numbers alone, that page, print, file and gate agree on."""

import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lostwax as lw
from lostwax.audits import Finding
from lostwax.audits.audit import Audit
from lostwax.audits.ceiling import privacy_of
from lostwax.audits.decision import Suggestion, decide
from lostwax.audits.luck import Luck
from lostwax.games import Guess, Records
from lostwax.games.notes import as_notes
from lostwax.grades import Grade
from lostwax.numerals import round_up

CRITERION, MSE = "RMSE in feature standard deviations", "mean squared error"
TUTORIAL = lw.Policy(max_grade="not found", max_rebuilt_share=0.05)


def luck_of(errors, baseline, threshold, groups, chance):
    """What a comparison with other secrets holds: own games won, by groups, beside these shares by luck."""
    numbers = np.arange(len(errors)) if groups is None else groups
    first = np.unique(numbers, return_index=True)[1]
    return Luck(
        games=len(first),
        rebuilt=float((errors <= threshold)[first].sum()),
        nearer=float((errors < baseline)[first].sum()),
        **chance,
    )


def finding(name, errors, threshold, luck):
    errors = np.asarray(errors, dtype=float)
    n = len(errors)
    guess = Guess(Records(torch.zeros(n, 1, 2), torch.zeros(n, 1)), torch.zeros(n, 1))
    return Finding(
        name=name,
        guess=guess,
        errors={CRITERION: errors, MSE: errors**2},
        rebuilt=errors <= threshold,
        labels_right=np.zeros(n, dtype=bool),
        seconds=0.0,
        luck=luck,
    )


def audit_of(*lines, baseline, kind="this procedure", metric=CRITERION, threshold=0.05, **more):
    """An audit with lines (errors, luck) that all face the baseline's errors."""
    baseline = np.asarray(baseline, dtype=float)
    n = len(baseline)
    names = ("as released", "as converged") if kind == "this model" else ("A", "B", "C")
    found = tuple(
        finding(
            name,
            errors,
            threshold,
            None if chance is None else luck_of(errors, baseline, threshold, more.get("groups"), chance),
        )
        for name, (errors, chance) in zip(names, lines, strict=False)
    )
    return Audit(
        **{
            "subject": "a model",
            "kind": kind,
            "threat": "an adversary",
            "attack": "attacks",
            "metric": metric,
            "criterion": CRITERION,
            "threshold": threshold,
            "games": np.arange(n),
            "population": n,
            "truth": Records(torch.zeros(n, 2), torch.zeros(n)),
            "findings": found,
            "baselines": {"nearest record": {CRITERION: baseline, MSE: baseline**2}},
            "oracle": "nearest record",
            "provenance": {"seed": 0},
            **more,
        }
    )


CHANCE = {"rebuilt_by_luck": 0.001, "closest": 1.0, "nearer_by_luck": 0.05, "farther": 0.5}
FAR = np.full(100, 2.0)


@pytest.mark.parametrize(
    ("errors", "luck", "grade"),
    [
        (np.full(100, 1e-9), CHANCE, Grade.EXACT),
        (np.where(np.arange(100) == 0, 1e-9, 3.0), CHANCE | {"closest": 1e-6}, Grade.EXACT),  # one is enough
        (np.where(np.arange(100) == 0, 0.04, 3.0), CHANCE | {"closest": 0.02}, Grade.UNDECIDED),  # or luck?
        (np.where(np.arange(100) == 0, 0.04, 3.0), CHANCE | {"rebuilt_by_luck": 0.01}, Grade.NOT_FOUND),  # luck
        (np.full(100, 0.5), CHANCE, Grade.RECOGNISABLE),
        (np.where(np.arange(100) < 5, 0.5, 3.0), CHANCE, Grade.NOT_FOUND),  # as many as luck gives
        (np.full(100, 3.0), CHANCE | {"farther": 0.7}, Grade.BETTER_THAN_CHANCE),
        (np.full(100, 3.0), CHANCE | {"farther": 0.55}, Grade.NOT_FOUND),
        (np.full(100, np.inf), CHANCE, Grade.UNDECIDED),  # guesses that are no numbers show nothing
    ],
)
def test_a_line_is_graded_by_what_luck_would_give(errors, luck, grade):
    assert audit_of((errors, luck), baseline=FAR).grade is grade


def test_the_worst_line_leads():
    hidden, bare = (np.full(100, 3.0), CHANCE), (np.full(100, 1e-9), CHANCE)
    audit = audit_of(hidden, bare, baseline=FAR, kind="this model")
    assert audit.grade is Grade.EXACT
    assert audit.conclusion.line.name == "as converged"
    assert audit.conclusion.headline == "Every record tried can be rebuilt from this model at its optimum."
    assert "As released, none of 100 do" in str(audit).replace("\n", " ")


def test_only_the_line_as_converged_is_about_the_optimum():
    """Of a forest, the line without the order of rows can be a little better by luck."""
    audit = audit_of((np.full(100, 0.5), CHANCE), (np.full(100, 1e-9), CHANCE), baseline=FAR, kind="this model")
    lines = (audit.findings[0], replace(audit.findings[1], name="order of rows unknown"))
    audit = replace(audit, findings=lines)
    assert audit.conclusion.line.name == "order of rows unknown"
    assert audit.conclusion.headline == "Every record tried can be rebuilt from this model."
    assert "solver" not in str(audit)


def test_records_are_compared_one_by_one_not_by_their_number():
    """80 duplicates are found without the model; 37 of 40 others only with it."""
    had = np.arange(120) < 80
    errors = np.where(np.arange(120) < 83, 3.0, 1e-9)
    audit = audit_of((errors, CHANCE), baseline=np.where(had, 0.0, 2.0))
    assert audit.grade is Grade.EXACT
    assert audit.conclusion.line.rebuilt == 37
    assert audit.conclusion.headline == "Some records can be rebuilt from models trained this way."


def test_a_row_that_others_have_too_is_still_given_away():
    """Every record has a twin that the adversary knows: which one it is, only the model tells."""
    audit = audit_of((np.full(100, 1e-9), CHANCE | {"rebuilt_by_luck": 0.05}), baseline=np.zeros(100))
    assert audit.grade is Grade.EXACT
    assert "For 100 of them the adversary has a record that is as close" in " ".join(audit.conclusion.sentences)


def test_under_few_games_finding_nothing_is_undecided_but_a_leak_is_a_leak():
    none = audit_of((np.full(10, 3.0), CHANCE), baseline=FAR[:10])
    assert none.grade is Grade.UNDECIDED
    assert none.conclusion.open == ("10 independent games are too few to find nothing: run 30 or more.",)
    assert audit_of((np.full(10, 1e-9), CHANCE), baseline=FAR[:10]).grade is Grade.EXACT
    every = audit_of((np.full(10, 3.0), CHANCE), baseline=FAR[:10], kind="this model")
    assert every.grade is Grade.NOT_FOUND  # all rows there are were tried


def test_equal_secrets_are_one_game():
    errors = np.where(np.arange(100) < 30, 0.5, 3.0)
    assert audit_of((errors, CHANCE), baseline=FAR).grade is Grade.RECOGNISABLE
    alike = audit_of((errors, CHANCE), baseline=FAR, groups=np.arange(100) // 20)
    assert alike.victims == 5
    assert alike.grade is Grade.UNDECIDED


@pytest.mark.parametrize(
    ("won", "grade"), [(100, Grade.RECOGNISABLE), (25, Grade.BETTER_THAN_CHANCE), (12, Grade.NOT_FOUND)]
)
def test_candidates_are_graded_by_degrees(won, grade):
    errors = np.where(np.arange(100) < won, 0.0, 1.0)
    audit = audit_of((errors, None), baseline=FAR, chance=0.1, threshold=0.0)
    assert audit.grade is grade


def test_more_candidates_named_than_guessing_usually_does_is_no_all_clear():
    """2 of 60 of 390 candidates: too few for a leak at a level of 1 %, thirteen times what guessing gives."""
    errors = np.where(np.arange(60) < 2, 0.0, 1.0)
    audit = audit_of((errors, None), baseline=np.full(60, 5.0), chance=1 / 390, threshold=0.0)
    assert audit.grade is Grade.UNDECIDED
    assert "run more games to rule it out" in audit.conclusion.open[0]
    assert (
        audit_of((np.ones(60), None), baseline=np.full(60, 5.0), chance=1 / 390, threshold=0.0).grade is Grade.NOT_FOUND
    )


def proven(noise, chance, steps=1, rate=1.0):
    """What an audit of a mechanism holds, where guessing succeeds so often."""
    mechanism = {"noise_multiplier": noise, "sample_rate": rate, "steps": steps}
    return {"ceiling": lw.bound(**mechanism, baseline=chance), "privacy": privacy_of(mechanism)}


def test_a_certified_ceiling_limits_the_grade_and_is_stated_beside_what_was_found():
    low, high = (proven(noise, 0.1) for noise in (3.0, 0.1))
    nothing = (np.full(100, 1.0), None)
    some = (np.where(np.arange(100) < 22, 0.0, 1.0), None)
    named = {"baseline": FAR, "chance": 0.1, "threshold": 0.0}
    assert audit_of(nothing, **low, **named).grade is Grade.LIMITED
    assert audit_of(nothing, **low, unanswered=("Newton was stopped.",), **named).grade is Grade.LIMITED
    assert audit_of(nothing, **high, **named).grade is Grade.NOT_FOUND  # it limits next to nothing
    doubtful = low | {"ceiling": replace(low["ceiling"], certified=False)}
    assert audit_of(nothing, **doubtful, **named).grade is Grade.NOT_FOUND
    membership = replace(low["privacy"].membership, certified=False)
    doubtful = low | {"privacy": replace(low["privacy"], membership=membership)}
    assert audit_of(nothing, **doubtful, **named).grade is Grade.NOT_FOUND
    assert audit_of(nothing, ceiling=low["ceiling"], **named).grade is Grade.NOT_FOUND  # with fewer candidates?
    found = audit_of(some, **low, **named)
    assert found.grade is Grade.BETTER_THAN_CHANCE
    epsilon = f"epsilon {round_up(low['privacy'].epsilon)} at delta 1e-05 (add or remove one record)"
    for words in ("Whatever the attack, it succeeds in at most", epsilon, "told in at most 63.1 % of cases"):
        assert words in str(found)


@pytest.mark.parametrize("won", [0, 0.2, 0.9])
@pytest.mark.parametrize(
    "mechanism", [(0.5, 1, 1.0), (1.3, 1, 1.0), (3.0, 2, 1.0), (10.0, 1, 1.0), (1.0, 50, 0.02), (2.0, 40, 0.05)]
)
def test_more_candidates_do_not_improve_grade_or_suggestion(mechanism, won):
    """The same training and as good an attack: what is said of it is no better where guessing is harder."""
    noise, steps, rate = mechanism
    grades, suggestions = [], []
    for candidates in (2, 3, 10, 100, 1_000, 100_000):
        chance = 1 / candidates
        right = np.arange(400) < 400 * (chance + won * (1 - chance))
        line = (np.where(right, 0.0, 1.0), None)
        audit = audit_of(
            line, baseline=np.full(400, 5.0), chance=chance, threshold=0.0, **proven(noise, chance, steps, rate)
        )
        grades.append(audit.grade.severity)
        suggestions.append([*Suggestion].index(decide(audit).suggestion))
    assert grades == sorted(grades)
    assert suggestions == sorted(suggestions)


shares = st.floats(0, 1)
lucks = st.fixed_dictionaries(
    {
        "rebuilt_by_luck": st.sampled_from([0.0, 1e-3, 0.01, 0.2]),
        "closest": st.sampled_from([0.0, 1e-5, 1e-3, 0.03, 1.0]),
        "nearer_by_luck": st.sampled_from([0.0, 0.02, 0.2, 0.6]),
        "farther": st.sampled_from([0.4, 0.5, 0.55, 0.7, 1.0]),
    }
)
SHARES = ("rebuilt_by_luck", "closest", "nearer_by_luck", "farther")
sizes = st.sampled_from([0.0, 1e-12, 1e-4, 0.04, 0.06, 0.5, 1.5, 3.0, np.inf])


@st.composite
def audits(draw):
    """Audits of all kinds: few games and many, one line or more, candidates, ceilings, equal secrets, gaps."""
    kind, games = draw(st.sampled_from(["this model", "this procedure"])), draw(st.sampled_from([1, 4, 12, 40, 150]))
    seed = draw(st.integers(0, 2**31))
    random = np.random.default_rng(seed)
    chance = draw(st.sampled_from([None, 0.1, 0.5])) if kind == "this procedure" else None
    lines = []
    for _ in range(draw(st.integers(1, 2))):
        small, large, share = draw(sizes), draw(sizes), draw(shares)
        errors = np.where(random.random(games) < share, small, large)
        lines.append((errors, None if chance is not None else draw(st.none() | lucks)))
    baseline = np.where(random.random(games) < draw(st.sampled_from([0.0, 0.3])), 0.0, 1.0)
    proof = {}
    if chance is not None and draw(st.booleans()):
        proof = proven(draw(st.sampled_from([0.1, 1.0, 5.0])), chance)
        proof["ceiling"] = replace(proof["ceiling"], certified=draw(st.booleans()))
    return audit_of(
        *lines,
        baseline=baseline,
        kind=kind,
        metric=draw(st.sampled_from([CRITERION, MSE])),
        threshold=0.0 if chance is not None else 0.05,
        chance=chance,
        **proof,
        population=games * draw(st.sampled_from([1, 3])),
        groups=draw(st.sampled_from([None, np.arange(games) // 2])),
        unanswered=draw(st.sampled_from([(), ("Newton was stopped.",)])),
    )


MANY = settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))


@MANY
@given(audit=audits())
def test_page_print_file_and_gate_agree(audit, tmp_path_factory):
    folder = tmp_path_factory.mktemp("audit")
    grade = audit.grade
    printed = str(audit)
    assert f"grade: {grade}\n" in printed
    assert audit.conclusion.headline in " ".join(printed.split()) or "\N{NO-BREAK SPACE}" in audit.conclusion.headline
    path = audit.to_json(folder / "audit.json")
    assert json.loads(path.read_text())["conclusion"]["grade"] == grade
    assert lw.Audit.from_json(path).conclusion == audit.conclusion
    breaches = TUTORIAL.breaches(audit)
    if grade.leaks or grade is Grade.UNDECIDED:
        assert breaches
    if not breaches:
        assert grade in (Grade.NOT_FOUND, Grade.LIMITED)


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(audit=audits())
def test_the_page_shows_the_same_grade_and_its_colour(audit):
    from lostwax.reports.charts import drawn
    from lostwax.reports.html import render

    page = render(audit, drawn(audit), records=False)
    tone, grade, headline = re.search(
        r'class="verdict (\w+)".*?class="grade">([^<]+)<.*?<h1 id="verdict">(.*?)</h1>', page, re.DOTALL
    ).groups()
    assert (tone, grade, unescape(headline)) == (decide(audit).suggestion.tone, audit.grade, audit.conclusion.headline)


@MANY
@given(audit=audits(), times=st.sampled_from([2, 5]))
def test_the_same_shares_from_more_games_never_lower_a_leak(audit, times):
    if not audit.grade.leaks:
        return
    n = len(audit.games)
    lines = [
        (np.tile(line.errors[CRITERION], times), line.luck and {name: getattr(line.luck, name) for name in SHARES})
        for line in audit.findings
    ]
    groups = np.concatenate([(audit.games if audit.groups is None else audit.groups) + n * one for one in range(times)])
    more = audit_of(
        *lines,
        baseline=np.tile(audit.baselines["nearest record"][CRITERION], times),
        kind=audit.kind,
        metric=audit.metric,
        threshold=audit.threshold,
        chance=audit.chance,
        ceiling=audit.ceiling,
        privacy=audit.privacy,
        population=times * audit.population,
        groups=groups,
        unanswered=audit.unanswered,
    )
    assert more.grade.severity >= audit.grade.severity


@MANY
@given(audit=audits())
def test_nothing_that_is_added_undoes_an_exact_recovery(audit):
    if audit.grade is not Grade.EXACT:
        return
    proof = proven(5.0, 0.1)
    assert replace(audit, unanswered=("Newton was stopped.",)).grade is Grade.EXACT
    assert replace(audit, **proof).grade is Grade.EXACT
    assert replace(audit, notes=as_notes(["a note"])).grade is Grade.EXACT
