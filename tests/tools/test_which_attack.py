from pathlib import Path

from lostwax_dev import which_attack

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_up_to_date():
    assert (ROOT / which_attack.PAGE).read_text() == which_attack.page()


def test_every_training_has_an_attack():
    assert all(which_attack.applicable(training) for training in which_attack.trainings())
