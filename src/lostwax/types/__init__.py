"""The nouns and the protocols. Nothing here imports torch, or any other room."""

from lostwax.types.fitted import Extremes, Fitted, Stationary, Sums
from lostwax.types.games import Cohort, Guess, Hints, Knowledge, Release, Step
from lostwax.types.protocols import Access, Attack, Loss, Metric, Reconstructor, Threat, Trainer
from lostwax.types.records import Records

__all__ = [
    "Access",
    "Attack",
    "Cohort",
    "Extremes",
    "Fitted",
    "Guess",
    "Hints",
    "Knowledge",
    "Loss",
    "Metric",
    "Reconstructor",
    "Records",
    "Release",
    "Stationary",
    "Step",
    "Sums",
    "Threat",
    "Trainer",
]
