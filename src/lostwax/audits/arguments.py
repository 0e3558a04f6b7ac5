"""Is each argument of an audit the kind of thing it should be? Said before anything is computed."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from lostwax.games import Metric, Records


class Kind(NamedTuple):
    """What an argument must be able to do, and what such a thing is called."""

    methods: tuple[str, ...]
    example: str
    arguments: int | None = None  # that it is called with, where nothing but a call is asked of it


KINDS = {
    "trainer": Kind(("__call__", "tile_size"), "a trainer, such as lw.GD(lr=0.2, steps=100)"),
    "threat": Kind(("deal", "hints"), "a threat, such as lw.Informed(known)"),
    "attack": Kind(("objection", "prepare"), "an attack, such as lw.RecoNN()"),
    "access": Kind(("__call__",), "an access, such as lw.access.Weights()", 2),
    "engine": Kind(("__call__", "parts"), "an engine, such as lw.shadows.Local()"),
}
OPTIONAL = ("attack", "access", "engine")


def check_arguments(verb: str, net: Any, records: Mapping[str, Any], metrics: Any = (), **others: Any) -> None:
    """Refuse what would fail later with an error that says nothing to the user."""
    if not isinstance(net, nn.Module):
        raise TypeError(
            f"{verb}: expected the net to be a torch nn.Module, got {_named(net)}."
            + (
                " For a fitted scikit-learn model pass data=(X, y), the table it was fitted on."
                if verb == "audit"
                else ""
            )
        )
    for name, each in records.items():
        if not isinstance(each, Records):
            raise TypeError(f"{verb}: expected {name} to be lw.Records(x, y), got {_named(each)}.")
    for name, value in others.items():
        if not (value is None and name in OPTIONAL) and not _is_one(value, KINDS[name]):
            example = KINDS[name].example
            raise TypeError(f"{verb}: expected {name} to be {example}, got {_named(value)}.{_cure(name, value)}")
    if not isinstance(metrics, Sequence) or not all(isinstance(one, Metric) for one in metrics):
        raise TypeError("audit: expected metrics to be a list of metrics, such as [lw.metrics.SSIM()].")


def _is_one(value: Any, kind: Kind) -> bool:
    """Can it do what is asked of it? A class and a net cannot, whatever their methods."""
    if isinstance(value, type | nn.Module) or not all(callable(getattr(value, each, None)) for each in kind.methods):
        return False
    if kind.arguments is None:
        return True
    try:
        inspect.signature(value).bind(*[None] * kind.arguments)
    except TypeError:
        return False
    except ValueError:  # written in C: it says nothing of its arguments
        return True
    return True


def _named(value: Any) -> str:
    return f"the class {value.__name__}" if inspect.isclass(value) else type(value).__name__


def _cure(name: str, value: Any) -> str:
    if name == "trainer" and inspect.isfunction(value):
        return f" Wrap a training function of your own: lw.OwnTraining({value.__name__})."
    return ""
