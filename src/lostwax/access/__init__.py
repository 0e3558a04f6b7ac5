"""What of a release the adversary sees."""

from lostwax.access.layers import Layers
from lostwax.access.logits import Logits
from lostwax.access.seen_rows import SeenRows, rows_objection
from lostwax.access.standardise import Standardise
from lostwax.access.superparameters import Neuron, Superparameters, neurons
from lostwax.access.weights import Weights

__all__ = [
    "Layers",
    "Logits",
    "Neuron",
    "SeenRows",
    "Standardise",
    "Superparameters",
    "Weights",
    "neurons",
    "rows_objection",
]
