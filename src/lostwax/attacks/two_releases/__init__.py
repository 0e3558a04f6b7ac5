"""Two releases of one model, whose training sets differ in a few rows: what the two files tell of these rows."""

from lostwax.attacks.two_releases.equation import ChangedRow, PublicSample, solve_changed_row
from lostwax.attacks.two_releases.parts import Changes, PlaceMap, Subtracted, matched_parts, recoded, subtracted
from lostwax.attacks.two_releases.trees import subtract_trees

__all__ = ["ChangedRow", "Changes", "PlaceMap", "PublicSample", "Subtracted"]
__all__ += ["matched_parts", "recoded", "solve_changed_row", "subtract_trees", "subtracted"]
