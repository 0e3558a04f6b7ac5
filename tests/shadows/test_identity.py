"""Same words, same models: what tells two games apart, and what does not."""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.defences import Defended, Rounded
from lostwax.inits import Given, LeCunNormal
from lostwax.shadows import Game
from lostwax.shadows.identity import identity, key, words
from shadows.game import KNOWN, PRIOR, game


def differing(one, other):
    one, other = identity(one), identity(other)
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}


def test_the_same_game_has_the_same_words():
    """Though the weights of its net, which training never sees, are drawn afresh."""
    assert identity(game()) == identity(game())
    assert key(identity(game())) == key(identity(game()))


SHIFTED = replace(PRIOR, x=PRIOR.x + 1e-3)


@pytest.mark.parametrize(
    ("other", "fields"),
    [
        (game(lr=0.2), {"trainer.lr"}),
        (game(init=LeCunNormal(seed=1)), {"trainer.init.seed", "net.start"}),
        (game(tile=16), {"tile"}),
        (game(dtype=torch.float64), {"trainer.dtype"}),
        (game()._replace(seed=1), {"seed"}),
        (game()._replace(pool=SHIFTED), {"prior.x"}),
        (game()._replace(threat=lw.Informed(SHIFTED)), {"threat.known.x", "threat.known.y"}),
        (game()._replace(threat=lw.Informed(KNOWN, label_known=True)), {"threat.label_known"}),
        (game()._replace(net=nn.Sequential(nn.Flatten(), nn.Linear(64, 10, bias=False))), {"net", "net.start"}),
    ],
    ids=lambda value: ", ".join(sorted(value)) if isinstance(value, set) else "",
)
def test_what_decides_a_model_tells_games_apart(other, fields):
    assert differing(game(), other) == fields


def test_a_given_start_counts_number_by_number():
    def warm(value):
        return Given({"1.weight": torch.full((10, 64), value), "1.bias": torch.zeros(10)})

    assert differing(game(init=warm(0.1)), game(init=warm(0.1))) == set()
    assert differing(game(init=warm(0.1)), game(init=warm(0.2))) == {"net.start", "trainer.init.state.1.weight"}


def test_a_frozen_layer_counts():
    def frozen(seed):
        torch.manual_seed(seed)
        body = nn.Linear(64, 8).requires_grad_(False)
        return game()._replace(net=nn.Sequential(nn.Flatten(), body, nn.Linear(8, 10)))

    assert differing(frozen(0), frozen(0)) == set()
    assert differing(frozen(0), frozen(1)) == {"net.start"}


def test_a_trainer_that_starts_where_the_net_is():
    class Untrained(NamedTuple):
        """Releases the net as it came."""

        def tile_size(self, net, cohort):
            return 4

    assert differing(*(game()._replace(trainer=Untrained()) for _ in range(2))) == {"net.start"}


def test_an_optimum_starts_nowhere():
    flat = replace(PRIOR, x=PRIOR.x.flatten(1))
    games = (Game(nn.Linear(64, 10), lw.Optimum(), lw.Informed(flat), flat, 0) for _ in range(2))
    assert differing(*games) == set()


def test_a_defence_counts_and_its_trainer_says_where_it_starts():
    one = game()._replace(trainer=Defended(game().trainer, by=Rounded()))
    other = game()._replace(trainer=Defended(game().trainer, by=Rounded(torch.bfloat16)))
    assert differing(one, one._replace(net=game().net)) == set()
    assert differing(one, other) == {"trainer.by.dtype"}


def test_code_of_the_users_own_counts():
    class Doubled(nn.Sequential):
        def forward(self, x):
            return 2 * super().forward(x)

    ours = game()._replace(net=Doubled(nn.Flatten(), nn.Linear(64, 10)))
    assert "Doubled #" in identity(ours)["net.code"]
    assert words("step", differing)["step"].startswith(f"{__name__}.differing #")


def test_what_nothing_lasting_describes_is_refused():
    with pytest.raises(ValueError, match=r"describes trainer\.loss, an object of functools\.partial.*frozen dataclass"):
        identity(game(loss=partial(nn.functional.cross_entropy)))


def test_code_that_cannot_be_read_is_refused():
    names = {}
    exec("def train(net):\n    return net", {"__name__": "typed_in"}, names)
    with pytest.raises(ValueError, match=r"source of typed_in\.train cannot be read.*Define it in a file"):
        words("trainer.function", names["train"])
