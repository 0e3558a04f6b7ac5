"""Each guess beside the secret it is held against."""

import torch

from lostwax.audits.judged import in_the_best_order, nearest_of_class
from lostwax.metrics import Null
from lostwax.types import Guess, Records

RANDOM = torch.Generator().manual_seed(0)
SECRETS = Records(torch.rand(4, 6, 1, 2, 2, generator=RANDOM), torch.tensor([[0, 0, 0, 1, 1, 2]] * 4))
FOUND = Records(torch.rand(4, 3, 1, 2, 2, generator=RANDOM), torch.tensor([[0, 1, 2]] * 4))
GUESS = Guess(FOUND, torch.arange(12.0).view(4, 3))
ANYWHERE = Guess(Records(torch.rand(4, 3, 1, 2, 2, generator=RANDOM), FOUND.y), torch.zeros(4, 3))


def slow(guess, secrets, label):
    """The nearest secret of one game to one guess."""
    ours = [x for x, y in zip(secrets.x, secrets.y.tolist(), strict=True) if label in (y, -1)]
    return min(ours, key=lambda x: float((x - guess).square().sum())).double()


def test_a_guess_is_held_against_the_nearest_of_its_class():
    judged = nearest_of_class(GUESS, SECRETS, ANYWHERE)
    assert judged.each == 3
    assert judged.guess.records.x.shape == (12, 1, 1, 2, 2)
    assert torch.equal(judged.guess.confidence[:, 0], torch.arange(12.0))
    assert torch.equal(judged.truth.y, FOUND.y.flatten())
    for game in range(4):
        for label in range(3):
            wanted = slow(FOUND.x[game, label], SECRETS[game], label)
            assert torch.equal(judged.truth.x[3 * game + label], wanted)
            found, truth = judged.chance[Null.OTHER_SECRETS]
            assert torch.equal(truth[3 * game + label], slow(FOUND.x[game, label], SECRETS[(game + 1) % 4], label))
            assert torch.equal(found[3 * game + label], FOUND.x[game, label].double())
            found, truth = judged.chance[Null.GAUSSIAN_WEIGHTS]
            assert torch.equal(truth[3 * game + label], slow(ANYWHERE.records.x[game, label], SECRETS[game], label))


def test_a_guess_without_a_class_is_for_all():
    one = Guess(Records(FOUND.x[:, :1], torch.full((4, 1), -1)), torch.zeros(4, 1))
    judged = nearest_of_class(one, SECRETS, one)
    assert judged.each == 1
    assert all(torch.equal(judged.truth.x[game], slow(FOUND.x[game, 0], SECRETS[game], -1)) for game in range(4))


def test_real_valued_labels_have_no_class():
    secrets = Records(SECRETS.x, SECRETS.y.double())
    one = Guess(Records(FOUND.x[:, :1], torch.full((4, 1), -1)), torch.zeros(4, 1))
    judged = nearest_of_class(one, secrets, one)
    assert all(torch.equal(judged.truth.x[game], slow(FOUND.x[game, 0], SECRETS[game], -1)) for game in range(4))


def test_games_that_share_a_secret_say_nothing_of_chance():
    x = SECRETS.x.clone()
    x[2, 4] = x[1, 0]
    judged = nearest_of_class(GUESS, Records(x, SECRETS.y), ANYWHERE)
    _, truth = judged.chance[Null.OTHER_SECRETS]
    for game, stranger in enumerate((1, 3, 3, 0)):
        wanted = slow(FOUND.x[game, 1], Records(x[stranger], SECRETS.y[stranger]), 1)
        assert torch.equal(truth[3 * game + 1], wanted)
    alike = Records(SECRETS.x[:1].expand(4, -1, -1, -1, -1), SECRETS.y)
    assert Null.OTHER_SECRETS not in nearest_of_class(GUESS, alike, ANYWHERE).chance


def test_a_guess_that_is_no_number_is_still_of_its_class():
    broken = Guess(Records(torch.full_like(FOUND.x, torch.nan), FOUND.y), GUESS.confidence)
    assert torch.equal(nearest_of_class(broken, SECRETS, ANYWHERE).truth.y, FOUND.y.flatten())


def test_as_many_guesses_as_secrets_are_matched_one_by_one():
    turned = Guess(Records(SECRETS.x.flip(1), SECRETS.y.flip(1)), torch.zeros(4, 6))
    judged = in_the_best_order(turned, SECRETS)
    assert torch.equal(judged.guess.records.x[:, 0].double(), judged.truth.x)
    assert judged.each == 6
    assert judged.chance is None
