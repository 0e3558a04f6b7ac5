import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostwax.cli import main

COMMANDS = ["demo", "init", "audit", "report", "simulate", "words", "list", "bound", "calibrate"]


@pytest.mark.parametrize(
    "line",
    ["adit recipe.py", "--verzion", "audit r.py --polcy f", "bound --steps=3 --basline=1", "list attack"],
)
def test_a_slip_ends_with_exit_code_2(line):
    assert main(line.split()) == 2


@settings(max_examples=150, deadline=None)
@given(
    words=st.lists(
        st.one_of(st.sampled_from([*COMMANDS, "--out", "--steps", "--json", "x"]), st.text(max_size=8)), max_size=4
    )
)
def test_any_words_end_with_an_exit_code(words):
    """Usage errors alone: what would be run takes its arguments from files, which are not there."""
    if words[:1] in (["demo"], ["list"], ["init"]):
        words = [words[0], "--no-such-option"]
    assert main(words) in (0, 2)
