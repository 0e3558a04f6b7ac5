"""The nouns, the protocols and the games: what is dealt, released, known and guessed."""

from lostwax.games.attackers import Adversary, Attacker, Sees
from lostwax.games.cells import Cells, Columns, Kept
from lostwax.games.facts import (
    AccessFacts,
    AttackFacts,
    DefenceFacts,
    Facts,
    HintFacts,
    LossFacts,
    Mechanism,
    MetricFacts,
    ThreatFacts,
    TrainerFacts,
)
from lostwax.games.fitted import (
    Extremes,
    Fitted,
    Part,
    Present,
    ProportionalHazards,
    ReleasedTable,
    RowSample,
    Stationary,
    Stored,
    Sums,
)
from lostwax.games.notes import Note, Noted, Topic
from lostwax.games.nouns import Cohort, Guess, Hints, Knowledge, Release, Step
from lostwax.games.protocols import Access, Attack, Engine, Game, Loss, Metric, Reconstructor, Threat, Trainer
from lostwax.games.records import Records
from lostwax.games.threats import Informed, Table, Weak

__all__ = ["AccessFacts", "AttackFacts", "DefenceFacts", "Facts", "HintFacts", "LossFacts", "Mechanism"]
__all__ += ["MetricFacts", "ThreatFacts", "TrainerFacts"]
__all__ += ["Adversary", "Attacker", "Note", "Noted", "Sees", "Topic"]
__all__ += ["Cells", "Columns", "Extremes", "Fitted", "Informed", "Kept", "Part", "Present"]
__all__ += ["ProportionalHazards", "ReleasedTable"]
__all__ += ["RowSample", "Stationary", "Stored", "Sums", "Table", "Weak"]
__all__ += ["Cohort", "Guess", "Hints", "Knowledge", "Records", "Release", "Step"]
__all__ += ["Access", "Attack", "Engine", "Game", "Loss", "Metric", "Reconstructor", "Threat", "Trainer"]
