from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

import lostwax as lw
from lostwax.games import Adversary, Attacker, Sees

ATTACKERS = st.builds(
    Adversary,
    known=st.integers(0, 10),
    records=st.just(10),
    sees=st.sampled_from(Sees),
    files=st.integers(1, 2),
    public=st.booleans(),
)


def test_kinds_from_what_is_known():
    assert Adversary(0, 10).kind is Attacker.ANYONE
    assert Adversary(0, 10, public=True).kind is Attacker.OUTSIDER
    assert Adversary.insider(10).kind is Attacker.INSIDER
    assert Adversary().kind is Attacker.INSIDER  # not stated
    assert Adversary.of(lw.access.Weights(), 0, 10).kind is Attacker.OUTSIDER  # a prior is public


def test_missing_records():
    assert Adversary.insider(10).missing == 1
    assert Adversary.insider(10, missing=4).known == 6
    assert Adversary(0, 10).missing == 10
    assert Adversary().missing is None


def test_who_has_more():
    anyone = Adversary(0, 10)
    insider = Adversary.insider(10)
    caller = replace(insider, sees=Sees.PREDICTIONS)
    assert insider.has_all_of(anyone)
    assert insider.has_all_of(caller)
    assert not caller.has_all_of(insider)
    assert not caller.has_all_of(anyone)  # who has the file
    assert not insider.has_all_of(replace(anyone, files=2))


@given(ATTACKERS, ATTACKERS, ATTACKERS)
def test_it_is_an_order(first, second, third):
    assert first.has_all_of(first)
    if first.has_all_of(second) and second.has_all_of(third):
        assert first.has_all_of(third)
    if first.has_all_of(second):
        assert first.has >= second.has  # sorted by it, the weaker comes first
