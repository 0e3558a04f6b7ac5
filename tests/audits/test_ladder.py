import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression

import lostwax as lw
from lostwax.audits.conclusion import Ladder, Rung, untried
from lostwax.games import Adversary, Attacker, Sees
from lostwax.grades import Grade


@pytest.fixture(scope="module")
def wine_audit():
    X, y = load_wine(return_X_y=True)
    return lw.audit(LogisticRegression(max_iter=10_000).fit(X, y), (X, y))


ANYONE, OUTSIDER = Adversary(0, 100, "row"), Adversary(0, 100, "row", public=True)


def missing(k):
    return Adversary.insider(100, "row", missing=k)


RUNGS = st.builds(
    Rung,
    st.sampled_from([ANYONE, OUTSIDER, missing(1), missing(2), missing(8), replace(missing(1), sees=Sees.PREDICTIONS)]),
    st.one_of(st.none(), st.sampled_from(Grade)),
    rebuilt=st.integers(0, 5),
    tried=st.just(5),
)


@given(st.lists(RUNGS, min_size=1, max_size=8))
def test_who_knows_more_never_gets_a_better_grade(rungs):
    ladder = Ladder.of(rungs)
    for weaker in ladder.rungs:
        for stronger in ladder.rungs:
            if weaker.leaks and stronger.attacker.has_all_of(weaker.attacker) and stronger.attacker != weaker.attacker:
                assert stronger.grade.severity >= weaker.grade.severity


@given(st.lists(RUNGS, min_size=1, max_size=8))
def test_the_worst_grade_is_kept(rungs):
    grades = [rung.grade.severity for rung in rungs if rung.grade is not None]
    ladder = Ladder.of(rungs)
    assert ladder.grade is None if not grades else ladder.grade.severity == max(grades)


def test_the_weakest_with_the_worst_grade():
    ladder = Ladder.of([Rung(missing(1), Grade.EXACT), Rung(missing(8), Grade.EXACT), Rung(ANYONE, Grade.NOT_FOUND)])
    assert ladder.weakest(Grade.EXACT).attacker == missing(8)
    assert [rung.attacker for rung in ladder.rungs] == [ANYONE, missing(8), missing(1)]


def test_an_attacker_whom_nobody_played_can_do_what_weaker_ones_can():
    anyone, outsider = Ladder.of([Rung(OUTSIDER, None), Rung(ANYONE, Grade.EXACT, "search", 3, 5)]).rungs
    assert (outsider.grade, outsider.rebuilt, outsider.attack) == (Grade.EXACT, 3, "search")
    assert anyone.grade is Grade.EXACT


def test_the_margin_is_the_most_missing_records_that_come_back():
    curve = {1: 5, 2: 5, 4: 3, 8: 1, 16: 0}
    ladder = Ladder.of(Rung(missing(k), Grade.EXACT, rebuilt=won, tried=5) for k, won in curve.items())
    assert ladder.margin == 8
    assert list(ladder.by_missing) == [16, 8, 4, 2, 1]
    assert Ladder.of([Rung(missing(1), None)]).margin is None
    assert Ladder.of([Rung(missing(1), Grade.NOT_FOUND, tried=5)]).margin == 0


def test_kinds_without_an_attacker_are_listed_as_not_tried(wine_audit):
    kinds = {rung.attacker.kind: rung.grade for rung in wine_audit.attackers.rungs}
    assert kinds[Attacker.OUTSIDER] is None
    assert "not tried" in str(wine_audit)


def test_another_attacker_raises_the_grade_and_leads_the_page(wine_audit):
    read = replace(
        wine_audit,
        findings=wine_audit.findings[:1],
        rungs=(Rung(Adversary(0, 178, "row"), Grade.EXACT, "search of the file", 20, 178),),
    )
    assert read.grade is Grade.EXACT
    assert read.conclusion.headline == "Anyone who gets the file can read 20 of 178 rows."
    assert not read.conclusion.by_target


def test_the_headline_says_where_records_stop_coming_back(wine_audit):
    insiders = {2: 10, 4: 0}
    rungs = [
        Rung(Adversary.insider(178, "row", missing=k), Grade.EXACT if won else Grade.NOT_FOUND, "equations", won, 10)
        for k, won in insiders.items()
    ]
    audit = replace(wine_audit, findings=wine_audit.findings[:1], rungs=tuple(rungs))  # the model as released
    assert audit.conclusion.headline == (
        "Somebody who knows all but 2 rows can rebuild the missing ones; from 4 missing rows on nothing was rebuilt."
    )
    assert audit.attackers.margin == 2


def test_the_curve_ends_above_the_margin():
    ladder = Ladder.of(
        Rung(missing(k), Grade.EXACT if won else Grade.NOT_FOUND, rebuilt=won, tried=5)
        for k, won in {1: 5, 2: 0, 4: 1, 8: 0, 16: 0}.items()
    )
    assert (ladder.margin, ladder.fruitless) == (4, 8)


def test_several_missing_rows_that_nobody_tried_are_listed():
    ladder = Ladder.of((Rung(missing(1), Grade.EXACT, tried=5), *untried(missing(1), [Rung(missing(1), None)])))
    (several,) = [rung for rung in ladder.rungs if rung.attacker == missing(2)]
    assert several.grade is None


def test_who_has_both_files_is_not_who_has_one():
    both = replace(ANYONE, files=2)
    assert ANYONE in [rung.attacker for rung in untried(both, [Rung(both, Grade.NOT_FOUND)])]


def test_the_ladder_comes_back_from_a_file(wine_audit, tmp_path):
    tried = Rung(missing(2), Grade.EXACT, tried=60, games=30, worst_fitted=1)
    audit = replace(wine_audit, rungs=(Rung(ANYONE, None, reason="no time was left"), tried))
    assert lw.Audit.from_json(audit.to_json(tmp_path / "audit.json")).rungs == audit.rungs


def test_rungs_of_older_files_have_fewer_fields(wine_audit, tmp_path):
    path = replace(wine_audit, rungs=(Rung(missing(2), Grade.EXACT, rebuilt=2, tried=10),)).to_json(tmp_path / "a.json")
    plain = json.loads(path.read_text())
    for rung in plain["rungs"]:
        rung.pop("worst_fitted", None)
    path.write_text(json.dumps(plain))
    (rung,) = lw.Audit.from_json(path).rungs
    assert (rung.rebuilt, rung.worst_fitted) == (2, 0)
    del plain["rungs"], plain["adversary"]
    path.write_text(json.dumps(plain))
    assert lw.Audit.from_json(path).rungs == ()
