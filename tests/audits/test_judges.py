"""Which secret each guess is held against."""

import torch

from lostwax.games import Records
from lostwax.games.judges import NearestOfClass, OneToOne, chosen, distinct_games, groups_of, other_games

RANDOM = torch.Generator().manual_seed(0)
SECRETS = Records(torch.rand(4, 6, 1, 2, 2, generator=RANDOM), torch.tensor([[0, 0, 0, 1, 1, 2]] * 4))
FOUND = Records(torch.rand(4, 3, 1, 2, 2, generator=RANDOM), torch.tensor([[0, 1, 2]] * 4))


def slow(guess, secrets, label):
    """The nearest secret of one game to one guess."""
    ours = [x for x, y in zip(secrets.x, secrets.y.tolist(), strict=True) if label in (y, -1)]
    return min(ours, key=lambda x: float((x - guess).square().sum())).double()


def test_a_guess_is_held_against_the_nearest_of_its_class():
    pairs = NearestOfClass().pairs(FOUND, SECRETS)
    truth, guesses = chosen(SECRETS, pairs.secret), chosen(FOUND, pairs.guess)
    assert torch.equal(truth.y, FOUND.y.flatten())
    assert torch.equal(guesses.x, FOUND.x.flatten(0, 1).double())
    for game in range(4):
        for label in range(3):
            assert torch.equal(truth.x[3 * game + label], slow(FOUND.x[game, label], SECRETS[game], label))


def test_a_guess_without_a_class_is_for_all():
    one = Records(FOUND.x[:, :1], torch.full((4, 1), -1))
    for secrets in (SECRETS, Records(SECRETS.x, SECRETS.y.double())):  # real-valued labels have no class
        truth = chosen(secrets, NearestOfClass().pairs(one, secrets).secret)
        assert all(torch.equal(truth.x[game], slow(FOUND.x[game, 0], SECRETS[game], -1)) for game in range(4))


def test_a_guess_that_is_no_number_is_still_of_its_class():
    broken = Records(torch.full_like(FOUND.x, torch.nan), FOUND.y)
    assert torch.equal(chosen(SECRETS, NearestOfClass().pairs(broken, SECRETS).secret).y, FOUND.y.flatten())


def test_as_many_guesses_as_secrets_are_matched_one_by_one():
    turned = Records(SECRETS.x.flip(1), SECRETS.y.flip(1))
    pairs = OneToOne().pairs(turned, SECRETS)
    assert torch.equal(chosen(turned, pairs.guess).x, chosen(SECRETS, pairs.secret).x)


def test_games_that_share_a_secret_say_nothing_of_chance():
    x = SECRETS.x.clone()
    x[2, 4] = x[1, 0]
    assert other_games(Records(x, SECRETS.y), None).tolist() == [1, 3, 3, 0]
    alike = Records(SECRETS.x[:1].expand(4, -1, -1, -1, -1), SECRETS.y)
    assert other_games(alike, None).tolist() == [-1, -1, -1, -1]
    assert distinct_games(alike).tolist() == [0, 0, 0, 0]


def test_games_with_the_same_secrets_in_another_order_are_the_same():
    x, y = SECRETS.x.clone(), SECRETS.y
    x[3] = x[1].flip(0)
    assert distinct_games(Records(x, y)).tolist() == [0, 1, 2, 1]


def test_only_games_in_which_the_same_is_given_are_compared():
    one = Records(SECRETS.x[:, :1], torch.tensor([[0], [1], [0], [2]]))
    assert other_games(one, one.y).tolist() == [2, -1, 0, -1]
    assert other_games(one, None).tolist() == [1, 2, 3, 0]
    groups = groups_of(torch.tensor([[0, 1], [2, 2], [1, 0]]), 3)  # the same classes in another order
    assert [group.tolist() for group in groups] == [[0, 2], [1]]
