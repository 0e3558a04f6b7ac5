"""What the adversary is given, in words and in the baselines."""

import torch

from lostwax.audits import given
from lostwax.games import Hints, Records

NAN = torch.nan
PARTS = torch.tensor([[[1.0, NAN, NAN]], [[4.0, NAN, NAN]]])  # (2, 1, 3)
EVERYTHING = Hints(torch.zeros(2, 1), PARTS, Records(torch.zeros(2, 3, 3), torch.zeros(2, 3)))


def test_all_that_is_given_is_named():
    assert given.in_words(EVERYTHING) == (
        ", and the labels of the secrets, and 1 of the 3 numbers of each secret, and 3 candidates for each"
    )
    assert given.notes(EVERYTHING) == (
        "1 of the 3 numbers of each secret are given to the adversary: errors are over the others.",
        "guessing among the 3 candidates is right in 33.3 % of games.",
    )
    for nothing in (None, Hints()):
        assert given.in_words(nothing) == ""
        assert given.notes(nothing) == ()
        assert given.unknown(nothing) is None
    assert given.unknown(EVERYTHING).tolist() == [False, True, True]


def test_a_class_that_is_given_has_its_own_mean():
    prior = Records(torch.tensor([[0.0], [2.0], [10.0]]), torch.tensor([0, 0, 1]))
    assert given.class_means(prior, torch.tensor([1, 0, 7]), lambda x: x.mean(0)).flatten().tolist() == [
        10,
        1,
        4,
    ]  # 7 has no record


def test_numbers_that_follow_from_the_given_ones_are_predicted():
    random = torch.Generator().manual_seed(0)
    x = torch.randn(500, 2, generator=random, dtype=torch.float64)
    records = torch.cat([x, x @ torch.tensor([[2.0], [-1.0]], dtype=torch.float64)], 1)
    unknown = torch.tensor([False, False, True])
    found = given.predicted_from_parts(records[:5], records[5:], unknown)
    torch.testing.assert_close(found[:, :2], records[:5, :2])
    torch.testing.assert_close(found[:, 2], records[:5, 2], rtol=0, atol=0.02)
