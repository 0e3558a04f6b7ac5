"""The arguments of the verbs, one at a time."""

import torch
from safetensors.torch import save
from torch import nn

import lostwax as lw
from fuzz.arrays import CLASSES, QUICK, TARGETS, TRAINER, X, fitted, trained
from fuzz.files import FOLDER, audits, written
from fuzz.outcomes import Case
from fuzz.values import HOSTILE, MOST, fits, words
from lostwax.learning.decoders import Equivariant, ResidualBlock

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
        {
            "games": "int | None",
            "seed": "int",
            "threshold": "float",
            "sample_weight": "Any",
            "max_minutes": "None | float",
        },
    ),
    "lw.audit(known)": (
        lambda known, **changed: lw.audit(nn.Linear(3, 2).double(), threat=lw.Informed(known), **changed),
        {"known": KNOWN, "prior": PRIOR, "secrets": SECRETS, "trainer": GAME["trainer"], "attack": lw.KernelRidge()},
        {"known": "Records", "games": "int | None"},
    ),
    "lw.audit(size)": (
        lambda size, **changed: lw.audit(nn.Linear(3, 2).double(), threat=lw.Weak(size=size), **changed),
        {"size": 2, "prior": PRIOR, "secrets": SECRETS, "trainer": GAME["trainer"], "attack": QUICK, "games": 2},
        {"size": "int", "games": "int"},
    ),
    "lw.audit(net, data)": (
        lambda **changed: lw.audit(**changed),
        {"model": trained(), "data": PRIOR, "trainer": TRAINER, "games": 2},
        {"games": "int | None"},
    ),
    "lw.simulate": (
        lambda **changed: list(lw.simulate(**changed)),
        {"net": nn.Linear(3, 2).double(), **GAME, "models": 2},
        {"seed": "int", "models": "int", "engine": "None | Engine"},
    ),
    "Records.split": (lambda size, seed: PRIOR.split(size, seed=seed), {"size": 3, "seed": 0}, {"size": "int"}),
    "Records.to": (lambda target: PRIOR.to(target), {"target": torch.float32}, {"target": "Any"}),
    "Records.through": (lambda backbone: PRIOR.through(backbone), {"backbone": nn.Linear(3, 2).double()}, {}),
    "Records.without": (lambda other: PRIOR.without(other), {"other": PRIOR}, {}),
    "Records.together": (lambda parts: lw.Records.together(parts), {"parts": [PRIOR, PRIOR]}, {}),
    "lw.bound": (lambda **changed: lw.bound(**changed), MECHANISM, {}),
    "Policy": (lambda **changed: lw.Policy(**changed), {"max_rebuilt_share": 0.1}, {"threshold": "float"}),
    "lw.report": (
        lambda **changed: lw.report(**changed),
        {"audit": None, "folder": FOLDER / "reported", "records": False},
        {"compared": "None", "policy": "None", "title": "None | str", "records": "None | bool", "folder": "str | Path"},
    ),
    "lw.compare": (
        lambda first, second, **named: lw.compare(first, second, **named),
        {"first": None, "second": None},
        {"names": "Any", "accuracy": "Any"},
    ),
    "load_weights": (lambda **changed: lw.adapters.load_weights(**changed), {"net": nn.Linear(3, 2), "path": None}, {}),
    "Equivariant": (
        lambda **changed: Equivariant(**changed),
        {"neurons": 4, "numbers": 5, "classes": (0, 1), "of_class": False, "width": 4, "layers": 1, "heads": 1},
        dict.fromkeys(("neurons", "numbers", "width", "layers", "heads"), "int"),
    ),
    "ResidualBlock": (
        lambda **changed: ResidualBlock(**changed),
        {"inputs": 3, "outputs": 3},
        {"inputs": "int", "outputs": "int"},
    ),
    "nets.mlp": (lambda a, b: lw.nets.mlp(a, b), {"a": 3, "b": 2}, {"a": "int", "b": "int"}),
    "nets.cnn": (lambda **changed: lw.nets.cnn(**changed), {"shape": (3, 12, 12), "classes": 2}, {"hidden": "int"}),
    "nets.lora": (lambda **changed: lw.nets.lora(**changed), {"net": lw.nets.mlp(3, 4, 2), "rank": 1}, {"seed": "int"}),
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
    several = name.startswith("lw.audit") and argument == "seed" and isinstance(hostile, list | tuple | range)
    right = several or annotation in ("Any", "") or fits(annotation, hostile)
    right = right or (argument in ("seed", "threshold", "max_minutes") and huge)

    def run():
        found = {key: _made(key) if value is None and key in MADE else value for key, value in given.items()}
        return call(**{**found, argument: hostile})

    return Case("argument", f"{name}({argument}={words(hostile)})", run, lambda result: right)


MADE = ("audit", "first", "second", "path")


def _made(name):
    """What takes a while to make."""
    if name == "path":
        return written("weights", save({key: value.clone() for key, value in nn.Linear(3, 2).state_dict().items()}))
    return lw.Audit.from_json(audits()[name == "second"][0] / "audit.json")
