"""Hints name the fault."""

import torch
from torch import nn

from lostwax.claims.games import Run
from lostwax.claims.rules import Claimed, Discriminant, Summary
from lostwax.claims.symptoms import symptoms

NET = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
RULE = Summary("sum", 0, None, Claimed(1.0, 1.0, 10))


def runs(along, quiet=()):
    draws = torch.Generator().manual_seed(0)
    names = dict(NET.named_parameters())
    moved = [
        {
            name: (0.01 if name in quiet else 1) * torch.randn(value.shape, generator=draws)
            for name, value in names.items()
        }
        for _ in along
    ]
    return [Run(one, torch.zeros(len(one), 3), state, len(one)) for one, state in zip(along, moved, strict=True)]


def noise(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def words(*arguments):
    return [one.note for one in symptoms(*arguments)]


def test_healthy_runs_have_none():
    assert symptoms(runs(noise(20, 10, 3)), RULE, NET, 10) == []


def test_noise_that_repeats():
    in_runs, in_steps = noise(1, 10, 3).expand(20, 10, 3), noise(20, 1, 3).expand(20, 10, 3)
    for along, when in ((in_runs, "run"), (in_steps, "step")):
        (found,) = symptoms(runs(along + 0.01 * noise(20, 10, 3)), RULE, NET, 10)
        assert found.look_for.endswith(f"in every {when}")


def test_a_layer_without_noise():
    (found,) = symptoms(runs(noise(20, 10, 3), quiet={"0.weight"}), RULE, NET, 10)
    assert found.look_for == "noise that is missing on 0.weight"
    (found,) = symptoms(runs(noise(20, 10, 3)), Discriminant(("0.bias",), "0.bias", 1e-6), NET, 10)
    assert found.look_for == "noise that is missing on 0.bias"


def test_a_buffer():
    (found,) = symptoms(runs(noise(20, 10, 3)), Discriminant(("1.running_mean",), "1.running_mean", 1e6), NET, 10)
    assert "buffer" in found.look_for


def test_the_number_of_steps():
    assert words(runs(noise(20, 10, 3)), RULE, NET, 5) == ["The function made 10 steps, the claim counts 5."]
    hidden = [run._replace(steps=None) for run in runs(noise(20, 10, 3))]
    assert "Only the last weights" in words(hidden, RULE, NET, 5)[0]
