"""The nouns, the protocols and the games: what is dealt, released, known and guessed."""

from lostwax.games.fitted import Extremes, Fitted, Stationary, Sums
from lostwax.games.informed import Informed
from lostwax.games.nouns import Cohort, Guess, Hints, Knowledge, Release, Step
from lostwax.games.protocols import Access, Attack, Loss, Metric, Reconstructor, Threat, Trainer
from lostwax.games.records import Records
from lostwax.games.weak import Weak

__all__ = [
    "Access",
    "Attack",
    "Cohort",
    "Extremes",
    "Fitted",
    "Guess",
    "Hints",
    "Informed",
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
    "Weak",
]
