"""Every field of every public value, given what it does not expect."""

import dataclasses
import math

import torch

import lostwax as lw
from fuzz.outcomes import Case
from fuzz.values import HOSTILE, fits, words
from instances import INSTANCES, instances
from lostwax.inits import FromNet, Given, Glorot, He, LeCunNormal, Normal, TorchDefault
from lostwax.schedules import Cosine, Linear, StepDecay


def examples():
    """One value or more of every public class with fields."""
    seen = [FromNet(), Given({"a": torch.ones(2)}), Glorot(), He(), LeCunNormal(), Normal(0.1), TorchDefault()]
    seen += [Cosine(), Linear(), StepDecay(3), lw.shadows.Local(), lw.shadows.Store("x"), lw.metrics.LPIPS()]
    seen += [lw.RecoNN(), lw.WeakRecoNN(), lw.Ensemble()]
    seen += [
        lw.losses.Tweedie(1.5),
        lw.losses.BinaryCrossEntropy(),
        lw.decoders.RowDecoder(),
        lw.decoders.ConvDecoder(),
        lw.decoders.ResidualDecoder(),
        lw.Adam(),
        lw.SGD(),
    ]
    seen += [one for kind in INSTANCES for one in instances(kind)]
    return [value for value in seen if dataclasses.is_dataclass(value) and dataclasses.fields(value)]


EXAMPLES = examples()


def cases(random):
    """One field of one value at a time."""
    while True:
        value = EXAMPLES[random.integers(len(EXAMPLES))]
        fields = [field for field in dataclasses.fields(value) if field.init]
        field = fields[random.integers(len(fields))]
        yield case(value, field, HOSTILE[random.integers(len(HOSTILE))])


def case(value, field, hostile):
    """Make the value anew with one field replaced."""
    name = f"{type(value).__name__}({field.name}={words(hostile)})"
    right = fits(str(field.type), hostile) and not _infinite(value, field.name, hostile)

    def make():
        if isinstance(value, lw.access.Layers):
            return lw.access.Layers(*hostile) if isinstance(hostile, tuple) else lw.access.Layers(hostile)
        return dataclasses.replace(value, **{field.name: hostile})

    if isinstance(value, lw.access.Layers):
        right = isinstance(hostile, str) or (
            isinstance(hostile, tuple) and all(isinstance(one, str) for one in hostile)
        )
    return Case("field", name, make, lambda made: right)


def _infinite(value, name, hostile):
    """Infinity is a setting of one field alone: no clipping."""
    return isinstance(hostile, float) and math.isinf(hostile) and not (isinstance(value, lw.DPSGD) and name == "clip")
