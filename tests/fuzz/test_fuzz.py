"""The fast part of `make fuzz`: no raw traceback, nothing slow, nothing silently wrong."""

from fuzz.suite import bugs, describe, run


def test_three_hundred_hostile_inputs():
    found = run(300, seed=0)
    print(describe(found))
    assert not bugs(found), describe(found)
