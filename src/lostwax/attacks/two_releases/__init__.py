"""Two releases of one model, whose training sets differ in a few rows: what the two files tell of these rows."""

from lostwax.attacks.two_releases.equation import ChangedRow, PublicSample, solve_changed_row
from lostwax.attacks.two_releases.parts import Changes, Subtracted, subtracted

__all__ = ["ChangedRow", "Changes", "PublicSample", "Subtracted", "solve_changed_row", "subtracted"]
