"""The reconstructor of transfer-learned heads, for an adversary who knows no record (S2)."""

from lostwax.attacks.weak_reconn.aims import BeatChance, LogError, MeanError
from lostwax.attacks.weak_reconn.attack import WeakRecoNN
from lostwax.attacks.weak_reconn.augmented import Augmented
from lostwax.attacks.weak_reconn.readers import ConditionalReader, FlatReader, SetReader
from lostwax.attacks.weak_reconn.reconstructor import TrainedOnHeads

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
