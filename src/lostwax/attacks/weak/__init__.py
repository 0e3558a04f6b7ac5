"""Reconstruction from transfer-learned heads by an adversary who knows no record (Maciazek and Allison 2025)."""

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
