"""The reconstructor of transfer-learned heads, for an adversary who knows no record (S2)."""

from lostwax.attacks.weak.attack import TrainedOnHeads, WeakRecoNN
from lostwax.attacks.weak.objectives import Augmented, BeatChance, LogError, MeanError
from lostwax.attacks.weak.readers import ConditionalReader, FlatReader, SetReader

__all__ = [
    "Augmented",
    "BeatChance",
    "ConditionalReader",
    "FlatReader",
    "LogError",
    "MeanError",
    "SetReader",
    "TrainedOnHeads",
    "WeakRecoNN",
]
