"""Rules find what they are for."""

import numpy as np
import pytest
import torch

from lostwax.claims.games import Run
from lostwax.claims.rules import REDUCTIONS, Claimed, Cut, Discriminant, OneStep, Summary, held_out, rules

CLAIMED = Claimed(noise=0.5, rate=0.1, steps=20)
WORLDS = (np.arange(60) % 2).astype(float)


def runs(along, moved=None):
    moved = torch.zeros(len(along), 3) if moved is None else moved
    others = [torch.tensor([0.0, 1.0, 1.0]).expand(len(one), 3).double() for one in along]
    return [Run(one, two, {"weight": x}, len(one)) for one, two, x in zip(along, others, moved, strict=True)]


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    ("reduction", "shift"),
    [
        ("sum", "every"),
        ("likelihood ratio", "once"),
        ("largest of each epoch", "once"),
        ("smallest of each epoch", "down"),
    ],
)
def test_each_reduction_sees_its_kind_of_step(reduction, shift):
    along = 0.2 * noise(60, 20, 2)
    second = torch.from_numpy(WORLDS == 1)
    if shift == "every":
        along[second] += 0.15
    else:
        along[second, torch.arange(30) % 20] += 2.0 if shift == "once" else -2.0
    assert held_out(Summary(reduction, 0, None, CLAIMED), runs(along), WORLDS) > 0.9


def test_noise_that_repeats_in_every_step_does_not_hide_a_step():
    along = 5 * noise(60, 1, 1).expand(60, 20, 1).clone()
    along[torch.from_numpy(WORLDS == 1), torch.arange(30) % 20] += 1.0
    right = {name: held_out(Summary(name, 0, None, CLAIMED), runs(along), WORLDS) for name in REDUCTIONS}
    assert right["largest against smallest of each epoch"] == 1
    assert right["sum"] < 0.8


def test_what_is_usual_at_a_step_is_subtracted():
    along = 10 * torch.linspace(0, 1, 20).double()[None, :, None] + 0.2 * noise(60, 20, 1)
    along[torch.from_numpy(WORLDS == 1), torch.arange(30) % 20] += 2.0
    assert held_out(Summary("largest of each epoch", 0, None, CLAIMED), runs(along), WORLDS) > 0.9


def test_weights_without_noise_are_found_among_noisy_ones():
    moved = 100 * noise(60, 3)
    moved[:, 2] = torch.from_numpy(WORLDS)
    every = runs(torch.zeros(60, 1, 1), moved)
    assert held_out(Discriminant(("weight",), None, 1e-6), every, WORLDS) == 1
    assert held_out(Discriminant(("weight",), None, 1e6), every, WORLDS) < 0.8


def test_nothing_is_found_in_noise():
    """Held-out accuracy is honest: that is what rules are chosen by."""
    every = runs(noise(60, 20, 1), noise(60, 3))
    found = [held_out(rule, every, WORLDS) for rule in rules(every[0], [], CLAIMED)]
    assert max(found) < 0.75
    assert np.mean(found) == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_cut_learns_its_side(sign):
    every = runs(sign * torch.from_numpy(WORLDS)[:, None, None] + 0 * noise(60, 1, 1))
    cut = Cut.fit(Summary("sum", 0, None, CLAIMED), every, WORLDS)
    assert cut(every).tolist() == WORLDS.tolist()


def test_runs_of_different_lengths_can_be_compared():
    along = [0.1 * noise(5 + k % 3, 1) + WORLDS[k] for k in range(60)]
    assert held_out(Summary("sum", 0, None, CLAIMED), runs(along, torch.zeros(60, 3)), WORLDS) > 0.9


def test_one_step_of_each_epoch_by_its_likelihood():
    """Near the best test there is, though other records move the steps by known amounts that differ between runs."""
    random, noise_multiplier, epochs, per_epoch = np.random.default_rng(0), 0.8, 2, 8
    claimed, worlds = Claimed(noise_multiplier, 1 / per_epoch, epochs * per_epoch), (np.arange(400) % 2).astype(float)
    gap, length = 1.9, random.uniform(0.2, 1.0, (400, 16))  # others are clipped above 0.5
    steps = -7 * gap * np.minimum(length, 0.5) / 0.5 + noise_multiplier * gap * random.standard_normal((400, 16))
    for run in np.flatnonzero(worlds):
        steps[run, [random.integers(8), 8 + random.integers(8)]] += gap**2
    others = torch.from_numpy(np.stack([np.full((400, 16), -gap), length, np.full((400, 16), gap)], 2))
    along = torch.from_numpy(0.01 * steps).unsqueeze(2)
    every = [Run(one, two, {"weight": torch.zeros(3)}, 16) for one, two in zip(along, others, strict=True)]
    z = random.standard_normal((2, 20_000, epochs, per_epoch))
    z[1, :, :, 0] += gap / noise_multiplier
    distance = gap / noise_multiplier
    ratio = np.log(np.exp(distance * z - distance**2 / 2).mean(3)).sum(2)
    best = ((ratio[0] <= 0).mean() + (ratio[1] > 0).mean()) / 2
    found = held_out(OneStep(claimed), every, worlds)
    assert found == pytest.approx(best, abs=0.05)
    assert found > held_out(Summary("largest of each epoch", 0, None, claimed), every, worlds) + 0.05


def test_a_direction_in_which_others_do_not_move_a_layer():
    along = noise(60, 20, 5)
    along[:, :, 4] = 0
    along[torch.from_numpy(WORLDS == 1), torch.arange(30) % 20, 4] = 1e-3
    rule = next(one for one in rules(runs(along)[0], ["a", "b"], CLAIMED) if getattr(one, "across", False))
    assert rule.layer == "a"
    other = Summary("sum", 4, "b", CLAIMED, across=True)
    assert held_out(other, runs(along), WORLDS) == 1
    assert other.quiet_layer == "b"
