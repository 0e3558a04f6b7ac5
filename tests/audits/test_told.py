"""What the game told, in words and in the baselines."""

import torch

from lostwax.audits import told
from lostwax.types import Hints, Records

NAN = torch.nan
PARTS = torch.tensor([[[1.0, NAN, NAN]], [[4.0, NAN, NAN]]])  # (2, 1, 3)
EVERYTHING = Hints(torch.zeros(2, 1), PARTS, Records(torch.zeros(2, 3, 3), torch.zeros(2, 3)))


def test_all_that_was_told_is_named():
    assert told.in_words(EVERYTHING) == (
        ", and the labels of the secrets, and 1 of the 3 numbers of each secret, and 3 candidates for each"
    )
    assert told.notes(EVERYTHING) == (
        "1 of the 3 numbers of each secret are told: errors are over all, and the baselines have those right too.",
        "guessing among the 3 candidates is right in 33.3 % of games.",
    )
    for nothing in (None, Hints()):
        assert told.in_words(nothing) == ""
        assert told.notes(nothing) == ()


def test_baselines_know_what_was_told():
    guesses = torch.full((2, 3), 7.0, dtype=torch.float64)
    assert told.filled(guesses, EVERYTHING).tolist() == [[1, 7, 7], [4, 7, 7]]
    assert told.sought(guesses[:1], EVERYTHING).tolist() == [[0, 7, 7]]
    for nothing in (None, Hints()):
        assert told.filled(guesses, nothing) is told.sought(guesses, nothing) is guesses
