"""What trial games show at a glance: hints at a fault, beside the test."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from lostwax.claims.games import Run
from lostwax.claims.rules import Rule
from lostwax.claims.slopes import trainable

LITTLE = 0.2  # of the usual variation
FEWEST_STEPS = 8


class Symptom(NamedTuple):
    """A sentence, and the fault that it hints at."""

    note: str
    look_for: str = ""
    certain: bool = False  # it contradicts a claim of noise by itself


def symptoms(runs: Sequence[Run], rule: Rule, net: nn.Module, steps: int | None) -> list[Symptom]:
    """From runs of the first pair: every second one is on the same training set. No symptom enters the test."""
    signs = []
    layers, one_world = list(trainable(net)), runs[::2]
    if rule.layer is not None and rule.layer not in dict(net.named_parameters()):
        what = "a buffer that is released without noise: batch norm has such, group norm has none"
        signs.append(Symptom(f"{rule.layer} alone is enough to tell.", f"{rule.layer}, {what}"))
    elif rule.quiet_layer is not None:
        signs.append(
            Symptom(f"{rule.layer} has directions with little noise.", f"noise that is missing on {rule.layer}")
        )
    if not (one_world[0].finite and one_world[1].finite):
        pass  # nothing can be compared
    elif all(torch.equal(one_world[0].moved[name], one_world[1].moved[name]) for name in one_world[0].moved):
        note = "Two runs on one training set, with different seeds, gave the same weights."
        signs.append(Symptom(note, _seeded("run"), certain=True))
    else:
        signs += _repeated(one_world) or _without_noise(one_world, layers)
    steps_made = runs[0].steps
    if steps_made is None:
        signs.append(Symptom("Only the last weights were seen, which hides most faults of sampling: return all steps."))
    elif steps is not None and steps_made != steps:
        signs.append(Symptom(f"The function made {steps_made} steps, the claim counts {steps}."))
    return signs


def _seeded(when: str) -> str:
    return f"a generator of noise that is seeded again in every {when}"


def _deviation(values: Tensor, axis: int) -> Tensor:
    """The median distance from the median, along an axis."""
    return (values - values.median(axis, keepdim=True).values).abs().median(axis).values


def _without_noise(runs: Sequence[Run], layers: list[str]) -> list[Symptom]:
    """Layers that vary far less between runs on one training set than others do."""
    spread = {name: torch.stack([run.moved[name] for run in runs]).std(0).median() for name in layers}
    usual = torch.stack(list(spread.values())).median()
    return [
        Symptom(f"{name} varies little between runs on one training set.", f"noise that is missing on {name}")
        for name, value in spread.items()
        if value < LITTLE * usual
    ]


def _repeated(runs: Sequence[Run]) -> list[Symptom]:
    """Noise that is the same in all runs, or in all steps of a run, by the variation over both."""
    if len(runs[0].along) < FEWEST_STEPS or len({len(run.along) for run in runs}) > 1:
        return []
    along = torch.stack([run.along for run in runs])  # (m, t, 1 + layers)
    over_runs, over_steps = _deviation(along, 0).median(0).values, _deviation(along, 1).median(0).values
    if (over_runs < LITTLE * over_steps).any():
        return [Symptom("Steps vary less between runs than within one: the noise repeats.", _seeded("run"))]
    if (over_steps < LITTLE * over_runs).any():
        return [Symptom("Steps vary less within a run than between runs: the noise repeats.", _seeded("step"))]
    return []
