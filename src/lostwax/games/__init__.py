"""The nouns, the protocols and the games: what is dealt, released, known and guessed."""

from lostwax.games.facts import AccessFacts, Facts, HintFacts, LossFacts, Mechanism, ThreatFacts, TrainerFacts
from lostwax.games.fitted import Extremes, Fitted, Stationary, Sums
from lostwax.games.informed import Informed, Table
from lostwax.games.nouns import Cohort, Guess, Hints, Knowledge, Release, Step
from lostwax.games.protocols import Access, Attack, Loss, Metric, Reconstructor, Threat, Trainer
from lostwax.games.records import Records
from lostwax.games.weak import Weak

__all__ = [
    "Access",
    "AccessFacts",
    "Attack",
    "Cohort",
    "Extremes",
    "Facts",
    "Fitted",
    "Guess",
    "HintFacts",
    "Hints",
    "Informed",
    "Knowledge",
    "Loss",
    "LossFacts",
    "Mechanism",
    "Metric",
    "Reconstructor",
    "Records",
    "Release",
    "Stationary",
    "Step",
    "Sums",
    "Table",
    "Threat",
    "ThreatFacts",
    "Trainer",
    "TrainerFacts",
    "Weak",
]
