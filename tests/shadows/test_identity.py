"""Same words, same models: what tells two games apart, and what does not."""

import importlib.util
import sys
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax import philox
from lostwax.defences import Defended, Rounded
from lostwax.inits import FromNet, Given, LeCunNormal
from lostwax.shadows import Game
from lostwax.shadows.identity import describe, identity, key
from shadows.game import KNOWN, PRIOR, game


def differing(one, other):
    one, other = identity(one), identity(other)
    return {name for name in {*one, *other} if one.get(name) != other.get(name)}


def test_the_same_game_has_the_same_words():
    """Though the weights of its net, which training never sees, are drawn afresh."""
    assert identity(game()) == identity(game())
    assert key(identity(game())) == key(identity(game()))


def test_a_start_from_the_net_counts_number_by_number_and_so_does_its_dtype():
    one = game(init=FromNet())
    state = one.net.state_dict()
    same, moved, double = game(init=FromNet()), game(init=FromNet()), game(init=FromNet())
    for other in (same, moved, double):
        other.net.load_state_dict(state)
    assert differing(one, same) == set()
    with torch.no_grad():
        moved.net[1].bias[3] += 1e-6
    assert differing(one, moved) == {"net.start"}
    double.net.double()
    assert differing(one, double) == {"net.dtype"}


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


def test_the_rounding_of_private_starts_makes_no_other_game(monkeypatch):
    private, normal = game(init=LeCunNormal(seed=None)), philox.normal
    before = identity(private)
    assert differing(private, private._replace(seed=1)) == {"seed"}
    monkeypatch.setattr(philox, "normal", lambda *draw: normal(*draw) * (1 + 2**-23))
    assert identity(private) == before


def test_draws_of_another_generation_are_other_models(monkeypatch):
    before = identity(game())
    monkeypatch.setattr("lostwax.shadows.identity.GENERATION", 1)
    assert {name for name, held in identity(game()).items() if held != before[name]} == {"seed.generation"}


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
    assert describe("step", differing)["step"].startswith(f"{__name__}.differing #")


class Scaled(nn.Module):
    """Whose repr does not tell how it was made."""

    def __init__(self, by, then=torch.relu):
        super().__init__()
        self.by, self.then, self.head = by, then, nn.Linear(64, 10)

    def forward(self, x):
        return self.then(self.by * self.head(x.flatten(1)))


def test_what_a_module_was_made_with_counts():
    def scaled(*made):
        return game()._replace(net=Scaled(*made))

    assert differing(scaled(2.0), scaled(2.0)) == set()
    assert differing(scaled(2.0), scaled(3.0)) == {"net.made_with.by"}
    assert differing(scaled(2.0), scaled(2.0, torch.tanh)) == {"net.made_with.then"}
    with pytest.raises(ValueError, match=r"net\.made_with\.by is an object of object"):
        identity(scaled(object()))


def test_a_hook_counts():
    hooked = game()
    hooked.net.register_forward_hook(twice)
    assert differing(game(), hooked) == {"net.made_with.forward_hooks.0"}


def twice(module, inputs, output):
    return 2 * output


class Addressed(nn.Flatten):
    """Whose repr names an address in memory."""

    def extra_repr(self):
        return repr(object())


def test_an_address_does_not_count():
    assert differing(*(game()._replace(net=nn.Sequential(Addressed(), nn.Linear(64, 10))) for _ in range(2))) == set()


def times(by, *, plus=0):
    def function(x, plus=plus):
        return by * x + plus

    return function


def test_what_a_function_closes_over_counts():
    assert describe("step", times(2)) == describe("step", times(2))
    assert describe("step", times(2)) != describe("step", times(3))
    assert describe("step", times(2)) != describe("step", times(2, plus=1))


def test_of_two_lambdas_in_a_statement_neither_is_known():
    one, other = lambda x: x, lambda x: 2 * x
    for function in (one, other):
        with pytest.raises(ValueError, match=r"in one statement with another lambda.*\(def\)"):
            describe("step", function)


def test_bases_count(tmp_path, monkeypatch):
    def written(number):
        file = tmp_path / f"{number}.py"
        file.write_text(f"class Base:\n    number = {number}\n\nclass Derived(Base):\n    pass\n")
        spec = importlib.util.spec_from_file_location("mine", file)
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "mine", module)
        spec.loader.exec_module(module)
        return describe("net", module.Derived)

    assert written(1) != written(2)
    assert written(1) == written(1)


def test_a_partial_function_is_known_by_what_it_is_made_of():
    one, other = (describe("loss", partial(nn.functional.cross_entropy, label_smoothing=value)) for value in (0.1, 0.2))
    assert {name for name in one if one[name] != other[name]} == {"loss.keywords.label_smoothing"}


class Opaque:
    """A loss that does not say what it is made of."""

    def __call__(self, outputs, y):
        return outputs.sum(-1)

    def residual(self, outputs, y):
        return torch.ones_like(outputs)


def test_what_nothing_lasting_describes_is_refused():
    with pytest.raises(ValueError, match=r"trainer\.loss is an object of .*Opaque.*frozen dataclass"):
        identity(game(loss=Opaque()))


def test_code_that_cannot_be_read_is_refused():
    names = {}
    exec("def train(net):\n    return net", {"__name__": "typed_in"}, names)
    with pytest.raises(ValueError, match=r"source of typed_in\.train cannot be read.*Define it in a file"):
        describe("trainer.function", names["train"])
