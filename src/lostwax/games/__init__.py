"""The nouns, the protocols and the games: what is dealt, released, known and guessed."""

from lostwax.games.adversary import Adversary, Sees
from lostwax.games.cells import Columns, Kept, TableCells
from lostwax.games.facts import AccessFacts, Facts, HintFacts, LossFacts, Mechanism, ThreatFacts, TrainerFacts
from lostwax.games.fitted import Extremes, Fitted, Part, Present, ReleasedTable, RowSample, Stationary, Stored, Sums
from lostwax.games.informed import Informed, Table
from lostwax.games.notes import Kind, Note, Noted
from lostwax.games.nouns import Cohort, Guess, Hints, Knowledge, Release, Step
from lostwax.games.protocols import Access, Attack, Loss, Metric, Reconstructor, Threat, Trainer
from lostwax.games.records import Records
from lostwax.games.weak import Weak

__all__ = ["AccessFacts", "Facts", "HintFacts", "LossFacts", "Mechanism", "ThreatFacts", "TrainerFacts"]
__all__ += ["Adversary", "Kind", "Note", "Noted", "Sees"]
__all__ += ["Columns", "Extremes", "Fitted", "Informed", "Kept", "Part", "Present", "ReleasedTable", "TableCells"]
__all__ += ["RowSample", "Stationary", "Stored", "Sums", "Table", "Weak"]
__all__ += ["Cohort", "Guess", "Hints", "Knowledge", "Records", "Release", "Step"]
__all__ += ["Access", "Attack", "Loss", "Metric", "Reconstructor", "Threat", "Trainer"]
