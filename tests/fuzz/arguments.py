"""The arguments of the verbs, one at a time."""

import torch
from torch import nn

import lostwax as lw
from fuzz.arrays import CLASSES, TARGETS, X, fitted
from fuzz.outcomes import Case
from fuzz.values import HOSTILE, MOST, fits, words

KNOWN, PRIOR, SECRETS = (lw.Records(torch.from_numpy(X) + shift, torch.from_numpy(CLASSES)) for shift in range(3))
GAME = {"trainer": lw.GD(lr=0.1, steps=2), "threat": lw.Informed(KNOWN), "prior": PRIOR}
MECHANISM = {"noise_multiplier": 1.0, "sample_rate": 0.5, "steps": 3, "baseline": 0.1}
CALLS = {  # what is called with valid arguments, and how each of them is annotated
    "lw.audit(net)": (
        lambda **changed: lw.audit(**changed),
        {"model": nn.Linear(3, 2).double(), **GAME, "secrets": SECRETS, "games": 3, "attack": lw.KernelRidge()},
        {"games": "int | None", "seed": "int", "threshold": "float", "metrics": "Any", "access": "None | Access"},
    ),
    "lw.audit(model)": (
        lambda **changed: lw.audit(**changed),
        {"model": fitted("regression"), "data": (X, TARGETS), "games": 3},
        {"games": "int | None", "seed": "int", "threshold": "float", "sample_weight": "Any", "max_minutes": "None"},
    ),
    "lw.simulate": (
        lambda **changed: list(lw.simulate(**changed)),
        {"net": nn.Linear(3, 2).double(), **GAME, "models": 2},
        {"seed": "int", "models": "int", "engine": "None | Engine"},
    ),
    "Records.split": (lambda size, seed: PRIOR.split(size, seed=seed), {"size": 3, "seed": 0}, {"size": "int"}),
    "Records.to": (lambda target: PRIOR.to(target), {"target": torch.float32}, {"target": "Any"}),
    "lw.bound": (lambda **changed: lw.bound(**changed), MECHANISM, {}),
    "Policy": (lambda **changed: lw.Policy(**changed), {"max_rebuilt_share": 0.1}, {"threshold": "float"}),
}


def cases(random):
    """One argument of one call."""
    calls = list(CALLS)
    while True:
        name = calls[random.integers(len(calls))]
        call, given, annotated = CALLS[name]
        arguments = sorted({*given, *annotated})
        argument, hostile = arguments[random.integers(len(arguments))], HOSTILE[random.integers(len(HOSTILE))]
        if argument == "attack" and hostile is None:
            continue  # every attack, in as much time as it takes
        yield _case(name, call, given, argument, annotated.get(argument, ""), hostile)


def _case(name, call, given, argument, annotation, hostile):
    huge = isinstance(hostile, int) and abs(hostile) >= MOST
    right = annotation in ("Any", "") or fits(annotation, hostile) or (argument in ("seed", "threshold") and huge)
    changed = {**given, argument: hostile}
    return Case("argument", f"{name}({argument}={words(hostile)})", lambda: call(**changed), lambda result: right)
