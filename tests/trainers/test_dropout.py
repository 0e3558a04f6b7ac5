"""Dropout in stacked nets: each model as a plain loop trains it, with draws by its number alone."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

import lostwax as lw
from lostwax.access import Logits
from lostwax.games import Cohort, Knowledge
from lostwax.seeds import key
from lostwax.trainers.stacked import Architecture, Masks, Thinning, drops
from trainers.game import EXACT, cohort
from trainers.reference import batches, optimiser


def net():
    """Dropout of numbers, and of whole positions after a convolution."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(1, 3, 3), nn.Tanh(), nn.Dropout(0.3), nn.Flatten()),
        *(nn.Linear(12, 5), nn.ELU(), nn.Dropout(0.5), nn.Linear(5, 3)),
    ).double()


def kept(seed, step, layer, number, shape, p):
    """The slow definition: 63 bits of each number, by the model's own count."""
    bits = np.random.Philox(key=key(seed, "dropout", step, layer), counter=number << 128).random_raw(
        int(np.prod(shape))
    )
    on = (bits & np.uint64(2**63 - 1)) < np.uint64(int((1 - p) * 2**63))
    return torch.from_numpy(on.reshape(shape)).double() / (1 - p)


def train_alone(trainer, module, games, row, *, seed):
    """One model, autograd and torch.optim; nn.Dropout replaced by hooks that multiply by its draws."""
    number, model, step = int(games.index[row]), deepcopy(module).eval(), [0]
    dropouts = [part for part in model if isinstance(part, nn.Dropout)]
    for layer, part in enumerate(dropouts):
        part.register_forward_hook(
            lambda part, inputs, out, layer=layer: out * kept(seed, step[0], layer, number, tuple(out.shape), part.p)
        )
    x, y = torch.cat([games.shared.x, games.own.x[row]]), torch.cat([games.shared.y, games.own.y[row]])
    steps = optimiser(trainer, list(model.parameters()))
    private = getattr(trainer, "order_seed", 0) is None
    for number_of_step, rows in enumerate(batches(trainer, len(x), number, seed)):
        step[0] = number_of_step
        if not private:  # shared records come first
            rows = torch.cat([rows[rows < len(games.shared)], rows[rows >= len(games.shared)]])
        steps.zero_grad()
        nn.functional.cross_entropy(model(x[rows]), y[rows]).backward()
        steps.step()
    return {name: value.detach() for name, value in model.named_parameters()}


TRAINERS = {
    "full batches": lw.GD(lr=0.3, momentum=0.5, steps=3),
    "known order": lw.SGD(lr=0.3, batch_size=4, epochs=2),
    "private order": lw.SGD(lr=0.3, batch_size=4, epochs=2, order_seed=None),
    "Adam": lw.Adam(lr=0.01, batch_size=4, epochs=2),
}


@pytest.mark.parametrize("kind", TRAINERS)
def test_stacked_training_is_a_plain_loop_with_the_same_draws(kind):
    trainer, module, games = TRAINERS[kind], net(), cohort(3)
    stacked = trainer(module, games, seed=5)
    for row in range(len(games)):
        for name, value in train_alone(trainer, module, games, row, seed=5).items():
            torch.testing.assert_close(stacked.params[name][row], value, **EXACT)
    assert stacked.params.keys() == dict(module.named_parameters()).keys()  # masks are no part of the release


@pytest.mark.parametrize("kind", TRAINERS)
def test_a_model_depends_on_its_number_alone(kind):
    module, games = net(), cohort(6)
    together = TRAINERS[kind](module, games, seed=5).flat()
    some = torch.tensor([4, 1])
    alone = TRAINERS[kind](module, games[some], seed=5).flat()
    torch.testing.assert_close(alone, together[some], **EXACT)
    same = Cohort(games.shared, games.own[torch.zeros(2, dtype=torch.long)], torch.tensor([0, 1]))
    first, second = TRAINERS[kind](module, same, seed=5).flat()
    assert not torch.allclose(first, second)  # the same records, other draws


def test_the_law_is_dropout_s():
    masks = Masks.of(Architecture(nn.Sequential(Thinning(0.3)), {}), torch.ones(2, 7))
    (mask,) = masks.drawn(torch.arange(400), 50, torch.ones(1), seed=0, step=1).values()  # (400, 50, 7)
    assert set(mask.unique().tolist()) == {0.0, torch.tensor(1 / 0.7).item()}
    share, deviation = float((mask > 0).double().mean()), (0.3 * 0.7 / mask.numel()) ** 0.5
    assert abs(share - 0.7) < 4 * deviation
    (other,) = masks.drawn(torch.arange(400), 50, torch.ones(1), seed=0, step=2).values()
    both = float(((mask > 0) & (other > 0)).double().mean())
    assert abs(both - 0.49) < 4 * (0.49 * 0.51 / mask.numel()) ** 0.5


def test_outputs_are_those_in_use():
    """A release is queried without dropout."""
    module, x = net(), torch.rand(4, 1, 4, 4, dtype=torch.float64)
    release = lw.GD(steps=1)(module, cohort(1), seed=0)
    module.load_state_dict({name: value[0] for name, value in release.params.items()})
    torch.testing.assert_close(Logits(x)(module, release)[0], module.eval()(x).detach().flatten(), **EXACT)


def test_the_draws_are_private():
    module, games = net(), cohort(1)
    assert drops(module)
    assert not lw.GD().facts(module, 10).deterministic
    knowledge = Knowledge(module, lw.GD(), lw.Informed(games.shared), lw.access.Weights(), games.shared)
    assert "dropout is private" in lw.Newton().objection(knowledge)
    assert not drops(nn.Sequential(nn.Dropout(0.0), nn.Linear(2, 2)))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.dropout = nn.Linear(16, 4), nn.Linear(4, 3), nn.Dropout(0.5)

    def forward(self, x):
        return self.last(self.dropout(self.first(self.dropout(x.flatten(1)))))


class Turned(Twice):
    def forward(self, x):
        return self.last(self.dropout(self.first(x.flatten(1)).mT).mT)


@pytest.mark.parametrize(
    ("module", "trainer", "message"),
    [
        (Twice(), lw.GD(), "'dropout' .* is applied 2 times in one pass. Give each place its own nn.Dropout"),
        (Turned(), lw.GD(), "Keep records as the first axis"),
        (nn.Sequential(nn.Dropout2d(0.5), nn.Flatten(), nn.Linear(16, 3)), lw.GD(), r"lw.OwnTraining\(train\)"),
        (nn.Sequential(nn.Dropout(1.0), nn.Flatten(), nn.Linear(16, 3)), lw.GD(), "drops values at random with p=1"),
        (
            nn.Sequential(nn.Dropout(0.5), nn.Flatten(), nn.Linear(16, 3)),
            lw.DPSGD(noise_multiplier=1.0, clip=1.0, steps=1),
            "drops values at random with p=0.5",
        ),
    ],
    ids=["used twice", "records not first", "channels", "all", "DP-SGD"],
)
def test_other_dropout_is_refused(module, trainer, message):
    with pytest.raises(ValueError, match=message):
        trainer(module.double(), cohort(1), seed=0)


def test_an_audit():
    digits = lw.records.digits()
    known, prior, secrets = digits[digits.y < 3].split(20, 60, 10, seed=0)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.Tanh(), nn.Dropout(0.1), nn.Linear(6, 3))
    game = {"threat": lw.Informed(known), "prior": prior, "secrets": secrets, "attack": lw.KernelRidge()}
    audit = lw.audit(module, trainer=lw.GD(lr=0.3, steps=10), **game)
    assert audit.kind == "this procedure"
