import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lostwax.cli import main
from lostwax.cli.commands import COMMANDS, KAPPAS, misspelt

ALL = {**COMMANDS, "kappa": KAPPAS}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("adit recipe.py", "lostwax has no command adit. Did you mean audit? See lostwax --help."),
        ("xyz", "lostwax has no command xyz. See lostwax --help."),
        ("--verzion", "lostwax has no option --verzion."),
        (
            "audit r.py --polcy f",
            "lostwax audit has no option --polcy. Did you mean --policy? See lostwax audit --help.",
        ),
        ("bound --steps=3 --basline=1", "lostwax bound has no option --basline. Did you mean --baseline?"),
        ("audit r.py --no-record", "Did you mean --no-records?"),
        ("bound --clip 1", "lostwax bound has no option --clip. See lostwax bound --help."),
        ("bound --noise 1", "lostwax bound has no option --noise. Did you mean --noise-multiplier?"),
        ("audit r.py --games 5", "lostwax audit has no option --games. It is a name in the recipe: games = ..."),
        ("kappa bal --eta 1", "lostwax kappa has no command bal. Did you mean ball?"),
        (
            "list attack",
            "lostwax list: unknown attack. Did you mean attacks? Expected attacks, trainers, metrics, bounds.",
        ),
        ("init tourch --out f.py", "lostwax init: unknown tourch. Did you mean torch?"),
        ("simulate r.py --models 1 --store s --engine rey", "lostwax simulate: unknown rey. Did you mean ray?"),
        ("bound --noise-multiplier 1 --sampling=posson", "Did you mean poisson?"),
    ],
)
def test_a_slip_gets_a_suggestion_and_exit_code_2(line, words, capsys):
    assert main(line.split()) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--help",
        "audit --help",
        "list bounds",
        "init --out r.py head",
        "bound --sampling fixed",
        "bound --sampling",
        "bound --noise_multiplier 1 --log-baseline -3",
        "bound --no-json",
        "kappa -h",
    ],
)
def test_what_is_right_is_left_alone(line):
    assert misspelt(line.split(), ALL) is None


@settings(max_examples=150, deadline=None)
@given(
    words=st.lists(
        st.one_of(st.sampled_from([*ALL, "--out", "--steps", "--json", "x"]), st.text(max_size=8)), max_size=4
    )
)
def test_any_words_end_with_an_exit_code(words):
    """Usage errors alone: what would be run takes its arguments from files, which are not there."""
    if words[:1] in (["demo"], ["list"], ["init"]):
        words = [words[0], "--no-such-option"]
    try:
        code = main(words)
    except SystemExit as stop:
        code = stop.code
    assert code in (0, 2)
